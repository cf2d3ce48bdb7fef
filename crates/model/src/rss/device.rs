//! What a device tells of how it spreads packets over its receive queues, and how connections are placed by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fields, Spread, Symmetry, key_bytes};

/// Packets of which a device may hash fields of their own.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    Tcp4,
    Tcp6,
    Udp4,
    Udp6,
}

impl Flow {
    pub const ALL: [Self; 4] = [Self::Tcp4, Self::Tcp6, Self::Udp4, Self::Udp6];

    /// UDP or TCP, by the version of an address.
    #[must_use]
    pub fn of(datagrams: bool, address: IpAddr) -> Self {
        match (datagrams, address.is_ipv4()) {
            (false, true) => Self::Tcp4,
            (false, false) => Self::Tcp6,
            (true, true) => Self::Udp4,
            (true, false) => Self::Udp6,
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp4 => "tcp4",
            Self::Tcp6 => "tcp6",
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
        })
    }
}

/// What a device tells of its receive side scaling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSpreading {
    /// In hexadecimal; `None` where the driver does not tell it.
    pub key: Option<String>,
    /// Queue of each entry.
    pub table: Vec<u32>,
    /// Queues that there are.
    pub queues: u32,
    /// Whether the hash is Toeplitz's.
    pub toeplitz: bool,
    /// `None` for one that is not known here.
    pub symmetry: Option<Symmetry>,
    /// Fields that are hashed; `None` where the driver does not tell them.
    pub fields: BTreeMap<Flow, Option<Fields>>,
}

/// What a device does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Hidden {
    #[error("its hash function")]
    Function,
    #[error("its RSS key")]
    Key,
    #[error("what it hashes of {0}")]
    Fields(Flow),
    #[error("the symmetry of its hash")]
    Symmetry,
}

impl DeviceSpreading {
    /// How packets of such a flow are spread.
    ///
    /// # Errors
    /// What is not known of it.
    pub fn spread(&self, flow: Flow) -> Result<Spread, Hidden> {
        if !self.toeplitz {
            return Err(Hidden::Function);
        }
        Ok(Spread {
            key: self.key.as_deref().and_then(key_bytes).ok_or(Hidden::Key)?,
            table: self.table.clone(),
            fields: self.fields.get(&flow).copied().flatten().ok_or(Hidden::Fields(flow))?,
            symmetry: self.symmetry.ok_or(Hidden::Symmetry)?,
        })
    }
}

impl Spread {
    /// Queues that packets can go to, in ascending order.
    #[must_use]
    pub fn queues(&self) -> Vec<u32> {
        let queues: BTreeSet<u32> = self.table.iter().copied().collect();
        queues.into_iter().collect()
    }
}

/// On which receive queues the connections of a group arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Each on a queue of its own.
    OnePerQueue,
    /// On all queues in turn.
    Even,
    /// All on the first queue.
    AllOnOne,
    /// As ports that the kernel chooses happen to fall.
    Random,
}

impl Placement {
    pub const NAMES: &[&str] = &["one-per-queue", "even", "all-on-one", "random"];
    const ALL: [Self; 4] = [Self::OnePerQueue, Self::Even, Self::AllOnOne, Self::Random];

    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The place, among so many queues, of the queue for this connection.
    #[must_use]
    pub fn place(self, connection: usize, queues: usize) -> usize {
        match self {
            Self::AllOnOne => 0,
            Self::OnePerQueue | Self::Even | Self::Random => connection % queues.max(1),
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|placement| placement.name() == text);
        found.ok_or_else(|| format!("must be one of {}", Self::NAMES.join(", ")))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> DeviceSpreading {
        DeviceSpreading {
            key: Some("6d:5a".repeat(20)),
            table: vec![3, 1, 3, 0],
            queues: 4,
            toeplitz: true,
            symmetry: Some(Symmetry::None),
            fields: [(Flow::Udp4, Some(Fields::AddressesAndPorts)), (Flow::Tcp4, None)].into(),
        }
    }

    #[test]
    fn what_a_device_hides_is_named() {
        assert_eq!(told().spread(Flow::Udp4).unwrap().queues(), [0, 1, 3]);
        assert_eq!(told().spread(Flow::Tcp4), Err(Hidden::Fields(Flow::Tcp4)));
        assert_eq!(told().spread(Flow::Udp6), Err(Hidden::Fields(Flow::Udp6)));
        let key = DeviceSpreading { key: None, ..told() };
        assert_eq!(key.spread(Flow::Udp4), Err(Hidden::Key));
        let function = DeviceSpreading { toeplitz: false, ..told() };
        assert_eq!(function.spread(Flow::Udp4), Err(Hidden::Function));
        let symmetry = DeviceSpreading { symmetry: None, ..told() };
        assert_eq!(symmetry.spread(Flow::Udp4), Err(Hidden::Symmetry));
    }

    #[test]
    fn placements_have_their_names_and_places() {
        for (name, place) in [("one-per-queue", 1), ("even", 1), ("all-on-one", 0), ("random", 1)] {
            let placement: Placement = name.parse().unwrap();
            assert_eq!((placement.name(), placement.place(4, 3)), (name, place));
        }
        "One".parse::<Placement>().unwrap_err();
    }
}
