//! Receive-side scaling: into which queue of a device a packet goes, by a hash of its addresses and ports.
//! <https://learn.microsoft.com/windows-hardware/drivers/network/rss-hashing-functions>

mod device;
mod spread;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use device::{DeviceSpreading, Flow, Hidden, Placement};
pub use spread::{Fields, FlowError, Spread, Symmetry, find_flows};

/// Bytes of a key: those of the longest input, two IPv6 addresses and two ports, and four more.
pub const KEY_BYTES: usize = 40;

/// Entries of a table, as most devices have them.
pub const TABLE_ENTRIES: usize = 128;

/// A key of the Toeplitz hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// The key of Microsoft's examples, which many drivers use.
    /// <https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation>
    pub const MICROSOFT: Self = Self([
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ]);

    /// The Toeplitz hash ([`toeplitz`]).
    ///
    /// # Panics
    /// The input is longer than 36 bytes.
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        toeplitz(&self.0, input)
    }
}

/// The Toeplitz hash: for each bit of the input that is set, the 32 bits of the key that begin at its place. Zeros
/// follow a key that is too short.
#[must_use]
pub fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let mut key = key.iter().copied().chain(std::iter::repeat(0));
    let mut window = key.by_ref().take(4).fold(0, |window, byte| window << 8 | u32::from(byte));
    let mut hash = 0;
    for (byte, next) in input.iter().zip(key) {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&key_text(&self.0))
    }
}

/// A key as ethtool(8) prints it: bytes in hexadecimal with colons.
#[must_use]
pub fn key_text(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// A table as it is typed: `equal N` where the first N queues take turns, otherwise the queue of each entry.
#[must_use]
pub fn table_text(table: &[u32]) -> String {
    let queues = table.iter().max().map_or(1, |most| most + 1);
    if table.iter().zip((0..queues).cycle()).all(|(queue, expected)| *queue == expected) {
        return format!("{EQUAL}{queues}");
    }
    table.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Begins the text of a table whose queues take turns.
pub const EQUAL: &str = "equal ";

/// The bytes of a key in hexadecimal, with or without colons; `None` for another text.
#[must_use]
pub fn key_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|letter| *letter != ':')
        .map(|letter| letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The queue of each entry of a table of `entries`, from text as [`table_text`] writes it; fewer entries repeat. `None`
/// for another text.
#[must_use]
pub fn table_entries(text: &str, entries: usize) -> Option<Vec<u32>> {
    let first: Vec<u32> = match text.strip_prefix(EQUAL) {
        Some(queues) => (0..queues.trim().parse().ok()?).take(entries).collect(),
        None => text.split(',').map(|queue| queue.trim().parse().ok()).collect::<Option<_>>()?,
    };
    (!first.is_empty())
        .then(|| first.iter().copied().cycle().take(entries.max(first.len())).collect())
}

impl FromStr for Key {
    type Err = String;

    /// As [`key_bytes`] reads it.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = key_bytes(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| {
            format!("must be {KEY_BYTES} bytes in hexadecimal, such as 6d:5a:56:...")
        })
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

/// How a device picks the queue of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rss {
    /// 40 bytes in hexadecimal, as ethtool prints them.
    #[schemars(with = "String")]
    pub key: Key,
    /// The queue of each value of the last seven bits of the hash: 128 entries.
    pub table: Vec<u8>,
}

impl Rss {
    /// Queues that are used in turn: as a driver sets up its table.
    #[must_use]
    pub fn spread(queues: u8) -> Self {
        let table = (0..queues.max(1)).cycle().take(TABLE_ENTRIES).collect();
        Self { key: Key::MICROSOFT, table }
    }

    /// The queue of a hash.
    #[must_use]
    pub fn queue(&self, hash: u32) -> u8 {
        self.table.get(hash as usize % self.table.len().max(1)).copied().unwrap_or_default()
    }

    /// The queue of a packet of TCP or UDP.
    #[must_use]
    pub fn queue_of(&self, source: SocketAddr, destination: SocketAddr) -> u8 {
        let mut input = addresses(source.ip(), destination.ip());
        input.extend(source.port().to_be_bytes());
        input.extend(destination.port().to_be_bytes());
        self.queue(self.key.hash(&input))
    }
}

/// Input of the hash of a packet without ports.
#[must_use]
pub fn addresses(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let bytes = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    [source, destination].map(bytes).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microsoft's examples: destination, source, the hash with ports, and without.
    const EXAMPLES: [(&str, &str, u32, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x51cc_c178, 0x323e_8fc2),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xc626_b0ea, 0xd718_262a),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b_394a, 0xd2d0_a5de),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0xafc7_327f, 0x8298_9176),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x10e8_28a2, 0x5d18_09c5),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x4020_7d3d, 0x2cc1_8cd5),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde5_1bbf, 0x0f0c_461c),
        (
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x02d1_feef,
            0x4b61_e985,
        ),
    ];

    #[test]
    fn hashes_are_those_of_microsofts_examples() {
        for (destination, source, with_ports, without) in EXAMPLES {
            let [destination, source]: [SocketAddr; 2] =
                [destination, source].map(|address| address.parse().unwrap());
            let mut input = addresses(source.ip(), destination.ip());
            assert_eq!(Key::MICROSOFT.hash(&input), without, "{source} to {destination}");
            input.extend(source.port().to_be_bytes());
            input.extend(destination.port().to_be_bytes());
            assert_eq!(Key::MICROSOFT.hash(&input), with_ports, "{source} to {destination}");
            let rss = Rss::spread(3);
            assert_eq!(u32::from(rss.queue_of(source, destination)), with_ports % 128 % 3);
        }
    }

    #[test]
    fn a_table_is_what_was_written() {
        assert_eq!(table_entries("equal 3", 7), Some(vec![0, 1, 2, 0, 1, 2, 0]));
        assert_eq!(table_entries("0,1,1", 4), Some(vec![0, 1, 1, 0]));
        assert_eq!(table_entries("5, 6", 1), Some(vec![5, 6]));
        for wrong in ["", "equal 0", "equal", "1,", "-1", "a"] {
            assert_eq!(table_entries(wrong, 4), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_is_what_was_written() {
        let text = Key::MICROSOFT.to_string();
        assert!(text.starts_with("6d:5a:56:da:25"), "{text}");
        assert_eq!(text.parse(), Ok(Key::MICROSOFT));
        assert_eq!(text.replace(':', "").parse(), Ok(Key::MICROSOFT));
        let long = format!("{text}:00");
        for wrong in ["", "6d5", "6d:5a", "zz", "+1", &text[..118], &long] {
            wrong.parse::<Key>().unwrap_err();
        }
    }
}
