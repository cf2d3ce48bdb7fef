//! Whole runs without a machine: the strands of all hosts against a simulated network, as the
//! engines and the controller would run them.

mod calls;
pub(crate) mod datagrams;
mod departures;
mod failures;
mod half_close;
mod mirror;
mod native;
pub(crate) mod net;
mod outstanding;
mod pacing;
mod plain;
#[path = "../../../../tests/seed.rs"]
mod seed;
mod served;
mod stacks;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wirecost_model::clock::{MILLISECOND, Nanos, nanos};
use wirecost_model::histogram::Histogram;
use wirecost_model::measure::Counters;
use wirecost_model::plan::FileSizes;
use wirecost_model::profile::{
    Arrivals, ByStrand, Choice, Conns, Flowop, Group as ProfileGroup, Options, Part, Pause,
    Position, Profile, Quantity, Size, Trace, Transaction, Until, Weighted,
};
use wirecost_model::program::Program;

use self::net::{Departed, SimNet, Weather};
use crate::limits::{Counts, completion_limits, may_wait};
use crate::net::Interest;
use crate::operation_log::{LogMemory, OperationLog};
use crate::payload::Patterns;
use crate::program;
use crate::record::{self, Record, WorkerCounters};
use crate::step::{self, Group};
use crate::strand::{Context, PhaseTiming, Strand, Turn, Wait};

/// A phase of so many turns in a row that move nothing has a strand that spins.
const MANY_TURNS: usize = 200_000;

/// How a run is to go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) weather: Weather,
    pub(crate) ramp: Nanos,
    /// A host that does nothing for a time, counted from the run's beginning.
    pub(crate) stall: Option<(usize, Range<Nanos>)>,
    /// Whether all steps are taken the general way, see [`step::Phase::plain`].
    pub(crate) general: bool,
    /// Whether a call is given a whole message, not a piece of one.
    pub(crate) whole_messages: bool,
}

/// What one host counted in one phase.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) counters: Counters,
    pub(crate) transactions: Histogram,
    pub(crate) latencies: Vec<Histogram>,
    pub(crate) one_way: Histogram,
    pub(crate) verify_failures: u64,
}

/// What a run came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// By phase, then host.
    pub(crate) phases: Vec<Vec<Counted>>,
    pub(crate) programs: Vec<Program>,
    pub(crate) errors: Vec<String>,
    /// Bytes or datagrams left unread in connections at the end of each phase.
    pub(crate) unread: Vec<usize>,
    pub(crate) discarded: usize,
    /// Calls that received something.
    pub(crate) receives: usize,
    pub(crate) longest_unread: Nanos,
    /// Connections that are open at the end of each phase, by host.
    pub(crate) open: Vec<Vec<usize>>,
    /// How long the phases took beyond their window.
    pub(crate) drain: Vec<Nanos>,
    pub(crate) turns: usize,
    /// Messages with departure times, in the order in which they were handed over.
    pub(crate) departures: Vec<Departed>,
    /// Most bytes of streams that a strand sent in one turn.
    pub(crate) longest_turn: usize,
}

struct Running {
    timings: Vec<PhaseTiming>,
    record: Record,
    held: Option<Counts>,
    ended: bool,
    /// What strands were told to do.
    limits: Counts,
}

#[derive(Clone, Copy, Default)]
struct StrandState {
    wait: Option<Wait>,
    ready: bool,
    arrived: usize,
}

struct Host {
    groups: Vec<Group>,
    strands: Vec<Strand<usize>>,
    /// Index of each strand's group.
    group_of: Vec<usize>,
    states: Vec<StrandState>,
    patterns: Patterns,
    running: Option<Running>,
}

/// Runs a profile.
pub(crate) fn run(profile: &Profile, settings: &Settings) -> Outcome {
    let programs = program::compile(profile).unwrap();
    let files: Vec<FileSizes> = files_of(profile, &settings.weather.files);
    let hosts = programs.iter().map(|program| host(program, &files, settings)).collect();
    let net = SimNet::new(settings.weather.clone());
    let outcome = Outcome { programs, ..Outcome::default() };
    let mut sim = Sim { net, hosts, settings, outcome };
    let phases = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap();
    for phase in 0..phases {
        sim.phase(profile, phase);
        if !sim.outcome.errors.is_empty() {
            break;
        }
    }
    sim.outcome.discarded = sim.net.discarded;
    sim.outcome.receives = sim.net.receives;
    sim.outcome.departures = std::mem::take(&mut sim.net.departures);
    sim.outcome.longest_unread = sim.net.longest_unread;
    sim.outcome
}

fn files_of(profile: &Profile, sizes: &[u64]) -> Vec<FileSizes> {
    let mut files = Vec::new();
    for (group, of_group) in profile.groups.iter().enumerate() {
        for (phase, transaction) in of_group.transactions.iter().enumerate() {
            for (flowop, _) in
                transaction.flowops.iter().enumerate().filter(|(_, f)| f.kind == "sendfile")
            {
                files.push(FileSizes {
                    group: group as u32,
                    phase: phase as u32,
                    flowop: flowop as u32,
                    sizes: sizes.to_vec(),
                });
            }
        }
    }
    files
}

fn host(program: &Program, files: &[FileSizes], settings: &Settings) -> Host {
    let mut groups = step::compile(program, 7, files).unwrap();
    if settings.general {
        let phases = groups.iter_mut().flat_map(|group| group.phases.iter_mut().flatten());
        phases.for_each(|phase| Arc::get_mut(phase).unwrap().plain.clear());
    }
    let pattern = if settings.whole_messages { 1 << 20 } else { 16384 };
    let (mut strands, mut group_of) = (Vec::new(), Vec::new());
    for (index, group) in groups.iter().enumerate() {
        for number in 0..group.strands {
            let local = strands.len() as u32;
            strands.push(Strand::new(group.number, number, local, group.ids.len()));
            group_of.push(index);
        }
    }
    Host {
        states: vec![StrandState::default(); strands.len()],
        groups,
        strands,
        group_of,
        patterns: Patterns::new(&[Default::default()], pattern, 7, &Default::default()).unwrap(),
        running: None,
    }
}

impl Host {
    fn all_finished(&self) -> bool {
        self.strands.iter().all(Strand::finished)
    }

    fn begin(&mut self, phase: usize, start: Nanos, window: Range<Nanos>, by_iterations: bool) {
        let until = |group: &Group| Some(group.phases[phase].as_ref()?.until);
        let timings = self.groups.iter().map(|group| match until(group) {
            Some(Until::Duration(length)) if !by_iterations => PhaseTiming {
                start,
                window: window.start,
                end: window.start + nanos(length),
                closed: false,
                finishing: false,
            },
            _ => {
                PhaseTiming { start, window: window.start, end: 0, closed: true, finishing: false }
            }
        });
        let timings = timings.collect();
        for (strand, &group) in self.strands.iter_mut().zip(&self.group_of) {
            let of_group = self.groups[group].phases[phase].as_deref();
            let limit = match until(&self.groups[group]) {
                Some(Until::Iterations(_)) if of_group.is_some_and(|phase| phase.serves) => {
                    u64::MAX
                }
                Some(Until::Iterations(n)) => n,
                _ => 0,
            };
            strand.enter(of_group, start, limit);
        }
        for (state, &group) in self.states.iter_mut().zip(&self.group_of) {
            *state = StrandState::default();
            if self.groups[group].phases[phase].is_some() {
                state.wait = Some(Wait { slot: 0, on: Interest::Nothing, until: Some(start) });
            }
        }
        let rows = self.groups.iter().map(|g| g.rows[phase].len()).sum();
        let whole = step::whole_rows(&self.groups, phase);
        let record = Record::new(Arc::new(WorkerCounters::new(rows, whole)), window, 1);
        // Without memory, it only counts.
        let record = record.with_log(Some(OperationLog::new(Arc::new(LogMemory::new(0, 1)))));
        let limits = Counts::new();
        self.running = Some(Running { timings, record, held: None, ended: false, limits });
    }

    fn hold(&mut self, phase: usize) {
        let running = self.running.as_mut().unwrap();
        running.timings.iter_mut().for_each(|timing| timing.closed = true);
        let mut started = Counts::new();
        for (strand, &group) in self.strands.iter().zip(&self.group_of) {
            let serves = self.groups[group].phases[phase].as_ref().is_some_and(|p| p.serves);
            let of_strand = if serves { 0 } else { strand.started().max(strand.limit()) };
            started.entry(strand.group).or_default().push(of_strand);
        }
        running.held = Some(started);
    }

    fn finish(&mut self, phase: usize, limits: &Counts) {
        let running = self.running.as_mut().unwrap();
        for timing in &mut running.timings {
            timing.closed = true;
            timing.finishing = true;
        }
        running.limits = limits.clone();
        for (strand, &group) in self.strands.iter_mut().zip(&self.group_of) {
            let serves = self.groups[group].phases[phase].as_ref().is_some_and(|p| p.serves);
            let limit = limits.get(&strand.group).and_then(|l| l.get(strand.number as usize));
            let limit = if serves { u64::MAX } else { limit.copied().unwrap_or_default() };
            strand.raise_limit(limit);
        }
        self.states.iter_mut().for_each(|state| state.ready = true);
    }
}

struct Sim<'a> {
    net: SimNet,
    hosts: Vec<Host>,
    settings: &'a Settings,
    outcome: Outcome,
}

impl Sim<'_> {
    fn phase(&mut self, profile: &Profile, phase: usize) {
        let untils = profile.groups.iter().filter_map(|g| Some(g.transactions.get(phase)?.until));
        let longest = untils
            .filter_map(|until| match until {
                Until::Duration(length) => Some(nanos(length)),
                Until::Iterations(_) => None,
            })
            .max();
        let start = self.net.now + MILLISECOND;
        let from = start + if longest.is_some() { self.settings.ramp } else { 0 };
        let end = longest.map_or(0, |length| from + length);
        let window = from..if end > 0 { end } else { Nanos::MAX };
        for host in &mut self.hosts {
            host.begin(phase, start, window.clone(), end == 0);
        }
        let mut finish = None;
        let mut turns = 0;
        let (mut moved, mut idle) = (0, 0);
        loop {
            for host in &mut self.hosts {
                let finished = host.all_finished();
                let running = host.running.as_mut().unwrap();
                if running.held.is_none()
                    && ((end > 0 && self.net.now >= end) || (end == 0 && finished))
                {
                    host.hold(phase);
                }
            }
            let enough = self.hosts.iter().enumerate().all(|(number, host)| {
                let running = host.running.as_ref().unwrap();
                running.held.is_some()
                    || (end == 0 && may_wait(&self.outcome.programs[number], phase as u32))
            });
            if enough && finish.is_none() {
                // The news takes a while to go round.
                finish = Some((self.net.now + MILLISECOND, false));
            }
            if let Some((at, false)) = finish
                && self.net.now >= at
            {
                finish = Some((self.net.now, true));
                self.set_limits(phase);
            }
            if let Some((since, true)) = finish
                && self.end(phase, since)
            {
                break;
            }
            if self.run_ready(phase) {
                turns += 1;
                let before = std::mem::replace(&mut moved, self.moved());
                idle = if moved == before { idle + 1 } else { 0 };
                assert!(idle < MANY_TURNS, "too many turns in phase {phase}");
            } else if self.outcome.errors.is_empty() {
                let known = [end, finish.map_or(0, |(at, _)| at)];
                self.advance(phase, &known, finish.is_some_and(|(_, told)| told));
            } else {
                break;
            }
        }
        self.outcome.turns += turns;
        self.outcome.drain.push(self.net.now.saturating_sub(end));
        self.outcome.unread.push(self.net.unread());
        let open = |host: &Host| host.strands.iter().map(|strand| strand.sockets().count()).sum();
        self.outcome.open.push(self.hosts.iter().map(open).collect());
        let is_complete = self.outcome.errors.is_empty();
        let counted = self.hosts.iter_mut().map(|host| {
            let mut running = host.running.take().unwrap();
            let rows = host.groups.iter().map(|g| g.rows[phase].len()).sum();
            let counters = record::sum([&*running.record.counters], rows);
            let (_, logged) = running.record.take_log().unwrap().finish(0);
            if is_complete {
                let operations = counters.flowops.iter().map(|row| row.done + row.failed);
                assert_eq!(logged, operations.sum::<u64>(), "each operation is logged once");
            }
            Counted {
                counters,
                transactions: running.record.transactions(),
                latencies: running.record.latencies(),
                one_way: running.record.one_way_delays(),
                verify_failures: running.record.verify_failures,
            }
        });
        self.outcome.phases.push(counted.collect());
    }

    fn set_limits(&mut self, phase: usize) {
        let started: Vec<Counts> = self
            .hosts
            .iter()
            .map(|host| host.running.as_ref().unwrap().held.clone().unwrap_or_default())
            .collect();
        let programs: Vec<&Program> = self.outcome.programs.iter().collect();
        let limits = completion_limits(&programs, phase as u32, started);
        for (host, limits) in self.hosts.iter_mut().zip(&limits) {
            host.finish(phase, limits);
        }
    }

    /// Ends the phase on the hosts that have finished. Returns whether all have.
    fn end(&mut self, phase: usize, since: Nanos) -> bool {
        let now = self.net.now;
        for host in &mut self.hosts {
            let running = host.running.as_mut().unwrap();
            for (strand, &group) in host.strands.iter_mut().zip(&host.group_of) {
                let Some(of_group) = &host.groups[group].phases[phase] else { continue };
                let heard = if of_group.serves { self.net.shared.last_heard() } else { 0 };
                if !running.ended
                    && strand.give_up_missing(of_group, &running.record, now, since.max(heard))
                    && of_group.serves
                {
                    let limits = running.limits.get(&strand.group);
                    let tag = (phase as u64 + 1) << 56;
                    self.net.shared.give_up(tag, of_group, limits, &running.record.counters);
                }
            }
            running.ended |= host.strands.iter().all(Strand::finished);
        }
        self.hosts.iter().all(|host| host.running.as_ref().unwrap().ended)
    }

    /// Bytes and transactions of all strands in this phase.
    fn moved(&self) -> u64 {
        let strands = self.hosts.iter().flat_map(|host| &host.strands);
        strands.map(|strand| strand.bytes() + strand.iteration()).sum()
    }

    fn stalled(&self, host: usize) -> Option<Nanos> {
        let (which, range) = self.settings.stall.as_ref()?;
        (*which == host && range.contains(&self.net.now)).then_some(range.end)
    }

    /// Lets every strand that can go on run once. Returns whether there was one.
    fn run_ready(&mut self, phase: usize) -> bool {
        let mut ran = false;
        for number in 0..self.hosts.len() {
            if self.stalled(number).is_some() {
                continue;
            }
            for local in 0..self.hosts[number].strands.len() {
                if self.is_ready(number, local) {
                    self.turn(number, local, phase);
                    ran = true;
                }
            }
        }
        ran
    }

    fn is_ready(&self, number: usize, local: usize) -> bool {
        let host = &self.hosts[number];
        if host.running.as_ref().unwrap().ended {
            return false;
        }
        let (state, strand) = (&host.states[local], &host.strands[local]);
        let Some(wait) = state.wait else { return state.ready };
        state.ready
            || wait.until.is_some_and(|until| until <= self.net.now)
            || match wait.on {
                Interest::Nothing => false,
                Interest::Arrival => {
                    let place = (number as u32, strand.group, strand.number);
                    self.net.arrived(place) != state.arrived
                }
                on => strand.socket(wait.slot).is_some_and(|&s| self.net.ready(s, on)),
            }
    }

    fn turn(&mut self, number: usize, local: usize, phase: usize) {
        self.net.spend();
        let host = &mut self.hosts[number];
        let group = host.group_of[local];
        let strand = &mut host.strands[local];
        let place = (number as u32, strand.group, strand.number);
        let state = &mut host.states[local];
        *state = StrandState { arrived: self.net.arrived(place), ..StrandState::default() };
        let Some(steps) = &host.groups[group].phases[phase] else { return };
        let running = host.running.as_mut().unwrap();
        let mut context = Context {
            net: &mut self.net,
            record: &mut running.record,
            patterns: &mut host.patterns,
            timing: &running.timings[group],
            turn: crate::strand::TURN_BYTES,
            tag: (phase as u64 + 1) << 56,
        };
        let before = context.net.sent;
        let turn = strand.run(steps, &mut context);
        let sent = context.net.sent - before;
        self.outcome.longest_turn = self.outcome.longest_turn.max(sent);
        match turn {
            Turn::Again => state.ready = true,
            Turn::Wait(wait) => state.wait = Some(wait),
            Turn::Quiesced => {}
            Turn::Failed(error) => self.outcome.errors.push(format!("host {number}: {error}")),
        }
    }

    /// Goes to the next instant at which something can happen.
    fn advance(&mut self, phase: usize, known: &[Nanos], finishing: bool) {
        let now = self.net.now;
        let waits = self.hosts.iter().flat_map(|h| &h.states).filter_map(|s| s.wait?.until);
        let stalls = (0..self.hosts.len()).filter_map(|host| self.stalled(host));
        let begins = self.settings.stall.iter().map(|(_, range)| range.start);
        let mut next = waits
            .chain(stalls)
            .chain(begins)
            .chain(known.iter().copied())
            .chain(self.net.next_event())
            .filter(|at| *at > now)
            .min();
        let shares = self.hosts.iter().any(|host| {
            let phases = host.groups.iter().filter_map(|g| g.phases[phase].as_ref());
            !host.running.as_ref().unwrap().ended
                && phases.into_iter().any(|p| p.datagrams_only || p.can_fail)
        });
        if finishing && shares {
            next = Some(next.map_or(Nanos::MAX, |next| next).min(now + 50 * MILLISECOND));
        }
        let Some(next) = next else { self.deadlock(phase) };
        assert!(now < 100_000_000 * MILLISECOND, "the phase does not end");
        self.net.now = next;
    }

    fn deadlock(&self, phase: usize) -> ! {
        let strands: Vec<_> = self
            .hosts
            .iter()
            .flat_map(|h| h.strands.iter().zip(h.states.iter().map(|s| s.wait)))
            .collect();
        panic!("deadlock in phase {phase}: {strands:#?}");
    }
}

/// Sums over the hosts.
pub(crate) fn sum(phase: &[Counted], of: impl Fn(&Counters) -> i64) -> i64 {
    phase.iter().map(|counted| of(&counted.counters)).sum()
}

/// Checks that all that was sent in each phase was received in it.
pub(crate) fn check_conserved(outcome: &Outcome) {
    assert_eq!(outcome.errors, [] as [String; 0]);
    for (number, phase) in outcome.phases.iter().enumerate() {
        let tx = sum(phase, |c| c.bytes.tx_sent as i64 - c.bytes.tx_received as i64);
        let rx = sum(phase, |c| c.bytes.rx_sent as i64 - c.bytes.rx_received as i64);
        assert_eq!((tx, rx), (0, 0), "sent but not received in phase {number}");
        assert_eq!(outcome.unread[number], 0, "phase {number}");
        assert!(phase.iter().all(|counted| counted.verify_failures == 0), "phase {number}");
    }
    assert_eq!(outcome.discarded, 0);
}

pub(crate) fn op(kind: &str, edit: impl FnOnce(&mut Options)) -> Flowop {
    let mut options = Options::default();
    edit(&mut options);
    Flowop { kind: kind.to_owned(), options, at: Position::default() }
}

pub(crate) fn connect(protocol: &str, host: &str, conn: u32) -> Flowop {
    op("connect", |o| {
        o.protocol = Some(protocol.to_owned());
        o.remotehost = Some(host.to_owned());
        o.conn = Conns::one(conn);
    })
}

pub(crate) fn transfer(kind: &str, bytes: u64) -> Flowop {
    op(kind, |o| o.size = Some(Size::Fixed(bytes)))
}

pub(crate) fn think(length: Nanos) -> Flowop {
    op("think", |o| o.duration = Some(Pause::Fixed(length)))
}

pub(crate) fn times(n: u64, flowops: Vec<Flowop>) -> Transaction {
    Transaction {
        until: Until::Iterations(n),
        arrivals: None,
        flowops,
        order: Vec::new(),
        at: Position::default(),
    }
}

pub(crate) fn lasting(length: Nanos, flowops: Vec<Flowop>) -> Transaction {
    let until = Until::Duration(Duration::from_nanos(length));
    Transaction { until, ..times(0, flowops) }
}

pub(crate) fn profile(strands: u32, transactions: Vec<Transaction>) -> Profile {
    let group = ProfileGroup { strands, transactions, ..ProfileGroup::default() };
    Profile { name: String::new(), groups: vec![group] }
}
