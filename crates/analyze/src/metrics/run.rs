//! Figures of a whole run.

use wirecost_model::convergence::Convergence;
use wirecost_model::frames::Stage;
use wirecost_model::metric::{Better, Unit};
use wirecost_model::program::Side;
use wirecost_model::run::{
    Datagrams, FileUse, GroupFairness, Latency, Rfc6349, Run, Tcp, WindowKind,
};
use wirecost_model::stability::Stability;

use super::{Definition, Source, define};
use crate::responsiveness;

pub(super) static ALL: &[Definition] = &[
    define(
        "throughput",
        Unit::BitsPerSecond,
        Better::Higher,
        "application bytes received, both directions",
        Source::Run(|run| throughput(run, |t| t.bits_per_second)),
    ),
    define(
        "offered",
        Unit::BitsPerSecond,
        Better::Neither,
        "payload that open-loop load was to move, both directions",
        Source::Run(|run| {
            run.offered_bits_per_second
                .ok_or_else(|| "the load was as fast as it could be".to_owned())
        }),
    ),
    define(
        "throughput.tx",
        Unit::BitsPerSecond,
        Better::Higher,
        "application bytes received, from connectors to acceptors",
        Source::Run(|run| throughput(run, |t| t.tx_bits_per_second)),
    ),
    define(
        "throughput.rx",
        Unit::BitsPerSecond,
        Better::Higher,
        "application bytes received, from acceptors to connectors",
        Source::Run(|run| throughput(run, |t| t.rx_bits_per_second)),
    ),
    define(
        "transactions",
        Unit::PerSecond,
        Better::Higher,
        "completed passes through the flowops",
        Source::Run(|run| {
            let transactions = run.transactions.as_ref().ok_or_else(|| nothing(run))?;
            Ok(transactions.per_second)
        }),
    ),
    define(
        "operations",
        Unit::PerSecond,
        Better::Higher,
        "completed flowops",
        Source::Run(|run| Ok(run.operations.as_ref().ok_or_else(|| nothing(run))?.per_second)),
    ),
    define(
        "connections",
        Unit::Count,
        Better::Neither,
        "connections that were open when the window began",
        Source::Run(|run| Ok(run.connections.as_ref().ok_or_else(|| nothing(run))?.open as f64)),
    ),
    define(
        "latency.p50",
        Unit::Microseconds,
        Better::Lower,
        "median of the transactions' latency",
        Source::Run(|run| latency(run, |l| l.p50)),
    ),
    define(
        "latency.p90",
        Unit::Microseconds,
        Better::Lower,
        "90th percentile of the transactions' latency",
        Source::Run(|run| latency(run, |l| l.p90)),
    ),
    define(
        "latency.p99",
        Unit::Microseconds,
        Better::Lower,
        "99th percentile of the transactions' latency",
        Source::Run(|run| latency(run, |l| l.p99)),
    ),
    define(
        "latency.p999",
        Unit::Microseconds,
        Better::Lower,
        "99.9th percentile of the transactions' latency",
        Source::Run(|run| latency(run, |l| l.p999)),
    ),
    define(
        "latency.mean",
        Unit::Microseconds,
        Better::Lower,
        "mean of the transactions' latency",
        Source::Run(|run| latency(run, |l| l.mean)),
    ),
    define(
        "latency.max",
        Unit::Microseconds,
        Better::Lower,
        "maximum of the transactions' latency",
        Source::Run(|run| latency(run, |l| l.max)),
    ),
    define(
        "probe.p50",
        Unit::Microseconds,
        Better::Lower,
        "median round trip of the probes of @responsiveness",
        Source::Run(|run| Ok(responsiveness::request(run)?.p50)),
    ),
    define(
        "probe.p99",
        Unit::Microseconds,
        Better::Lower,
        "99th percentile of the round trips of the probes of @responsiveness",
        Source::Run(|run| Ok(responsiveness::request(run)?.p99)),
    ),
    define(
        "rpm",
        Unit::Count,
        Better::Higher,
        "round trips per minute under the load of @responsiveness, not HTTP/2",
        Source::Run(|run| Ok(responsiveness::responsiveness(run)?.rpm())),
    ),
    define(
        "retransmits",
        Unit::Count,
        Better::Lower,
        "TCP segments retransmitted in the window, both ends",
        Source::Run(|run| {
            let tcp = run.tcp.as_ref().ok_or("the run has no TCP connection")?;
            let count =
                tcp.retransmits.ok_or_else(|| uncounted(tcp, "a host could not count them"))?;
            Ok(count as f64)
        }),
    ),
    define(
        "packets_out_of_order",
        Unit::Count,
        Better::Lower,
        "packets received in the window beyond what was awaited, by the run's connections, both ends",
        Source::Run(|run| {
            let tcp = run.tcp.as_ref().ok_or("the run has no TCP connection")?;
            let count = tcp
                .out_of_order
                .ok_or_else(|| uncounted(tcp, "the record has no count of them"))?;
            Ok(count as f64)
        }),
    ),
    define(
        "rtt",
        Unit::Microseconds,
        Better::Lower,
        "mean smoothed round-trip time of the sampled flows",
        Source::Run(|run| {
            let tcp = run.tcp.as_ref().ok_or("the run has no TCP connection")?;
            tcp.rtt_us.ok_or_else(|| "no flow was sampled".to_owned())
        }),
    ),
    define(
        "loss",
        Unit::Percent,
        Better::Lower,
        "datagrams lost, relative to those sent",
        Source::Run(|run| {
            let of = datagrams(run)?;
            if of.sent == 0 {
                return Err("no datagram was sent".to_owned());
            }
            Ok(100.0 * of.lost.max(0) as f64 / of.sent as f64)
        }),
    ),
    define(
        "jitter",
        Unit::Microseconds,
        Better::Lower,
        "mean jitter of datagrams (RFC 3550)",
        Source::Run(|run| {
            datagrams(run)?
                .jitter_us
                .ok_or_else(|| "no datagram of 16 bytes followed another".to_owned())
        }),
    ),
    define(
        "frames.generated",
        Unit::PerSecond,
        Better::Higher,
        "datagrams that the master sent",
        Source::Run(|run| frames(run, Side::Master, Stage::Generated)),
    ),
    define(
        "frames.sent",
        Unit::PerSecond,
        Better::Higher,
        "packets that the master's devices sent, as datagrams",
        Source::Run(|run| frames(run, Side::Master, Stage::Sent)),
    ),
    define(
        "frames.received",
        Unit::PerSecond,
        Better::Higher,
        "packets that the peers' devices received, as datagrams",
        Source::Run(|run| frames(run, Side::Master, Stage::Received)),
    ),
    define(
        "frames.reached",
        Unit::PerSecond,
        Better::Higher,
        "datagrams that reached the peers' sockets",
        Source::Run(|run| frames(run, Side::Master, Stage::ReachedSocket)),
    ),
    define(
        "frames.read",
        Unit::PerSecond,
        Better::Higher,
        "datagrams that the peers read",
        Source::Run(|run| frames(run, Side::Master, Stage::Read)),
    ),
    define(
        "answers.generated",
        Unit::PerSecond,
        Better::Higher,
        "datagrams that the peers sent",
        Source::Run(|run| frames(run, Side::Peer, Stage::Generated)),
    ),
    define(
        "answers.sent",
        Unit::PerSecond,
        Better::Higher,
        "packets that the peers' devices sent, as datagrams",
        Source::Run(|run| frames(run, Side::Peer, Stage::Sent)),
    ),
    define(
        "answers.received",
        Unit::PerSecond,
        Better::Higher,
        "packets that the master's devices received, as datagrams",
        Source::Run(|run| frames(run, Side::Peer, Stage::Received)),
    ),
    define(
        "answers.reached",
        Unit::PerSecond,
        Better::Higher,
        "datagrams that reached the master's sockets",
        Source::Run(|run| frames(run, Side::Peer, Stage::ReachedSocket)),
    ),
    define(
        "answers.read",
        Unit::PerSecond,
        Better::Higher,
        "datagrams that the master read",
        Source::Run(|run| frames(run, Side::Peer, Stage::Read)),
    ),
    define(
        "fairness",
        Unit::Ratio,
        Better::Higher,
        "Jain's index over the strands",
        Source::Run(|run| Ok(run.fairness.as_ref().ok_or_else(|| nothing(run))?.jain)),
    ),
    define(
        "source.read",
        Unit::Percent,
        Better::Lower,
        "time of workers in calls that read files to send them",
        Source::Run(|run| {
            let why = "no file is read, or sendfile(2) reads and sends it in one call";
            files(run, |of| of.read_share.map(|share| 100.0 * share)).ok_or(why.to_owned())
        }),
    ),
    define(
        "source.cached",
        Unit::Percent,
        Better::Neither,
        "bytes of files that were in the page cache when their reading began",
        Source::Run(|run| {
            let why = "no file is read through the page cache, or the kernel does not tell";
            files(run, |of| of.cached_share.map(|share| 100.0 * share)).ok_or(why.to_owned())
        }),
    ),
    define(
        "sink.write",
        Unit::Percent,
        Better::Lower,
        "time of workers in calls that write what is received to files",
        Source::Run(|run| {
            let why = "nothing is written to files";
            files(run, |of| of.write_share.map(|share| 100.0 * share)).ok_or(why.to_owned())
        }),
    ),
    define(
        "source.depth",
        Unit::Count,
        Better::Neither,
        "reads of files that io_uring had in flight",
        Source::Run(|run| {
            files(run, |of| of.read_depth).ok_or("io_uring reads no file".to_owned())
        }),
    ),
    define(
        "sink.depth",
        Unit::Count,
        Better::Neither,
        "writes of files that io_uring had in flight",
        Source::Run(|run| {
            files(run, |of| of.write_depth).ok_or("io_uring writes no file".to_owned())
        }),
    ),
    define(
        "sink.sync",
        Unit::Microseconds,
        Better::Lower,
        "time in fdatasync(2) of the sink's files at the end of the phase",
        Source::Run(|run| {
            let why = "no sink is synced (sink_sync)";
            files(run, |of| of.sync_seconds.map(|seconds| 1e6 * seconds)).ok_or(why.to_owned())
        }),
    ),
    define(
        "fairness.ratio",
        Unit::Ratio,
        Better::Lower,
        "bytes of the fastest strand, relative to those of the slowest",
        Source::Run(|run| {
            let fairness = run.fairness.as_ref().ok_or_else(|| nothing(run))?;
            fairness
                .ratio
                .ok_or_else(|| "a strand moved nothing, or the record is older".to_owned())
        }),
    ),
    define(
        "fairness.time",
        Unit::Seconds,
        Better::Lower,
        "time from the start of traffic until streams share fairly (Jain's index of at least 0.95)",
        Source::Run(|run| {
            let fairness = run.fairness.as_ref().ok_or_else(|| nothing(run))?;
            let reason = || fairness.fair_share_reason.clone().unwrap_or_else(|| OLDER.to_owned());
            fairness.fair_share_seconds.ok_or_else(reason)
        }),
    ),
    define(
        "fairness.groups",
        Unit::Ratio,
        Better::Higher,
        "Jain's index over groups of streams, by throughput per stream",
        Source::Run(|run| Ok(between_groups(run)?.jain)),
    ),
    define(
        "fairness.groups.ratio",
        Unit::Ratio,
        Better::Lower,
        "throughput per stream of the fastest group of streams, relative to the slowest",
        Source::Run(|run| {
            between_groups(run)?.ratio.ok_or_else(|| "a group moved nothing".to_owned())
        }),
    ),
    define(
        "fairness.groups.time",
        Unit::Seconds,
        Better::Lower,
        "time from the start of traffic until groups of streams share fairly",
        Source::Run(|run| {
            between_groups(run)?.fair_share_seconds.ok_or_else(|| {
                "groups did not come to share fairly, or the run is short".to_owned()
            })
        }),
    ),
    define(
        "convergence",
        Unit::Seconds,
        Better::Lower,
        "time from the start of traffic until throughput is steady (90% of windows within 10% of the mean)",
        Source::Run(|run| {
            let of = convergence(run)?;
            of.seconds.ok_or_else(|| crate::convergence::describe(of))
        }),
    ),
    define(
        "convergence.steady",
        Unit::BitsPerSecond,
        Better::Higher,
        "throughput of the last half of the time since the start of traffic",
        Source::Run(|run| {
            let of = convergence(run)?;
            of.steady_bits_per_second.ok_or_else(|| crate::convergence::describe(of))
        }),
    ),
    define(
        "outages",
        Unit::Count,
        Better::Lower,
        "times of a second and more in which no byte moved though operations were under way",
        Source::Run(|run| Ok(stability(run)?.outage_count as f64)),
    ),
    define(
        "outages.longest",
        Unit::Seconds,
        Better::Lower,
        "length of the longest outage",
        Source::Run(|run| {
            let outages = stability(run)?.outages.iter();
            Ok(outages.map(|outage| outage.seconds).fold(0.0, f64::max))
        }),
    ),
    define(
        "dips",
        Unit::Count,
        Better::Lower,
        "times in which throughput was below half of the median interval's",
        Source::Run(|run| {
            let of = stability(run)?;
            known(of.dip_count.map(|count| count as f64), of.dip_reason.as_ref())
        }),
    ),
    define(
        "rfc6349.transfer_time_ratio",
        Unit::Ratio,
        Better::Lower,
        "actual over ideal TCP transfer time (RFC 6349, 4.1)",
        Source::Run(|run| {
            let of = rfc6349(run)?;
            known(of.transfer_time_ratio, of.transfer_time_reason.as_ref())
        }),
    ),
    define(
        "rfc6349.efficiency",
        Unit::Percent,
        Better::Higher,
        "TCP efficiency: transmitted data that was not retransmitted (RFC 6349, 4.2)",
        Source::Run(|run| {
            let of = rfc6349(run)?;
            known(of.efficiency_percent, of.efficiency_reason.as_ref())
        }),
    ),
    define(
        "rfc6349.buffer_delay",
        // Not in percent: those of metrics end at 100.
        Unit::Ratio,
        Better::Lower,
        "mean RTT above the baseline RTT, relative to it; 1 is a buffer delay of 100% (RFC 6349, 4.3)",
        Source::Run(|run| {
            let of = rfc6349(run)?;
            let percent = known(of.buffer_delay_percent, of.buffer_delay_reason.as_ref())?;
            Ok(percent / 100.0)
        }),
    ),
    define(
        "zerocopy.copied",
        Unit::Percent,
        Better::Lower,
        "completed zero-copy calls whose bytes the kernel still copied",
        Source::Run(|run| {
            let io = run.io.as_ref().and_then(|io| io.zerocopy.as_ref());
            let of = io.ok_or("nothing is sent with zero-copy")?;
            let share = of.copied_share.ok_or("no zero-copy call was completed")?;
            Ok(100.0 * share)
        }),
    ),
    define(
        "observer",
        Unit::Ratio,
        Better::Higher,
        "throughput with probes relative to throughput without",
        Source::Run(|run| {
            let observe = run.observe.as_ref().ok_or("nothing observed")?;
            let reason = || observe.cost_reason.clone().unwrap_or_else(|| "not measured".into());
            Ok(observe.cost.as_ref().ok_or_else(reason)?.ratio)
        }),
    ),
];

/// Why a run has no figures.
pub(super) fn nothing(run: &Run) -> String {
    run.error.clone().unwrap_or_else(|| "the run has no complete window".to_owned())
}

fn throughput(run: &Run, of: fn(&wirecost_model::run::Throughput) -> f64) -> Result<f64, String> {
    run.throughput.as_ref().map(of).ok_or_else(|| nothing(run))
}

/// Why a record lacks what later versions measure.
const OLDER: &str = "the record was made before this was measured";

fn convergence(run: &Run) -> Result<&Convergence, String> {
    run.convergence.as_ref().ok_or_else(|| match run.throughput {
        None => nothing(run),
        Some(_) => "no bytes moved, or the record was made before this was measured".to_owned(),
    })
}

fn stability(run: &Run) -> Result<&Stability, String> {
    run.stability.as_ref().ok_or_else(|| match &run.window {
        None => nothing(run),
        Some(window) if window.kind == WindowKind::Iterations => {
            "the phase is counted whole, and has no window of a given time".to_owned()
        }
        Some(_) => OLDER.to_owned(),
    })
}

fn between_groups(run: &Run) -> Result<&GroupFairness, String> {
    let fairness = run.fairness.as_ref().ok_or_else(|| nothing(run))?;
    fairness.between_groups.as_ref().ok_or_else(|| "there is one group of streams".to_owned())
}

fn rfc6349(run: &Run) -> Result<&Rfc6349, String> {
    run.rfc6349.as_ref().ok_or_else(|| match run.tcp {
        None => "the run has no TCP connection".to_owned(),
        Some(_) => OLDER.to_owned(),
    })
}

fn known(value: Option<f64>, reason: Option<&String>) -> Result<f64, String> {
    value.ok_or_else(|| reason.cloned().unwrap_or_else(|| OLDER.to_owned()))
}

fn datagrams(run: &Run) -> Result<&Datagrams, String> {
    run.datagrams.as_ref().ok_or_else(|| "the run has no datagrams".to_owned())
}

/// Datagrams per second that passed a stage in the window.
fn frames(run: &Run, from: Side, stage: Stage) -> Result<f64, String> {
    let frames = run
        .frames
        .as_ref()
        .ok_or("the run has no datagrams, or was made before they were followed")?;
    let direction = frames.directions.iter().find(|direction| direction.from == from);
    let direction = direction.ok_or_else(|| format!("no {from} sent datagrams"))?;
    let found = direction.stages.iter().find(|of| of.stage == stage).and_then(|of| of.per_second);
    found.ok_or_else(|| frames.reason.clone().unwrap_or_else(|| nothing(run)))
}

/// Why what TCP_INFO tells is unknown.
fn uncounted(tcp: &Tcp, otherwise: &str) -> String {
    match tcp.closed_unread {
        None | Some(0) => otherwise.to_owned(),
        Some(_) => "connections that close in the window are not asked, to save a system call each"
            .to_owned(),
    }
}

fn latency(run: &Run, of: fn(&Latency) -> f64) -> Result<f64, String> {
    let without = || match &run.error {
        Some(error) => error.clone(),
        None => "no transaction ended in the window".to_owned(),
    };
    run.latency_us.as_ref().map(of).ok_or_else(without)
}

/// The largest figure of the hosts that have one.
fn files(run: &Run, figure: fn(&FileUse) -> Option<f64>) -> Option<f64> {
    run.io.as_ref()?.files.iter().filter_map(figure).reduce(f64::max)
}
