//! Sockets that receive from all clients of a service (`server_sockets`).

use std::collections::BTreeSet;
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
    /// By worker; one that all share.
    sockets: Vec<OwnedFd>,
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
        let mut sockets = vec![first];
        if policy == Policy::PerWorker {
            let workers = (0..strands as u32)
                .map(|strand| placement.worker_of().strand(service.group, strand))
                .max()
                .unwrap_or(0);
            for _ in 0..workers {
                sockets.push(listen(&address)?.0);
            }
            let cpus: Option<Vec<u32>> =
                (0..=workers).map(|worker| placement.cpu(worker)).collect();
            // Where workers are not pinned, the kernel chooses by the addresses.
            if let Some(cpus) = cpus {
                reuseport::select_by_cpu(&sockets[0], &cpus)
                    .map_err(LoadError::system("SO_ATTACH_REUSEPORT_CBPF"))?;
            }
        }
        Ok(Self { address, policy, sockets })
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
            let shared = if self.policy == Policy::Shared { 0 } else { worker as usize };
            let socket = match reads.insert(worker) {
                true => self.sockets[shared].try_clone(),
                false => unused(),
            };
            let hello = Hello { run, group: service.group, strand, id, ordinal: 0, cookie: 0 };
            let socket = socket.map_err(LoadError::system("sockets of clients"))?;
            Ok(Arrival { hello, socket })
        });
        arrivals.collect()
    }
}

fn unused() -> std::io::Result<OwnedFd> {
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
