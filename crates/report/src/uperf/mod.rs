//! uperf's output, for the programs that parse it (k8s-netperf, benchmark-wrapper, crucible): the raw
//! lines of `-R`, then Run Statistics and Difference(%).
//!
//! The numbers mean what they mean to uperf: cumulative since the phase began, ramp included; bytes
//! are what the master read plus what it wrote; every completed flowop is an operation; the first
//! transaction is Txn1. Where uperf prints a defect, this does not: a peer that sent nothing differs
//! by 100% (uperf: 0%), no operations are 0.00% errors (uperf: nan), failures are counted as errors
//! (uperf: never) and connect and idle gaps between phases are not in the time.

mod numbers;

use std::collections::BTreeMap;
use std::io::{self, Write};

use wirecost_model::clock::Nanos;
use wirecost_model::event::{Event, HostCounters, Listener};
use wirecost_model::program::Side;

use numbers::{bits_per_second, bytes, time};

/// Length of uperf's rules where it does not write to a terminal.
const RULE: usize = 79;

/// What uperf's output says of the profile before anything moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The profile's own name, which some programs take apart.
    pub profile: String,
    /// Of all groups.
    pub strands: u64,
}

/// Writes uperf's lines as the run goes on. [`Printer::finish`] ends it.
#[derive(Debug)]
pub struct Printer<W: Write> {
    out: W,
    header: Header,
    /// Peers by index, for the statistics; the masters are one row.
    names: BTreeMap<u32, String>,
    /// Newest counters of the phase under way.
    phase: BTreeMap<u32, Tally>,
    /// All phases that have ended.
    whole: BTreeMap<u32, Tally>,
    last_unix_ms: f64,
    /// The first error of the writer; after it nothing more is written.
    error: Option<io::Error>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tally {
    master: bool,
    elapsed: Nanos,
    bytes: u64,
    operations: u64,
    errors: u64,
}

impl Tally {
    fn of(host: &HostCounters) -> Self {
        let flowops = host.counters.flowops.iter();
        Tally {
            master: host.side == Side::Master,
            elapsed: host.elapsed,
            bytes: host.counters.bytes.total(),
            operations: flowops.clone().map(|flowop| flowop.done).sum(),
            errors: flowops.map(|flowop| flowop.failed).sum(),
        }
    }

    /// Of the same host in another phase.
    fn followed_by(self, next: Tally) -> Self {
        Tally { master: next.master, elapsed: self.elapsed + next.elapsed, ..self.beside(next) }
    }

    /// Of another host at the same time.
    fn beside(self, other: Tally) -> Self {
        Tally {
            master: other.master,
            elapsed: self.elapsed.max(other.elapsed),
            bytes: self.bytes + other.bytes,
            operations: self.operations + other.operations,
            errors: self.errors + other.errors,
        }
    }

    fn bits_per_second(self) -> f64 {
        if self.elapsed == 0 {
            return 0.0;
        }
        self.bytes as f64 * 8.0 / (self.elapsed as f64 / 1e9)
    }

    fn error_percent(self) -> f64 {
        if self.operations == 0 {
            return 0.0;
        }
        100.0 * self.errors as f64 / self.operations as f64
    }
}

impl<W: Write> Printer<W> {
    pub fn new(out: W, header: Header) -> Self {
        Self {
            out,
            header,
            names: BTreeMap::new(),
            phase: BTreeMap::new(),
            whole: BTreeMap::new(),
            last_unix_ms: 0.0,
            error: None,
        }
    }

    /// Writes the totals and the statistics of all phases, and says whether anything that was to be
    /// written could not be.
    pub fn finish(mut self) -> io::Result<()> {
        // A phase that broke off has moved bytes too.
        self.close_phase();
        self.try_write(Self::statistics);
        self.error.map_or(Ok(()), Err)
    }

    fn try_write(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.error.is_none() {
            // Readers follow the lines as they come.
            self.error = write(self).and_then(|()| self.out.flush()).err();
        }
    }

    fn raw_line(&mut self, name: &str, unix_ms: f64, masters: Tally) -> io::Result<()> {
        writeln!(
            self.out,
            "timestamp_ms:{unix_ms:.4} name:{name} nr_bytes:{} nr_ops:{}",
            masters.bytes, masters.operations
        )
    }

    fn update(&mut self, hosts: &[HostCounters]) {
        for host in hosts {
            self.phase.insert(host.host, Tally::of(host));
        }
    }

    fn close_phase(&mut self) {
        for (host, tally) in std::mem::take(&mut self.phase) {
            let whole = self.whole.entry(host).or_default();
            *whole = whole.followed_by(tally);
        }
    }

    fn statistics(&mut self) -> io::Result<()> {
        let masters = sum(&self.whole, |tally| tally.master);
        let peers = sum(&self.whole, |tally| !tally.master);
        let rule = "-".repeat(RULE);
        writeln!(self.out, "{rule}")?;
        self.raw_line("Total", self.last_unix_ms, masters)?;
        writeln!(
            self.out,
            "\nRun Statistics\nHostname            Time       Data   Throughput   Operations      \
             Errors\n{rule}"
        )?;
        let rows: Vec<(String, Tally)> = self
            .whole
            .iter()
            .filter(|(_, tally)| !tally.master)
            .map(|(host, tally)| (self.names.get(host).cloned().unwrap_or_default(), *tally))
            .collect();
        for (name, tally) in &rows {
            self.row(name, *tally)?;
        }
        if rows.len() > 1 {
            self.row("Total", peers)?;
        }
        self.row("master", masters)?;
        writeln!(self.out, "{rule}")?;
        writeln!(
            self.out,
            "{:<15} {:7.2}% {:9.2}% {:11.2}% {:11.2}% {:10.2}%\n",
            "Difference(%)",
            difference(masters.elapsed as f64, peers.elapsed as f64),
            difference(masters.bytes as f64, peers.bytes as f64),
            difference(masters.bits_per_second(), peers.bits_per_second()),
            difference(masters.operations as f64, peers.operations as f64),
            masters.error_percent().max(peers.error_percent()),
        )
    }

    fn row(&mut self, name: &str, tally: Tally) -> io::Result<()> {
        writeln!(
            self.out,
            "{name:<15.15} {:>8} {:>10} {:>12} {:>12} {:>11.2}",
            time(tally.elapsed as f64),
            bytes(tally.bytes as f64),
            bits_per_second(tally.bits_per_second()),
            tally.operations,
            tally.error_percent(),
        )
    }
}

fn sum(tallies: &BTreeMap<u32, Tally>, which: impl Fn(&Tally) -> bool) -> Tally {
    tallies
        .values()
        .filter(|tally| which(tally))
        .fold(Tally::default(), |sum, one| sum.beside(*one))
}

/// By how much the peers' figure is less than the master's, percent of the master's. Always a plain
/// number, as the programs that parse it expect.
fn difference(master: f64, peers: f64) -> f64 {
    if master > 0.0 {
        // Adding 0 makes a negative zero positive.
        100.0 - 100.0 * peers / master + 0.0
    } else if peers > 0.0 {
        -100.0
    } else {
        0.0
    }
}

impl<W: Write> Listener for Printer<W> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Ready { hosts, .. } => {
                let names = hosts.iter().enumerate();
                self.names =
                    names.map(|(number, host)| (number as u32, host.name.clone())).collect();
                self.try_write(|printer| {
                    let Header { profile, strands } = &printer.header;
                    writeln!(
                        printer.out,
                        "Starting {strands} threads running profile:{profile} ...  {:5.2} seconds",
                        0.0
                    )
                });
            }
            // Programs take differences from line to line, so each phase begins with zeros.
            Event::PhaseStarted { phase, unix_ms, .. } => {
                self.close_phase();
                self.raw(*phase, *unix_ms);
            }
            Event::Tick { phase, unix_ms, hosts, .. } => {
                self.update(hosts);
                self.raw(*phase, *unix_ms);
            }
            Event::PhaseEnded { phase, unix_ms, hosts } => {
                self.update(hosts);
                self.raw(*phase, *unix_ms);
                self.try_write(|printer| writeln!(printer.out));
                self.close_phase();
            }
            Event::Warning(_) => {}
        }
    }
}

impl<W: Write> Printer<W> {
    fn raw(&mut self, phase: u32, unix_ms: f64) {
        self.last_unix_ms = unix_ms;
        let masters = sum(&self.phase, |tally| tally.master);
        self.try_write(|printer| printer.raw_line(&format!("Txn{}", phase + 1), unix_ms, masters));
    }
}
