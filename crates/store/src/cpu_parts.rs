//! What CPUs did over time in a file of its own, `cpu_parts.json`, by host. Only the page of a run wants it: whoever reads
//! a thousand runs does not read theirs.

use std::collections::BTreeMap;

use wirecost_model::observe::{CpuSamples, HostObservation};

/// Takes it out of what was observed; empty where there is none.
pub(crate) fn take(hosts: &mut [HostObservation]) -> BTreeMap<String, CpuSamples> {
    let each = hosts.iter_mut().filter_map(|host| {
        let samples = host.cpu.as_mut()?.samples.take()?;
        Some((host.host.clone(), samples))
    });
    each.collect()
}

/// Puts it back.
///
/// # Errors
/// Why the text is not that of these hosts.
pub(crate) fn put_back(hosts: &mut [HostObservation], text: &[u8]) -> Result<(), String> {
    let all: BTreeMap<String, CpuSamples> =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    for (name, samples) in all {
        let found = hosts.iter_mut().find(|host| host.host == name);
        let Some(cpu) = found.and_then(|host| host.cpu.as_mut()) else {
            return Err(format!("the CPU time of {name} was not read in this run"));
        };
        if !(samples.seconds.is_finite() && samples.seconds > 0.0) {
            return Err(format!("its parts of {name} have no length"));
        }
        cpu.samples = Some(samples);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{CpuSection, SampledCpu};

    use super::*;

    #[test]
    fn samples_are_restored_to_their_hosts_and_no_others() {
        let sampled = SampledCpu { cpu: 1, busy_us: vec![Some(3), None], ..SampledCpu::default() };
        let samples = CpuSamples { seconds: 0.01, cpus: vec![sampled] };
        let host = |name: &str, samples| HostObservation {
            host: name.to_owned(),
            cpu: Some(CpuSection { samples, ..CpuSection::default() }),
            ..HostObservation::default()
        };
        let full = [host("h1", Some(samples)), host("h2", None)];
        let mut hosts = full.clone();
        let taken = serde_json::to_vec(&take(&mut hosts)).unwrap();
        assert_eq!(hosts, [host("h1", None), host("h2", None)]);
        put_back(&mut hosts, &taken).unwrap();
        assert_eq!(hosts, full);
        let refused = put_back(&mut [host("h3", None)], &taken).unwrap_err();
        assert!(refused.contains("h1"), "{refused}");
        assert!(put_back(&mut hosts, br#"{"h1":{"seconds":0,"cpus":[]}}"#).is_err());
    }
}
