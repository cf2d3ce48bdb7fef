//! What an option costs in the latency of round trips, of one message or of a burst.

use wirecost_model::document::Finding;
use wirecost_model::study::Value;

use super::words::{self, Told};
use super::{Answer, BURSTS, Figure, Payoff};
use crate::findings::words::list;

pub(super) fn answers(payoffs: &[Payoff<'_>]) -> Vec<Answer> {
    words::groups(payoffs, true)
        .into_iter()
        .flat_map(|(common, group)| of(common, &group))
        .collect()
}

/// A sentence for each option that changes something, and one for all others together.
fn of(common: &[Value], group: &[&Payoff<'_>]) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut unclear = Vec::new();
    for payoff in group {
        let told = |figure| Told::of(payoff, figure);
        match (told(Figure::P50), told(Figure::P99)) {
            (Ok(p50), Ok(p99)) if p50.is_unclear() && p99.is_unclear() => {
                unclear.push((*payoff, p50, p99));
            }
            (Ok(p50), Ok(p99)) => answers.push(Ok(Some(answer(payoff, &p50, &p99)))),
            (Err(why), _) | (_, Err(why)) => answers.push(Err(why)),
        }
    }
    if let Some((first, ..)) = unclear.first() {
        let each = unclear.iter().map(|(payoff, p50, p99)| {
            let option = &payoff.curve.option;
            format!("{option} (p50 below {}, p99 below {})", p50.bound(), p99.bound())
        });
        let each: Vec<String> = each.collect();
        let text = format!(
            "no detectable difference in p50 and p99 of {} with {}",
            traffic(first),
            list(&each)
        );
        let sentence = words::sentence(common, &text);
        answers.push(Ok(Some(words::finding(&first.curve, Figure::P99, sentence))));
    }
    answers
}

/// What the latency is of.
fn traffic(payoff: &Payoff<'_>) -> &'static str {
    if payoff.curve.traffic() == Some(BURSTS) { BURSTS } else { "round trips" }
}

fn answer(payoff: &Payoff<'_>, p50: &Told<'_>, p99: &Told<'_>) -> Finding {
    let mut changes = Vec::new();
    let mut unclear = Vec::new();
    for (name, told) in [("p50", p50), ("p99", p99)] {
        changes.extend(told.less("").map(|less| format!("lowers {name} by {less}")));
        changes.extend(told.more("").map(|more| format!("raises {name} by {more}")));
        unclear.extend(told.unclear().map(|at| format!("in {name}{at}")));
    }
    let mut text =
        format!("{}, in {}, {}", payoff.curve.option, traffic(payoff), changes.join(", and "));
    if !unclear.is_empty() {
        text += &format!("; no detectable difference {}", unclear.join(", and "));
    }
    let figure = if p99.is_unclear() { Figure::P50 } else { Figure::P99 };
    let sentence = words::about_option(&payoff.curve.common, &text);
    words::with_effect(words::finding(&payoff.curve, figure, sentence), payoff, figure)
}
