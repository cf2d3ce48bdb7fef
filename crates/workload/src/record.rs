//! What workers count while they work: counters that another thread may read at any instant, and
//! histograms of the window.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wirecost_model::clock::Nanos;
use wirecost_model::histogram::{Histogram, Recorder};
use wirecost_model::measure::{Bytes, Counters, Datagrams, FlowopCounts};

/// A number that one thread adds to and any thread may read: a plain load and store, no locked
/// instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one worker in one phase. Aligned so that no two workers share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    pub tx_sent: Count,
    pub tx_received: Count,
    pub rx_sent: Count,
    pub rx_received: Count,
    pub transactions: Count,
    pub datagrams_sent: Count,
    pub datagrams_received: Count,
    /// Gaps in the numbers of received datagrams.
    pub gaps: Count,
    /// Numbers that were never sent, because the strand had to catch up.
    pub skipped: Count,
    pub late: Count,
    pub rows: Vec<RowCounters>,
}

/// Counters of one flowop.
#[derive(Debug, Default)]
pub struct RowCounters {
    pub done: Count,
    pub failed: Count,
    pub timeouts: Count,
    pub bytes: Count,
}

impl WorkerCounters {
    pub fn new(rows: usize) -> Self {
        Self { rows: (0..rows).map(|_| RowCounters::default()).collect(), ..Self::default() }
    }
}

/// The sum over workers, now.
pub fn sum<'a>(workers: impl IntoIterator<Item = &'a WorkerCounters>, rows: usize) -> Counters {
    let mut sum = Counters { flowops: vec![FlowopCounts::default(); rows], ..Counters::default() };
    let (mut gaps, mut not_lost) = (0u64, 0u64);
    for worker in workers {
        let Bytes { tx_sent, tx_received, rx_sent, rx_received } = &mut sum.bytes;
        // Receivers first: what they have was sent before, so a cut never shows more received than
        // sent by the order of reading alone.
        *tx_received += worker.tx_received.get();
        *rx_received += worker.rx_received.get();
        *tx_sent += worker.tx_sent.get();
        *rx_sent += worker.rx_sent.get();
        sum.transactions += worker.transactions.get();
        let Datagrams { sent, received, late, .. } = &mut sum.datagrams;
        *received += worker.datagrams_received.get();
        *sent += worker.datagrams_sent.get();
        *late += worker.late.get();
        gaps += worker.gaps.get();
        not_lost += worker.skipped.get() + worker.late.get();
        for (row, counters) in sum.flowops.iter_mut().zip(&worker.rows) {
            row.done += counters.done.get();
            row.failed += counters.failed.get();
            row.timeouts += counters.timeouts.get();
            row.bytes += counters.bytes.get();
        }
    }
    sum.datagrams.lost = gaps as i64 - not_lost as i64;
    sum
}

/// What one worker records in one phase.
#[derive(Debug)]
pub struct Record {
    pub counters: Arc<WorkerCounters>,
    /// Beginning and length of the window: only what ends within goes into the histograms.
    window: (Nanos, Nanos),
    transactions: Recorder,
    latencies: Vec<Recorder>,
    /// Rows of operations that are a transaction each.
    whole: Vec<u32>,
    pub verify_failures: u64,
}

impl Record {
    /// `whole`: rows of operations that are a transaction each. Their latencies are recorded once.
    pub fn new(counters: Arc<WorkerCounters>, window: Range<Nanos>, whole: Vec<u32>) -> Self {
        let rows = counters.rows.len();
        Self {
            counters,
            window: (window.start, window.end.saturating_sub(window.start)),
            transactions: Recorder::default(),
            latencies: vec![Recorder::default(); rows],
            whole,
            verify_failures: 0,
        }
    }

    #[inline]
    fn counts(&self, end: Nanos) -> bool {
        // One comparison for both edges.
        end.wrapping_sub(self.window.0) < self.window.1
    }

    /// An operation is complete.
    #[inline]
    pub fn done(&mut self, row: u32, start: Nanos, end: Nanos) {
        let row = row as usize;
        self.counters.rows[row].done.add(1);
        if self.counts(end) {
            self.latencies[row].record(end.wrapping_sub(start));
        }
    }

    pub fn failed(&self, row: u32, timed_out: bool) {
        let row = &self.counters.rows[row as usize];
        row.failed.add(1);
        row.timeouts.add(u64::from(timed_out));
    }

    /// A transaction of several operations is complete; it took `latency`, think time excluded.
    #[inline]
    pub fn transaction(&mut self, latency: Nanos, end: Nanos) {
        self.counters.transactions.add(1);
        if self.counts(end) {
            self.transactions.record(latency);
        }
    }

    /// A transaction that is one operation is complete, which is recorded already.
    #[inline]
    pub fn whole_transaction(&self) {
        self.counters.transactions.add(1);
    }

    /// Latencies of transactions in the window.
    pub fn transactions(&self) -> Histogram {
        let mut all = self.transactions.histogram();
        for &row in &self.whole {
            if let Some(latencies) = self.latencies.get(row as usize) {
                all.merge(&latencies.histogram());
            }
        }
        all
    }

    /// Latencies of operations in the window, by row.
    pub fn latencies(&self) -> Vec<Histogram> {
        self.latencies.iter().map(Recorder::histogram).collect()
    }

    #[inline]
    pub fn sent(&self, row: u32, connector: bool, bytes: u64) {
        let counters = &*self.counters;
        if connector { &counters.tx_sent } else { &counters.rx_sent }.add(bytes);
        counters.rows[row as usize].bytes.add(bytes);
    }

    #[inline]
    pub fn received(&self, row: u32, connector: bool, bytes: u64) {
        let counters = &*self.counters;
        if connector { &counters.rx_received } else { &counters.tx_received }.add(bytes);
        counters.rows[row as usize].bytes.add(bytes);
    }
}
