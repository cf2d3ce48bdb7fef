//! Network devices and their addresses, by route netlink (rtnetlink(7)). The library speaks async;
//! a runtime of the calling thread is kept inside, and every request has a deadline.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoData, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    MacVlanMode, State,
};
use rtnetlink::packet_route::tc::{TcAttribute, TcMessage};
use rtnetlink::{LinkBridge, LinkMacVlan, LinkUnspec, LinkVeth};

use crate::netns::{NetNs, NetNsError};

/// The kernel answers at once; an answer that does not come is lost.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes.
const ETHERNET_HEADER: u32 = 14;

/// The devices of one network namespace.
#[derive(Debug)]
pub struct Links {
    runtime: tokio::runtime::Runtime,
    handle: rtnetlink::Handle,
}

/// What the kernel says of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `veth`, `bridge`...; `None` for hardware and `lo`.
    pub kind: Option<String>,
    pub mtu: Option<u32>,
    pub tx_queue_len: Option<u32>,
    /// Kind of its root queueing discipline.
    pub qdisc: Option<String>,
    /// What its administrator says of it (`ip link set ... alias`).
    pub alias: Option<String>,
    /// Its hardware address, as `02:00:00:00:00:01`; `None` where it has none, as a TUN device.
    pub address: Option<String>,
    /// Index of the bridge, bond or team that it is a port of.
    pub controller: Option<u32>,
    /// Index of the device of this namespace that it is made on, as of a VLAN.
    pub lower: Option<u32>,
    /// Packets that the device dropped as it had no place for them.
    pub rx_missed: Option<u64>,
    pub is_loopback: bool,
    /// Bytes before the IP header of a packet as the device counts it: those of an Ethernet header, or none. `lo` takes its
    /// header off first (`loopback_xmit` in <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/loopback.c>).
    pub header_bytes: u32,
    /// Switched on by the administrator.
    pub up: bool,
    /// Able to carry packets, as RFC 2863 defines it. `lo` has no such state and counts as able
    /// when it is up. A device that has just lost its carrier does not: the kernel follows the carrier
    /// only once a second (`linkwatch_schedule_work` in
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/core/link_watch.c>).
    pub running: bool,
}

impl Links {
    /// Devices of the calling thread's namespace.
    ///
    /// # Errors
    /// [`LinkError::Netlink`] when no netlink socket can be had.
    pub fn here() -> Result<Self, LinkError> {
        Self::open().map_err(|source| LinkError::Socket { source })
    }

    /// Devices of a namespace, from any thread: the socket belongs to the namespace in which it
    /// was made.
    ///
    /// # Errors
    /// As [`Links::here`], and when the namespace cannot be entered.
    pub fn of(namespace: &NetNs) -> Result<Self, LinkError> {
        namespace.run(Self::here)?
    }

    fn open() -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let entered = runtime.enter();
        let (connection, handle, _) = rtnetlink::new_connection()?;
        drop(entered);
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// All devices, by index.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn list(&self) -> Result<Vec<Link>, LinkError> {
        let request = self.handle.link().get().execute();
        let messages: Vec<LinkMessage> =
            self.finish("list", "network devices", request.try_collect())?;
        let mut links: Vec<Link> = messages.iter().filter_map(Link::from_message).collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// Queueing disciplines of each device, by its index: how many there are of each kind. Those of
    /// queues and classes are among them, and the `ingress` or `clsact` that filters hang on.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn qdiscs(&self) -> Result<BTreeMap<u32, BTreeMap<String, u32>>, LinkError> {
        let request = self.handle.qdisc().get().execute();
        let messages: Vec<TcMessage> =
            self.finish("list", "queueing disciplines", request.try_collect())?;
        let mut qdiscs: BTreeMap<u32, BTreeMap<String, u32>> = BTreeMap::new();
        for message in &messages {
            let device = u32::try_from(message.header.index).unwrap_or_default();
            for attribute in &message.attributes {
                if let TcAttribute::Kind(kind) = attribute {
                    *qdiscs.entry(device).or_default().entry(kind.clone()).or_default() += 1;
                }
            }
        }
        Ok(qdiscs)
    }

    /// The device of a name.
    ///
    /// # Errors
    /// [`LinkError::Netlink`] with `NotFound` when there is none.
    pub fn get(&self, device: &str) -> Result<Link, LinkError> {
        self.list()?.into_iter().find(|link| link.name == device).ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no such device");
            LinkError::netlink("find", device, source)
        })
    }

    /// Makes a pair of devices joined by a wire: `device` here, `peer` in `peer_namespace`. Neither
    /// is ever in another namespace.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn add_veth(
        &self,
        device: &str,
        peer: &str,
        peer_namespace: &NetNs,
    ) -> Result<(), LinkError> {
        self.add_veth_with(device, peer, peer_namespace, &[])
    }

    /// As [`Links::add_veth`], with so many receive queues, and as many transmit queues, of each end.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn add_veth_with_queues(
        &self,
        device: &str,
        peer: &str,
        peer_namespace: &NetNs,
        queues: u32,
    ) -> Result<(), LinkError> {
        let queues = [LinkAttribute::NumRxQueues(queues), LinkAttribute::NumTxQueues(queues)];
        self.add_veth_with(device, peer, peer_namespace, &queues)
    }

    /// `attributes` are those of both ends.
    fn add_veth_with(
        &self,
        device: &str,
        peer: &str,
        peer_namespace: &NetNs,
        attributes: &[LinkAttribute],
    ) -> Result<(), LinkError> {
        let mut far_end = LinkMessage::default();
        far_end.attributes = vec![
            LinkAttribute::IfName(peer.to_owned()),
            LinkAttribute::NetNsFd(peer_namespace.as_fd().as_raw_fd()),
        ];
        far_end.attributes.extend_from_slice(attributes);
        let mut message = LinkVeth::new(device, peer)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far_end)))
            .build();
        message.attributes.extend_from_slice(attributes);
        self.finish("create", device, self.handle.link().add(message).execute())
    }

    /// Makes a bridge without spanning tree: a switch.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn add_bridge(&self, device: &str) -> Result<(), LinkError> {
        let message = LinkBridge::new(device).build();
        self.finish("create", device, self.handle.link().add(message).execute())
    }

    /// Makes a device that sends and receives through another one, with an address of its own (macvlan).
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn add_macvlan(&self, device: &str, lower: &str) -> Result<(), LinkError> {
        let lower = self.get(lower)?.index;
        let message = LinkMacVlan::new(device, lower, MacVlanMode::Bridge).build();
        self.finish("create", device, self.handle.link().add(message).execute())
    }

    /// Makes `device` a port of `bridge`.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn attach(&self, device: &str, bridge: &str) -> Result<(), LinkError> {
        let port = LinkUnspec::new_with_index(self.get(device)?.index);
        let message = port.controller(self.get(bridge)?.index).build();
        self.finish("attach to a bridge", device, self.handle.link().set(message).execute())
    }

    /// Moves a device to another namespace, where it is down and has no address.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn move_to(&self, device: &str, namespace: &NetNs) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(self.get(device)?.index)
            .setns_by_fd(namespace.as_fd().as_raw_fd())
            .build();
        self.finish("move", device, self.handle.link().set(message).execute())
    }

    /// Gives a device an address that is usable at once: duplicate address detection of IPv6
    /// (RFC 4862, 5.4) is left out.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn add_address(
        &self,
        device: &str,
        address: IpAddr,
        prefix_length: u8,
    ) -> Result<(), LinkError> {
        let index = self.get(device)?.index;
        let mut request = self.handle.address().add(index, address, prefix_length);
        if address.is_ipv6() {
            request.message_mut().header.flags = AddressHeaderFlags::Nodad;
        }
        self.finish("give an address to", device, request.execute())
    }

    /// Notes hardware addresses (`02:00:00:00:00:01`) of other hosts for good, so that nobody asks for them.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn add_neighbours<'a>(
        &self,
        device: &str,
        neighbours: impl IntoIterator<Item = (IpAddr, &'a str)>,
    ) -> Result<(), LinkError> {
        const ACT: &str = "add a neighbour to";
        let index = self.get(device)?.index;
        for (address, hardware) in neighbours {
            let bytes: Result<Vec<u8>, _> =
                hardware.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
            let bytes =
                bytes.map_err(|error| LinkError::netlink(ACT, device, io::Error::other(error)))?;
            let request = self.handle.neighbours().add(index, address).link_layer_address(&bytes);
            self.finish(ACT, device, request.replace().execute())?;
        }
        Ok(())
    }

    /// Index of the device that has an address; `None` where none has it.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn index_of_address(&self, address: IpAddr) -> Result<Option<u32>, LinkError> {
        let request = self.handle.address().get().execute();
        let messages: Vec<AddressMessage> =
            self.finish("list", "addresses", request.try_collect())?;
        let is_it = |message: &&AddressMessage| {
            message.attributes.iter().any(|attribute| match attribute {
                // Of a point-to-point device `Address` is the far end's.
                AddressAttribute::Local(local) => *local == address,
                AddressAttribute::Address(of) => address.is_ipv6() && *of == address,
                _ => false,
            })
        };
        Ok(messages.iter().find(is_it).map(|message| message.header.index))
    }

    /// Sets the largest packet that a device sends, in bytes without the link's header.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn set_mtu(&self, device: &str, bytes: u32) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(self.get(device)?.index).mtu(bytes).build();
        self.finish("set the MTU of", device, self.handle.link().set(message).execute())
    }

    /// Sets how many packets the queueing disciplines of a device hold that have no limit of their own.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn set_tx_queue_len(&self, device: &str, packets: u32) -> Result<(), LinkError> {
        let index = self.get(device)?.index;
        let message = LinkUnspec::new_with_index(index).txqueuelen(packets).build();
        self.finish("set the queue length of", device, self.handle.link().set(message).execute())
    }

    /// Gives a device a text that says what it is for, which every tool shows beside its name.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn set_alias(&self, device: &str, alias: &str) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(self.get(device)?.index)
            .append_extra_attribute(LinkAttribute::IfAlias(alias.to_owned()))
            .build();
        self.finish("name", device, self.handle.link().set(message).execute())
    }

    /// Switches a device on.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn up(&self, device: &str) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(self.get(device)?.index).up().build();
        self.finish("switch on", device, self.handle.link().set(message).execute())
    }

    /// Gives a device another name. Kernels before 6.2 want it switched off.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn rename(&self, device: &str, name: &str) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(self.get(device)?.index).name(name).build();
        self.finish("rename", device, self.handle.link().set(message).execute())
    }

    /// Removes a device, and the other end of a pair with it.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn delete(&self, device: &str) -> Result<(), LinkError> {
        let index = self.get(device)?.index;
        self.finish("delete", device, self.handle.link().del(index).execute())
    }

    /// Waits until a device can carry packets. A switched on pair cannot yet: the kernel sees to
    /// it in a work queue (`linkwatch`), and drops what is sent before.
    ///
    /// # Errors
    /// [`LinkError::Netlink`] with `TimedOut` after `patience`.
    pub fn wait_until_running(&self, device: &str, patience: Duration) -> Result<(), LinkError> {
        let end = Instant::now() + patience;
        while !self.get(device)?.running {
            if Instant::now() >= end {
                let source = io::Error::new(io::ErrorKind::TimedOut, "it has no carrier");
                return Err(LinkError::netlink("wait for", device, source));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn handle(&self) -> rtnetlink::Handle {
        self.handle.clone()
    }

    pub(crate) fn finish<T>(
        &self,
        act: &'static str,
        device: &str,
        request: impl Future<Output = Result<T, rtnetlink::Error>>,
    ) -> Result<T, LinkError> {
        let bounded = async { tokio::time::timeout(DEADLINE, request).await };
        let source = match self.runtime.block_on(bounded) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(rtnetlink::Error::NetlinkError(message))) => message.to_io(),
            Ok(Err(error)) => io::Error::other(error),
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the kernel did not answer"),
        };
        Err(LinkError::netlink(act, device, source))
    }
}

impl Link {
    fn from_message(message: &LinkMessage) -> Option<Self> {
        let up = message.header.flags.contains(LinkFlags::Up);
        let layer = message.header.link_layer_type;
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            kind: None,
            mtu: None,
            tx_queue_len: None,
            qdisc: None,
            alias: None,
            address: None,
            controller: None,
            lower: None,
            rx_missed: None,
            is_loopback: layer == LinkLayerType::Loopback,
            header_bytes: if layer == LinkLayerType::Ether { ETHERNET_HEADER } else { 0 },
            up,
            running: false,
        };
        let mut has_carrier = true;
        let mut state = None;
        let mut carrier_changes = 0;
        let elsewhere =
            |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::LinkNetNsId(_));
        let elsewhere = message.attributes.iter().any(elsewhere);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = Some(*mtu),
                LinkAttribute::TxQueueLen(length) => link.tx_queue_len = Some(*length),
                LinkAttribute::Qdisc(kind) => link.qdisc = Some(kind.clone()),
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::Address(bytes) if !bytes.is_empty() => {
                    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    link.address = Some(bytes.join(":"));
                }
                LinkAttribute::Controller(index) => link.controller = Some(*index),
                // `lo` and others name themselves or nothing.
                LinkAttribute::Link(index) if !elsewhere && *index != 0 && *index != link.index => {
                    link.lower = Some(*index);
                }
                LinkAttribute::Stats64(stats) => link.rx_missed = Some(stats.rx_missed_errors),
                LinkAttribute::OperState(told) => state = Some(*told),
                LinkAttribute::Carrier(carrier) => has_carrier = *carrier != 0,
                LinkAttribute::CarrierChanges(changes) => carrier_changes = *changes,
                LinkAttribute::LinkInfo(infos) => {
                    link.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        let can_carry = match state {
            Some(State::Up) => true,
            // Some drivers never tell a carrier. Of those that do, the kernel has not yet seen to the change
            // (`linkwatch_do_dev`), so it still drops what is sent.
            Some(State::Unknown) => carrier_changes == 0,
            _ => false,
        };
        link.running = up && has_carrier && can_carry;
        // The far end of a pair is no device that the near one is made on.
        if link.kind.as_deref() == Some("veth") {
            link.lower = None;
        }
        (!link.name.is_empty()).then_some(link)
    }
}

/// Why a device could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("failed to open a netlink socket")]
    Socket { source: io::Error },
    #[error("failed to {act} `{device}`")]
    Netlink { act: &'static str, device: String, source: io::Error },
    #[error(transparent)]
    Namespace(#[from] NetNsError),
}

impl LinkError {
    fn netlink(act: &'static str, device: &str, source: io::Error) -> Self {
        Self::Netlink { act, device: device.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNsGuard;
    use crate::privilege::skip_without_namespaces;

    fn namespace(of: &str) -> (NetNsGuard, NetNs) {
        let name = format!("wirecost-test-{}-{of}", std::process::id());
        let guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        (guard, NetNs::open(&name).unwrap())
    }

    /// The end of a pair has lost and got its carrier before the kernel has seen to either.
    #[test]
    fn a_device_whose_carrier_the_kernel_has_not_seen_to_is_not_running() {
        let told = |state, carrier, carrier_changes| {
            let mut message = LinkMessage::default();
            message.header.flags = LinkFlags::Up;
            message.attributes = vec![
                LinkAttribute::IfName("eth0".to_owned()),
                LinkAttribute::OperState(state),
                LinkAttribute::Carrier(carrier),
                LinkAttribute::CarrierChanges(carrier_changes),
            ];
            Link::from_message(&message).unwrap().running
        };
        assert!(told(State::Up, 1, 2));
        assert!(told(State::Unknown, 1, 0), "a device without a carrier of its own");
        assert!(!told(State::Unknown, 1, 2));
        assert!(!told(State::Up, 0, 3), "it has just lost it");
        assert!(!told(State::Down, 1, 2));
    }

    #[test]
    fn a_pair_joins_two_namespaces() {
        if skip_without_namespaces("link::a_pair_joins_two_namespaces") {
            return;
        }
        let (_a, a) = namespace("pair-a");
        let (_b, b) = namespace("pair-b");
        let (links_a, links_b) = (Links::of(&a).unwrap(), Links::of(&b).unwrap());
        links_a.add_veth("eth0", "eth0", &b).unwrap();
        for (links, address) in [(&links_a, "198.18.0.1"), (&links_b, "198.18.0.2")] {
            links.add_address("eth0", address.parse().unwrap(), 24).unwrap();
            links.up("eth0").unwrap();
        }
        for links in [&links_a, &links_b] {
            links.wait_until_running("eth0", Duration::from_secs(5)).unwrap();
            let link = links.get("eth0").unwrap();
            assert_eq!(link.kind.as_deref(), Some("veth"));
            assert_eq!(link.mtu, Some(1500));
            assert_eq!(link.address.unwrap().len(), 17);
            assert_eq!(link.lower, None, "the far end is in another namespace");
            assert_eq!(link.qdisc.as_deref(), Some("noqueue"));
        }
        let near = links_a.get("eth0").unwrap().index;
        let of = |address: &str| links_a.index_of_address(address.parse().unwrap()).unwrap();
        assert_eq!((of("198.18.0.1"), of("198.18.0.2")), (Some(near), None));
        links_a.set_mtu("eth0", 9000).unwrap();
        links_a.set_tx_queue_len("eth0", 17).unwrap();
        let link = links_a.get("eth0").unwrap();
        // The far end that is switched off takes the carrier, of which the kernel tells only later.
        let far = links_b.get("eth0").unwrap().index;
        let down = LinkUnspec::new_with_index(far).down().build();
        links_b.finish("switch off", "eth0", links_b.handle.link().set(down).execute()).unwrap();
        assert!(!links_a.get("eth0").unwrap().running);
        links_b.up("eth0").unwrap();
        links_a.wait_until_running("eth0", Duration::from_secs(5)).unwrap();
        assert_eq!((link.mtu, link.tx_queue_len), (Some(9000), Some(17)));
        assert!(links_a.set_mtu("eth0", 1).is_err());
        links_a.delete("eth0").unwrap();
        let error = links_b.get("eth0").unwrap_err();
        assert_eq!(error.to_string(), "failed to find `eth0`");
    }

    #[test]
    fn a_bridge_takes_ports_and_devices_move() {
        if skip_without_namespaces("link::a_bridge_takes_ports_and_devices_move") {
            return;
        }
        let (_a, a) = namespace("bridge-a");
        let (_b, b) = namespace("bridge-b");
        let links = Links::of(&a).unwrap();
        links.add_bridge("br0").unwrap();
        links.add_veth("port", "eth0", &b).unwrap();
        links.attach("port", "br0").unwrap();
        let bridge = links.get("br0").unwrap().index;
        assert_eq!(links.get("port").unwrap().controller, Some(bridge));
        links.add_bridge("br1").unwrap();
        // A bridge cannot leave its namespace, a pair's end can.
        assert!(links.move_to("br1", &b).is_err());
        links.move_to("port", &b).unwrap();
        assert_eq!(links.get("br1").unwrap().kind.as_deref(), Some("bridge"));
        assert!(Links::of(&b).unwrap().get("port").is_ok());
    }

    #[test]
    fn queueing_disciplines_are_counted_by_device_and_kind() {
        if skip_without_namespaces("link::queueing_disciplines_are_counted_by_device_and_kind") {
            return;
        }
        let (_a, a) = namespace("qdiscs");
        let links = Links::of(&a).unwrap();
        links.add_veth("one", "other", &a).unwrap();
        let indices = ["one", "other"].map(|device| {
            links.up(device).unwrap();
            links.get(device).unwrap().index
        });
        let add = links.handle.qdisc().add(indices[0] as i32).ingress().execute();
        links.finish("add a queueing discipline to", "one", add).unwrap();
        let qdiscs = links.qdiscs().unwrap();
        let kinds = |index| qdiscs[&index].clone().into_iter().collect::<Vec<_>>();
        assert_eq!(kinds(indices[0]), [("ingress".to_owned(), 1), ("noqueue".to_owned(), 1)]);
        assert_eq!(kinds(indices[1]), [("noqueue".to_owned(), 1)]);
    }

    #[test]
    fn an_error_of_the_kernel_keeps_its_number() {
        if skip_without_namespaces("link::an_error_of_the_kernel_keeps_its_number") {
            return;
        }
        let (_a, a) = namespace("errors");
        let links = Links::of(&a).unwrap();
        links.add_bridge("br0").unwrap();
        let Err(LinkError::Netlink { source, .. }) = links.add_bridge("br0") else {
            panic!("a second bridge of one name was made");
        };
        assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn devices_of_this_thread() {
        let links = Links::here().unwrap().list().unwrap();
        assert!(links.iter().any(|link| link.name == "lo"));
    }
}
