//! What connection tracking (conntrack) of a network namespace counts, and how full its table is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::net::netlink::NETFILTER;

use crate::netlink::{self, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, Netlink, attribute};
use crate::sysctl;

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netfilter/nfnetlink_conntrack.h>; the
// subsystem is the high byte of a message's type.
const NFNL_SUBSYS_CTNETLINK: u16 = 1 << 8;
const IPCTNL_MSG_CT_GET_STATS_CPU: u16 = NFNL_SUBSYS_CTNETLINK | 4;
const IPCTNL_MSG_CT_GET_STATS: u16 = NFNL_SUBSYS_CTNETLINK | 5;
const CTA_STATS_INSERT_FAILED: u16 = 9;
const CTA_STATS_DROP: u16 = 10;
const CTA_STATS_EARLY_DROP: u16 = 11;
const CTA_STATS_CHAIN_TOOLONG: u16 = 15;
const CTA_STATS_GLOBAL_ENTRIES: u16 = 1;
/// `struct nfgenmsg`: family, version, resource.
const NFGENMSG: usize = 4;

/// How many connections a namespace may have. One number for the machine, which only its first network namespace may
/// change: <https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_conntrack_standalone.c>.
const LIMIT: &str = "net.netfilter.nf_conntrack_max";

/// Sums of all CPUs. Each CPU has 32 bits, so a difference of two sums is one of 32 bits too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConntrackCounters {
    /// Connections in the table now.
    pub entries: u32,
    /// Packets dropped: no room in the table, no memory, or a clash.
    pub drop: u32,
    /// New connections that could not be entered: clashes (also in `drop`), and chains that were too long (not in `drop`).
    pub insert_failed: u32,
    /// New connections whose chain of the hash table was too long; 0 before Linux 5.15, which has no such limit:
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_conntrack_core.c>, `__nf_conntrack_confirm`.
    pub chain_too_long: u32,
    /// Connections evicted from a full table.
    pub early_drop: u32,
}

/// Reads one network namespace.
#[derive(Debug)]
pub struct Conntrack(Source);

#[derive(Debug)]
enum Source {
    /// `nf_conntrack` of a kernel with CONFIG_NF_CONNTRACK_PROCFS.
    File(PathBuf),
    /// Of one without; takes CAP_NET_ADMIN.
    Netlink(Netlink),
}

impl Conntrack {
    /// Of the calling thread's network namespace, which is that of the process whose directory in /proc this is. `None`
    /// where connection tracking is not loaded: it is not loaded to be asked.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn open(process: &Path) -> io::Result<Option<Self>> {
        let file = process.join("net/stat/nf_conntrack");
        match fs::metadata(&file) {
            Ok(_) => return Ok(Some(Self(Source::File(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match limit() {
            None => Ok(None),
            Some(_) => Ok(Some(Self(Source::Netlink(Netlink::open(NETFILTER)?)))),
        }
    }

    /// # Errors
    /// The kernel's own; `PermissionDenied` without CAP_NET_ADMIN where only netlink tells it.
    pub fn read(&self) -> io::Result<ConntrackCounters> {
        match &self.0 {
            Source::File(file) => parse(&fs::read_to_string(file)?).ok_or_else(unreadable),
            Source::Netlink(netlink) => by_netlink(netlink),
        }
    }
}

/// How many connections each network namespace may have; `None` where it cannot be read.
#[must_use]
pub fn limit() -> Option<u32> {
    sysctl::read(LIMIT).ok()?.parse().ok()
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "nf_conntrack lacks its columns")
}

/// Names of columns, then a line of hexadecimal numbers for each CPU. Columns came and went over time; the number of
/// entries is that of the namespace in each line:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_conntrack_standalone.c#L400>.
fn parse(text: &str) -> Option<ConntrackCounters> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let place = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (entries, drop) = (place("entries")?, place("drop")?);
    let (insert_failed, early_drop) = (place("insert_failed")?, place("early_drop")?);
    // Since Linux 5.15.
    let chain_too_long = place("chainlength");
    let mut sum = ConntrackCounters::default();
    for line in lines {
        let numbers: Vec<u32> = line
            .split_ascii_whitespace()
            .map(|number| u32::from_str_radix(number, 16).ok())
            .collect::<Option<_>>()?;
        let of_cpu = ConntrackCounters {
            entries: *numbers.get(entries)?,
            drop: *numbers.get(drop)?,
            insert_failed: *numbers.get(insert_failed)?,
            chain_too_long: match chain_too_long {
                Some(place) => *numbers.get(place)?,
                None => 0,
            },
            early_drop: *numbers.get(early_drop)?,
        };
        sum.add(of_cpu);
        sum.entries = of_cpu.entries;
    }
    Some(sum)
}

fn by_netlink(netlink: &Netlink) -> io::Result<ConntrackCounters> {
    let mut sum = ConntrackCounters::default();
    let each_cpu =
        netlink::message(IPCTNL_MSG_CT_GET_STATS_CPU, NLM_F_REQUEST | NLM_F_DUMP, &[0; NFGENMSG]);
    netlink.ask(&each_cpu, |answer| sum.add(of_cpu(answer)))?;
    // The answer says that more will come, and nothing does but what acknowledges it (`ctnetlink_stat_ct_fill_info` in
    // <https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_conntrack_netlink.c>).
    let all = netlink::message(IPCTNL_MSG_CT_GET_STATS, NLM_F_REQUEST | NLM_F_ACK, &[0; NFGENMSG]);
    netlink.ask(&all, |answer| sum.entries = number(answer, CTA_STATS_GLOBAL_ENTRIES))?;
    Ok(sum)
}

fn of_cpu(answer: &[u8]) -> ConntrackCounters {
    ConntrackCounters {
        entries: 0,
        drop: number(answer, CTA_STATS_DROP),
        insert_failed: number(answer, CTA_STATS_INSERT_FAILED),
        chain_too_long: number(answer, CTA_STATS_CHAIN_TOOLONG),
        early_drop: number(answer, CTA_STATS_EARLY_DROP),
    }
}

/// In the order of bytes on the wire, as all numbers of netfilter's netlink.
fn number(answer: &[u8], kind: u16) -> u32 {
    let bytes = answer.get(NFGENMSG..).and_then(|attributes| attribute(attributes, kind));
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

impl ConntrackCounters {
    fn add(&mut self, other: Self) {
        self.drop = self.drop.wrapping_add(other.drop);
        self.insert_failed = self.insert_failed.wrapping_add(other.insert_failed);
        self.chain_too_long = self.chain_too_long.wrapping_add(other.chain_too_long);
        self.early_drop = self.early_drop.wrapping_add(other.early_drop);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::link::Links;
    use crate::netlink::with_header;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::{skip, skip_without_namespaces};
    use crate::spawn::enter_on_spawn;

    #[test]
    fn columns_are_found_by_their_names() {
        // 6.18: 17 columns; the second CPU's counter has wrapped.
        let new = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n\
                   0000002a  00000001 00000002 00000003 00000004 00000005 00000006 00000007 00000008 00000009 0000000a 0000000b 0000000c  0000000d 0000000e 0000000f 00000010\n\
                   0000002a  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000010 ffffffff 00000100 00000000  00000000 00000000 00000000 00000000\n";
        let expected = ConntrackCounters {
            entries: 42,
            drop: 9,
            insert_failed: 0x19,
            chain_too_long: 7,
            early_drop: 0x10b,
        };
        assert_eq!(parse(new), Some(expected));
        // 4.19 begins with other columns.
        let old = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n\
                   00000001  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000002 00000003 00000004 00000000  00000000 00000000 00000000 00000000\n";
        let expected = ConntrackCounters {
            entries: 1,
            drop: 3,
            insert_failed: 2,
            chain_too_long: 0,
            early_drop: 4,
        };
        assert_eq!(parse(old), Some(expected));
        assert_eq!(parse("entries drop\n00000001 00000002\n"), None);
        assert_eq!(parse("entries drop insert_failed early_drop\n1 2 3\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn numbers_of_netlink_are_in_the_order_of_the_wire() {
        let value = |kind, value: u32| with_header(kind, &value.to_be_bytes());
        let answer = [
            vec![2, 0, 0, 1],
            value(CTA_STATS_INSERT_FAILED, 7),
            value(CTA_STATS_DROP, 300),
            value(CTA_STATS_EARLY_DROP, 70_000),
            value(CTA_STATS_CHAIN_TOOLONG, 5),
        ]
        .concat();
        let expected = ConntrackCounters {
            entries: 0,
            drop: 300,
            insert_failed: 7,
            chain_too_long: 5,
            early_drop: 70_000,
        };
        assert_eq!(of_cpu(&answer), expected);
        assert_eq!(of_cpu(&[0]), ConntrackCounters::default());
    }

    /// Connections over loopback whose source port NAT sets to the same one: only the first finds it free.
    const RULES: &str = "table ip wirecost {\nchain postrouting {\ntype nat hook postrouting \
                         priority 100; policy accept;\nudp dport 9 snat to 127.0.0.1:2000\n}\n}\n";

    #[test]
    fn the_file_and_netlink_agree_on_clashes_of_nat() {
        const NAME: &str = "conntrack::the_file_and_netlink_agree_on_clashes_of_nat";
        if skip_without_namespaces(NAME) {
            return;
        }
        if Command::new("nft").arg("--version").output().is_err() {
            return skip(NAME, "needs nft");
        }
        let name = format!("wirecost-test-{}-conntrack", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped());
        enter_on_spawn(&mut command, &namespace).unwrap();
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(RULES.as_bytes()).unwrap();
        if !child.wait().unwrap().success() {
            return skip(NAME, "needs NAT by nftables");
        }
        Links::of(&namespace).unwrap().up("lo").unwrap();
        namespace
            .run(|| {
                let process = Path::new("/proc/thread-self");
                let tracking = Conntrack::open(process).unwrap().unwrap();
                let netlink = Netlink::open(NETFILTER).unwrap();
                assert!(limit().is_some_and(|limit| limit > 0));
                for _ in 0..8 {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    // The packet filter's verdict is the call's error.
                    let _ = socket.send_to(&[7], "127.0.0.1:9");
                }
                let told = by_netlink(&netlink).unwrap();
                assert_eq!((told.drop, told.insert_failed, told.entries), (7, 7, 1), "{told:?}");
                assert_eq!(tracking.read().unwrap(), told);
            })
            .unwrap();
    }
}
