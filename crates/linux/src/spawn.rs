//! Where a child process starts: in which network namespace, on which CPUs.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::netns::{self, NetNs};

/// Makes the child start in a network namespace. It keeps the caller's mounts, so /sys and
/// /sys/fs/cgroup are as outside (`ip netns exec` hides the latter).
///
/// # Errors
/// When no descriptor is left.
pub fn enter_on_spawn(command: &mut Command, namespace: &NetNs) -> io::Result<()> {
    let handle = namespace.as_fd().try_clone_to_owned()?;
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing; the
    // descriptor is owned by the closure, which lives as long as the command.
    unsafe { command.pre_exec(move || netns::enter(handle.as_fd())) };
    Ok(())
}

/// Makes the child start with `cpus` as the only ones it may run on. An empty list changes nothing.
pub fn pin_on_spawn(command: &mut Command, cpus: &[u32]) {
    if cpus.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    // What is beyond that is no CPU, and of a list of such the kernel refuses the empty set.
    for &cpu in cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || Ok(sched_setaffinity(None, &set)?)) };
}

/// Makes the child end (SIGTERM) when the thread that starts it does, also where that is killed
/// (prctl(2), PR_SET_PDEATHSIG).
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNsGuard;
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn a_child_starts_where_it_was_told_to() {
        if skip_without_namespaces("spawn::a_child_starts_where_it_was_told_to") {
            return;
        }
        let name = format!("wirecost-test-{}-spawn", std::process::id());
        let guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let cpu = crate::thread::allowed_cpus().unwrap()[0];
        let mut command = Command::new("grep");
        command.args(["-h", "-e", "Cpus_allowed_list", "-e", "eth", "-e", "lo:"]);
        command.args(["/proc/self/status", "/proc/self/net/dev"]);
        enter_on_spawn(&mut command, &namespace).unwrap();
        pin_on_spawn(&mut command, &[cpu]);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(output.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{output}");
        assert!(output.contains("lo:") && !output.contains("eth"), "{output}");
        drop(guard);
    }
}
