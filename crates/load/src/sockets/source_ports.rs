//! Source ports with which the packets of a strand go to a receive queue of the peer's device (`placement`).

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use wirecost_model::plan::{Address, Endpoints, ServiceAddresses};
use wirecost_model::profile::{IoValue, Options};
use wirecost_model::rss::{Fields, Flow, Placement, Spread};
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::placement::Placement as PlacementOption;
use wirecost_profile::protocols::Delivery;
use wirecost_program::step::{Action, Group, Open};

/// Below the ports that the kernel chooses from by default (net.ipv4.ip_local_port_range).
const PORTS: RangeInclusive<u16> = 10_000..=32_767;

/// The placement that a connection asks for.
fn placement(options: &Options) -> Option<Placement> {
    match PlacementOption.get(options)? {
        IoValue::Text(name) => {
            name.parse().ok().filter(|placement| *placement != Placement::Random)
        }
        _ => None,
    }
}

/// Whether the queue of a connection is selected.
pub(crate) fn has_placement(options: &Options) -> bool {
    placement(options).is_some()
}

/// Where the packets of one strand are to go.
pub(super) struct Destination {
    spread: Spread,
    queue: u32,
    /// Differs from strand to strand and from one connection to the next.
    first: u16,
}

impl Destination {
    /// # Errors
    /// Why the peer's device cannot be told where to put them.
    pub(super) fn of(
        open: &Open,
        endpoints: &Endpoints,
        (strand, attempt): (u32, u64),
        address: SocketAddr,
    ) -> Result<Option<Self>, String> {
        let Some(placement) = placement(&open.setup.options) else { return Ok(None) };
        let spread = spread(open, endpoints, address)?;
        let queues = spread.queues();
        let queue = queues[placement.place(strand as usize, queues.len())];
        let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
        // Neighbours are far enough from each other to find ports of their own.
        let first = (u64::from(strand) * 97 + attempt * 7919) % ports;
        Ok(Some(Self { spread, queue, first: PORTS.start() + first as u16 }))
    }

    /// Ports of this host's address that lead there, in the order in which to try them.
    pub(super) fn ports(&self, source: IpAddr, to: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let ports = (self.first..=*PORTS.end()).chain(*PORTS.start()..self.first);
        let sources = ports.map(move |port| SocketAddr::new(source, port));
        sources.filter(move |&source| {
            self.spread.queue(self.spread.hash(source, to)) == Some(self.queue)
        })
    }
}

/// How the peer's device spreads such connections.
fn spread(open: &Open, endpoints: &Endpoints, address: SocketAddr) -> Result<Spread, String> {
    let peer = endpoints.hosts.get(open.service.host as usize);
    let told = peer.and_then(|peer| peer.spreading.as_ref());
    let told =
        told.ok_or("the peer's device does not tell how it spreads packets over receive queues")?;
    let datagrams = open.protocol.delivery() == Delivery::Datagrams;
    let flow = Flow::of(datagrams, address.ip().to_canonical());
    told.spread(flow).map_err(|hidden| format!("the peer's device does not tell {hidden}"))
}

/// Whether all connections of a host's groups can be placed as they ask for.
///
/// # Errors
/// Why not, with the remedy.
pub(crate) fn check(groups: &[Group], endpoints: &Endpoints) -> Result<(), String> {
    let phases = groups
        .iter()
        .flat_map(|group| group.phases.iter().flatten().map(move |phase| (group, phase)));
    for (group, step) in
        phases.flat_map(|(group, phase)| phase.steps.iter().map(move |step| (group, step)))
    {
        let Action::Connect(open) = &step.action else { continue };
        let Some(placement) = placement(&open.setup.options) else { continue };
        let service = endpoints
            .hosts
            .get(open.service.host as usize)
            .and_then(|peer| peer.services.get(open.service.service as usize));
        let data = service.and_then(ServiceAddresses::data_address);
        let addresses = service.iter().flat_map(|service| &service.addresses);
        let mut inet = data.iter().chain(addresses).filter_map(|address| match address {
            Address::Inet(address) => Some(*address),
            _ => None,
        });
        let Some(address) = inet.next() else { continue };
        let refused = |reason: String| format!("placement={placement}: {reason}");
        let spread = spread(open, endpoints, address).map_err(refused)?;
        let queues = spread.queues().len();
        if placement == Placement::OnePerQueue && group.strands as usize > queues {
            return Err(refused(format!(
                "{} strands cannot have a queue each, as the peer's device has {queues}: use placement={}, or \
                 at most {queues} strands",
                group.strands,
                Placement::Even
            )));
        }
        if spread.fields == Fields::Addresses {
            return Err(refused(
                "the peer's device hashes addresses only, so that ports change nothing (ethtool -N DEV \
                 rx-flow-hash udp4 sdfn)"
                    .to_owned(),
            ));
        }
    }
    Ok(())
}
