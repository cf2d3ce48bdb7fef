//! Outages, dips and drift of a window: what a run of hours looks for.

use wirecost_model::run::{Interval, Run};
use wirecost_model::stability::{Dip, Drift, Outage, Stability};
use wirecost_model::units::{bytes, count, counted, percent, span};

use crate::statistics::{mann_kendall, theil_sen};

/// Throughput below this share of the median interval's is a dip.
const DIP: f64 = 0.5;
/// Dips are judged only if the median interval has this many operations: of a Poisson distribution with
/// this mean, one value in 80 million is less than half of it.
const OPERATIONS: u64 = 100;
/// Parts whose means are tested for drift; as many intervals are needed.
const PARTS: usize = 24;
/// Level of the test for drift.
const LEVEL: f64 = 0.05;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Of intervals in order of time, and of outages as start and length.
pub(crate) fn of(intervals: &[Interval], outages: &[(f64, f64)], lost_intervals: u64) -> Stability {
    let rates = rates(intervals);
    let in_dip = dips(intervals, &rates);
    let (drift, drift_reason) = match drift(intervals, &rates, in_dip.as_deref().unwrap_or(&[])) {
        Ok(drift) => (Some(drift), None),
        Err(reason) => (None, Some(reason)),
    };
    let outages: Vec<Outage> =
        outages.iter().map(|&(start, seconds)| Outage { start, seconds }).collect();
    let dips = in_dip.map(|in_dip| joined(intervals, &rates, &in_dip));
    Stability {
        outage_count: outages.len() as u64,
        outages: longest(outages, |outage| (outage.start, outage.seconds)),
        dip_count: dips.as_ref().ok().map(|dips| dips.len() as u64),
        dip_reason: dips.as_ref().err().cloned(),
        dips: longest(dips.unwrap_or_default(), |dip| (dip.start, dip.seconds)),
        lost_intervals,
        drift,
        drift_reason,
    }
}

/// Growth of the resident memory of the host that grew most over the window, bytes; `None` if no host reports it.
#[must_use]
pub fn memory_growth(run: &Run) -> Option<u64> {
    let memory = run.hosts.iter().filter_map(|host| host.memory);
    memory.map(|memory| memory.end.saturating_sub(memory.start)).max()
}

/// What a run shows, as sentences; none for a run without a measurement window.
#[must_use]
pub fn sentences(run: &Run) -> Vec<String> {
    let (Some(stability), Some(window)) = (&run.stability, &run.window) else { return Vec::new() };
    let mut sentences = vec![outages(stability, window.seconds, window.dead_seconds)];
    sentences.push(match (stability.dip_count, &stability.dip_reason) {
        (Some(0), _) => {
            "No dip: no interval had less than half of the median interval's throughput.".to_owned()
        }
        (Some(number), _) => {
            let longest = stability.dips.iter().map(|dip| dip.seconds).fold(0.0, f64::max);
            format!(
                "{}, the longest {}: throughput was less than half of the median interval's.",
                counted(number, "dip", "dips"),
                span(longest)
            )
        }
        (None, reason) => {
            format!("Dips were not judged: {}.", reason.as_deref().unwrap_or("too little moved"))
        }
    });
    sentences.push(match (&stability.drift, &stability.drift_reason) {
        (Some(drift), _) => drift_sentence(drift, window.seconds),
        (None, reason) => {
            format!("Drift was not judged: {}.", reason.as_deref().unwrap_or("too little moved"))
        }
    });
    if stability.lost_intervals > 0 {
        sentences.push(format!(
            "{} not recorded in time: a host got no CPU time for it.",
            match stability.lost_intervals {
                1 => "One interval was".to_owned(),
                number => format!("{} intervals were", count(number)),
            }
        ));
    }
    if let Some(growth) = memory_growth(run) {
        sentences.push(format!(
            "The resident memory of the hosts' processes grew by at most {}.",
            bytes(growth)
        ));
    }
    sentences
}

fn outages(stability: &Stability, window: f64, dead: Option<f64>) -> String {
    let longest = stability.outages.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Some(longest) = longest else {
        return format!("No outage in {}.", span(window));
    };
    let all = dead.unwrap_or_else(|| stability.outages.iter().map(|of| of.seconds).sum());
    format!(
        "{} in {}: no byte moved for {} in total ({}% of the window); the longest lasted {} and began {} after the start.",
        counted(stability.outage_count, "outage", "outages"),
        span(window),
        span(all),
        share(100.0 * all / window),
        span(longest.seconds),
        span(longest.start.max(0.0)),
    )
}

/// Percent with the digits that a small share needs.
fn share(of: f64) -> String {
    if of < 1.0 { format!("{of:.3}") } else { percent(of) }
}

/// Whether the drift is more than chance.
#[must_use]
pub fn is_significant(drift: &Drift) -> bool {
    let (low, high) = drift.interval;
    drift.p_value < LEVEL && (low > 0.0 || high < 0.0)
}

fn drift_sentence(drift: &Drift, seconds: f64) -> String {
    let (low, high) = drift.interval;
    let signed = |of: f64| signed_percent(100.0 * of);
    match is_significant(drift) {
        true => format!(
            "Throughput drifted by {} per hour (95% interval {} to {}), {} over the whole window.",
            signed(drift.per_hour),
            signed(low),
            signed(high),
            signed(drift.per_hour * seconds / SECONDS_PER_HOUR),
        ),
        false => {
            let over = |of: f64| signed(of * seconds / SECONDS_PER_HOUR);
            format!(
                "No detectable drift: the 95% interval of the change over the whole window is {} to {}.",
                over(low),
                over(high)
            )
        }
    }
}

/// `-0.12%`, with the digits that a small change needs.
#[must_use]
pub fn signed_percent(of: f64) -> String {
    let digits = match of.abs() {
        of if of >= 10.0 => 0,
        of if of >= 1.0 => 1,
        of if of >= 0.1 => 2,
        _ => 3,
    };
    format!("{of:+.digits$}%")
}

/// Throughput of each interval; where no bytes move, operations per second.
fn rates(intervals: &[Interval]) -> Vec<f64> {
    let bytes = intervals.iter().any(|interval| interval.bits_per_second > 0.0);
    let rate = |interval: &Interval| match (bytes, interval.seconds > 0.0) {
        (true, _) => interval.bits_per_second,
        (false, true) => interval.operations as f64 / interval.seconds,
        (false, false) => 0.0,
    };
    intervals.iter().map(rate).collect()
}

/// Which intervals are in a dip.
fn dips(intervals: &[Interval], rates: &[f64]) -> Result<Vec<bool>, String> {
    let median_rate = median(rates.to_vec());
    let operations = median(intervals.iter().map(|of| of.operations as f64).collect());
    let length = median(intervals.iter().map(|interval| interval.seconds).collect());
    if operations < OPERATIONS as f64 {
        return Err(format!(
            "the median interval has {operations:.0} operations, and dips need at least {OPERATIONS}: use a longer --interval"
        ));
    }
    // The last one may be short.
    let counts = |interval: &Interval| interval.seconds > length / 2.0;
    let is_dip =
        |(interval, rate): (&Interval, &f64)| counts(interval) && *rate < DIP * median_rate;
    Ok(intervals.iter().zip(rates).map(is_dip).collect())
}

/// Dips that follow one another are one.
fn joined(intervals: &[Interval], rates: &[f64], in_dip: &[bool]) -> Vec<Dip> {
    let usual = median(rates.to_vec());
    let mut dips: Vec<Dip> = Vec::new();
    let mut last = None;
    for (place, (interval, rate)) in intervals.iter().zip(rates).enumerate() {
        if !in_dip[place] {
            continue;
        }
        let share = rate / usual;
        match dips.last_mut().filter(|_| last.is_some_and(|last| last + 1 == place)) {
            Some(dip) => {
                let seconds = dip.seconds + interval.seconds;
                dip.share = (dip.share * dip.seconds + share * interval.seconds) / seconds;
                dip.seconds = seconds;
            }
            None => dips.push(Dip { start: interval.start, seconds: interval.seconds, share }),
        }
        last = Some(place);
    }
    dips
}

fn drift(intervals: &[Interval], rates: &[f64], in_dip: &[bool]) -> Result<Drift, String> {
    if intervals.len() < PARTS {
        return Err(format!(
            "the window has {} intervals, and drift needs at least {PARTS}",
            intervals.len()
        ));
    }
    let counted: Vec<(&Interval, f64)> = (intervals.iter().zip(rates).enumerate())
        .filter(|(place, _)| !in_dip.get(*place).copied().unwrap_or(false))
        .map(|(_, (interval, rate))| (interval, *rate))
        .collect();
    let end = intervals.last().map_or(0.0, |last| last.start + last.seconds);
    let begin = intervals.first().map_or(0.0, |first| first.start);
    let length = (end - begin) / PARTS as f64;
    // (sum of seconds, sum of what moved) of each part.
    let mut parts = vec![(0.0, 0.0); PARTS];
    for (interval, rate) in &counted {
        let middle = interval.start + interval.seconds / 2.0 - begin;
        let part = &mut parts[((middle / length) as usize).min(PARTS - 1)];
        part.0 += interval.seconds;
        part.1 += rate * interval.seconds;
    }
    let seconds = parts.iter().map(|(seconds, _)| seconds).sum::<f64>();
    let mean = parts.iter().map(|(_, moved)| moved).sum::<f64>() / seconds;
    let points: Vec<(f64, f64)> = (parts.iter().enumerate())
        .filter(|(_, (seconds, _))| *seconds > 0.0)
        .map(|(place, (seconds, moved))| {
            ((place as f64 + 0.5) * length / SECONDS_PER_HOUR, moved / seconds / mean)
        })
        .collect();
    let known = theil_sen::slope(&points).filter(|_| mean > 0.0);
    let (per_hour, interval) = known.ok_or("too little moved")?;
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    Ok(Drift { per_hour, interval, p_value: mann_kendall::p_value(&values) })
}

/// The longest, in order of time. Start and length are those of `times`.
fn longest<T>(mut all: Vec<T>, times: impl Fn(&T) -> (f64, f64)) -> Vec<T> {
    all.sort_by(|a, b| times(b).1.total_cmp(&times(a).1));
    all.truncate(Stability::LISTED);
    all.sort_by(|a, b| times(a).0.total_cmp(&times(b).0));
    all
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::normal;
    use fastrand::Rng;

    /// Days of intervals, each by its hour.
    fn traffic(seconds: u32, length: u32, rate: impl Fn(f64) -> f64) -> Vec<Interval> {
        (0..seconds / length)
            .map(|number| {
                let start = f64::from(number * length);
                let bits = rate(start / SECONDS_PER_HOUR);
                let bytes = (bits * f64::from(length) / 8.0) as u64;
                Interval {
                    start,
                    seconds: f64::from(length),
                    tx_bytes: bytes,
                    rx_bytes: 0,
                    bits_per_second: bits,
                    transactions: bytes >> 16,
                    operations: bytes >> 16,
                    failed: 0,
                }
            })
            .collect()
    }

    const DAY: u32 = 86_400;

    #[test]
    fn three_days_with_an_outage_two_dips_and_a_drift() {
        let mut random = Rng::with_seed(7);
        let noise: Vec<f64> = (0..3 * DAY).map(|_| 1.0 + 0.02 * normal(&mut random)).collect();
        // 0.1% an hour; a minute of nothing after a day, ten minutes of a third after two.
        let rate = |hour: f64| {
            let second = (hour * SECONDS_PER_HOUR).round() as u32;
            let of = match second {
                86_400..86_460 => 0.0,
                172_800..173_400 => 0.33,
                _ => 1.0,
            };
            of * 1e9 * (1.0 - 0.001 * hour) * noise[second as usize]
        };
        let stability = of(&traffic(3 * DAY, 1, rate), &[(86_400.2, 59.6)], 3);
        assert_eq!((stability.outage_count, stability.dip_count), (1, Some(2)));
        assert_eq!(stability.outages, [Outage { start: 86_400.2, seconds: 59.6 }]);
        let [outage, slow] = &stability.dips[..] else { panic!("{:?}", stability.dips) };
        assert_eq!((outage.start, outage.seconds, outage.share), (86_400.0, 60.0, 0.0));
        assert_eq!((slow.start, slow.seconds), (172_800.0, 600.0));
        assert!((slow.share - 0.33).abs() < 0.02, "{slow:?}");
        assert_eq!(stability.lost_intervals, 3);
        // Relative to the mean of 72 hours, which is 3.6% lower than the beginning.
        let drift = stability.drift.unwrap();
        assert!((drift.per_hour / (-0.001 / 0.964) - 1.0).abs() < 0.05, "{drift:?}");
        assert!(drift.interval.0 < drift.per_hour && drift.per_hour < drift.interval.1);
        assert!(drift.p_value < 1e-6);
    }

    #[test]
    fn noise_is_no_drift_and_no_dip() {
        let mut false_drifts = 0;
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let noise: Vec<f64> = (0..2400).map(|_| 1.0 + 0.1 * normal(&mut random)).collect();
            let rate = |hour: f64| 1e9 * noise[(hour * SECONDS_PER_HOUR).round() as usize];
            let stability = of(&traffic(2400, 1, rate), &[], 0);
            assert_eq!(stability.dip_count, Some(0));
            let drift = stability.drift.unwrap();
            false_drifts += u32::from(drift.interval.0 > 0.0 || drift.interval.1 < 0.0);
        }
        // One in twenty, and three standard deviations.
        assert!(false_drifts <= 20, "{false_drifts} of 200");
    }

    #[test]
    fn what_cannot_be_told_has_a_reason() {
        let few = of(&traffic(20, 1, |_| 1e9), &[], 0);
        assert!(few.drift.is_none() && few.drift_reason.unwrap().contains("20 intervals"));
        assert_eq!(few.dip_count, Some(0));
        // Half an operation an interval.
        let slow = of(&traffic(600, 1, |_| 262_144.0), &[], 0);
        assert_eq!((slow.dip_count, slow.dips.len()), (None, 0));
        assert!(slow.dip_reason.unwrap().contains("--interval"));
        let nothing = of(&traffic(600, 1, |_| 0.0), &[], 0);
        assert!(nothing.drift.is_none());
    }

    #[test]
    fn sentences_tell_what_was_found() {
        let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
        assert!(sentences(&run).is_empty());
        let mut window = crate::fixtures::window(28_800.0);
        window.dead_seconds = Some(75.2);
        run.window = Some(window);
        run.intervals = traffic(28_800, 1, |hour| 1e9 * (1.0 - 0.01 * hour));
        let times = [(7_200.0, 60.1), (9_000.0, 15.1)];
        run.stability = Some(of(&run.intervals, &times, 1));
        assert_eq!(
            sentences(&run),
            [
                "2 outages in 8.00 h: no byte moved for 75.2 s in total (0.261% of the window); the longest lasted 60.1 s \
                 and began 2.00 h after the start.",
                "No dip: no interval had less than half of the median interval's throughput.",
                "Throughput drifted by -1.0% per hour (95% interval -1.0% to -1.0%), -8.3% over the whole window.",
                "One interval was not recorded in time: a host got no CPU time for it.",
            ]
        );
    }

    #[test]
    fn lists_keep_the_longest() {
        let outages: Vec<(f64, f64)> =
            (0..1500).map(|n| (f64::from(n), 1.0 + f64::from(n % 500))).collect();
        let stability = of(&[], &outages, 0);
        assert_eq!((stability.outage_count, stability.outages.len()), (1500, Stability::LISTED));
        assert!(stability.outages.iter().all(|outage| outage.seconds > 166.0));
        assert!(stability.outages.is_sorted_by(|a, b| a.start < b.start));
    }
}
