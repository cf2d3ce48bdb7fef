//! System calls by time.

use std::io::{self, Write};

use wirecost_model::observe::SyscallsSection;

use super::columns::{Table, number, text};
use super::quantity::{bytes, count, percent};
use super::{Look, note};

/// Rows of the table; the others are said to be there.
const ROWS: usize = 12;

/// Writes the section; `of` says of whom, where that is in doubt.
pub fn write(
    out: &mut dyn Write,
    section: &SyscallsSection,
    of: &str,
    look: &Look,
) -> io::Result<()> {
    let share = |seconds: f64| seconds * 100.0 / section.window_seconds.max(f64::MIN_POSITIVE);
    if !section.calls.is_empty() {
        let mut table = Table::new(&[
            text("system call", 0),
            number("count", 0),
            number("/s", 3),
            number("avg us", 0),
            number("max us", 2),
            number("% of a CPU", 0),
            number("+irq%", 4),
            number("waiting us", 1),
            number("failed", 5),
            number("bytes", 2),
        ]);
        for call in section.calls.iter().take(ROWS) {
            table.row(vec![
                call.name.clone(),
                count(call.count),
                count(call.per_second.round() as u64),
                format!("{:.2}", call.average_us),
                format!("{:.2}", call.max_us),
                percent(share(call.seconds)),
                percent(share(call.interrupted_seconds)),
                format!("{:.2}", call.waited_seconds * 1e6 / call.count.max(1) as f64),
                count(call.failed),
                call.bytes.map_or_else(String::new, bytes),
            ]);
        }
        writeln!(out)?;
        table.write(out, look)?;
    }
    let whose = section.pid.map_or_else(|| of.to_owned(), |pid| format!(" of process {pid}"));
    let mut line = format!(
        "system calls{whose}: {} /s, {}% of a CPU",
        count(section.per_second.round() as u64),
        percent(share(section.seconds))
    );
    if section.calls.len() > ROWS {
        line += &format!("; {} more kinds are not shown", section.calls.len() - ROWS);
    }
    if let Some(split) = &section.usr_sys {
        line += &format!(
            "; task time of these CPUs: {:.2}% user, {:.2}% system (every call timed)",
            split.usr * 100.0,
            (1.0 - split.usr) * 100.0
        );
    }
    note(out, look, &line)
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{SyscallRow, UsrSys};

    use super::*;

    #[test]
    fn calls_by_time_and_the_exact_split() {
        let call = |name: &str, count: u64, seconds: f64, bytes: Option<u64>| SyscallRow {
            name: name.to_owned(),
            count,
            per_second: count as f64 / 2.0,
            seconds,
            average_us: seconds * 1e6 / count as f64,
            max_us: 61.25,
            interrupted_seconds: seconds / 2.0,
            waited_seconds: seconds * 3.0,
            failed: 7,
            bytes,
            ..SyscallRow::default()
        };
        let section = SyscallsSection {
            pid: Some(4321),
            calls: vec![
                call("sendto", 200_003, 0.4, Some(12_800_192)),
                call("epoll_wait", 1_009, 0.002, None),
            ],
            count: 201_012,
            per_second: 100_506.0,
            seconds: 0.402,
            window_seconds: 2.0,
            usr_sys: Some(UsrSys {
                source: "spans".to_owned(),
                usr: 0.2505,
                interval: None,
                samples: 0,
            }),
        };
        let mut out = Vec::new();
        write(&mut out, &section, "", &Look::plain(120)).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
        let mut out = Vec::new();
        write(&mut out, &SyscallsSection::default(), " of server", &Look::plain(80)).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  system calls of server: 0 /s, 0.0% of a CPU\n"
        );
    }
}
