//! The clock of each CPU over the window, by readings at its edges and at intervals.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{ClockChange, ClockRange, ClockSource};

/// A CPU that is busy for less of an interval has no clock there: a few microseconds tell nothing.
const LEAST_BUSY: f64 = 0.001;
/// A change of the clock by less is not told: turbo varies all the time.
const CHANGE: f64 = 0.1;

/// Counters of one CPU at an instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClockCounts {
    /// Cycles while it was not halted.
    pub(super) aperf: u64,
    /// The same at the fixed rate of the time-stamp counter.
    /// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/kernel/cpu/aperfmperf.c>
    pub(super) mperf: u64,
    pub(super) tsc: u64,
}

/// The clocks of all CPUs at an instant.
#[derive(Debug, Clone)]
pub(super) enum ClockReading {
    Counted(BTreeMap<u32, ClockCounts>),
    /// kHz, by cpufreq.
    Told(BTreeMap<u32, u64>),
}

/// One CPU between two readings.
#[derive(Debug, Clone, Copy)]
struct Step {
    ghz: f64,
    /// Share of the time that it was not halted; none where that is unknown.
    busy: Option<f64>,
    /// End of the interval, since the beginning of the window.
    at: f64,
}

/// What the readings of a window tell.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    steps: BTreeMap<u32, Vec<Step>>,
    means: BTreeMap<u32, Step>,
    source: Option<ClockSource>,
}

impl Clocks {
    /// Of readings in the order of time.
    pub(super) fn of<'a>(readings: impl Iterator<Item = &'a (Nanos, ClockReading)>) -> Self {
        let readings: Vec<&(Nanos, ClockReading)> = readings.collect();
        let mut of = Self::default();
        let Some((begin, _)) = readings.first() else { return of };
        let since = |at: Nanos| seconds(at.saturating_sub(*begin));
        for (at, reading) in &readings {
            if let ClockReading::Told(khz) = reading {
                for (cpu, khz) in khz {
                    let step = Step { ghz: *khz as f64 / 1e6, busy: None, at: since(*at) };
                    of.source = Some(ClockSource::Cpufreq);
                    of.steps.entry(*cpu).or_default().push(step);
                }
            }
        }
        for (cpu, steps) in &of.steps {
            let mean = steps.iter().map(|step| step.ghz).sum::<f64>() / steps.len() as f64;
            of.means.insert(*cpu, Step { ghz: mean, busy: None, at: 0.0 });
        }
        for pair in readings.windows(2) {
            if let [before, after] = pair {
                for (cpu, step) in counted(before, after, since(after.0)) {
                    of.steps.entry(cpu).or_default().push(step);
                }
            }
        }
        if let (Some(first), Some(last)) = (readings.first(), readings.last()) {
            let means = counted(first, last, since(last.0));
            if !means.is_empty() {
                of.source = Some(ClockSource::AperfMperf);
                of.means = means;
            }
        }
        of
    }

    pub(super) fn source(&self) -> Option<ClockSource> {
        self.source
    }

    pub(super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.means.keys().copied()
    }

    /// Time that a CPU was not halted.
    pub(super) fn busy_percent(&self, cpu: u32) -> Option<f64> {
        Some(self.means.get(&cpu)?.busy? * 100.0)
    }

    /// Of the intervals in which it was busy.
    pub(super) fn range(&self, cpu: u32) -> Option<ClockRange> {
        let mean_ghz = self.means.get(&cpu).filter(|step| step.tells())?.ghz;
        let steps = self.steps.get(&cpu)?.iter().filter(|step| step.tells());
        let all = || steps.clone().map(|step| step.ghz);
        Some(ClockRange {
            min_ghz: all().fold(mean_ghz, f64::min),
            mean_ghz,
            max_ghz: all().fold(mean_ghz, f64::max),
        })
    }

    /// The largest rise or fall of the mean of these CPUs, if it is large enough.
    pub(super) fn change(&self, wanted: impl Fn(u32) -> bool) -> Option<ClockChange> {
        // By the end of the interval, which all CPUs have in common.
        let mut times: BTreeSet<u64> = BTreeSet::new();
        let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (_, steps) in self.steps.iter().filter(|(cpu, _)| wanted(**cpu)) {
            for step in steps.iter().filter(|step| step.tells()) {
                let time = step.at.to_bits();
                times.insert(time);
                let weight = step.busy.unwrap_or(1.0);
                let (sum, weights) = sums.entry(time).or_default();
                *sum += step.ghz * weight;
                *weights += weight;
            }
        }
        // Bits of numbers that are not negative are in their order.
        let means: Vec<(f64, f64)> = times
            .into_iter()
            .filter_map(|time| {
                let (sum, weights) = sums.get(&time)?;
                Some((f64::from_bits(time), sum / weights))
            })
            .collect();
        largest_change(&means)
    }
}

impl Step {
    fn tells(&self) -> bool {
        self.busy.is_none_or(|busy| busy >= LEAST_BUSY)
    }
}

/// From the time and the clock of each interval.
fn largest_change(means: &[(f64, f64)]) -> Option<ClockChange> {
    let (_, first) = *means.first()?;
    let (mut lowest, mut highest) = (first, first);
    let mut largest: Option<ClockChange> = None;
    for &(seconds, to_ghz) in means {
        for from_ghz in [lowest, highest] {
            let size = |from: f64, to: f64| (to - from).abs() / from.max(f64::MIN_POSITIVE);
            let known = largest.map_or(CHANGE, |known| size(known.from_ghz, known.to_ghz));
            if size(from_ghz, to_ghz) > known {
                largest = Some(ClockChange { from_ghz, to_ghz, seconds });
            }
        }
        (lowest, highest) = (lowest.min(to_ghz), highest.max(to_ghz));
    }
    largest
}

fn counted(
    (begin, before): &(Nanos, ClockReading),
    (end, after): &(Nanos, ClockReading),
    at: f64,
) -> BTreeMap<u32, Step> {
    let (ClockReading::Counted(before), ClockReading::Counted(after)) = (before, after) else {
        return BTreeMap::new();
    };
    let length = seconds(end.saturating_sub(*begin));
    let step = |(cpu, now): (&u32, &ClockCounts)| {
        let then = before.get(cpu)?;
        let grown = |of: fn(&ClockCounts) -> u64| of(now).checked_sub(of(then)).map(|n| n as f64);
        let (aperf, mperf, tsc) =
            (grown(|of| of.aperf)?, grown(|of| of.mperf)?, grown(|of| of.tsc)?);
        if tsc <= 0.0 || length <= 0.0 {
            return None;
        }
        // Cycles over the time that the CPU was not halted, which MPERF tells at the rate of the TSC.
        let ghz = if mperf > 0.0 { aperf / mperf * (tsc / length) / 1e9 } else { 0.0 };
        let busy = if mperf > 0.0 { mperf / tsc } else { 0.0 };
        Some((*cpu, Step { ghz, busy: Some(busy), at }))
    };
    after.iter().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    /// Of the TSC.
    const RATE: f64 = 2.5e9;

    /// Readings each second of a CPU that was busy so much, at so many GHz.
    fn readings(seconds: &[(f64, f64)]) -> Vec<(Nanos, ClockReading)> {
        let mut now = ClockCounts { aperf: 1 << 40, mperf: 1 << 41, tsc: 1 << 42 };
        let mut all = vec![(5 * SECOND, ClockReading::Counted(BTreeMap::from([(3, now)])))];
        for (second, (busy, ghz)) in (6..).zip(seconds) {
            now.tsc += RATE as u64;
            now.mperf += (RATE * busy) as u64;
            now.aperf += (RATE * busy * (ghz * 1e9 / RATE)) as u64;
            all.push((second * SECOND, ClockReading::Counted(BTreeMap::from([(3, now)]))));
        }
        all
    }

    fn clocks(seconds: &[(f64, f64)]) -> Clocks {
        Clocks::of(readings(seconds).iter())
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
    }

    #[test]
    fn aperf_over_mperf_is_the_clock_while_busy() {
        // A quarter of a second at 3.4 GHz, three quarters at 2.6.
        let of = clocks(&[(0.25, 3.4), (0.75, 2.6), (0.0, 0.0)]);
        let range = of.range(3).unwrap();
        near(range.min_ghz, 2.6);
        near(range.max_ghz, 3.4);
        near(range.mean_ghz, 2.8);
        near(of.busy_percent(3).unwrap(), 100.0 / 3.0);
        assert_eq!(of.source(), Some(ClockSource::AperfMperf));
        let change = of.change(|_| true).unwrap();
        near(change.from_ghz, 3.4);
        near(change.to_ghz, 2.6);
        near(change.seconds, 2.0);
        assert_eq!(of.change(|cpu| cpu != 3), None);
    }

    #[test]
    fn a_clock_that_hardly_changes_does_not() {
        assert_eq!(clocks(&[(1.0, 3.4), (1.0, 3.2), (1.0, 3.3)]).change(|_| true), None);
        // Up is told as well as down, and the larger of both.
        let change = clocks(&[(1.0, 2.0), (1.0, 3.0), (1.0, 2.4)]).change(|_| true).unwrap();
        near(change.from_ghz, 2.0);
        near(change.to_ghz, 3.0);
    }

    #[test]
    fn an_idle_cpu_has_no_clock() {
        let of = clocks(&[(0.0, 0.0), (0.0001, 5.0)]);
        assert_eq!(of.range(3), None);
        assert!(of.busy_percent(3).unwrap() < 0.01);
        assert_eq!(of.change(|_| true), None);
        assert_eq!(of.range(4), None);
    }

    #[test]
    fn without_counters_it_is_what_cpufreq_told() {
        let told = |khz: [u64; 2]| ClockReading::Told(BTreeMap::from([(0, khz[0]), (1, khz[1])]));
        let readings = [
            (SECOND, told([3_400_000, 3_000_000])),
            (2 * SECOND, told([2_600_000, 3_000_000])),
            (3 * SECOND, told([2_400_000, 3_000_000])),
        ];
        let of = Clocks::of(readings.iter());
        assert_eq!(of.source(), Some(ClockSource::Cpufreq));
        let range = of.range(0).unwrap();
        near(range.min_ghz, 2.4);
        near(range.mean_ghz, 2.8);
        near(range.max_ghz, 3.4);
        assert_eq!(of.busy_percent(0), None);
        let change = of.change(|_| true).unwrap();
        near(change.from_ghz, 3.2);
        near(change.to_ghz, 2.7);
        let none = [(SECOND, ClockReading::Told(BTreeMap::new()))];
        assert_eq!(Clocks::of(none.iter()).source(), None);
    }
}
