//! How soon throughput is steady, how streams share it, and what RFC 6349 makes of it.

use wirecost_analyze::convergence::describe;
use wirecost_analyze::stability::{is_significant, signed_percent};
use wirecost_model::convergence::{Convergence, ConvergenceState, Stream};
use wirecost_model::document::{Cell, Parts};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Fairness, GroupFairness, Rfc6349, Run};
use wirecost_model::units::{
    NOT_MEASURED, bit_rate, count, counted, latency, percent, seconds, span, three_digits,
};

/// Lines of the figures, by label.
pub(super) fn figures(run: &Run) -> Vec<(&'static str, Cell)> {
    let mut figures = Vec::new();
    figures.extend(run.convergence.as_ref().map(|of| ("convergence", convergence(of))));
    figures.extend(stability(run).map(|of| ("stability", of)));
    let streams = run.streams.as_ref().filter(|streams| streams.len() > 1);
    figures.extend(streams.map(|of| ("streams", self::streams(of))));
    // Of one strand it is 1 and says nothing.
    let of_several = run.fairness.as_ref().filter(|fairness| fairness.strands > 1);
    figures.extend(of_several.map(|of| ("fairness", fairness(of))));
    let groups = of_several.and_then(|of| of.between_groups.as_ref());
    figures.extend(groups.map(|of| ("groups", self::groups(of))));
    figures.extend(run.rfc6349.as_ref().map(|of| ("RFC 6349", rfc6349(of))));
    figures
}

fn convergence(of: &Convergence) -> Cell {
    Parts::new(describe(of))
        .maybe_with("convergence time", Unit::Seconds, of.seconds)
        .maybe_with("steady mean", Unit::BitsPerSecond, of.steady_bits_per_second)
        .maybe_with("change over the last half", Unit::Percent, of.change.map(|of| 100.0 * of))
        .with("window of time", Unit::Seconds, of.window_seconds)
        .into()
}

/// Windows from this length on are long enough for drift, and for a line that says that nothing was found, seconds.
const LONG: f64 = 600.0;

/// `1 outage (2.00 s), 3 dips (longest 2.00 s), drift -0.12% per hour`; nothing of a short window in which nothing was
/// found. Dips that were not judged and drift that is not significant are left out.
fn stability(run: &Run) -> Option<Cell> {
    let (of, window) = (run.stability.as_ref()?, run.window.as_ref()?);
    let is_long = window.seconds >= LONG;
    let drift = of.drift.filter(|drift| is_long && is_significant(drift));
    if of.outage_count + of.dip_count.unwrap_or(0) == 0 && !is_long {
        return None;
    }
    let longest = |lengths: &mut dyn Iterator<Item = f64>| lengths.fold(0.0, f64::max);
    let found = |number: u64, one: &str, several: &str, longest: f64| match number {
        0 => format!("no {one}"),
        1 => format!("1 {one} ({})", span(longest)),
        _ => format!("{} (longest {})", counted(number, one, several), span(longest)),
    };
    let outage = longest(&mut of.outages.iter().map(|outage| outage.seconds));
    let dip = longest(&mut of.dips.iter().map(|dip| dip.seconds));
    let mut text = found(of.outage_count, "outage", "outages", outage);
    if let Some(dips) = of.dip_count {
        text += &format!(", {}", found(dips, "dip", "dips", dip));
    }
    let per_hour = drift.map(|drift| 100.0 * drift.per_hour);
    if let Some(per_hour) = per_hour {
        text += &format!(", drift {} per hour", signed_percent(per_hour));
    }
    let parts = Parts::new(text)
        .with("outages", Unit::Count, of.outage_count as f64)
        .with("longest outage", Unit::Seconds, outage)
        .maybe_with("dips", Unit::Count, of.dip_count.map(|dips| dips as f64))
        .with("longest dip", Unit::Seconds, dip)
        .maybe_with("drift per hour", Unit::Percent, per_hour);
    Some(parts.into())
}

/// `1.86 Gb/s to 2.01 Gb/s each, 4 of 5 converged after 3.00 s to 5.00 s`.
fn streams(streams: &[Stream]) -> Cell {
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(None, |range: Option<(f64, f64)>, value| {
            let (least, most) = range.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        })
    };
    let (least, most) = range(&mut streams.iter().map(|of| of.bits_per_second)).unwrap_or_default();
    let mut text = format!("{} to {} each", bit_rate(least), bit_rate(most));
    let is = |state| streams.iter().filter(|of| of.convergence.state == state).count();
    let converged = is(ConvergenceState::Converged);
    let judged = streams.len() - is(ConvergenceState::TooShort) - is(ConvergenceState::Idle);
    if judged > 0 {
        text += &format!(", {converged} of {judged} converged");
    }
    let times = range(&mut streams.iter().filter_map(|of| of.convergence.seconds));
    if let Some((first, last)) = times {
        text += &format!(" after {} to {}", seconds(first), seconds(last));
    }
    Parts::new(text)
        .with("slowest", Unit::BitsPerSecond, least)
        .with("fastest", Unit::BitsPerSecond, most)
        .with("converged", Unit::Count, converged as f64)
        .maybe_with("first convergence time", Unit::Seconds, times.map(|(first, _)| first))
        .maybe_with("last convergence time", Unit::Seconds, times.map(|(_, last)| last))
        .into()
}

fn fairness(of: &Fairness) -> Cell {
    let mut text = format!("{:.3} Jain's index of {} strands", of.jain, count(of.strands));
    if let Some(ratio) = of.ratio {
        text += &format!(", fastest {}x the slowest", three_digits(ratio));
    }
    if let Some(time) = of.fair_share_seconds {
        text += &format!(", fair after {}", seconds(time));
    }
    Parts::new(text)
        .with("Jain's index", Unit::Ratio, of.jain)
        .with("strands", Unit::Count, of.strands as f64)
        .maybe_with("fastest over slowest", Unit::Ratio, of.ratio)
        .maybe_with("time to fair share", Unit::Seconds, of.fair_share_seconds)
        .into()
}

/// `0.912 Jain's index of 2 groups: 3.10 Gb/s each to h2 (RTT 10.0 ms), 1.55 Gb/s each to h3 (RTT 40.0 ms)`.
fn groups(of: &GroupFairness) -> Cell {
    let several_groups = of.groups.iter().any(|group| group.group != of.groups[0].group);
    let each = of.groups.iter().map(|group| {
        let number =
            if several_groups { format!("group {}, ", group.group + 1) } else { String::new() };
        let rtt = group.rtt_us.map_or_else(String::new, |rtt| format!(", RTT {}", latency(rtt)));
        format!(
            "{} each at {} ({number}{} streams{rtt})",
            bit_rate(group.bits_per_second),
            group.host,
            group.streams
        )
    });
    let each: Vec<String> = each.collect();
    let mut text =
        format!("{:.3} Jain's index of {} groups: {}", of.jain, each.len(), each.join(", "));
    if let Some(time) = of.fair_share_seconds {
        text += &format!("; fair after {}", seconds(time));
    }
    Parts::new(text)
        .with("Jain's index", Unit::Ratio, of.jain)
        .maybe_with("fastest over slowest", Unit::Ratio, of.ratio)
        .maybe_with("time to fair share", Unit::Seconds, of.fair_share_seconds)
        .into()
}

fn rfc6349(of: &Rfc6349) -> Cell {
    let part = |name: &str, shown: Option<String>, reason: Option<&String>| match (shown, reason) {
        (Some(shown), _) => format!("{name} {shown}"),
        (None, Some(reason)) => format!("{name} {NOT_MEASURED} ({reason})"),
        (None, None) => format!("{name} {NOT_MEASURED}"),
    };
    let parts = [
        part(
            "transfer time ratio",
            of.transfer_time_ratio.map(three_digits),
            of.transfer_time_reason.as_ref(),
        ),
        part(
            "TCP efficiency",
            of.efficiency_percent.map(|of| format!("{of:.3}%")),
            of.efficiency_reason.as_ref(),
        ),
        part(
            "buffer delay",
            of.buffer_delay_percent.map(|of| format!("{}%", percent(of))),
            of.buffer_delay_reason.as_ref(),
        ),
    ];
    Parts::new(parts.join(", "))
        .maybe_with("transfer time ratio", Unit::Ratio, of.transfer_time_ratio)
        .maybe_with("TCP efficiency", Unit::Percent, of.efficiency_percent)
        .maybe_with("buffer delay", Unit::Percent, of.buffer_delay_percent)
        .maybe_with("maximum TCP throughput", Unit::BitsPerSecond, of.max_bits_per_second)
        .maybe_with("baseline RTT", Unit::Microseconds, of.baseline_rtt_us)
        .into()
}
