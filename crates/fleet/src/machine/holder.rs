//! How a run says who it is, and how others are told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wirecost_linux::{facts, process};
use wirecost_model::holder::{Holder, RunIdentity};
use wirecost_model::units;

/// The identity of this process, which runs `command`.
///
/// # Errors
/// When the kernel has no random numbers.
pub fn this_run(command: String) -> std::io::Result<RunIdentity> {
    let mut bytes = [0u8; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got < bytes.len() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let identity = RunIdentity {
        id: format!("{:032x}", u128::from_ne_bytes(bytes)),
        user: process::user_name(rustix::process::geteuid().as_raw()),
        host: facts::hostname(),
        pid: std::process::id(),
        command,
    };
    Ok(identity.printable())
}

/// Who runs what, where and since when, as part of a sentence.
#[must_use]
pub fn describe(holder: &Holder) -> String {
    let RunIdentity { user, host, pid, command, .. } = &holder.run;
    let place = match *host == facts::hostname() {
        true => String::new(),
        false => format!(" on {host}"),
    };
    let since = UNIX_EPOCH.checked_add(Duration::from_millis(holder.since_unix_ms));
    let since = match since.filter(|_| holder.since_unix_ms > 0) {
        Some(since) => {
            let age = SystemTime::now().duration_since(since).unwrap_or_default().as_secs();
            let age = humantime::format_duration(Duration::from_secs(age));
            format!(" since {} ({age})", humantime::format_rfc3339_seconds(since))
        }
        None => String::new(),
    };
    let cpus = match holder.cpus.as_slice() {
        [] => "all CPUs".to_owned(),
        cpus => format!("CPUs {}", units::cpus(cpus)),
    };
    format!("{user} runs `{command}` (process {pid}{place}){since}, on {cpus}")
}

/// All of them, as part of a sentence.
#[must_use]
pub fn list(holders: &[Holder]) -> String {
    holders.iter().map(describe).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(cpus: &[u32]) -> Holder {
        let mut run = this_run("wirecost run @rr".to_owned()).unwrap();
        run.user = "ada".to_owned();
        run.pid = 12;
        Holder { run, since_unix_ms: 0, cpus: cpus.to_vec() }
    }

    #[test]
    fn a_holder_says_who_runs_what_where() {
        assert_eq!(
            describe(&holder(&[0, 1, 4])),
            "ada runs `wirecost run @rr` (process 12), on CPUs 0-1,4"
        );
        let mut elsewhere = holder(&[]);
        elsewhere.run.host = "no-such-host".to_owned();
        elsewhere.since_unix_ms = 1_000;
        let text = describe(&elsewhere);
        assert!(
            text.contains("(process 12 on no-such-host) since 1970-01-01T00:00:01Z ("),
            "{text}"
        );
        assert!(text.ends_with("), on all CPUs"), "{text}");
    }
}
