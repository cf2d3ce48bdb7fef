//! Where and how urgently a thread runs.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When the CPU does not exist or is not allowed to this process.
pub fn pin(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Restricts the calling thread, and what it starts from now on, to these CPUs. An empty list
/// changes nothing.
///
/// # Errors
/// When none of them exists or is allowed to this process.
pub fn restrict(cpus: &[u32]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// CPUs the calling thread may run on, ascending.
///
/// # Errors
/// Those of sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// Work that must be on time, the more urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealtimePriority {
    /// Counters of the load.
    Snapshot = 2,
    /// Observers.
    Watch = 1,
}

/// Lets the calling thread run before all ordinary ones, for work that is short and must be on
/// time. Returns whether the kernel allowed it: it asks for CAP_SYS_NICE or a limit (`RLIMIT_RTPRIO`), and where it
/// has `CONFIG_RT_GROUP_SCHED` for a share of the thread's cgroup (`cpu.rt_runtime_us`).
pub fn set_realtime(urgency: RealtimePriority) -> bool {
    let parameters = libc::sched_param { sched_priority: urgency as libc::c_int };
    // SAFETY: passes a valid, initialised structure that the kernel only reads.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) == 0 }
}

/// For a thread of the usual policy that sleeps nearly always: when it is woken it need not wait until the running
/// thread has used its slice, because its own is shorter. Needs no privileges; kernels before 6.12 have one slice for
/// all. Where the kernel allows it (CAP_SYS_NICE, `RLIMIT_NICE`) it gets the highest weight too.
/// <https://docs.kernel.org/scheduler/sched-eevdf.html>
pub fn set_short_slice() {
    set_nice(-20);
    // SAFETY: takes integers only. The value 0 is not an error here: the nice value of a thread is -20 to 19, and
    // that of the calling thread can always be read.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        nice,
        runtime: SHORTEST_SLICE,
        ..SchedulingAttributes::default()
    };
    // SAFETY: passes a valid, initialised structure of the size that it states, which the kernel only reads.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Nanoseconds: the shortest that the kernel accepts.
const SHORTEST_SLICE: u64 = 100_000;

/// `struct sched_attr` (sched_setattr(2)).
#[derive(Default)]
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Undoes [`set_realtime`].
pub fn clear_realtime() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: passes a valid, initialised structure that the kernel only reads. The kernel always
    // allows a lower priority.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters) };
}

/// Has the calling thread not take the CPU from another one when it is woken: it runs when that one sleeps or
/// has had its share (SCHED_BATCH, sched(7)). A thread that was given another policy than the usual one keeps
/// it, as does one that a sandbox does not let change it.
pub fn set_batch() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the first takes a number only; the second passes a valid, initialised structure that the kernel
    // only reads.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        }
    }
}

/// How long a thread has run, and how long it has been ready to run and had no CPU, since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Nanoseconds. Softirqs that interrupted the thread are part of it, unless the kernel has
    /// `CONFIG_IRQ_TIME_ACCOUNTING`.
    pub ran: u64,
    pub waited: u64,
}

/// The scheduler's counts of a thread.
#[derive(Debug)]
pub struct SchedStat(Option<std::fs::File>);

impl SchedStat {
    /// Of the calling thread.
    #[must_use]
    pub fn own() -> Self {
        Self(std::fs::File::open("/proc/thread-self/schedstat").ok())
    }

    /// None where the kernel does not count (`CONFIG_SCHED_INFO`).
    #[must_use]
    pub fn now(&self) -> Option<Scheduled> {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 128];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Scheduled { ran: next()?, waited: next()? })
    }
}

/// Gives the calling thread priority over others (nice(2), -20 to 19). Returns whether the kernel allowed it: less
/// than before requires CAP_SYS_NICE.
pub fn set_nice(nice: i32) -> bool {
    // SAFETY: takes integers only. Linux applies it to a thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// The CPU that runs the calling thread at this moment.
#[must_use]
pub fn current_cpu() -> u32 {
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or_default()
}

/// Makes timers of the calling thread fire without the 50 us that the kernel may add to save power
/// (prctl PR_SET_TIMERSLACK).
pub fn minimize_timer_slack() {
    // SAFETY: takes integers only; a kernel that refuses leaves the slack as it is.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Asks the kernel to end this process when its parent ends.
pub fn die_with_parent() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, as it lasts.
    #[test]
    fn a_short_slice_is_of_the_usual_policy() {
        let attributes = std::thread::spawn(|| {
            set_short_slice();
            let mut attributes = SchedulingAttributes::default();
            let size = size_of::<SchedulingAttributes>();
            // SAFETY: the kernel writes no more than `size` bytes into a structure of that size.
            let result =
                unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
            assert_eq!(result, 0);
            attributes
        });
        let attributes = attributes.join().unwrap();
        assert_eq!(attributes.policy, libc::SCHED_OTHER as u32);
        // Kernels before 6.12 do not tell, as they have one slice for all.
        assert!([0, SHORTEST_SLICE].contains(&attributes.runtime), "{}", attributes.runtime);
        assert!([-20, 0].contains(&attributes.nice), "{}", attributes.nice);
    }

    #[test]
    fn only_the_usual_policy_becomes_batch() {
        // SAFETY: takes a number only.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        // Of a thread of its own, as it lasts.
        let of_thread = |first: fn()| {
            std::thread::spawn(move || {
                first();
                let before = policy();
                set_batch();
                (before, policy())
            })
        };
        assert_eq!(of_thread(|| ()).join().unwrap(), (libc::SCHED_OTHER, libc::SCHED_BATCH));
        // Where it may not be real-time it has the usual one.
        let real_time = || {
            set_realtime(RealtimePriority::Watch);
        };
        let (before, after) = of_thread(real_time).join().unwrap();
        assert!(before == libc::SCHED_OTHER || after == before, "{before} {after}");
    }
}
