//! Which option saves most at each size.

use wirecost_model::study::Value;

use super::words::{self, change};
use super::{Answer, Comparison, Figure, Payoff, Verdict};
use crate::findings::words::list;

pub(super) fn answers(payoffs: &[Payoff<'_>]) -> Vec<Answer> {
    let groups = words::groups(payoffs, false);
    // Of one option, the sentence about it says it.
    let groups = groups.into_iter().filter(|(_, group)| group.len() > 1);
    groups.map(|(common, group)| Ok(answer(common, &group))).collect()
}

fn answer(common: &[Value], group: &[&Payoff<'_>]) -> Option<wirecost_model::document::Finding> {
    let mut labels: Vec<&str> = Vec::new();
    for at in group.iter().flat_map(|of| &of.curve.sizes) {
        if !labels.contains(&at.label) {
            labels.push(at.label);
        }
    }
    let mut parts = Vec::new();
    let mut none = Vec::new();
    for label in labels {
        let known: Vec<(&str, &Comparison)> = group
            .iter()
            .filter_map(|of| {
                let place = of.curve.sizes.iter().position(|at| at.label == label)?;
                let comparison = of.of(Figure::Cost)[place].as_ref().ok()?;
                comparison.effect.map(|_| (of.curve.option.as_str(), comparison))
            })
            .collect();
        if known.is_empty() {
            continue;
        }
        let saving = known.iter().filter(|(_, of)| of.verdict() == Verdict::Saves);
        let best = saving.min_by(|(_, a), (_, b)| a.ratio.total_cmp(&b.ratio));
        match best {
            Some((option, of)) => {
                parts.push(format!("{option}{}: {}", words::at(label), change(of)))
            }
            None => none.push(label.to_owned()),
        }
    }
    let mut text = match (parts.is_empty(), none.is_empty()) {
        (true, true) => return None,
        (true, false) => "no option has a detectable saving in cycles/KByte at any size".to_owned(),
        (false, _) => format!("the option that saves most cycles/KByte is {}", parts.join("; ")),
    };
    if !parts.is_empty() && !none.is_empty() {
        text += &format!("; at {}, no option has a detectable saving", list(&none));
    }
    let finding = words::finding(&group[0].curve, Figure::Cost, words::sentence(common, &text));
    Some(wirecost_model::document::Finding { axis: None, ..finding })
}
