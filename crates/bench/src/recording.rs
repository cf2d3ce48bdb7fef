//! `recording`: what counting costs an operation, in instructions, which are the same however busy
//! the machine is.

use std::hint::black_box;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use wirecost_workload::record::{Record, WorkerCounters};

/// Most instructions of an operation that recording may take.
const GOAL: f64 = 30.0;

/// Instructions of the user that recording takes for an operation, counted by callgrind (Debian's
/// package `valgrind`), over the same loop that records nothing. Clock readings are not in it: there
/// is one for each operation.
#[derive(Debug, clap::Args)]
pub(crate) struct Recording {
    /// Operations of the shorter of two loops; the other has twice as many.
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
    Nothing,
    Write,
    Read,
    Rr,
}

/// Each with what it is, and its operations in one pass of the loop.
const KINDS: [(Kind, &str, f64); 3] = [
    (Kind::Write, "a write that is a transaction", 1.0),
    (Kind::Read, "a read that is a transaction", 1.0),
    (Kind::Rr, "a write and a read of one transaction, each", 2.0),
];

impl Recording {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let each = |kind| {
            let (few, many) = (count(kind, self.operations)?, count(kind, self.operations * 2)?);
            Ok::<f64, String>((many - few) as f64 / self.operations as f64)
        };
        let nothing = each(Kind::Nothing)?;
        let failed = |error: std::io::Error| error.to_string();
        writeln!(out, "Instructions that recording takes for an operation, goal {GOAL}:\n")
            .map_err(failed)?;
        for (kind, what, operations) in KINDS {
            let instructions = (each(kind)? - nothing) / operations;
            let verdict = if instructions <= GOAL { "met" } else { "missed" };
            writeln!(out, "  {what:<44}{instructions:>6.1}  {verdict}").map_err(failed)?;
        }
        Ok(())
    }
}

/// Instructions of a whole loop.
fn count(kind: Kind, operations: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let kind = clap::ValueEnum::to_possible_value(&kind).ok_or("a loop without a name")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["recording-loop", kind.get_name(), &operations.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error} (apt-get install valgrind)"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let counted = text.lines().find_map(|line| line.split_once("Collected :"));
    counted
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}

impl Loop {
    pub(crate) fn run(&self) {
        match self.kind {
            Kind::Nothing => self.passes(|_, start, now| {
                black_box((start, now));
            }),
            Kind::Write => self.passes(|record, start, now| {
                record.sent(0, true, 1024);
                record.done(0, start, now);
                record.whole_transaction();
            }),
            Kind::Read => self.passes(|record, start, now| {
                record.received(0, true, 1024);
                record.done(0, start, now);
                record.whole_transaction();
            }),
            Kind::Rr => self.passes(|record, start, now| {
                record.sent(0, true, 64);
                record.done(0, start, now);
                record.received(1, true, 64);
                record.done(1, start, now);
                record.transaction(now.wrapping_sub(start), now);
            }),
        }
    }

    /// With latencies that differ, as they do.
    #[inline]
    fn passes(&self, pass: impl Fn(&mut Record, u64, u64)) {
        let whole = if self.kind == Kind::Rr { Vec::new() } else { vec![0] };
        let counters = Arc::new(WorkerCounters::new(2));
        let mut record = Record::new(counters, 0..u64::MAX, whole);
        let (mut now, mut draw) = (0, 1u64);
        for _ in 0..self.operations {
            let start = now;
            // https://en.wikipedia.org/wiki/Linear_congruential_generator (Knuth's MMIX)
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += 1000 + (draw >> 48);
            pass(&mut record, black_box(start), black_box(now));
        }
        black_box(record.counters.transactions.get());
    }
}
