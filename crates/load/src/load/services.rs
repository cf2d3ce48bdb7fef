//! What a host accepts on: addresses of each strand's own, or shared ones that the broker keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wirecost_linux::vsock;
use wirecost_model::plan::limits::ADDRESSES;
use wirecost_model::plan::{Address, Endpoints, Identity, Plan, ServiceAddresses, at_most};
use wirecost_model::program::Service;
use wirecost_model::rss::DeviceSpreading;
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::server_sockets::ServerSockets;
use wirecost_profile::protocols::{self, Family};
use wirecost_program::hello;
use wirecost_program::net::Owner;
use wirecost_program::socket_setup::SocketSetup;
use wirecost_program::step;

use super::LoadError;
use super::listeners::WorkerListeners;
use super::placement::Placement;
use super::served::ServedSockets;
use crate::broker::{ListenerKind, SharedListener, ask_consent, persist};
use crate::consent::{Consent, ConsentResponder, Question};
use crate::engines::Engine;
use crate::permissions::Partners;
use crate::sockets::{Arrival, OwnService, Sockets, finds_flows, transport};

/// Up to so many strands have addresses of their own; more would take ports from the connections.
const OWN_ADDRESSES: u32 = 4096;
/// Where connections are opened again and again, a closed one keeps its two ports for a minute
/// (TIME_WAIT); strands that have few ports of the peer to connect to would run out of their own.
const SPREAD: u32 = 16;
const SPREAD_TOTAL: u32 = 1024;

/// Connections to one shared address. All may come at once, and a listener's queue holds 4096
/// (net.core.somaxconn) before a lost SYN costs a second; nor has a client more than 28,000 ports
/// towards one address.
const STREAMS_EACH: u64 = 2048;
/// Datagram sockets of one port. The kernel looks through all of them for each datagram.
const DATAGRAMS_EACH: u64 = 16;

/// How long one answer to the question may take, and all together.
const ANSWER: Duration = Duration::from_secs(15);
const ALL_ANSWERS: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(100);

/// Strands by group.
#[derive(Debug)]
pub(super) struct Strands(BTreeMap<u32, u32>);

impl Strands {
    pub(super) fn of(plan: &Plan) -> Self {
        Self(plan.program.groups.iter().map(|group| (group.group, group.strands)).collect())
    }

    fn of_service(&self, service: &Service) -> u32 {
        self.0.get(&service.group).copied().unwrap_or(0)
    }
}

/// How many addresses of its own each strand has on a service; none where strands share.
pub(super) fn own_addresses_per_strand(
    engine: &dyn Engine,
    strands: &Strands,
    service: &Service,
) -> Option<u32> {
    let strands = strands.of_service(service);
    if shares_listeners(service) {
        return None;
    }
    let stream = protocols::find(&service.protocol).is_some_and(|p| p.delivery().is_reliable());
    let own = stream
        && service.conns_per_strand == 1
        && strands <= OWN_ADDRESSES
        && (service.port.is_none() || strands == 1);
    let spread = service.reconnects
        && service.port.is_none()
        && family(service) == Family::Inet
        && engine.shares_threads();
    own.then(|| if spread { (SPREAD_TOTAL / strands.max(1)).clamp(1, SPREAD) } else { 1 })
}

/// Whether strands of all workers accept the connections of a service.
pub(super) fn shares_listeners(service: &Service) -> bool {
    let protocol = protocols::find(&service.protocol);
    protocol.is_some_and(|protocol| protocol.delivery().is_reliable())
        && ServerSockets.fits(protocol)
        && ServerSockets.shared(&service.options).is_some()
}

/// How many addresses the strands of a service share, where they have none of their own.
fn shared_addresses(service: &Service, strands: usize, stream: bool) -> u32 {
    if service.port.is_some() {
        return 1;
    }
    let connections = strands as u64 * u64::from(service.conns_per_strand);
    let each = if stream { STREAMS_EACH } else { DATAGRAMS_EACH };
    connections.div_ceil(each).clamp(1, u64::from(SPREAD_TOTAL)) as u32
}

fn family(service: &Service) -> Family {
    protocols::find(&service.protocol).map_or(Family::Inet, |protocol| protocol.family())
}

/// Addresses that all strands of a service connect to: each begins at another one and goes round from there.
fn going_round(
    identity: Identity,
    mut addresses: Vec<Address>,
    strands: usize,
) -> ServiceAddresses {
    let per_strand = addresses.len() as u32;
    addresses.extend_from_within(..);
    let of_strand = (0..strands as u32).map(|strand| strand % per_strand.max(1)).collect();
    ServiceAddresses { identity, addresses, of_strand, per_strand, data: None }
}

/// What one worker listens at: (service, group, strand, addresses).
pub(super) type Announced = Vec<(u32, u32, u32, Vec<Address>)>;

/// Where a strand is to listen.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    service: u32,
    group: u32,
    strand: u32,
    local: u32,
    addresses: Vec<Address>,
}

/// What the strands of a host share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) listeners: Vec<SharedListener>,
    /// Sockets that strands have before anybody connects.
    pub(super) arrivals: Vec<Arrival>,
    /// Why the kernel chooses the sockets of clients by their addresses.
    pub(super) by_hash: Option<&'static str>,
    /// Listeners of each worker, by service.
    pub(super) of_workers: Vec<Vec<(u32, Vec<OwnedFd>)>>,
}

#[derive(Debug)]
pub(super) struct Services {
    described: Vec<Service>,
    per_strand: Vec<Option<u32>>,
    at: Option<IpAddr>,
    /// How vsock knows this machine.
    cid: u32,
    /// Directory of Unix sockets, made when first needed.
    directory: Option<PathBuf>,
    listening: Vec<ServiceAddresses>,
    consent: Vec<Address>,
}
impl Services {
    /// Opens what strands share; their own addresses the workers open. `own`: the services of the program. `spreading`:
    /// how this host's device spreads packets, where it tells; none where nobody may ask on which CPU they arrive.
    pub(super) fn open(
        plan: &Plan,
        engine: &dyn Engine,
        own: &[OwnService],
        placement: &Placement,
        spreading: Option<Option<&DeviceSpreading>>,
    ) -> Result<(Self, Shared), LoadError> {
        let described = plan.program.services.clone();
        let strands_of = Strands::of(plan);
        let unix = described.iter().any(|service| family(service) == Family::Unix);
        let directory = unix.then(|| private_directory(&plan.token)).transpose()?;
        let mut services = Self {
            per_strand: described
                .iter()
                .map(|service| {
                    // The broker answers where packets arrive.
                    let asks =
                        spreading.is_some_and(|told| finds_flows(service, told, plan.data_address));
                    (!asks)
                        .then(|| own_addresses_per_strand(engine, &strands_of, service))
                        .flatten()
                })
                .collect(),
            described,
            at: plan.data_address.filter(|&at| is_local(at)),
            cid: vsock::local_cid(),
            directory,
            listening: Vec::new(),
            consent: Vec::new(),
        };
        services.check_addresses(&strands_of)?;
        let mut listeners = Vec::new();
        let (mut arrivals, mut by_hash) = (Vec::new(), None);
        let mut of_workers: Vec<_> = (0..placement.workers()).map(|_| Vec::new()).collect();
        let run = hello::run_number(&plan.token);
        for (index, own) in own.iter().enumerate() {
            let service = services.described[index].clone();
            let strands = strands_of.of_service(&service) as usize;
            if let Some(clients) = &own.clients {
                let sockets = ServedSockets::open(&services, own, (index, strands), placement)?;
                by_hash = by_hash.or(sockets.by_hash);
                let (listener, address) = sockets.greeter(&services, own, index)?;
                let kind = ListenerKind::Clients {
                    clients: clients.clone(),
                    data: sockets.address.clone(),
                    shared: Arc::new(sockets.any()?),
                    setup: own.setup.clone(),
                };
                listeners.push(SharedListener { listener, kind });
                services.listening.push(ServiceAddresses {
                    identity: Identity::Hello,
                    addresses: vec![address, sockets.address.clone()],
                    of_strand: vec![0; strands],
                    per_strand: 1,
                    data: Some(1),
                });
                arrivals.extend(sockets.arrivals(run, &service, strands, placement)?);
                continue;
            }
            if own.listeners.is_some() {
                let ports = match service.reconnects && service.port.is_none() {
                    true => placement.listening_ports(),
                    false => shared_addresses(&service, strands, true),
                };
                let listeners = WorkerListeners::open(&services, own, (index, ports), placement)?;
                by_hash = by_hash.or(listeners.by_hash);
                for (of, fds) in of_workers.iter_mut().zip(listeners.of_workers) {
                    of.push((index as u32, fds));
                }
                services.listening.push(going_round(
                    Identity::Address,
                    listeners.addresses,
                    strands,
                ));
                continue;
            }
            match services.per_strand[index] {
                Some(per_strand) => services.listening.push(ServiceAddresses {
                    identity: Identity::Address,
                    addresses: vec![services.place(&service, 0, 0); strands * per_strand as usize],
                    of_strand: (0..strands as u32).map(|s| s * per_strand).collect(),
                    per_strand,
                    data: None,
                }),
                None => {
                    let (transport, setup) = (own.transport, &own.setup);
                    let mut addresses = Vec::new();
                    for number in 0..shared_addresses(
                        &service,
                        strands,
                        transport.protocol().delivery().is_reliable(),
                    ) {
                        let place = services.place(&service, index as u32, u32::MAX - number);
                        let (listener, address) = transport
                            .listen(&place, setup)
                            .map_err(|error| cannot_listen(error, &place))?;
                        let kind = ListenerKind::Data { transport, setup: setup.clone() };
                        listeners.push(SharedListener { listener, kind });
                        addresses.push(address);
                    }
                    services.listening.push(going_round(Identity::Hello, addresses, strands));
                }
            }
        }
        services.open_consent(&mut listeners)?;
        Ok((services, Shared { listeners, arrivals, by_hash, of_workers }))
    }

    /// Checks that there can be so many addresses before there is any.
    fn check_addresses(&self, strands: &Strands) -> Result<(), LoadError> {
        let each = self.described.iter().zip(&self.per_strand).map(|(service, own)| {
            let strands = strands.of_service(service);
            match own {
                Some(per_strand) => u64::from(strands) * u64::from(*per_strand),
                None => u64::from(shared_addresses(service, strands as usize, false)),
            }
        });
        at_most("the number of addresses of all services", each.sum::<u64>(), ADDRESSES)
            .map_err(|error| LoadError::Plan(error.to_string()))
    }

    /// Listens for the question whether this host has agreed to receive: at the data address, and
    /// beside its Unix sockets.
    fn open_consent(&mut self, listeners: &mut Vec<SharedListener>) -> Result<(), LoadError> {
        let mut places = Vec::new();
        let uses = |wanted| self.described.iter().any(|service| family(service) == wanted);
        if uses(Family::Inet) {
            places.push(("tcp", Address::Inet(SocketAddr::new(self.wildcard(), 0))));
        }
        if uses(Family::Vsock) {
            places.push(("vsock", Address::Vsock { cid: self.cid, port: vsock::ANY }));
        }
        if let Some(directory) = &self.directory {
            places.push(("unix", Address::Unix(directory.join("consent"))));
        }
        for (name, place) in places {
            let transport = transport(name).map_err(LoadError::system(name))?;
            let (listener, address) = transport
                .listen(&place, &SocketSetup::default())
                .map_err(|error| cannot_listen(error, &place))?;
            if let Address::Inet(_) = address {
                persist(&listener);
            }
            self.consent.push(address);
            listeners
                .push(SharedListener { listener, kind: ListenerKind::Consent { agreement: None } });
        }
        Ok(())
    }

    fn wildcard(&self) -> IpAddr {
        self.at.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    }

    pub(super) fn place(&self, service: &Service, index: u32, strand: u32) -> Address {
        match &self.directory {
            Some(directory) if family(service) == Family::Unix => {
                Address::Unix(directory.join(format!("{index}-{}-{strand}", service.group)))
            }
            _ if family(service) == Family::Vsock => match service.port {
                Some(port) => Address::Vsock { cid: self.cid, port: port.into() },
                None => Address::Vsock { cid: self.cid, port: vsock::ANY },
            },
            _ => Address::Inet(SocketAddr::new(self.wildcard(), service.port.unwrap_or(0))),
        }
    }

    /// What a worker with these strands (group, strand) has to listen at.
    pub(super) fn own_addresses(&self, mine: &[(u32, u32)]) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let mut of_group: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for (local, &(group, strand)) in (0u32..).zip(mine) {
            of_group.entry(group).or_default().push((local, strand));
        }
        for (index, service) in self.described.iter().enumerate() {
            let Some(per_strand) = self.per_strand[index] else {
                continue;
            };
            for &(local, strand) in of_group.get(&service.group).into_iter().flatten() {
                let place = self.place(service, index as u32, strand);
                wanted.push(Wanted {
                    service: index as u32,
                    group: service.group,
                    strand,
                    local,
                    addresses: vec![place; per_strand as usize],
                });
            }
        }
        wanted
    }

    pub(super) fn announced(&mut self, said: Announced) {
        for (service, _, strand, addresses) in said {
            let listening = &mut self.listening[service as usize];
            let first = listening.of_strand[strand as usize] as usize;
            listening.addresses[first..first + addresses.len()].clone_from_slice(&addresses);
        }
    }

    pub(super) fn addresses(&self) -> Vec<ServiceAddresses> {
        self.listening.clone()
    }

    pub(super) fn consent(&self) -> Vec<Address> {
        self.consent.clone()
    }

    /// Puts the answer in, now that all addresses are known.
    pub(super) fn with_consent_answer(
        &self,
        listeners: Vec<SharedListener>,
        plan: &Plan,
    ) -> Vec<SharedListener> {
        let consent = Consent { host: plan.host, services: self.listening.clone() };
        let answers = Arc::new(ConsentResponder::new(&plan.token, &consent));
        listeners
            .into_iter()
            .map(|mut shared| {
                if let ListenerKind::Consent { agreement } = &mut shared.kind {
                    *agreement = Some(answers.clone());
                }
                shared
            })
            .collect()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Whether this host has the address. One that a translator gave it outside (a container's, a cloud's)
/// it cannot bind; the wildcard address does then.
fn is_local(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0))
        .map_or_else(|error| error.kind() != io::ErrorKind::AddrNotAvailable, |_| true)
}

/// A directory that only this user enters.
fn private_directory(token: &str) -> Result<PathBuf, LoadError> {
    use std::os::unix::fs::DirBuilderExt;
    let name = format!("wirecost-{}-{:08x}", std::process::id(), hello::run_number(token));
    let path = std::env::temp_dir().join(name);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(LoadError::system(path.display().to_string()))?;
    Ok(path)
}

pub(super) fn cannot_listen(error: io::Error, at: &Address) -> LoadError {
    LoadError::System { act: listening(&error, at), source: error }
}

/// What was tried, and what to do where it failed.
fn listening(error: &io::Error, at: &Address) -> String {
    let any_port = matches!(at, Address::Inet(at) if at.port() == 0);
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse if any_port => {
            " (no port is left: closed connections keep theirs for a minute; wait, or widen \
             net.ipv4.ip_local_port_range)"
        }
        io::ErrorKind::AddrInUse => " (another program has the port; choose another port=)",
        io::ErrorKind::AddrNotAvailable => " (this host does not have the address)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 are for root)",
        _ => "",
    };
    format!("cannot listen at {at}{remedy}")
}

/// Listens at the addresses of a worker's strands.
pub(super) fn listen(sockets: &mut Sockets, wanted: &[Wanted]) -> io::Result<Announced> {
    let mut announced = Vec::new();
    for want in wanted {
        let owner = Owner {
            group: want.group,
            strand: want.strand,
            local: want.local,
            slot: 0,
            id: 0,
            ordinal: 0,
        };
        let bound =
            sockets.opener.listen(want.service, owner, &want.addresses).map_err(|error| {
                let act =
                    want.addresses.first().map_or_else(String::new, |at| listening(&error, at));
                io::Error::new(error.kind(), format!("{act}: {error}"))
            })?;
        announced.push((want.service, want.group, want.strand, bound));
    }
    Ok(announced)
}

/// Makes sure that this host sends nothing to others than its partners.
pub(super) fn check_partners(
    plan: &Plan,
    partners: Partners,
    endpoints: &Endpoints,
) -> Result<(), LoadError> {
    let services = step::acts(&plan.program).filter_map(|act| act.service);
    let hosts: BTreeSet<u32> = services.map(|service| service.host).collect();
    let others = hosts.into_iter().filter(|host| *host != plan.host);
    let peers = others.filter_map(|host| endpoints.hosts.get(host as usize));
    let mut addresses = peers.flat_map(|peer| {
        peer.services.iter().flat_map(|service| &service.addresses).chain(&peer.consent)
    });
    match addresses.find(|address| !partners.reaches(address)) {
        Some(address) => Err(LoadError::NotAPartner { address: address.to_string() }),
        None => Ok(()),
    }
}

/// Makes sure that every host this one connects to has agreed to receive, where it will connect.
pub(super) fn check_consent(plan: &Plan, endpoints: &Endpoints) -> Result<(), LoadError> {
    let run = hello::run_number(&plan.token);
    let mut hosts: BTreeMap<u32, bool> = BTreeMap::new();
    let acts = plan
        .program
        .groups
        .iter()
        .flat_map(|group| group.phases.iter().flatten())
        .flat_map(|phase| &phase.acts);
    for act in acts.filter(|act| act.kind == "connect") {
        if let Some(service) = act.service {
            hosts.insert(service.host, true);
        }
    }
    let deadline = Instant::now() + ALL_ANSWERS;
    for host in hosts.into_keys() {
        let Some(peer) = endpoints.hosts.get(host as usize) else {
            continue;
        };
        if peer.consent.is_empty() {
            let address = format!("host {host}");
            let reason = "it accepts nothing".to_owned();
            return Err(LoadError::NoConsent { address, reason });
        }
        if let Some(unasked) = unasked(&peer.consent, &peer.services) {
            let reason = "nobody who could agree was named".to_owned();
            return Err(LoadError::NoConsent { address: unasked.to_string(), reason });
        }
        for address in &peer.consent {
            let refused =
                |reason: String| LoadError::NoConsent { address: address.to_string(), reason };
            if !may_be_asked(address, run) {
                return Err(refused("it is no socket of this run".to_owned()));
            }
            let failed = |error: io::Error| refused(error.to_string());
            let question = Question::new(run).map_err(failed)?;
            let due = deadline.min(Instant::now() + ANSWER);
            let answer = ask_until(address, &question, due).map_err(failed)?;
            let consent = question
                .verify_answer(&plan.token, &answer)
                .ok_or_else(|| refused("no agent of this run answers there".to_owned()))?;
            let agrees =
                consent.host == host && same_places(&consent.services, &peer.services, address);
            if !agrees {
                return Err(refused("the agent there listens elsewhere".to_owned()));
            }
        }
    }
    Ok(())
}

/// Asks again where nobody answers for the address yet: a switch or a device may just have got its carrier
/// back, and the kernel gives up a neighbor after three seconds (RFC 4861, 10).
fn ask_until(address: &Address, question: &Question, due: Instant) -> io::Result<Vec<u8>> {
    loop {
        match ask_consent(address, question, due) {
            Err(error)
                if error.kind() == io::ErrorKind::HostUnreachable && Instant::now() < due =>
            {
                std::thread::sleep(AGAIN);
            }
            answered => return answered,
        }
    }
}

/// A Unix socket is asked only where it is named as agents of this run name theirs: a controller must
/// not have an agent speak to other services of its machine.
fn may_be_asked(address: &Address, run: u32) -> bool {
    let Address::Unix(path) = address else { return true };
    let directory = path.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    directory
        .is_some_and(|name| name.starts_with("wirecost-") && name.ends_with(&format!("-{run:08x}")))
        && path.file_name() == Some(OsStr::new("consent"))
}

/// An address for which none of the places where the question is asked can answer: an agent answers
/// for the address where it is asked, and for Unix sockets beside the one where it is.
fn unasked<'a>(consent: &[Address], told: &'a [ServiceAddresses]) -> Option<&'a Address> {
    let answers = |asked: &Address, told: &Address| match (asked, told) {
        (Address::Inet(asked), Address::Inet(told)) => asked.ip() == told.ip(),
        (Address::Unix(asked), Address::Unix(told)) => asked.parent() == told.parent(),
        (Address::Vsock { cid: asked, .. }, Address::Vsock { cid: told, .. }) => asked == told,
        _ => false,
    };
    told.iter()
        .flat_map(|service| &service.addresses)
        .find(|told| !consent.iter().any(|asked| answers(asked, told)))
}

/// Whether the agent's own word and what the controller says of it name the same addresses. The
/// controller may have filled in the address where the agent listens on all of its own; then it must
/// be the one that has just been asked.
fn same_places(own: &[ServiceAddresses], told: &[ServiceAddresses], asked: &Address) -> bool {
    let same = |own: &Address, told: &Address| match (own, told, asked) {
        (Address::Inet(own), Address::Inet(told), Address::Inet(asked)) => {
            own.port() == told.port()
                && (own.ip() == told.ip() || own.ip().is_unspecified())
                && told.ip() == asked.ip()
        }
        (Address::Unix(own), Address::Unix(told), Address::Unix(asked)) => {
            own == told && told.parent() == asked.parent()
        }
        (Address::Vsock { .. }, Address::Vsock { cid: at, .. }, Address::Vsock { cid, .. }) => {
            own == told && at == cid
        }
        // The other family's question is asked at its own address.
        (Address::Inet(_), Address::Inet(_), _)
        | (Address::Unix(_), Address::Unix(_), _)
        | (Address::Vsock { .. }, Address::Vsock { .. }, _) => true,
        _ => false,
    };
    own.len() == told.len()
        && own.iter().zip(told).all(|(own, told)| {
            own.addresses.len() == told.addresses.len()
                && own.addresses.iter().zip(&told.addresses).all(|(a, b)| same(a, b))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(text: &str) -> Address {
        Address::Inet(text.parse().unwrap())
    }

    fn service(address: Address) -> ServiceAddresses {
        ServiceAddresses {
            identity: Identity::Address,
            addresses: vec![address],
            of_strand: vec![0],
            per_strand: 1,
            data: None,
        }
    }

    /// A controller must not have one family's agreement stand for the other's address.
    #[test]
    fn an_address_for_which_nobody_is_asked_has_not_agreed() {
        let (unix, beside) = ("/tmp/w/consent".into(), "/tmp/w/0-0-0".into());
        let (unix, beside) = (Address::Unix(unix), Address::Unix(beside));
        let agent = inet("192.0.2.1:7");
        let told = [service(inet("192.0.2.1:80")), service(beside)];
        assert_eq!(unasked(&[agent.clone(), unix.clone()], &told), None);
        assert_eq!(unasked(std::slice::from_ref(&unix), &told), Some(&inet("192.0.2.1:80")));
        assert_eq!(unasked(std::slice::from_ref(&agent), &told), Some(&told[1].addresses[0]));
        let victim = [service(inet("192.0.2.2:80"))];
        assert_eq!(unasked(&[agent, unix], &victim), Some(&inet("192.0.2.2:80")));
    }
}
