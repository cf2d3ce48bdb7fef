//! The root queueing discipline of a device, by route netlink (tc(8)).

use std::collections::BTreeMap;
use std::io;

use crate::netlink::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, Netlink, attribute, message,
    u32_at, with_header,
};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/rtnetlink.h> and pkt_sched.h.
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STAB: u16 = 8;
const TCA_STAB_BASE: u16 = 1;
const TC_LINKLAYER_ETHERNET: u32 = 1;
// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/gen_stats.h>
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
/// Bytes of an Ethernet header, which are in the length of a packet that a device sends.
const ETHERNET_HEADER: i32 = 14;
const TC_H_ROOT: u32 = 0xffff_ffff;
/// Handle of `ingress` and `clsact`, which queue nothing.
const TC_H_INGRESS: u32 = 0xffff_0000;
/// Of `struct tcmsg`.
const TCMSG_BYTES: usize = 20;

/// A queueing discipline of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// As `fq_codel`.
    pub kind: String,
    /// 0 of one that the kernel attached by itself.
    pub handle: u32,
    pub parent: u32,
    /// Its parameters, as the kernel writes them.
    pub options: Vec<u8>,
}

impl Qdisc {
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.parent == TC_H_ROOT
    }
}

/// What a queueing discipline has done since it was set, and what is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QdiscStatistics {
    /// Sent.
    pub packets: u64,
    pub bytes: u64,
    pub drops: u32,
    /// How often it had packets and did not send.
    pub overlimits: u32,
    /// Waiting.
    pub backlog_packets: u32,
    pub backlog_bytes: u32,
}

/// Which bytes of a packet a queueing discipline counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charge {
    /// All that the device sends.
    Frame,
    /// Without the Ethernet header (tc-stab(8)).
    FromIpHeader,
}

/// Reads and sets the queueing disciplines of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Qdiscs(Netlink);

impl Qdiscs {
    /// # Errors
    /// When no netlink socket can be had.
    pub fn open() -> io::Result<Self> {
        Netlink::route().map(Self)
    }

    /// Those through which a device sends, so without `ingress` and `clsact`. Of a device that is down the
    /// kernel tells only those that were set.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn of_device(&self, index: u32) -> io::Result<Vec<Qdisc>> {
        let mut qdiscs = Vec::new();
        let request = message(RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, &header(index, 0, 0));
        self.0.ask(&request, |body| {
            qdiscs.extend(parse(body).filter(|(of, _)| *of == index).map(|(_, qdisc)| qdisc));
        })?;
        qdiscs.retain(|qdisc| qdisc.handle != TC_H_INGRESS);
        Ok(qdiscs)
    }

    /// Those of all devices at their roots, by index of the device.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn statistics(&self) -> io::Result<BTreeMap<u32, (Qdisc, QdiscStatistics)>> {
        let mut all = BTreeMap::new();
        let request = message(RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, &header(0, 0, 0));
        self.0.ask(&request, |body| {
            if let (Some((index, qdisc)), Some(statistics)) = (parse(body), parse_statistics(body))
                && qdisc.is_root()
            {
                all.insert(index, (qdisc, statistics));
            }
        })?;
        Ok(all)
    }

    /// Replaces the root of a device; without options by one with the parameters of its kind. Handle 0
    /// lets the kernel choose one.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no such kind; the kernel's own.
    pub fn replace_root(
        &self,
        index: u32,
        kind: &str,
        handle: u32,
        options: &[u8],
    ) -> io::Result<()> {
        self.put_root(index, kind, handle, options, Charge::Frame)
    }

    pub(crate) fn put_root(
        &self,
        index: u32,
        kind: &str,
        handle: u32,
        options: &[u8],
        charge: Charge,
    ) -> io::Result<()> {
        let mut body = header(index, handle, TC_H_ROOT);
        body.extend(with_header(TCA_KIND, &[kind.as_bytes(), b"\0"].concat()));
        if !options.is_empty() {
            body.extend(with_header(TCA_OPTIONS, options));
        }
        if charge == Charge::FromIpHeader {
            body.extend(with_header(TCA_STAB, &with_header(TCA_STAB_BASE, &size_specification())));
        }
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.0.ask(&message(RTM_NEWQDISC, flags, &body), |_| {})
    }

    /// Removes the root of a device, which then has the kernel's own again.
    ///
    /// # Errors
    /// `NotFound` where it has the kernel's own; the kernel's own.
    pub fn delete_root(&self, index: u32) -> io::Result<()> {
        let request =
            message(RTM_DELQDISC, NLM_F_REQUEST | NLM_F_ACK, &header(index, 0, TC_H_ROOT));
        self.0.ask(&request, |_| {})
    }
}

/// `struct tcmsg`.
fn header(index: u32, handle: u32, parent: u32) -> Vec<u8> {
    [[0; 4], index.to_ne_bytes(), handle.to_ne_bytes(), parent.to_ne_bytes(), [0; 4]].concat()
}

/// `struct tc_sizespec` without a table: all lengths are shorter by the Ethernet header.
fn size_specification() -> Vec<u8> {
    let [none, overhead] = [0u32.to_ne_bytes(), (-ETHERNET_HEADER).to_ne_bytes()];
    let layer = TC_LINKLAYER_ETHERNET.to_ne_bytes();
    [none, overhead, layer, none, none, none].concat()
}

fn parse_statistics(body: &[u8]) -> Option<QdiscStatistics> {
    let statistics = attribute(body.get(TCMSG_BYTES..)?, TCA_STATS2)?;
    let (basic, queue) =
        (attribute(statistics, TCA_STATS_BASIC)?, attribute(statistics, TCA_STATS_QUEUE)?);
    let u64_of = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?));
    // There where 32 bits are too few.
    let packets = attribute(statistics, TCA_STATS_PKT64).and_then(u64_of);
    Some(QdiscStatistics {
        packets: packets.or_else(|| u32_at(basic, 8).map(u64::from))?,
        bytes: u64_of(basic)?,
        backlog_packets: u32_at(queue, 0)?,
        backlog_bytes: u32_at(queue, 4)?,
        drops: u32_at(queue, 8)?,
        overlimits: u32_at(queue, 16)?,
    })
}

/// Index of the device, and what it has.
fn parse(body: &[u8]) -> Option<(u32, Qdisc)> {
    let attributes = body.get(TCMSG_BYTES..)?;
    let kind = attribute(attributes, TCA_KIND)?;
    let kind = kind.split(|&byte| byte == 0).next().unwrap_or_default();
    let qdisc = Qdisc {
        kind: String::from_utf8_lossy(kind).into_owned(),
        handle: u32_at(body, 8)?,
        parent: u32_at(body, 12)?,
        options: attribute(attributes, TCA_OPTIONS).unwrap_or_default().to_vec(),
    };
    Some((u32_at(body, 4)?, qdisc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;
    use crate::rate_limit::RateLimit;

    #[test]
    fn a_root_is_replaced_removed_and_made_again() {
        if skip_without_namespaces("qdisc::a_root_is_replaced_removed_and_made_again") {
            return;
        }
        let name = format!("wirecost-test-{}-root-qdisc", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("near", "far", &namespace).unwrap();
        links.up("near").unwrap();
        let index = links.get("near").unwrap().index;
        let qdiscs = namespace.run(Qdiscs::open).unwrap().unwrap();
        let root = || qdiscs.of_device(index).unwrap().into_iter().find(Qdisc::is_root);
        assert!(root().is_none_or(|root| root.handle == 0));
        let limit =
            RateLimit { bits_per_second: 1_000_000, burst_bytes: 80_000, queue_bytes: 200_000 };
        links.limit_rate("near", limit).unwrap();
        let limited = root().unwrap();
        assert_eq!((limited.kind.as_str(), limited.handle != 0), ("tbf", true));
        let wanted = links.rate_limit("near").unwrap();
        qdiscs.replace_root(index, "pfifo", 0, &[]).unwrap();
        assert_eq!(root().unwrap().kind, "pfifo");
        qdiscs.replace_root(index, &limited.kind, limited.handle, &limited.options).unwrap();
        assert_eq!(root().unwrap(), limited);
        assert_eq!(links.rate_limit("near").unwrap(), wanted);
        qdiscs.delete_root(index).unwrap();
        assert_eq!(links.get("near").unwrap().qdisc.as_deref(), Some("noqueue"));
        assert!(qdiscs.delete_root(index).is_err());
        let error = qdiscs.replace_root(index, "no-such-kind", 0, &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
