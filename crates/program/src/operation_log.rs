//! Single operations of a host, kept in memory that is there before a phase begins.
//!
//! Workers take the memory in blocks, so that together they keep as many operations as the host may,
//! however unevenly they work, and share nothing from one operation to the next.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use wirecost_model::clock::Nanos;
use wirecost_model::measure::LoggedOperation;

/// Operations of a block. One of a host with many workers has fewer, down to the least.
const BLOCK: u64 = 1024;
const LEAST_BLOCK: u64 = 16;
/// Blocks that a worker has memory to list before a phase. With the usual numbers of workers, these are
/// all that there are.
const LISTED: usize = 1024;

/// An operation of a worker.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Number of the strand among its worker's.
    strand: u32,
    end: Nanos,
    length: Nanos,
}

/// Not zero, so that the pages of a block are there before the phase.
const FREE: Entry = Entry { strand: u32::MAX, end: Nanos::MAX, length: Nanos::MAX };

type Block = Box<[Entry]>;

fn block(operations: u64) -> Block {
    vec![FREE; operations as usize].into_boxed_slice()
}

/// What the workers of a host have left for operations, from phase to phase.
#[derive(Debug)]
pub struct LogMemory(Mutex<Vec<Block>>);

impl LogMemory {
    /// Memory for that many operations of all workers.
    pub fn new(operations: u64, workers: u32) -> Self {
        let usual = (operations / (4 * u64::from(workers.max(1)))).clamp(LEAST_BLOCK, BLOCK);
        let rest = operations % usual;
        let whole = (0..operations / usual).map(|_| block(usual));
        Self(Mutex::new(whole.chain((rest > 0).then(|| block(rest))).collect()))
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operations of one worker in one phase.
#[derive(Debug)]
pub struct OperationLog {
    memory: Arc<LogMemory>,
    /// Strand that has its turn, by its number among the worker's.
    strand: u32,
    full: Vec<Block>,
    block: Block,
    /// Operations in `block`.
    used: usize,
    /// No memory is left.
    ended: bool,
    left_out: u64,
}

impl OperationLog {
    pub fn new(memory: Arc<LogMemory>) -> Self {
        let listed = memory.blocks().len().min(LISTED);
        Self {
            memory,
            strand: 0,
            full: Vec::with_capacity(listed),
            block: Block::default(),
            used: 0,
            ended: false,
            left_out: 0,
        }
    }

    pub(crate) fn begin_turn(&mut self, strand: u32) {
        self.strand = strand;
    }

    // A function of its own keeps the code of workers that log nothing small.
    #[inline(never)]
    pub(crate) fn add(&mut self, start: Nanos, end: Nanos, operations: u64) {
        let entry = Entry { strand: self.strand, end, length: end.saturating_sub(start) };
        for added in 0..operations {
            if self.used == self.block.len() && !self.next_block() {
                self.left_out += operations - added;
                return;
            }
            self.block[self.used] = entry;
            self.used += 1;
        }
    }

    fn next_block(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let Some(next) = self.memory.blocks().pop() else {
            self.ended = true;
            return false;
        };
        let full = mem::replace(&mut self.block, next);
        if !full.is_empty() {
            self.full.push(full);
        }
        self.used = 0;
        true
    }

    /// Operations of each of so many strands in their order, and how many more there were. What is left
    /// of the memory is for the next phase.
    pub fn finish(mut self, strands: usize) -> (Vec<Vec<LoggedOperation>>, u64) {
        let mut of_strands = vec![Vec::new(); strands];
        let used = self.block.get(..self.used).unwrap_or_default();
        for entry in self.full.iter().flatten().chain(used) {
            if let Some(operations) = of_strands.get_mut(entry.strand as usize) {
                operations.push(LoggedOperation { end: entry.end, length: entry.length });
            }
        }
        let left = self.block.len() - self.used;
        if left > 0 {
            let rest = match self.used {
                0 => mem::take(&mut self.block),
                _ => block(left as u64),
            };
            self.memory.blocks().push(rest);
        }
        (of_strands, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(log: OperationLog, strands: usize) -> (Vec<Vec<Nanos>>, u64) {
        let (of_strands, left_out) = log.finish(strands);
        let lengths = |operations: &Vec<LoggedOperation>| {
            operations.iter().map(|operation| operation.length).collect()
        };
        (of_strands.iter().map(lengths).collect(), left_out)
    }

    #[test]
    fn operations_are_listed_by_strand_in_their_order() {
        let mut log = OperationLog::new(Arc::new(LogMemory::new(100, 1)));
        for (strand, start, end) in [(1, 5, 9), (0, 1, 2), (1, 9, 12), (0, 8, 7)] {
            log.begin_turn(strand);
            log.add(start, end, 1);
        }
        log.add(20, 20, 2);
        assert_eq!(lengths(log, 2), (vec![vec![1, 0, 0, 0], vec![4, 3]], 0));
    }

    /// However uneven the shares of workers are, and over all phases.
    #[test]
    fn a_host_keeps_as_many_operations_as_it_may() {
        for (operations, workers) in [(1, 1), (100, 3), (5000, 1), (5000, 2), (100_000, 4)] {
            let memory = Arc::new(LogMemory::new(operations, workers));
            let mut kept = 0;
            for phase in 0..3 {
                let mut logs: Vec<_> =
                    (0..workers).map(|_| OperationLog::new(memory.clone())).collect();
                // The last phase has more than what is left.
                let wanted = if phase < 2 { operations / 4 } else { operations };
                for number in 0..wanted {
                    logs[if number % 7 == 0 { 0 } else { workers as usize - 1 }].add(0, number, 1);
                }
                let ended = logs.into_iter().map(|log| lengths(log, 1));
                let (of_phase, left_out) = ended.fold((0, 0), |(kept, left_out), (all, more)| {
                    (kept + all[0].len() as u64, left_out + more)
                });
                assert_eq!(of_phase + left_out, wanted);
                assert_eq!(left_out, (kept + wanted).saturating_sub(operations).min(wanted));
                kept += of_phase;
            }
            assert_eq!(kept, operations);
        }
    }
}
