//! The document of a host that was observed without a load of ours.

use wirecost_model::observe::{Basis, ObserveDocument, ObserverReport};
use wirecost_model::warning::Entry;

use crate::cpu;
use crate::hardware;

/// Fills in what was seen, and what it cost: over the bytes of the one device that was named, else
/// over nothing.
pub fn watched(document: &mut ObserveDocument, observation: ObserverReport, device: Option<&str>) {
    document.probes = observation.probes;
    document.hosts = observation.parts;
    let Some(host) = document.hosts.first() else {
        document.cycles_reason = Some("nothing was observed".to_owned());
        return;
    };
    document.seconds = Some(host.seconds);
    document.warnings.extend(hardware::changes(&host.host, host).iter().map(Entry::from));
    let used = cpu::observed(host, None, host.seconds);
    let bytes = match device {
        None => Err("no device for bytes: choose one with --dev".to_owned()),
        Some(name) => document
            .devices
            .iter()
            .find(|device| device.device == name)
            .map(|device| device.rx_bytes + device.tx_bytes)
            .ok_or_else(|| format!("the counters of {name} were not read")),
    };
    match bytes.and_then(|bytes| cpu::cycles_per_kbyte(used.as_ref(), bytes)) {
        Ok(cycles) => {
            document.cycles_per_kbyte = Some(cycles);
            document.basis = Some(Basis::Device);
            document.cycles_source = used.as_ref().map(|used| used.cycles_source().to_owned());
        }
        Err(reason) => document.cycles_reason = Some(reason),
    }
    let cost = document.cycles_per_kbyte;
    if let Some(host) = document.hosts.first_mut() {
        host.divide_cost(cost);
    }
    document.cpu_source = used.as_ref().map(|used| used.source.clone());
    document.cpu = used.map(|used| used.split);
}
