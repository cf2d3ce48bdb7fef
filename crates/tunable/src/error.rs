//! Why a setting could not be changed or restored, and what to do about it.

use std::io;

use wirecost_linux::netns::NetNsError;
use wirecost_linux::privilege::Capability;

use crate::target::Refusal;

/// Why a setting could not be changed or restored. Unless it says so, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error("changing or restoring settings of a host requires {}", names(.missing))]
    NotPermitted { missing: Vec<Capability> },
    #[error("there is no tunable named `{name}`{}", suggestion(.similar))]
    Unknown { name: String, similar: Option<&'static str> },
    #[error("invalid value `{value}` for `{name}`: expected {wants}")]
    BadValue { name: &'static str, value: String, wants: String },
    #[error("`{name}` is set twice")]
    Twice { name: &'static str },
    #[error("cannot set `{name}` to `{value}` on {target}")]
    Refused { name: &'static str, value: String, target: String, source: Refusal },
    #[error("refused to change `{name}`: `{device}` carries the control connection")]
    ControlDevice { name: &'static str, device: String },
    #[error(
        "a change of `{name}` on `{device}`, which carries the control connection, needs a guardian"
    )]
    NoGuardian { name: &'static str, device: String },
    #[error(
        "`{name}` on {target} is already changed by process {pid}, which has not restored it yet"
    )]
    InUse { name: String, target: String, pid: u32 },
    #[error(
        "cannot change `{name}`: process {pid} has changed `{other}` of {target} and has not restored it \
         yet, and a change of one may change the other"
    )]
    Disturbs { name: &'static str, other: String, target: String, pid: u32 },
    #[error(
        "process {guardian}, which restores the settings of process {owner}, has not come to an end"
    )]
    GuardianAtWork { owner: u32, guardian: u32 },
    #[error(
        "`{device}` lost its carrier when its settings were changed, and has not had it back for \
         {seconds} s"
    )]
    NoCarrier { device: String, seconds: u64 },
    #[error("the change was not confirmed in time and has been reverted")]
    NotConfirmed,
    #[error("failed to undo {settings} after another setting was refused: {cause}")]
    StillChanged { settings: String, cause: String },
    #[error("no answer from the guardian process, which restores settings")]
    Guardian { source: io::Error },
    #[error("failed to {act} {path}")]
    Journal { act: &'static str, path: String, source: io::Error },
    #[error("another wirecost has held {path} for {seconds} s")]
    Locked { path: String, seconds: u64 },
    #[error("/proc has no entry for this process")]
    NoProc,
    #[error(transparent)]
    Namespace(#[from] NetNsError),
}

impl TuneError {
    /// What the reader can do about it, where there is something.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotPermitted { .. } => Some(
                "run wirecost, or the agent of a remote host, as root (sudo)".to_owned(),
            ),
            Self::Refused { source: Refusal::PciNotAllowed, .. } => Some(
                "only agents started with `--tune --allow-pci` may do this, so not a run on loopback or \
                 in a lab, which has no agent; use a test machine, as a wrong value can make the device \
                 or the machine hang"
                    .to_owned(),
            ),
            Self::Refused { source: Refusal::Failed { source, .. }, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "run wirecost (on a remote host: its agent) as root, or with CAP_NET_ADMIN and \
                     CAP_SYS_ADMIN"
                        .to_owned(),
                )
            }
            Self::ControlDevice { .. } => Some(
                "use --allow-control-device; the change is then reverted unless the controller \
                 confirms within 10 s that it still reaches the host"
                    .to_owned(),
            ),
            Self::InUse { pid, .. } | Self::Disturbs { pid, .. } => {
                Some(format!("wait for process {pid}, or stop it"))
            }
            Self::GuardianAtWork { guardian, .. } => {
                Some(format!("wait for process {guardian}, or kill it and run: wirecost restore"))
            }
            Self::StillChanged { .. } => Some("run: wirecost restore".to_owned()),
            Self::Journal { path, source, .. } => match source.kind() {
                io::ErrorKind::InvalidData => Some(format!(
                    "it was written by another version: run `wirecost restore` of that version, or \
                     remove {path} and check the settings"
                )),
                _ => Some("make /run/wirecost writable for this user".to_owned()),
            },
            _ => None,
        }
    }
}

fn names(missing: &[Capability]) -> String {
    missing.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(" and ")
}

fn suggestion(similar: &Option<&'static str>) -> String {
    similar.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// An error with its causes, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
