//! What the CPUs did in a window, from two readings of /proc/stat, and what a byte cost them.

use wirecost_model::host::{CpuSnapshot, CpuTicks};
use wirecost_model::run::{Cpu, CpuLine};

use crate::window::Span;

/// Where the split comes from.
pub(crate) const CPU_SOURCE: &str = "proc-stat";
/// Busy ticks of /proc/stat as seconds, times the rate of the time-stamp counter.
pub(crate) const CYCLES_SOURCE: &str = "tsc-ticks";

/// What a set of CPUs did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuUse {
    pub(crate) split: Cpu,
    /// User, system and interrupt time of all CPUs together.
    pub(crate) busy_seconds: f64,
    /// Counts a second of the time-stamp counter, measured over the same time.
    pub(crate) tsc_rate: Option<f64>,
}

/// What these CPUs (all that there are, for `None`) did in the span; `None` where the kernel's
/// counters were not read at both of its ends.
pub(crate) fn used(span: &Span<'_>, cpus: Option<&[u32]>) -> Option<CpuUse> {
    let (start, end) = (span.start.cpu.as_ref()?, span.end.cpu.as_ref()?);
    let seconds = span.seconds();
    let ticks_per_second = end.ticks_per_second as f64;
    // Against the wall, not against the sum of the columns: what the kernel did not account shows.
    let wall = seconds * ticks_per_second;
    if wall <= 0.0 {
        return None;
    }
    let spent: Vec<CpuTicks> = end
        .ticks
        .iter()
        .filter(|after| cpus.is_none_or(|cpus| cpus.contains(&after.cpu)))
        .filter_map(|after| {
            let before = start.ticks.iter().find(|before| before.cpu == after.cpu)?;
            Some(after.since(before))
        })
        .collect();
    if spent.is_empty() {
        return None;
    }
    let per_cpu: Vec<CpuLine> = spent.iter().map(|ticks| line(ticks, wall)).collect();
    let mean = |column: fn(&CpuLine) -> f64| {
        per_cpu.iter().map(column).sum::<f64>() / per_cpu.len() as f64
    };
    let (usr, sys) = (mean(|line| line.usr), mean(|line| line.sys));
    let (irq, softirq) = (mean(|line| line.irq), mean(|line| line.softirq));
    let (steal, idle) = (mean(|line| line.steal), mean(|line| line.idle));
    let busy: u64 =
        spent.iter().map(|ticks| ticks.user + ticks.system + ticks.irq + ticks.softirq).sum();
    Some(CpuUse {
        split: Cpu {
            usr,
            sys,
            irq,
            softirq,
            steal,
            idle,
            unaccounted: 100.0 - (usr + sys + irq + softirq + steal + idle),
            per_cpu,
        },
        busy_seconds: busy as f64 / ticks_per_second,
        tsc_rate: tsc_rate(start, end, seconds),
    })
}

fn line(ticks: &CpuTicks, wall: f64) -> CpuLine {
    let percent = |ticks: u64| ticks as f64 * 100.0 / wall;
    CpuLine {
        cpu: ticks.cpu,
        usr: percent(ticks.user),
        sys: percent(ticks.system),
        irq: percent(ticks.irq),
        softirq: percent(ticks.softirq),
        steal: percent(ticks.steal),
        idle: percent(ticks.idle + ticks.iowait),
    }
}

fn tsc_rate(start: &CpuSnapshot, end: &CpuSnapshot, seconds: f64) -> Option<f64> {
    let counted = end.tsc?.checked_sub(start.tsc?)?;
    (counted > 0).then(|| counted as f64 / seconds)
}

/// Busy cycles over these bytes in units of 1024, or why that is not known.
pub(crate) fn cycles_per_kbyte(used: Option<&CpuUse>, bytes: u64) -> Result<f64, String> {
    let used = used.ok_or("the kernel's CPU counters were not read at both edges of the window")?;
    let rate = used.tsc_rate.ok_or("this CPU has no time-stamp counter of a constant rate")?;
    if bytes == 0 {
        return Err("no byte moved in the window".to_owned());
    }
    if used.busy_seconds <= 0.0 {
        return Err(
            "/proc/stat counted no busy tick in the window: take a longer --duration".to_owned()
        );
    }
    Ok(used.busy_seconds * rate / (bytes as f64 / 1024.0))
}
