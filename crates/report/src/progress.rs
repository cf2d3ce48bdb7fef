//! Progress while a run is under way: one line rewritten in place on a terminal, at most a line a
//! second elsewhere.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use wirecost_model::clock::{self, Nanos};
use wirecost_model::event::{Event, HostCounters, Listener};
use wirecost_model::profile::Until;
use wirecost_model::program::Side;
use wirecost_model::units::{bit_rate, bytes, count, rate};
use wirecost_model::visible::{visible, visible_lines};

use crate::outputs::{TerminalStyle, cut, understands_escapes, width};

/// Least time between two lines where lines stay, milliseconds.
const PLAIN_EVERY: f64 = 1000.0;
/// Back to the first column and empty to the end of the line (ECMA-48, EL).
const REWRITE: &str = "\r\u{1b}[K";

/// Between the parts of a line.
const GAP: usize = 2;
/// The point of a run that is one of many is not shortened to less.
const POINT: usize = 12;

/// How progress is written: in lines of at most `width` columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One line, rewritten in place.
    Live { width: usize },
    /// Lines that stay.
    Plain { width: usize },
}

impl Style {
    /// What suits this stream.
    pub fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let width = TerminalStyle::of(stream).width;
        match understands_escapes(stream) {
            true => Style::Live { width },
            false => Style::Plain { width },
        }
    }

    /// Columns that a line may use.
    fn room(self) -> usize {
        match self {
            // A full line would wrap, and the next rewrite would leave it behind.
            Style::Live { width } => width.saturating_sub(1),
            Style::Plain { width } => width,
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
    /// Of a run that is one of many.
    labels: Option<Labels>,
    /// Of a run that is made several times, under other probes each time.
    pass: Option<Pass>,
}

/// One pass of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    /// From 1.
    number: usize,
    of: usize,
}

impl Pass {
    fn part(self) -> Part {
        Part::new(3, format!("pass {}/{}", self.number, self.of))
    }
}

/// What is said of a run that is one of many.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Labels {
    /// `3/12`.
    pub number: String,
    /// `connections=8 size=64k`, and in fewer words: `8 64k`.
    pub point: String,
    pub point_values: String,
    /// Busy share of all CPUs, 0 to 1.
    pub busy: Option<f64>,
    /// Remaining time of all runs: `1m05s`.
    pub left: String,
}

/// A part of a line. Where there is no room for all, those with the highest `drop_order` are left out first,
/// and those with 0 never.
struct Part {
    drop_order: u8,
    text: String,
}

impl Part {
    fn new(drop_order: u8, text: impl Into<String>) -> Self {
        Self { drop_order, text: text.into() }
    }
}

/// The parts that fit, in their order.
fn fitting(mut parts: Vec<Part>, room: usize) -> String {
    while total(&parts) > room {
        let dispensable = parts.iter().enumerate().filter(|(_, part)| part.drop_order > 0);
        match dispensable.max_by_key(|(_, part)| part.drop_order).map(|(place, _)| place) {
            Some(place) => drop(parts.remove(place)),
            None => break,
        }
    }
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
    cut(&texts.join("  "), room).trim_end().to_owned()
}

fn total(parts: &[Part]) -> usize {
    let widths = parts.iter().map(|part| width(&part.text) + GAP);
    widths.sum::<usize>().saturating_sub(GAP)
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

    fn sum(&self, of: fn(&Pace) -> f64) -> f64 {
        self.hosts.values().map(of).sum()
    }

    fn masters(&self) -> impl Iterator<Item = &Pace> {
        self.hosts.values().filter(|pace| pace.master)
    }

    /// How one of many runs does, in few words.
    fn short_line(
        &self,
        labels: &Labels,
        pass: Option<Pass>,
        elapsed: Nanos,
        room: usize,
    ) -> String {
        let bytes = self.sum(|pace| pace.tx_per_second + pace.rx_per_second);
        let transactions: f64 = self.masters().map(|pace| pace.transactions_per_second).sum();
        let pace = if bytes > 0.0 { bit_rate(bytes * 8.0) } else { rate(transactions) };
        let time = match self.until {
            Until::Duration(window) => {
                part_of(elapsed, clock::seconds(self.ramp) + window.as_secs_f64())
            }
            Until::Iterations(_) => format!("{:.1} s", clock::seconds(elapsed)),
        };
        let [point, values] = [&labels.point, &labels.point_values].map(|text| visible(text));
        let mut parts = vec![
            Part::new(0, visible(&labels.number)),
            Part::new(2, ""),
            Part::new(0, time),
            Part::new(1, format!("{pace:>9}")),
        ];
        parts.extend(pass.map(Pass::part));
        parts.extend(labels.busy.map(|busy| Part::new(3, format!("CPU {:>3.0}%", busy * 100.0))));
        parts.push(Part::new(0, format!("{} left", labels.left)));
        // The point has what the others leave.
        if total(&parts) + width(&values).min(POINT) > room {
            parts.retain(|part| part.drop_order != 3);
        }
        match room.saturating_sub(total(&parts)) {
            0..4 => parts.retain(|part| part.drop_order != 2),
            left if width(&point) <= left => parts[1].text = point.into_owned(),
            left => parts[1].text = cut(&values, left).into_owned(),
        }
        fitting(parts, room)
    }

    /// Ramp or window, and how much of it has passed. As wide in both.
    fn time(&self, elapsed: Nanos) -> String {
        let Until::Duration(window) = self.until else {
            return format!("{:.1} s", clock::seconds(elapsed));
        };
        let (ramp, window) = (clock::seconds(self.ramp), window.as_secs_f64());
        let (name, now, of) = match elapsed < self.ramp {
            true => ("ramp", elapsed, ramp),
            false => ("window", elapsed - self.ramp, window),
        };
        let widest = [ramp, window].map(|of| part_of(0, of).len()).into_iter().max().unwrap_or(0);
        format!("{name:<6} {:>widest$}", part_of(now, of))
    }

    fn line(&self, phases: u32, pass: Option<Pass>, elapsed: Nanos, room: usize) -> String {
        let (tx, rx) = (self.sum(|pace| pace.tx_per_second), self.sum(|pace| pace.rx_per_second));
        let transactions: f64 = self.masters().map(|pace| pace.transactions_per_second).sum();
        let failed: u64 = self.masters().map(|pace| pace.failed).sum();
        let moved = tx + rx > 0.0;
        let mut parts: Vec<Part> = pass.map(Pass::part).into_iter().collect();
        if phases > 1 {
            parts.push(Part::new(4, format!("phase {}/{phases}", self.number + 1)));
        }
        parts.push(Part::new(0, self.time(elapsed)));
        for (name, per_second, drop_order) in [("tx", tx, 1), ("rx", rx, 2)] {
            // A direction without data is the least to know.
            let drop_order = if per_second > 0.0 { drop_order } else { 6 };
            parts.push(Part::new(drop_order, format!("{name} {:>9}", bit_rate(per_second * 8.0))));
        }
        let drop_order = if moved { 5 } else { 3 };
        parts.push(Part::new(drop_order, format!("transactions {:>9}", rate(transactions))));
        if failed > 0 {
            parts.push(Part::new(3, format!("{} failed", count(failed))));
        }
        fitting(parts, room)
    }
}

/// `3.0/10.0 s`. The end of a phase takes its time, which is not of what it measures.
fn part_of(elapsed: Nanos, seconds: f64) -> String {
    let all = format!("{seconds:.1}");
    let now = format!("{:.1}", clock::seconds(elapsed).min(seconds));
    format!("{now:>wide$}/{all} s", wide = all.len())
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
            pass: None,
        }
    }

    /// Says which pass of the run is under way, counted from 1, where it has several.
    pub fn pass(&mut self, number: usize, of: usize) {
        self.pass = (of > 1).then_some(Pass { number, of });
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

    /// Writes a line that stays, of which a terminal shows as much as it has columns for. A file gets all
    /// of it.
    pub fn stay_on_one_line(&mut self, line: &str) {
        let line = visible(line);
        match self.style {
            Style::Live { width } => self.stay(&cut(&line, width)),
            Style::Plain { .. } => self.stay(&line),
        }
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
        let room = self.style.room();
        let line = match &self.labels {
            Some(labels) => phase.short_line(labels, self.pass, elapsed, room),
            None => {
                let phases = self.phases.max(phase.number + 1);
                phase.line(phases, self.pass, elapsed, room)
            }
        };
        self.write(&line, unix_ms);
    }

    fn write(&mut self, line: &str, unix_ms: f64) {
        match self.style {
            // Of many runs each has a line of its own when it is done.
            Style::Plain { .. } if self.labels.is_some() => {}
            Style::Live { .. } => {
                self.dirty = true;
                self.attempt(|out| write!(out, "{REWRITE}{line}"));
            }
            Style::Plain { .. } => {
                let due = self.written_unix_ms.is_none_or(|last| unix_ms - last >= PLAIN_EVERY);
                if due {
                    self.written_unix_ms = Some(unix_ms);
                    self.attempt(|out| writeln!(out, "{line}"));
                }
            }
        }
    }
}

impl<W: Write> Progress<W> {
    /// How far a host is with its files.
    fn show_preparation(&mut self, (host, done, total): (&str, u64, u64), unix_ms: f64) {
        let (host, labels) = (visible(host), self.labels.as_ref());
        let point = labels.map_or_else(String::new, |labels| format!("{}  ", labels.number));
        let line = match total {
            // Nothing is to be written or read; devices are waited for.
            0 => format!("{point}{host} prepares its files"),
            _ => format!("{point}{host} prepares its files: {} of {}", bytes(done), bytes(total)),
        };
        self.write(&cut(&line, self.style.room()), unix_ms);
    }
}

impl<W: Write> Listener for Progress<W> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Preparing { host, done, total, unix_ms } => {
                self.show_preparation((host, *done, *total), *unix_ms);
            }
            Event::Ready { phases, .. } => {
                self.phases = *phases;
                self.clear();
            }
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
        insta::assert_snapshot!(shown(Style::Plain { width: 80 }), @"
        phase 2/3  ramp     1.0/1.1 s  tx 8.00 Gb/s  transactions  1,000 /s
        phase 2/3  window  0.9/10.0 s  tx 8.00 Gb/s  transactions  1,000 /s
        phase 2/3  window  1.9/10.0 s  tx 8.00 Gb/s  transactions  1,000 /s  1 failed
        ");
    }

    #[test]
    fn files_that_a_host_prepares_are_shown_until_the_run_begins() {
        let shown = |style, labels: Option<Labels>| {
            let mut out = Vec::new();
            let mut progress = Progress::new(&mut out, style);
            progress.labels = labels;
            for (second, done, total) in [(1, 0, 0), (2, 300, 4000), (3, 4000, 4000)] {
                let (host, unix_ms) = ("h1\u{7}".to_owned(), 1e3 * f64::from(second));
                let [done, total] = [done, total].map(|megabytes: u64| megabytes * 1_000_000);
                progress.event(&Event::Preparing { host, done, total, unix_ms });
            }
            progress.event(&Event::Ready { hosts: Vec::new(), phases: 1 });
            drop(progress);
            String::from_utf8(out).unwrap()
        };
        let plain = shown(Style::Plain { width: 80 }, None);
        let lines: Vec<&str> = plain.lines().collect();
        assert_eq!(lines.len(), 3, "{plain}");
        assert!(lines[0].ends_with("prepares its files") && !plain.contains('\u{7}'), "{plain}");
        assert!(lines[1].ends_with("prepares its files: 300 MB of 4.00 GB"), "{plain}");
        // Of many runs each has one line, when it is done.
        let labels = || Labels { number: "3/12".to_owned(), ..Labels::default() };
        assert_eq!(shown(Style::Plain { width: 80 }, Some(labels())), "");
        let live = shown(Style::Live { width: 80 }, Some(labels()));
        assert!(live.contains("3/12  h1") && live.ends_with(REWRITE), "{live:?}");
    }

    #[test]
    fn a_pass_of_several_is_named() {
        let line = |number, of, labels: Option<Labels>| {
            let mut out = Vec::new();
            let mut progress = Progress::new(&mut out, Style::Live { width: 80 });
            progress.pass(number, of);
            labels.into_iter().for_each(|labels| progress.label(labels));
            let until = Until::Duration(Duration::from_secs(2));
            let (phase, headline, unix_ms) = (0, true, 0.0);
            progress.event(&Event::PhaseStarted { phase, until, ramp: 0, headline, unix_ms });
            let hosts = vec![host(1, Side::Peer, SECOND, 1000)];
            let readings = Vec::new();
            progress.event(&Event::Tick { phase, elapsed: SECOND, unix_ms, hosts, readings });
            drop(progress);
            String::from_utf8(out).unwrap()
        };
        let of_study = Labels { number: "3/12".to_owned(), ..Labels::default() };
        for labels in [None, Some(of_study)] {
            let shown = line(2, 3, labels.clone());
            assert!(shown.contains("pass 2/3  "), "{shown:?}");
            let shown = line(1, 1, labels);
            assert!(!shown.contains("pass"), "{shown:?}");
        }
    }

    #[test]
    fn a_live_line_is_rewritten_within_its_width_and_leaves_nothing() {
        for width in [20, 40, 60, 80, 100] {
            let output = shown(Style::Live { width });
            let lines: Vec<&str> = output.split(REWRITE).collect();
            assert_eq!(lines.len(), 8, "{output:?}");
            assert_eq!((lines[0], lines[7]), ("", ""));
            assert!(lines.iter().all(|line| line.len() < width), "{lines:?}");
            assert!(lines[6].contains("1.9/10.0 s"), "{lines:?}");
            assert!(width < 60 || lines[6].ends_with("  1 failed"), "{lines:?}");
            assert!(!output.contains('\n'));
        }
    }

    #[test]
    fn columns_stay_where_they_are_from_ramp_to_window() {
        let output = shown(Style::Plain { width: 100 });
        let places: Vec<Option<usize>> = output.lines().map(|line| line.find("tx ")).collect();
        assert!(places.iter().all(|place| *place == places[0]), "{output}");
    }

    /// The end of a phase takes its time: strands complete what they began.
    #[test]
    fn time_is_never_beyond_its_end() {
        let phase = |ramp| Phase {
            number: 0,
            until: Until::Duration(Duration::from_secs(10)),
            ramp,
            hosts: BTreeMap::new(),
        };
        assert_eq!(phase(SECOND).time(13 * SECOND), "window 10.0/10.0 s");
        assert_eq!(phase(SECOND).time(SECOND / 2), "ramp     0.5/1.0 s");
        let labels =
            Labels { number: "1/2".to_owned(), left: "9s".to_owned(), ..Labels::default() };
        let line = phase(SECOND).short_line(&labels, None, 13 * SECOND, 80);
        assert!(line.contains(" 11.0/11.0 s "), "{line}");
    }

    #[test]
    fn one_of_many_runs_has_a_short_line_that_fits() {
        let line = |width| {
            let mut out = Vec::new();
            let mut progress = Progress::new(&mut out, Style::Live { width });
            progress.label(Labels {
                number: "3/12".to_owned(),
                point: "connections=8 size=64k\u{1b}".to_owned(),
                point_values: "8 64k\u{1b}".to_owned(),
                busy: Some(0.5),
                left: "1m00s".to_owned(),
            });
            let until = Until::Duration(Duration::from_secs(2));
            let (phase, headline, unix_ms) = (0, true, 0.0);
            progress.event(&Event::PhaseStarted { phase, until, ramp: 0, headline, unix_ms });
            let hosts = vec![host(1, Side::Peer, SECOND, 1000)];
            let readings = Vec::new();
            progress.event(&Event::Tick { phase, elapsed: SECOND, unix_ms, hosts, readings });
            progress.stay("done");
            drop(progress);
            let text = String::from_utf8(out).unwrap();
            let line = text.strip_prefix(REWRITE).unwrap();
            let line = line.strip_suffix(&format!("{REWRITE}done\n")).unwrap().to_owned();
            assert!(line.len() < width, "{line}");
            line
        };
        insta::assert_snapshot!([100, 60, 40, 24].map(line).join("\n"), @r"
        3/12  connections=8 size=64k\u{1b}  1.0/2.0 s  8.00 Gb/s  CPU  50%  1m00s left
        3/12  8 64k\u{1b}  1.0/2.0 s  8.00 Gb/s  1m00s left
        3/12  1.0/2.0 s  8.00 Gb/s  1m00s left
        3/12  1.0/2.0 s  1m00..
        ");
    }

    #[test]
    fn a_line_that_stays_fits_a_terminal_and_is_whole_in_a_file() {
        let line = "  3/12  size=64k: the windows of the hosts are 60 ms apart";
        let written = |style| {
            let mut out = Vec::new();
            Progress::new(&mut out, style).stay_on_one_line(line);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Style::Live { width: 24 }), "  3/12  size=64k: the ..\n");
        assert_eq!(written(Style::Plain { width: 24 }), format!("{line}\n"));
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
