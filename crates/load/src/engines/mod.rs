//! The engines: how a worker's thread waits for I/O, a file each. [`ALL`] is the only list of them. What
//! happens between two waits is the same for all.

mod af_xdp;
mod af_xdp_native;
mod epoll;
pub(crate) mod io_uring;
mod io_uring_sqpoll;
mod poll;
mod scheduler;
mod threads;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;

use wirecost_model::plan::Plan;
use wirecost_model::program::Program;
use wirecost_model::warning::Warning;
use wirecost_program::payload::Patterns;

use crate::frames::{HostProgram, WorkerProgram};
use crate::sockets::Sockets;
use crate::worker::{EventSender, Order};

/// One way to wait for I/O.
pub trait Engine: Sync {
    /// As `--engine` takes it.
    fn name(&self) -> &'static str;

    /// One line for a person.
    fn help(&self) -> &'static str;

    /// Whether a thread runs many strands. Otherwise each strand has a thread of its own, and its calls
    /// block.
    fn shares_threads(&self) -> bool {
        true
    }

    /// CPUs that a worker needs for itself: more than one where threads of the kernel work for it.
    fn cpus_per_worker(&self) -> usize {
        1
    }

    /// The engine that runs in its place where this one is [`Unavailable`].
    fn fallback(&self) -> Option<&'static dyn Engine> {
        None
    }

    /// What it cannot do; `None` where it carries every protocol, by any device.
    fn limits(&self) -> Option<&'static Limits> {
        None
    }

    /// Whether it carries every protocol, by any device.
    fn is_general(&self) -> bool {
        self.limits().is_none()
    }

    /// What a program asks for that it cannot do.
    fn refuses(&self, program: &Program) -> Option<String> {
        self.limits().and_then(|limits| (limits.refuses)(program))
    }

    /// Makes what all workers of a host share, before they start.
    ///
    /// # Errors
    /// Those of the system calls.
    fn share(&self, _workers: u32) -> io::Result<Shared> {
        Ok(Shared::default())
    }

    /// Why the kernel cannot stamp what it receives (`--receive-stamps`).
    fn lacks_stamps(&self) -> Option<&'static str> {
        (!self.is_general()).then_some(
            "it receives frames past the kernel's sockets, so the kernel stamps none of its messages: choose another \
             engine, or leave out --receive-stamps",
        )
    }

    /// What of a program this engine does differently from what its name says.
    fn warnings(&self, _: &Program) -> Vec<Warning> {
        Vec::new()
    }

    /// Sets up what the waits of one worker need, on the worker's own thread. What is returned runs the
    /// worker until its orders end.
    ///
    /// # Errors
    /// Those of the system calls; [`Unavailable`] where this host cannot run the engine.
    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run>;
}

/// What an engine cannot do.
#[derive(Debug)]
pub struct Limits {
    /// Workers of a host where nobody says how many; a host may have fewer CPUs.
    pub(crate) default_workers: u32,
    /// What a program asks for that the engine cannot do.
    pub(crate) refuses: fn(&Program) -> Option<String>,
    /// Why this host cannot carry out a plan, with messages of at most so many bytes, by so many workers.
    pub(crate) lacks: fn(&Plan, longest: u64, workers: u32) -> Option<String>,
}

/// What all workers of a host share, until the last of them has ended.
#[derive(Debug, Default)]
pub struct Shared {
    /// Of engines whose datagrams are frames.
    pub(crate) program: Option<HostProgram>,
}

pub static ALL: &[&dyn Engine] = &[
    // The default.
    &epoll::Epoll,
    &io_uring::IoUring,
    &io_uring_sqpoll::IoUringSqpoll,
    &poll::Poll,
    &threads::Threads,
    &af_xdp::AfXdp,
    &af_xdp_native::AfXdpNative,
];

impl std::fmt::Debug for dyn Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The engine of this name.
pub fn find(name: &str) -> Option<&'static dyn Engine> {
    ALL.iter().copied().find(|engine| engine.name() == name)
}

/// Their names, for a message.
pub fn names() -> String {
    let names: Vec<&str> = ALL.iter().map(|engine| engine.name()).collect();
    names.join(", ")
}

/// This host cannot run an engine.
#[derive(Debug, thiserror::Error)]
#[error("{engine}: {reason}")]
pub struct Unavailable {
    pub engine: &'static str,
    pub reason: String,
}

/// What a worker has before its engine is prepared.
#[derive(Debug)]
pub struct Setup<'a> {
    pub(crate) sockets: &'a mut Sockets,
    pub(crate) patterns: &'a Patterns,
    /// The longest message, bytes; 0 where it is unknown.
    pub(crate) message: u64,
    pub(crate) wakers: Option<&'a Wakers>,
    /// Another host of the run uses the same CPUs.
    pub(crate) shares_cpus: bool,
    /// Of engines whose datagrams are frames.
    pub(crate) program: Option<WorkerProgram>,
    /// The CPU for a thread of the kernel that works for this worker, where the engine has more than one
    /// CPU per worker.
    pub(crate) second_cpu: Option<u32>,
}

impl Setup<'_> {
    fn wakers(&self) -> io::Result<&Wakers> {
        self.wakers
            .ok_or_else(|| io::Error::other("an event loop without descriptors that wake it"))
    }
}

/// The descriptors by which others wake an event loop.
#[derive(Debug)]
pub(crate) struct Wakers {
    /// Readable when orders have come.
    pub(crate) wake: OwnedFd,
    /// Connections that the broker has accepted.
    pub(crate) inbox: OwnedFd,
}

impl Wakers {
    fn empty_wake(&self) {
        let mut count = [0; 8];
        while rustix::io::read(&self.wake, &mut count) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Runs a worker on the calling thread.
pub type Run = Box<dyn FnOnce(WorkerThread)>;

/// A worker that is ready to run.
#[derive(Debug)]
pub struct WorkerThread {
    pub(crate) number: u32,
    pub(crate) sockets: Sockets,
    pub(crate) patterns: Patterns,
    pub(crate) outlet: EventSender,
    pub(crate) orders: Receiver<Order>,
    /// The strands it runs, by group and number, ascending.
    pub(crate) mine: Vec<(u32, u32)>,
    /// None where it is no event loop.
    pub(crate) wakers: Option<Wakers>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engines");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
            .filter(|name| !["mod", "scheduler"].contains(&name.as_str()))
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|engine| engine.name().to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn the_default_engine_is_the_first() {
        assert_eq!(ALL[0].name(), wirecost_model::plan::EngineName::default().as_str());
    }
}
