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
                 on loopback: `wirecost run` and `wirecost tune` without --lab, `wirecost study run` with \
                 --loopback"
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The message and the remedy, if there is one.
    fn said(error: &LabError) -> (String, String) {
        (error.to_string(), error.remedy().unwrap_or_default())
    }

    fn source(kind: io::ErrorKind) -> io::Error {
        kind.into()
    }

    #[test]
    fn each_error_says_what_failed_and_what_to_do() {
        let name = || "x".to_owned();
        let failed = || source(io::ErrorKind::Other);
        let down = "remove it: wirecost lab down --name x";
        let loopback = "run it as root (sudo), or in a container with these capabilities; without them, run on loopback: \
                        `wirecost run` and `wirecost tune` without --lab, `wirecost study run` with --loopback";
        let namespaces = "the kernel must allow creating network namespaces and mounting in /run/netns; some containers \
                          forbid this";
        let table: [(LabError, &str, &str); 29] = [
            (
                LabError::NotPermitted {
                    missing: vec![Capability::NetAdmin, Capability::SysAdmin],
                },
                "creating or removing a lab requires CAP_NET_ADMIN and CAP_SYS_ADMIN",
                loopback,
            ),
            (LabError::HostCount { asked: 1 }, "a lab has 2 to 250 hosts, not 1", ""),
            (
                LabError::Rate { asked: 7 },
                "7 bit/s is too low a rate for a link: the minimum is 120000 bit/s",
                "",
            ),
            (
                LabError::BadName { name: "a b".to_owned() },
                "`a b` is not a valid name for a lab: use 1 to 64 letters, digits and `-`",
                "",
            ),
            (LabError::NameTaken { name: name() }, "a lab named `x` already exists", down),
            (
                LabError::NotFound { name: name() },
                "there is no lab named `x`",
                "list the labs: wirecost lab status",
            ),
            (
                LabError::Incomplete { name: name(), namespace: "wirecost-x-h1".to_owned() },
                "lab `x` is incomplete: its namespace `wirecost-x-h1` is missing",
                down,
            ),
            (
                LabError::InUse { name: name(), pid: 7 },
                "lab `x` is in use by the run of process 7",
                "stop process 7; this removes the lab",
            ),
            (LabError::NoProc, "/proc has no entry for this process", ""),
            (
                LabError::Locked { path: "/run/wirecost/lab/.lock".to_owned(), seconds: 30 },
                "another wirecost has held /run/wirecost/lab/.lock for 30 s",
                "",
            ),
            (
                LabError::State {
                    act: "read",
                    path: "/x.json".to_owned(),
                    source: source(io::ErrorKind::InvalidData),
                },
                "failed to read /x.json",
                "it was written by another version; if no lab is in use, remove /x.json",
            ),
            (
                LabError::State {
                    act: "write",
                    path: "/x.json".to_owned(),
                    source: source(io::ErrorKind::PermissionDenied),
                },
                "failed to write /x.json",
                "make /run/wirecost writable for this user",
            ),
            (
                LabError::List { source: failed() },
                "failed to list the network namespaces in /run/netns",
                "",
            ),
            (
                LabError::Setting {
                    setting: "net.ipv4.ip_forward",
                    namespace: name(),
                    source: failed(),
                },
                "failed to set net.ipv4.ip_forward in `x`",
                "",
            ),
            (
                LabError::Emulator { source: failed() },
                "the emulator of the links did not start",
                "the kernel must have TUN devices (/dev/net/tun): modprobe tun",
            ),
            (
                LabError::EmulatorGone { name: name() },
                "the emulator of the links of lab `x` has ended",
                down,
            ),
            (
                LabError::NoQdisc { kind: "netem" },
                "this kernel has no netem",
                "load it: modprobe sch_netem; or have a process emulate the links: --backend emulator",
            ),
            (
                LabError::BeyondNetem { key: "codel" },
                "netem does not have codel as the links of a lab do",
                "have a process emulate the links: --backend emulator, or auto",
            ),
            (
                LabError::Trial { source: failed() },
                "failed to try which queueing disciplines this kernel has",
                "",
            ),
            (
                LabError::Qdisc { kind: "netem", source: failed() },
                "failed to set netem at a link",
                "",
            ),
            (
                LabError::Offloads { device: "eth0".to_owned(), source: failed() },
                "failed to switch off the offloads of `eth0`",
                "",
            ),
            (
                LabError::Queues { asked: 8, cpus: 2 },
                "8 queues need as many CPUs; this process may use 2",
                "",
            ),
            (
                LabError::Topology { topology: "pair", hosts: "2", asked: 3 },
                "a pair has 2 hosts, not 3",
                "",
            ),
            (
                LabError::Place { namespace: name(), source: failed() },
                "failed to prepare the start of a process in `x`",
                "",
            ),
            (
                LabError::Cpus { source: failed() },
                "failed to read which CPUs this process may use",
                "",
            ),
            (
                LabError::Namespace(NetNsError::Refused {
                    act: "create",
                    name: name(),
                    source: failed(),
                }),
                "failed to create network namespace `x`",
                namespaces,
            ),
            (
                LabError::Link(LinkError::Netlink {
                    act: LIMIT_RATE,
                    device: "eth0".to_owned(),
                    source: source(io::ErrorKind::NotFound),
                }),
                "failed to limit the rate of `eth0`",
                "links with a limited rate need the kernel module sch_tbf: modprobe sch_tbf, or create the lab without a \
                 rate",
            ),
            (
                LabError::Link(LinkError::Netlink {
                    act: "add",
                    device: "eth0".to_owned(),
                    source: source(io::ErrorKind::Unsupported),
                }),
                "failed to add `eth0`",
                "the kernel needs the modules veth and bridge: modprobe -a veth bridge",
            ),
            (
                LabError::Steering(RpsError::Queue {
                    device: "eth0".to_owned(),
                    namespace: name(),
                    source: failed(),
                }),
                "failed to steer the receive work of `eth0` in `x`",
                "",
            ),
        ];
        for (error, message, remedy) in table {
            assert_eq!(said(&error), (message.to_owned(), remedy.to_owned()), "{error:?}");
        }
    }
}
