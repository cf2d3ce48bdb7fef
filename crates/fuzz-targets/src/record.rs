//! Whatever a record's `run.json` holds: it is refused with a reason, or it is a run that every figure can be
//! asked for, that makes a report, and that is the same when it is written and read again.

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::run::Run;
use wirecost_report::tables::TableRequest;
use wirecost_store::{Document, RUN, document};

pub fn run(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(RUN);
    std::fs::write(&file, bytes).unwrap();
    match document(&file) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(Document::Observe(_)) => {}
        Ok(Document::Run(run)) => {
            let text = serde_json::to_string(&run).unwrap();
            let again: Run = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), text);
            for metric in metrics::all() {
                if let Ok(asked) = metrics::find(metric.name) {
                    let _ = asked.of(&run);
                }
            }
            let measured = Measurements::of([(String::new(), run)]);
            let _ = TableRequest::general().build(&measured);
        }
    }
}
