//! The most payload that the link of the driving host can carry, so that a load beyond it is called impossible
//! before it is tried.

use wirecost_lab::Lab;
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::Links as Devices;
use wirecost_linux::route::source_address;
use wirecost_model::link::{Capacity, LinkSpec, Topology, WIRE_OVERHEAD};
use wirecost_model::profile::Profile;
use wirecost_model::warning::{ImpossibleLoad, Warning};
use wirecost_profile::protocols;
use wirecost_program::offered::{self, Traffic};
use wirecost_program::program;

use super::hosts::HostOptions;
use super::options::load::offer;
use crate::Failure;
use crate::commands::link_options::Links;

/// Headers of IPv4 (RFC 791) and UDP (RFC 768). Those of IPv6 are longer: what is impossible with these is
/// impossible with any.
const IP_AND_UDP: f64 = 28.0;
/// What tbf charges for Ethernet: the header alone, as that is what the kernel's packets have.
const TBF_OVERHEAD: f64 = 14.0;

/// The rate of a link, and what the traffic of a profile needs of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinkRate {
    /// Bits on the wire per second.
    pub(crate) wire: u64,
    /// The largest offered load: bits of payload per second, both directions together.
    pub(crate) payload: u64,
}

/// What limits the traffic to the peers and that from them, bits on the wire per second.
struct Limits {
    rates: [Option<u64>; 2],
    /// Bytes of Ethernet with each packet.
    overhead: f64,
}

impl LinkRate {
    /// For the traffic of this profile; `None` where the rate of the link is unknown, or no load can be
    /// offered.
    pub(crate) fn of(
        hosts: &HostOptions,
        lab: Option<&Lab>,
        profile: &Profile,
    ) -> Result<Option<Self>, Failure> {
        let peers = program::remote_hosts(profile).len() as u64;
        Ok(limits(hosts, lab, peers)?.and_then(|limits| limits.payload(profile)))
    }

    /// Why the load that a profile offers is impossible; `None` if it is not.
    pub(crate) fn refuses(&self, profile: &Profile) -> Option<Warning> {
        let offered = offered::bits_per_second(profile)?;
        let Self { wire, payload } = *self;
        // What is offered is made of rounded rates of strands.
        (offered > payload as f64 * (1.0 + 1e-9))
            .then(|| Warning::from(ImpossibleLoad { offered, link: wire, payload }))
    }
}

fn limits(hosts: &HostOptions, lab: Option<&Lab>, peers: u64) -> Result<Option<Limits>, Failure> {
    Ok(match (lab, hosts.lab.as_deref()) {
        (Some(lab), _) => match (lab.rate_bits_per_second(), lab.emulated()) {
            (Some(rate), _) => Some(of_switch(rate, peers)),
            (None, Some((topology, link, _))) => of_links(topology, link, peers, lab.hosts().len()),
            (None, None) => None,
        },
        (None, Some("")) => match hosts.links()? {
            Links::Plain => None,
            Links::Rate(rate) => Some(of_switch(rate, peers)),
            Links::Emulated { topology, link, .. } => {
                let by_hosts = if peers == 1 { Topology::Pair } else { Topology::Star };
                of_links(topology.unwrap_or(by_hosts), &link, peers, peers as usize + 1)
            }
        },
        // Whoever needs the lab tells why it cannot be opened.
        (None, Some(name)) => match Lab::open(name) {
            Ok(lab) => limits(hosts, Some(&lab), peers)?,
            Err(_) => None,
        },
        (None, None) => of_device(hosts),
    })
}

/// Ports of a switch: each host has one.
fn of_switch(rate: u64, peers: u64) -> Limits {
    Limits { rates: [Some(rate * peers), Some(rate)], overhead: TBF_OVERHEAD }
}

fn of_links(topology: Topology, link: &LinkSpec, peers: u64, hosts: usize) -> Option<Limits> {
    let rate = |capacity: &Capacity, times: u64| match capacity {
        Capacity::Rate(rate) => Some(rate * times),
        // What a trace carries at its best is no limit of a whole run.
        Capacity::Unlimited | Capacity::Steps(_) | Capacity::Opportunities(_) => None,
    };
    let links = match topology {
        Topology::Pair | Topology::Star => peers,
        Topology::Dumbbell if Topology::left(hosts) == 1 => 1,
        // Hosts on one side do not share the link.
        Topology::Dumbbell => return None,
    };
    let rates = [rate(&link.forward.capacity, links), rate(&link.back.capacity, 1)];
    Some(Limits { rates, overhead: f64::from(WIRE_OVERHEAD) })
}

/// The device by which this host reaches the agents, if it is one and is hardware.
fn of_device(hosts: &HostOptions) -> Option<Limits> {
    if hosts.hosts.is_empty() || !hosts.uses_this_machine() {
        return None;
    }
    let devices = Devices::here().ok()?;
    let mut index = None;
    for host in &hosts.hosts {
        let peer = host.data_address()?;
        let towards = devices.index_of_address(source_address(peer).ok()?).ok()??;
        if index.is_some_and(|index| index != towards) {
            return None;
        }
        index = Some(towards);
    }
    let device = devices.list().ok()?.into_iter().find(|device| Some(device.index) == index)?;
    let ethtool = Ethtool::open().ok()?;
    let is_hardware = ethtool.driver(&device.name).is_ok_and(|driver| driver.bus.is_some());
    let rate = ethtool.speed(&device.name).ok().filter(|_| is_hardware)?;
    Some(Limits { rates: [Some(rate); 2], overhead: f64::from(WIRE_OVERHEAD) })
}

impl Limits {
    /// The most payload of a profile's traffic.
    fn payload(&self, profile: &Profile) -> Option<LinkRate> {
        // Any load will do: the directions keep their proportion.
        let load = 1_000_000_000;
        let mut profile = profile.clone();
        offer(&mut profile, load).ok()?;
        let traffic = offered::traffic(&profile)?;
        let of_datagrams = if uses_datagrams(&profile) { IP_AND_UDP + self.overhead } else { 0.0 };
        let on_wire = |traffic: &Traffic| {
            8.0 * (traffic.bytes_per_second + of_datagrams * traffic.messages_per_second)
        };
        let most = self.rates.iter().zip(&traffic).filter_map(|(rate, traffic)| {
            let (rate, needed) = ((*rate)?, on_wire(traffic));
            (needed > 0.0).then(|| (load as f64 * rate as f64 / needed, rate))
        });
        let (payload, wire) = most.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(LinkRate { wire, payload: payload as u64 })
    }
}

/// Whether the profile moves datagrams, which may be lost.
pub(crate) fn uses_datagrams(profile: &Profile) -> bool {
    let transactions = profile.groups.iter().flat_map(|group| &group.transactions);
    let mut protocols = transactions
        .flat_map(|transaction| &transaction.flowops)
        .filter_map(|flowop| flowop.options.protocol.as_deref().and_then(protocols::find));
    protocols.any(|protocol| !protocol.delivery().is_reliable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::link_options::LinkOptions;

    fn rate(profile: &str, links: &[(&str, &str)], back: &[(&str, &str)]) -> Option<LinkRate> {
        let mut options = LinkOptions::default();
        links.iter().for_each(|(key, value)| options.set(key, value));
        back.iter().for_each(|(key, value)| options.set_back(key, value));
        let hosts =
            HostOptions { lab: Some(String::new()), links: options, ..HostOptions::default() };
        let name = |_| Some("h2".to_owned());
        let loaded = crate::profile::load(profile, &[], &mut { name }).unwrap();
        LinkRate::of(&hosts, None, &loaded.profile).unwrap()
    }

    #[test]
    fn headers_are_part_of_what_a_link_carries() {
        // 1400 bytes of payload, 28 of headers, 38 or 14 of Ethernet.
        let payload = |overhead: f64| (1e8 * 1400.0 / (1428.0 + overhead)) as u64;
        let of = |links: &[(&str, &str)]| rate("@udp-stream", links, &[]);
        let emulated = of(&[("rate", "100mbit"), ("rtt", "1ms")]).unwrap();
        assert_eq!((emulated.wire, emulated.payload), (100_000_000, payload(38.0)));
        assert_eq!(of(&[("rate", "100mbit")]).unwrap().payload, payload(14.0));
        assert_eq!(of(&[("rtt", "1ms")]), None);
        assert_eq!(of(&[]), None);
        // How TCP cuts its bytes is not known beforehand.
        let stream = rate("@stream", &[("rate", "100mbit"), ("rtt", "1ms")], &[]).unwrap();
        assert_eq!(stream.payload, 100_000_000);
    }

    #[test]
    fn each_direction_has_its_own_limit() {
        // 64 bytes each way, of which the way back is the narrower.
        let both = rate("@udp-rr", &[("rate", "100mbit"), ("rtt", "1ms")], &[("rate", "10mbit")]);
        let both = both.unwrap();
        assert_eq!(both.wire, 10_000_000);
        assert_eq!(both.payload, (2e7 * 64.0 / (64.0 + 66.0)) as u64);
    }

    #[test]
    fn hosts_behind_one_link_share_it() {
        let carried = |topology: &str| {
            let mut options = LinkOptions::default();
            options.set("rate", "100mbit");
            options.set("topology", topology);
            let hosts =
                HostOptions { lab: Some(String::new()), links: options, ..HostOptions::default() };
            let name = |number| Some(format!("h{}", number + 2));
            let loaded = crate::profile::load("@two-paths", &[], &mut { name }).unwrap();
            LinkRate::of(&hosts, None, &loaded.profile).unwrap().unwrap().payload
        };
        assert_eq!([carried("star"), carried("dumbbell")], [200_000_000, 100_000_000]);
    }

    #[test]
    fn a_load_beyond_the_link_says_what_it_carries() {
        let rate = LinkRate { wire: 100_000_000, payload: 95_497_954 };
        let name = |_| Some("h2".to_owned());
        let mut profile = crate::profile::load("@udp-stream", &[], &mut { name }).unwrap().profile;
        offer(&mut profile, 95_000_000).unwrap();
        assert_eq!(rate.refuses(&profile), None);
        offer(&mut profile, 120_000_000).unwrap();
        let text = rate.refuses(&profile).unwrap().to_string();
        let wanted = "an offered load of 120 Mb/s is impossible: the link has 100 Mb/s, which carries at \
                      most 95.5 Mb/s of payload";
        assert!(text.contains(wanted), "{text}");
    }
}
