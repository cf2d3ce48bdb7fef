//! Counters of Ethernet devices under the names of the standards (IEEE 802.3 and RFC 2819), by ethtool netlink (since Linux
//! 5.13): as `ethtool -S DEV --all-groups` prints them.
//! <https://docs.kernel.org/networking/ethtool-netlink.html#stats-get>

use std::collections::BTreeMap;
use std::io;

use wirecost_model::observe::{Direction, StandardGroup};

use crate::generic_netlink::{Family, u32_of, uint_of};
use crate::netlink::{attributes, with_header};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/ethtool_netlink.h>
const ETHTOOL_MSG_STATS_GET: u8 = 32;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_STATS_HEADER: u16 = 2;
const ETHTOOL_A_STATS_GROUPS: u16 = 3;
const ETHTOOL_A_STATS_GRP: u16 = 4;
const ETHTOOL_A_STATS_GRP_ID: u16 = 2;
const ETHTOOL_A_STATS_GRP_STAT: u16 = 4;
const ETHTOOL_A_STATS_GRP_HIST_RX: u16 = 5;
const ETHTOOL_A_STATS_GRP_HIST_TX: u16 = 6;
const ETHTOOL_A_STATS_GRP_HIST_BKT_LOW: u16 = 7;
const ETHTOOL_A_STATS_GRP_HIST_BKT_HI: u16 = 8;
const ETHTOOL_A_STATS_GRP_HIST_VAL: u16 = 9;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_SIZE: u16 = 2;
const ETHTOOL_A_BITSET_VALUE: u16 = 4;
const NLA_F_NESTED: u16 = 1 << 15;

/// Groups by their number in `ETHTOOL_A_STATS_GRP_ID`, and the counters of each by their number in its `enum`; the names are
/// those of <https://elixir.bootlin.com/linux/v6.12/source/net/ethtool/stats.c>.
const GROUPS: [(StandardGroup, &[&str]); 4] = [
    (StandardGroup::EthPhy, &["SymbolErrorDuringCarrier"]),
    (
        StandardGroup::EthMac,
        &[
            "FramesTransmittedOK",
            "SingleCollisionFrames",
            "MultipleCollisionFrames",
            "FramesReceivedOK",
            "FrameCheckSequenceErrors",
            "AlignmentErrors",
            "OctetsTransmittedOK",
            "FramesWithDeferredXmissions",
            "LateCollisions",
            "FramesAbortedDueToXSColls",
            "FramesLostDueToIntMACXmitError",
            "CarrierSenseErrors",
            "OctetsReceivedOK",
            "FramesLostDueToIntMACRcvError",
            "MulticastFramesXmittedOK",
            "BroadcastFramesXmittedOK",
            "FramesWithExcessiveDeferral",
            "MulticastFramesReceivedOK",
            "BroadcastFramesReceivedOK",
            "InRangeLengthErrors",
            "OutOfRangeLengthField",
            "FrameTooLongErrors",
        ],
    ),
    (
        StandardGroup::EthCtrl,
        &["MACControlFramesTransmitted", "MACControlFramesReceived", "UnsupportedOpcodesReceived"],
    ),
    (
        StandardGroup::Rmon,
        &[
            "etherStatsUndersizePkts",
            "etherStatsOversizePkts",
            "etherStatsFragments",
            "etherStatsJabbers",
        ],
    ),
];

/// What one device counted until now; what its driver does not count is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandardStatistics {
    pub counters: BTreeMap<(StandardGroup, &'static str), u64>,
    /// Frames by their octets: direction, least and most of the range. The most is 0 where there is no limit.
    pub frame_sizes: BTreeMap<(Direction, u32, u32), u64>,
}

impl StandardStatistics {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.frame_sizes.is_empty()
    }
}

/// Asks about devices of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct StandardStatisticsReader(Family);

impl StandardStatisticsReader {
    /// # Errors
    /// `NotFound` before Linux 5.6, which has no family `ethtool`.
    pub fn open() -> io::Result<Self> {
        Family::open("ethtool", 1).map(Self)
    }

    /// Of a device by its index; empty where its driver has none of them.
    ///
    /// # Errors
    /// The kernel's own: `Unsupported` before Linux 5.13, and for a device whose driver has no ethtool operations.
    pub fn read(&self, index: u32) -> io::Result<StandardStatistics> {
        let mut all = StandardStatistics::default();
        self.0.get(ETHTOOL_MSG_STATS_GET, &request(index), |answer| parse(answer, &mut all))?;
        Ok(all)
    }
}

fn request(index: u32) -> Vec<u8> {
    let header = with_header(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    // One bit for each group that is wanted.
    let size = GROUPS.len() as u32;
    let groups = [
        with_header(ETHTOOL_A_BITSET_NOMASK, &[]),
        with_header(ETHTOOL_A_BITSET_SIZE, &size.to_ne_bytes()),
        with_header(ETHTOOL_A_BITSET_VALUE, &((1u32 << size) - 1).to_ne_bytes()),
    ]
    .concat();
    [
        with_header(ETHTOOL_A_STATS_HEADER | NLA_F_NESTED, &header),
        with_header(ETHTOOL_A_STATS_GROUPS | NLA_F_NESTED, &groups),
    ]
    .concat()
}

/// A group has an attribute for each counter, in which there is one number whose type says which counter it is.
fn parse(answer: &[u8], all: &mut StandardStatistics) {
    for (_, group) in attributes(answer).filter(|(kind, _)| *kind == ETHTOOL_A_STATS_GRP) {
        // Newer kernels may have further groups and counters.
        let number = u32_of(group, ETHTOOL_A_STATS_GRP_ID).map(|number| number as usize);
        let Some((name, counters)) = number.and_then(|number| GROUPS.get(number)) else { continue };
        for (kind, body) in attributes(group) {
            match kind {
                ETHTOOL_A_STATS_GRP_STAT => {
                    for (counter, value) in attributes(body) {
                        // Padding is an attribute without a value.
                        if let Some(counter) = counters.get(usize::from(counter))
                            && let Ok(value) = value.try_into()
                        {
                            all.counters.insert((*name, counter), u64::from_ne_bytes(value));
                        }
                    }
                }
                ETHTOOL_A_STATS_GRP_HIST_RX => frame_sizes(Direction::Rx, body, all),
                ETHTOOL_A_STATS_GRP_HIST_TX => frame_sizes(Direction::Tx, body, all),
                _ => {}
            }
        }
    }
}

fn frame_sizes(direction: Direction, range: &[u8], all: &mut StandardStatistics) {
    let low = u32_of(range, ETHTOOL_A_STATS_GRP_HIST_BKT_LOW);
    let high = u32_of(range, ETHTOOL_A_STATS_GRP_HIST_BKT_HI);
    if let (Some(low), Some(high), Some(frames)) =
        (low, high, uint_of(range, ETHTOOL_A_STATS_GRP_HIST_VAL))
    {
        all.frame_sizes.insert((direction, low, high), frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netlink::attribute;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    fn number(kind: u16, value: u64) -> Vec<u8> {
        with_header(kind, &value.to_ne_bytes())
    }

    /// As the kernel lays it out: number of the group, number of its names, counters, ranges.
    fn group(id: u32, body: &[Vec<u8>]) -> Vec<u8> {
        let id = [with_header(ETHTOOL_A_STATS_GRP_ID, &id.to_ne_bytes()), with_header(3, &[17; 4])];
        with_header(ETHTOOL_A_STATS_GRP | NLA_F_NESTED, &[id.concat(), body.concat()].concat())
    }

    fn counter(kind: u16, value: u64) -> Vec<u8> {
        with_header(ETHTOOL_A_STATS_GRP_STAT | NLA_F_NESTED, &number(kind, value))
    }

    fn range(direction: u16, low: u32, high: u32, frames: u64) -> Vec<u8> {
        let range = [
            with_header(ETHTOOL_A_STATS_GRP_HIST_BKT_LOW, &low.to_ne_bytes()),
            with_header(ETHTOOL_A_STATS_GRP_HIST_BKT_HI, &high.to_ne_bytes()),
            number(ETHTOOL_A_STATS_GRP_HIST_VAL, frames),
        ];
        with_header(direction | NLA_F_NESTED, &range.concat())
    }

    #[test]
    fn counters_have_the_names_of_their_group() {
        let header = with_header(ETHTOOL_A_STATS_HEADER | NLA_F_NESTED, &[]);
        // Where 64 bits have to be aligned, the kernel puts padding before them (type 1).
        let padded = [with_header(1, &[]), number(4, 6)].concat();
        let answer = [
            header,
            group(0, &[counter(0, 3)]),
            group(
                1,
                &[
                    counter(0, 70_000_000_000),
                    with_header(ETHTOOL_A_STATS_GRP_STAT | NLA_F_NESTED, &padded),
                    counter(21, 9),
                    counter(22, 1),
                ],
            ),
            group(2, &[counter(1, 5)]),
            group(
                3,
                &[
                    range(ETHTOOL_A_STATS_GRP_HIST_RX, 0, 64, 11),
                    range(ETHTOOL_A_STATS_GRP_HIST_RX, 1519, 0, 12),
                    range(ETHTOOL_A_STATS_GRP_HIST_TX, 65, 127, 13),
                    counter(2, 8),
                ],
            ),
            // Of a kernel of tomorrow.
            group(7, &[counter(0, 1)]),
        ]
        .concat();
        let mut all = StandardStatistics::default();
        parse(&answer, &mut all);
        let counters = [
            ((StandardGroup::EthPhy, "SymbolErrorDuringCarrier"), 3),
            ((StandardGroup::EthMac, "FramesTransmittedOK"), 70_000_000_000),
            ((StandardGroup::EthMac, "FrameCheckSequenceErrors"), 6),
            ((StandardGroup::EthMac, "FrameTooLongErrors"), 9),
            ((StandardGroup::EthCtrl, "MACControlFramesReceived"), 5),
            ((StandardGroup::Rmon, "etherStatsFragments"), 8),
        ];
        let (rx, tx) = (Direction::Rx, Direction::Tx);
        let frame_sizes = [((rx, 0, 64), 11), ((rx, 1519, 0), 12), ((tx, 65, 127), 13)];
        let expected =
            StandardStatistics { counters: counters.into(), frame_sizes: frame_sizes.into() };
        assert_eq!(all, expected);
    }

    #[test]
    fn groups_without_counters_are_empty() {
        let mut all = StandardStatistics::default();
        parse(&[group(0, &[]), group(1, &[])].concat(), &mut all);
        assert!(all.is_empty());
        parse(&[255; 7], &mut all);
        assert!(all.is_empty());
    }

    /// The machine's own header has the numbers of the request.
    #[test]
    fn the_request_asks_for_all_groups() {
        let request = request(7);
        let header = attribute(&request, ETHTOOL_A_STATS_HEADER).unwrap();
        assert_eq!(u32_of(header, ETHTOOL_A_HEADER_DEV_INDEX), Some(7));
        let groups = attribute(&request, ETHTOOL_A_STATS_GROUPS).unwrap();
        assert_eq!(u32_of(groups, ETHTOOL_A_BITSET_VALUE), Some(0b1111));
    }

    #[test]
    fn a_pair_has_none() {
        if skip_without_namespaces("standard_statistics::a_pair_has_none") {
            return;
        }
        let name = format!("wirecost-test-{}-standard", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("eth0", "eth1", &namespace).unwrap();
        let index = links.get("eth0").unwrap().index;
        let reader = namespace.run(StandardStatisticsReader::open).unwrap().unwrap();
        match reader.read(index) {
            Ok(all) => assert!(all.is_empty(), "{all:?}"),
            // Before Linux 5.13.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
        let gone = reader.read(index + 100).unwrap_err();
        assert_ne!(gone.kind(), io::ErrorKind::Unsupported, "{gone}");
    }
}
