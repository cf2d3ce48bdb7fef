//! Why a lab could not be made, used or removed, and what to do about it.

use std::io;

use wirecost_linux::link::LinkError;
use wirecost_linux::netns::NetNsError;
use wirecost_linux::privilege::Capability;
use wirecost_linux::rate_limit::LIMIT_RATE;
use wirecost_linux::rps::RpsError;

use crate::addresses::MAX_HOSTS;
use crate::rate;

/// Why a lab could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("creating or removing a lab requires {}", names(.missing))]
    NotPermitted { missing: Vec<Capability> },
    #[error("a lab has 2 to {MAX_HOSTS} hosts, not {asked}")]
    HostCount { asked: usize },
    #[error("{asked} bit/s is too low a rate for a link: the minimum is {} bit/s", rate::MIN_RATE)]
    Rate { asked: u64 },
    #[error("`{name}` is not a valid name for a lab: use 1 to 64 letters, digits and `-`")]
    BadName { name: String },
    #[error("a lab named `{name}` already exists")]
    NameTaken { name: String },
    #[error("there is no lab named `{name}`")]
    NotFound { name: String },
    #[error("lab `{name}` is incomplete: its namespace `{namespace}` is missing")]
    Incomplete { name: String, namespace: String },
    #[error("lab `{name}` is in use by the run of process {pid}")]
    InUse { name: String, pid: u32 },
    #[error("/proc has no entry for this process")]
    NoProc,
    #[error("another wirecost has held {path} for {seconds} s")]
    Locked { path: String, seconds: u64 },
    #[error("failed to {act} {path}")]
    State { act: &'static str, path: String, source: io::Error },
    #[error("failed to list the network namespaces in /run/netns")]
    List { source: io::Error },
    #[error("failed to set {setting} in `{namespace}`")]
    Setting { setting: &'static str, namespace: String, source: io::Error },
    #[error("the emulator of the links did not start")]
    Emulator { source: io::Error },
    #[error("the emulator of the links of lab `{name}` has ended")]
    EmulatorGone { name: String },
    #[error("this kernel has no {kind}")]
    NoQdisc { kind: &'static str },
    #[error("netem does not have {key} as the links of a lab do")]
    BeyondNetem { key: &'static str },
    #[error("failed to try which queueing disciplines this kernel has")]
    Trial { source: io::Error },
    #[error("failed to set {kind} at a link")]
    Qdisc { kind: &'static str, source: io::Error },
    #[error("failed to switch off the offloads of `{device}`")]
    Offloads { device: String, source: io::Error },
    #[error("{asked} queues need as many CPUs; this process may use {cpus}")]
    Queues { asked: usize, cpus: usize },
    #[error("a {topology} has {hosts} hosts, not {asked}")]
    Topology { topology: &'static str, hosts: &'static str, asked: usize },
    #[error("failed to prepare the start of a process in `{namespace}`")]
    Place { namespace: String, source: io::Error },
    #[error("failed to read which CPUs this process may use")]
    Cpus { source: io::Error },
    #[error(transparent)]
    Namespace(#[from] NetNsError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Steering(#[from] RpsError),
}

impl LabError {
    /// What the reader can do about it, where there is something.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotPermitted { .. } => Some(
                "run it as root (sudo), or in a container with these capabilities; without them, run \
                 on loopback: `wirecost run` without --lab, `wirecost study run` with --loopback"
                    .to_owned(),
            ),
            Self::NameTaken { name }
            | Self::Incomplete { name, .. }
            | Self::EmulatorGone { name } => {
                Some(format!("remove it: wirecost lab down --name {name}"))
            }
            Self::Emulator { .. } => {
                Some("the kernel must have TUN devices (/dev/net/tun): modprobe tun".to_owned())
            }
            Self::NoQdisc { kind } => Some(format!(
                "load it: modprobe sch_{kind}; or have a process emulate the links: --backend emulator"
            )),
            Self::BeyondNetem { .. } => {
                Some("have a process emulate the links: --backend emulator, or auto".to_owned())
            }
            Self::NotFound { .. } => Some("list the labs: wirecost lab status".to_owned()),
            Self::InUse { pid, .. } => Some(format!("stop process {pid}; this removes the lab")),
            Self::State { path, source, .. } => match source.kind() {
                io::ErrorKind::InvalidData => Some(format!(
                    "it was written by another version; if no lab is in use, remove {path}"
                )),
                _ => Some("make /run/wirecost writable for this user".to_owned()),
            },
            Self::Namespace(NetNsError::Refused { .. }) => Some(
                "the kernel must allow creating network namespaces and mounting in /run/netns; some \
                 containers forbid this"
                    .to_owned(),
            ),
            Self::Link(LinkError::Netlink { act: LIMIT_RATE, source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Some(
                    "links with a limited rate need the kernel module sch_tbf: modprobe sch_tbf, or \
                     create the lab without a rate"
                        .to_owned(),
                )
            }
            Self::Link(LinkError::Netlink { source, .. })
                if source.kind() == io::ErrorKind::Unsupported =>
            {
                Some(
                    "the kernel needs the modules veth and bridge: modprobe -a veth bridge".to_owned(),
                )
            }
            _ => None,
        }
    }
}

fn names(missing: &[Capability]) -> String {
    missing.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(" and ")
}
