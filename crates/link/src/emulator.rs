//! Threads between the devices of hosts.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};
use wirecost_linux::thread as linux_thread;
use wirecost_linux::tun::Tun;
use wirecost_model::link::{Conditions, LinkCounts, LinkSpec, NamedLine, SideCounts, Topology};

use crate::line::Line;
use crate::nic::Nics;
use crate::route::Router;
use crate::side::{self, Shared, SharedLine, Side, Work};
use crate::steer::Steering;
use crate::wiring::Wiring;

/// What lies between hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub topology: Topology,
    pub link: LinkSpec,
    /// Losses, jitter and cross traffic follow from it.
    pub seed: u64,
    /// Whether one thread serves both directions, where devices are no more than ends of a link.
    pub one_thread: bool,
    /// Addresses of each host.
    pub addresses: Vec<Vec<IpAddr>>,
    /// The CPU of each queue of each host's device, where the link has such devices.
    pub queue_cpus: Vec<Vec<u32>>,
}

impl Plan {
    /// Creates the device of a host, in its namespace: an end of each of its queues.
    ///
    /// # Errors
    /// Those of [`Tun::create_with_offloads`], and of bpf(2) for the program that picks queues.
    pub fn create_device(&self, name: &str) -> io::Result<Vec<Tun>> {
        let queues = self.link.nic.as_ref().map_or(1, |nic| nic.queues);
        let device = Tun::create_with_offloads(name, queues).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot create a TUN device: {error}"))
        })?;
        if let Some(nic) = self.link.nic.as_ref().filter(|nic| nic.queues > 1) {
            let steered = Steering::load(&nic.rss).and_then(|steering| steering.attach(&device[0]));
            steered.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot pick queues by BPF: {error}"))
            })?;
        }
        Ok(device)
    }
}

/// Running threads. They end when this is dropped.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    stop: OwnedFd,
    stopped: Arc<AtomicBool>,
    /// Can be read when a thread has ended.
    ended: OwnedFd,
    threads: Vec<JoinHandle<io::Result<()>>>,
    published: Vec<Arc<Mutex<SideCounts>>>,
}

impl Emulator {
    /// Serves the devices of all hosts, in the order of their addresses in the plan.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub fn start(plan: &Plan, devices: Vec<Vec<Tun>>) -> io::Result<Self> {
        let mut wiring = Wiring::new(plan.topology, devices.len(), &plan.link);
        if plan.one_thread {
            wiring = wiring.on_one_thread();
        }
        let nic = plan.link.nic.as_ref();
        let nics = nic.map(|nic| Nics::new(nic, &plan.queue_cpus)).transpose()?;
        // A thread's CPU, if it has one, and its work.
        let work: Vec<(Option<u32>, Work)> = match &nics {
            Some(nics) => nics
                .threads()
                .enumerate()
                .map(|(thread, cpu)| (Some(cpu), of_queues(thread, nics, &wiring, plan.topology)))
                .collect(),
            None => wiring
                .inputs
                .iter()
                .enumerate()
                .map(|(thread, inputs)| (None, of_devices(thread, inputs, &wiring)))
                .collect(),
        };
        let shared = Arc::new(Shared {
            devices,
            lines: lines(&wiring, plan.seed),
            router: Router::new(&plan.addresses, wiring.between, &plan.link),
            nics,
            began: side::now(),
        });
        let mut emulator = Self {
            shared,
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            stopped: Arc::default(),
            ended: eventfd(0, EventfdFlags::CLOEXEC)?,
            threads: Vec::new(),
            published: Vec::new(),
        };
        for (cpu, work) in work {
            let published = Arc::default();
            emulator.published.push(Arc::clone(&published));
            let mut side = Side::new(Arc::clone(&emulator.shared), work, published);
            let stop = emulator.stop.try_clone()?;
            let ended = Ended(emulator.ended.try_clone()?);
            let stopped = Arc::clone(&emulator.stopped);
            let serve = move || {
                // Also where it panics.
                let _ended = ended;
                if let Some(cpu) = cpu {
                    linux_thread::pin(cpu)?;
                }
                linux_thread::set_nice(-20);
                side.serve(stop.as_fd(), &stopped)
            };
            emulator.threads.push(thread::Builder::new().name("link".to_owned()).spawn(serve)?);
        }
        Ok(emulator)
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        let line =
            |line: &SharedLine| NamedLine { name: line.name.clone(), counts: line.lock().counts() };
        let side = |side: &Arc<Mutex<SideCounts>>| {
            side.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        LinkCounts {
            lines: self.shared.lines.iter().filter(|line| line.is_used()).map(line).collect(),
            sides: self.published.iter().map(side).collect(),
            devices: self.shared.nics.as_ref().map_or_else(Vec::new, Nics::counts),
            unread: 0,
        }
    }

    /// Can be read when a thread has ended without having been told to: its device is gone.
    #[must_use]
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Stops the threads.
    ///
    /// # Errors
    /// The error that ended one of them.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.stopped.store(true, Ordering::Relaxed);
        signal(&self.stop)?;
        let panicked = |_| io::Error::other("the thread of a link panicked");
        let ends = self.threads.drain(..).map(|thread| thread.join().map_err(panicked).flatten());
        ends.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // An error was one of a thread that has ended.
        let _ = self.end();
    }
}

/// Tells that a thread has ended, when it is dropped.
#[derive(Debug)]
struct Ended(OwnedFd);

impl Drop for Ended {
    fn drop(&mut self) {
        // An eventfd takes it.
        let _ = signal(&self.0);
    }
}

/// Makes an eventfd readable for good.
fn signal(event: &OwnedFd) -> io::Result<()> {
    rustix::io::write(event, &1_u64.to_ne_bytes())?;
    Ok(())
}

/// All lines of a lab, by number.
fn lines(wiring: &Wiring, seed: u64) -> Vec<SharedLine> {
    let line = |(number, (name, conditions)): (usize, &(String, Conditions))| {
        let mut outputs: Vec<usize> = wiring
            .between
            .iter()
            .filter(|(_, line)| **line == number)
            .map(|((_, to), _)| *to)
            .collect();
        outputs.sort_unstable();
        outputs.dedup();
        let line = Line::new(conditions, seed.wrapping_add(number as u64));
        SharedLine::new(name.clone(), outputs, line)
    };
    wiring.lines.iter().enumerate().map(line).collect()
}

/// A thread that reads devices, and releases the frames that it has read.
fn of_devices(thread: usize, devices: &[usize], wiring: &Wiring) -> Work {
    let of_devices = wiring.between.iter().filter(|((from, _), _)| devices.contains(from));
    let mut lines: Vec<usize> = of_devices.map(|(_, line)| *line).collect();
    lines.sort_unstable();
    lines.dedup();
    let inputs = devices.iter().map(|device| (*device, 0)).collect();
    Work { thread, inputs, lines, outputs: Vec::new() }
}

/// A thread that hands packets over on its CPU. In a pair it reads the queues of the other host that lead to
/// its own, and releases what they send; elsewhere a queue leads to several hosts, and it reads those of its own.
fn of_queues(thread: usize, nics: &Nics, wiring: &Wiring, topology: Topology) -> Work {
    let outputs = nics.queues_of(thread);
    let input = |&(device, queue): &(usize, usize)| match topology {
        Topology::Pair => (1 - device, queue),
        Topology::Star | Topology::Dumbbell => (device, queue),
    };
    let inputs: Vec<_> = outputs.iter().map(input).collect();
    let feeds = |line: &usize| {
        let pairs = wiring.between.iter().filter(|(_, number)| *number == line);
        let mut senders = pairs.map(|((from, _), _)| *from);
        senders.any(|from| inputs.iter().any(|(device, _)| *device == from))
    };
    let lines = (0..wiring.lines.len()).filter(feeds).collect();
    Work { thread, inputs, lines, outputs }
}
