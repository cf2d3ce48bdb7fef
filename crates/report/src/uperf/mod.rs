//! uperf's output, for the programs that parse it (k8s-netperf, benchmark-wrapper, crucible, arcaflow,
//! clusterbuster): progress, tables, then Run Statistics and Difference(%).
//!
//! The numbers mean what they mean to uperf: bytes are what the master read plus what it wrote; every
//! flowop is an operation, also one that was allowed to fail; the first transaction is Txn1. Where uperf
//! prints a defect, this does not: a peer that sent nothing differs by 100% (uperf: 0%), no operations are
//! 0.00% errors (uperf: nan), failures are counted as errors too (uperf: never) and connect and idle gaps
//! between phases are not in the time.
//!
//! Parsers take each raw line as one interval after the line before, whatever its time stamp says.
//! So raw lines are those of module `lines`, and what they leave out (the ramp, an interval that the end
//! cut short) is in the totals: the line of a timed transaction and that of `Total`, which are those
//! that uperf prints without `-R`, and all of Run Statistics.

mod lines;
mod numbers;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::event::{Event, HostCounters, Listener, Reading};
use wirecost_model::program::Side;
use wirecost_model::visible::visible;

use lines::{Intervals, Line};
use numbers::{bits_per_second, bytes, time};
use tables::Sum;
pub use tables::{Details, DeviceRates};

/// Length of uperf's rules where it does not write to a terminal.
const RULE: usize = 79;

/// What uperf's output says of the profile before anything moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The profile's own name, which some programs take apart.
    pub profile: String,
    /// Strands of all groups with `nthreads`.
    pub threads: u64,
    /// Strands of all groups with `nprocs`.
    pub processes: u64,
    /// Time from one raw line to the next.
    pub interval: Nanos,
    /// Names of the peers, as uperf is told them: those of the profile.
    pub peers: Vec<String>,
    /// For each group and each peer that it connects to: indices of both.
    pub connected: Vec<(u32, u32)>,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// Raw lines; timed transactions and the totals also have the line that they have without `-R`.
    #[default]
    RawAndSummaries,
    /// Raw lines (`-R`).
    Raw,
    /// A line for each transaction, which is overwritten as it goes on.
    Overwritten,
}

/// A part of the output after the progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Total,
    Groups,
    Threads,
    Transactions,
    Flowops,
    Devices,
    RunStatistics,
}

/// What is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Style {
    /// None with `-n`.
    pub progress: Option<Progress>,
    pub parts: BTreeSet<Part>,
    /// Whether the hosts are named, and how many workers each has.
    pub verbose: bool,
}

impl Default for Style {
    fn default() -> Self {
        let parts = BTreeSet::from([Part::Total, Part::RunStatistics]);
        Self { progress: Some(Progress::default()), parts, verbose: false }
    }
}

/// Writes uperf's lines as the run goes on. [`Printer::finish`] ends it.
#[derive(Debug)]
pub struct Printer<W: Write> {
    out: W,
    header: Header,
    style: Style,
    /// Raw lines of the phase under way.
    intervals: Option<Intervals>,
    /// Newest counters of the phase under way, by host.
    phase: BTreeMap<u32, Tally>,
    /// All phases that have ended.
    whole: BTreeMap<u32, Tally>,
    last_unix_ms: f64,
    /// A line that can be overwritten is not ended yet.
    line_is_open: bool,
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
            operations: flowops.clone().map(|flowop| flowop.done + flowop.failed).sum(),
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
    pub fn new(out: W, header: Header, style: Style) -> Self {
        Self {
            out,
            header,
            style,
            intervals: None,
            phase: BTreeMap::new(),
            whole: BTreeMap::new(),
            last_unix_ms: 0.0,
            line_is_open: false,
            error: None,
        }
    }

    /// Writes the totals and the statistics of all phases, then the warnings and, of a run that failed,
    /// the error, where no program looks for numbers. Tables need `details`.
    ///
    /// # Errors
    /// The first failure to write any of the output.
    pub fn finish(
        mut self,
        failure: Option<&str>,
        warnings: &[String],
        details: Option<Details<'_>>,
    ) -> io::Result<()> {
        // Counters of a phase that broke off are not of one instant.
        let comparable = self.phase.is_empty() && self.intervals.is_none();
        // It has moved bytes too.
        self.close_phase();
        let nothing = self.whole.values().all(|tally| tally.operations == 0);
        // Zeros after a failure would read as a measurement.
        if failure.is_none() || !nothing {
            let has_tables = comparable && details.is_some_and(tables::are_complete);
            for part in std::mem::take(&mut self.style.parts) {
                self.try_write(|printer| match part {
                    Part::Total => printer.totals(),
                    Part::RunStatistics => {
                        printer.statistics(failure.is_some(), comparable, details)
                    }
                    Part::Devices => {
                        details.map_or(Ok(()), |of| tables::devices(&mut printer.out, of.devices))
                    }
                    _ => details
                        .filter(|_| has_tables)
                        .map_or(Ok(()), |details| printer.table(part, details)),
                });
            }
        }
        for warning in warnings {
            self.try_write(|printer| writeln!(printer.out, "** Warning: {}", visible(warning)));
        }
        if let Some(message) = failure {
            self.try_write(|printer| write_failure(&mut printer.out, message));
        }
        self.error.map_or(Ok(()), Err)
    }

    fn try_write(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.error.is_none() {
            // Readers follow the lines as they come.
            self.error = write(self).and_then(|()| self.out.flush()).err();
        }
    }

    fn raw_line(&mut self, name: &str, line: Line) -> io::Result<()> {
        writeln!(
            self.out,
            "timestamp_ms:{:.4} name:{name} nr_bytes:{} nr_ops:{}",
            line.unix_ms, line.bytes, line.operations
        )
    }

    /// The line of uperf without `-R`, without its end.
    fn summary_line(&mut self, name: &str, tally: Tally) -> io::Result<()> {
        let per_second = match tally.elapsed {
            0 => 0.0,
            elapsed => tally.operations as f64 / seconds(elapsed),
        };
        write!(
            self.out,
            "{name:<8.8} {:>8.7} /{:7.2}(s) = {:>12.11}  {per_second:>10.0}op/s ",
            bytes(tally.bytes as f64),
            seconds(tally.elapsed),
            bits_per_second(tally.bits_per_second()),
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

    /// One of the parts that are made of what the master has done in phases that have ended.
    fn table(&mut self, part: Part, details: Details<'_>) -> io::Result<()> {
        let lines = match part {
            Part::Groups => tables::groups(&mut self.out, details)?,
            Part::Threads => tables::threads(&mut self.out, details)?,
            Part::Transactions => return tables::transactions(&mut self.out, details),
            Part::Flowops => return tables::flowops(&mut self.out, details),
            Part::Total | Part::Devices | Part::RunStatistics => return Ok(()),
        };
        let masters = sum(&self.whole, |tally| tally.master);
        for (name, Sum { bytes, operations, failed }) in lines {
            self.summary(&name, Tally { bytes, operations, errors: failed, ..masters })?;
        }
        writeln!(self.out)
    }

    fn totals(&mut self) -> io::Result<()> {
        if self.line_is_open {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{}", "-".repeat(RULE))?;
        self.summary("Total", sum(&self.whole, |tally| tally.master))
    }

    /// The line of something that has a name, in the form of the progress.
    fn summary(&mut self, name: &str, tally: Tally) -> io::Result<()> {
        let Tally { bytes, operations, .. } = tally;
        let progress = self.style.progress.unwrap_or(Progress::Overwritten);
        if progress != Progress::Overwritten {
            self.raw_line(name, Line { unix_ms: self.last_unix_ms, bytes, operations })?;
        }
        if progress != Progress::Raw {
            self.summary_line(name, tally)?;
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// Overwrites the line of the transaction under way.
    fn overwrite(&mut self, name: &str, tally: Tally) -> io::Result<()> {
        self.line_is_open = true;
        write!(self.out, "\r{:RULE$}\r", "")?;
        self.summary_line(name, tally)
    }

    /// What a peer has done for one of its groups; for all where it has one only, or no details are known.
    fn of_connection(&self, group: u32, peer: u32, details: Option<Details<'_>>) -> Tally {
        let all = self.whole.get(&(peer + 1)).copied().unwrap_or_default();
        let groups = self.header.connected.iter().filter(|(_, of)| *of == peer).count();
        let host = details.and_then(|details| details.outcome.hosts.get(peer as usize + 1));
        match host {
            Some(host) if groups > 1 => {
                let Sum { bytes, operations, failed } = tables::of_group(host, group);
                Tally { bytes, operations, errors: failed, ..all }
            }
            _ => all,
        }
    }

    /// A row for each peer, and where details are known for each group of it, as uperf has a process for
    /// each. Where the run failed, no host is shown with zeros. Hosts are compared only where their
    /// counters are complete.
    fn statistics(
        &mut self,
        failed: bool,
        comparable: bool,
        details: Option<Details<'_>>,
    ) -> io::Result<()> {
        let masters = sum(&self.whole, |tally| tally.master);
        let peers = sum(&self.whole, |tally| !tally.master);
        let rule = "-".repeat(RULE);
        writeln!(
            self.out,
            "\nRun Statistics\nHostname            Time       Data   Throughput   Operations      \
             Errors\n{rule}"
        )?;
        let (mut rows, mut missing) = (0, 0);
        let connected = match details {
            Some(_) => self.header.connected.clone(),
            None => (0..self.header.peers.len() as u32).map(|peer| (0, peer)).collect(),
        };
        for (group, peer) in connected {
            let Some(name) = self.header.peers.get(peer as usize) else { continue };
            let name = visible(name).into_owned();
            let tally = self.of_connection(group, peer, details);
            if failed && tally.operations == 0 {
                missing += 1;
                writeln!(self.out, "\nError saying goodbye with {name}")?;
                continue;
            }
            rows += 1;
            self.row(&name, tally)?;
        }
        if rows > 1 {
            self.row("Total", peers)?;
        }
        if !failed || masters.operations > 0 {
            self.row("master", masters)?;
        }
        writeln!(self.out, "{rule}")?;
        if missing > 0 || !comparable {
            return Ok(());
        }
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

/// Writes the error of a run that failed, as uperf does.
///
/// # Errors
/// The failure to write it.
pub fn write_failure(out: &mut impl Write, message: &str) -> io::Result<()> {
    let lines: Vec<&str> = message.lines().filter(|line| !line.trim().is_empty()).collect();
    for line in &lines {
        // Messages can repeat what a host or a file says.
        writeln!(out, "** Error: {}", visible(line))?;
    }
    writeln!(out, "\nWARNING: {} Errors detected during run", lines.len())?;
    out.flush()
}

impl<W: Write> Listener for Printer<W> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Ready { hosts, .. } => self.try_write(|printer| {
                if printer.style.verbose {
                    for host in hosts {
                        let (name, workers) = (visible(&host.name), host.workers);
                        writeln!(printer.out, "{name}: {} with {workers} workers", host.side)?;
                    }
                }
                let Header { profile, threads, processes, .. } = &printer.header;
                let strands = match (threads, processes) {
                    (threads, 0) => format!("{threads} threads"),
                    (0, processes) => format!("{processes} processes"),
                    _ => format!("{threads} threads, {processes} processes"),
                };
                writeln!(
                    printer.out,
                    "Starting {strands} running profile:{profile} ...  {:5.2} seconds",
                    0.0
                )
            }),
            Event::PhaseStarted { phase, until, ramp, unix_ms, .. } => {
                self.close_phase();
                self.last_unix_ms = *unix_ms;
                let intervals =
                    Intervals::new(*phase, *until, *ramp, self.header.interval, *unix_ms);
                self.intervals = Some(intervals);
                // Programs take differences from line to line, so each phase begins with zeros.
                self.write_intervals(&[Reading::default()]);
            }
            Event::Tick { hosts, readings, .. } => {
                self.update(hosts);
                self.write_intervals(readings);
            }
            Event::PhaseEnded { phase, unix_ms, hosts, readings } => {
                self.update(hosts);
                // The last of them can come after the last tick.
                self.write_intervals(readings);
                self.last_unix_ms = *unix_ms;
                let timed = self.intervals.take().is_some_and(|intervals| intervals.is_timed());
                let masters = sum(&self.phase, |tally| tally.master);
                self.try_write(|printer| match printer.style.progress {
                    Some(Progress::RawAndSummaries) if timed && masters.elapsed > 0 => {
                        printer.summary_line(&name(*phase), masters)?;
                        writeln!(printer.out, "\n")
                    }
                    Some(Progress::Overwritten) => {
                        printer.overwrite(&name(*phase), masters)?;
                        printer.line_is_open = false;
                        writeln!(printer.out)
                    }
                    Some(Progress::Raw | Progress::RawAndSummaries) => writeln!(printer.out),
                    None => Ok(()),
                });
                self.close_phase();
            }
            // uperf says nothing before it starts.
            Event::Preparing { .. } | Event::Warning(_) => {}
        }
    }
}

impl<W: Write> Printer<W> {
    /// Writes the lines that can be told with these readings.
    fn write_intervals(&mut self, readings: &[Reading]) {
        let Some(mut intervals) = self.intervals.take() else { return };
        for reading in readings {
            if let Some(line) = intervals.line(reading) {
                self.last_unix_ms = line.unix_ms;
                let name = name(intervals.phase());
                let (bytes, operations, elapsed) = (line.bytes, line.operations, reading.elapsed);
                let tally = Tally { bytes, operations, elapsed, ..Tally::default() };
                self.try_write(|printer| match printer.style.progress {
                    Some(Progress::Overwritten) => printer.overwrite(&name, tally),
                    Some(Progress::Raw | Progress::RawAndSummaries) => {
                        printer.raw_line(&name, line)
                    }
                    None => Ok(()),
                });
            }
        }
        self.intervals = Some(intervals);
    }
}

/// uperf's name of a transaction, of all groups.
fn name(phase: u32) -> String {
    format!("Txn{}", phase + 1)
}
