//! What people read and send: a study or a run explained on one page, from records alone.
//!
//! Short first: a sentence, findings, charts. Then tables, hosts, method, and what was not measured and
//! why. Details are folded. A chart whose figures a record lacks is left out, and the page says why.

mod charts;
mod comparison;
mod cost_model;
mod hosts;
mod method;
mod redact;
mod run;
mod runs;
mod study;

use wirecost_analyze::compare::Hosts;
use wirecost_model::document::Section;

pub use charts::points::run_name;
pub use comparison::{SavedRuns, Side, comparison};
pub use cost_model::cost_model;
pub use method::METHOD;
pub use redact::{Redaction, redact};
pub use run::run;
pub use study::{Study, study};

/// Where a run came from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its record; `None` where it was not saved.
    pub record: Option<&'a str>,
    /// The environments of its hosts, by name; empty where the record does not have them.
    pub hosts: &'a Hosts,
}

/// What a page lacks, each with the reason.
fn not_measured(missing: Vec<(String, String)>) -> Option<Section> {
    let mut section = Section::named("not-measured", "What was not measured, and why");
    for (what, reason) in missing {
        let reason = reason.trim_end_matches('.');
        section.text(format!("{what}: {reason}."));
    }
    section.filled()
}
