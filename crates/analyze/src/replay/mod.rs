//! Which findings of one study hold in another of the same plan, on other hosts.

use wirecost_model::document::{Effect, Finding};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use crate::findings::{self, UNCHANGED, UNTESTED};
use crate::measured::Measurements;
use crate::metrics;

/// A finding of a study, and what another study says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    pub finding: Finding,
    pub verdict: Verdict,
    /// What was measured here.
    pub here: Here,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The same is found here, of the same size where it has one: the 95% intervals overlap.
    Holds,
    /// It is found here, but the intervals do not overlap.
    OtherSize,
    /// The opposite is found here, or a different value.
    Contradicted,
    /// It is not found here; what is there may be too small to be found.
    NotShown,
    /// The other study does not have what it is about.
    NotTested,
}

/// What is known of a finding on these hosts.
#[derive(Debug, Clone, PartialEq)]
pub enum Here {
    Effect(Effect),
    Finding(Box<Finding>),
    /// Nothing, and why.
    Nothing(String),
}

/// What `measured` says of each finding of another study of the same plan. `found` are its own findings.
#[must_use]
pub fn replayed(there: &[Finding], found: &[Finding], measured: &Measurements) -> Vec<Replayed> {
    let each = there.iter().map(|finding| {
        let (verdict, here) = match unknown(finding, measured) {
            Some(reason) => (Verdict::NotTested, Here::Nothing(reason)),
            None => match measured_again(finding, measured) {
                Some(known) => known,
                None => found_again(finding, there, found),
            },
        };
        Replayed { finding: finding.clone(), verdict, here }
    });
    each.collect()
}

/// Findings that the other study does not have.
#[must_use]
pub fn new<'a>(there: &[Finding], found: &'a [Finding]) -> Vec<&'a Finding> {
    let is_new = |here: &&Finding| counterpart(here, found, there).is_none();
    found.iter().filter(is_new).collect()
}

/// Why nothing can be said of it here.
fn unknown(finding: &Finding, measured: &Measurements) -> Option<String> {
    if measured.points.iter().all(|point| point.runs.is_empty()) {
        return Some("no run has a result".to_owned());
    }
    if finding.kind == UNTESTED {
        return Some("the page's runs say nothing of it".to_owned());
    }
    let axes = measured.axes();
    let missing = finding.axis.as_deref().filter(|axis| !axes.contains(axis));
    if let Some(axis) = missing {
        return Some(format!("{axis} was not varied"));
    }
    let has = |value: &Value| measured.values(&value.name).contains(&value.value.as_str());
    let missing = finding.at.iter().find(|value| !has(value));
    missing.map(|value| format!("{}={} was not run", value.name, value.value))
}

/// The ratio that a finding is about, from the runs of this study.
fn measured_again(finding: &Finding, measured: &Measurements) -> Option<(Verdict, Here)> {
    let there = finding.effect.as_ref()?;
    let (value, other) = there.between.as_ref()?;
    let (axis, metric) = (finding.axis.as_deref()?, finding.metric.as_deref()?);
    let nothing = |reason: String| Some((Verdict::NotTested, Here::Nothing(reason)));
    let Ok(selector) = metrics::find(metric) else {
        return nothing(format!("there is no metric {metric}"));
    };
    for value in [value, other] {
        if !measured.values(axis).contains(&value.as_str()) {
            return nothing(format!("{axis}={value} was not run"));
        }
    }
    // Most findings are of the points without an offered load, some of those that have one.
    let saturated = measured.saturated();
    let ratio = [&*saturated, measured]
        .into_iter()
        .find_map(|of| findings::ratio(of, axis, &selector, [value, other], &finding.at));
    let Some((ratio, interval)) = ratio else {
        return nothing(format!("too few runs have {metric}: each point needs several"));
    };
    let here = Effect { value: ratio, interval: Some(interval), ..there.clone() };
    Some((of_ratios(there, &here), Here::Effect(here)))
}

/// Of two ratios with the same meaning.
fn of_ratios(there: &Effect, here: &Effect) -> Verdict {
    let Some((low, high)) = here.interval else { return Verdict::NotTested };
    let same_side = (there.value > 1.0) == (here.value > 1.0);
    match (low > 1.0 || high < 1.0, same_side) {
        (false, _) => Verdict::NotShown,
        (true, false) => Verdict::Contradicted,
        (true, true) if overlap(there, here) => Verdict::Holds,
        (true, true) => Verdict::OtherSize,
    }
}

/// Whether two sizes can be the same. One without an interval is only where it is.
fn overlap(a: &Effect, b: &Effect) -> bool {
    let of = |effect: &Effect| effect.interval.unwrap_or((effect.value, effect.value));
    let ((a_low, a_high), (b_low, b_high)) = (of(a), of(b));
    a_low <= b_high && b_low <= a_high
}

/// A finding without two values to compare, among those of this study.
fn found_again(finding: &Finding, there: &[Finding], found: &[Finding]) -> (Verdict, Here) {
    if let Some(same) = counterpart(finding, there, found) {
        let verdict = match (&finding.effect, &same.effect) {
            (Some(there), Some(here)) if overlap(there, here) => Verdict::Holds,
            (Some(there), Some(here)) => apart(there, here),
            // What has no effect has no size.
            _ if finding.kind == UNCHANGED || finding.sentence == same.sentence => Verdict::Holds,
            _ => Verdict::Contradicted,
        };
        return (verdict, Here::Finding(Box::new(same.clone())));
    }
    let of_axis = |here: &&Finding| here.axis == finding.axis;
    match found.iter().find(of_axis).filter(|_| finding.kind == UNCHANGED) {
        Some(effect) => (Verdict::Contradicted, Here::Finding(Box::new(effect.clone()))),
        None => {
            let advice = found.iter().filter(|here| here.kind == UNCHANGED).find(of_axis);
            let advice = advice.or_else(|| found.iter().find(|here| here.kind == UNTESTED));
            let reason = advice.map_or_else(
                || "these runs do not show it".to_owned(),
                |finding| finding.sentence.clone(),
            );
            (Verdict::NotShown, Here::Nothing(reason))
        }
    }
}

/// The finding of another study that is about the same. Where several could be (functions, hosts), it is the one in the
/// same words.
fn counterpart<'a>(
    finding: &Finding,
    own: &[Finding],
    others: &'a [Finding],
) -> Option<&'a Finding> {
    let mut same = others.iter().filter(|other| is_same(finding, other));
    let first = same.next();
    let is_only = same.next().is_none() && own.iter().filter(|of| is_same(finding, of)).count() < 2;
    let wanted = words(finding);
    let is_meant = |other: &&Finding| is_same(finding, other) && words(other) == wanted;
    if is_only { first } else { others.iter().find(is_meant) }
}

/// The sentence without figures, and without the units behind them.
fn words(finding: &Finding) -> Vec<&str> {
    let is_figure = |word: &str| {
        let word = word.trim_start_matches(['(', '+', '-', '~']);
        word.starts_with(|letter: char| letter.is_ascii_digit())
    };
    let is_unit = |word: &str| {
        let word = word.trim_end_matches([',', '.', ')', ':', ';']);
        ["b/s", "kb/s", "Mb/s", "Gb/s", "us", "ms", "s", "ns", "/s", "KB", "MB", "B"]
            .contains(&word)
    };
    finding.sentence.split_whitespace().filter(|word| !is_figure(word) && !is_unit(word)).collect()
}

/// Of sizes that differ.
fn apart(there: &Effect, here: &Effect) -> Verdict {
    let opposite = match there.unit {
        Unit::Ratio => (there.value > 1.0) != (here.value > 1.0),
        _ => (there.value > 0.0) != (here.value > 0.0),
    };
    if opposite { Verdict::Contradicted } else { Verdict::OtherSize }
}

/// Whether two findings are about the same.
fn is_same(a: &Finding, b: &Finding) -> bool {
    let name = |finding: &Finding| finding.effect.as_ref().map(|effect| effect.name.clone());
    let values = |finding: &Finding| {
        let effect = finding.effect.as_ref();
        let mut between = effect.and_then(|effect| effect.between.clone());
        if let Some((value, other)) = &mut between
            && value > other
        {
            std::mem::swap(value, other);
        }
        between
    };
    (&a.kind, &a.metric, &a.axis, &a.at) == (&b.kind, &b.metric, &b.axis, &b.at)
        && name(a) == name(b)
        && values(a) == values(b)
}

#[cfg(test)]
mod tests;
