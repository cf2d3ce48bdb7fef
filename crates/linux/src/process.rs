//! Which process is meant, also after its number was given to another one.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// A process on this boot of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// Start of the process in clock ticks since boot (field 22 of proc_pid_stat(5)).
    pub started: u64,
}

impl ProcessId {
    /// The calling process; `None` when /proc cannot be read.
    #[must_use]
    pub fn this() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this number now; `None` when there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: start_of(pid)? })
    }

    /// Whether it still runs. One that cannot be looked at, as no descriptor is left, counts as running.
    #[must_use]
    pub fn is_alive(self) -> bool {
        match read_stat(self.pid) {
            Ok(stat) => parse_start(&stat) == Some(self.started),
            // It may end while it is looked at.
            Err(error) => {
                let is_gone = error.raw_os_error() == Some(libc::ESRCH);
                !is_gone && error.kind() != io::ErrorKind::NotFound
            }
        }
    }
}

/// Resident memory of the calling process, bytes (proc_pid_statm(5); the kernel may be some pages behind); `None`
/// when /proc cannot be read.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// All processes that a process has started, and those that they have, which still run. One whose
/// parent has ended is not among them.
#[must_use]
pub fn descendants(of: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let parents: Vec<(u32, u32)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = Vec::new();
    let mut next = vec![of];
    while let Some(parent) = next.pop() {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        next.extend(children.clone());
        found.extend(children);
    }
    found
}

/// Makes the calling process ignore a signal, and the programs that it executes.
///
/// # Errors
/// Those of signal(2): `InvalidInput` for SIGKILL and SIGSTOP.
pub fn ignore_signal(signal: rustix::process::Signal) -> io::Result<()> {
    // SAFETY: no handler is installed, so no code of ours runs in a signal's context.
    let before = unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What /etc/passwd calls a user; `uid N` where it does not know the number.
#[must_use]
pub fn user_name(uid: u32) -> String {
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    parse_user(&known, uid).unwrap_or_else(|| format!("uid {uid}"))
}

/// Fields of a line: name, password, number, and more (passwd(5)).
fn parse_user(known: &str, uid: u32) -> Option<String> {
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let stat = read_stat(pid).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn start_of(pid: u32) -> Option<u64> {
    parse_start(&read_stat(pid).ok()?)
}

fn read_stat(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/stat"))
}

/// The name of the program is in parentheses and may hold any byte, `)` and blanks too, so fields
/// are counted from the last `)`. A zombie has ended.
pub(crate) fn parse_start(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_field_22_whatever_the_program_is_called() {
        let fields = (3..=52)
            .map(|field| if field == 3 { "S".to_owned() } else { field.to_string() })
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(parse_start(&format!("17 (a ) b) {fields}")), Some(22));
        assert_eq!(parse_start("17 (cat) Z 1 2"), None);
        assert_eq!(parse_start(""), None);
    }

    #[test]
    fn a_user_is_found_by_number() {
        let known = "root:x:0:0:root:/root:/bin/bash\n+::::::\nada:x:1000:0::/:\n";
        assert_eq!(parse_user(known, 1000).as_deref(), Some("ada"));
        assert_eq!(parse_user(known, 1), None);
        assert_eq!(user_name(u32::MAX - 1), "uid 4294967294");
    }

    #[test]
    fn this_process_is_alive_and_another_start_is_not() {
        let this = ProcessId::this().unwrap();
        assert!(this.is_alive());
        assert!(!ProcessId { started: this.started + 1, ..this }.is_alive());
    }

    #[test]
    fn a_child_of_a_child_is_a_descendant() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The line comes when the second process has been started.
        let mut line = [0u8; 1];
        io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let found = descendants(std::process::id());
        let [sleeper] = descendants(shell.id())[..] else { panic!("one child") };
        assert!(found.contains(&shell.id()) && found.contains(&sleeper), "{found:?}");
        for pid in [sleeper, shell.id()] {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn a_kill_cannot_be_ignored() {
        let refused = ignore_signal(rustix::process::Signal::KILL).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_ended_process_is_not_alive() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId { pid: child.id(), started: start_of(child.id()).unwrap() };
        assert!(id.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!id.is_alive());
    }
}
