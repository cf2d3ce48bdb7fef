//! The findings of a study.

use wirecost_analyze::findings::findings;
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Block, Finding, Section};

/// The findings of a study; `None` if there are none.
#[must_use]
pub fn section(measured: &Measurements) -> Option<Section> {
    // A search chose the loads of its trials by their results, so they are no sample of anything.
    if measured.is_search() {
        return None;
    }
    let mut section = Section::named("findings", "Findings");
    for finding in findings(measured) {
        section.finding(finding);
    }
    section.filled()
}

/// All findings of a report, also those of its tables.
#[must_use]
pub fn of(sections: &[Section]) -> Vec<Finding> {
    let blocks = sections.iter().flat_map(|section| &section.blocks);
    let findings = blocks.filter_map(|block| match block {
        Block::Finding(finding) => Some(finding.clone()),
        _ => None,
    });
    findings.collect()
}
