//! What network devices count, by route netlink: unlike /proc/net/dev, which adds up what is told apart here.

use std::collections::BTreeMap;
use std::io;

use crate::generic_netlink::u32_of;
use crate::netlink::{NLM_F_DUMP, NLM_F_REQUEST, Netlink, attribute, message};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/rtnetlink.h> and if_link.h.
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS64: u16 = 23;
const IFLA_CARRIER: u16 = 33;
const IFLA_CARRIER_CHANGES: u16 = 35;
/// Of `struct ifinfomsg`.
const IFINFOMSG_BYTES: usize = 16;

/// Counters since the device was made, as `struct rtnl_link_stats64` describes them, and its link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_length_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_fifo_errors: u64,
    pub rx_missed_errors: u64,
    pub tx_carrier_errors: u64,
    pub tx_fifo_errors: u64,
    pub rx_nohandler: u64,
    /// Whether there is a link now.
    pub carrier: bool,
    /// Times that the link came or went.
    pub carrier_changes: u64,
}

/// Reads the devices of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct LinkStatisticsReader(Netlink);

impl LinkStatisticsReader {
    /// # Errors
    /// When no netlink socket can be had.
    pub fn open() -> io::Result<Self> {
        Netlink::route().map(Self)
    }

    /// By index of the device, with its name.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn read(&self) -> io::Result<BTreeMap<u32, (String, LinkStatistics)>> {
        let mut all = BTreeMap::new();
        let request = message(RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, &[0; IFINFOMSG_BYTES]);
        self.0.ask(&request, |body| all.extend(parse(body)))?;
        Ok(all)
    }
}

fn parse(body: &[u8]) -> Option<(u32, (String, LinkStatistics))> {
    let index = u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?);
    let attributes = body.get(IFINFOMSG_BYTES..)?;
    let name = attribute(attributes, IFLA_IFNAME)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let statistics = attribute(attributes, IFLA_STATS64)?;
    let field = |place: usize| {
        let bytes = statistics.get(place * 8..place * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let statistics = LinkStatistics {
        rx_packets: field(0)?,
        tx_packets: field(1)?,
        rx_bytes: field(2)?,
        tx_bytes: field(3)?,
        rx_errors: field(4)?,
        tx_errors: field(5)?,
        rx_dropped: field(6)?,
        tx_dropped: field(7)?,
        rx_length_errors: field(10)?,
        rx_over_errors: field(11)?,
        rx_crc_errors: field(12)?,
        rx_frame_errors: field(13)?,
        rx_fifo_errors: field(14)?,
        rx_missed_errors: field(15)?,
        tx_carrier_errors: field(17)?,
        tx_fifo_errors: field(18)?,
        rx_nohandler: field(23)?,
        carrier: attribute(attributes, IFLA_CARRIER).is_some_and(|carrier| carrier == [1]),
        carrier_changes: u32_of(attributes, IFLA_CARRIER_CHANGES).unwrap_or(0).into(),
    };
    Some((index, (String::from_utf8_lossy(name).into_owned(), statistics)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::net_sysfs::NetSysfs;
    use crate::netlink::with_header;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        let values: Vec<u8> = (0..25u64).flat_map(|place| (place + 100).to_ne_bytes()).collect();
        let mut body = vec![0; IFINFOMSG_BYTES];
        body[4..8].copy_from_slice(&7u32.to_ne_bytes());
        body.extend(with_header(IFLA_IFNAME, b"eth0\0"));
        body.extend(with_header(IFLA_STATS64, &values));
        body.extend(with_header(IFLA_CARRIER, &[1]));
        body.extend(with_header(IFLA_CARRIER_CHANGES, &5u32.to_ne_bytes()));
        let expected = LinkStatistics {
            rx_packets: 100,
            tx_packets: 101,
            rx_bytes: 102,
            tx_bytes: 103,
            rx_errors: 104,
            tx_errors: 105,
            rx_dropped: 106,
            tx_dropped: 107,
            rx_length_errors: 110,
            rx_over_errors: 111,
            rx_crc_errors: 112,
            rx_frame_errors: 113,
            rx_fifo_errors: 114,
            rx_missed_errors: 115,
            tx_carrier_errors: 117,
            tx_fifo_errors: 118,
            rx_nohandler: 123,
            carrier: true,
            carrier_changes: 5,
        };
        assert_eq!(parse(&body), Some((7, ("eth0".to_owned(), expected))));
        assert_eq!(parse(&body[..body.len() - 100]), None);
    }

    /// A device that passes what the other end of the pair is too small for drops it.
    #[test]
    fn a_pair_counts_what_sysfs_counts() {
        if skip_without_namespaces("link_statistics::a_pair_counts_what_sysfs_counts") {
            return;
        }
        let name = format!("wirecost-test-{}-link-statistics", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("near", "far", &namespace).unwrap();
        links.set_mtu("far", 1000).unwrap();
        links.add_address("near", "198.18.0.1".parse().unwrap(), 24).unwrap();
        links.up("near").unwrap();
        links.up("far").unwrap();
        links.wait_until_running("near", std::time::Duration::from_secs(10)).unwrap();
        let far = links.get("far").unwrap();
        let address = far.address.as_deref().unwrap();
        links.add_neighbours("near", [("198.18.0.2".parse().unwrap(), address)]).unwrap();
        namespace
            .run(|| {
                let socket = std::net::UdpSocket::bind("198.18.0.1:0").unwrap();
                for _ in 0..17 {
                    socket.send_to(&[7; 1200], "198.18.0.2:9").unwrap();
                }
            })
            .unwrap();
        let reader = namespace.run(LinkStatisticsReader::open).unwrap().unwrap();
        let all = reader.read().unwrap();
        let (name, statistics) = &all[&far.index];
        assert_eq!((name.as_str(), statistics.rx_dropped), ("far", 17));
        let sysfs = NetSysfs::of(&namespace).unwrap();
        let told = sysfs.read("class/net/far/statistics/rx_dropped").unwrap();
        assert_eq!(told, "17");
    }
}
