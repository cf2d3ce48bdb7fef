//! What workers count while they work: counters that another thread may read at any instant, and
//! histograms of the window.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wirecost_model::clock::Nanos;
use wirecost_model::histogram::{Histogram, Recorder};
use wirecost_model::measure::{BURST_CLASSES, Bytes, Counters, Datagrams, FlowopCounts};

use crate::operation_log::OperationLog;

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

/// A number that one thread raises and lowers and any thread may read.
#[derive(Debug, Default)]
pub struct Gauge {
    raised: Count,
    lowered: Count,
}

impl Gauge {
    pub fn raise(&self, n: u64) {
        self.raised.add(n);
    }

    pub fn lower(&self, n: u64) {
        self.lowered.add(n);
    }

    pub fn get(&self) -> u64 {
        // What is lowered meanwhile has been raised before.
        let lowered = self.lowered.get();
        self.raised.get().saturating_sub(lowered)
    }

    /// What has been raised less what has been lowered: less than 0 where another gauge was raised for it.
    pub fn difference(&self) -> i64 {
        self.raised.get().wrapping_sub(self.lowered.get()).cast_signed()
    }

    /// Whether it has ever been more than 0.
    pub fn was_raised(&self) -> bool {
        self.raised.get() > 0
    }
}

/// The earliest instant that one thread has noted since another thread has last taken it.
#[derive(Debug)]
pub struct Earliest(AtomicU64);

impl Default for Earliest {
    fn default() -> Self {
        Self(AtomicU64::new(Nanos::MAX))
    }
}

impl Earliest {
    pub fn note(&self, at: Nanos) {
        if at < self.0.load(Relaxed) {
            self.0.store(at, Relaxed);
        }
    }

    pub fn take(&self) -> Option<Nanos> {
        // The worker's cache line is left alone where nothing has been noted.
        let noted = self.0.load(Relaxed) != Nanos::MAX;
        noted.then(|| self.0.swap(Nanos::MAX, Relaxed)).filter(|at| *at != Nanos::MAX)
    }
}

/// Counters of one worker in one phase.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Transactions of several operations.
    pub transactions: Count,
    pub datagrams_sent: Count,
    pub datagrams_received: Count,
    /// Gaps in the numbers of received datagrams.
    pub gaps: Count,
    /// Numbers that were never sent, because the strand had to catch up.
    pub skipped: Count,
    /// Of these, those that were sent after all, when what they answer came late.
    pub resumed: Count,
    pub late: Count,
    pub arrivals: ArrivalCounters,
    /// Strands that have an operation under way.
    pub working: Gauge,
    /// Strands that think or are paced.
    pub resting: Gauge,
    /// Since when a strand has had something to do that it came to much later only.
    pub late_since: Earliest,
    pub rows: Box<[Arc<RowCounters>]>,
    /// Rows of operations that are a transaction each, so that these are not counted again.
    whole: Vec<u32>,
}

/// In which order datagrams arrive, and how evenly.
#[derive(Debug, Default)]
pub struct ArrivalCounters {
    pub reordered: Count,
    pub duplicated: Count,
    /// Runs of missing datagrams, by class of their length.
    bursts: [Gauge; BURST_CLASSES],
    pub jitter_sum: Count,
    pub jitters: Count,
}

impl ArrivalCounters {
    pub fn burst(&self, class: usize) {
        self.bursts[class].raise(1);
    }

    /// A run is none any more, or another one.
    pub fn burst_ended(&self, class: usize) {
        self.bursts[class].lower(1);
    }

    pub fn bursts(&self) -> [i64; BURST_CLASSES] {
        self.bursts.each_ref().map(Gauge::difference)
    }

    fn add_to(&self, sum: &mut Datagrams) {
        sum.reordered += self.reordered.get();
        sum.duplicated += self.duplicated.get();
        sum.bursts.iter_mut().zip(self.bursts()).for_each(|(sum, of)| *sum += of);
        sum.jitter_sum += self.jitter_sum.get();
        sum.jitters += self.jitters.get();
    }
}

/// Counters of one flowop. Aligned, as those of the worker are, so that no two workers share a
/// cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RowCounters {
    pub done: Count,
    pub failed: Count,
    pub timeouts: Count,
    /// Bytes that acceptors, and that connectors, have moved.
    sent: [Count; 2],
    received: [Count; 2],
}

impl WorkerCounters {
    /// `whole`: rows of operations that are a transaction each.
    pub fn new(rows: usize, whole: Vec<u32>) -> Self {
        Self { rows: (0..rows).map(|_| Arc::default()).collect(), whole, ..Self::default() }
    }

    /// A number that changes whenever a byte moves or an operation completes.
    pub fn progress(&self) -> u64 {
        let of_row = |row: &RowCounters| {
            let [accepted, connected] = row.received.each_ref().map(Count::get);
            let [answered, asked] = row.sent.each_ref().map(Count::get);
            [row.done.get(), accepted, connected, answered, asked]
                .into_iter()
                .fold(0, u64::wrapping_add)
        };
        self.rows.iter().map(|row| of_row(row)).fold(0, u64::wrapping_add)
    }

    /// Transactions that are complete.
    pub fn transactions(&self) -> u64 {
        let whole = self.whole.iter().filter_map(|&row| self.rows.get(row as usize));
        self.transactions.get() + whole.map(|row| row.done.get()).sum::<u64>()
    }
}

/// The sum over workers, now.
pub fn sum<'a>(workers: impl IntoIterator<Item = &'a WorkerCounters>, rows: usize) -> Counters {
    let mut sum = Counters { flowops: vec![FlowopCounts::default(); rows], ..Counters::default() };
    let (mut gaps, mut skipped, mut resumed) = (0u64, 0u64, 0u64);
    for worker in workers {
        let Bytes { tx_sent, tx_received, rx_sent, rx_received } = &mut sum.bytes;
        // Receivers first: what they have was sent before, so a snapshot never shows more received
        // than sent by the order of reading alone.
        for (row, counters) in sum.flowops.iter_mut().zip(&worker.rows) {
            let [acceptors, connectors] = counters.received.each_ref().map(Count::get);
            *tx_received += acceptors;
            *rx_received += connectors;
            row.bytes += acceptors + connectors;
        }
        for (row, counters) in sum.flowops.iter_mut().zip(&worker.rows) {
            let [acceptors, connectors] = counters.sent.each_ref().map(Count::get);
            *rx_sent += acceptors;
            *tx_sent += connectors;
            row.bytes += acceptors + connectors;
        }
        sum.transactions += worker.transactions();
        let Datagrams { sent, received, late, .. } = &mut sum.datagrams;
        *received += worker.datagrams_received.get();
        *sent += worker.datagrams_sent.get();
        *late += worker.late.get();
        worker.arrivals.add_to(&mut sum.datagrams);
        skipped += worker.skipped.get();
        resumed += worker.resumed.get();
        gaps += worker.gaps.get();
        for (row, counters) in sum.flowops.iter_mut().zip(&worker.rows) {
            row.done += counters.done.get();
            row.failed += counters.failed.get();
            row.timeouts += counters.timeouts.get();
        }
    }
    // Workers read one after the other may not agree for a moment.
    sum.datagrams.skipped = skipped.saturating_sub(resumed);
    sum.datagrams.lost = gaps as i64 - (sum.datagrams.skipped + sum.datagrams.late) as i64;
    sum
}

/// What one worker records in one phase.
#[derive(Debug)]
pub struct Record {
    pub counters: Arc<WorkerCounters>,
    /// Beginning and length of the window: only what ends within goes into the histograms.
    window: (Nanos, Nanos),
    /// Latencies of transactions of several operations: of each group, or of all in one place.
    transactions: Box<[Recorder]>,
    rows: Box<[Row]>,
    /// Of datagrams.
    one_way: Recorder,
    pub verify_failures: u64,
    /// Where single operations are kept too.
    log: Option<Box<OperationLog>>,
}

/// Of one flowop; together, so that it is looked up once.
#[derive(Debug)]
struct Row {
    counters: Arc<RowCounters>,
    latencies: Recorder,
}

impl Record {
    /// `groups`: how many groups are told apart; with 0 or 1, none are.
    pub fn new(counters: Arc<WorkerCounters>, window: Range<Nanos>, groups: usize) -> Self {
        let row = |counters: &Arc<RowCounters>| Row {
            counters: counters.clone(),
            latencies: Recorder::default(),
        };
        Self {
            rows: counters.rows.iter().map(row).collect(),
            counters,
            window: (window.start, window.end.saturating_sub(window.start)),
            transactions: (0..groups.max(1)).map(|_| Recorder::default()).collect(),
            one_way: Recorder::default(),
            verify_failures: 0,
            log: None,
        }
    }

    /// The same, which keeps single operations too.
    #[must_use]
    pub fn with_log(mut self, log: Option<OperationLog>) -> Self {
        self.log = log.map(Box::new);
        self
    }

    pub fn take_log(&mut self) -> Option<OperationLog> {
        self.log.take().map(|log| *log)
    }

    /// What follows is of the strand that has this number among its worker's.
    #[inline]
    pub fn begin_turn(&mut self, strand: u32) {
        if let Some(log) = &mut self.log {
            log.begin_turn(strand);
        }
    }

    #[inline]
    fn counts(&self, end: Nanos) -> bool {
        // One comparison for both edges.
        end.wrapping_sub(self.window.0) < self.window.1
    }

    #[inline]
    pub fn sent(&self, row: u32, connector: bool, bytes: u64) {
        self.rows[row as usize].counters.sent[usize::from(connector)].add(bytes);
    }

    #[inline]
    pub fn received(&self, row: u32, connector: bool, bytes: u64) {
        self.rows[row as usize].counters.received[usize::from(connector)].add(bytes);
    }

    /// An operation is complete.
    #[inline]
    pub fn done(&mut self, row: u32, start: Nanos, end: Nanos) {
        self.complete(row, start..end, |_| {});
    }

    /// An operation is complete: one call has sent all its bytes.
    #[inline]
    pub fn sent_at_once(&mut self, row: u32, connector: bool, bytes: u64, time: Range<Nanos>) {
        self.complete(row, time, |counters| counters.sent[usize::from(connector)].add(bytes));
    }

    /// An operation is complete: one call has received all its bytes.
    #[inline]
    pub fn received_at_once(&mut self, row: u32, connector: bool, bytes: u64, time: Range<Nanos>) {
        self.complete(row, time, |counters| counters.received[usize::from(connector)].add(bytes));
    }

    #[inline(always)]
    fn complete(&mut self, row: u32, time: Range<Nanos>, count_bytes: impl FnOnce(&RowCounters)) {
        let counts = self.counts(time.end);
        let row = &mut self.rows[row as usize];
        count_bytes(&row.counters);
        row.counters.done.add(1);
        if counts {
            row.latencies.record(time.end.wrapping_sub(time.start));
        }
        self.log(time.start, time.end, 1);
    }

    /// So many operations began and ended together.
    pub fn done_together(&mut self, row: u32, start: Nanos, end: Nanos, operations: u64) {
        let counts = self.counts(end);
        let row = &mut self.rows[row as usize];
        row.counters.done.add(operations);
        if counts {
            row.latencies.record_many(end.wrapping_sub(start), operations);
        }
        self.log(start, end, operations);
    }

    /// An operation that has been counted as failed is over.
    pub fn failure_ended(&mut self, start: Nanos, end: Nanos) {
        self.log(start, end, 1);
    }

    #[inline]
    fn log(&mut self, start: Nanos, end: Nanos, operations: u64) {
        if let Some(log) = &mut self.log {
            log.add(start, end, operations);
        }
    }

    pub fn failed(&self, row: u32, timed_out: bool) {
        let row = &self.counters.rows[row as usize];
        row.failed.add(1);
        row.timeouts.add(u64::from(timed_out));
    }

    /// A transaction of several operations is complete; it took `latency`, think time excluded.
    #[inline]
    pub fn transaction(&mut self, group: u32, latency: Nanos, end: Nanos) {
        self.counters.transactions.add(1);
        if self.counts(end) {
            let place = (group as usize).min(self.transactions.len() - 1);
            self.transactions[place].record(latency);
        }
    }

    /// A datagram has arrived, so long after it was sent. Clocks that are not quite equal may tell of less
    /// than no time.
    #[inline]
    pub fn one_way(&mut self, delay: i64, arrived: Nanos) {
        if self.counts(arrived) {
            self.one_way.record(delay.max(0).cast_unsigned());
        }
    }

    /// Of datagrams that arrived in the window.
    pub fn one_way_delays(&self) -> Histogram {
        self.one_way.histogram()
    }

    /// Latencies of transactions in the window.
    pub fn transactions(&self) -> Histogram {
        let mut all = Histogram::new();
        for of_group in &self.transactions {
            all.merge(&of_group.histogram());
        }
        for &row in &self.counters.whole {
            if let Some(row) = self.rows.get(row as usize) {
                all.merge(&row.latencies.histogram());
            }
        }
        all
    }

    /// Those of transactions of several operations, by group, where groups are told apart.
    pub fn transactions_of_groups(&self) -> Vec<Histogram> {
        self.transactions.iter().map(Recorder::histogram).collect()
    }

    /// Latencies of operations in the window, by row.
    pub fn latencies(&self) -> Vec<Histogram> {
        self.rows.iter().map(|row| row.latencies.histogram()).collect()
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::measure::LoggedOperation;

    use super::*;
    use crate::operation_log::LogMemory;

    /// Bytes by way are the sum over rows; an operation that is a transaction is counted as both.
    #[test]
    fn what_rows_count_adds_up() {
        let counters = Arc::new(WorkerCounters::new(2, vec![0]));
        let mut record = Record::new(counters.clone(), 10..20, 2);
        for (start, end) in [(5, 9), (9, 10), (15, 19), (19, 20)] {
            record.sent(0, true, 100);
            record.done(0, start, end);
        }
        record.sent(1, false, 7);
        record.received(1, true, 50);
        record.received(1, false, 3);
        record.done(1, 10, 12);
        record.transaction(1, 8, 12);
        record.failed(1, true);

        let sum = sum([&*counters], 2);
        assert_eq!(sum.bytes, Bytes { tx_sent: 400, tx_received: 3, rx_sent: 7, rx_received: 50 });
        let row = |done, bytes, failed| FlowopCounts { done, bytes, failed, timeouts: failed };
        assert_eq!(sum.flowops, [row(4, 400, 0), row(1, 60, 1)]);
        assert_eq!(sum.transactions, 5);
        // Only those that ended in the window are timed.
        assert_eq!(record.latencies().iter().map(Histogram::count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(record.transactions().count(), 3);
        let of_groups = record.transactions_of_groups();
        assert_eq!(of_groups.iter().map(Histogram::count).collect::<Vec<_>>(), [0, 1]);
    }

    /// All operations are counted, and the first of them are kept: one entry for each, also of those that
    /// ended at once or failed.
    #[test]
    fn as_many_operations_are_kept_as_there_is_memory_for() {
        let memory = Arc::new(LogMemory::new(5, 1));
        let counters = Arc::new(WorkerCounters::new(1, vec![]));
        let record = Record::new(counters.clone(), 0..100, 1);
        let mut record = record.with_log(Some(OperationLog::new(memory)));
        record.begin_turn(1);
        record.done(0, 5, 9);
        record.done_together(0, 20, 20, 2);
        record.begin_turn(0);
        record.failed(0, true);
        record.failure_ended(20, 27);
        record.done_together(0, 30, 30, 3);
        record.done(0, 30, 31);

        assert_eq!((counters.rows[0].done.get(), counters.rows[0].failed.get()), (7, 1));
        let (of_strands, left_out) = record.take_log().unwrap().finish(2);
        let operation = |end, length| LoggedOperation { end, length };
        assert_eq!(of_strands[1], [operation(9, 4), operation(20, 0), operation(20, 0)]);
        assert_eq!(of_strands[0], [operation(27, 7), operation(30, 0)]);
        assert_eq!(left_out, 3);
    }
}
