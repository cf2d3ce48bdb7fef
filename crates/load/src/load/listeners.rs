//! Listeners at which the strands of all workers accept (`server_sockets` over TCP).

use std::os::fd::OwnedFd;

use wirecost_linux::reuseport;
use wirecost_model::measure::IoCounts;
use wirecost_model::plan::Address;
use wirecost_model::program::{Program, Service};
use wirecost_model::server_sockets::ServerSockets as Policy;
use wirecost_model::warning::{self, Warning};

use super::LoadError;
use super::placement::Placement;
use super::services::{Services, cannot_listen, shares_listeners};
use crate::sockets::OwnService;
use crate::transports::tcp;

/// Ports of a service whose clients connect again and again: a closed connection keeps its two ports for a minute, and a
/// client has 28,000 ports towards each port of the server by default. Each worker may have a listener at each.
const PORTS: u32 = 256;
const LEAST_PORTS: u32 = 16;
/// Listeners of a service at most, unless its workers need more for the least number of ports.
const LISTENERS: u64 = 4096;

/// Services of a host whose clients reconnect to listeners of its workers, at ports that it chooses.
fn reconnecting(program: &Program) -> u64 {
    let asks = |service: &&Service| {
        shares_listeners(service) && service.reconnects && service.port.is_none()
    };
    program.services.iter().filter(asks).count() as u64
}

/// At how many ports each of these services listens, where a process may have so many descriptors. All listeners are opened
/// by one thread, and half of its descriptors are left to other things. More than 256 workers have more than
/// [`LISTENERS`].
///
/// # Errors
/// There are too few.
pub(super) fn ports_of_reconnecting(
    program: &Program,
    workers: u32,
    descriptor_limit: u64,
) -> Result<u32, LoadError> {
    let services = reconnecting(program);
    let workers = u64::from(workers.max(1));
    let needed = services * workers * u64::from(LEAST_PORTS);
    if needed > descriptor_limit / 2 {
        return Err(LoadError::Plan(format!(
            "with server_sockets over TCP and a connection per transaction, {workers} workers need {needed} listeners, and this \
             host allows {descriptor_limit} descriptors per process, half of them for listeners: use fewer workers \
             (--workers), give the service a port (port=), or raise the limit (ulimit -n)"
        )));
    }
    let of_service = (descriptor_limit / 2).checked_div(services).unwrap_or(LISTENERS);
    let ports = of_service.min(LISTENERS) / workers;
    Ok((ports as u32).clamp(LEAST_PORTS, PORTS))
}

/// Connections that were accepted so far, where the CPU of their packets is to choose the worker.
#[derive(Debug)]
pub(super) struct Accepted {
    by_cpu: bool,
    all: u64,
    on_other_cpu: u64,
}

impl Accepted {
    /// `by_hash`: whether something else chooses the worker.
    pub(super) fn new(services: &[OwnService], by_hash: bool) -> Self {
        let mut policies = services.iter().filter_map(|service| service.listeners).peekable();
        let has_any = policies.peek().is_some();
        let by_cpu = has_any && !by_hash && policies.all(|policy| policy == Policy::PerWorker);
        Self { by_cpu, all: 0, on_other_cpu: 0 }
    }

    pub(super) fn add(&mut self, io: &IoCounts) {
        self.all += io.accepted_on_own_cpu + io.accepted_on_other_cpu;
        self.on_other_cpu += io.accepted_on_other_cpu;
    }

    /// What the host has to say about it.
    pub(super) fn warning(&self) -> Option<Warning> {
        let (host, connections, of) = (String::new(), self.on_other_cpu, self.all);
        let is_problem = self.by_cpu && connections > 0;
        is_problem.then(|| warning::ConnectionsOnOtherCpu { host, connections, of }.into())
    }
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
