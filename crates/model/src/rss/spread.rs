//! How any device spreads flows over its queues, and flows that go to queues of one's choice.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::toeplitz;

/// Fields of a packet that the hash covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fields {
    /// Both addresses (2-tuple).
    Addresses,
    /// Both addresses and both ports (4-tuple).
    AddressesAndPorts,
}

/// What a device does to the fields before it hashes them, so that both directions of a flow have one hash.
/// <https://docs.kernel.org/networking/scaling.html#rss-configuration>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Symmetry {
    /// Nothing.
    #[default]
    None,
    /// `RXH_XFRM_SYM_XOR`: source XOR destination, in the place of both.
    Xor,
    /// `RXH_XFRM_SYM_OR_XOR`: source OR destination, then source XOR destination.
    OrXor,
}

/// How a device spreads the packets of a protocol over its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Of the Toeplitz hash, as many bytes as the device has.
    pub key: Vec<u8>,
    /// Queue by the hash, modulo the number of entries.
    pub table: Vec<u32>,
    pub fields: Fields,
    pub symmetry: Symmetry,
}

impl Spread {
    /// The hash of the packets that a source sends to a destination. Where only one address is of IPv4, it counts as
    /// an IPv6 address that it is mapped to.
    #[must_use]
    pub fn hash(&self, source: SocketAddr, destination: SocketAddr) -> u32 {
        let mut input = [0; 36];
        let mut length = 0;
        let mut add = |source: &[u8], destination: &[u8]| {
            let size = source.len();
            for (place, (source, destination)) in source.iter().zip(destination).enumerate() {
                let (first, second) = match self.symmetry {
                    Symmetry::None => (*source, *destination),
                    Symmetry::Xor => (source ^ destination, source ^ destination),
                    Symmetry::OrXor => (source | destination, source ^ destination),
                };
                input[length + place] = first;
                input[length + size + place] = second;
            }
            length += 2 * size;
        };
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                add(&source.octets(), &destination.octets());
            }
            (source, destination) => {
                let [source, destination] = [source, destination].map(|address| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                });
                add(&source.octets(), &destination.octets());
            }
        }
        if self.fields == Fields::AddressesAndPorts {
            add(&source.port().to_be_bytes(), &destination.port().to_be_bytes());
        }
        toeplitz(&self.key, &input[..length])
    }

    /// The queue to which the packets of a hash go; `None` for an empty table.
    #[must_use]
    pub fn queue(&self, hash: u32) -> Option<u32> {
        self.table.get(hash as usize % self.table.len().max(1)).copied()
    }
}

/// Sources that [`find_flows`] tries at most.
const TRIALS: usize = 1 << 22;

/// Flows that were wanted do not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    #[error("the table leads to no queue {queue}")]
    NoQueue { queue: u32 },
    #[error("of {tried} sources, {found} lead to queue {queue}, and {wanted} are wanted")]
    TooFew { queue: u32, found: usize, wanted: usize, tried: usize },
}

/// Sources whose packets to a destination go to each of the queues, `count` per queue. Addresses change faster than
/// ports, so that flows have different addresses as far as there are.
///
/// # Errors
/// [`FlowError`]: a queue that the table does not lead to, or too few sources for one.
pub fn find_flows(
    spread: &Spread,
    sources: &[IpAddr],
    ports: RangeInclusive<u16>,
    destination: SocketAddr,
    queues: &[u32],
    count: usize,
) -> Result<BTreeMap<u32, Vec<SocketAddr>>, FlowError> {
    if let Some(queue) = queues.iter().find(|queue| !spread.table.contains(queue)) {
        return Err(FlowError::NoQueue { queue: *queue });
    }
    let mut found: BTreeMap<u32, Vec<SocketAddr>> =
        queues.iter().map(|queue| (*queue, Vec::new())).collect();
    let mut missing = found.len() * count;
    let trials = match spread.fields {
        // Ports change nothing.
        Fields::Addresses => sources.len().saturating_mul(count),
        Fields::AddressesAndPorts => TRIALS,
    };
    let mut tried = 0;
    for port in ports {
        for source in sources {
            if missing == 0 {
                return Ok(found);
            }
            if tried == trials.min(TRIALS) {
                break;
            }
            tried += 1;
            let source = SocketAddr::new(*source, port);
            let queue = spread.queue(spread.hash(source, destination));
            let Some(flows) = queue.and_then(|queue| found.get_mut(&queue)) else { continue };
            if flows.len() < count {
                flows.push(source);
                missing -= 1;
            }
        }
    }
    let few = found.iter().find(|(_, flows)| flows.len() < count);
    match few {
        None => Ok(found),
        Some((queue, flows)) => {
            Err(FlowError::TooFew { queue: *queue, found: flows.len(), wanted: count, tried })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;

    fn spread(fields: Fields, symmetry: Symmetry) -> Spread {
        let table = (0..4).cycle().take(128).collect();
        Spread { key: Key::MICROSOFT.0.to_vec(), table, fields, symmetry }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// <https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation>
    #[test]
    fn hashes_are_those_of_microsofts_examples() {
        for (source, destination, with_ports, without) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178, 0x323e_8fc2),
            ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x4020_7d3d, 0x2cc1_8cd5),
        ] {
            let (source, destination) = (address(source), address(destination));
            let hash = |fields| spread(fields, Symmetry::None).hash(source, destination);
            assert_eq!(hash(Fields::AddressesAndPorts), with_ports);
            assert_eq!(hash(Fields::Addresses), without);
        }
    }

    #[test]
    fn both_directions_have_one_hash_where_the_device_sees_to_it() {
        let (near, far) = (address("198.18.0.1:4000"), address("198.18.0.2:80"));
        let both = |symmetry| {
            let spread = spread(Fields::AddressesAndPorts, symmetry);
            (spread.hash(near, far), spread.hash(far, near))
        };
        let (there, back) = both(Symmetry::None);
        assert_ne!(there, back);
        for symmetry in [Symmetry::Xor, Symmetry::OrXor] {
            let (there, back) = both(symmetry);
            assert_eq!(there, back, "{symmetry:?}");
        }
        // A key that repeats after 16 bits does the same without.
        let key = [0x6d, 0x5a].repeat(26);
        let repeated = Spread { key, ..spread(Fields::AddressesAndPorts, Symmetry::None) };
        assert_eq!(repeated.hash(near, far), repeated.hash(far, near));
    }

    /// The input, byte by byte, as the documentation of the kernel describes it.
    #[test]
    fn symmetric_inputs_are_those_of_the_kernels_documentation() {
        let (source, destination) = (address("10.0.0.1:258"), address("10.0.0.2:3"));
        let hash = |symmetry| spread(Fields::AddressesAndPorts, symmetry).hash(source, destination);
        let of = |input: &[u8]| toeplitz(&Key::MICROSOFT.0, input);
        assert_eq!(hash(Symmetry::Xor), of(&[0, 0, 0, 3, 0, 0, 0, 3, 1, 1, 1, 1]));
        assert_eq!(hash(Symmetry::OrXor), of(&[10, 0, 0, 3, 0, 0, 0, 3, 1, 3, 1, 1]));
    }

    #[test]
    fn flows_are_found_for_each_queue() {
        let spread = spread(Fields::AddressesAndPorts, Symmetry::None);
        let destination = address("198.18.0.1:9000");
        let sources = ["198.18.0.2", "198.18.0.3"].map(|source| source.parse().unwrap());
        let found = find_flows(&spread, &sources, 1024..=2047, destination, &[0, 3], 5).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 3]);
        for (queue, flows) in &found {
            assert_eq!(flows.len(), 5);
            for flow in flows {
                assert_eq!(spread.queue(spread.hash(*flow, destination)), Some(*queue));
            }
            assert!(sources.iter().all(|source| flows.iter().any(|flow| flow.ip() == *source)));
        }
    }

    #[test]
    fn what_cannot_be_found_is_said() {
        let spread = spread(Fields::Addresses, Symmetry::None);
        let destination = address("198.18.0.1:9000");
        let source = ["198.18.0.2".parse().unwrap()];
        let find =
            |queues: &[u32]| find_flows(&spread, &source, 1024..=1033, destination, queues, 2);
        assert_eq!(find(&[9]), Err(FlowError::NoQueue { queue: 9 }));
        // Ports change nothing, so one address has one queue.
        let queue = spread.queue(spread.hash(SocketAddr::new(source[0], 1), destination)).unwrap();
        assert_eq!(find(&[queue]).unwrap()[&queue].len(), 2);
        let other = (queue + 1) % 4;
        let few = FlowError::TooFew { queue: other, found: 0, wanted: 2, tried: 2 };
        assert_eq!(find(&[queue, other]), Err(few));
    }
}
