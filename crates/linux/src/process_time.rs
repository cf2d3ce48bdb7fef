//! CPU time of every process and kernel thread, by the clock that the kernel keeps of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use wirecost_model::clock::{Nanos, SECOND};

/// PF_KTHREAD, <https://elixir.bootlin.com/linux/v6.12/source/include/linux/sched.h#L1707>.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// How /proc names the first PID namespace:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/proc_ns.h#L45>.
pub(crate) const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Whether this process knows others by the numbers that the kernel itself uses, as BPF programs do.
#[must_use]
pub fn in_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it == Path::new(FIRST_PID_NAMESPACE))
}

/// CPU time of each process (all its threads, also those that have ended) and kernel thread that
/// this namespace shows. To the nanosecond, unlike /proc/PID/stat; no privilege is needed.
#[must_use]
pub fn cpu_times() -> BTreeMap<u32, Nanos> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, cpu_time(pid)?)))
        .collect()
}

/// CPU time of one process.
#[must_use]
pub fn cpu_time(pid: u32) -> Option<Nanos> {
    // The identifier of a process's clock, as clock_getcpuclockid(3) makes it:
    // https://elixir.bootlin.com/linux/v6.12/source/include/linux/posix-timers_types.h#L14
    const SCHED: libc::clockid_t = 2;
    let clock = (!libc::pid_t::try_from(pid).ok()?) << 3 | SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is there.
    let done = unsafe { libc::clock_gettime(clock, &mut time) };
    (done == 0).then_some(time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos)
}

/// Name of a process or kernel thread.
#[must_use]
pub fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// First argument of a process, if this is its program: what a program of several commands does.
#[must_use]
pub fn subcommand_of(pid: u32, program: &str) -> Option<String> {
    if name(pid)? != program {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = line.split(|&byte| byte == 0).nth(1)?;
    let text = String::from_utf8_lossy(first);
    (!text.is_empty()).then(|| text.into_owned())
}

/// Whether it is a thread of the kernel.
#[must_use]
pub fn is_kernel_thread(pid: u32) -> Option<bool> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; flags are the seventh field after it.
    let (_, rest) = text.rsplit_once(')')?;
    let flags: u64 = rest.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_time_and_is_none_of_the_kernel() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let mut sum = 0u64;
        while cpu_time(pid).unwrap() < before + 20_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_times()[&pid] >= before + 20_000_000);
        assert_eq!(is_kernel_thread(pid), Some(false));
        assert!(!name(pid).unwrap().is_empty());
    }

    #[test]
    fn nobody_has_no_time() {
        // Beyond the largest pid that Linux gives.
        assert_eq!(cpu_time(1 << 23), None);
        assert_eq!(name(1 << 23), None);
    }
}
