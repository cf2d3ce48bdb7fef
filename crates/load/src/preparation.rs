//! How far a host is with the files that it makes and reads before a run.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counted by the thread that prepares, and read by whoever waits for it.
#[derive(Debug, Default)]
pub struct Preparation {
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Preparation {
    /// Bytes that have been written to devices or read, and those that are to be.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Nobody waits any more: the thread that prepares ends with an error.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether nobody waits any more.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// # Errors
    /// It has been cancelled.
    pub(crate) fn did(&self, bytes: u64) -> io::Result<()> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        match self.is_cancelled() {
            true => Err(io::Error::other("the controller has gone")),
            false => Ok(()),
        }
    }
}
