//! What limits at the base, and which end it belongs to.

use wirecost_model::document::Finding;

use super::{Answer, Block, finding};
use crate::findings;

pub(super) fn answer(block: &Block<'_>) -> Answer {
    if block.base.runs.is_empty() {
        return Err("the base was not measured".to_owned());
    }
    let (text, evidence) = findings::limits_at(block.base);
    let text = format!("at the base, {text}");
    Ok(Some(Finding { evidence, ..finding(block, None, block.sentence(&text)) }))
}
