//! Packets of network devices, as /proc/net/dev counts them.

use std::collections::BTreeMap;
use std::{fs, io};

/// Packets of one device since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packets {
    pub received: u64,
    pub sent: u64,
}

/// Of every device of the network namespace that a process is in, or of the caller's.
///
/// # Errors
/// When there is no such process, or its file cannot be read.
pub fn read(process: Option<u32>) -> io::Result<BTreeMap<String, Packets>> {
    let process = process.map_or_else(|| "thread-self".to_owned(), |pid| pid.to_string());
    Ok(parse(&fs::read_to_string(format!("/proc/{process}/net/dev"))?))
}

/// Eight columns received, eight sent; the second of each is packets.
#[must_use]
pub fn parse(text: &str) -> BTreeMap<String, Packets> {
    text.lines()
        .filter_map(|line| {
            let (device, counts) = line.rsplit_once(':')?;
            let column = |place| counts.split_ascii_whitespace().nth(place)?.parse().ok();
            Some((device.trim().to_owned(), Packets { received: column(1)?, sent: column(9)? }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_the_second_columns() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
  eth0: 389515510   24358    0    0    0     0          0         0  1767637   18037    0    0    0     0       0          0
eth0.1:123 7 0 0 0 0 0 0 1 2 0 0 0 0 0 0
";
        let packets = parse(text);
        assert_eq!(packets.len(), 2);
        assert_eq!(packets["eth0"], Packets { received: 24358, sent: 18037 });
        assert_eq!(packets["eth0.1"], Packets { received: 7, sent: 2 });
    }

    #[test]
    fn this_kernel() {
        assert!(read(None).unwrap().contains_key("lo"));
        assert_eq!(read(Some(std::process::id())).unwrap().len(), read(None).unwrap().len());
        assert!(read(Some(1 << 23)).is_err());
    }
}
