//! Pause frames that a device counted, by ethtool netlink (since Linux 5.10), with the same names for all drivers.
//! <https://docs.kernel.org/networking/ethtool-netlink.html#pause-get>

use std::io;

use crate::generic_netlink::{Family, uint_of};
use crate::netlink::{attribute, with_header};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/ethtool_netlink.h>
const ETHTOOL_MSG_PAUSE_GET: u8 = 21;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_STATS: u32 = 1 << 2;
const ETHTOOL_A_PAUSE_HEADER: u16 = 1;
const ETHTOOL_A_PAUSE_STATS: u16 = 5;
const ETHTOOL_A_PAUSE_STAT_TX_FRAMES: u16 = 2;
const ETHTOOL_A_PAUSE_STAT_RX_FRAMES: u16 = 3;
const NLA_F_NESTED: u16 = 1 << 15;

/// Frames since the device was made; `None` for what the driver does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PauseCounts {
    pub rx: Option<u64>,
    pub tx: Option<u64>,
}

/// Asks about devices of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct PauseReader(Family);

impl PauseReader {
    /// # Errors
    /// `NotFound` before Linux 5.6, which has no family `ethtool`.
    pub fn open() -> io::Result<Self> {
        Family::open("ethtool", 1).map(Self)
    }

    /// Of a device by its index.
    ///
    /// # Errors
    /// `Unsupported` for a device without flow control, as a virtual one, or one that counts no pause frames.
    pub fn read(&self, index: u32) -> io::Result<PauseCounts> {
        let header = [
            with_header(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes()),
            with_header(ETHTOOL_A_HEADER_FLAGS, &ETHTOOL_FLAG_STATS.to_ne_bytes()),
        ]
        .concat();
        let request = with_header(ETHTOOL_A_PAUSE_HEADER | NLA_F_NESTED, &header);
        let mut counts = None;
        self.0.get(ETHTOOL_MSG_PAUSE_GET, &request, |answer| counts = parse(answer))?;
        counts.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// The kernel leaves out what a driver did not fill in:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ethtool/pause.c>.
fn parse(answer: &[u8]) -> Option<PauseCounts> {
    let statistics = attribute(answer, ETHTOOL_A_PAUSE_STATS)?;
    let counts = PauseCounts {
        rx: uint_of(statistics, ETHTOOL_A_PAUSE_STAT_RX_FRAMES),
        tx: uint_of(statistics, ETHTOOL_A_PAUSE_STAT_TX_FRAMES),
    };
    (counts != PauseCounts::default()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    /// As the kernel answers for a card: autonegotiation, both directions, statistics.
    #[test]
    fn frames_are_in_the_statistics_of_the_answer() {
        let number = |kind, value: u64| with_header(kind, &value.to_ne_bytes());
        let answer = |statistics: &[u8]| {
            [
                with_header(ETHTOOL_A_PAUSE_HEADER | NLA_F_NESTED, &[]),
                with_header(2, &[1]),
                with_header(3, &[1]),
                with_header(4, &[0]),
                with_header(ETHTOOL_A_PAUSE_STATS | NLA_F_NESTED, statistics),
            ]
            .concat()
        };
        let both = [
            number(ETHTOOL_A_PAUSE_STAT_TX_FRAMES, 7),
            number(ETHTOOL_A_PAUSE_STAT_RX_FRAMES, 4096),
        ];
        let expected = PauseCounts { rx: Some(4096), tx: Some(7) };
        assert_eq!(parse(&answer(&both.concat())), Some(expected));
        let one = PauseCounts { rx: None, tx: Some(7) };
        assert_eq!(parse(&answer(&both[0])), Some(one));
        assert_eq!(parse(&answer(&[])), None);
        assert_eq!(parse(&with_header(2, &[1])), None);
    }

    #[test]
    fn a_pair_has_no_wire_to_pause_on() {
        if skip_without_namespaces("pause::a_pair_has_no_wire_to_pause_on") {
            return;
        }
        let name = format!("wirecost-test-{}-pause", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("eth0", "eth1", &namespace).unwrap();
        let index = links.get("eth0").unwrap().index;
        let reader = namespace.run(PauseReader::open).unwrap().unwrap();
        assert_eq!(reader.read(index).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let gone = reader.read(index + 100).unwrap_err();
        assert_ne!(gone.kind(), io::ErrorKind::Unsupported, "{gone}");
    }
}
