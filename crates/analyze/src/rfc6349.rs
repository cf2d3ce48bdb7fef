//! TCP throughput by RFC 6349, "Framework for TCP Throughput Testing", section 4.

use std::collections::BTreeMap;

use wirecost_model::measure::TcpSample;
use wirecost_model::run::{Rfc6349, Run, Tcp};

use crate::link;
use crate::window::HostWindow;

/// Headers of TCP and IPv4 without options, as section 4.1.1 subtracts them from the MTU.
const HEADERS: f64 = 40.0;
/// Preamble, header, checksum and gap of a frame (4.1.1: 1538 bytes at an MTU of 1500).
const ETHERNET: f64 = 38.0;

/// Of a run whose links and hosts are known; `None` without TCP connections.
pub(crate) fn of(run: &Run, windows: &[HostWindow<'_>]) -> Option<Rfc6349> {
    let tcp = run.tcp.as_ref()?;
    let most = most(run, windows);
    let ratio = most.clone().and_then(|most| transfer_time_ratio(run, most));
    let efficiency = efficiency(tcp);
    let baseline = baseline_rtt_us(windows);
    let delay = buffer_delay(windows);
    Some(Rfc6349 {
        max_bits_per_second: most.ok(),
        transfer_time_ratio: ratio.as_ref().ok().copied(),
        transfer_time_reason: ratio.err(),
        efficiency_percent: efficiency.as_ref().ok().copied(),
        efficiency_reason: efficiency.err().map(str::to_owned),
        buffer_delay_percent: delay.as_ref().ok().copied(),
        buffer_delay_reason: delay.err().map(str::to_owned),
        baseline_rtt_us: baseline,
    })
}

/// Section 4.1.1: `(MTU - 40) x 8 bits x max FPS`, where `max FPS` is the rate over the bits of a frame; of the slowest
/// link, with the path MTU of its connections (section 3.1).
fn most(run: &Run, windows: &[HostWindow<'_>]) -> Result<f64, String> {
    if run.hosts.len() > 2 {
        return Err("several peers have links of their own".to_owned());
    }
    let rate = link::rate(run).ok_or("the rate of the link is unknown")?;
    let samples = windows.iter().flat_map(|window| &window.phase.tcp_samples);
    let mtu = samples.map(|sample| sample.path_mtu).filter(|mtu| f64::from(*mtu) > HEADERS).min();
    let mtu = f64::from(mtu.ok_or("no connection was sampled for its path MTU")?);
    Ok(rate as f64 * (mtu - HEADERS) / (mtu + ETHERNET))
}

/// Section 4.1: `Actual TCP Transfer Time / Ideal TCP Transfer Time`, for the bytes of the window: the maximum TCP
/// throughput over the throughput of the busier direction.
fn transfer_time_ratio(run: &Run, most: f64) -> Result<f64, String> {
    let throughput = run.throughput.as_ref().ok_or("the run has no complete window")?;
    let actual = throughput.tx_bits_per_second.max(throughput.rx_bits_per_second);
    if actual > 0.0 { Ok(most / actual) } else { Err("no byte moved".to_owned()) }
}

/// Section 4.2: `(Transmitted Bytes - Retransmitted Bytes) / Transmitted Bytes x 100`. The kernel counts segments.
fn efficiency(tcp: &Tcp) -> Result<f64, &'static str> {
    match (tcp.segments_sent, tcp.retransmits) {
        (Some(0), _) => Err("no segment with data was sent"),
        (Some(sent), Some(again)) => Ok(100.0 * (1.0 - again as f64 / sent as f64).max(0.0)),
        _ if tcp.closed_unread.unwrap_or(0) > 0 => {
            Err("connections that close in the window are not asked")
        }
        _ => Err("a host could not count segments"),
    }
}

/// Section 4.3: `(Average RTT during transfer - Baseline RTT) / Baseline RTT x 100`, of each sampled connection with its
/// own baseline, as their paths may differ; the mean of these.
fn buffer_delay(windows: &[HostWindow<'_>]) -> Result<f64, &'static str> {
    let mut connections: BTreeMap<(usize, u32, u32), Vec<&TcpSample>> = BTreeMap::new();
    for (host, window) in windows.iter().enumerate().filter(|(_, window)| sends(window)) {
        let within = window.span.start.at..=window.span.end.at;
        let samples = window.phase.tcp_samples.iter().filter(|s| s.rtt_us > 0.0);
        for sample in samples.filter(|sample| within.contains(&sample.at)) {
            connections.entry((host, sample.group, sample.strand)).or_default().push(sample);
        }
    }
    if connections.is_empty() {
        return Err("no connection was sampled");
    }
    let delay = |samples: &Vec<&TcpSample>| {
        let mean = samples.iter().map(|sample| sample.rtt_us).sum::<f64>() / samples.len() as f64;
        let known = samples.iter().map(|sample| sample.min_rtt_us).filter(|rtt| *rtt > 0.0);
        known.reduce(f64::min).map(|baseline| (100.0 * (mean - baseline) / baseline).max(0.0))
    };
    let delays: Vec<f64> = connections.values().filter_map(delay).collect();
    match delays.len() {
        0 => Err("the kernel has no minimum RTT of the sampled connections"),
        count => Ok(delays.iter().sum::<f64>() / count as f64),
    }
}

fn sends(window: &HostWindow<'_>) -> bool {
    window.span.bytes().sent() > 0
}

/// The RTT of the path without load (section 3.2.1): the smallest of the hosts that send.
fn baseline_rtt_us(windows: &[HostWindow<'_>]) -> Option<f64> {
    let samples =
        windows.iter().filter(|of| sends(of)).flat_map(|window| &window.phase.tcp_samples);
    samples.map(|sample| sample.min_rtt_us).filter(|rtt| *rtt > 0.0).reduce(f64::min)
}
