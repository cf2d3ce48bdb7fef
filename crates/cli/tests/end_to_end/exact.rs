//! A profile that moves exact bytes of known content, and what must hold of its run.

use crate::document::Document;

/// Of each of two strands: so many transactions, which move so much each way.
pub(crate) const TIMES: u64 = 60;
pub(crate) const REQUEST: u64 = 100_000;
pub(crate) const RESPONSE: u64 = 300;

/// A profile whose bytes are known, and compared with what was sent.
pub(crate) fn exact(open: &str) -> String {
    format!(
        "<profile name=\"exact\"><group nthreads=\"2\">\n\
         <transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h {open}\"/></transaction>\n\
         <transaction iterations=\"{TIMES}\">\n\
         <flowop type=\"write\" options=\"size={REQUEST} verify\"/>\n\
         <flowop type=\"read\" options=\"size={RESPONSE} verify\"/></transaction>\n\
         <transaction iterations=\"1\"><flowop type=\"disconnect\"/></transaction>\n\
         </group></profile>\n"
    )
}

#[track_caller]
pub(crate) fn is_exact(document: &Document) {
    assert_eq!(document.text("/status"), "ok", "{}", document.text("/error"));
    let moved = (document.sum("/phases", "tx_bytes"), document.sum("/phases", "rx_bytes"));
    assert_eq!(moved, ((2 * TIMES * REQUEST) as f64, (2 * TIMES * RESPONSE) as f64));
    assert!(document.number("/phases/1/bits_per_second") > 0.0);
}

/// Exact, by the engine that was asked for. Of a ring that cannot move the protocol's bytes each host
/// says so; none says that it had no ring.
#[track_caller]
pub(crate) fn is_exact_by(document: &Document, engine: &str, protocol: &str) {
    is_exact(document);
    let warnings = document.list("/warnings").iter().filter(|w| w["code"] == "fallback");
    let told: Vec<_> = warnings.filter_map(|w| w["message"].as_str()).collect();
    let beside = engine.starts_with("io_uring") && !["tcp", "vsock"].contains(&protocol);
    assert_eq!(told.len(), if beside { 2 } else { 0 }, "{engine}: {told:?}");
    let said = format!("used a system call for each read and write of {protocol} instead of");
    assert!(told.iter().all(|text| text.contains(&said)), "{told:?}");
}

#[track_caller]
pub(crate) fn setting(document: &Document, name: &str) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let settings = document.list("/settings").iter().filter(|setting| setting["name"] == name);
    settings.map(|setting| (text(&setting["host"]), text(&setting["granted"]))).collect()
}
