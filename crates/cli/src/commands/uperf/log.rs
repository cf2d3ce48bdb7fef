//! `-X FILE`: a line for each operation of the master's threads, as uperf writes it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use wirecost_model::measure::{LoggedOperation, PhaseResult};
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::program::Side;

/// uperf's number for operations, the only type of lines that there is.
const FLOWOP: u32 = 0;

/// The file, which is opened before the run.
#[derive(Debug)]
pub(super) struct Log(File);

/// Operations in the file, and those beyond that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) written: u64,
    pub(super) left_out: u64,
}

impl Log {
    /// Opens the file and empties it, as uperf does.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        File::create(file).map(Self)
    }

    /// Writes the operations of all threads; `threads`: how many each group has.
    pub(super) fn write(self, outcome: &Outcome, threads: &[u32]) -> io::Result<Counts> {
        let mut out = BufWriter::new(self.0);
        let counts = match outcome.hosts.iter().find(|host| host.side == Side::Master) {
            Some(master) => write(&mut out, std::process::id(), master, threads)?,
            None => Counts::default(),
        };
        out.flush()?;
        Ok(counts)
    }
}

fn write(
    out: &mut impl Write,
    pid: u32,
    master: &HostOutcome,
    threads: &[u32],
) -> io::Result<Counts> {
    let left_out = master.phases.iter().map(|phase| phase.not_logged).sum();
    let mut counts = Counts { written: 0, left_out };
    let mut thread = 0u64;
    for (group, &strands) in (0..).zip(threads) {
        for strand in 0..strands {
            for phase in &master.phases {
                for LoggedOperation { end, length } in operations(phase, group, strand) {
                    writeln!(out, "{pid:6} {thread:6} {FLOWOP:2} {end:15} {length:15}")?;
                    counts.written += 1;
                }
            }
            thread += 1;
        }
    }
    Ok(counts)
}

/// Of a strand in a phase; strands are in order.
fn operations(phase: &PhaseResult, group: u32, strand: u32) -> &[LoggedOperation] {
    let place = phase.logged.binary_search_by_key(&(group, strand), |of| (of.group, of.strand));
    place.map_or(&[], |place| &phase.logged[place].operations)
}
