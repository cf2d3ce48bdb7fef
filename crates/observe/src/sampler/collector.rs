//! Takes samples out of the rings before they are full, and counts equal ones.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::perf::{CpuSampler, Record};
use wirecost_linux::process_time;
use wirecost_model::clock::{Clock, MILLISECOND, Nanos};

use super::mappings::Mappings;

/// Samples of one block may be alike, as what the CPUs do lasts; those of different ones hardly are.
const BLOCK: Nanos = 100 * MILLISECOND;

/// Where a CPU was found: addresses from the innermost function outwards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    pub(super) cpu: u32,
    pub(super) process: u32,
    pub(super) in_kernel: bool,
    /// It was the collecting thread itself.
    pub(super) own: bool,
    /// Number of the block of the window in which it was.
    pub(super) block: u32,
    pub(super) kernel: Box<[u64]>,
    pub(super) user: Box<[u64]>,
}

/// A process that samples were taken of, as it was when the window ended.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// None when it has ended.
    pub(super) name: Option<String>,
    pub(super) mappings: Mappings,
}

/// All samples of a window.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) stacks: Vec<(Stack, u64)>,
    pub(super) lost: u64,
    pub(super) processes: BTreeMap<u32, Process>,
}

#[derive(Debug, Default)]
struct Store {
    samplers: Vec<CpuSampler>,
    stacks: HashMap<Stack, u64>,
    collecting_thread: Option<u32>,
    lost_before: u64,
    begin: Nanos,
}

impl Store {
    fn drain(&mut self) {
        let (own, begin) = (self.collecting_thread, self.begin);
        for sampler in &mut self.samplers {
            sampler.drain(|record| {
                let Record::Sample(sample) = record else { return };
                let (kernel, user) = sample.chain.split();
                let stack = Stack {
                    cpu: sample.cpu,
                    process: sample.process,
                    in_kernel: sample.in_kernel,
                    own: Some(sample.thread) == own,
                    block: (sample.at.saturating_sub(begin) / BLOCK) as u32,
                    kernel: kernel.into(),
                    user: user.into(),
                };
                *self.stacks.entry(stack).or_default() += 1;
            });
        }
    }

    fn lost(&self) -> u64 {
        self.samplers.iter().map(CpuSampler::lost).sum()
    }
}

/// Samplers of all CPUs, and the thread that empties them. Gone when dropped.
#[derive(Debug)]
pub(super) struct Collector {
    store: Arc<Mutex<Store>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(super) fn start(samplers: Vec<CpuSampler>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ready = samplers
            .iter()
            .map(|sampler| sampler.as_fd().try_clone_to_owned())
            .collect::<io::Result<Vec<_>>>()?;
        let store = Arc::new(Mutex::new(Store { samplers, ..Store::default() }));
        let (theirs, told) = (Arc::clone(&store), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || collect(&theirs, &ready, &told))?;
        Ok(Self { store, stop, thread: Some(thread) })
    }

    pub(super) fn begin(&self) -> io::Result<()> {
        let mut store = lock(&self.store);
        store.drain();
        store.stacks.clear();
        store.lost_before = store.lost();
        store.begin = Monotonic.now();
        store.samplers.iter().try_for_each(CpuSampler::start)
    }

    /// All are stopped before any is emptied, so that emptying one is not in the samples of another.
    pub(super) fn stop(&self) -> io::Result<()> {
        lock(&self.store).samplers.iter().try_for_each(CpuSampler::stop)
    }

    /// What was taken until they were stopped, and where programs are in memory, which takes long to read.
    pub(super) fn collect(&self) -> Collected {
        let mut store = lock(&self.store);
        store.drain();
        let lost = store.lost().saturating_sub(store.lost_before);
        let stacks: Vec<(Stack, u64)> = std::mem::take(&mut store.stacks).into_iter().collect();
        drop(store);
        let mut processes = BTreeMap::new();
        for (stack, _) in &stacks {
            processes.entry(stack.process).or_insert_with(|| Process {
                name: process_time::name(stack.process),
                mappings: Mappings::of(stack.process),
            });
        }
        Collected { stacks, lost, processes }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // A write of 8 bytes to a counter that is 0 neither fails nor waits.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn collect(store: &Mutex<Store>, ready: &[OwnedFd], stop: &OwnedFd) {
    let thread = rustix::thread::gettid();
    lock(store).collecting_thread = u32::try_from(thread.as_raw_nonzero().get()).ok();
    loop {
        let mut waiting = vec![PollFd::new(stop, PollFlags::IN)];
        waiting.extend(ready.iter().map(|event| PollFd::new(event, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        if waiting.first().is_none_or(|stop| !stop.revents().is_empty()) {
            return;
        }
        lock(store).drain();
    }
}
