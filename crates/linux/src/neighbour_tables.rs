//! The neighbour tables of the kernel: `arp_cache` for IPv4, `ndisc_cache` for IPv6. The machine has one of each, for all
//! network namespaces: <https://elixir.bootlin.com/linux/v6.12/source/net/core/neighbour.c>.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::generic_netlink::u32_of;
use crate::netlink::{NLM_F_DUMP, NLM_F_REQUEST, Netlink, attribute, message, u32_at};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/neighbour.h>
const RTM_GETNEIGHTBL: u16 = 66;
/// Of `struct ndtmsg`.
const NDTMSG: usize = 4;
const NDTA_NAME: u16 = 1;
const NDTA_THRESH3: u16 = 4;
const NDTA_CONFIG: u16 = 5;
const NDTA_STATS: u16 = 7;
/// Where `ndtc_entries` is in `struct ndt_config`.
const ENTRIES: usize = 4;
/// Where `ndts_table_fulls` is in `struct ndt_stats`.
const TABLE_FULLS: usize = 10 * 8;

/// Counters since boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NeighbourTable {
    /// Neighbours in the table now.
    pub entries: u32,
    /// How many may be in it (`gc_thresh3`), without permanent ones.
    pub limit: u32,
    /// Times that a new neighbour found no room.
    pub table_fulls: u64,
    /// Packets that were pushed out of the queue for a neighbour whose address is not known yet. Netlink does not tell it,
    /// and the files that do are in the first network namespace only: `None` where they cannot be reached.
    pub unresolved_discards: Option<u64>,
}

/// Tables by name.
///
/// # Errors
/// The kernel's own.
pub fn read() -> io::Result<BTreeMap<String, NeighbourTable>> {
    let mut tables = BTreeMap::new();
    let request = message(RTM_GETNEIGHTBL, NLM_F_REQUEST | NLM_F_DUMP, &[0; NDTMSG]);
    Netlink::route()?.ask(&request, |answer| tables.extend(parse(answer)))?;
    for (name, table) in &mut tables {
        // Process 1 is in the first namespace unless it is that of a container.
        table.unresolved_discards = ["thread-self", "1"].iter().find_map(|process| {
            let file = Path::new("/proc").join(process).join("net/stat").join(name);
            discards(&fs::read_to_string(file).ok()?)
        });
    }
    Ok(tables)
}

/// Besides each table, the answer has the parameters of each device, without counters.
fn parse(answer: &[u8]) -> Option<(String, NeighbourTable)> {
    let attributes = answer.get(NDTMSG..)?;
    let statistics = attribute(attributes, NDTA_STATS)?;
    let name = attribute(attributes, NDTA_NAME)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let fulls = statistics.get(TABLE_FULLS..TABLE_FULLS + 8)?.try_into().ok()?;
    let table = NeighbourTable {
        entries: u32_at(attribute(attributes, NDTA_CONFIG)?, ENTRIES)?,
        limit: u32_of(attributes, NDTA_THRESH3)?,
        table_fulls: u64::from_ne_bytes(fulls),
        unresolved_discards: None,
    };
    Some((String::from_utf8_lossy(name).into_owned(), table))
}

/// Names of columns, then a line of hexadecimal numbers for each CPU.
fn discards(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let mut names = lines.next()?.split_ascii_whitespace();
    let place = names.position(|name| name == "unresolved_discards")?;
    lines.map(|line| u64::from_str_radix(line.split_ascii_whitespace().nth(place)?, 16).ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::with_header;

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        let mut statistics = vec![0; 11 * 8];
        statistics[TABLE_FULLS..].copy_from_slice(&70_000_000_000u64.to_ne_bytes());
        let mut config = vec![0; 32];
        config[4..8].copy_from_slice(&1023u32.to_ne_bytes());
        let with = |attributes: &[Vec<u8>]| [vec![2, 0, 0, 0], attributes.concat()].concat();
        let name = with_header(NDTA_NAME, b"arp_cache\0");
        let answer = with(&[
            name.clone(),
            with_header(NDTA_THRESH3, &1024u32.to_ne_bytes()),
            with_header(NDTA_CONFIG, &config),
            with_header(NDTA_STATS, &statistics),
        ]);
        let expected = NeighbourTable {
            entries: 1023,
            limit: 1024,
            table_fulls: 70_000_000_000,
            unresolved_discards: None,
        };
        assert_eq!(parse(&answer), Some(("arp_cache".to_owned(), expected)));
        // The parameters of a device.
        assert_eq!(parse(&with(&[name])), None);
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn discards_of_all_cpus_are_added_up() {
        // 6.18
        let text = "entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls\n\
                    00000002 000003a9 000003a6 00000000   000014c9 00000276 00000005   00000000         00000000         00000000         00000000       00000024            00000001\n\
                    00000002 00000471 00000472 00000002   0000158d 000000a1 00000003   00000000         00000000         0000077f         00000000       00000100            00000000\n";
        assert_eq!(discards(text), Some(0x124));
        assert_eq!(discards("entries allocs\n1 2\n"), None);
        assert_eq!(discards(""), None);
    }

    #[test]
    fn this_kernel_has_a_table_for_ipv4() {
        let tables = read().unwrap();
        let table = &tables["arp_cache"];
        assert!(table.limit > 0, "{table:?}");
    }
}
