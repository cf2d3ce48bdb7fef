//! What the calling process needs to know of its host before it makes load there.

use std::fs;
use std::io;

use rustix::process::{Resource, getrlimit};
use wirecost_model::host::HostFacts;

use crate::cpu_list::parse_list;
use crate::environment::files::{field, kibibytes};
use crate::thread::allowed_cpus;

/// Facts of this host, for the process that asks.
///
/// # Errors
/// [`FactsError`] when the kernel does not give one of them.
pub fn read() -> Result<HostFacts, FactsError> {
    let uname = rustix::system::uname();
    let meminfo = text("/proc/meminfo")?;
    let memory = kibibytes(&meminfo, "MemTotal");
    let online = text("/sys/devices/system/cpu/online")?;
    Ok(HostFacts {
        hostname: uname.nodename().to_string_lossy().into_owned(),
        boot_id: text("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        // Only x86 gives its model a name here.
        cpu_model: field(&text("/proc/cpuinfo")?, "model name")
            .unwrap_or_else(|| "unknown".to_owned()),
        cpus: allowed_cpus().map_err(|source| FactsError::Affinity { source })?,
        machine_cpus: parse_list(&online)
            .map(|cpus| cpus.len() as u32)
            .ok_or(FactsError::Malformed { path: "/sys/devices/system/cpu/online" })?,
        memory_bytes: memory.ok_or(FactsError::Malformed { path: "/proc/meminfo" })?,
        // No limit is the largest one.
        descriptor_limit: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Why the facts of a host are not known.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    #[error("failed to read {path}")]
    Unreadable { path: &'static str, source: io::Error },
    #[error("failed to read {path}: it does not hold what the kernel writes there")]
    Malformed { path: &'static str },
    #[error("failed to read the CPUs that this process may run on")]
    Affinity { source: io::Error },
}

fn text(path: &'static str) -> Result<String, FactsError> {
    fs::read_to_string(path).map_err(|source| FactsError::Unreadable { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host() {
        let facts = read().unwrap();
        assert_eq!(facts.cpus, allowed_cpus().unwrap());
        assert!(facts.machine_cpus as usize >= facts.cpus.len());
        assert!(facts.memory_bytes > 1 << 20);
        assert_eq!(facts.boot_id.len(), 36);
        assert!(!facts.hostname.is_empty() && !facts.kernel.is_empty());
    }
}
