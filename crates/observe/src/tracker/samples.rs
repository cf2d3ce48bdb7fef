//! What each CPU did over time: counts at the edges between parts of 10 ms, from the records of samples.h.

use std::collections::BTreeMap;

use wirecost_model::clock::Nanos;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{Tracker, slot};
use crate::bpf::BpfError;

/// Length of a part, as samples.h has it.
pub(crate) const PART: Nanos = 10_000_000;
/// Records of a CPU, as samples.h has them. Whoever reads them must do so before a CPU can leave so many.
const RECORDS: usize = 256;
/// Time between two readings of the records, of which a CPU leaves 100 meanwhile at most.
pub(crate) const READ_EVERY: Nanos = 1_000_000_000;
/// Edges of all CPUs together. Where a window has more, only every second one is kept, and so on.
const MOST: usize = 100_000;

/// `struct crossing` of samples.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Crossing {
    number: u64,
    start: u64,
    end: u64,
    idle: u64,
    irq: u64,
    softirq: u64,
    interrupts: u64,
    slot: u64,
    same_number: u64,
}

/// `struct crossings` of samples.h.
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Crossings {
    newest: u64,
    records: [Crossing; RECORDS],
}

/// What a CPU has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) idle: Nanos,
    pub(crate) irq: Nanos,
    pub(crate) softirq: Nanos,
    pub(crate) interrupts: u64,
}

impl Counts {
    /// None where a count has become less, which an interrupt can cause that came while it was read.
    fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            idle: self.idle.checked_sub(before.idle)?,
            irq: self.irq.checked_sub(before.irq)?,
            softirq: self.softirq.checked_sub(before.softirq)?,
            interrupts: self.interrupts.checked_sub(before.interrupts)?,
        })
    }
}

impl Crossing {
    /// What had been counted at an instant of the span.
    fn at(&self, instant: Nanos) -> Counts {
        let mut counts = Counts {
            idle: self.idle,
            irq: self.irq,
            softirq: self.softirq,
            interrupts: self.interrupts,
        };
        let passed = instant - self.start;
        match self.slot as usize {
            slot::IDLE => counts.idle += passed,
            slot if slot::IRQ.contains(&slot) => counts.irq += passed,
            slot if slot::SOFTIRQS.contains(&slot) => counts.softirq += passed,
            _ => {}
        }
        counts
    }
}

/// Counts at the edges of one CPU.
#[derive(Debug, Clone, Default)]
struct Edges {
    /// The newest record that has been read.
    taken: u64,
    /// The first edge of the window: its time divided by the length of a part. None until the window has begun.
    first: Option<u64>,
    /// Nothing where the record was lost.
    counts: Vec<Option<Counts>>,
}

impl Edges {
    /// Adds the edges in the span of a record.
    fn add(&mut self, record: &Crossing, part: Nanos) {
        let Some(first) = self.first else { return };
        self.taken = self.taken.max(record.number);
        let (mut edge, last) = (record.start / part + 1, record.end / part);
        // An interrupt may have left a record of the same edges.
        edge = edge.max(first + self.counts.len() as u64);
        while edge <= last {
            self.counts.resize((edge - first) as usize, None);
            self.counts.push(Some(record.at(edge * part)));
            edge += 1;
        }
    }

    /// Keeps every second edge, those whose number is even.
    fn halve(&mut self) {
        let Some(first) = self.first else { return };
        let skipped = (first % 2) as usize;
        self.first = Some(first.div_ceil(2));
        self.counts = self.counts.iter().skip(skipped).step_by(2).copied().collect();
    }
}

/// What each CPU had counted at each edge of the window that has been read so far.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    /// Length of a part.
    part: Nanos,
    cpus: BTreeMap<u32, Edges>,
}

/// What one CPU did in each part of the window. The ends of the window that are no whole part are in none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) cpu: u32,
    /// On the kernel's monotonic clock.
    pub(crate) start: Nanos,
    pub(crate) counts: Vec<Option<Counts>>,
}

impl Default for Samples {
    fn default() -> Self {
        Self { part: PART, cpus: BTreeMap::new() }
    }
}

impl Samples {
    /// Length of a part.
    pub(crate) fn part(&self) -> Nanos {
        self.part
    }

    /// By CPU.
    pub(crate) fn parts(&self) -> Vec<Parts> {
        let of_cpu = |(&cpu, edges): (&u32, &Edges)| {
            let counts = edges.counts.windows(2).map(|pair| match pair {
                [Some(before), Some(after)] => after.since(before),
                _ => None,
            });
            Some(Parts { cpu, start: edges.first? * self.part, counts: counts.collect() })
        };
        self.cpus.iter().filter_map(of_cpu).collect()
    }

    /// Takes over the records of a CPU that have come since the last time.
    fn take(&mut self, cpu: u32, began: Nanos, all: &Crossings) {
        let part = self.part;
        let edges = self.cpus.entry(cpu).or_default();
        edges.first.get_or_insert(began / part + 1);
        // One that is being written has two numbers.
        let whole = all.records.iter().filter(|record| record.number == record.same_number);
        let mut new: Vec<&Crossing> = whole.filter(|record| record.number > edges.taken).collect();
        new.sort_by_key(|record| record.number);
        new.into_iter().for_each(|record| edges.add(record, part));
    }

    /// Keeps the edges of all CPUs few.
    fn bound(&mut self, most: usize) {
        while self.cpus.values().map(|edges| edges.counts.len()).sum::<usize>() > most {
            self.part *= 2;
            self.cpus.values_mut().for_each(Edges::halve);
        }
    }
}

impl Tracker {
    /// Begins anew: what has been left so far is of another window.
    pub(super) fn forget_samples(&mut self) -> Result<(), BpfError> {
        self.samples = Samples::default();
        if !self.samples_wanted {
            return Ok(());
        }
        for (cpu, all) in self.of_online(self.loaded.percpu::<Crossings>("crossings", 0)?) {
            self.samples.cpus.insert(cpu, Edges { taken: all.newest, ..Edges::default() });
        }
        Ok(())
    }

    /// Takes over what the CPUs have left since the last time, of a window that has begun.
    ///
    /// # Errors
    /// Where the kernel does not give the maps.
    pub(crate) fn read_samples(&mut self) -> Result<(), BpfError> {
        if !self.samples_wanted {
            return Ok(());
        }
        let states = self.states()?;
        for (cpu, all) in self.of_online(self.loaded.percpu::<Crossings>("crossings", 0)?) {
            if let Some(state) = states.get(&cpu) {
                self.samples.take(cpu, state.began, &all);
            }
        }
        self.samples.bound(MOST);
        Ok(())
    }

    /// Of the window, as far as it has been read; nothing where nobody asked.
    pub(crate) fn samples(&self) -> Option<&Samples> {
        self.samples_wanted.then_some(&self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: u64 = slot::TASK as u64;
    const NET_RX: u64 = slot::SOFTIRQS.start as u64 + 3;
    /// Not at an edge, as no window begins at one.
    const BEGAN: Nanos = 1_234 * PART + 3_000_000;

    /// A CPU as the BPF programs account it: one transition after the other.
    struct Accounting {
        now: Nanos,
        edge: Nanos,
        counts: Counts,
        all: Crossings,
    }

    impl Accounting {
        fn new() -> Self {
            let none = Crossing::read_from_bytes(&[0; size_of::<Crossing>()]).unwrap();
            Self {
                now: BEGAN,
                edge: (BEGAN / PART + 1) * PART,
                // What was counted in windows before.
                counts: Counts { idle: 77, irq: 88, softirq: 99, interrupts: 11 },
                all: Crossings { newest: 0, records: [none; RECORDS] },
            }
        }

        /// What runs now goes on for so long.
        fn spend(&mut self, slot: u64, ns: Nanos) {
            let end = self.now + ns;
            let Counts { idle, irq, softirq, interrupts } = self.counts;
            let record = Crossing {
                number: self.all.newest + 1,
                start: self.now,
                end,
                idle,
                irq,
                softirq,
                interrupts,
                slot,
                same_number: self.all.newest + 1,
            };
            if end >= self.edge {
                self.all.newest += 1;
                self.all.records[self.all.newest as usize % RECORDS] = record;
                self.edge = (end / PART + 1) * PART;
            }
            match slot as usize {
                slot::IDLE => self.counts.idle += ns,
                slot if slot::IRQ.contains(&slot) => self.counts.irq += ns,
                slot if slot::SOFTIRQS.contains(&slot) => self.counts.softirq += ns,
                _ => {}
            }
            self.now = end;
        }
    }

    fn read(samples: &mut Samples, accounting: &Accounting) {
        samples.take(0, BEGAN, &accounting.all);
    }

    fn sum(parts: &Parts, of: fn(&Counts) -> Nanos) -> Nanos {
        parts.counts.iter().map(|counts| of(&counts.unwrap())).sum()
    }

    #[test]
    fn a_long_span_is_in_all_parts_that_it_covers() {
        let (mut cpu, mut samples) = (Accounting::new(), Samples::default());
        // Until 4 ms after the first edge, then 40 ms, then 2 ms: the last whole part ends with it.
        cpu.spend(BUSY, 11_000_000);
        cpu.spend(slot::IDLE as u64, 40_000_000);
        cpu.spend(NET_RX, 2_000_000);
        cpu.spend(slot::IRQ.start as u64, 4_000_000);
        read(&mut samples, &cpu);
        let parts = samples.parts().remove(0);
        assert_eq!(parts.start, 1_235 * PART);
        let of = |of: fn(&Counts) -> Nanos| -> Vec<Nanos> {
            parts.counts.iter().map(|counts| of(&counts.unwrap())).collect()
        };
        assert_eq!(of(|c| c.idle), [6_000_000, PART, PART, PART, 4_000_000]);
        assert_eq!(of(|c| c.softirq), [0, 0, 0, 0, 2_000_000]);
        assert_eq!(of(|c| c.irq), [0, 0, 0, 0, 4_000_000]);
    }

    #[test]
    fn parts_add_up_to_what_was_counted_whenever_they_are_read() {
        for every in [1, 7, 90, 250] {
            let (mut cpu, mut samples) = (Accounting::new(), Samples::default());
            let slots = [BUSY, slot::IDLE as u64, NET_RX, slot::IRQ.start as u64, 60];
            // Ends at an edge, so that nothing is left.
            cpu.spend(BUSY, 7 * PART / 10);
            let before = cpu.counts;
            for turn in 0..1_500u64 {
                cpu.spend(slots[(turn % 5) as usize], turn * 7_919 % 17_000_000);
                if turn % every == 0 {
                    read(&mut samples, &cpu);
                }
            }
            cpu.spend(BUSY, PART - cpu.now % PART);
            read(&mut samples, &cpu);
            let parts = samples.parts().remove(0);
            let grown = cpu.counts.since(&before).unwrap();
            assert_eq!(sum(&parts, |c| c.idle), grown.idle, "{every}");
            assert_eq!(sum(&parts, |c| c.softirq), grown.softirq, "{every}");
            assert_eq!(sum(&parts, |c| c.irq), grown.irq, "{every}");
            assert_eq!(parts.counts.len() as u64 * PART, cpu.now - parts.start);
        }
    }

    #[test]
    fn records_that_were_overwritten_are_told_and_no_zeros() {
        let (mut cpu, mut samples) = (Accounting::new(), Samples::default());
        let half = |cpu: &mut Accounting| {
            cpu.spend(BUSY, PART / 2);
            cpu.spend(slot::IDLE as u64, PART / 2);
        };
        (0..10).for_each(|_| half(&mut cpu));
        read(&mut samples, &cpu);
        (0..RECORDS + 30).for_each(|_| half(&mut cpu));
        read(&mut samples, &cpu);
        let counts = samples.parts().remove(0).counts;
        assert_eq!(counts.len(), 10 + RECORDS + 30 - 1);
        let lost = counts.iter().filter(|counts| counts.is_none()).count();
        // 30 edges, and so one part more.
        assert_eq!(lost, 31);
        assert!(counts.iter().flatten().all(|counts| counts.idle == PART / 2));
    }

    #[test]
    fn a_record_that_is_being_written_is_taken_when_it_is_whole() {
        let (mut cpu, mut samples) = (Accounting::new(), Samples::default());
        (0..4).for_each(|_| cpu.spend(BUSY, PART));
        let newest = cpu.all.newest as usize;
        cpu.all.records[newest].number = 0;
        read(&mut samples, &cpu);
        assert_eq!(samples.parts()[0].counts.len(), 2);
        cpu.all.records[newest].number = newest as u64;
        read(&mut samples, &cpu);
        assert_eq!(samples.parts()[0].counts.len(), 3);
    }

    #[test]
    fn a_long_window_has_longer_parts_in_place_of_more() {
        let (mut cpu, mut samples) = (Accounting::new(), Samples::default());
        for _ in 0..200 {
            cpu.spend(BUSY, 3 * PART / 2);
            cpu.spend(slot::IDLE as u64, PART / 2);
            read(&mut samples, &cpu);
            samples.bound(100);
        }
        assert_eq!(samples.part(), 4 * PART);
        let parts = samples.parts().remove(0);
        assert_eq!(parts.start % (4 * PART), 0);
        assert!(parts.counts.len() > 90 && parts.counts.iter().all(Option::is_some), "{parts:?}");
        assert!(parts.counts.iter().flatten().all(|counts| counts.idle == PART));
    }
}
