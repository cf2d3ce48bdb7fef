//! The headline figures, a line each.

use wirecost_model::convergence::{Convergence, ConvergenceState};
use wirecost_model::document::{Cell, Parts, Section};
use wirecost_model::metric::Unit;
use wirecost_model::run::{
    Connections, Crypto, Datagrams, FileUse, Io, Latency, LossBursts, OneWay, Operations, Run, Tcp,
    Throughput, Transactions,
};
use wirecost_model::units::{
    NOT_MEASURED, bit_rate, bytes, count, counted, cycles, latency, percent, rate, three_digits,
};

use super::{link, steadiness};

pub(super) fn sections(run: &Run) -> Vec<Section> {
    section(run, |_| true)
}

/// Strands that are served less alike than this are worth a line.
const UNFAIR: f64 = 0.95;

/// Those of a summary.
pub(super) fn summary(run: &Run) -> Vec<Section> {
    section(run, |label| match label {
        // They say what transactions say.
        "operations" => {
            run.transactions.is_none() || run.operations.as_ref().is_some_and(|of| of.failed > 0)
        }
        "fairness" => run.fairness.as_ref().is_some_and(|fairness| fairness.jain < UNFAIR),
        "convergence" => {
            let trend = |of: &Convergence| of.state == ConvergenceState::Trend;
            run.convergence.as_ref().is_some_and(trend)
        }
        "groups" | "RFC 6349" | "streams" => false,
        _ => true,
    })
}

fn section(run: &Run, shown: impl Fn(&str) -> bool) -> Vec<Section> {
    let mut section = Section::named("figures", "");
    let mut figure = |label: &str, value: Option<Cell>| {
        if let Some(value) = value.filter(|_| shown(label)) {
            section.figure(label, value);
        }
    };
    figure(
        "offered load",
        run.offered_bits_per_second.map(|of| Cell::number(Unit::BitsPerSecond, of)),
    );
    figure("throughput", run.throughput.as_ref().map(throughput));
    figure("transactions", run.transactions.as_ref().map(transactions));
    figure("operations", run.operations.as_ref().map(operations));
    figure("latency", run.window.as_ref().map(|_| quantiles(run.latency_us.as_ref())));
    figure("connections", run.connections.as_ref().map(connections));
    figure("tcp", run.tcp.as_ref().map(tcp));
    figure("datagrams", run.datagrams.as_ref().map(datagrams));
    let of_datagrams = run.datagrams.as_ref();
    figure("loss bursts", of_datagrams.and_then(loss_bursts));
    figure("jitter", of_datagrams.and_then(|of| of.jitter_us).map(jitter));
    figure("one-way delay", of_datagrams.and_then(|of| of.one_way_us.as_ref()).map(one_way));
    for (label, value) in run.io.as_ref().map(io).unwrap_or_default() {
        figure(label, Some(value));
    }
    let by_netem = run.netem.as_ref().map(link::figure_of_netem);
    figure("link", by_netem.or(run.link.as_ref().map(link::figure)));
    figure("crypto", run.crypto.as_ref().map(crypto));
    for (label, value) in steadiness::figures(run) {
        figure(label, Some(value));
    }
    section.filled().into_iter().collect()
}

fn throughput(of: &Throughput) -> Cell {
    let text = format!(
        "{:<12} tx {}, rx {}",
        bit_rate(of.bits_per_second),
        bit_rate(of.tx_bits_per_second),
        bit_rate(of.rx_bits_per_second),
    );
    Parts::new(text)
        .with("both directions", Unit::BitsPerSecond, of.bits_per_second)
        .with("tx", Unit::BitsPerSecond, of.tx_bits_per_second)
        .with("rx", Unit::BitsPerSecond, of.rx_bits_per_second)
        .into()
}

fn transactions(of: &Transactions) -> Cell {
    let text = format!("{:<12} {} in the window", rate(of.per_second), count(of.count));
    Parts::new(text)
        .with("per second", Unit::PerSecond, of.per_second)
        .with("in the window", Unit::Count, of.count as f64)
        .into()
}

fn operations(of: &Operations) -> Cell {
    let mut text = format!("{:<12} {} in the window", rate(of.per_second), count(of.count));
    if of.failed > 0 {
        text += &format!(", {} failed ({} timed out)", count(of.failed), count(of.timeouts));
    }
    Parts::new(text)
        .with("per second", Unit::PerSecond, of.per_second)
        .with("in the window", Unit::Count, of.count as f64)
        .with("failed", Unit::Count, of.failed as f64)
        .with("timed out", Unit::Count, of.timeouts as f64)
        .into()
}

fn quantiles(of: Option<&Latency>) -> Cell {
    let Some(of) = of else {
        return format!("{NOT_MEASURED} (no transaction ended in the window)").into();
    };
    parts_of_quantiles(of, "").into()
}

fn parts_of_quantiles(of: &Latency, behind: &str) -> Parts {
    let quantiles =
        [("p50", of.p50), ("p90", of.p90), ("p99", of.p99), ("p99.9", of.p999), ("max", of.max)];
    let text = quantiles.map(|(name, value)| format!("{name} {}", latency(value))).join(", ");
    let with = |parts: Parts, (name, value)| parts.with(name, Unit::Microseconds, value);
    quantiles.into_iter().fold(Parts::new(text + behind), with)
}

fn connections(of: &Connections) -> Cell {
    let mut text = format!("{} open", count(of.open));
    if of.failed > 0 {
        text += &format!(", {} failed", count(of.failed));
    }
    if let Some(accepted) = of.accepted {
        let all = accepted.on_own_cpu + accepted.on_other_cpu;
        text += &format!(
            ", {} accepted ({} by a worker on another CPU than that of their packets)",
            count(all),
            count(accepted.on_other_cpu)
        );
    }
    let parts = Parts::new(text).with("open", Unit::Count, of.open as f64).with(
        "failed",
        Unit::Count,
        of.failed as f64,
    );
    match of.accepted {
        Some(accepted) => parts
            .with("accepted on own CPU", Unit::Count, accepted.on_own_cpu as f64)
            .with("accepted on other CPU", Unit::Count, accepted.on_other_cpu as f64)
            .into(),
        None => parts.into(),
    }
}

fn tcp(of: &Tcp) -> Cell {
    let mut text = match (of.retransmits, of.closed_unread.unwrap_or(0)) {
        (Some(number), _) => counted(number, "retransmit", "retransmits"),
        (None, 0) => format!("{NOT_MEASURED} retransmits (a host could not count them)"),
        (None, _) => format!(
            "{NOT_MEASURED} retransmits (connections that close in the window are not asked; see \
             --observe tcp)"
        ),
    };
    if let (Some(mean), Some(min), Some(max)) = (of.rtt_us, of.rtt_us_min, of.rtt_us_max) {
        text += &format!(
            ", RTT {} ({} to {}, {})",
            latency(mean),
            latency(min),
            latency(max),
            counted(of.rtt_samples, "sample", "samples")
        );
    }
    Parts::new(text)
        .maybe_with("retransmits", Unit::Count, of.retransmits.map(|number| number as f64))
        .maybe_with("RTT", Unit::Microseconds, of.rtt_us)
        .maybe_with("RTT min", Unit::Microseconds, of.rtt_us_min)
        .maybe_with("RTT max", Unit::Microseconds, of.rtt_us_max)
        .with("RTT samples", Unit::Count, of.rtt_samples as f64)
        .into()
}

fn datagrams(of: &Datagrams) -> Cell {
    let share = of.lost.max(0) as f64 * 100.0 / of.sent.max(1) as f64;
    let lost = u64::try_from(of.lost).unwrap_or(0);
    let mut text = format!(
        "{} sent, {} received, {} lost ({share:.3}%), {} late",
        count(of.sent),
        count(of.received),
        count(lost),
        count(of.late)
    );
    if let Some(reordered) = of.reordered.filter(|_| of.late > 0) {
        text += &format!(" ({} reordered)", count(reordered));
    }
    if let Some(duplicated) = of.duplicated {
        text += &format!(", {} duplicated", count(duplicated));
    }
    Parts::new(text)
        .with("sent", Unit::Count, of.sent as f64)
        .with("received", Unit::Count, of.received as f64)
        .with("lost", Unit::Count, lost as f64)
        .with("lost", Unit::Percent, share)
        .with("late", Unit::Count, of.late as f64)
        .maybe_with("reordered", Unit::Count, of.reordered.map(|number| number as f64))
        .maybe_with("duplicated", Unit::Count, of.duplicated.map(|number| number as f64))
        .into()
}

/// How many lost datagrams had consecutive numbers; nothing where none was lost.
fn loss_bursts(of: &Datagrams) -> Option<Cell> {
    let bursts = of.loss_bursts.as_ref().filter(|bursts| !bursts.is_empty())?;
    let lengths = |burst: &LossBursts| match burst.to {
        Some(to) if to == burst.from => burst.from.to_string(),
        Some(to) => format!("{}-{to}", burst.from),
        None => format!("{} or more", burst.from),
    };
    let mut each =
        bursts.iter().map(|burst| format!("{} of {}", count(burst.count), lengths(burst)));
    let first = each.next().map(|first| format!("{first} datagrams"));
    let text = first.into_iter().chain(each).collect::<Vec<_>>().join(", ");
    let parts = bursts.iter().fold(Parts::new(text), |parts, burst| {
        parts.with(&lengths(burst), Unit::Count, burst.count as f64)
    });
    Some(parts.into())
}

fn jitter(microseconds: f64) -> Cell {
    let text = format!("{} (RFC 3550, mean)", latency(microseconds));
    Parts::new(text).with("mean", Unit::Microseconds, microseconds).into()
}

fn one_way(of: &OneWay) -> Cell {
    if of.clock_error_us == 0.0 {
        return parts_of_quantiles(&of.delay, "").into();
    }
    let behind = format!(", +-{} (clocks)", latency(of.clock_error_us));
    parts_of_quantiles(&of.delay, &behind)
        .with("clock error", Unit::Microseconds, of.clock_error_us)
        .into()
}

/// What I/O options did, in the whole phase.
fn io(io: &Io) -> Vec<(&'static str, Cell)> {
    let mut figures: Vec<(&str, Cell)> = Vec::new();
    let each = |datagrams: u64, calls: u64| datagrams as f64 / calls.max(1) as f64;
    if let Some(of) = &io.zerocopy {
        let copied = of.copied_share.map_or_else(
            || format!("{NOT_MEASURED} still copied (none completed)"),
            |share| {
                let (share, completed) = (percent(share * 100.0), count(of.completed));
                format!("{share}% of {completed} completed calls still copied")
            },
        );
        let mut text = format!("{}, {copied}", counted(of.calls, "call", "calls"));
        if of.refused > 0 {
            text += &format!(", {} more sent with a copy", count(of.refused));
        }
        let parts = Parts::new(text)
            .with("calls", Unit::Count, of.calls as f64)
            .with("completed", Unit::Count, of.completed as f64)
            .maybe_with("copied", Unit::Percent, of.copied_share.map(|share| share * 100.0))
            .with("refused", Unit::Count, of.refused as f64);
        figures.push(("zerocopy", parts.into()));
    }
    if let Some(of) = &io.sends {
        let each = each(of.datagrams, of.calls);
        let calls = counted(of.calls, "call", "calls");
        let parts = Parts::new(format!("{calls}, {} datagrams each", three_digits(each)))
            .with("calls", Unit::Count, of.calls as f64)
            .with("datagrams", Unit::Count, of.datagrams as f64)
            .with("datagrams each", Unit::Ratio, each);
        figures.push(("sends", parts.into()));
    }
    if let Some(of) = &io.receives {
        let [call, message] = [of.calls, of.messages].map(|number| each(of.datagrams, number));
        let text = format!(
            "{}, {} datagrams each, {} a message",
            counted(of.calls, "call", "calls"),
            three_digits(call),
            three_digits(message)
        );
        let parts = Parts::new(text)
            .with("calls", Unit::Count, of.calls as f64)
            .with("datagrams", Unit::Count, of.datagrams as f64)
            .with("datagrams each", Unit::Ratio, call)
            .with("datagrams a message", Unit::Ratio, message);
        figures.push(("receives", parts.into()));
    }
    if let Some(of) = &io.frames {
        let text = format!(
            "{} sent, {} a call; {} received, {} dropped at the socket, {} received by the kernel's sockets",
            of.sent,
            three_digits(each(of.sent, of.calls)),
            of.received,
            of.dropped,
            of.received_beside,
        );
        let parts = Parts::new(text)
            .with("sent", Unit::Count, of.sent as f64)
            .with("calls", Unit::Count, of.calls as f64)
            .with("received", Unit::Count, of.received as f64)
            .with("dropped", Unit::Count, of.dropped as f64)
            .with("received by the kernel's sockets", Unit::Count, of.received_beside as f64);
        figures.push(("frames", parts.into()));
    }
    for (label, number, what) in [
        ("discard", io.discarded_bytes, "dropped in the kernel"),
        ("splice", io.spliced_bytes, "through a pipe"),
        ("sink", io.sink_bytes.filter(|_| io.files.is_empty()), "written to files"),
    ] {
        if let Some(number) = number {
            let parts = Parts::new(format!("{} {what}", bytes(number)));
            figures.push((label, parts.with(what, Unit::Bytes, number as f64).into()));
        }
    }
    for of in &io.files {
        figures.extend(source(of).map(|cell| ("source", cell)));
        figures.extend(sink(of).map(|cell| ("sink", cell)));
    }
    figures
}

/// What a host read from files.
fn source(of: &FileUse) -> Option<Cell> {
    let sent = of.source_bytes?;
    let mut text = format!("{}: {} sent from files", of.host, bytes(sent));
    let requests = by_ring(of.read_requests, of.read_depth);
    text += &match (requests, of.read_bytes, of.read_seconds) {
        // What calls take is no time of the device.
        (Some(requests), _, Some(seconds)) => {
            format!(", read by {requests}, waited for {seconds:.3} s")
        }
        (_, Some(read), Some(seconds)) => format!(", read at {}", rate_in_calls(read, seconds)),
        _ => ", by sendfile(2), which reads and sends in one call".to_owned(),
    };
    text += &of_workers(of.read_share);
    if let Some(share) = of.cached_share {
        text += &format!("; {}% was in the page cache", percent(100.0 * share));
    }
    if let Some(checked) = of.checked_bytes {
        text += &format!("; checksums of {} compared", bytes(checked));
    }
    let parts = Parts::new(text)
        .with("sent from files", Unit::Bytes, sent as f64)
        .maybe_with("read", Unit::Bytes, of.read_bytes.map(|read| read as f64))
        .maybe_with("reading", Unit::Microseconds, of.read_seconds.map(|seconds| 1e6 * seconds))
        .maybe_with("reading, of workers", Unit::Percent, of.read_share.map(|share| 100.0 * share))
        .maybe_with("cached", Unit::Percent, of.cached_share.map(|share| 100.0 * share))
        .maybe_with("reads in flight", Unit::Count, of.read_depth);
    Some(parts.into())
}

/// What a host wrote to files.
fn sink(of: &FileUse) -> Option<Cell> {
    let (written, seconds) = (of.sink_bytes?, of.write_seconds?);
    let how = match by_ring(of.write_requests, of.write_depth) {
        // What calls take is no time of the device.
        Some(requests) => format!("by {requests}, waited for {seconds:.3} s"),
        None => format!("at {}", rate_in_calls(written, seconds)),
    };
    let mut text = format!("{}: {} written to files {how}", of.host, bytes(written));
    text += &of_workers(of.write_share);
    if let Some(seconds) = of.sync_seconds {
        text += &format!("; then fdatasync(2) took {seconds:.3} s");
    }
    if let Some(read) = of.read_back_bytes {
        let from = match of.read_back_cached_bytes {
            Some(0) => "from the device".to_owned(),
            Some(cached) if cached < read => format!("{} of it from the page cache", bytes(cached)),
            _ => "from the page cache".to_owned(),
        };
        text += &format!("; {} read back ({from}) and compared", bytes(read));
    }
    let parts = Parts::new(text)
        .with("written to files", Unit::Bytes, written as f64)
        .with("writing", Unit::Microseconds, 1e6 * seconds)
        .maybe_with("writing, of workers", Unit::Percent, of.write_share.map(|share| 100.0 * share))
        .maybe_with("fdatasync", Unit::Microseconds, of.sync_seconds.map(|seconds| 1e6 * seconds))
        .maybe_with("read back", Unit::Bytes, of.read_back_bytes.map(|read| read as f64))
        .maybe_with("writes in flight", Unit::Count, of.write_depth);
    Some(parts.into())
}

/// How fast bytes moved while calls were under way.
fn rate_in_calls(moved: u64, seconds: f64) -> String {
    match seconds > 0.0 {
        true => format!("{} in {seconds:.3} s of calls", bit_rate(moved as f64 * 8.0 / seconds)),
        false => "less time than the clock resolves".to_owned(),
    }
}

fn by_ring(requests: Option<u64>, depth: Option<f64>) -> Option<String> {
    let (requests, depth) = (requests?, depth?);
    Some(format!("{} requests of io_uring ({depth:.1} in flight on average)", count(requests)))
}

fn of_workers(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| {
        format!(" ({}% of its workers' time)", percent(100.0 * share))
    })
}

/// The share of ciphers in the cost, with its interval.
fn crypto(crypto: &Crypto) -> Cell {
    if let Some(reason) = &crypto.reason {
        return format!("{NOT_MEASURED} of busy CPU time ({reason})").into();
    }
    let several = crypto.shares.len() > 1;
    let mut texts = Vec::new();
    let mut all = Parts::default();
    for of in &crypto.shares {
        let hosts = of.hosts.join(", ");
        let (low, high) = of.interval;
        let shares = [of.share, low, high].map(|share| share * 100.0);
        let [share, low, high] = shares.map(percent);
        let cost = of
            .cycles_per_kbyte
            .map_or_else(String::new, |per_kbyte| format!(", {} cycles/KByte", cycles(per_kbyte)));
        let text = format!("{share}% of busy CPU time ({low}% to {high}%){cost}");
        texts.push(if several { format!("{hosts}: {text}") } else { text });
        let of_busy = (shares[0], Some((shares[1], shares[2])));
        all = all
            .with_interval(&format!("{hosts} of busy CPU time"), Unit::Percent, of_busy)
            .maybe_with(
                &format!("{hosts} cycles/KByte"),
                Unit::CyclesPerKByte,
                of.cycles_per_kbyte,
            );
    }
    Parts { text: texts.join("; "), ..all }.into()
}
