//! Rules of the packet filters: those of nftables by netlink, and those of the older iptables by
//! its socket options. Both are of the calling thread's network namespace, and take CAP_NET_ADMIN.

use std::collections::BTreeMap;
use std::io;

use rustix::net::netlink::NETFILTER;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use wirecost_model::environment::RuleTable;

use crate::netlink::{self, NLM_F_DUMP, NLM_F_REQUEST, Netlink};
use crate::raw_option::SocketOption;

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netfilter/nf_tables.h>; the
// subsystem is the high byte of a message's type.
const NFNL_SUBSYS_NFTABLES: u16 = 10 << 8;
const NFT_MSG_GETTABLE: u16 = NFNL_SUBSYS_NFTABLES | 1;
const NFT_MSG_GETRULE: u16 = NFNL_SUBSYS_NFTABLES | 7;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_RULE_TABLE: u16 = 1;
/// `struct nfgenmsg`: family, version, resource.
const NFGENMSG: usize = 4;

/// Tables of nftables with the number of their rules.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN; when the kernel has no nftables.
pub fn nftables() -> io::Result<Vec<RuleTable>> {
    // A list that changes while it is read is begun anew; one that never rests is an error.
    for _ in 0..10 {
        match nftables_once() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn nftables_once() -> io::Result<Vec<RuleTable>> {
    let netlink = Netlink::open(NETFILTER)?;
    let mut rules: BTreeMap<(String, String), u32> = BTreeMap::new();
    for (question, name, count) in
        [(NFT_MSG_GETTABLE, NFTA_TABLE_NAME, 0), (NFT_MSG_GETRULE, NFTA_RULE_TABLE, 1)]
    {
        // Family 0 asks for all.
        let request = netlink::message(question, NLM_F_REQUEST | NLM_F_DUMP, &[0; NFGENMSG]);
        netlink.ask(&request, |answer| {
            if let Some(table) = table_of(answer, name) {
                *rules.entry(table).or_default() += count;
            }
        })?;
    }
    let table = |((family, name), rules)| RuleTable { family, name, rules };
    Ok(rules.into_iter().map(table).collect())
}

pub(crate) fn table_of(body: &[u8], attribute: u16) -> Option<(String, String)> {
    let family = match body.first()? {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "unknown",
    };
    let name = netlink::attribute(body.get(NFGENMSG..)?, attribute)?;
    let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    Some((family.to_owned(), name))
}

/// Which of the older filters: for IPv4 or for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iptables {
    V4,
    V6,
}

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netfilter_ipv4/ip_tables.h>;
// numbers and the shape of both structures are those of ip6_tables.h too.
const SO_GET_INFO: libc::c_int = 64;
const SO_GET_ENTRIES: libc::c_int = 65;
const TABLE_NAME: usize = 32;
/// `struct ipt_getinfo`: name, hooks in use, a place for each of 5 hooks twice, entries, size.
const INFO: usize = TABLE_NAME + 4 + 2 * 5 * 4 + 4 + 4;
const INFO_HOOKS: usize = TABLE_NAME;
const INFO_SIZE: usize = INFO - 4;
/// `struct ipt_get_entries`: name, size; the entries begin at a multiple of 8.
const ENTRIES: usize = TABLE_NAME + 8;
/// `struct xt_entry_target`: size (2 bytes), name, revision.
const TARGET_NAME: std::ops::Range<usize> = 2..31;

impl Iptables {
    #[must_use]
    pub fn family(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// Rules of a table that the namespace has. Asking for one that it has not would make it.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `NotFound` when there is no such table.
    pub fn rules(self, table: &str) -> io::Result<u32> {
        let (family, protocol, level) = match self {
            Self::V4 => (AddressFamily::INET, ipproto::RAW, libc::SOL_IP),
            Self::V6 => (AddressFamily::INET6, ipproto::RAW, libc::SOL_IPV6),
        };
        let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?;
        if table.len() >= TABLE_NAME {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut info = vec![0; INFO];
        info[..table.len()].copy_from_slice(table.as_bytes());
        // SAFETY: a table's name, and numbers.
        let shape = unsafe { SocketOption::<[u8]>::new(level, SO_GET_INFO) };
        shape.read(&socket, &mut info[..])?;
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let hooks = netlink::u32_at(&info, INFO_HOOKS).ok_or_else(malformed)?.count_ones();
        let size = netlink::u32_at(&info, INFO_SIZE).ok_or_else(malformed)?;

        let mut entries = vec![0; ENTRIES + size as usize];
        entries[..table.len()].copy_from_slice(table.as_bytes());
        entries[TABLE_NAME..TABLE_NAME + 4].copy_from_slice(&size.to_ne_bytes());
        // SAFETY: name and size of the table, which the kernel compares with the length, and entries.
        let rules = unsafe { SocketOption::<[u8]>::new(level, SO_GET_ENTRIES) };
        rules.read(&socket, &mut entries[..])?;
        self.count(&entries[ENTRIES..], hooks).ok_or_else(malformed)
    }

    /// Where an entry says how far its target and the next entry are: after what it matches
    /// (`struct ipt_ip` of 84 bytes, `struct ip6t_ip6` of 136) and a word.
    fn offsets(self) -> usize {
        match self {
            Self::V4 => 84 + 4,
            Self::V6 => 136 + 4,
        }
    }

    /// Entries that somebody wrote: less the policy of each built-in chain, the head and the tail
    /// of each chain of a user (its head is a target `ERROR`), and the `ERROR` that ends the table.
    pub(crate) fn count(self, mut entries: &[u8], hooks: u32) -> Option<u32> {
        let (mut all, mut errors) = (0u32, 0u32);
        while !entries.is_empty() {
            let offset = |place: usize| -> Option<usize> {
                let bytes = entries.get(place..place + 2)?;
                Some(usize::from(u16::from_ne_bytes(bytes.try_into().ok()?)))
            };
            let (target, next) = (offset(self.offsets())?, offset(self.offsets() + 2)?);
            let name = entries.get(target..)?.get(TARGET_NAME)?;
            all += 1;
            errors += u32::from(name.starts_with(b"ERROR\0"));
            entries = entries.get(next.max(1)..)?;
        }
        all.checked_sub(hooks)?.checked_sub(errors)?.checked_sub(errors.saturating_sub(1))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::netlink::with_header;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    const NLM_F_CREATE: u16 = 0x400;
    const NLM_F_APPEND: u16 = 0x800;

    /// Adds table `inet wirecost` with a chain and rules that match everything and do nothing.
    pub(crate) fn add_rules(rules: usize) {
        const NAME: &[u8] = b"wirecost\0";
        const CHAIN: &[u8] = b"input\0";
        let generic = |family: u8| vec![family, 0, 0, 0];
        // A batch begins and ends with messages 16 and 17, which name the subsystem.
        let edge = |kind| netlink::message(kind, NLM_F_REQUEST, &[0, 0, 0, 10]);
        let new = |kind: u16, flags: u16, attributes: &[Vec<u8>]| {
            let body = [generic(1), attributes.concat()].concat();
            let kind = NFNL_SUBSYS_NFTABLES | kind;
            netlink::message(kind, NLM_F_REQUEST | NLM_F_CREATE | flags, &body)
        };
        let mut batch = vec![edge(16)];
        batch.push(new(0, 0, &[with_header(1, NAME)]));
        batch.push(new(3, 0, &[with_header(1, NAME), with_header(3, CHAIN)]));
        for number in 0..rules {
            // The last one asks for an acknowledgement: the answer to the batch.
            let last = if number + 1 == rules { netlink::NLM_F_ACK } else { 0 };
            let attributes = [with_header(1, NAME), with_header(2, CHAIN)];
            batch.push(new(6, NLM_F_APPEND | last, &attributes));
        }
        batch.push(edge(17));
        Netlink::open(NETFILTER).unwrap().ask(&batch.concat(), |_| {}).unwrap();
    }

    #[test]
    fn rules_of_the_namespace_are_counted() {
        if skip_without_namespaces("packet_filter::rules_of_the_namespace_are_counted") {
            return;
        }
        let name = format!("wirecost-test-{}-nft", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        namespace
            .run(|| {
                assert_eq!(nftables().unwrap(), []);
                add_rules(3);
                let table = |rules| RuleTable {
                    family: "inet".to_owned(),
                    name: "wirecost".to_owned(),
                    rules,
                };
                assert_eq!(nftables().unwrap(), [table(3)]);
                // More than fits into one datagram.
                add_rules(2000);
                assert_eq!(nftables().unwrap(), [table(2003)]);
            })
            .unwrap();
    }

    /// An entry of a table for IPv4 with this target.
    fn entry(target: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; 112 + 32];
        entry[88..90].copy_from_slice(&112u16.to_ne_bytes());
        entry[90..92].copy_from_slice(&144u16.to_ne_bytes());
        entry[114..114 + target.len()].copy_from_slice(target);
        entry
    }

    #[test]
    fn what_nobody_wrote_is_not_counted() {
        let (standard, error) = (entry(b""), entry(b"ERROR"));
        // Three chains with their policies, and the end.
        let empty = [&standard[..], &standard, &standard, &error].concat();
        assert_eq!(Iptables::V4.count(&empty, 3), Some(0));
        // A rule in one of them, and a user's chain with two rules.
        let user = [&error[..], &entry(b"DROP"), &entry(b"LOG"), &standard].concat();
        let rules = [&entry(b"user")[..], &standard, &standard, &standard, &user, &error].concat();
        assert_eq!(Iptables::V4.count(&rules, 3), Some(3));
        assert_eq!(Iptables::V4.count(&empty[..200], 3), None);
    }

    #[test]
    fn a_table_that_the_kernel_makes_is_empty() {
        if skip_without_namespaces("packet_filter::a_table_that_the_kernel_makes_is_empty") {
            return;
        }
        let name = format!("wirecost-test-{}-iptables", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        for version in [Iptables::V4, Iptables::V6] {
            match namespace.run(|| version.rules("filter")).unwrap() {
                Ok(rules) => assert_eq!(rules, 0),
                // Kernels without the older filters are getting common.
                Err(error) => {
                    assert!(matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::ENOENT)));
                }
            }
        }
    }
}
