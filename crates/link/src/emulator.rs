//! Threads between the devices of hosts.

use std::collections::HashMap;
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
use wirecost_model::link::{LinkCounts, LinkSpec, SideCounts, Topology};

use crate::line::Line;
use crate::route::Router;
use crate::side::Side;
use crate::wiring::Wiring;

/// What lies between hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub topology: Topology,
    pub link: LinkSpec,
    /// Losses, jitter and cross traffic follow from it.
    pub seed: u64,
    /// Whether one thread serves both directions.
    pub one_thread: bool,
    /// Addresses of each host.
    pub addresses: Vec<Vec<IpAddr>>,
}

/// Running threads. They end when this is dropped.
#[derive(Debug)]
pub struct Emulator {
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
    pub fn start(plan: &Plan, devices: Vec<Tun>) -> io::Result<Self> {
        let mut wiring = Wiring::new(plan.topology, devices.len(), &plan.link);
        if plan.one_thread {
            wiring = wiring.on_one_thread();
        }
        let devices = Arc::new(devices);
        let mut emulator = Self {
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            stopped: Arc::default(),
            ended: eventfd(0, EventfdFlags::CLOEXEC)?,
            threads: Vec::new(),
            published: Vec::new(),
        };
        for inputs in &wiring.inputs {
            let published = Arc::default();
            emulator.published.push(Arc::clone(&published));
            let (router, lines) = part_of(&wiring, inputs, plan);
            let mut side = Side::new(Arc::clone(&devices), inputs, lines, router, published);
            let stop = emulator.stop.try_clone()?;
            let ended = Ended(emulator.ended.try_clone()?);
            let stopped = Arc::clone(&emulator.stopped);
            let serve = move || {
                linux_thread::set_nice(-20);
                // Also where it panics.
                let _ended = ended;
                side.serve(stop.as_fd(), &stopped)
            };
            emulator.threads.push(thread::Builder::new().name("link".to_owned()).spawn(serve)?);
        }
        Ok(emulator)
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        let sides = self.published.iter();
        let of = |side: &Arc<Mutex<SideCounts>>| {
            side.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        LinkCounts { sides: sides.map(of).collect(), unread: 0 }
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

/// The lines of the hosts that one thread reads.
fn part_of<F>(wiring: &Wiring, inputs: &[usize], plan: &Plan) -> (Router, Vec<(String, Line<F>)>) {
    let mut numbers: Vec<usize> = Vec::new();
    let mut between = HashMap::new();
    let mut pairs: Vec<_> =
        wiring.between.iter().filter(|((from, _), _)| inputs.contains(from)).collect();
    pairs.sort_unstable();
    for (pair, number) in pairs {
        let line = numbers.iter().position(|known| known == number).unwrap_or_else(|| {
            numbers.push(*number);
            numbers.len() - 1
        });
        between.insert(*pair, line);
    }
    let line = |number: usize| {
        let (name, conditions) = &wiring.lines[number];
        (name.clone(), Line::new(conditions, plan.seed.wrapping_add(number as u64)))
    };
    (Router::new(&plan.addresses, between), numbers.into_iter().map(line).collect())
}
