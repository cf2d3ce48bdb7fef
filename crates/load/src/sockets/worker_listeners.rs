//! Listeners of a worker, at which any of its strands accepts (`server_sockets` over TCP).
//!
//! A strand that finds nobody there is kept as idle. Of each listener at which somebody waits one idle strand is told;
//! it accepts one connection, and whoever stands behind that is told of next.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use wirecost_model::server_sockets::ServerSockets as Policy;

use super::token::{Token, make_edge_triggered, register_listener};

/// What no strand wants to know is told so often, then only when somebody comes: the loop would not sleep any more.
/// About a millisecond, by which clients may begin a phase earlier.
const UNHEEDED: u32 = 1000;

#[derive(Debug)]
struct WorkerListener {
    /// Which of the services.
    place: usize,
    /// None where a ring has it.
    fd: Option<OwnedFd>,
    /// Somebody may be waiting there, and no strand has looked since.
    ready: bool,
    /// Where it is told of for as long as somebody waits there: how often in a row no strand had looked.
    unheeded: Option<u32>,
}

/// The listeners of a service, and its strands.
#[derive(Debug)]
struct OfService {
    service: u32,
    policy: Policy,
    /// By number; those at which somebody may be waiting, in the order in which they were told of.
    ready: VecDeque<u32>,
    /// Strands that wait for a connection. The lowest is told first, so that few are in use.
    idle: BTreeSet<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct WorkerListeners {
    listeners: Vec<WorkerListener>,
    services: Vec<OfService>,
}

impl WorkerListeners {
    /// Adds the listeners of a service; an epoll tells of them from now on, where there is one.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn add(
        &mut self,
        (service, policy): (u32, Policy),
        fds: Vec<OwnedFd>,
        epoll: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let place = self.services.len();
        for fd in fds {
            if let Some(epoll) = epoll {
                let token = Token::WorkerListener { number: self.listeners.len() as u32 };
                register_listener(epoll, &fd, token, (policy == Policy::Shared, false))?;
            }
            let (fd, ready, unheeded) = (Some(fd), false, Some(0));
            self.listeners.push(WorkerListener { place, fd, ready, unheeded });
        }
        let (ready, idle) = (VecDeque::new(), BTreeSet::new());
        self.services.push(OfService { service, policy, ready, idle });
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Whether those of a service are here.
    pub(crate) fn has(&self, service: u32) -> bool {
        self.services.iter().any(|of| of.service == service)
    }

    fn of(&mut self, service: u32) -> Option<&mut OfService> {
        self.services.iter_mut().find(|of| of.service == service)
    }

    /// A phase begins, for which no strand waits yet.
    pub(crate) fn begin(&mut self) {
        self.services.iter_mut().for_each(|of| of.idle.clear());
    }

    /// Somebody is at a listener.
    pub(super) fn mark(&mut self, number: u32, epoll: Option<&OwnedFd>) {
        let Some(listener) = self.listeners.get_mut(number as usize) else { return };
        let Some(of) = self.services.get_mut(listener.place) else { return };
        if !listener.ready {
            listener.ready = true;
            of.ready.push_back(number);
            return;
        }
        let (Some(unheeded), Some(epoll), Some(fd)) = (&mut listener.unheeded, epoll, &listener.fd)
        else {
            return;
        };
        *unheeded += 1;
        if *unheeded > UNHEEDED {
            let (token, shared) = (Token::WorkerListener { number }, of.policy == Policy::Shared);
            // What wakes one of several cannot be modified (epoll_ctl(2), EPOLLEXCLUSIVE).
            let changed = match shared {
                true => epoll::delete(epoll, fd)
                    .map_err(io::Error::from)
                    .and_then(|()| register_listener(epoll, fd, token, (true, true))),
                false => make_edge_triggered(epoll, fd, token),
            };
            match changed {
                Ok(()) => listener.unheeded = None,
                // It must be told of in any case.
                Err(_) => _ = register_listener(epoll, fd, token, (shared, false)),
            }
        }
    }

    /// Tells one strand of each listener at which somebody waits, as far as strands are idle.
    pub(super) fn wake(&mut self, mut strand: impl FnMut(u32)) {
        for of in &mut self.services {
            for _ in 0..of.ready.len() {
                let Some(local) = of.idle.pop_first() else { break };
                strand(local);
            }
        }
    }

    /// A strand looks whether somebody waits, and at which listener.
    pub(crate) fn look(&mut self, service: u32, local: u32) -> Option<u32> {
        let of = self.of(service)?;
        of.idle.remove(&local);
        of.ready.front().copied()
    }

    /// A strand has found nobody at any listener.
    pub(crate) fn wait(&mut self, service: u32, local: u32) {
        if let Some(of) = self.of(service) {
            of.idle.insert(local);
        }
    }

    pub(super) fn fd(&self, number: u32) -> Option<&OwnedFd> {
        self.listeners.get(number as usize)?.fd.as_ref()
    }

    /// A connection has been accepted there.
    pub(super) fn accepted(&mut self, number: u32) {
        let Some(listener) = self.listeners.get_mut(number as usize) else { return };
        // Of who else waits there the next event tells.
        if let Some(unheeded) = &mut listener.unheeded {
            *unheeded = 0;
            self.exhausted(number);
        }
    }

    /// Nobody is there any more, as far as a strand has seen, or else it will be told of.
    pub(crate) fn exhausted(&mut self, number: u32) {
        let Some(listener) = self.listeners.get_mut(number as usize) else { return };
        listener.ready = false;
        if let Some(of) = self.services.get_mut(listener.place) {
            of.ready.retain(|ready| *ready != number);
        }
    }

    /// Takes those of a service, with their numbers, for an engine that accepts there by other means.
    pub(crate) fn take(&mut self, service: u32) -> Vec<(u32, OwnedFd)> {
        let place = self.services.iter().position(|of| of.service == service);
        let own = (0u32..).zip(&mut self.listeners).filter(|(_, of)| Some(of.place) == place);
        own.filter_map(|(number, listener)| Some((number, listener.fd.take()?))).collect()
    }

    /// Those at which nobody is known to be, of services with idle strands.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (u32, &OwnedFd)> {
        let waits = |of: &&WorkerListener| !of.ready && !self.services[of.place].idle.is_empty();
        (0u32..).zip(&self.listeners).filter_map(move |(number, listener)| {
            let fd = Some(listener).filter(waits)?.fd.as_ref()?;
            Some((number, fd))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use wirecost_linux::clock::timespec;

    use super::*;
    use crate::sockets::token::Token;

    fn told(epoll: &OwnedFd, listeners: &mut WorkerListeners) -> usize {
        let mut events = Vec::with_capacity(8);
        let spare = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(epoll, spare, Some(&timespec(0))).unwrap();
        for event in &events {
            let Token::WorkerListener { number } = Token::unpack(event.data) else { panic!() };
            listeners.mark(number, Some(epoll));
        }
        events.len()
    }

    fn woken(listeners: &mut WorkerListeners) -> Vec<u32> {
        let mut woken = Vec::new();
        listeners.wake(|local| woken.push(local));
        woken
    }

    #[test]
    fn one_idle_strand_is_told_of_each_listener() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for policy in [Policy::PerWorker, Policy::Shared] {
            let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let at = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
            let mut listeners = WorkerListeners::default();
            let fds = sockets.into_iter().map(OwnedFd::from).collect();
            listeners.add((3, policy), fds, Some(&epoll)).unwrap();
            for local in [5, 4, 6, 5] {
                assert_eq!(listeners.look(3, local), None);
                listeners.wait(3, local);
            }
            let clients = [at[0], at[0], at[1]].map(|at| TcpStream::connect(at).unwrap());
            assert_eq!(told(&epoll, &mut listeners), 2);
            assert_eq!(woken(&mut listeners), [4, 5]);
            // One accepts and the other is late; who stands behind the accepted one is told of again.
            let number = listeners.look(3, 4).unwrap();
            listeners.accepted(number);
            let other = listeners.look(3, 5).unwrap();
            assert_ne!(number, other);
            listeners.exhausted(other);
            assert_eq!(listeners.look(3, 5), None);
            assert_eq!(told(&epoll, &mut listeners), 2, "nothing was taken from the queues");
            drop(clients);
            listeners.begin();
            assert_eq!(woken(&mut listeners), [0u32; 0], "no strand waits in the next phase yet");
        }
    }

    /// Also where one event is for one of several loops.
    #[test]
    fn who_is_not_accepted_lets_the_loop_sleep() {
        for policy in [Policy::PerWorker, Policy::Shared] {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = socket.local_addr().unwrap();
            let mut listeners = WorkerListeners::default();
            listeners.add((0, policy), vec![socket.into()], Some(&epoll)).unwrap();
            let _first = TcpStream::connect(at).unwrap();
            let events: usize = (0..3 * UNHEEDED).map(|_| told(&epoll, &mut listeners)).sum();
            assert!((1..=UNHEEDED as usize + 3).contains(&events), "{events}");
            let _second = TcpStream::connect(at).unwrap();
            assert_eq!(told(&epoll, &mut listeners), 1);
            // It stays known until a strand has found nobody there.
            assert_eq!(listeners.look(0, 9), Some(0));
            listeners.accepted(0);
            assert_eq!(listeners.look(0, 9), Some(0));
        }
    }
}
