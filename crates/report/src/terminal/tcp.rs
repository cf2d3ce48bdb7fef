//! What TCP did on one host.

use std::io::{self, Write};

use wirecost_model::observe::{AckRatio, Spread, TcpFlow, TcpSample, TcpSection};

use super::columns::{Table, number, text};
use super::look::Look;
use super::quantity::{NOT_MEASURED, bit_rate, count, counted, latency, or_dash, seconds};
use super::{figure, line};

/// Flows that have a row.
const SHOWN: usize = 8;

/// Writes the section of one host.
pub fn write(out: &mut dyn Write, section: &TcpSection, look: &Look) -> io::Result<()> {
    line(out, "ACK ratio", &ratios(section))?;
    figure(out, look, "order", &order(section))?;
    figure(out, look, "retransmits", &retransmits(section))?;
    if let Some(text) = troubles(section) {
        figure(out, look, "trouble", &text)?;
    }
    if let Some(rtt) = &section.rtt_us {
        let show = |spread: &Spread, one: fn(f64) -> String| {
            format!("{} ({} to {})", one(spread.mean), one(spread.min), one(spread.max))
        };
        let mut text = format!("RTT {}", show(rtt, latency));
        if let Some(cwnd) = &section.cwnd_segments {
            let segments = show(cwnd, |segments| count(segments.round() as u64));
            text += &format!(", cwnd {segments} segments");
        }
        text += &format!(", {}", counted(rtt.samples, "sample", "samples"));
        figure(out, look, "sampled", &text)?;
    }
    flows(out, section, look)
}

fn ratios(section: &TcpSection) -> String {
    let of = |ratio: &AckRatio| {
        or_dash(ratio.segments_per_ack, |segments| format!("{segments:.1}:1"))
            + &ratio.pure_acks.map(|acks| format!(" ({} ACKs)", count(acks))).unwrap_or_default()
    };
    format!("sent {}, received {}", of(&section.acks_received), of(&section.acks_sent))
}

fn order(section: &TcpSection) -> String {
    format!(
        "{} duplicate ACKs, {} packets out of order",
        or_dash(section.duplicate_acks_received, count),
        or_dash(section.out_of_order_packets, count),
    )
}

fn retransmits(section: &TcpSection) -> String {
    let of = &section.retransmits;
    let Some(segments) = of.segments else { return NOT_MEASURED.to_owned() };
    let mut text = counted(segments, "segment", "segments");
    if let Some(percent) = of.percent.filter(|_| segments > 0) {
        text += &format!(" ({percent:.3}%)");
    }
    let kinds: Vec<String> = [
        (of.fast_segments, "fast"),
        (of.timeout_segments, "by timeout"),
        (of.probe_segments, "loss probes"),
        (of.syn_segments, "SYN"),
        (of.spurious_dsack, "spurious"),
    ]
    .into_iter()
    .filter_map(|(segments, kind)| Some((segments.filter(|&s| s > 0)?, kind)))
    .map(|(segments, kind)| format!("{} {kind}", count(segments)))
    .collect();
    if !kinds.is_empty() {
        text += &format!(": {}", kinds.join(", "));
    }
    text
}

/// Only what there is of it.
fn troubles(section: &TcpSection) -> Option<String> {
    let mut all = Vec::new();
    let mut tell = |number: Option<u64>, what: &str| {
        if let Some(number) = number.filter(|&number| number > 0) {
            all.push(format!("{} {what}", count(number)));
        }
    };
    tell(section.listen.drops, "listen drops");
    tell(section.listen.overflows, "listen overflows");
    tell(section.windows.zero_announced, "windows of 0 announced");
    tell(section.windows.zero_received, "windows of 0 received");
    tell(section.memory.entered, "times under memory pressure");
    tell(section.memory.receive_pruned, "pruned on receive");
    tell(section.memory.receive_collapsed, "joined for want of room");
    tell(section.memory.backlog_dropped, "dropped from backlogs");
    if let Some(waited) = section.windows.zero_received_seconds.filter(|&waited| waited > 0.0) {
        all.push(format!("{} of waiting for windows of 0", seconds(waited)));
    }
    (!all.is_empty()).then(|| all.join(", "))
}

/// The busiest, each as it was last.
fn flows(out: &mut dyn Write, section: &TcpSection, look: &Look) -> io::Result<()> {
    let mut busiest: Vec<(&TcpFlow, &TcpSample)> =
        section.flows.iter().filter_map(|flow| Some((flow, flow.samples.last()?))).collect();
    busiest.sort_by_key(|(flow, _)| std::cmp::Reverse(flow.bytes_acked + flow.bytes_received));
    if busiest.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        text("flow", 0),
        text("to", 3),
        text("control", 5),
        number("cwnd", 0),
        number("in flight", 4),
        number("RTT", 0),
        number("min RTT", 6),
        number("delivery", 1),
        number("pacing", 2),
        number("again", 1),
    ]);
    for (flow, last) in busiest.iter().take(SHOWN) {
        table.row(vec![
            flow.local.clone(),
            flow.remote.clone(),
            flow.congestion_control.clone().unwrap_or_default(),
            count(last.cwnd_segments.into()),
            count(last.in_flight_segments.into()),
            latency(last.rtt_us.into()),
            or_dash(last.min_rtt_us, |rtt| latency(rtt.into())),
            or_dash(last.delivery_bits_per_second, bit_rate),
            or_dash(last.pacing_bits_per_second, bit_rate),
            count(flow.retransmitted_segments),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)?;
    if let Some(open) = section.flows_open.filter(|&open| open > busiest.len().min(SHOWN) as u64) {
        let shown = busiest.len().min(SHOWN) as u64;
        writeln!(out, "  {} of {} flows", count(shown), count(open))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{ListenDrops, Retransmits};

    use super::*;

    fn example() -> TcpSection {
        let ratio = |data, acks: u64| AckRatio {
            source: Some("bpf".to_owned()),
            data_segments: Some(data),
            pure_acks: Some(acks),
            segments_per_ack: (acks > 0).then(|| data as f64 / acks as f64),
        };
        TcpSection {
            segments_sent: Some(16_000),
            acks_received: ratio(16_000, 8000),
            acks_sent: ratio(0, 0),
            duplicate_acks_received: Some(73),
            out_of_order_packets: Some(5),
            retransmits: Retransmits {
                segments: Some(77),
                fast_segments: Some(70),
                timeout_segments: Some(0),
                probe_segments: Some(7),
                percent: Some(0.479),
                ..Retransmits::default()
            },
            listen: ListenDrops { drops: Some(3), ..ListenDrops::default() },
            rtt_us: Some(Spread { min: 21.0, mean: 104.2, max: 1900.0, samples: 12 }),
            cwnd_segments: Some(Spread { min: 10.0, mean: 44.0, max: 120.0, samples: 12 }),
            flows_open: Some(30_000),
            flows: vec![TcpFlow {
                local: "198.18.0.1:40000".to_owned(),
                remote: "198.18.0.2:5001".to_owned(),
                congestion_control: Some("cubic".to_owned()),
                bytes_acked: 5_000_011,
                bytes_received: 0,
                retransmitted_segments: 77,
                samples: vec![TcpSample {
                    seconds: 1.0,
                    cwnd_segments: 44,
                    slow_start_threshold_segments: Some(40),
                    in_flight_segments: 43,
                    rtt_us: 104,
                    min_rtt_us: Some(21),
                    pacing_bits_per_second: None,
                    delivery_bits_per_second: Some(9.4e9),
                    send_window_bytes: Some(65536),
                    retransmitted_segments: 80,
                }],
            }],
            ..TcpSection::default()
        }
    }

    #[test]
    fn a_host_has_its_figures_and_its_busiest_flows() {
        let mut out = Vec::new();
        write(&mut out, &example(), &Look::plain(100)).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let mut out = Vec::new();
        write(&mut out, &TcpSection::default(), &Look::plain(80)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("ACK ratio     sent -, received -"), "{text}");
        assert!(text.contains("- duplicate ACKs"), "{text}");
    }
}
