//! Wording of what an option changes.

use wirecost_model::document::{Effect, Finding, Strength};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use super::{Comparison, Curve, Figure, Payoff, TRAFFIC, Verdict};
use crate::findings::words::list;

/// `With tcp and 1 connection`; nothing where a study varies nothing but sizes and options.
pub(super) fn setting(common: &[Value]) -> Option<String> {
    let part = |value: &Value| match value.name.as_str() {
        // Each kind of traffic has sentences of its own.
        TRAFFIC => None,
        "connections" if value.value == "1" => Some("1 connection".to_owned()),
        "connections" => Some(format!("{} connections", value.value)),
        _ => Some(value.value.clone()),
    };
    let parts: Vec<String> = common.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("With {}", list(&parts)))
}

pub(super) fn sentence(common: &[Value], text: &str) -> String {
    match setting(common) {
        Some(setting) => format!("{setting}, {text}."),
        None => crate::findings::words::sentence(&[], text),
    }
}

/// The same of a text that begins with the name of an option, which stays as it is written.
pub(super) fn about_option(common: &[Value], text: &str) -> String {
    setting(common).map_or_else(|| format!("{text}."), |setting| format!("{setting}, {text}."))
}

/// `3.2%`, `18%`.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share.abs();
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// By how much a figure is smaller or larger: `18% (15% to 21%)`.
pub(super) fn change(of: &Comparison) -> String {
    let interval = of.interval().map(|(low, high)| {
        let (low, high) = if of.ratio < 1.0 { (high, low) } else { (low, high) };
        format!(" ({} to {})", percent(low - 1.0), percent(high - 1.0))
    });
    format!("{}{}", percent(of.ratio - 1.0), interval.unwrap_or_default())
}

/// The upper bound of a difference that is not significant.
fn bound(of: &Comparison) -> Option<f64> {
    of.interval().map(|(low, high)| (1.0 - low).max(high - 1.0))
}

/// The sizes of a curve by what is known of a figure.
pub(super) struct Told<'a> {
    /// Each size with the change there: `18% (15% to 21%)`.
    less: Vec<(&'a str, String)>,
    more: Vec<(&'a str, String)>,
    unclear: Vec<&'a str>,
    bound: f64,
}

impl<'a> Told<'a> {
    /// Of the sizes that have a comparison with an interval.
    ///
    /// # Errors
    /// Why none has.
    pub(super) fn of(payoff: &'a Payoff<'_>, figure: Figure) -> Result<Self, String> {
        let mut told = Told { less: Vec::new(), more: Vec::new(), unclear: Vec::new(), bound: 0.0 };
        let mut reason = "no size was measured".to_owned();
        let mut any = false;
        for (size, of) in payoff.curve.sizes.iter().zip(payoff.of(figure)) {
            let comparison = match of {
                Ok(comparison) => comparison,
                Err(why) => {
                    reason.clone_from(why);
                    continue;
                }
            };
            let Some(bound) = bound(comparison) else {
                "fewer than two valid pairs of runs; add --repeat 3".clone_into(&mut reason);
                continue;
            };
            any = true;
            match comparison.verdict() {
                Verdict::Saves => told.less.push((size.label, change(comparison))),
                Verdict::Costs => told.more.push((size.label, change(comparison))),
                Verdict::Unclear => {
                    told.unclear.push(size.label);
                    told.bound = told.bound.max(bound);
                }
            }
        }
        let why = format!("{}: {reason}", payoff.curve.option);
        if any { Ok(told) } else { Err(why) }
    }

    /// Whether there is no detectable difference at any size.
    pub(super) fn is_unclear(&self) -> bool {
        self.less.is_empty() && self.more.is_empty()
    }

    /// `18% (15% to 21%) of cycles/KByte at 64k and 5% (3% to 7%) at 8k`; nothing where the figure is not less.
    pub(super) fn less(&self, of: &str) -> Option<String> {
        at_sizes(&self.less, of)
    }

    /// The same where the figure is more.
    pub(super) fn more(&self, of: &str) -> Option<String> {
        at_sizes(&self.more, of)
    }

    /// ` at 64 and 1k (below 3.2%)`; nothing where there is a difference at each size.
    pub(super) fn unclear(&self) -> Option<String> {
        let last = self.unclear.last()?;
        let sizes: Vec<String> = self.unclear.iter().map(|label| (*label).to_owned()).collect();
        let at = match (self.is_unclear() && sizes.len() > 1, *last) {
            (_, "") => String::new(),
            (true, _) => " at any size".to_owned(),
            (false, _) => format!(" at {}", list(&sizes)),
        };
        Some(format!("{at} (below {})", self.bound()))
    }

    /// The upper bound of a difference that is not significant, as text.
    pub(super) fn bound(&self) -> String {
        match self.bound {
            bound if bound < 1.0 => percent(bound),
            bound if bound < 9.0 => format!("{:.1}x", 1.0 + bound),
            bound => format!("{:.0}x", 1.0 + bound),
        }
    }
}

/// ` at 64k`; nothing where a study has no sizes.
pub(super) fn at(size: &str) -> String {
    if size.is_empty() { String::new() } else { format!(" at {size}") }
}

fn at_sizes(changes: &[(&str, String)], of: &str) -> Option<String> {
    let each = changes.iter().enumerate().map(|(place, (size, change))| {
        let of = if place == 0 { of } else { "" };
        format!("{change}{of}{}", at(size))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| list(&each))
}

/// The curves with the same of everything but the option, in their order.
pub(super) fn groups<'p, 'a>(
    payoffs: &'p [Payoff<'a>],
    round_trips: bool,
) -> Vec<(&'p [Value], Vec<&'p Payoff<'a>>)> {
    let mut groups: Vec<(&[Value], Vec<&Payoff<'_>>)> = Vec::new();
    for payoff in payoffs.iter().filter(|of| of.curve.has_round_trips() == round_trips) {
        let common = payoff.curve.common.as_slice();
        match groups.iter_mut().find(|(known, _)| *known == common) {
            Some((_, group)) => group.push(payoff),
            None => groups.push((common, vec![payoff])),
        }
    }
    groups
}

/// About an option at the sizes of a curve.
pub(super) fn finding(curve: &Curve<'_>, figure: Figure, sentence: String) -> Finding {
    Finding {
        kind: String::new(),
        metric: Some(figure.metric().to_owned()),
        axis: Some(curve.axis.to_owned()),
        at: curve.common.clone(),
        sentence,
        effect: None,
        p_value: None,
        strength: None,
        evidence: Vec::new(),
        points: Vec::new(),
    }
}

/// Adds the largest significant effect of a curve, if there is one.
pub(super) fn with_effect(finding: Finding, payoff: &Payoff<'_>, figure: Figure) -> Finding {
    let sizes = payoff.curve.sizes.iter().zip(payoff.of(figure));
    let known = sizes.filter_map(|(size, of)| Some((size.label, of.as_ref().ok()?)));
    let clear = known.filter(|(_, of)| of.verdict() != Verdict::Unclear);
    let strongest =
        clear.max_by(|(_, a), (_, b)| a.ratio.ln().abs().total_cmp(&b.ratio.ln().abs()));
    let Some((label, of)) = strongest else { return finding };
    let name = match label {
        "" => "ratio".to_owned(),
        label => format!("ratio at {label}"),
    };
    let effect =
        Effect { name, unit: Unit::Ratio, value: of.ratio, interval: of.interval(), between: None };
    let strength = of.p_value.map(Strength::of);
    Finding { effect: Some(effect), p_value: of.p_value, strength, ..finding }
}

/// `7.1 KiB`, `640 bytes`.
pub(super) fn bytes(bytes: f64) -> String {
    let number = |value: f64| match value {
        value if value < 9.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    };
    match bytes {
        bytes if bytes < 1023.5 => format!("{bytes:.0} bytes"),
        bytes if bytes < 1023.5 * 1024.0 => format!("{} KiB", number(bytes / 1024.0)),
        bytes => format!("{} MiB", number(bytes / (1024.0 * 1024.0))),
    }
}
