//! What the measurements say of what is claimed: ratios with intervals against targets.

use std::collections::BTreeMap;

use super::contender::Part;
use super::point::{Kind, Point};
use super::session::Sample;
use crate::paired::{Median, median, ratios};

/// A contender's runs at a point, by round; none for a failed run.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) samples: Vec<Option<Sample>>,
}

impl Series {
    pub(crate) fn values(&self, of: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().flatten().filter_map(of).collect()
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Throughput, transactions or connections per second.
    Speed,
    /// Cycles of busy CPUs per unit of work.
    Cost,
    /// 99th percentile of the round trip.
    P99,
    /// Time until all connections are open.
    SetUp,
}

impl Measure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Speed => "speed",
            Measure::Cost => "cost",
            Measure::P99 => "p99",
            Measure::SetUp => "time to set up",
        }
    }

    pub(crate) fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Measure::Speed => Some(sample.seen.work_rate),
            Measure::Cost => sample.seen.cost,
            Measure::P99 => sample.own.p99,
            Measure::SetUp => sample.set_up,
        }
    }

    /// The better of two.
    fn better(self, a: f64, b: f64) -> bool {
        match self {
            Measure::Speed => a > b,
            Measure::Cost | Measure::P99 | Measure::SetUp => a < b,
        }
    }
}

/// Target of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// Equality within the interval.
    NotBelow(f64),
    NotAbove(f64),
    /// Missed only if the entire interval is below this.
    NotClearlyBelow(f64),
    /// A gain: the median reaches this, and the entire interval is at least 1.
    AtLeast(f64),
    /// The same where less is better: the entire interval is at most 1.
    AtMost(f64),
}

impl Target {
    pub(crate) fn text(self) -> String {
        match self {
            Target::NotBelow(value) => format!("{value:.2} within the interval"),
            Target::NotAbove(value) => format!("no more than {value:.2} within the interval"),
            Target::NotClearlyBelow(value) => format!("interval reaches {value:.2}"),
            Target::AtLeast(value) => format!("at least {value:.2}"),
            Target::AtMost(value) => format!("at most {value:.2}"),
        }
    }

    /// A wider interval does not show equality.
    const RESOLVED: f64 = 0.2;

    pub(crate) fn verdict(self, ratio: Option<&Median>) -> Verdict {
        let Some(ratio) = ratio else { return Verdict::NotResolved };
        let resolved = ratio.high - ratio.low <= Self::RESOLVED;
        let (met, missed) = match self {
            Target::NotBelow(value) => {
                (ratio.low >= value || (resolved && ratio.high >= value), ratio.high < value)
            }
            Target::NotAbove(value) => {
                (ratio.high <= value || (resolved && ratio.low <= value), ratio.low > value)
            }
            Target::NotClearlyBelow(value) => (ratio.high >= value, ratio.high < value),
            Target::AtLeast(value) => {
                (ratio.value >= value && ratio.low >= 1.0, ratio.high < value)
            }
            Target::AtMost(value) => (ratio.value <= value && ratio.high <= 1.0, ratio.low > value),
        };
        match (met, missed) {
            (true, _) => Verdict::Met,
            (_, true) => Verdict::Missed,
            _ => Verdict::NotResolved,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    NotResolved,
    /// One connection, and an interval wider than [`Target::RESOLVED`].
    TooWide,
}

impl Verdict {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::NotResolved => "not resolved",
            Verdict::TooWide => "no verdict: interval wider than 0.2",
        }
    }
}

/// One line of the verdict.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) who: String,
    pub(crate) measure: Measure,
    pub(crate) against: String,
    pub(crate) ratio: Option<Median>,
    pub(crate) target: Target,
    /// Whether the point has one connection.
    pub(crate) single: bool,
}

impl Claim {
    pub(crate) fn verdict(&self) -> Verdict {
        match &self.ratio {
            // A halted virtual CPU wakes in one way or another for an entire run.
            Some(of) if self.single && of.high - of.low > Target::RESOLVED => Verdict::TooWide,
            ratio => self.target.verdict(ratio.as_ref()),
        }
    }
}

/// Contenders of which the second shall not be slower than the first.
const EPOLL: &str = "wirecost epoll";
const IO_URING: &str = "wirecost io_uring";
const GSO: &str = "wirecost epoll, gso";

/// All claims at a point, for the contenders that took part.
pub(crate) fn claims(point: &Point, all: &[Series]) -> Vec<Claim> {
    let peers: Vec<&Series> = ran(all, Part::Peer);
    let reference: Vec<&Series> = ran(all, Part::Reference);
    let mut claims = Vec::new();
    if point.kind == Kind::Http {
        return claims;
    }
    let of = |ours: &Series, against: &[&Series], label: Option<&str>, measure, target| {
        let (ratio, best) = against_best(ours, against, measure);
        let against = match label {
            Some(label) => label.to_owned(),
            None => best.map_or_else(|| "-".to_owned(), |name| format!("best peer ({name})")),
        };
        let single = point.connections == 1;
        Claim { who: ours.name.clone(), measure, against, ratio, target, single }
    };
    let alone = Some("`threads`: no peer ran this point");
    let (rivals, label) = match peers.is_empty() {
        true => (&reference, alone),
        false => (&peers, None),
    };
    for ours in ran(all, Part::Ours) {
        for (measure, target) in targets(point) {
            let has = |series: &&Series| !series.values(|s| measure.of(s)).is_empty();
            let rivals: Vec<&Series> = rivals.iter().copied().filter(has).collect();
            if rivals.is_empty() || !has(&ours) {
                continue;
            }
            match peers.is_empty() || !point.is_datagrams() {
                true => claims.push(of(ours, &rivals, label, measure, target)),
                false => {
                    let each = rivals.iter().map(|rival| (&rival.name, *rival));
                    let each =
                        each.map(|(name, rival)| of(ours, &[rival], Some(name), measure, target));
                    claims.extend(each);
                }
            }
        }
        if per_thread(point) && !reference.is_empty() {
            let label = Some("`threads`: a thread for each connection");
            claims.push(of(ours, &reference, label, Measure::Speed, Target::AtLeast(1.5)));
            claims.push(of(ours, &reference, label, Measure::SetUp, Target::AtMost(1.0 / 1.5)));
        }
    }
    let named = |name| ran(all, Part::Ours).into_iter().find(|series| series.name == name);
    if let (Some(epoll), Some(ring)) = (named(EPOLL), named(IO_URING)) {
        let target = Target::NotClearlyBelow(1.0);
        claims.push(of(ring, &[epoll], Some("`epoll`"), Measure::Speed, target));
    }
    for ours in ran(all, Part::Joined) {
        let Some(epoll) = named(EPOLL) else { continue };
        let target = Target::AtLeast(if ours.name == GSO { 10.0 } else { 1.1 });
        claims.push(of(ours, &[epoll], Some("`epoll`, one call each"), Measure::Speed, target));
    }
    // The stand-in has to be a fair one.
    let like = peers.iter().find(|series| series.name == "iperf");
    if let (Some(&threads), Some(&iperf), Kind::Stream) = (reference.first(), like, point.kind) {
        let label = Some("iperf, a thread for each connection too");
        claims.push(of(threads, &[iperf], label, Measure::Speed, Target::NotBelow(0.95)));
    }
    claims
}

/// Points where the target is 1.5 times the speed of `threads`.
fn per_thread(point: &Point) -> bool {
    point.kind == Kind::Stream && point.connections >= 6000 && point.size <= 8192
}

/// Targets at a point, relative to the best peer of each round; with datagrams, to each peer. Rates of datagrams
/// differ so much from round to round that the best of several peers is mostly the luckiest.
fn targets(point: &Point) -> Vec<(Measure, Target)> {
    match (point.kind, point.connections) {
        (Kind::Stream | Kind::Rr | Kind::UdpRr | Kind::Crr, 1) => {
            vec![(Measure::Speed, Target::NotBelow(1.0))]
        }
        (Kind::Udp, _) => vec![(Measure::Speed, Target::AtLeast(1.05))],
        (Kind::UdpRr, _) => vec![(Measure::Speed, Target::AtLeast(1.2))],
        (Kind::Stream, _) => {
            vec![(Measure::Speed, Target::AtLeast(1.05)), (Measure::Cost, Target::AtMost(0.95))]
        }
        (Kind::Rr, _) => {
            vec![(Measure::Speed, Target::AtLeast(2.0)), (Measure::P99, Target::NotAbove(1.0))]
        }
        (Kind::Crr, _) => {
            vec![(Measure::Speed, Target::AtLeast(1.0)), (Measure::P99, Target::NotAbove(1.0))]
        }
        (Kind::Http, _) => Vec::new(),
    }
}

fn ran(all: &[Series], part: Part) -> Vec<&Series> {
    let ran = |series: &&Series| series.part == part && series.samples.iter().any(Option::is_some);
    all.iter().filter(ran).collect()
}

/// Median ratio to the best of the others in each round, and the contender that was the best most often.
fn against_best(
    ours: &Series,
    others: &[&Series],
    measure: Measure,
) -> (Option<Median>, Option<String>) {
    let mut wins: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut own, mut bests) = (Vec::new(), Vec::new());
    for (round, sample) in ours.samples.iter().enumerate() {
        own.push(sample.as_ref().and_then(|sample| measure.of(sample)));
        let values = others.iter().filter_map(|series| {
            let value = measure.of(series.samples.get(round)?.as_ref()?)?;
            Some((value, series.name.as_str()))
        });
        let best = values.reduce(|a, b| if measure.better(b.0, a.0) { b } else { a });
        bests.push(best.map(|(value, _)| value));
        if let Some((_, name)) = best {
            *wins.entry(name).or_default() += 1;
        }
    }
    let most = wins.into_iter().max_by_key(|(_, count)| *count);
    (median(&ratios(&own, &bests)), most.map(|(name, _)| name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::contender::ToolFigures;
    use crate::peers::meter::WindowFigures;
    use crate::peers::point::Placement;

    fn stream(connections: u32) -> Point {
        let placement = if connections == 1 { Placement::Apart } else { Placement::Shared };
        Point { kind: Kind::Stream, connections, size: 1024, placement, quick: true }
    }

    fn series(name: &str, part: Part, merits: &[f64]) -> Series {
        let sample = |work_rate: &f64| {
            Some(Sample {
                seen: WindowFigures {
                    work_rate: *work_rate,
                    cost: Some(1000.0 / work_rate),
                    cost_by_clocks: None,
                    others: 0.0,
                    steady: 1.0,
                },
                set_up: Some(100.0 / work_rate),
                own: ToolFigures { p99: Some(10.0), ..ToolFigures::default() },
            })
        };
        Series { name: name.to_owned(), part, samples: merits.iter().map(sample).collect() }
    }

    fn ratio(low: f64, value: f64, high: f64) -> Median {
        Median { value, low, high, of: 8 }
    }

    #[test]
    fn verdicts_follow_median_and_interval() {
        let of = |target: Target, low, value, high| target.verdict(Some(&ratio(low, value, high)));
        assert_eq!(of(Target::AtLeast(1.05), 1.0, 1.06, 1.2), Verdict::Met);
        assert_eq!(of(Target::AtLeast(1.05), 0.99, 1.06, 1.2), Verdict::NotResolved);
        assert_eq!(of(Target::AtLeast(1.05), 1.01, 1.04, 1.2), Verdict::NotResolved);
        assert_eq!(of(Target::AtLeast(1.05), 1.0, 1.02, 1.04), Verdict::Missed);
        assert_eq!(of(Target::AtMost(0.95), 0.8, 0.94, 1.0), Verdict::Met);
        assert_eq!(of(Target::AtMost(0.95), 0.8, 0.94, 1.01), Verdict::NotResolved);
        assert_eq!(of(Target::AtMost(0.95), 0.96, 0.97, 0.99), Verdict::Missed);
        assert_eq!(of(Target::NotBelow(1.0), 0.92, 0.98, 1.01), Verdict::Met);
        assert_eq!(of(Target::NotBelow(1.0), 0.7, 1.0, 1.3), Verdict::NotResolved);
        assert_eq!(of(Target::NotBelow(1.0), 0.9, 0.95, 0.99), Verdict::Missed);
        assert_eq!(of(Target::NotAbove(1.0), 1.01, 1.2, 1.3), Verdict::Missed);
        assert_eq!(of(Target::NotClearlyBelow(1.0), 0.7, 0.9, 1.0), Verdict::Met);
        assert_eq!(of(Target::NotClearlyBelow(1.0), 0.7, 0.9, 0.99), Verdict::Missed);
        assert_eq!(Target::AtLeast(1.0).verdict(None), Verdict::NotResolved);
    }

    #[test]
    fn a_wide_interval_of_one_connection_has_no_verdict() {
        let claim = |single, low, high| Claim {
            who: "ours".to_owned(),
            measure: Measure::Speed,
            against: "peer".to_owned(),
            ratio: Some(ratio(low, low, high)),
            target: Target::NotBelow(1.0),
            single,
        };
        assert_eq!(claim(true, 1.1, 1.4).verdict(), Verdict::TooWide);
        assert_eq!(claim(false, 1.1, 1.4).verdict(), Verdict::Met);
        assert_eq!(claim(true, 1.1, 1.2).verdict(), Verdict::Met);
    }

    #[test]
    fn the_ring_is_compared_with_epoll() {
        let all = |ring: &[f64]| {
            let epoll = series("wirecost epoll", Part::Ours, &[16.0; 8]);
            [epoll, series("wirecost io_uring", Part::Ours, ring)]
        };
        let verdict = |all: &[Series]| {
            let claims = claims(&stream(32), all);
            claims.iter().find(|claim| claim.against == "`epoll`").unwrap().verdict()
        };
        assert_eq!(verdict(&all(&[15.0; 8])), Verdict::Missed);
        assert_eq!(verdict(&all(&[15.0, 17.0].repeat(4))), Verdict::Met);
    }

    #[test]
    fn requests_need_twice_the_peer_and_short_connections_the_same() {
        let speed = |kind| {
            let point = Point { kind, size: 64, ..stream(32) };
            targets(&point).into_iter().find(|(measure, _)| *measure == Measure::Speed)
        };
        assert_eq!(speed(Kind::Rr).unwrap().1, Target::AtLeast(2.0));
        assert_eq!(speed(Kind::Crr).unwrap().1, Target::AtLeast(1.0));
    }

    #[test]
    fn each_round_is_compared_with_its_best_peer() {
        let ours = series("ours", Part::Ours, &[20.0; 8]);
        let a = series("a", Part::Peer, &[10.0, 10.0, 10.0, 10.0, 10.0, 5.0, 5.0, 5.0]);
        let b = series("b", Part::Peer, &[5.0, 5.0, 5.0, 5.0, 5.0, 10.0, 10.0, 10.0]);
        let (speed, best) = against_best(&ours, &[&a, &b], Measure::Speed);
        assert_eq!((speed.unwrap().value, best.as_deref()), (2.0, Some("a")));
        let (cost, _) = against_best(&ours, &[&a, &b], Measure::Cost);
        assert_eq!(cost.unwrap().value, 0.5);
    }

    #[test]
    fn a_round_in_which_one_failed_has_no_ratio() {
        let mut ours = series("ours", Part::Ours, &[20.0; 8]);
        ours.samples[3] = None;
        let peer = series("a", Part::Peer, &[10.0; 8]);
        assert_eq!(against_best(&ours, &[&peer], Measure::Speed).0.unwrap().of, 7);
    }

    #[test]
    fn without_a_peer_threads_is_the_reference() {
        let point = stream(6000);
        let all = [
            series("wirecost epoll", Part::Ours, &[16.0; 8]),
            series("wirecost threads", Part::Reference, &[10.0; 8]),
        ];
        let claims = claims(&point, &all);
        let said: Vec<(Measure, bool, Verdict)> = claims
            .iter()
            .map(|c| (c.measure, c.against.contains("no peer"), c.verdict()))
            .collect();
        assert_eq!(
            said,
            [
                (Measure::Speed, true, Verdict::Met),
                (Measure::Cost, true, Verdict::Met),
                (Measure::Speed, false, Verdict::Met),
                (Measure::SetUp, false, Verdict::Met),
            ]
        );
    }

    #[test]
    fn datagrams_are_compared_with_each_peer_and_joined_ones_with_single_calls() {
        let placement = Placement::Apart;
        let point = Point { kind: Kind::Udp, connections: 1, size: 1400, placement, quick: true };
        let all = [
            series("wirecost epoll", Part::Ours, &[10.0; 8]),
            series("wirecost epoll, gso", Part::Joined, &[99.0; 8]),
            series("wirecost epoll, batch", Part::Joined, &[12.0; 8]),
            series("iperf3", Part::Peer, &[9.0; 8]),
            series("qperf", Part::Peer, &[11.0; 8]),
        ];
        let claims = claims(&point, &all);
        let said: Vec<(&str, &str, Target, Verdict)> = claims
            .iter()
            .map(|c| (c.who.as_str(), c.against.as_str(), c.target, c.verdict()))
            .collect();
        let alone = "`epoll`, one call each";
        assert_eq!(
            said,
            [
                ("wirecost epoll", "iperf3", Target::AtLeast(1.05), Verdict::Met),
                ("wirecost epoll", "qperf", Target::AtLeast(1.05), Verdict::Missed),
                ("wirecost epoll, gso", alone, Target::AtLeast(10.0), Verdict::Missed),
                ("wirecost epoll, batch", alone, Target::AtLeast(1.1), Verdict::Met),
            ]
        );
    }

    #[test]
    fn threads_is_compared_with_iperf() {
        let point = stream(32);
        let all = [
            series("wirecost epoll", Part::Ours, &[16.0; 8]),
            series("wirecost threads", Part::Reference, &[9.0; 8]),
            series("iperf", Part::Peer, &[10.0; 8]),
        ];
        let claims = claims(&point, &all);
        let last = claims.last().unwrap();
        assert_eq!(last.who, "wirecost threads");
        assert_eq!(last.verdict(), Verdict::Missed);
        assert!(claims[0].against.contains("iperf"), "{claims:?}");
    }
}
