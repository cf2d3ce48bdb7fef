//! `recording`: what counting costs an operation, in instructions, which are the same however busy
//! the machine is.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;

use wirecost_program::record::{Record, WorkerCounters};

use crate::callgrind::instructions;
use crate::turns::LOADS;

/// Goal: maximum instructions that recording takes per operation.
const GOAL: f64 = 30.0;
/// Instructions of an operation below which a function is not listed.
const LEAST: f64 = 2.0;

/// Count the user instructions that recording takes per operation.
///
/// Callgrind (Debian's package `valgrind`) counts a loop that records, less the same loop that does not.
/// Clock readings are excluded; there is one per operation.
#[derive(Debug, clap::Args)]
pub(crate) struct Recording {
    /// Operations of the shorter of two loops; the other runs twice as many.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..))]
    operations: u64,
}

/// What a loop records, for callgrind to count.
#[derive(Debug, clap::Args)]
pub(crate) struct Loop {
    kind: Kind,
    operations: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    One,
    Two,
    Write,
    Read,
    Rr,
}

/// Each with what it is, the loop with as many clock readings that records nothing, and the operations
/// in one pass.
const KINDS: [(Kind, &str, Kind, f64); 3] = [
    (Kind::Write, "a write that is a transaction", Kind::One, 1.0),
    (Kind::Read, "a read that is a transaction", Kind::One, 1.0),
    (Kind::Rr, "a write and a read of one transaction, each", Kind::Two, 2.0),
];

impl Recording {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let each = |kind| {
            let (few, many) = (count(kind, self.operations)?, count(kind, self.operations * 2)?);
            Ok::<f64, String>((many - few) as f64 / self.operations as f64)
        };
        let failed = |error: std::io::Error| error.to_string();
        writeln!(out, "Instructions that recording takes for an operation, goal {GOAL}:\n")
            .map_err(failed)?;
        for (kind, what, nothing, operations) in KINDS {
            let instructions = (each(kind)? - each(nothing)?) / operations;
            let verdict = if instructions <= GOAL { "met" } else { "missed" };
            writeln!(out, "  {what:<44}{instructions:>6.1}  {verdict}").map_err(failed)?;
        }
        writeln!(
            out,
            "\nFrom a turn of the strand down to the system calls, without reading clocks:\n"
        )
        .map_err(failed)?;
        for (load, what, goal, operations) in LOADS {
            let functions = load.count(self.operations)?;
            let instructions = functions.values().sum::<f64>() * operations;
            let verdict = if instructions <= goal { "met" } else { "missed" };
            writeln!(out, "  {what:<44}{instructions:>6.1}  {verdict}, goal {goal}")
                .map_err(failed)?;
            let mut functions: Vec<_> = functions
                .into_iter()
                .map(|(function, cost)| (cost * operations, function))
                .collect();
            functions.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (cost, function) in functions.iter().filter(|(cost, _)| *cost >= LEAST) {
                writeln!(out, "    {cost:>6.1}  {function}").map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Instructions of a whole loop.
fn count(kind: Kind, operations: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let kind = clap::ValueEnum::to_possible_value(&kind).ok_or("a loop without a name")?;
    instructions(&program, ["recording-loop", kind.get_name(), &operations.to_string()])
}

/// Takes the place of the clock, whose readings are not counted. Latencies vary.
struct Clock {
    now: u64,
    draw: u64,
}

impl Clock {
    #[inline]
    fn read(&mut self) -> u64 {
        // https://en.wikipedia.org/wiki/Linear_congruential_generator (Knuth's MMIX)
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.now = black_box(self.now + 1000 + (self.draw >> 48));
        self.now
    }
}

impl Loop {
    pub(crate) fn run(&self) {
        match self.kind {
            Kind::One => self.passes(|_, _, _, clock| {
                clock.read();
            }),
            Kind::Two => self.passes(|_, _, _, clock| {
                clock.read();
                clock.read();
            }),
            Kind::Write => self.passes(|record, [row, _], start, clock| {
                record.sent(row, true, 1024);
                record.done(row, start, clock.read());
            }),
            Kind::Read => self.passes(|record, [row, _], start, clock| {
                record.received(row, true, 1024);
                record.done(row, start, clock.read());
            }),
            Kind::Rr => self.passes(|record, [write, read], start, clock| {
                let between = clock.read();
                record.sent_at_once(write, true, 64, start..between);
                let end = clock.read();
                record.received_at_once(read, true, 64, between..end);
                record.transaction(0, end.wrapping_sub(start), end);
            }),
        }
    }

    /// Rows unknown to the compiler, as those of a step are.
    #[inline]
    fn passes(&self, pass: impl Fn(&mut Record, [u32; 2], u64, &mut Clock)) {
        let whole = if self.kind == Kind::Rr { Vec::new() } else { vec![0] };
        let counters = Arc::new(WorkerCounters::new(2, whole));
        let mut record = Record::new(counters, 0..u64::MAX, 1);
        let mut clock = Clock { now: 0, draw: 1 };
        for _ in 0..self.operations {
            let start = clock.now;
            pass(&mut record, black_box([0, 1]), start, &mut clock);
        }
        black_box(record.counters.transactions());
    }
}
