//! Reads the counters of emulated links while a run lasts.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wirecost_lab::{Lab, LinkReader};
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::Clock as _;
use wirecost_model::link::{LinkOutcome, LinkSample, LinkSpec, Topology};

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
    pid: u32,
    stop: Sender<()>,
    thread: JoinHandle<Vec<LinkSample>>,
}

impl LinkSampler {
    /// Begins to read; `None` if the lab has no emulated links.
    pub(super) fn start(lab: &Lab) -> Option<Self> {
        let (topology, link) = lab.emulated()?;
        let reader = lab.link_reader()?;
        let pid = reader.pid();
        let (stop, stopped) = mpsc::channel();
        let read = move || {
            let (mut samples, mut interval) = (Vec::new(), INTERVAL);
            loop {
                samples.extend(sample(&reader));
                if samples.len() > MOST {
                    samples = samples.into_iter().step_by(2).collect();
                    interval *= 2;
                }
                if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return samples;
                }
            }
        };
        let thread = thread::Builder::new().name("link-samples".to_owned()).spawn(read).ok()?;
        Some(Self { topology, link: link.clone(), pid, stop, thread })
    }

    /// What was read.
    pub(super) fn finish(self) -> LinkOutcome {
        let Self { topology, link, pid, stop, thread } = self;
        drop(stop);
        LinkOutcome { topology, link, pid, samples: thread.join().unwrap_or_default() }
    }
}

/// An emulator that has ended has no counters; the hosts' traffic has ended too.
fn sample(reader: &LinkReader) -> Option<LinkSample> {
    let counts = reader.read().ok()?;
    Some(LinkSample { at: Monotonic.now(), counts })
}
