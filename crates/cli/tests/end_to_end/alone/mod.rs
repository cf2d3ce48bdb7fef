//! What has to have the machine for itself, as what it looks for is in how runs of a study differ: these run
//! one at a time after all others (scripts/test).

mod builtin_studies;
mod findings;
mod idle;
mod responsiveness;
mod short_connections;

use wirecost_store::study::Study;

use crate::program::Finished;

/// What the runs of a study (`--out kept`) say that disturbed them.
fn kept_disturbances(finished: &Finished) -> Vec<String> {
    let Ok(study) = Study::open(&finished.path("kept")) else { return Vec::new() };
    let runs = study.runs().expect("its runs");
    let warnings = runs.into_iter().flat_map(|(_, run)| run.warnings);
    let disturbing = warnings.filter(|w| w.code == "steal" || w.code == "foreign-cpu");
    disturbing.map(|warning| warning.message).collect()
}
