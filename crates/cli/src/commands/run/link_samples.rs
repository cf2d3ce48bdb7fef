//! Reads the counters of links while a run lasts.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wirecost_lab::{Lab, LinkReader, QdiscReader};
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::Clock as _;
use wirecost_model::link::netem::{NetemOutcome, NetemSample};
use wirecost_model::link::{LinkOutcome, LinkSample, LinkSpec, Topology};
use wirecost_model::outcome::Outcome;

/// The edges of a window lie between two readings. A reading takes the emulator's process less than a millisecond.
const INTERVAL: Duration = Duration::from_millis(100);

/// Of more readings every other is forgotten, and the interval is twice as long from then on: the edges of a long
/// window need not be known as exactly.
const MOST: usize = 1_024;

/// Readings in progress.
#[derive(Debug)]
pub(super) struct LinkSampler {
    topology: Topology,
    link: LinkSpec,
    stop: Sender<()>,
    readings: Readings,
}

#[derive(Debug)]
enum Readings {
    /// Of the emulator, by the identifier of its process.
    Emulator(u32, JoinHandle<Vec<LinkSample>>),
    /// Of netem; without a thread where it cannot be read.
    Netem(Option<JoinHandle<Vec<NetemSample>>>),
}

impl LinkSampler {
    /// Begins to read; `None` if the lab has no emulated links.
    pub(super) fn start(lab: &Lab) -> Option<Self> {
        let (topology, link, _) = lab.emulated()?;
        let (stop, stopped) = mpsc::channel();
        let readings = match (lab.qdisc_reader(), lab.link_reader()) {
            (Some(reader), _) => Readings::Netem(
                reader.ok().and_then(|reader| readings(stopped, move || of_netem(&reader))),
            ),
            (None, Some(reader)) => {
                let pid = reader.pid();
                Readings::Emulator(pid, readings(stopped, move || of_emulator(&reader))?)
            }
            (None, None) => return None,
        };
        Some(Self { topology, link: link.clone(), stop, readings })
    }

    /// Adds what was read to the outcome of the run.
    pub(super) fn finish(self, outcome: &mut Outcome) {
        let Self { topology, link, stop, readings } = self;
        drop(stop);
        match readings {
            Readings::Emulator(pid, thread) => {
                let samples = thread.join().unwrap_or_default();
                outcome.link = Some(LinkOutcome { topology, link, pid, samples });
            }
            Readings::Netem(thread) => {
                let samples = thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
                outcome.netem = Some(NetemOutcome { topology, link, samples });
            }
        }
    }
}

/// Reads again and again until the other end of the channel is gone.
fn readings<T: Send + 'static>(
    stopped: mpsc::Receiver<()>,
    read: impl Fn() -> Option<T> + Send + 'static,
) -> Option<JoinHandle<Vec<T>>> {
    let read_all = move || {
        let (mut samples, mut interval) = (Vec::new(), INTERVAL);
        loop {
            samples.extend(read());
            if samples.len() > MOST {
                samples = samples.into_iter().step_by(2).collect();
                interval *= 2;
            }
            if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return samples;
            }
        }
    };
    thread::Builder::new().name("link-samples".to_owned()).spawn(read_all).ok()
}

/// An emulator that has ended has no counters; the hosts' traffic has ended too.
fn of_emulator(reader: &LinkReader) -> Option<LinkSample> {
    let counts = reader.read().ok()?;
    Some(LinkSample { at: Monotonic.now(), counts })
}

/// Without a switch there are no counters; the hosts' traffic has ended too.
fn of_netem(reader: &QdiscReader) -> Option<NetemSample> {
    let lines = reader.read().ok()?;
    Some(NetemSample { at: Monotonic.now(), lines })
}
