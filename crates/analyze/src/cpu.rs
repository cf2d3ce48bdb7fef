//! What the CPUs did in a window, as it was traced or, failing that, from two readings of
//! /proc/stat; and what a byte cost them.

use wirecost_model::clock;
use wirecost_model::host::{CpuSnapshot, CpuTicks};
use wirecost_model::link::LinkReport;
use wirecost_model::observe::{CpuSection, CpuTime, HostObservation};
use wirecost_model::run::{Cpu, CpuLine};

use crate::window::{HostWindow, Span};

/// What a set of CPUs did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuUse {
    pub(crate) split: Cpu,
    /// Where it comes from: `bpf` or `proc-stat`.
    pub(crate) source: String,
    /// User, system and interrupt time of all CPUs together.
    pub(crate) busy_seconds: f64,
    /// Length of the time.
    seconds: f64,
    /// Counts a second of the time-stamp counter, measured over the same time.
    tsc_rate: Option<f64>,
    /// Counted by the hardware.
    pmu_cycles: Option<f64>,
}

impl CpuUse {
    /// `pmu`, `tsc-exact` (traced busy time as seconds, times the rate of the time-stamp counter) or
    /// `tsc-ticks` (the same with busy ticks of /proc/stat).
    pub(crate) fn cycles_source(&self) -> &'static str {
        match (self.pmu_cycles, self.source.as_str()) {
            (Some(_), _) => "pmu",
            (None, "bpf") => "tsc-exact",
            _ => "tsc-ticks",
        }
    }

    /// The same without what emulated links used of these CPUs (all, for `None`). The split stays that of the
    /// CPUs.
    pub(crate) fn without(mut self, link: Option<&LinkReport>, cpus: Option<&[u32]>) -> Self {
        let Some(link) = link else { return self };
        // The scheduler counts receive work of hosts for the thread that hands packets to them. Of devices with
        // queues that is all of it, so what the emulator itself used is not known.
        if link.link.nic.is_some() && link.cpu_source != "bpf" {
            return self;
        }
        let of_cpus =
            link.cpus.iter().filter(|(cpu, _)| cpus.is_none_or(|cpus| cpus.contains(cpu)));
        let percent: f64 = of_cpus.map(|(_, percent)| percent).sum();
        let seconds = (self.seconds * percent / 100.0).min(self.busy_seconds);
        if self.busy_seconds > 0.0 {
            let left = 1.0 - seconds / self.busy_seconds;
            self.pmu_cycles = self.pmu_cycles.map(|cycles| cycles * left);
        }
        self.busy_seconds -= seconds;
        self
    }

    /// Busy cycles, or why they are not known.
    pub(crate) fn cycles(&self) -> Result<f64, String> {
        if let Some(cycles) = self.pmu_cycles {
            return Ok(cycles);
        }
        let rate = self.tsc_rate.ok_or("this CPU has no time-stamp counter of a constant rate")?;
        Ok(self.busy_seconds * rate)
    }
}

/// What these CPUs (all that there are, for `None`) did: as it was observed, if it was, else as
/// /proc/stat counts it.
pub(crate) fn used(
    window: &HostWindow<'_>,
    observed: Option<&HostObservation>,
    cpus: Option<&[u32]>,
) -> Option<CpuUse> {
    observed
        .filter(|observed| observed.cpu.as_ref().is_some_and(|section| section.source == "bpf"))
        .and_then(|observed| {
            let seconds = window.span.seconds();
            // The observer hears of the end of such a phase late. What the CPUs did in the phase is
            // in what it saw; after it they idled, which must not count as the rate of the phase.
            let late = window.whole && observed.seconds > seconds;
            self::observed(observed, cpus, if late { observed.seconds } else { seconds })
        })
        .or_else(|| ticked(&window.span, cpus))
}

/// What these CPUs did as it was observed, scaled to so many seconds. The observer's window and the
/// load's differ by some microseconds: what counts is the rate.
pub(crate) fn observed(
    observed: &HostObservation,
    cpus: Option<&[u32]>,
    seconds: f64,
) -> Option<CpuUse> {
    let section = observed.cpu.as_ref()?;
    let wanted = |time: &&CpuTime| match (cpus, time.cpu) {
        (Some(cpus), Some(cpu)) => cpus.contains(&cpu),
        _ => true,
    };
    let times: Vec<&CpuTime> = section.per_cpu.iter().filter(wanted).collect();
    let wall: f64 = times.iter().map(|time| time.wall).sum();
    if wall <= 0.0 || observed.seconds <= 0.0 {
        return None;
    }
    let per_cpu: Vec<CpuLine> = times.iter().map(|time| traced_line(section, time)).collect();
    let busy: f64 = times.iter().map(|time| busy(time)).sum();
    let scale = seconds / observed.seconds;
    // Counted for all CPUs of the part together.
    let whole = times.len() == section.per_cpu.len();
    let pmu = observed.pmu.as_ref().filter(|_| whole);
    Some(CpuUse {
        split: mean(per_cpu),
        source: section.source.clone(),
        busy_seconds: busy * scale,
        seconds,
        tsc_rate: section.tsc_hz,
        pmu_cycles: pmu.map(|pmu| pmu.cycles * scale),
    })
}

/// Seconds in which a CPU worked for this machine.
fn busy(time: &CpuTime) -> f64 {
    time.task - stolen(time) + time.irq + time.softirq + time.idle_loop.unwrap_or(0.0)
}

/// Seconds of tasks that the hypervisor took. What it took beyond these it took of a CPU that was about to
/// wake up, which counts as idle, or within an interrupt.
fn stolen(time: &CpuTime) -> f64 {
    time.steal.unwrap_or(0.0).min(time.task)
}

fn traced_line(section: &CpuSection, time: &CpuTime) -> CpuLine {
    let percent = |seconds: f64| seconds * 100.0 / time.wall.max(f64::MIN_POSITIVE);
    let place = section.per_cpu.iter().position(|other| other.cpu == time.cpu);
    let own = place.and_then(|place| section.usr_sys_per_cpu.get(place)?.as_ref());
    // Of a CPU without a sample of its own, the machine's split is the best guess.
    let usr = own.or(section.usr_sys.as_ref()).map_or(0.0, |split| split.usr);
    let steal = stolen(time);
    let task = time.task - steal;
    CpuLine {
        cpu: time.cpu.unwrap_or_default(),
        usr: percent(task * usr),
        sys: percent(task * (1.0 - usr) + time.idle_loop.unwrap_or(0.0)),
        irq: percent(time.irq),
        softirq: percent(time.softirq),
        steal: percent(steal),
        idle: percent(time.idle),
    }
}

/// The mean over these CPUs, with what is missing to 100% as unaccounted.
fn mean(per_cpu: Vec<CpuLine>) -> Cpu {
    let mean = |column: fn(&CpuLine) -> f64| {
        per_cpu.iter().map(column).sum::<f64>() / per_cpu.len().max(1) as f64
    };
    let (usr, sys) = (mean(|line| line.usr), mean(|line| line.sys));
    let (irq, softirq) = (mean(|line| line.irq), mean(|line| line.softirq));
    let (steal, idle) = (mean(|line| line.steal), mean(|line| line.idle));
    let missing = 100.0 - (usr + sys + irq + softirq + steal + idle);
    // Of a trace nothing is missing but the error of floating point.
    let unaccounted = if missing.abs() < 1e-9 { 0.0 } else { missing };
    Cpu { usr, sys, irq, softirq, steal, idle, unaccounted, per_cpu }
}

/// Of the ticks of /proc/stat; `None` where they were not read at both ends of the span.
fn ticked(span: &Span<'_>, cpus: Option<&[u32]>) -> Option<CpuUse> {
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
    let busy: u64 =
        spent.iter().map(|ticks| ticks.user + ticks.system + ticks.irq + ticks.softirq).sum();
    Some(CpuUse {
        split: mean(spent.iter().map(|ticks| line(ticks, wall)).collect()),
        source: "proc-stat".to_owned(),
        busy_seconds: busy as f64 / ticks_per_second,
        seconds,
        tsc_rate: tsc_rate(start, end, seconds),
        pmu_cycles: None,
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

/// By the instants at which the counter itself was read; an agent of an older version did not tell them.
fn tsc_rate(start: &CpuSnapshot, end: &CpuSnapshot, seconds: f64) -> Option<f64> {
    let counted = end.tsc?.checked_sub(start.tsc?)?;
    let between = end.tsc_at.zip(start.tsc_at).and_then(|(end, start)| end.checked_sub(start));
    let seconds = between.map_or(seconds, clock::seconds);
    (counted > 0 && seconds > 0.0).then(|| counted as f64 / seconds)
}

/// Busy cycles over these bytes in units of 1024, or why that is not known.
pub(crate) fn cycles_per_kbyte(used: Option<&CpuUse>, bytes: u64) -> Result<f64, String> {
    let used = used.ok_or("the kernel's CPU counters were not read at both edges of the window")?;
    let cycles = used.cycles()?;
    if bytes == 0 {
        return Err("no bytes moved in the window".to_owned());
    }
    if cycles <= 0.0 && used.source == "bpf" {
        return Err("nothing ran on these CPUs in the window, except for steal".to_owned());
    }
    if cycles <= 0.0 {
        return Err(
            "/proc/stat counted no busy ticks in the window: use a longer --duration".to_owned()
        );
    }
    Ok(cycles / (bytes as f64 / 1024.0))
}
