//! Offloads and other features of a device: those that ethtool(8) abbreviates, which switch several of the
//! kernel's at once, and the kernel's own
//! (<https://elixir.bootlin.com/linux/v6.12/source/net/ethtool/common.c>).

use wirecost_linux::ethtool::Feature;

use super::{Scope, Tunable};
use crate::parts::{self, Part};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Offload {
    name: &'static str,
    /// By the kernel's names.
    features: &'static [&'static str],
    about: &'static str,
}

const fn offload(
    name: &'static str,
    features: &'static [&'static str],
    about: &'static str,
) -> Offload {
    Offload { name, features, about }
}

#[rustfmt::skip]
pub(super) const LIST: &[&dyn Tunable] = &[
    &offload("offload.tso", &["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"], "The device segments large TCP packets (TSO)."),
    &offload("offload.gso", &["tx-generic-segmentation"], "The kernel segments large packets just before the device (GSO)."),
    &offload("offload.gro", &["rx-gro"], "The kernel merges received packets (GRO)."),
    &offload("offload.lro", &["rx-lro"], "The device merges received packets; the original packet boundaries are lost (LRO)."),
    &offload("offload.sg", &["tx-scatter-gather"], "The device sends packets that are in several pieces; TSO and GSO need it."),
    &offload("offload.tx-checksum", &["tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-ip-generic"], "The device computes checksums of sent packets; TSO needs it."),
    &offload("offload.rx-checksum", &["rx-checksum"], "The device checks checksums of received packets."),
    &offload("offload.rx-hashing", &["rx-hashing"], "The device tells the kernel the hash of received packets."),
    &offload("offload.ntuple", &["rx-ntuple-filter"], "The device steers flows that match a filter; accelerated RFS needs it."),
    &offload("offload.rx-gro-hw", &["rx-gro-hw"], "The device merges received packets so that they can be segmented again (hardware GRO)."),
    &offload("offload.rx-gro-list", &["rx-gro-list"], "GRO of forwarded packets keeps them in a list."),
    &offload("offload.rx-udp-gro-forwarding", &["rx-udp-gro-forwarding"], "GRO merges UDP packets that are forwarded."),
    &offload("offload.tx-nocache-copy", &["tx-nocache-copy"], "Sent data is copied past the CPU's caches."),
    &offload("offload.tx-scatter-gather-fraglist", &["tx-scatter-gather-fraglist"], "The device sends packets that are lists of packets."),
    &offload("offload.tx-tcp-segmentation", &["tx-tcp-segmentation"], "The device segments large packets of TCP over IPv4."),
    &offload("offload.tx-tcp6-segmentation", &["tx-tcp6-segmentation"], "The device segments large packets of TCP over IPv6."),
    &offload("offload.tx-tcp-ecn-segmentation", &["tx-tcp-ecn-segmentation"], "The device segments large TCP packets with ECN's CWR flag."),
    &offload("offload.tx-tcp-mangleid-segmentation", &["tx-tcp-mangleid-segmentation"], "The device may give all segments of a packet of TCP over IPv4 the same IP identification."),
    &offload("offload.tx-udp-segmentation", &["tx-udp-segmentation"], "The device segments large UDP packets (USO)."),
    &offload("offload.tx-udp_tnl-segmentation", &["tx-udp_tnl-segmentation"], "The device segments large packets within UDP tunnels."),
    &offload("offload.tx-udp_tnl-csum-segmentation", &["tx-udp_tnl-csum-segmentation"], "The device segments large packets within UDP tunnels with checksums."),
    &offload("offload.tx-gre-segmentation", &["tx-gre-segmentation"], "The device segments large packets within GRE tunnels."),
    &offload("offload.tx-gre-csum-segmentation", &["tx-gre-csum-segmentation"], "The device segments large packets within GRE tunnels with checksums."),
    &offload("offload.tx-ipxip4-segmentation", &["tx-ipxip4-segmentation"], "The device segments large packets within IPv4 tunnels."),
    &offload("offload.tx-ipxip6-segmentation", &["tx-ipxip6-segmentation"], "The device segments large packets within IPv6 tunnels."),
    &offload("offload.tx-gso-partial", &["tx-gso-partial"], "The device segments large packets whose headers the kernel has prepared (GSO partial)."),
    &offload("offload.tx-gso-list", &["tx-gso-list"], "The device segments packets that are lists of packets."),
    &offload("offload.tx-sctp-segmentation", &["tx-sctp-segmentation"], "The device segments large SCTP packets."),
    &offload("offload.tx-esp-segmentation", &["tx-esp-segmentation"], "The device segments large packets of IPsec."),
    &offload("offload.tx-checksum-ipv4", &["tx-checksum-ipv4"], "The device computes checksums of TCP and UDP over IPv4."),
    &offload("offload.tx-checksum-ipv6", &["tx-checksum-ipv6"], "The device computes checksums of TCP and UDP over IPv6."),
    &offload("offload.tx-checksum-ip-generic", &["tx-checksum-ip-generic"], "The device computes the checksum of any protocol."),
    &offload("offload.tx-checksum-sctp", &["tx-checksum-sctp"], "The device computes checksums of SCTP."),
    &offload("offload.tx-vlan-hw-insert", &["tx-vlan-hw-insert"], "The device inserts VLAN tags."),
    &offload("offload.rx-vlan-hw-parse", &["rx-vlan-hw-parse"], "The device removes VLAN tags."),
    &offload("offload.esp-hw-offload", &["esp-hw-offload"], "The device encrypts IPsec."),
    &offload("offload.tls-hw-tx-offload", &["tls-hw-tx-offload"], "The device encrypts TLS of connections that use kTLS."),
    &offload("offload.tls-hw-rx-offload", &["tls-hw-rx-offload"], "The device decrypts TLS of connections that use kTLS."),
];

impl Offload {
    /// The features that the device has and that can be switched.
    fn changeable(&self, target: &Target) -> Result<Vec<(String, Feature)>, Refusal> {
        let (ethtool, device) = target.ethtool()?;
        let all =
            ethtool.features(device).map_err(Refusal::of_driver(device, "tell its features"))?;
        let found: Vec<_> = self
            .features
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), *all.get(*name)?)))
            .filter(|(_, feature)| feature.changeable)
            .collect();
        if found.is_empty() {
            let why = match self.features.iter().find_map(|name| all.get(*name)) {
                Some(feature) => {
                    format!("`{device}` has it always {}", values::on_off(feature.on))
                }
                None => "this kernel does not know it".to_owned(),
            };
            return Err(Refusal::Unsupported(why));
        }
        Ok(found)
    }
}

impl Tunable for Offload {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "on or off".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        parts::check(value, values::switch)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let part = |(name, feature): (String, Feature)| (name, values::on_off(feature.on));
        let parts: Vec<Part> = self.changeable(target)?.into_iter().map(part).collect();
        Ok(parts::join(&parts))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let now = self.changeable(target)?;
        let names: Vec<String> = now.iter().map(|(name, _)| name.clone()).collect();
        let (ethtool, device) = target.ethtool()?;
        for (name, value) in parts::spread(value, &names) {
            ethtool.set_feature(device, &name, value == "on").map_err(|source| match source.kind() {
                std::io::ErrorKind::Unsupported => Refusal::Unsupported(format!(
                    "the kernel keeps `{name}` of `{device}` as it is: another feature needs or lacks it"
                )),
                _ => Refusal::failed(format!("switch `{name}` of `{device}` {value}"))(source),
            })?;
        }
        Ok(())
    }

    /// The kernel switches off what needs a feature that is off, and on again what was wanted:
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c> (`netdev_fix_features`).
    fn disturbs(&self) -> Vec<&'static str> {
        LIST.iter().map(|tunable| tunable.name()).collect()
    }
}
