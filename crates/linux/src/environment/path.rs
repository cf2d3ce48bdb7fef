//! What packets meet beside the devices: filters, IPsec, the queues before the protocols.

use wirecost_model::environment::{Backlog, Ipsec, Path, RuleTable};

use super::files::Files;
use crate::ipsec::ipsec;
use crate::packet_filter::{Iptables, nftables};

/// Files below belong to the namespace of the thread, `/proc/net` to that of the first thread.
const NET: &str = "proc/thread-self/net";

pub(super) fn read(files: &Files<'_>) -> Path {
    Path {
        nftables: match is_absent(files, "nf_tables") {
            true => Some(Vec::new()),
            false => nftables().ok(),
        },
        iptables: iptables(files),
        ipsec: match is_absent(files, "xfrm_user") && is_absent(files, "af_key") {
            true => Some(Ipsec { policies: 0, associations: 0 }),
            false => ipsec().ok(),
        },
        backlog: files.text(&format!("{NET}/softnet_stat")).as_deref().and_then(backlog),
    }
}

/// Whether a part of the kernel is a module that is not loaded: asking it would load it.
fn is_absent(files: &Files<'_>, module: &str) -> bool {
    let Some(release) = files.text("proc/sys/kernel/osrelease") else { return false };
    let loaded = files.text("proc/modules");
    let modules = files.text(&format!("lib/modules/{release}/modules.dep"));
    let (Some(loaded), Some(modules)) = (loaded, modules) else { return false };
    let is_loaded = loaded.lines().any(|line| line.split(' ').next() == Some(module));
    let is_module = modules.lines().any(|line| {
        let file = line.split(':').next().unwrap_or_default();
        let name = file.rsplit('/').next().unwrap_or_default();
        // Compressed ones end with .ko.xz and the like.
        name.split('.').next().is_some_and(|name| name.replace('-', "_") == module)
    });
    is_module && !is_loaded
}

/// Only tables that the namespace has are asked about, as asking makes them.
fn iptables(files: &Files<'_>) -> Option<Vec<RuleTable>> {
    let mut tables = Vec::new();
    for (version, file) in [(Iptables::V4, "ip_tables_names"), (Iptables::V6, "ip6_tables_names")] {
        let path = format!("{NET}/{file}");
        // Kernels without the older filters have no such file.
        if !files.exists(&path) {
            files.names(NET)?;
            continue;
        }
        for name in files.text(&path)?.lines() {
            let rules = version.rules(name).ok()?;
            tables.push(RuleTable {
                family: version.family().to_owned(),
                name: name.to_owned(),
                rules,
            });
        }
    }
    Some(tables)
}

/// Columns of a line a CPU, hexadecimal:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/net-procfs.c#L143>.
fn backlog(text: &str) -> Option<Backlog> {
    let mut sum = Backlog { processed: 0, dropped: 0, squeezed: 0 };
    for line in text.lines() {
        let mut columns = line.split_ascii_whitespace();
        let mut next = || u64::from_str_radix(columns.next()?, 16).ok();
        sum.processed += next()?;
        sum.dropped += next()?;
        sum.squeezed += next()?;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::fixture;

    #[test]
    fn the_queues_of_all_cpus_are_added() {
        let text = "0000000a 00000001 00000002 0 0\n00000010 00000000 00000001 0 0\n";
        let sum = Backlog { processed: 26, dropped: 1, squeezed: 3 };
        assert_eq!(backlog(text), Some(sum));
        assert_eq!(backlog(""), None);
        assert_eq!(backlog("a b\n"), None);
    }

    #[test]
    fn a_module_that_is_not_loaded_is_not_asked() {
        let root = fixture(&[
            ("proc/sys/kernel/osrelease", "6.1\n"),
            ("proc/modules", "nf_tables 303104 0 - Live 0x0\n"),
            (
                "lib/modules/6.1/modules.dep",
                "kernel/net/netfilter/nf_tables.ko: kernel/x.ko\nkernel/net/xfrm/xfrm_user.ko.xz:\n",
            ),
        ]);
        let files = Files { root: root.path() };
        assert!(!is_absent(&files, "nf_tables"));
        assert!(is_absent(&files, "xfrm_user"));
        // It is built in, or there is none: to ask loads nothing.
        assert!(!is_absent(&files, "af_key"));
    }

    #[test]
    fn a_kernel_without_the_older_filters_has_no_tables() {
        let root = fixture(&[("proc/thread-self/net/dev", "")]);
        assert_eq!(iptables(&Files { root: root.path() }), Some(vec![]));
        let root = fixture(&[]);
        assert_eq!(iptables(&Files { root: root.path() }), None);
    }
}
