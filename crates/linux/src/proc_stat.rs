//! CPU time as /proc/stat counts it (proc_stat(5)), and the time-stamp counter beside it.

use std::fs;
use std::io;

use wirecost_model::host::{CpuSnapshot, CpuTicks};

use crate::tsc;

/// Counters of every CPU that is online now, with the ticks they are counted in.
///
/// # Errors
/// When /proc/stat cannot be read, or names no CPU.
pub fn cpu_snapshot() -> io::Result<CpuSnapshot> {
    let text = fs::read_to_string("/proc/stat")?;
    let tsc = tsc::read();
    let ticks = parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(CpuSnapshot {
        ticks,
        ticks_per_second: rustix::param::clock_ticks_per_second(),
        tsc: tsc.map(|reading| reading.count),
        tsc_at: tsc.map(|reading| reading.at),
    })
}

/// Counters of each CPU in the text of /proc/stat. The kernel adds guest time to `user` (and
/// `guest_nice` to `nice`) as well, so the guest columns are left out:
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/cputime.c#L144>. Columns that an old
/// kernel does not have count nothing there, and are 0.
///
/// # Errors
/// When a line of a CPU holds something else than numbers, or there is none.
pub fn parse(text: &str) -> Result<Vec<CpuTicks>, StatError> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        // The line of all CPUs together, `cpu`, has no number.
        let Some(number) = words.next().and_then(|word| word.strip_prefix("cpu")) else {
            continue;
        };
        if number.is_empty() {
            continue;
        }
        let malformed = || StatError::Malformed { line: line.to_owned() };
        let cpu = number.parse().map_err(|_| malformed())?;
        let columns = words
            .map(|word| word.parse::<u64>().map_err(|_| malformed()))
            .collect::<Result<Vec<_>, _>>()?;
        // The first four are as old as the file; without them the line is something else.
        if columns.len() < 4 {
            return Err(malformed());
        }
        let column = |place: usize| columns.get(place).copied().unwrap_or(0);
        all.push(CpuTicks {
            cpu,
            user: column(0) + column(1),
            system: column(2),
            idle: column(3),
            iowait: column(4),
            irq: column(5),
            softirq: column(6),
            steal: column(7),
        });
    }
    if all.is_empty() {
        return Err(StatError::NoCpu);
    }
    Ok(all)
}

/// Text that is not /proc/stat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatError {
    #[error("failed to read /proc/stat: no counters of a CPU in `{line}`")]
    Malformed { line: String },
    #[error("failed to read /proc/stat: it names no CPU")]
    NoCpu,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX_6: &str = "\
cpu  40 6 24 200 8 10 12 14 9 3
cpu0 10 3 11 100 4 5 6 7 5 2
cpu2 30 3 13 100 4 5 6 7 4 1
intr 7 0 0
ctxt 9
softirq 3 0 1
";

    #[test]
    fn nice_is_user_and_guest_is_not_counted_twice() {
        let expected = |cpu, user, system| CpuTicks {
            cpu,
            user,
            system,
            idle: 100,
            iowait: 4,
            irq: 5,
            softirq: 6,
            steal: 7,
        };
        assert_eq!(parse(LINUX_6), Ok(vec![expected(0, 13, 11), expected(2, 33, 13)]));
    }

    #[test]
    fn older_kernels_have_fewer_columns() {
        let ticks = parse("cpu 1 2 3 4\ncpu0 1 2 3 4\n").unwrap();
        let expected = CpuTicks { cpu: 0, user: 3, system: 3, idle: 4, ..CpuTicks::default() };
        assert_eq!(ticks, vec![expected]);
    }

    #[test]
    fn what_is_not_the_file_is_refused() {
        assert_eq!(parse("intr 1\n"), Err(StatError::NoCpu));
        for line in ["cpu0 1 2 3", "cpu0 1 2 x 4", "cpufreq 1 2 3 4", "cpu0 -1 2 3 4"] {
            assert_eq!(parse(line), Err(StatError::Malformed { line: line.to_owned() }));
        }
    }

    #[test]
    fn this_kernel() {
        let before = cpu_snapshot().unwrap();
        let after = cpu_snapshot().unwrap();
        assert!(before.ticks_per_second > 0);
        assert_eq!(before.ticks.len(), after.ticks.len());
        for (before, after) in before.ticks.iter().zip(&after.ticks) {
            assert!(after.user >= before.user && after.system >= before.system);
        }
        if let (Some(before), Some(after)) = (before.tsc, after.tsc) {
            assert!(after > before);
        }
    }
}
