//! What the calling thread may do.

use std::io::Write;

use rustix::thread::CapabilitySet;

/// Capabilities of `wanted` that the calling thread lacks, by name. A kernel that does not answer
/// counts as lacking all.
#[must_use]
pub fn missing(wanted: &[Capability]) -> Vec<Capability> {
    let effective =
        rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    wanted.iter().copied().filter(|capability| !effective.contains(capability.bit())).collect()
}

/// A capability of capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Devices, addresses, queues.
    NetAdmin,
    /// Namespaces and mounts.
    SysAdmin,
    /// Loading BPF programs.
    Bpf,
    /// Performance events, and BPF programs that trace.
    Perfmon,
    /// Ports below 1024.
    NetBindService,
    /// Real-time scheduling.
    SysNice,
    /// Locked memory beyond the limit.
    IpcLock,
    /// Files in /proc of processes that may do more than the caller.
    SysPtrace,
    /// Addresses in /proc/kallsyms.
    Syslog,
}

impl Capability {
    pub(crate) fn bit(self) -> CapabilitySet {
        match self {
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
            Self::Bpf => CapabilitySet::BPF,
            Self::Perfmon => CapabilitySet::PERFMON,
            Self::NetBindService => CapabilitySet::NET_BIND_SERVICE,
            Self::SysNice => CapabilitySet::SYS_NICE,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
            Self::SysPtrace => CapabilitySet::SYS_PTRACE,
            Self::Syslog => CapabilitySet::SYSLOG,
        }
    }

    /// As `CapEff` of /proc/PID/status counts it.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.bit().bits()
    }

    /// Name as capabilities(7) writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::SysNice => "CAP_SYS_NICE",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::Syslog => "CAP_SYSLOG",
        }
    }
}

/// What making namespaces and devices takes.
pub const NAMESPACES: &[Capability] = &[Capability::NetAdmin, Capability::SysAdmin];

/// What changing settings of a host takes.
pub const TUNING: &[Capability] = &[Capability::NetAdmin, Capability::SysAdmin];

/// What generating load can use.
pub const LOAD: &[Capability] =
    &[Capability::NetAdmin, Capability::NetBindService, Capability::SysNice, Capability::IpcLock];

/// What observing a host can use beyond that.
pub const OBSERVING: &[Capability] = &[
    Capability::Bpf,
    Capability::Perfmon,
    Capability::SysAdmin,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// What tracing by BPF takes.
pub const TRACING: &[Capability] = &[Capability::Bpf, Capability::Perfmon];

/// For tests: whether the calling thread cannot make namespaces, which is then said on standard
/// error as a line `SKIP: TEST: REASON`, past the test harness's capture. `make test` allows only
/// the skips that `tests/skipped.txt` names.
#[must_use]
pub fn skip_without_namespaces(test: &str) -> bool {
    skip_without(test, NAMESPACES)
}

/// For tests: the same for what tracing by BPF takes.
#[must_use]
pub fn skip_without_tracing(test: &str) -> bool {
    skip_without(test, TRACING)
}

fn skip_without(test: &str, wanted: &[Capability]) -> bool {
    let missing: Vec<_> = missing(wanted).into_iter().map(Capability::name).collect();
    if !missing.is_empty() {
        skip(test, &format!("needs {}", missing.join(" and ")));
    }
    !missing.is_empty()
}

/// For tests: says that a test leaves something out, for a reason that is no lack of privilege.
pub fn skip(test: &str, reason: &str) {
    // Without standard error nobody can be told.
    let _ = writeln!(std::io::stderr(), "SKIP: {test}: {reason}");
}
