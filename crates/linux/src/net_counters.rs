//! Counters of the protocols of a network namespace: /proc/PID/net/snmp, netstat and snmp6.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Counters by table and name, as `Tcp.OutSegs` and `TcpExt.ListenDrops`; those of IPv6 have no table, as
/// `Udp6InErrors`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetCounters(BTreeMap<String, u64>);

impl NetCounters {
    /// Of the namespace of a process, by its directory in /proc.
    ///
    /// # Errors
    /// When the process has gone, or is not ours to look at.
    pub fn of(process: &Path) -> io::Result<Self> {
        let mut counters = BTreeMap::new();
        parse(&fs::read_to_string(process.join("net/snmp"))?, &mut counters);
        parse(&fs::read_to_string(process.join("net/netstat"))?, &mut counters);
        Ok(Self(counters))
    }

    /// The same, and what IPv6 counts apart, if the kernel has it.
    ///
    /// # Errors
    /// As [`NetCounters::of`].
    pub fn with_ipv6_of(process: &Path) -> io::Result<Self> {
        let Self(mut counters) = Self::of(process)?;
        match fs::read_to_string(process.join("net/snmp6")) {
            Ok(text) => parse_ipv6(&text, &mut counters),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Self(counters))
    }

    /// None where this kernel has no such counter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// How much a counter has grown.
    #[must_use]
    pub fn since(&self, before: &Self, name: &str) -> Option<u64> {
        Some(self.get(name)?.wrapping_sub(before.get(name)?))
    }
}

/// Lines come in pairs: names, then values, each after the name of the table.
pub(crate) fn parse(text: &str, counters: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let Some((table, names)) = pair[0].split_once(':') else { continue };
        let Some((_, values)) = pair[1].split_once(':') else { continue };
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            // Few are signed, as the limit of connections that is -1 for none.
            if let Ok(value) = value.parse() {
                counters.insert(format!("{table}.{name}"), value);
            }
        }
    }
}

/// A name and its value a line.
pub(crate) fn parse_ipv6(text: &str, counters: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
            counters.insert(name.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_lines_are_names_and_values() {
        let mut counters = BTreeMap::new();
        parse("Tcp: MaxConn OutSegs\nTcp: -1 17\nTcpExt: A B\nTcpExt: 1 2\n", &mut counters);
        let counters = NetCounters(counters);
        assert_eq!(counters.get("Tcp.OutSegs"), Some(17));
        assert_eq!(counters.get("TcpExt.B"), Some(2));
        assert_eq!(counters.get("Tcp.MaxConn"), None);
    }

    #[test]
    fn counters_of_ipv6_are_lines() {
        let mut counters = BTreeMap::new();
        parse_ipv6("Ip6InReceives \t7\nUdp6InErrors  \t0\nno number\n\n", &mut counters);
        let expected = [("Ip6InReceives".to_owned(), 7), ("Udp6InErrors".to_owned(), 0)];
        assert_eq!(counters, BTreeMap::from(expected));
        let all = NetCounters::with_ipv6_of(Path::new("/proc/thread-self")).unwrap();
        assert_eq!(
            all.get("Udp6RcvbufErrors").is_some(),
            Path::new("/proc/thread-self/net/snmp6").exists()
        );
        assert!(all.get("Udp.RcvbufErrors").is_some());
    }

    #[test]
    fn this_kernel_counts_segments() {
        let counters = NetCounters::of(Path::new("/proc/thread-self")).unwrap();
        assert!(counters.get("Tcp.OutSegs").is_some());
        assert!(counters.get("TcpExt.ListenDrops").is_some());
        assert_eq!(counters.since(&counters, "Tcp.OutSegs"), Some(0));
    }
}
