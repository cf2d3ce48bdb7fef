//! Counts the heap allocations of each thread, for tests that say where there must be none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The system's allocator, with a count for each thread. A test makes it its `#[global_allocator]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

/// Threads that can be counted, those that have ended included.
const THREADS: usize = 1 << 15;
/// Backtraces that are kept until they are taken.
const BACKTRACES: usize = 4;

struct Thread {
    number: AtomicI32,
    allocations: AtomicU64,
    watched: AtomicBool,
}

static COUNTED: [Thread; THREADS] = [const {
    Thread {
        number: AtomicI32::new(0),
        allocations: AtomicU64::new(0),
        watched: AtomicBool::new(false),
    }
}; THREADS];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static TRACES: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// The calling thread's place in the table. These have neither a destructor nor a lazy beginning, so
    /// that reading them allocates nothing.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Whether a backtrace is being made, which allocates.
    static TRACING: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of a thread of this process so far, by its number in /proc/self/task.
#[must_use]
pub fn of_thread(number: i32) -> u64 {
    find(number).map_or(0, |thread| thread.allocations.load(Relaxed))
}

/// Keeps backtraces of a thread's allocations from now on, or no longer.
pub fn watch(number: i32, on: bool) {
    if let Some(thread) = find(number) {
        thread.watched.store(on, Relaxed);
    }
}

/// The backtraces that have been kept.
#[must_use]
pub fn take_backtraces() -> Vec<String> {
    TRACES.lock().map(|mut traces| std::mem::take(&mut *traces)).unwrap_or_default()
}

/// The newest thread of that number: numbers come again.
fn find(number: i32) -> Option<&'static Thread> {
    let used = NEXT.load(Relaxed).min(THREADS);
    COUNTED[..used].iter().rev().find(|thread| thread.number.load(Relaxed) == number)
}

fn count() {
    if TRACING.get() {
        return;
    }
    if PLACE.get() == usize::MAX {
        PLACE.set(NEXT.fetch_add(1, Relaxed));
        if let Some(thread) = COUNTED.get(PLACE.get()) {
            let number = rustix::thread::gettid().as_raw_nonzero().get();
            thread.number.store(number, Relaxed);
        }
    }
    let Some(thread) = COUNTED.get(PLACE.get()) else { return };
    thread.allocations.fetch_add(1, Relaxed);
    if thread.watched.load(Relaxed) {
        TRACING.set(true);
        if let Ok(mut traces) = TRACES.lock()
            && traces.len() < BACKTRACES
        {
            traces.push(Backtrace::force_capture().to_string());
        }
        TRACING.set(false);
    }
}

// SAFETY: every call is handed on to the system's allocator as it came. Counting neither unwinds nor
// reads the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}
