//! Limits and privileges of a child process, set before its program starts, so that nothing it runs is
//! without them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set};
use rustix::thread::{set_capabilities, set_no_new_privs};

use crate::privilege::Capability;

/// What a child process may take and do. It gains nothing by running another program
/// (`PR_SET_NO_NEW_PRIVS`), leaves no core file, and is killed when the thread that started it ends
/// (`PR_SET_PDEATHSIG`, prctl(2)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Bytes of private writable memory (`RLIMIT_DATA`, getrlimit(2)): heap, and the stacks of threads.
    pub memory: u64,
    /// Open descriptors of each table (`RLIMIT_NOFILE`); no more than the parent's limit.
    pub descriptors: u64,
    /// Capabilities that it keeps of those the parent has.
    pub capabilities: Vec<Capability>,
}

/// Confines the child that `command` starts.
pub fn confine_on_spawn(command: &mut Command, confinement: &Confinement) {
    let Confinement { memory, descriptors, .. } = *confinement;
    let keep = set_of(&confinement.capabilities);
    let parent = rustix::process::getpid();
    let confine = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The signal is sent when the parent ends, not when it has ended already.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        lower(Resource::Data, memory)?;
        lower(Resource::Nofile, descriptors)?;
        lower(Resource::Core, 0)?;
        set_no_new_privs(true)?;
        reduce(keep)
    };
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(confine) };
}

/// Gives up what the calling thread may do beyond `keep`. Threads that it starts from now on may do
/// no more than it; other threads are as they were.
///
/// # Errors
/// Those of capset(2).
pub fn keep_only(keep: &[Capability]) -> io::Result<()> {
    reduce(set_of(keep))
}

fn set_of(capabilities: &[Capability]) -> CapabilitySet {
    capabilities.iter().map(|capability| capability.bit()).collect()
}

/// Both limits, where the hard one is higher now.
fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let maximum = now.maximum.map_or(to, |now| now.min(to));
    let current = now.current.map_or(maximum, |now| now.min(maximum));
    Ok(setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?)
}

fn reduce(keep: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    // A program that root starts gets what is in the bounding set, whatever the parent had
    // (capabilities(7), "Capabilities and execution of programs by root").
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(keep).iter() {
            match remove_capability_from_bounding_set(capability) {
                // A kernel that is older than the capability.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let mut less = now;
    less.effective &= keep;
    less.permitted &= keep;
    // The ambient set follows the inheritable one.
    less.inheritable &= keep;
    Ok(set_capabilities(None, less)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege::NAMESPACES;

    fn line<'a>(status: &'a str, name: &str) -> &'a str {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim()
    }

    #[test]
    fn a_confined_child_keeps_to_its_limits() {
        let mut command = Command::new("sh");
        // A shell that tries to take more.
        command.args(["-c", "ulimit -n 65 2>&1; cat /proc/self/limits /proc/self/status"]);
        let capabilities = vec![Capability::NetAdmin];
        let confinement = Confinement { memory: 64 << 20, descriptors: 64, capabilities };
        confine_on_spawn(&mut command, &confinement);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let limit = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let memory = (64u64 << 20).to_string();
        assert_eq!(limit("Max data size"), [memory.as_str(); 2]);
        assert_eq!(limit("Max open files"), ["64"; 2], "{text}");
        assert_eq!(limit("Max core file size"), ["0"; 2]);
        assert_eq!(line(&text, "NoNewPrivs"), "1");
        let bits = |name| u64::from_str_radix(line(&text, name), 16).unwrap();
        let allowed = CapabilitySet::NET_ADMIN.bits();
        for name in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
            assert_eq!(bits(name) & !allowed, 0, "{name}\n{text}");
        }
        if crate::privilege::missing(NAMESPACES).is_empty() {
            assert_eq!((bits("CapEff"), bits("CapBnd")), (allowed, allowed), "{text}");
        }
    }

    #[test]
    fn memory_beyond_the_limit_is_refused() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 200M /dev/zero | tail -c 200M | wc -c"]);
        let confinement =
            Confinement { memory: 32 << 20, descriptors: 64, capabilities: Vec::new() };
        confine_on_spawn(&mut command, &confinement);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "{output:?}");
    }

    #[test]
    fn a_thread_gives_up_what_it_does_not_keep() {
        let of_thread = std::thread::spawn(|| {
            keep_only(&[Capability::NetAdmin]).unwrap();
            let of_its_own = std::thread::spawn(|| capabilities(None).unwrap().effective);
            [capabilities(None).unwrap().effective, of_its_own.join().unwrap()]
        });
        for left in of_thread.join().unwrap() {
            assert!(CapabilitySet::NET_ADMIN.contains(left), "{left:?}");
        }
    }
}
