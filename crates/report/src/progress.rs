//! Progress while a run is under way: one line rewritten in place on a terminal, at most a line a
//! second elsewhere.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use wirecost_model::clock::{self, Nanos};
use wirecost_model::event::{Event, HostCounters, Listener};
use wirecost_model::profile::Until;
use wirecost_model::program::Side;
use wirecost_model::units::{bit_rate, count, rate};
use wirecost_model::visible::{visible, visible_lines};

use crate::outputs::{TerminalStyle, understands_escapes};

/// Least time between two lines where lines stay, milliseconds.
const PLAIN_EVERY: f64 = 1000.0;
/// Back to the first column and empty to the end of the line (ECMA-48, EL).
const REWRITE: &str = "\r\u{1b}[K";

/// How progress is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One line of at most this many columns, rewritten in place.
    Live { width: usize },
    /// Lines that stay.
    Plain,
}

impl Style {
    /// What suits this stream.
    pub fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        if understands_escapes(stream) {
            Style::Live { width: TerminalStyle::of(stream).width }
        } else {
            Style::Plain
        }
    }
}

/// A listener that shows how far a run is. A writer that fails is not written to again: progress is
/// no reason to end a run.
#[derive(Debug)]
pub struct Progress<W: Write> {
    out: W,
    style: Style,
    phases: u32,
    under_way: Option<Phase>,
    /// When the last plain line was written.
    written_unix_ms: Option<f64>,
    /// Whether a live line is on the screen.
    dirty: bool,
    broken: bool,
    /// What stands about the line of a run that is one of many.
    labels: Option<Labels>,
}

/// What is said of a run that is one of many, before and after how it does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    pub before: String,
    pub after: String,
}

#[derive(Debug)]
struct Phase {
    number: u32,
    until: Until,
    ramp: Nanos,
    hosts: BTreeMap<u32, Pace>,
}

/// What a host did of late.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    master: bool,
    elapsed: Nanos,
    tx: u64,
    rx: u64,
    transactions: u64,
    failed: u64,
    tx_per_second: f64,
    rx_per_second: f64,
    transactions_per_second: f64,
}

impl Pace {
    /// Rates since the last counters; a host that has sent none since keeps its pace.
    fn after(self, host: &HostCounters) -> Pace {
        if host.elapsed <= self.elapsed {
            return self;
        }
        let seconds = clock::seconds(host.elapsed - self.elapsed);
        let counters = &host.counters;
        let (tx, rx) = (counters.bytes.tx_received, counters.bytes.rx_received);
        let pace = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Pace {
            master: host.side == Side::Master,
            elapsed: host.elapsed,
            tx,
            rx,
            transactions: counters.transactions,
            failed: counters.flowops.iter().map(|flowop| flowop.failed).sum(),
            tx_per_second: pace(tx, self.tx),
            rx_per_second: pace(rx, self.rx),
            transactions_per_second: pace(counters.transactions, self.transactions),
        }
    }
}

impl Phase {
    fn update(&mut self, hosts: &[HostCounters]) {
        for host in hosts {
            let pace = self.hosts.entry(host.host).or_default();
            *pace = pace.after(host);
        }
    }

    /// How one of many runs does, in few words.
    fn short_line(&self, labels: &Labels, elapsed: Nanos) -> String {
        let sum = |of: fn(&Pace) -> f64| self.hosts.values().map(of).sum::<f64>();
        let bytes = sum(|pace| pace.tx_per_second + pace.rx_per_second);
        let masters = self.hosts.values().filter(|pace| pace.master);
        let transactions: f64 = masters.map(|pace| pace.transactions_per_second).sum();
        let pace = if bytes > 0.0 { bit_rate(bytes * 8.0) } else { rate(transactions) };
        let time = self.time(elapsed);
        format!("{}  {time}  {pace}  {}", labels.before, labels.after)
    }

    fn time(&self, elapsed: Nanos) -> String {
        match self.until {
            Until::Duration(window) => format!(
                "{:.1}/{:.1} s{}",
                clock::seconds(elapsed),
                clock::seconds(self.ramp) + window.as_secs_f64(),
                if elapsed < self.ramp { " (ramp)" } else { "" }
            ),
            Until::Iterations(_) => format!("{:.1} s", clock::seconds(elapsed)),
        }
    }

    fn line(&self, phases: u32, elapsed: Nanos) -> String {
        let sum = |of: fn(&Pace) -> f64| self.hosts.values().map(of).sum::<f64>();
        let masters = self.hosts.values().filter(|pace| pace.master);
        let transactions: f64 = masters.clone().map(|m| m.transactions_per_second).sum();
        let failed: u64 = masters.map(|m| m.failed).sum();
        let mut line = format!("phase {}/{phases}  ", self.number + 1);
        line += &self.time(elapsed);
        line += &format!(
            "  tx {}  rx {}  transactions {}",
            bit_rate(sum(|pace| pace.tx_per_second) * 8.0),
            bit_rate(sum(|pace| pace.rx_per_second) * 8.0),
            rate(transactions),
        );
        if failed > 0 {
            line += &format!("  {} failed", count(failed));
        }
        line
    }
}

impl<W: Write> Progress<W> {
    pub fn new(out: W, style: Style) -> Self {
        Self {
            out,
            style,
            phases: 0,
            under_way: None,
            written_unix_ms: None,
            dirty: false,
            broken: false,
            labels: None,
        }
    }

    /// Says of the run that it is one of many.
    pub fn label(&mut self, labels: Labels) {
        self.labels = Some(labels);
    }

    /// Writes a line that stays, above the live one.
    pub fn stay(&mut self, line: &str) {
        self.clear();
        self.attempt(|out| writeln!(out, "{}", visible_lines(line)));
    }

    /// How it is written.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Takes the live line off the screen, so that what follows begins on an empty one.
    pub fn clear(&mut self) {
        if self.dirty {
            self.dirty = false;
            self.attempt(|out| write!(out, "{REWRITE}"));
        }
    }

    fn attempt(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        if !self.broken {
            self.broken = write(&mut self.out).and_then(|()| self.out.flush()).is_err();
        }
    }

    fn show(&mut self, elapsed: Nanos, unix_ms: f64) {
        let Some(phase) = &self.under_way else { return };
        let line = match &self.labels {
            Some(labels) => phase.short_line(labels, elapsed),
            None => phase.line(self.phases.max(phase.number + 1), elapsed),
        };
        let line = visible(&line);
        match self.style {
            // Of many runs each has a line of its own when it is done.
            Style::Plain if self.labels.is_some() => {}
            Style::Live { width } => {
                // A full line would wrap, and the next rewrite would leave it behind.
                let line: String = line.chars().take(width.saturating_sub(1)).collect();
                self.dirty = true;
                self.attempt(|out| write!(out, "{REWRITE}{line}"));
            }
            Style::Plain => {
                let due = self.written_unix_ms.is_none_or(|last| unix_ms - last >= PLAIN_EVERY);
                if due {
                    self.written_unix_ms = Some(unix_ms);
                    self.attempt(|out| writeln!(out, "{line}"));
                }
            }
        }
    }
}

impl<W: Write> Listener for Progress<W> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Ready { phases, .. } => self.phases = *phases,
            Event::PhaseStarted { phase, until, ramp, unix_ms, .. } => {
                // Of its first moments a phase has nothing to say.
                self.written_unix_ms.get_or_insert(*unix_ms);
                self.under_way = Some(Phase {
                    number: *phase,
                    until: *until,
                    ramp: *ramp,
                    hosts: BTreeMap::new(),
                });
            }
            Event::Tick { elapsed, unix_ms, hosts, .. } => {
                if let Some(phase) = &mut self.under_way {
                    phase.update(hosts);
                }
                self.show(*elapsed, *unix_ms);
            }
            Event::PhaseEnded { .. } => {
                self.under_way = None;
                self.clear();
            }
            // The run's table has them, with what to do.
            Event::Warning(_) => {}
        }
    }
}

/// A run that breaks off leaves no half line behind.
impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::clock::SECOND;
    use wirecost_model::measure::{Bytes, Counters, FlowopCounts};

    use super::*;

    fn host(host: u32, side: Side, elapsed: Nanos, operations: u64) -> HostCounters {
        let bytes = operations * 1_000_000;
        HostCounters {
            host,
            side,
            elapsed,
            counters: Counters {
                bytes: match side {
                    Side::Master => Bytes { tx_sent: bytes, ..Bytes::default() },
                    Side::Peer => Bytes { tx_received: bytes, ..Bytes::default() },
                },
                transactions: operations,
                flowops: vec![FlowopCounts {
                    done: operations,
                    failed: u64::from(operations > 2500),
                    ..FlowopCounts::default()
                }],
                ..Counters::default()
            },
        }
    }

    fn shown(style: Style) -> String {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out, style);
        progress.event(&Event::Ready { hosts: Vec::new(), phases: 3 });
        progress.event(&Event::PhaseStarted {
            phase: 1,
            until: Until::Duration(Duration::from_secs(10)),
            ramp: SECOND + SECOND / 10,
            headline: true,
            unix_ms: 0.0,
        });
        for half in 1..=6u64 {
            let elapsed = half * SECOND / 2;
            let operations = half * 500;
            progress.event(&Event::Tick {
                phase: 1,
                elapsed,
                unix_ms: half as f64 * 500.0,
                hosts: vec![
                    host(0, Side::Master, elapsed, operations),
                    host(1, Side::Peer, elapsed, operations),
                ],
                readings: Vec::new(),
            });
        }
        drop(progress);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_lines_come_once_a_second() {
        insta::assert_snapshot!(shown(Style::Plain), @"
        phase 2/3  1.0/11.1 s (ramp)  tx 8.00 Gb/s  rx 0 b/s  transactions 1,000 /s
        phase 2/3  2.0/11.1 s  tx 8.00 Gb/s  rx 0 b/s  transactions 1,000 /s
        phase 2/3  3.0/11.1 s  tx 8.00 Gb/s  rx 0 b/s  transactions 1,000 /s  1 failed
        ");
    }

    #[test]
    fn a_live_line_is_rewritten_within_its_width_and_leaves_nothing() {
        let output = shown(Style::Live { width: 60 });
        let lines: Vec<&str> = output.split(REWRITE).collect();
        assert_eq!(lines.len(), 8, "{output:?}");
        assert_eq!((lines[0], lines[7]), ("", ""));
        assert!(lines[6].starts_with("phase 2/3  3.0/11.1 s  tx 8.00 Gb/s"));
        assert!(lines.iter().all(|line| line.len() < 60));
        assert!(!output.contains('\n'));
        assert!(shown(Style::Live { width: 100 }).contains("  1 failed"));
    }

    #[test]
    fn one_of_many_runs_has_a_short_line_between_its_labels() {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out, Style::Live { width: 80 });
        let before = "3/12 connections=8".to_owned();
        progress.label(Labels { before, after: "1m left".to_owned() });
        let until = Until::Duration(Duration::from_secs(2));
        let (phase, headline, unix_ms) = (0, true, 0.0);
        progress.event(&Event::PhaseStarted { phase, until, ramp: 0, headline, unix_ms });
        let hosts = vec![host(1, Side::Peer, SECOND, 1000)];
        let readings = Vec::new();
        progress.event(&Event::Tick { phase, elapsed: SECOND, unix_ms, hosts, readings });
        progress.stay("done");
        drop(progress);
        let text = String::from_utf8(out).unwrap();
        let line = "3/12 connections=8  1.0/2.0 s  8.00 Gb/s  1m left";
        assert_eq!(text, format!("{REWRITE}{line}{REWRITE}done\n"));
    }

    #[test]
    fn a_host_that_is_silent_keeps_its_pace() {
        let first = Pace::default().after(&host(1, Side::Peer, SECOND, 1000));
        let again = first.after(&host(1, Side::Peer, SECOND, 1000));
        assert_eq!(again.tx_per_second, 1e9);
        let slower = again.after(&host(1, Side::Peer, 3 * SECOND, 2000));
        assert_eq!(slower.tx_per_second, 5e8);
    }
}
