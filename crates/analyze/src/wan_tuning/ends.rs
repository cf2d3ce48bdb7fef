//! What limits at the base and with the best setting, and which end it belongs to.

use wirecost_model::document::Finding;

use super::{Answer, Block, best, finding};
use crate::findings;

pub(super) fn answer(block: &Block<'_>) -> Answer {
    if block.base.runs.is_empty() {
        return Err("the base was not measured".to_owned());
    }
    let (at_base, of_base) = findings::limits_at(block.base);
    let Some(best) = best::setting(block) else {
        let text = block.sentence(&format!("at the base, {at_base}"));
        return Ok(Some(Finding { evidence: of_base, ..finding(block, None, text) }));
    };
    // What lifts one limit meets another, which may be of the other end.
    let (at_best, of_best) = findings::limits_at(best);
    let name = block.name(best);
    let text = match at_base == at_best {
        true => format!("at the base and with the best setting ({name}), {at_best}"),
        false => format!("at the base, {at_base}; with the best setting ({name}), {at_best}"),
    };
    let of_base = of_base.into_iter().map(|text| format!("the base: {text}"));
    let of_best = of_best.into_iter().map(|text| format!("{name}: {text}"));
    Ok(Some(Finding {
        evidence: of_base.chain(of_best).collect(),
        ..finding(block, None, block.sentence(&text))
    }))
}
