//! What the calling process needs to know of its host before it makes load there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Resource, getrlimit};
use wirecost_model::host::HostFacts;

use crate::cgroup;
use crate::cpu_list::parse_list;
use crate::environment::devices;
use crate::environment::files::{field, kibibytes};
use crate::thread::allowed_cpus;

/// Name of this host, as `uname -n` prints it.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

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
        hostname: hostname(),
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
        link_bits_per_second: devices::link_rate(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Number of this process' network namespace. `None` where /proc does not tell.
#[must_use]
pub fn network_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/net").ok().map(|file| file.ino())
}

/// Bytes of memory that this process can have without swapping: what the kernel estimates for all programs
/// (MemAvailable, proc_meminfo(5)), or what its control group leaves it, if that is less; `None` where
/// /proc/meminfo does not tell.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let of_machine = kibibytes(&text("/proc/meminfo").ok()?, "MemAvailable")?;
    Some(cgroup::available_memory().map_or(of_machine, |of_group| of_group.min(of_machine)))
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
    use crate::link::Links;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn the_rate_of_a_link_is_known_where_it_is_announced() {
        if skip_without_namespaces("facts::the_rate_of_a_link_is_known_where_it_is_announced") {
            return;
        }
        let name = format!("wirecost-test-{}-facts", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let rate = || namespace.run(|| read().unwrap().link_bits_per_second).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("one", "two", &namespace).unwrap();
        links.up("one").unwrap();
        links.up("two").unwrap();
        assert_eq!(rate(), None);
        links.announce_rate("one", 1_000_000_000).unwrap();
        assert_eq!(rate(), Some(1_000_000_000));
        links.announce_rate("two", 2_000_000_000).unwrap();
        assert_eq!(rate(), None, "there are two");
    }

    #[test]
    fn this_host() {
        let facts = read().unwrap();
        assert_eq!(facts.cpus, allowed_cpus().unwrap());
        assert!(facts.machine_cpus as usize >= facts.cpus.len());
        assert!(facts.memory_bytes > 1 << 20);
        let available = available_memory().unwrap();
        assert!(available > 1 << 20 && available < facts.memory_bytes, "{available}");
        assert_eq!(facts.boot_id.len(), 36);
        assert!(!facts.hostname.is_empty() && !facts.kernel.is_empty());
    }
}
