//! Sockets that receive from all clients of a service (`server_sockets`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use wirecost_linux::reuseport;
use wirecost_model::plan::Address;
use wirecost_model::program::Service;
use wirecost_model::server_sockets::ServerSockets as Policy;
use wirecost_profile::io_options::server_sockets::ServerSockets;
use wirecost_program::hello::Hello;

use super::LoadError;
use super::placement::Placement;
use super::services::{Services, cannot_listen};
use crate::sockets::{Arrival, OwnService};

/// The sockets of one service, all at one address.
pub(super) struct ServedSockets {
    pub(super) address: Address,
    policy: Policy,
    /// By worker; worker 0's where all share one.
    sockets: BTreeMap<u32, OwnedFd>,
    /// Why the CPU of a packet does not choose among them.
    pub(super) by_hash: Option<&'static str>,
}

impl ServedSockets {
    pub(super) fn open(
        services: &Services,
        own: &OwnService,
        (index, strands): (usize, usize),
        placement: &Placement,
    ) -> Result<Self, LoadError> {
        let service = &own.described;
        let policy = ServerSockets.shared(&service.options).unwrap_or(Policy::Shared);
        let place = services.place(service, index as u32, 0);
        let listen = |place: &Address| {
            let bound = own.transport.listen(place, &own.setup);
            bound.map_err(|error| cannot_listen(error, place))
        };
        let (first, address) = listen(&place)?;
        if policy == Policy::Shared {
            let sockets = BTreeMap::from([(0, first)]);
            return Ok(Self { address, policy, sockets, by_hash: None });
        }
        let of_strand = |strand| placement.worker_of().strand(service.group, strand);
        let workers: BTreeSet<u32> = (0..strands as u32).map(of_strand).collect();
        let mut sockets = BTreeMap::new();
        let mut first = Some(first);
        for &worker in &workers {
            let socket = first.take().map_or_else(|| Ok(listen(&address)?.0), Ok)?;
            sockets.insert(worker, socket);
        }
        let by_hash = match placement.distinct_cpus(workers) {
            Err(reason) => Some(reason),
            Ok(cpus) => {
                if let Some(socket) = sockets.values().next() {
                    reuseport::select_by_cpu(socket, &cpus)
                        .map_err(LoadError::system("SO_ATTACH_REUSEPORT_CBPF"))?;
                }
                None
            }
        };
        Ok(Self { address, policy, sockets, by_hash })
    }

    /// One of the sockets.
    pub(super) fn any(&self) -> Result<OwnedFd, LoadError> {
        let first = self.sockets.values().next();
        let socket = first.ok_or_else(|| std::io::ErrorKind::NotFound.into());
        socket.and_then(OwnedFd::try_clone).map_err(LoadError::system("sockets of clients"))
    }

    /// The socket that hellos go to.
    pub(super) fn greeter(
        &self,
        services: &Services,
        own: &OwnService,
        index: usize,
    ) -> Result<(OwnedFd, Address), LoadError> {
        let mut place = services.place(&own.described, index as u32, 0);
        if let Address::Inet(address) = &mut place {
            *address = SocketAddr::new(address.ip(), 0);
        }
        own.transport.listen(&place, &own.setup).map_err(|error| cannot_listen(error, &place))
    }

    /// The socket of each strand. One strand of a worker reads for all of it; the others have a socket to which
    /// nobody sends.
    pub(super) fn arrivals(
        &self,
        run: u32,
        service: &Service,
        strands: usize,
        placement: &Placement,
    ) -> Result<Vec<Arrival>, LoadError> {
        let mut reads = BTreeSet::new();
        let id = service.options.conn.first;
        let arrivals = (0..strands as u32).map(|strand| {
            let worker = placement.worker_of().strand(service.group, strand);
            let place = if self.policy == Policy::Shared { 0 } else { worker };
            let socket = match self.sockets.get(&place).filter(|_| reads.insert(worker)) {
                Some(socket) => socket.try_clone(),
                None => self.unused(),
            };
            let hello = Hello { run, group: service.group, strand, id, ordinal: 0, cookie: 0 };
            let socket = socket.map_err(LoadError::system("sockets of clients"))?;
            Ok(Arrival { hello, socket })
        });
        arrivals.collect()
    }

    /// A socket to which nobody sends.
    fn unused(&self) -> std::io::Result<OwnedFd> {
        let domain = match &self.address {
            Address::Inet(address) => socket2::Domain::for_address(*address),
            Address::Unix(_) | Address::Vsock { .. } => socket2::Domain::IPV4,
        };
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    }
}
