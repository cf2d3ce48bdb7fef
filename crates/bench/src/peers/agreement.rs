//! Ports of the famous: our built-in beside the program it is named after, each by its own report.

use std::path::Path;

use wirecost_model::run::Run;

use super::contender::{Line, Plan};
use super::contenders::{iperf, iperf3, neper, netperf, qperf, sockperf, wirecost};
use crate::paired::{Median, median, ratios};

/// The figure that both report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Received bytes per second.
    Throughput,
    /// Mean round trip, microseconds.
    RoundTrip,
    /// Transactions per second.
    Transactions,
}

impl Figure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Figure::Throughput => "throughput",
            Figure::RoundTrip => "mean round trip",
            Figure::Transactions => "transactions",
        }
    }

    fn of(self, run: &Run) -> Option<f64> {
        match self {
            Figure::Throughput => run.throughput.as_ref().map(|rates| rates.bits_per_second / 8.0),
            Figure::RoundTrip => run.latency_us.as_ref().map(|latency| latency.mean),
            Figure::Transactions => run.transactions.as_ref().map(|done| done.per_second),
        }
    }
}

/// A port and its original.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Name of the built-in profile.
    pub(crate) port: &'static str,
    pub(crate) of: &'static str,
    pub(crate) programs: &'static [&'static str],
    pub(crate) figure: Figure,
    /// Whether `make bench` includes it.
    pub(crate) quick: bool,
    /// Options in addition to the port's defaults, including those that make the engine work like the
    /// original.
    options: &'static str,
    /// The plan of the original, with the first port and the number of seconds.
    plan: fn(u16, u32) -> Plan,
    read: fn(&str) -> Result<f64, String>,
}

impl Pair {
    /// Name for `--points`.
    pub(crate) fn name(&self) -> String {
        format!("port-{}-of-{}", self.port, self.of)
    }

    pub(crate) fn original(&self, port: u16, seconds: u32) -> Plan {
        (self.plan)(port, seconds)
    }

    pub(crate) fn ours(&self, program: &Path, seconds: u32) -> Line {
        let Pair { port, options, .. } = self;
        let words = format!(
            "run @{port} {options} --ramp 200ms --duration {seconds}s --observe none --quiet --json -"
        );
        wirecost::line(program, &words)
    }

    pub(crate) fn read_original(&self, written: &str) -> Result<f64, String> {
        (self.read)(written)
    }

    pub(crate) fn read_ours(&self, written: &str) -> Result<f64, String> {
        let figure = self.figure.of(&wirecost::read(written)?);
        figure.ok_or_else(|| format!("no {}", self.figure.name()))
    }
}

/// Options for an original with one thread per end.
const ONE_THREAD: &str = "--engine epoll --workers 1";
/// Options for an original with one thread or process per connection.
const THREADS: &str = "--engine threads";

pub(crate) static ALL: &[Pair] = &[
    Pair {
        port: "iperf-stream",
        of: "iperf3",
        programs: &["iperf3"],
        figure: Figure::Throughput,
        quick: true,
        options: ONE_THREAD,
        plan: |port, seconds| iperf3::plan(port, &format!("-t {seconds}")),
        read: iperf3::received,
    },
    Pair {
        port: "iperf-stream",
        of: "iperf",
        programs: &["iperf"],
        figure: Figure::Throughput,
        quick: false,
        options: "--connections 4 --engine threads",
        plan: |port, seconds| iperf::plan(port, false, &format!("-P 4 -t {seconds}")),
        read: iperf::sent,
    },
    Pair {
        port: "iperf-reverse",
        of: "iperf3",
        programs: &["iperf3"],
        figure: Figure::Throughput,
        quick: false,
        options: ONE_THREAD,
        plan: |port, seconds| iperf3::plan(port, &format!("-R -t {seconds}")),
        read: iperf3::received,
    },
    Pair {
        port: "iperf-bidirectional",
        of: "iperf3",
        programs: &["iperf3"],
        figure: Figure::Throughput,
        quick: false,
        options: ONE_THREAD,
        plan: |port, seconds| iperf3::plan(port, &format!("--bidir -t {seconds}")),
        read: iperf3::received,
    },
    Pair {
        port: "iperf-udp",
        of: "iperf3",
        programs: &["iperf3"],
        figure: Figure::Throughput,
        quick: false,
        options: ONE_THREAD,
        plan: |port, seconds| iperf3::plan(port, &format!("-u -b 0 -l 1470 -t {seconds}")),
        read: iperf3::received,
    },
    Pair {
        port: "sockperf-ping-pong",
        of: "sockperf",
        programs: &["sockperf"],
        figure: Figure::RoundTrip,
        quick: true,
        options: THREADS,
        plan: |port, seconds| sockperf::plan(port, false, "ping-pong", &format!("-t {seconds}")),
        read: sockperf::round_trip,
    },
    Pair {
        port: "sockperf-ping-pong",
        of: "sockperf-tcp",
        programs: &["sockperf"],
        figure: Figure::RoundTrip,
        quick: false,
        options: "--var protocol=tcp --engine threads",
        plan: |port, seconds| sockperf::plan(port, true, "ping-pong", &format!("-t {seconds}")),
        read: sockperf::round_trip,
    },
    Pair {
        port: "sockperf-under-load",
        of: "sockperf",
        programs: &["sockperf"],
        figure: Figure::RoundTrip,
        quick: false,
        options: THREADS,
        plan: |port, seconds| {
            let options = format!("--mps 10000 --reply-every 1 -t {seconds}");
            sockperf::plan(port, false, "under-load", &options)
        },
        read: sockperf::round_trip,
    },
    Pair {
        port: "sockperf-throughput",
        of: "sockperf-tcp",
        programs: &["sockperf"],
        figure: Figure::Transactions,
        quick: false,
        options: "--var protocol=tcp --var size=1400 --engine threads",
        plan: |port, seconds| {
            sockperf::plan(port, true, "throughput", &format!("-m 1400 -t {seconds}"))
        },
        read: sockperf::sent,
    },
    Pair {
        port: "qperf-tcp-bw",
        of: "qperf",
        programs: &["qperf"],
        figure: Figure::Throughput,
        quick: true,
        options: THREADS,
        plan: |port, seconds| qperf::plan(port, "tcp_bw", &format!("-t {seconds}")),
        read: qperf::received,
    },
    Pair {
        port: "qperf-tcp-lat",
        of: "qperf",
        programs: &["qperf"],
        figure: Figure::RoundTrip,
        quick: false,
        options: THREADS,
        plan: |port, seconds| qperf::plan(port, "tcp_lat", &format!("-t {seconds}")),
        read: qperf::round_trip,
    },
    Pair {
        port: "qperf-udp-bw",
        of: "qperf",
        programs: &["qperf"],
        figure: Figure::Throughput,
        quick: false,
        options: THREADS,
        plan: |port, seconds| qperf::plan(port, "udp_bw", &format!("-t {seconds}")),
        read: qperf::received,
    },
    Pair {
        port: "qperf-udp-lat",
        of: "qperf",
        programs: &["qperf"],
        figure: Figure::RoundTrip,
        quick: false,
        options: THREADS,
        plan: |port, seconds| qperf::plan(port, "udp_lat", &format!("-t {seconds}")),
        read: qperf::round_trip,
    },
    of_netperf("netperf-tcp-stream", Figure::Throughput, |port, seconds| {
        netperf::plan(port, "TCP_STREAM", seconds, "-m 16384")
    }),
    of_netperf("netperf-tcp-maerts", Figure::Throughput, |port, seconds| {
        netperf::plan(port, "TCP_MAERTS", seconds, "-M 16384")
    }),
    of_netperf("netperf-tcp-rr", Figure::Transactions, |port, seconds| {
        netperf::plan(port, "TCP_RR", seconds, "")
    }),
    of_netperf("netperf-tcp-crr", Figure::Transactions, |port, seconds| {
        netperf::plan(port, "TCP_CRR", seconds, "")
    }),
    of_netperf("netperf-udp-stream", Figure::Throughput, |port, seconds| {
        netperf::plan(port, "UDP_STREAM", seconds, "-m 65507")
    }),
    of_netperf("netperf-udp-rr", Figure::Transactions, |port, seconds| {
        netperf::plan(port, "UDP_RR", seconds, "")
    }),
    of_neper("neper-tcp-stream", Figure::Throughput, |port, seconds| {
        neper::plan(port, "tcp_stream", 1, seconds, "")
    }),
    of_neper("neper-tcp-rr", Figure::Transactions, |port, seconds| {
        neper::plan(port, "tcp_rr", 1, seconds, "")
    }),
    of_neper("neper-tcp-crr", Figure::Transactions, |port, seconds| {
        neper::plan(port, "tcp_crr", 1, seconds, "")
    }),
    of_neper("neper-udp-stream", Figure::Throughput, |port, seconds| {
        neper::plan(port, "udp_stream", 1, seconds, "")
    }),
    of_neper("neper-udp-rr", Figure::Transactions, |port, seconds| {
        neper::plan(port, "udp_rr", 1, seconds, "")
    }),
];

const fn of_netperf(port: &'static str, figure: Figure, plan: fn(u16, u32) -> Plan) -> Pair {
    let read: fn(&str) -> Result<f64, String> = match figure {
        Figure::Throughput => |written| netperf::rate(written, true),
        _ => |written| netperf::rate(written, false),
    };
    let programs = netperf::PROGRAMS;
    Pair { port, of: "netperf", programs, figure, quick: true, options: THREADS, plan, read }
}

const fn of_neper(port: &'static str, figure: Figure, plan: fn(u16, u32) -> Plan) -> Pair {
    let read: fn(&str) -> Result<f64, String> = match figure {
        Figure::Throughput => |written| neper::rate(written, true),
        _ => |written| neper::rate(written, false),
    };
    let programs = neper::PROGRAMS;
    Pair { port, of: "neper", programs, figure, quick: true, options: ONE_THREAD, plan, read }
}

/// How a port compares with its original.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Agreement {
    /// Medians of all runs.
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    /// Lowest and highest of the original's runs: its own spread.
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    /// Ratio of port to original in each round.
    pub(crate) ratio: Option<Median>,
}

impl Agreement {
    /// Over rounds in which both succeeded; none without such a round.
    pub(crate) fn of(rounds: &[(Option<f64>, Option<f64>)]) -> Option<Self> {
        let both: Vec<(f64, f64)> =
            rounds.iter().filter_map(|(ours, theirs)| Some(((*ours)?, (*theirs)?))).collect();
        let (own, of_theirs): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
        let ratio = median(&ratios(&own, &of_theirs));
        let theirs: Vec<f64> = both.iter().map(|(_, theirs)| *theirs).collect();
        let lowest = theirs.iter().copied().reduce(f64::min)?;
        let highest = theirs.iter().copied().reduce(f64::max)?;
        let ours = crate::paired::center(&both.iter().map(|(ours, _)| *ours).collect::<Vec<_>>())?;
        let theirs = crate::paired::center(&theirs)?;
        Some(Self { ours, theirs, lowest, highest, ratio })
    }

    /// Whether the port's median is within the original's runs.
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.ratio.is_some(), (self.lowest..=self.highest).contains(&self.ours)) {
            (false, _) => "not resolved",
            (true, true) => "within its spread",
            (true, false) if self.ours < self.lowest => "below its spread",
            (true, false) => "above its spread",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_port_has_its_original() {
        let paired: BTreeSet<&str> = ALL.iter().map(|pair| pair.port).collect();
        let originals = ["iperf-", "sockperf-", "qperf-", "netperf-", "neper-"];
        let ports = wirecost_profile::builtins::ALL
            .iter()
            .map(|builtin| builtin.name)
            .filter(|name| originals.iter().any(|start| name.starts_with(start)));
        assert_eq!(paired, ports.collect());
        let names: BTreeSet<String> = ALL.iter().map(Pair::name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn a_port_agrees_if_its_median_is_within_the_original_runs() {
        let theirs = [8.0, 9.0, 10.0, 10.0, 11.0, 12.0];
        let rounds = |ours: f64| theirs.map(|theirs| (Some(ours), Some(theirs)));
        let of = |ours: f64| Agreement::of(&rounds(ours)).unwrap();
        assert_eq!(of(11.5).verdict(), "within its spread");
        assert_eq!(of(7.9).verdict(), "below its spread");
        assert_eq!(of(12.1).verdict(), "above its spread");
        assert_eq!((of(9.0).theirs, of(9.0).lowest, of(9.0).highest), (10.0, 8.0, 12.0));
        assert_eq!(Agreement::of(&rounds(9.0)[..3]).unwrap().verdict(), "not resolved");
        assert_eq!(Agreement::of(&[(Some(1.0), None), (None, Some(1.0))]), None);
    }
}
