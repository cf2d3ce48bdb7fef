//! What ciphers cost, of profiles that encrypt: the layer `crypto` of the sampled functions.

use wirecost_model::observe::{CRYPTO, ProbeStatus};
use wirecost_model::run::{Crypto, CryptoShare, Run};

/// Of a document whose probes have told what they saw and whose costs are spread over it.
pub(crate) fn of(run: &Run) -> Crypto {
    let seen = run.observe.iter().flat_map(|observe| &observe.hosts);
    let shares: Vec<CryptoShare> = seen
        .filter_map(|seen| {
            let layer = seen.functions.as_ref()?.layer(CRYPTO)?;
            Some(CryptoShare {
                hosts: seen.covers.clone(),
                share: layer.share,
                interval: layer.interval,
                cycles_per_kbyte: layer.cycles_per_kbyte,
            })
        })
        .collect();
    let reason = shares.is_empty().then(|| reason(run));
    Crypto { shares, reason }
}

fn reason(run: &Run) -> String {
    let mut reports = run.observe.iter().flat_map(|observe| &observe.probes);
    match reports.find(|report| report.name == "functions") {
        Some(report) if report.status == ProbeStatus::No => {
            let why = report.reason.as_deref().unwrap_or("it gave no reason");
            format!("probe functions did not run: {why}")
        }
        Some(_) => "no busy CPU was sampled".to_owned(),
        None => "probe functions did not run: use --observe standard".to_owned(),
    }
}
