//! The smallest buffer that reaches 95% of the best, beside the bandwidth-delay product.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;
use wirecost_model::study::number;

use super::{Answer, Block, axis_value, effect, finding, mean, throughput};
use crate::Estimate;
use crate::measured::MeasuredPoint;

/// Share of the best throughput that is enough.
const ENOUGH: f64 = 0.95;
/// Headers of IP and Ethernet do not count: the bandwidth-delay product in packets is of the MTU.
const MTU: &str = "tune.mtu";
const USUAL_MTU: f64 = 1500.0;

/// What the values of a factor count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    Bytes,
    Packets,
    /// Packets of one polling cycle: they are not in flight, so no bandwidth-delay product stands beside them.
    Polled,
}

pub(super) fn socket_buffer(block: &Block<'_>) -> Answer {
    of_axis(block, "option.wndsz", "socket buffer", Counts::Bytes)
}

pub(super) fn transmit_queue(block: &Block<'_>) -> Answer {
    of_axis(block, "tune.txqueuelen", "txqueuelen", Counts::Packets)
}

pub(super) fn backlog(block: &Block<'_>) -> Answer {
    of_axis(block, "tune.netdev_max_backlog", "netdev_max_backlog", Counts::Packets)
}

pub(super) fn budget(block: &Block<'_>) -> Answer {
    of_axis(block, "tune.netdev_budget", "netdev_budget", Counts::Polled)
}

fn of_axis(block: &Block<'_>, axis: &str, name: &str, counts: Counts) -> Answer {
    let factor = block.factor(axis).ok_or_else(|| match axis_value(block.base, axis) {
        Some(value) => format!("only one value of {axis} was measured, {value}"),
        None => format!("the study has no axis {axis}"),
    })?;
    let mut sizes: Vec<(f64, &str, Estimate)> = Vec::new();
    let mut clipped: Vec<String> = Vec::new();
    let mut best: f64 = 0.0;
    for (value, point) in &factor.levels {
        let rate = throughput(point)?;
        // Those that are no number, such as automatic ones, and those that were not granted only say what can be reached.
        best = best.max(rate.mean);
        match granted(point, axis) {
            Some(granted) => {
                clipped.push(format!("{value}: not tested, the effective value was {granted}"))
            }
            None => sizes.extend(number(value).map(|size| (size, *value, rate))),
        }
    }
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(smallest), Some(largest)) = (sizes.first(), sizes.last()) else {
        return Err(match clipped.is_empty() {
            true => format!("{axis} has no value that is a number"),
            false => format!(
                "the kernel clipped every requested value of {axis}: {}",
                clipped.join("; ")
            ),
        });
    };
    let share = |rate: &Estimate| 100.0 * rate.mean / best;
    let found = sizes.iter().find(|(_, _, rate)| rate.mean >= ENOUGH * best);
    let product = (counts != Counts::Polled).then(|| product(block));
    let beside = match &product {
        Some(Ok(bytes)) => format!("; {}", beside(block, *bytes, counts)),
        Some(Err(_)) | None => String::new(),
    };
    let text = match found {
        None => format!(
            "no {name} that was tried reaches 95% of the best throughput: {} reaches {:.0}%{beside}",
            largest.1,
            share(&largest.2)
        ),
        Some(found) if found.0 == smallest.0 => format!(
            "the smallest {name} that was tried, {}, reaches {:.0}% of the best throughput{beside}",
            found.1,
            share(&found.2)
        ),
        Some(found) => format!(
            "the smallest {name} that reaches 95% of the best throughput is {} ({:.0}%){beside}",
            found.1,
            share(&found.2)
        ),
    };
    let unit = if counts == Counts::Bytes { Unit::Bytes } else { Unit::Count };
    let evidence = sizes.iter().map(|(_, value, rate)| {
        format!("{value}: {}, {:.0}%", show(Unit::BitsPerSecond, rate.mean), share(rate))
    });
    let mut evidence: Vec<String> = evidence.collect();
    evidence.extend(clipped);
    let unknown = product.and_then(Result::err);
    evidence.extend(unknown.map(|reason| format!("bandwidth-delay product: {reason}")));
    Ok(Some(Finding {
        metric: Some("throughput".to_owned()),
        effect: found.and_then(|found| effect(axis, unit, found.0, None)),
        evidence,
        ..finding(block, Some(axis), block.sentence(&text))
    }))
}

/// What the kernel granted of an option of sockets that was clipped.
fn granted(point: &MeasuredPoint, axis: &str) -> Option<String> {
    let option = axis.strip_prefix("option.")?;
    // `wndsz.send` and `wndsz.receive` are halves of `wndsz`.
    let is_of = |name: &str| name.split('.').next() == Some(option);
    let settings = point.runs.iter().flat_map(|run| &run.settings);
    let mut clipped = settings.filter(|of| is_of(&of.name) && of.requested != of.effective);
    clipped.next().map(|of| of.effective.clone())
}

/// Rate of the slowest link times the smallest round-trip time, bytes; at the base.
fn product(block: &Block<'_>) -> Result<f64, String> {
    let of_run = |run: &Run| {
        let rate = crate::link::rate(run).ok_or("the rate of the link is unknown")?;
        let of = run.rfc6349.as_ref().ok_or("the run has no TCP connection")?;
        let rtt = of.baseline_rtt_us.ok_or("no connection was sampled for its round-trip time")?;
        Ok(rate as f64 * rtt / 1e6 / 8.0)
    };
    mean(block.base, of_run).map(|product| product.mean)
}

fn beside(block: &Block<'_>, bytes: f64, counts: Counts) -> String {
    let streams = block.streams.and_then(number).unwrap_or(1.0);
    let shown = |bytes: f64| show(Unit::Bytes, bytes);
    let product = format!("the bandwidth-delay product is {}", shown(bytes));
    match counts {
        Counts::Packets | Counts::Polled => {
            let mtu = block.base.point.number(MTU).unwrap_or(USUAL_MTU);
            format!("{product}, {:.0} packets of {mtu} bytes", bytes / mtu)
        }
        Counts::Bytes if streams > 1.0 => {
            format!("{product}, {} for each stream", shown(bytes / streams))
        }
        Counts::Bytes => product,
    }
}
