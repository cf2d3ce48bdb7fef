//! Counters of the protocols of a network namespace: /proc/PID/net/snmp and netstat.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Counters by table and name, as `Tcp.OutSegs` and `TcpExt.ListenDrops`.
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
    fn this_kernel_counts_segments() {
        let counters = NetCounters::of(Path::new("/proc/thread-self")).unwrap();
        assert!(counters.get("Tcp.OutSegs").is_some());
        assert!(counters.get("TcpExt.ListenDrops").is_some());
        assert_eq!(counters.since(&counters, "Tcp.OutSegs"), Some(0));
    }
}
