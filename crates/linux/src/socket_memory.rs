//! Memory of sockets and how many there are: /proc/net/sockstat, sockstat6 and protocols, the
//! limits of TCP, and the caches of /proc/slabinfo. What the kernel counts in pages is bytes here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::iter::successors;
use std::path::Path;

use crate::{netns, process, sysctl};

/// What `sockstat` and `sockstat6` of a namespace tell, by protocol and name, as `TCP.inuse` and
/// `TCP6.inuse`.
///
/// `inuse`, `used`, `tw` and what FRAG counts are of the namespace; `orphan`, `alloc` and `mem` are
/// of the whole kernel: `sockstat_seq_show` in
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/proc.c>.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sockstat(BTreeMap<String, u64>);

impl Sockstat {
    /// Of the namespace of a process, by its directory in /proc.
    ///
    /// # Errors
    /// When the process has gone, or is not ours to look at.
    pub fn of(process: &Path) -> io::Result<Self> {
        let mut values = BTreeMap::new();
        parse_sockstat(&fs::read_to_string(process.join("net/sockstat"))?, &mut values);
        match fs::read_to_string(process.join("net/sockstat6")) {
            Ok(text) => parse_sockstat(&text, &mut values),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Self(values))
    }

    /// None where this kernel does not tell.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of these together, without those that this kernel does not tell.
    #[must_use]
    pub fn sum(&self, names: &[&str]) -> Option<u64> {
        names.iter().filter_map(|name| self.get(name)).reduce(|sum, value| sum + value)
    }

    /// Memory of a protocol (`TCP`, `UDP`), of which the kernel tells the pages.
    #[must_use]
    pub fn bytes(&self, protocol: &str) -> Option<u64> {
        Some(self.get(&format!("{protocol}.mem"))?.saturating_mul(page_bytes()))
    }
}

/// Lines of a name, a colon, and pairs of a name and a number.
fn parse_sockstat(text: &str, values: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let Some((protocol, pairs)) = line.split_once(':') else { continue };
        let words: Vec<&str> = pairs.split_ascii_whitespace().collect();
        for pair in words.chunks_exact(2) {
            if let Ok(value) = pair[1].parse() {
                values.insert(format!("{protocol}.{}", pair[0]), value);
            }
        }
    }
}

/// Whether TCP is under memory pressure: the column `press` of `/proc/net/protocols`, which is of
/// the whole kernel (`proto_seq_printf` in
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c>). None where it does not tell.
#[must_use]
pub fn tcp_under_pressure(process: &Path) -> Option<bool> {
    parse_pressure(&fs::read_to_string(process.join("net/protocols")).ok()?)
}

fn parse_pressure(text: &str) -> Option<bool> {
    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some("TCP"))?;
    match line.split_ascii_whitespace().nth(4)? {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// The three thresholds of `net.ipv4.tcp_mem`.
///
/// # Errors
/// When it cannot be read, as from another network namespace without CAP_SYS_ADMIN.
pub fn tcp_limits() -> io::Result<[u64; 3]> {
    let text = of_the_kernel("net.ipv4.tcp_mem")?;
    let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    let limits: [u64; 3] = numbers.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(limits.map(|pages| pages.saturating_mul(page_bytes())))
}

/// How much each CPU keeps of a protocol's account to itself before it is in `mem`, in either
/// direction: `sk_memory_allocated_add` in
/// <https://elixir.bootlin.com/linux/v6.12/source/include/net/sock.h>. Since Linux 6.0; a setting
/// since
/// 6.7.
///
/// # Errors
/// When it cannot be read, or is no setting of this kernel.
pub fn reserve_of_each_cpu() -> io::Result<u64> {
    let pages: u64 = of_the_kernel("net.core.mem_pcpu_rsv")?
        .parse()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(pages.saturating_mul(page_bytes()))
}

/// A setting of the whole kernel below `net`, which only its first network namespace shows.
fn of_the_kernel(name: &str) -> io::Result<String> {
    match sysctl::read(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            netns::run_in(namespace_of_an_ancestor()?, || sysctl::read(name))?
        }
        known => known,
    }
}

/// The network namespace of process 1, or of the oldest ancestor whose namespace may be opened: a
/// sandbox can deny access to process 1, and a host of a lab is started from outside its namespace.
fn namespace_of_an_ancestor() -> io::Result<File> {
    let own = std::process::id();
    let ancestors: Vec<u32> = successors(Some(own), |pid| process::parent_of(*pid)).collect();
    let mut oldest_first = ancestors.into_iter().rev().filter(|pid| *pid > 0);
    let open = |pid| File::open(format!("/proc/{pid}/ns/net")).ok();
    oldest_first.find_map(open).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// One cache of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    pub name: String,
    pub object_bytes: u64,
    /// Objects in use.
    pub objects: u64,
    /// Memory of its pages.
    pub bytes: u64,
}

/// Caches of sockets and of the headers of packets. One that the kernel has merged with another of
/// the same size (`slab_nomerge`) has no line of its own.
const CACHES: [&str; 14] = [
    "TCP",
    "TCPv6",
    "UDP",
    "UDPv6",
    "MPTCP",
    "MPTCPv6",
    "tw_sock_TCP",
    "tw_sock_TCPv6",
    "request_sock_TCP",
    "request_sock_TCPv6",
    "skbuff_head_cache",
    "skbuff_fclone_cache",
    "skbuff_small_head",
    "skbuff_ext_cache",
];

/// The caches of sockets.
///
/// # Errors
/// When /proc/slabinfo cannot be read: it is root's.
pub fn slabs() -> io::Result<Vec<Slab>> {
    Ok(parse_slabs(&fs::read_to_string("/proc/slabinfo")?))
}

/// Columns: name, active_objs, num_objs, objsize, objperslab, pagesperslab; then, behind a second
/// colon, active_slabs and num_slabs: `print_slabinfo_header` in
/// <https://elixir.bootlin.com/linux/v6.12/source/mm/slab_common.c>.
fn parse_slabs(text: &str) -> Vec<Slab> {
    let parse = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let name = columns.next().filter(|name| CACHES.contains(name))?;
        let numbers: Vec<u64> = columns.map_while(|column| column.parse().ok()).collect();
        let (_, slabs) = line.split_once("slabdata")?;
        let slabs: u64 = slabs.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let pages = slabs.saturating_mul(*numbers.get(4)?);
        Some(Slab {
            name: name.to_owned(),
            object_bytes: *numbers.get(2)?,
            objects: *numbers.first()?,
            bytes: pages.saturating_mul(page_bytes()),
        })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKSTAT: &str = "sockets: used 39\nTCP: inuse 3 orphan 1 tw 2 alloc 6 mem 116\n\
        UDP: inuse 1 mem 7\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 1 memory 4352\n";
    const SOCKSTAT6: &str = "TCP6: inuse 4\nUDP6: inuse 0\nUDPLITE6: inuse 0\nRAW6: inuse 0\n\
        FRAG6: inuse 0 memory 0\n";

    #[test]
    fn memory_is_in_bytes_and_families_are_added() {
        let mut values = BTreeMap::new();
        parse_sockstat(SOCKSTAT, &mut values);
        parse_sockstat(SOCKSTAT6, &mut values);
        let sockstat = Sockstat(values);
        assert_eq!(sockstat.get("sockets.used"), Some(39));
        assert_eq!(sockstat.sum(&["TCP.inuse", "TCP6.inuse"]), Some(7));
        assert_eq!(sockstat.sum(&["SCTP.inuse"]), None);
        assert_eq!(sockstat.bytes("TCP"), Some(116 * page_bytes()));
        assert_eq!(sockstat.bytes("UDPLITE"), None);
        // Bytes already.
        assert_eq!(sockstat.sum(&["FRAG.memory", "FRAG6.memory"]), Some(4352));
    }

    #[test]
    fn pressure_is_that_of_tcp_and_not_of_another() {
        let protocols = |press: &str| {
            format!(
                "protocol  size sockets  memory press maxhdr  slab module\n\
                 MPTCP     1936      0     116   yes       0   yes  kernel\n\
                 UDP       1344      1       7   NI       0   yes  kernel\n\
                 TCP       2368      3     116   {press}     192   yes  kernel\n"
            )
        };
        assert_eq!(parse_pressure(&protocols("no")), Some(false));
        assert_eq!(parse_pressure(&protocols("yes")), Some(true));
        assert_eq!(parse_pressure(&protocols("NI")), None);
        assert_eq!(parse_pressure("protocol size\n"), None);
    }

    #[test]
    fn caches_of_sockets_are_found_among_all() {
        let text = "slabinfo - version: 2.1\n\
            # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables \
            <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n\
            TCPv6                 26     39   2496   13    8 : tunables    0    0    0 : slabdata      \
            2      3      0\n\
            request_queue         16     16    984   16    4 : tunables    0    0    0 : slabdata      \
            1      1      0\n";
        let slab = Slab {
            name: "TCPv6".to_owned(),
            object_bytes: 2496,
            objects: 26,
            bytes: 3 * 8 * page_bytes(),
        };
        assert_eq!(parse_slabs(text), [slab]);
    }

    #[test]
    fn this_kernel_tells_of_its_sockets() {
        let process = Path::new("/proc/thread-self");
        let sockstat = Sockstat::of(process).unwrap();
        for name in ["sockets.used", "TCP.inuse", "TCP.tw", "TCP.orphan", "TCP.alloc", "TCP.mem"] {
            assert!(sockstat.get(name).is_some(), "{name} of {sockstat:?}");
        }
        assert!(tcp_under_pressure(process).is_some());
    }
}
