//! What TCP did on one host.

use std::collections::BTreeSet;

use crate::document::{Cell, Column, Parts, Section, Table};
use crate::metric::Unit;
use crate::observe::{AckRatio, Spread, TcpFlow, TcpSample, TcpSection};
use crate::units::{count, counted, latency, or_dash, seconds, whole};

/// Flows that have a row.
const SHOWN: usize = 8;

pub(super) fn sections(of: &TcpSection) -> Vec<Section> {
    let mut section = Section::named("tcp", "TCP");
    section.figure("ACK ratio", ratios(of));
    let reasons = [&of.acks_received, &of.acks_sent].map(|ratio| ratio.reason.as_deref());
    for reason in reasons.into_iter().flatten().collect::<BTreeSet<_>>() {
        section.note(format!("ACK ratio: {reason}"));
    }
    section.figure("order", order(of));
    section.figure("retransmits", retransmits(of));
    if let Some(troubles) = troubles(of) {
        section.figure("trouble", troubles);
    }
    if let Some(rtt) = &of.rtt_us {
        section.figure("sampled", sampled(rtt, of.cwnd_segments.as_ref()));
    }
    flows(&mut section, of);
    vec![section]
}

fn ratios(of: &TcpSection) -> Parts {
    let show = |ratio: &AckRatio| {
        or_dash(ratio.segments_per_ack, |segments| format!("{segments:.1}:1"))
            + &ratio.pure_acks.map(|acks| format!(" ({} ACKs)", count(acks))).unwrap_or_default()
    };
    let (sent, received) = (&of.acks_received, &of.acks_sent);
    let acks = |ratio: &AckRatio| ratio.pure_acks.map(|acks| acks as f64);
    Parts::new(format!("sent {}, received {}", show(sent), show(received)))
        .maybe_with("sent", Unit::Ratio, sent.segments_per_ack)
        .maybe_with("ACKs received", Unit::Count, acks(sent))
        .maybe_with("received", Unit::Ratio, received.segments_per_ack)
        .maybe_with("ACKs sent", Unit::Count, acks(received))
}

fn order(of: &TcpSection) -> Parts {
    let (duplicates, unordered) = (of.duplicate_acks_received, of.out_of_order_packets);
    let text = format!(
        "{} duplicate ACKs, {} packets out of order",
        or_dash(duplicates, count),
        or_dash(unordered, count),
    );
    Parts::new(text)
        .maybe_with("duplicate ACKs", Unit::Count, duplicates.map(|number| number as f64))
        .maybe_with("out of order", Unit::Count, unordered.map(|number| number as f64))
}

fn retransmits(of: &TcpSection) -> Cell {
    let of = &of.retransmits;
    let Some(segments) = of.segments else { return Cell::Missing(String::new()) };
    let mut text = counted(segments, "segment", "segments");
    if let Some(percent) = of.percent.filter(|_| segments > 0) {
        text += &format!(" ({percent:.3}%)");
    }
    let kinds: Vec<(u64, &str)> = [
        (of.fast_segments, "fast"),
        (of.timeout_segments, "by timeout"),
        (of.probe_segments, "loss probes"),
        (of.syn_segments, "SYN"),
        (of.spurious_dsack, "spurious"),
    ]
    .into_iter()
    .filter_map(|(segments, kind)| Some((segments.filter(|&s| s > 0)?, kind)))
    .collect();
    if !kinds.is_empty() {
        text += &format!(": {}", listed(&kinds));
    }
    let all = Parts::new(text).with("segments", Unit::Count, segments as f64).maybe_with(
        "of all sent",
        Unit::Percent,
        of.percent,
    );
    with_counts(all, &kinds).into()
}

fn listed(counts: &[(u64, &str)]) -> String {
    let each = counts.iter().map(|(number, what)| format!("{} {what}", count(*number)));
    each.collect::<Vec<_>>().join(", ")
}

fn with_counts(parts: Parts, counts: &[(u64, &str)]) -> Parts {
    counts.iter().fold(parts, |parts, (number, what)| parts.with(what, Unit::Count, *number as f64))
}

/// Only what there is of it.
fn troubles(of: &TcpSection) -> Option<Parts> {
    let counts: Vec<(u64, &str)> = [
        (of.listen.drops, "listen drops"),
        (of.listen.overflows, "listen overflows"),
        (of.windows.zero_announced, "zero windows announced"),
        (of.windows.zero_received, "zero windows received"),
        (of.memory.entered, "times under memory pressure"),
        (of.memory.receive_pruned, "pruned on receive"),
        (of.memory.receive_collapsed, "collapsed to save memory"),
        (of.memory.backlog_dropped, "dropped from backlogs"),
    ]
    .into_iter()
    .filter_map(|(number, what)| Some((number.filter(|&number| number > 0)?, what)))
    .collect();
    let waited = of.windows.zero_received_seconds.filter(|&waited| waited > 0.0);
    let mut all = if counts.is_empty() { Vec::new() } else { vec![listed(&counts)] };
    all.extend(waited.map(|waited| format!("{} of waiting for zero windows", seconds(waited))));
    let parts = with_counts(Parts::new(all.join(", ")), &counts);
    let waited = waited.map(|waited| waited * 1e6);
    (!all.is_empty()).then(|| parts.maybe_with("waiting", Unit::Microseconds, waited))
}

fn sampled(rtt: &Spread, cwnd: Option<&Spread>) -> Parts {
    let show = |spread: &Spread, one: fn(f64) -> String| {
        format!("{} ({} to {})", one(spread.mean), one(spread.min), one(spread.max))
    };
    let mut text = format!("RTT {}", show(rtt, latency));
    if let Some(cwnd) = cwnd {
        text += &format!(", cwnd {} segments", show(cwnd, whole));
    }
    text += &format!(", {}", counted(rtt.samples, "sample", "samples"));
    Parts::new(text)
        .with("RTT", Unit::Microseconds, rtt.mean)
        .with("RTT min", Unit::Microseconds, rtt.min)
        .with("RTT max", Unit::Microseconds, rtt.max)
        .maybe_with("cwnd", Unit::Count, cwnd.map(|cwnd| cwnd.mean))
        .maybe_with("cwnd min", Unit::Count, cwnd.map(|cwnd| cwnd.min))
        .maybe_with("cwnd max", Unit::Count, cwnd.map(|cwnd| cwnd.max))
        .with("samples", Unit::Count, rtt.samples as f64)
}

/// The busiest, each as it was last.
fn flows(section: &mut Section, of: &TcpSection) {
    let mut busiest: Vec<(&TcpFlow, &TcpSample)> =
        of.flows.iter().filter_map(|flow| Some((flow, flow.samples.last()?))).collect();
    busiest.sort_by_key(|(flow, _)| std::cmp::Reverse(flow.bytes_acked + flow.bytes_received));
    if busiest.is_empty() {
        return;
    }
    let mut table = Table::new([
        Column::text("flow"),
        Column::text("to").drop_order(3),
        Column::text("control").drop_order(5),
        Column::number("cwnd"),
        Column::number("in flight").drop_order(4),
        Column::number("RTT"),
        Column::number("min RTT").drop_order(6),
        Column::number("delivery").drop_order(1),
        Column::number("pacing").drop_order(2),
        Column::number("again").drop_order(1),
    ]);
    let rate = |rate| Cell::number(Unit::BitsPerSecond, rate);
    let time = |us: u32| Cell::number(Unit::Microseconds, us.into());
    for (flow, last) in busiest.iter().take(SHOWN) {
        table.row(vec![
            Cell::text(flow.local.as_str()),
            Cell::text(flow.remote.as_str()),
            Cell::text(flow.congestion_control.as_deref().unwrap_or_default()),
            Cell::count(last.cwnd_segments.into()),
            Cell::count(last.in_flight_segments.into()),
            time(last.rtt_us),
            Cell::or_dash(last.min_rtt_us, time),
            Cell::or_dash(last.delivery_bits_per_second, rate),
            Cell::or_dash(last.pacing_bits_per_second, rate),
            Cell::count(flow.retransmitted_segments),
        ]);
    }
    section.table(table);
    let shown = busiest.len().min(SHOWN) as u64;
    if let Some(open) = of.flows_open.filter(|&open| open > shown) {
        section.note(format!("{} of {} flows", count(shown), count(open)));
    }
}
