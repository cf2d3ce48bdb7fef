//! perf_event_open(2) without BPF: groups of counters, and sampling with call chains.
//!
//! Structures, constants and ioctls are those of `perf-event-open-sys`, which is generated from the
//! kernel's header; why not more of a library is told in docs/adr/0010-sampling.md. What is made
//! here hangs on descriptors: it ends with the process, however that ends.

mod group;
mod pmu;
mod record;
mod ring;
mod sampler;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings as sys;
use perf_event_open_sys::{ioctls, perf_event_open};

pub use group::{Counts, Group, parse_group};
pub use pmu::{PmuEvent, cpumask, pmu_event, pmu_events, pmus};
pub use record::{Chain, Record, Sample, parse};
pub use sampler::CpuSampler;

/// What an event is of: one CPU with all that runs there, or the calling thread on any CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Needs CAP_PERFMON, or perf_event_paranoid below 1.
    Cpu(u32),
    ThisThread,
}

impl Scope {
    /// Process and CPU as the system call takes them.
    fn arguments(self) -> (libc::pid_t, libc::c_int) {
        match self {
            Self::Cpu(cpu) => (-1, libc::c_int::try_from(cpu).unwrap_or(libc::c_int::MAX)),
            Self::ThisThread => (0, -1),
        }
    }
}

/// Something to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `type` of perf_event_attr: who counts.
    pub kind: u32,
    /// What is counted.
    pub config: u64,
    pub user: bool,
    pub kernel: bool,
}

impl Event {
    #[must_use]
    pub const fn software(what: Software) -> Self {
        Self { kind: sys::PERF_TYPE_SOFTWARE, config: what as u64, user: true, kernel: true }
    }

    /// A tracepoint of the kernel, such as `lock/contention_end`.
    ///
    /// # Errors
    /// `NotFound` where tracefs is not mounted or the kernel has no such tracepoint.
    pub fn tracepoint(name: &str) -> io::Result<Self> {
        let id = std::fs::read_to_string(format!("/sys/kernel/tracing/events/{name}/id"))?;
        let config = id.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self { kind: sys::PERF_TYPE_TRACEPOINT, config, user: true, kernel: true })
    }

    /// A generic event of the PMU. Where a machine has PMUs of several kinds (hybrid CPUs), `pmu` is
    /// the type of the one that is meant, which the kernel takes in the upper half:
    /// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/perf_event.h#L47>.
    #[must_use]
    pub const fn hardware(what: Hardware, pmu: Option<u32>) -> Self {
        let pmu = match pmu {
            Some(pmu) => (pmu as u64) << sys::PERF_PMU_TYPE_SHIFT,
            None => 0,
        };
        Self { kind: sys::PERF_TYPE_HARDWARE, config: pmu | what as u64, user: true, kernel: true }
    }

    /// The same, of the kernel only.
    #[must_use]
    pub const fn in_kernel(self) -> Self {
        Self { user: false, ..self }
    }

    fn attributes(self) -> sys::perf_event_attr {
        let mut attributes = sys::perf_event_attr {
            type_: self.kind,
            size: size_of::<sys::perf_event_attr>() as u32,
            config: self.config,
            ..sys::perf_event_attr::default()
        };
        attributes.set_disabled(1);
        attributes.set_exclude_user((!self.user).into());
        attributes.set_exclude_kernel((!self.kernel).into());
        attributes
    }
}

/// Events that the kernel itself counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Software {
    CpuClock = sys::PERF_COUNT_SW_CPU_CLOCK,
    TaskClock = sys::PERF_COUNT_SW_TASK_CLOCK,
    PageFaults = sys::PERF_COUNT_SW_PAGE_FAULTS,
    ContextSwitches = sys::PERF_COUNT_SW_CONTEXT_SWITCHES,
    MinorFaults = sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
}

/// Generic events of a PMU, which the kernel translates for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Hardware {
    Cycles = sys::PERF_COUNT_HW_CPU_CYCLES,
    Instructions = sys::PERF_COUNT_HW_INSTRUCTIONS,
    CacheMisses = sys::PERF_COUNT_HW_CACHE_MISSES,
    BranchMisses = sys::PERF_COUNT_HW_BRANCH_MISSES,
}

/// Opens an event, in the group of `leader` where there is one. It counts nothing until enabled.
fn open(
    attributes: &sys::perf_event_attr,
    scope: Scope,
    leader: Option<&OwnedFd>,
) -> io::Result<OwnedFd> {
    let (process, cpu) = scope.arguments();
    let leader = leader.map_or(-1, AsRawFd::as_raw_fd);
    let mut attributes = *attributes;
    let flags = libc::c_ulong::from(sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the structure is whole and its size is told; the kernel writes at most its size.
    let fd = unsafe { perf_event_open(&mut attributes, process, cpu, leader, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What to do with an event, or with all of its group.
#[derive(Debug, Clone, Copy)]
enum Act {
    Enable,
    Disable,
    Reset,
}

fn tell(event: &OwnedFd, act: Act, group: bool) -> io::Result<()> {
    let fd = event.as_raw_fd();
    let flags = if group { sys::PERF_IOC_FLAG_GROUP } else { 0 };
    // SAFETY: the descriptor is an event's; these ioctls take an integer.
    let done = unsafe {
        match act {
            Act::Enable => ioctls::ENABLE(fd, flags),
            Act::Disable => ioctls::DISABLE(fd, flags),
            Act::Reset => ioctls::RESET(fd, flags),
        }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How little an ordinary user may have of events (sysctl kernel.perf_event_paranoid).
#[must_use]
pub fn paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}
