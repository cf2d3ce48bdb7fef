//! What an event is about, packed into the 64 bits that the kernel keeps for each registration.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Connection {
        local: u32,
        slot: u32,
    },
    /// `number`: among the listeners of its worker.
    Listener {
        local: u32,
        number: u32,
    },
    /// A listener of the worker itself, at which any of its strands accepts.
    WorkerListener {
        number: u32,
    },
    Inbox,
    Wake,
    /// A socket of frames, by its number among those of its worker.
    Frames {
        port: u32,
    },
}

/// A lower half from here on is the number of a listener, not a slot.
const LISTENER: u32 = 1 << 31;
const SPECIAL: u32 = u32::MAX;
const WORKER_LISTENER: u32 = SPECIAL - 1;
/// The first number of sockets of frames behind those of other special tokens.
const FRAMES: u32 = 2;

impl Token {
    pub(crate) fn number(self) -> u64 {
        let (high, low) = match self {
            Token::Connection { local, slot } => (local, slot),
            Token::Listener { local, number } => (local, LISTENER | number),
            Token::WorkerListener { number } => (WORKER_LISTENER, number),
            Token::Inbox => (SPECIAL, 0),
            Token::Wake => (SPECIAL, 1),
            Token::Frames { port } => (SPECIAL, FRAMES + port),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(self.number())
    }

    pub(crate) fn unpack(data: epoll::EventData) -> Self {
        Self::of(data.u64())
    }

    pub(crate) fn of(data: u64) -> Self {
        match ((data >> 32) as u32, data as u32) {
            (SPECIAL, 0) => Token::Inbox,
            (SPECIAL, low) if low >= FRAMES => Token::Frames { port: low - FRAMES },
            (SPECIAL, _) => Token::Wake,
            (WORKER_LISTENER, number) => Token::WorkerListener { number },
            (local, low) if low < LISTENER => Token::Connection { local, slot: low },
            (local, low) => Token::Listener { local, number: low & !LISTENER },
        }
    }
}

/// When an epoll tells of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// When something changes, in both directions: one call for the life of the connection. A strand
    /// always tries before it waits, so no edge is missed.
    Edge,
    /// Whenever somebody looks while something is there to be received.
    Level,
}

impl Trigger {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Trigger::Edge => epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET,
            Trigger::Level => epoll::EventFlags::IN,
        }
    }
}

/// Registers a descriptor for as long as it is open.
///
/// # Errors
/// Those of epoll_ctl(2).
pub(crate) fn register(
    epoll: &OwnedFd,
    fd: impl AsFd,
    token: Token,
    trigger: Trigger,
) -> std::io::Result<()> {
    Ok(epoll::add(epoll, fd, token.data(), trigger.flags())?)
}

/// Registers a listener. `shared`: of several epolls that know it, one that sleeps is woken for somebody who comes
/// (EPOLLEXCLUSIVE). `edge`: only when somebody comes, else for as long as somebody is there.
///
/// # Errors
/// Those of epoll_ctl(2).
pub(super) fn register_listener(
    epoll: &OwnedFd,
    fd: impl AsFd,
    token: Token,
    (shared, edge): (bool, bool),
) -> std::io::Result<()> {
    let mut flags = epoll::EventFlags::IN;
    flags.set(epoll::EventFlags::EXCLUSIVE, shared);
    flags.set(epoll::EventFlags::ET, edge);
    Ok(epoll::add(epoll, fd, token.data(), flags)?)
}

/// Has a registered descriptor told of when something changes. What is there now is told of again.
///
/// # Errors
/// Those of epoll_ctl(2).
pub(crate) fn make_edge_triggered(
    epoll: &OwnedFd,
    fd: impl AsFd,
    token: Token,
) -> std::io::Result<()> {
    Ok(epoll::modify(epoll, fd, token.data(), Trigger::Edge.flags())?)
}
