//! What an option saves, and above which size.

use wirecost_model::document::Finding;
use wirecost_model::study::Value;

use super::break_even::{BreakEven, Crossing};
use super::words::{self, Told};
use super::{Answer, Figure, Payoff};
use crate::conclusions::{figure, mean};
use crate::findings::words::list;
use crate::measured::MeasuredPoint;

/// A smaller share of datagrams that do not arrive is not told.
const UNDELIVERED: f64 = 0.05;

pub(super) fn answers(payoffs: &[Payoff<'_>]) -> Vec<Answer> {
    words::groups(payoffs, false)
        .into_iter()
        .flat_map(|(common, group)| of(common, &group))
        .collect()
}

/// A sentence for each option that changes something, and one for all others together.
fn of(common: &[Value], group: &[&Payoff<'_>]) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut unclear = Vec::new();
    for payoff in group {
        match Told::of(payoff, Figure::Cost) {
            Ok(told) if told.is_unclear() => unclear.push((*payoff, told)),
            Ok(told) => answers.push(Ok(Some(answer(payoff, &told)))),
            Err(why) => answers.push(Err(why)),
        }
    }
    if !unclear.is_empty() {
        answers.push(Ok(Some(none(common, &unclear))));
    }
    answers
}

fn answer(payoff: &Payoff<'_>, told: &Told<'_>) -> Finding {
    let curve = &payoff.curve;
    let mut parts = Vec::new();
    let saves = told.less(" of cycles/KByte").map(|less| format!("saves {less}"));
    parts.extend(saves);
    let more = if parts.is_empty() { " more cycles/KByte" } else { " more" };
    parts.extend(told.more(more).map(|more| format!("costs {more}")));
    let mut text = format!("{} {}", curve.option, parts.join(", and "));
    if let Some(unclear) = told.unclear() {
        text += &format!("; no detectable difference{unclear}");
    }
    if curve.sizes.len() > 1 {
        text += &format!("; {}", break_even(&payoff.break_even()));
    }
    if let Some(undelivered) = undelivered(payoff) {
        text += &format!("; {undelivered}");
    }
    let sentence = words::about_option(&curve.common, &text);
    let mut finding = words::finding(curve, Figure::Cost, sentence);
    finding.evidence = evidence(payoff);
    words::with_effect(finding, payoff, Figure::Cost)
}

/// A KByte of what arrives costs all that does not: at which sizes that matters.
fn undelivered(payoff: &Payoff<'_>) -> Option<String> {
    let share = |point: &MeasuredPoint| {
        let share = mean(point, |run| {
            let of = run.datagrams.as_ref().filter(|of| of.sent > 0).ok_or("no datagrams")?;
            Ok(1.0 - of.received.min(of.sent) as f64 / of.sent as f64)
        });
        share.map_or(0.0, |share| share.mean)
    };
    let shares = payoff.curve.sizes.iter().map(|at| (at.label, share(at.on), share(at.off)));
    let many = shares.filter(|(_, on, off)| on.max(*off) >= UNDELIVERED);
    let each: Vec<String> = many
        .map(|(size, on, off)| {
            let [on, off] = [on, off].map(|share| match share {
                // Rounded, it would be all.
                share if share > 0.995 && share < 1.0 => "over 99.5%".to_owned(),
                share => words::percent(share),
            });
            format!("{on}{} ({off} without the option)", words::at(size))
        })
        .collect();
    (!each.is_empty()).then(|| format!("of the datagrams, {} did not arrive", list(&each)))
}

fn none(common: &[Value], unclear: &[(&Payoff<'_>, Told<'_>)]) -> Finding {
    let each = unclear
        .iter()
        .map(|(payoff, told)| format!("{} (below {})", payoff.curve.option, told.bound()));
    let each: Vec<String> = each.collect();
    let text = format!("no detectable difference in cycles/KByte with {}", list(&each));
    let own = unclear.iter().flat_map(|(payoff, _)| {
        let option = &payoff.curve.option;
        evidence(payoff).into_iter().map(move |text| format!("{option}: {text}"))
    });
    let (first, _) = &unclear[0];
    Finding {
        axis: Some(first.curve.axis.to_owned()),
        evidence: own.collect(),
        ..words::finding(&first.curve, Figure::Cost, words::sentence(common, &text))
    }
}

fn break_even(of: &BreakEven) -> String {
    match of {
        BreakEven::BelowSmallest => "the break-even is below the smallest size".to_owned(),
        BreakEven::AboveLargest => "the break-even is above the largest size".to_owned(),
        BreakEven::NotResolved => "the break-even is not resolved".to_owned(),
        BreakEven::At(Crossing { size, interval: (low, high), saves_above }) => {
            let side = if *saves_above { "larger" } else { "smaller" };
            format!(
                "break-even at {} ({} to {}): {side} sizes save",
                words::bytes(*size),
                words::bytes(*low),
                words::bytes(*high)
            )
        }
        BreakEven::SeveralTimes(between) => {
            let each = between.iter().map(|(low, high)| {
                format!("between {} and {}", words::bytes(*low), words::bytes(*high))
            });
            let each: Vec<String> = each.collect();
            format!("the ratio crosses break-even more than once: {}", list(&each))
        }
    }
}

/// What the runs with the option say about it.
fn evidence(payoff: &Payoff<'_>) -> Vec<String> {
    let mut evidence = Vec::new();
    let copied = payoff.curve.sizes.iter().filter_map(|at| {
        let share = mean(at.on, |run| figure(run, "zerocopy.copied")).ok()?;
        Some(format!("{:.0}%{}", share.mean, words::at(at.label)))
    });
    let copied: Vec<String> = copied.collect();
    if !copied.is_empty() {
        evidence.push(format!("zero-copy sends that the kernel still copied: {}", list(&copied)));
    }
    for at in &payoff.curve.sizes {
        for warning in super::warnings(at) {
            if !evidence.contains(&warning) {
                evidence.push(warning);
            }
        }
    }
    evidence
}
