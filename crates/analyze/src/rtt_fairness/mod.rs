//! How streams with different round-trip times share a link, as sentences by rule. The exponent is that of "The performance of
//! TCP/IP for networks with high bandwidth-delay products and random loss" (Lakshman and Madhow, 1997): throughput is
//! proportional to RTT^-a, where a is 1 if both paths lose the same share of packets (Mathis and others, 1997), and up to 2 if losses of all
//! streams coincide.
//!
//! A rule states figures of points. It is no test with a p-value, so it also speaks of points that were run once. A rule whose
//! figures are missing says nothing, and the reason is listed.

#[cfg(test)]
mod tests;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Run, StreamGroup};
use wirecost_model::study::Value;

use crate::Conclusions;
use crate::conclusions::{Answer, disturbances, effect, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};
use crate::wan_tuning::{CC, axis_value};

/// Round-trip times that differ by less say nothing of an exponent.
const APART: f64 = 1.2;

/// The streams of the near path and those of the far one: the two groups of the profile, in its order.
///
/// # Errors
/// The run has no two groups of streams.
pub fn paths(run: &Run) -> Result<[&StreamGroup; 2], String> {
    let groups = run.fairness.as_ref().and_then(|of| of.between_groups.as_ref());
    match groups.map(|of| of.groups.as_slice()) {
        Some([a, b]) if a.group <= b.group => Ok([a, b]),
        Some([a, b]) => Ok([b, a]),
        _ => Err("the run has no two groups of streams".to_owned()),
    }
}

/// Throughput of a far stream, relative to that of a near one.
///
/// # Errors
/// The run has no two groups of streams, or the near one moved nothing.
pub fn far_share(run: &Run) -> Result<f64, String> {
    let [near, far] = paths(run)?;
    match near.bits_per_second > 0.0 {
        true => Ok(far.bits_per_second / near.bits_per_second),
        false => Err("the near streams moved nothing".to_owned()),
    }
}

/// Round-trip times of near and far streams under load, microseconds.
///
/// # Errors
/// No connection of a group was sampled.
pub fn round_trips(run: &Run) -> Result<[f64; 2], String> {
    let [near, far] = paths(run)?.map(|group| group.rtt_us);
    let unknown = || "no connection was sampled for its round-trip time".to_owned();
    Ok([near.ok_or_else(unknown)?, far.ok_or_else(unknown)?])
}

/// The a for which throughput is proportional to RTT^-a.
///
/// # Errors
/// The round-trip times are about the same, or a figure is missing.
pub fn exponent(run: &Run) -> Result<f64, String> {
    let share = far_share(run)?;
    let [near, far] = round_trips(run)?;
    let ratio = far / near;
    if (1.0 / APART..APART).contains(&ratio) {
        return Err("the round-trip times are about the same".to_owned());
    }
    match share > 0.0 {
        true => Ok(-share.ln() / ratio.ln()),
        false => Err("the far streams moved nothing".to_owned()),
    }
}

/// The answers of all rules.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let mut conclusions = Conclusions::default();
    let mut clusters: Vec<(Vec<Value>, Vec<&MeasuredPoint>)> = Vec::new();
    for point in &measured.points {
        let common = measured.common(point, |axis| axis == CC);
        match clusters.iter_mut().find(|(known, _)| *known == common) {
            Some((_, points)) => points.push(point),
            None => clusters.push((common, vec![point])),
        }
    }
    let answers = clusters.iter().map(|(common, points)| answer(common, points));
    conclusions.add(("rtt-fairness", "fairness between round-trip times"), answers);
    conclusions
}

/// What far streams get with each congestion control, the fairest first.
fn answer(common: &[Value], points: &[&MeasuredPoint]) -> Answer {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for point in points {
        let name = axis_value(point, CC);
        match mean(point, far_share) {
            Ok(share) => found.push((name, *point, share)),
            Err(reason) => missing.push(match name {
                Some(name) => format!("{name}: {reason}"),
                None => reason,
            }),
        }
    }
    if found.is_empty() {
        return Err(missing.join("; "));
    }
    let unfair = |share: f64| if share > 0.0 { share.ln().abs() } else { f64::INFINITY };
    found.sort_by(|(.., a), (.., b)| unfair(a.mean).total_cmp(&unfair(b.mean)));
    let mut evidence = Vec::new();
    let mut parts = Vec::new();
    for (name, point, share) in &found {
        let with = name.map_or_else(String::new, |name| format!(" with {name}"));
        let round_trips = [0, 1].map(|path| mean(point, |run| Ok(round_trips(run)?[path])));
        let times = match &round_trips {
            [Ok(near), Ok(far)] => {
                let [near, far] = [near, far].map(|of| show(Unit::Microseconds, of.mean));
                format!(" (RTT {far}, near {near})")
            }
            _ => String::new(),
        };
        parts.push(format!("{:.2}x{with}{times}", share.mean));
        let interval = share.interval.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
        let exponent = mean(point, exponent).ok();
        let exponent =
            exponent.map(|of| format!(": throughput is proportional to RTT^{:.1}", -of.mean));
        if interval.is_some() || exponent.is_some() {
            let [interval, exponent] = [interval, exponent].map(Option::unwrap_or_default);
            evidence.push(format!("{:.2}x{interval}{with}{exponent}", share.mean));
        }
    }
    evidence.extend(missing);
    let (.., fairest) = found[0];
    let disturbed = disturbances(points);
    let text = format!(
        "a far stream gets, of the throughput of a near one, {}{disturbed}",
        words::list(&parts)
    );
    let fixed: Vec<&Value> = common.iter().collect();
    Ok(Some(Finding {
        kind: String::new(),
        metric: Some("fairness.groups".to_owned()),
        axis: (points.len() > 1).then(|| CC.to_owned()),
        at: common.to_vec(),
        sentence: words::sentence(&fixed, &text),
        effect: effect("far stream", Unit::Ratio, fairest.mean, fairest.interval),
        p_value: None,
        strength: None,
        evidence,
        points: Vec::new(),
    }))
}
