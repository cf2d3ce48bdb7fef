//! Source ports with which the packets of a strand go to a receive queue of the peer's device (`placement`).

use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use wirecost_model::plan::{Address, Endpoints, Identity, ServiceAddresses};
use wirecost_model::profile::{IoValue, Options};
use wirecost_model::program::Service;
use wirecost_model::rss::{DeviceSpreading, Fields, Flow, Placement, Spread};
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::placement::Placement as PlacementOption;
use wirecost_profile::io_options::server_sockets::ServerSockets;
use wirecost_profile::protocols::{self, Delivery};
use wirecost_program::hello::Hello;
use wirecost_program::step::{Action, Group, Open};

use super::observed::{ObservedFlows, Question, Wanted};
use crate::transports;

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

/// How the connection of a strand is placed.
pub(super) enum Placed {
    /// By source ports, as the peer's device tells how it spreads packets.
    ByTable(Destination),
    /// By what the peer tells of each connection.
    ByObservation(Wanted),
}

impl Placed {
    /// # Errors
    /// Why the packets cannot be placed.
    pub(super) fn of(
        open: &Open,
        endpoints: &Endpoints,
        observed: Option<&ObservedFlows>,
        (strand, attempt): (u32, u64),
        address: SocketAddr,
    ) -> Result<Option<Self>, String> {
        let Some(placement) = placement(&open.setup.options) else { return Ok(None) };
        if let Some(observed) = observed.and_then(|observed| observed.get(&open.service)) {
            let place = placement.place(strand as usize, observed.cpus.len());
            let wanted = observed.wanted(place, address);
            let wanted = wanted.ok_or("no CPU of the peer is known on which packets arrive")?;
            return Ok(Some(Self::ByObservation(wanted)));
        }
        let destination = Destination::of(placement, open, endpoints, (strand, attempt), address)?;
        Ok(Some(Self::ByTable(destination)))
    }
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
    fn of(
        placement: Placement,
        open: &Open,
        endpoints: &Endpoints,
        (strand, attempt): (u32, u64),
        address: SocketAddr,
    ) -> Result<Self, String> {
        let spread = spread(open, endpoints, address)?;
        let queues = spread.queues();
        let queue = queues[placement.place(strand as usize, queues.len())];
        let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
        // Neighbours are far enough from each other to find ports of their own.
        let first = (u64::from(strand) * 97 + attempt * 7919) % ports;
        Ok(Self { spread, queue, first: PORTS.start() + first as u16 })
    }

    pub(super) fn queue(&self) -> u32 {
        self.queue
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

/// Whether the strands of a service's clients find out by [`observe_flows`] where their packets arrive, so that the broker
/// accepts for all of them. `told`: how this host's device spreads packets, where that is known.
pub(crate) fn finds_flows(
    service: &Service,
    told: Option<&DeviceSpreading>,
    at: Option<IpAddr>,
) -> bool {
    let Some(protocol) = protocols::find(&service.protocol) else { return false };
    let is_told = |told: &DeviceSpreading| {
        at.is_some_and(|at| {
            let datagrams = protocol.delivery() == Delivery::Datagrams;
            told.spread(Flow::of(datagrams, at.to_canonical())).is_ok()
        })
    };
    placement(&service.options).is_some() && !told.is_some_and(is_told)
}

/// Checks that all connections of a host's groups can be placed as they ask for. Of services whose device does not tell how
/// it spreads packets it finds out on which CPUs they arrive. `run`: the number of the run.
///
/// # Errors
/// Why they cannot be placed, with the remedy.
pub(crate) fn observe_flows(
    groups: &[Group],
    endpoints: &Endpoints,
    run: u32,
) -> Result<ObservedFlows, String> {
    let mut observed = ObservedFlows::new();
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
        let inet = |address: &Address| match address {
            Address::Inet(address) => {
                Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
            }
            _ => None,
        };
        let Some(greeted) = addresses.filter_map(inet).next() else { continue };
        let data = data.as_ref().and_then(inet);
        let refused = |reason: String| format!("placement={placement}: {reason}");
        let queues = match spread(open, endpoints, data.unwrap_or(greeted)) {
            Ok(spread) if spread.fields == Fields::Addresses => {
                return Err(refused(
                    "the peer's device hashes addresses only, so that ports change nothing (ethtool -N DEV \
                     rx-flow-hash udp4 sdfn)"
                        .to_owned(),
                ));
            }
            Ok(spread) => Places::Queues(spread.queues().len()),
            // The broker of a host that answers strangers only, or nobody, is not asked.
            Err(hidden) if service.is_none_or(|s| s.identity != Identity::Hello) => {
                let remedy = match ServerSockets.shared(&open.setup.options) {
                    Some(_) => {
                        ". With server_sockets over TCP nobody tells the CPU of a connection: use placement=random, or a device \
                         that tells its table"
                    }
                    None => "",
                };
                return Err(refused(format!("{hidden}{remedy}")));
            }
            Err(_) => {
                let known = match observed.entry(open.service) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let transport =
                            transports::find(open.protocol.name()).ok_or_else(|| {
                                refused(format!("no protocol {}", open.protocol.name()))
                            })?;
                        let group = group.number;
                        let hello = Hello { run, group, strand: 0, id: 0, ordinal: 0, cookie: 0 };
                        let question = Question { open, transport, hello, greeted, data };
                        place.insert(question.survey().map_err(refused)?)
                    }
                };
                Places::Cpus(known.cpus.len())
            }
        };
        let (number, name) = match queues {
            Places::Queues(number) => (number, "queue"),
            Places::Cpus(number) => (number, "CPU"),
        };
        if placement == Placement::OnePerQueue && group.strands as usize > number {
            let has = match queues {
                Places::Queues(number) => format!("the peer's device has {number}"),
                Places::Cpus(1) => {
                    "all packets arrive on one CPU of the peer (set rps_cpus of its device)"
                        .to_owned()
                }
                Places::Cpus(number) => format!("packets arrive on {number} CPUs of the peer"),
            };
            return Err(refused(format!(
                "{} strands cannot have a {name} each, as {has}: use placement={}, or at most {number} strand{}",
                group.strands,
                Placement::Even,
                if number == 1 { "" } else { "s" }
            )));
        }
    }
    Ok(observed)
}

/// What connections are placed on.
#[derive(Clone, Copy)]
enum Places {
    Queues(usize),
    Cpus(usize),
}
