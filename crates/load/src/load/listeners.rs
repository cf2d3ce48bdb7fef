//! Listeners at which the strands of all workers accept (`server_sockets` over TCP).

use std::os::fd::OwnedFd;

use wirecost_linux::reuseport;
use wirecost_model::plan::Address;
use wirecost_model::server_sockets::ServerSockets as Policy;

use super::LoadError;
use super::placement::Placement;
use super::services::{Services, cannot_listen};
use crate::sockets::OwnService;
use crate::transports::tcp;

/// Ports of a service whose clients connect again and again: a closed connection keeps its two ports for a minute, and a
/// client has 28,000 ports towards each port of the server by default. Each worker may have a listener at each.
const PORTS: u32 = 256;
const LEAST_PORTS: u32 = 16;
const LISTENERS: u32 = 4096;

/// At how many ports a service listens whose clients reconnect.
pub(super) fn ports_of_reconnecting(workers: u32) -> u32 {
    (LISTENERS / workers.max(1)).clamp(LEAST_PORTS, PORTS)
}

/// The listeners of one service.
pub(super) struct WorkerListeners {
    pub(super) addresses: Vec<Address>,
    /// By worker: one for each address.
    pub(super) of_workers: Vec<Vec<OwnedFd>>,
    /// Why the CPU of a connection's packets does not choose among them.
    pub(super) by_hash: Option<&'static str>,
}

impl WorkerListeners {
    /// Listens at so many ports.
    pub(super) fn open(
        services: &Services,
        own: &OwnService,
        (index, ports): (usize, u32),
        placement: &Placement,
    ) -> Result<Self, LoadError> {
        let workers = placement.workers();
        let (chooser, by_hash) = match own.listeners {
            Some(Policy::PerWorker) => match placement.distinct_cpus(0..workers) {
                Ok(cpus) => (Some(cpus), None),
                Err(reason) => (None, Some(reason)),
            },
            _ => (None, None),
        };
        let mut addresses = Vec::new();
        let mut of_workers: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
        for _ in 0..ports {
            let place = services.place(&own.described, index as u32, 0);
            let listen = |place: &Address| {
                let bound = match own.listeners {
                    Some(Policy::PerWorker) => tcp::listen_with_others(place, &own.setup),
                    _ => own.transport.listen(place, &own.setup),
                };
                bound.map_err(|error| cannot_listen(error, place))
            };
            let (first, address) = listen(&place)?;
            let mut sockets = Vec::new();
            for _ in 1..workers {
                sockets.push(match own.listeners {
                    Some(Policy::PerWorker) => listen(&address)?.0,
                    _ => first.try_clone().map_err(LoadError::system("listener of a worker"))?,
                });
            }
            if let Some(cpus) = &chooser {
                reuseport::select_by_cpu(&first, cpus)
                    .map_err(LoadError::system("SO_ATTACH_REUSEPORT_CBPF"))?;
            }
            sockets.insert(0, first);
            of_workers.iter_mut().zip(sockets).for_each(|(of, socket)| of.push(socket));
            addresses.push(address);
        }
        Ok(Self { addresses, of_workers, by_hash })
    }
}
