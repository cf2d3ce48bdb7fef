//! Counters of network devices, as /proc/net/dev shows those of a network namespace (proc(5)).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Seek as _};

/// What a device has counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_drops: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_drops: u64,
}

/// Counters by name of the device: of the namespace of a process, or of the calling thread.
///
/// # Errors
/// When the file cannot be read, as of a process that is gone.
pub fn read(pid: Option<u32>) -> io::Result<BTreeMap<String, Counters>> {
    let text = match pid {
        Some(pid) => fs::read_to_string(format!("/proc/{pid}/net/dev"))?,
        None => fs::read_to_string("/proc/thread-self/net/dev")?,
    };
    Ok(parse(&text))
}

/// Counters of the network namespace in which it was opened, whichever is the reader's.
#[derive(Debug)]
pub struct NetDev(fs::File);

impl NetDev {
    /// Of the calling thread's namespace.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open() -> io::Result<Self> {
        Ok(Self(fs::File::open("/proc/thread-self/net/dev")?))
    }

    /// Counters by name of the device.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self) -> io::Result<BTreeMap<String, Counters>> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        Ok(parse(&text))
    }
}

pub(crate) fn parse(text: &str) -> BTreeMap<String, Counters> {
    text.lines()
        .filter_map(|line| {
            let (name, columns) = line.rsplit_once(':')?;
            let columns: Vec<u64> =
                columns.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [
                rx_bytes,
                rx_packets,
                _,
                rx_drops,
                _,
                _,
                _,
                _,
                tx_bytes,
                tx_packets,
                _,
                tx_drops,
                ..,
            ] = columns[..]
            else {
                return None;
            };
            let counters =
                Counters { rx_bytes, rx_packets, rx_drops, tx_bytes, tx_packets, tx_drops };
            Some((name.trim().to_owned(), counters))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_under_their_headings() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
enp0s31f6:17 2 0 0 0 0 0 0 9 1 0 0 0 0 0 0
";
        let all = parse(text);
        assert_eq!(all.len(), 2);
        let expected = Counters {
            rx_bytes: 1,
            rx_packets: 2,
            rx_drops: 4,
            tx_bytes: 9,
            tx_packets: 10,
            tx_drops: 12,
        };
        assert_eq!(all["lo"], expected);
        assert_eq!(all["enp0s31f6"].rx_bytes, 17);
    }

    #[test]
    fn loopback_is_there() {
        assert!(read(None).unwrap().contains_key("lo"));
        assert_eq!(read(None).unwrap().len(), read(Some(std::process::id())).unwrap().len());
    }
}
