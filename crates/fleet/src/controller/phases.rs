//! One phase after the other: all hosts begin, take snapshots of their counters and end at the same
//! instants.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use wirecost_linux::clock::{Monotonic, unix_ms};
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, nanos, seconds};
use wirecost_model::congestion::{BPF_BIC, is_of};
use wirecost_model::event::{Event, HostCounters, Reading};
use wirecost_model::observe::{ObserveTimes, ObserverReport};
use wirecost_model::outcome::{DeadTimePolicy, HostOutcome, PhaseObservation, PhasePlan};
use wirecost_model::profile::{IoValue, Options, Pause, Profile, Transaction, Until};
use wirecost_model::program::Side;
use wirecost_model::status::Status;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::calls::SINK_BYTES;
use wirecost_program::headline::{self, Work};
use wirecost_program::limits::{Counts, completion_limits, may_wait, takes_part};

use super::{Controller, DRAIN, HostState, SET_UP, STALL, Stopped};
use crate::wire::{Notice, Order, PhaseTimes};

/// Between the order and the beginning of a phase, beyond the time that an order takes to arrive.
const LEAD: Nanos = 20 * MILLISECOND;

/// Between the order and the window's begin at least. An agent that the order reaches later, on a busy
/// host, has no snapshot of that edge, and the run no window.
const EDGE: Nanos = 200 * MILLISECOND;

/// Hooks are put in place, and taken away, within this time at either side of the window.
const SETTLE: Nanos = 100 * MILLISECOND;
/// Ramp before the time without observers, so that connections are up to speed.
const SPEED_UP: Nanos = 200 * MILLISECOND;
/// Shorter times without observers say nothing.
const SHORTEST_BESIDE: Nanos = 100 * MILLISECOND;
const LONGEST_BESIDE: Nanos = 500 * MILLISECOND;

/// Times just before and just after the window in which nothing observes, so that the result shows
/// what observing costs. None where the ramp or the window is too short for that.
fn beside(start: Nanos, (from, to): (Nanos, Nanos)) -> Vec<(Nanos, Nanos)> {
    let ramp = (from - start).saturating_sub(SETTLE + SPEED_UP);
    let length = ramp.min((to - from) / 10).min(LONGEST_BESIDE);
    if length < SHORTEST_BESIDE {
        return Vec::new();
    }
    vec![(from - SETTLE - length, from - SETTLE), (to + SETTLE, to + SETTLE + length)]
}

/// Bytes that a disk writes or reads in a second at least: one that is slower fails a run whose sink is synced or
/// read back at the end of a phase.
const SLOWEST_DISK: u64 = 10 << 20;

/// Whether all groups go on for as long as the phase does.
fn uniform(profile: &Profile, phase: u32) -> bool {
    let phase = phase as usize;
    let all = longest(transactions(profile, phase));
    transactions(profile, phase).all(|transaction| transaction.until == all)
}

/// The phases of a profile as they are measured. Where the profile does not decide which of them is
/// the headline, [`choose_headline`] does when they have been measured.
pub(super) fn plan(profile: &Profile, ramp: Nanos) -> Vec<PhasePlan> {
    let count = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap_or(0);
    let mut plans: Vec<PhasePlan> = (0..count)
        .map(|phase| {
            let until = longest(transactions(profile, phase));
            let timed = matches!(until, Until::Duration(_));
            PhasePlan {
                until,
                ramp_seconds: if timed { seconds(ramp) } else { 0.0 },
                headline: false,
                moves_data: headline::moves_data(profile, phase),
                datagrams: uses(profile, |protocol| !protocol.delivery().is_reliable()),
                encrypts: uses(profile, |protocol| protocol.is_secure()),
                may_idle: may_idle(profile, phase),
                window_unix_ms: None,
            }
        })
        .collect();
    if let Some(plan) = headline::of_profile(profile).and_then(|phase| plans.get_mut(phase)) {
        plan.headline = true;
    }
    plans
}

/// Chooses the headline by what the phases have done, where the profile has not decided.
pub(super) fn choose_headline(plans: &mut [PhasePlan], hosts: &[HostOutcome]) {
    if plans.iter().any(|plan| plan.headline) {
        return;
    }
    let work = |phase: usize, plan: &PhasePlan| {
        let mut work = Work { moves_data: plan.moves_data, received_bytes: 0, operations: 0 };
        let mut measured = false;
        for host in hosts {
            let result = host.phases.iter().find(|result| result.phase as usize == phase);
            let Some(last) = result.and_then(|result| result.snapshots.last()) else { continue };
            work.received_bytes += last.counters.bytes.received();
            if host.side == Side::Master {
                measured = true;
                work.operations += last.counters.flowops.iter().map(|f| f.done).sum::<u64>();
            }
        }
        measured.then_some((phase, work))
    };
    let done: Vec<(usize, Work)> =
        plans.iter().enumerate().filter_map(|(phase, plan)| work(phase, plan)).collect();
    if let Some(plan) = headline::of_work(&done).and_then(|phase| plans.get_mut(phase)) {
        plan.headline = true;
    }
}

fn transactions(profile: &Profile, phase: usize) -> impl Iterator<Item = &Transaction> {
    profile.groups.iter().filter_map(move |group| group.transactions.get(phase))
}

fn longest<'a>(transactions: impl Iterator<Item = &'a Transaction>) -> Until {
    transactions.map(|t| t.until).fold(Until::Iterations(0), |a, b| match (a, b) {
        (Until::Duration(a), Until::Duration(b)) => Until::Duration(a.max(b)),
        (Until::Duration(a), _) | (_, Until::Duration(a)) => Until::Duration(a),
        (Until::Iterations(a), Until::Iterations(b)) => Until::Iterations(a.max(b)),
    })
}

fn uses(profile: &Profile, such: impl Fn(&dyn Protocol) -> bool) -> bool {
    profile
        .groups
        .iter()
        .flat_map(|g| &g.transactions)
        .flat_map(|t| &t.flowops)
        .filter_map(|flowop| flowop.options.protocol.as_deref().and_then(protocols::find))
        .any(such)
}

/// See [`PhasePlan::may_idle`].
fn may_idle(profile: &Profile, phase: usize) -> bool {
    let waits = transactions(profile, phase).any(|transaction| {
        let thinks = transaction.flowops.iter().any(|flowop| flowop.options.duration.is_some());
        thinks || transaction.arrivals.is_some()
    });
    let several = profile.groups.iter().any(|group| {
        let flowops = group.transactions.iter().flat_map(|transaction| &transaction.flowops);
        let hosts: BTreeSet<&str> =
            flowops.filter_map(|flowop| flowop.options.remotehost.as_deref()).collect();
        hosts.len() > 1
    });
    waits || several || !uniform(profile, phase as u32)
}

/// The longest time for which the profile itself may keep every strand from making progress.
fn longest_wait(profile: &Profile, phase: u32) -> Duration {
    let of_phase = profile.groups.iter().filter_map(|group| {
        group.transactions.get(phase as usize).map(|transaction| (group.strands, transaction))
    });
    of_phase
        .map(|(strands, transaction)| {
            let arrivals = transaction.arrivals.as_ref();
            let pause = arrivals.map_or(0.0, |arrivals| arrivals.longest_pause(strands));
            let waits = transaction.flowops.iter().map(|flowop| {
                let options = &flowop.options;
                let thought = options.duration.as_ref().map_or(0, Pause::max);
                Duration::from_nanos(thought)
                    .saturating_add(options.timeout.unwrap_or_default())
                    .saturating_add(longest_write(options))
            });
            waits
                .fold(Duration::ZERO, Duration::saturating_add)
                .saturating_add(Duration::try_from_secs_f64(pause).unwrap_or(Duration::MAX))
        })
        .max()
        .unwrap_or_default()
        .min(Duration::from_secs(24 * 3600))
}

/// How long a receiver may write back, and read back, the files of its sink at the end of a phase.
fn longest_write(options: &Options) -> Duration {
    let bytes = match (options.io.get("sink"), options.io.get("sink_size")) {
        (None, _) => 0,
        (Some(_), Some(IoValue::Number(bytes))) => *bytes,
        (Some(_), _) => SINK_BYTES,
    };
    Duration::from_secs(3 * bytes / SLOWEST_DISK)
}

/// The wall-clock time of an instant of the controller's clock, milliseconds since 1970.
fn unix_ms_at(instant: Nanos) -> f64 {
    unix_ms() + (instant as f64 - Monotonic.now() as f64) / MILLISECOND as f64
}

impl Controller<'_> {
    /// Runs one phase to its end.
    pub(super) fn phase(&mut self, profile: &Profile, phase: u32) -> Result<(), Stopped> {
        let plan = self.plans[phase as usize].clone();
        let ramp = if plan.ramp_seconds > 0.0 { self.settings.ramp } else { 0 };
        // Which phase is the headline is known before, unless none of them lasts a given time.
        let observed = plan.headline || !self.plans.iter().any(|plan| plan.headline);
        let observed = observed && self.hosts.iter().any(|host| host.observes);
        let settle = if observed { SETTLE } else { 0 };
        // A clock's error is half of a round trip; an order may meet a slow one.
        let far = self.hosts.iter().map(|host| host.offset.error).max().unwrap_or(0);
        let lead = match plan.until {
            Until::Duration(_) => LEAD.max(EDGE.saturating_sub(ramp)),
            Until::Iterations(_) => LEAD,
        };
        let start = Monotonic.now() + lead + 4 * far + settle.saturating_sub(ramp);
        let window = match plan.until {
            Until::Duration(length) => {
                Some((start + ramp, (start + ramp).saturating_add(nanos(length))))
            }
            Until::Iterations(_) => None,
        };
        let unobserved = match window {
            Some(window) if observed && uniform(profile, phase) => beside(start, window),
            _ => Vec::new(),
        };
        let observe = ObserveTimes {
            attach: start + ramp - settle,
            start: start + ramp,
            end: window.map(|(_, end)| end),
        };
        for host in &mut self.hosts {
            host.newest = None;
            let there = |here| host.offset.host_time(here);
            let times = PhaseTimes {
                phase,
                start: there(start),
                window: window.map(|(from, to)| (there(from), there(to))),
                unobserved: unobserved.iter().map(|&(a, b)| (there(a), there(b))).collect(),
                observe: (observed && host.observes).then(|| ObserveTimes {
                    attach: there(observe.attach),
                    start: there(observe.start),
                    end: observe.end.map(there),
                }),
            };
            host.member.host.order(Order::Start(times))?;
        }
        if let Some(plan) = self.plans.get_mut(phase as usize) {
            plan.window_unix_ms = window.map(|(from, _)| unix_ms_at(from));
        }
        self.ticked = start;
        self.readings.clear();
        self.listener.event(&Event::PhaseStarted {
            phase,
            until: plan.until,
            ramp,
            headline: plan.headline,
            unix_ms: unix_ms_at(start),
        });
        let patience = longest_wait(profile, phase);
        let started = self.held(phase, start, window.map(|(_, to)| to), patience)?;
        let programs: Vec<_> = self.hosts.iter().map(|host| &host.program).collect();
        let limits = completion_limits(&programs, phase, started);
        for (host, limits) in self.hosts.iter_mut().zip(limits) {
            host.member.host.order(Order::Finish { limits })?;
        }
        let cut_off = self.ended(phase, start, DRAIN + patience)?;
        if plan.datagrams {
            self.drained_packets()?;
        }
        if observed {
            self.observations(phase)?;
        }
        let (hosts, readings) = (self.counters(start), self.phase_readings(start));
        self.listener.event(&Event::PhaseEnded { phase, unix_ms: unix_ms(), hosts, readings });
        if cut_off && (phase as usize) + 1 < self.plans.len() {
            // What was under way had its connections closed, which later phases would miss.
            return Err(Stopped::new(
                Status::Invalid,
                format!(
                    "phase {} was aborted {} s after its end, because strands had not completed their \
                     transactions; later phases were not run. Use transactions that take less time \
                     (a smaller count=)",
                    phase + 1,
                    (DRAIN + patience).as_secs()
                ),
            ));
        }
        Ok(())
    }

    /// Gathers what the kernels have counted now that no host sends any more.
    fn drained_packets(&mut self) -> Result<(), Stopped> {
        for host in &mut self.hosts {
            host.member.host.order(Order::CountPackets)?;
        }
        let mut missing: BTreeSet<usize> = (0..self.hosts.len()).collect();
        while !missing.is_empty() {
            let due = Instant::now() + SET_UP;
            let (host, notice) = self.wait("counters of packets", due, |from, notice| {
                missing.contains(&from) && matches!(notice, Notice::Packets(_))
            })?;
            missing.remove(&host);
            if let (Notice::Packets(packets), Some(result)) =
                (notice, self.hosts[host].phases.last_mut())
            {
                result.drained = packets;
            }
        }
        Ok(())
    }

    /// Gathers what was observed.
    fn observations(&mut self, phase: u32) -> Result<(), Stopped> {
        let mut missing: BTreeSet<usize> =
            (0..self.hosts.len()).filter(|&host| self.hosts[host].observes).collect();
        while !missing.is_empty() {
            let due = Instant::now() + SET_UP;
            let (host, notice) = self.wait("what was observed", due, |from, notice| {
                missing.contains(&from)
                    && matches!(notice, Notice::Observed { phase: of, .. } if *of == phase)
            })?;
            missing.remove(&host);
            if let Notice::Observed { observation, .. } = notice {
                let mut observation = *observation;
                self.name_congestion_control(&mut observation);
                self.observations.push(PhaseObservation { phase, host: host as u32, observation });
            }
        }
        Ok(())
    }

    /// Hosts load BPF programs under names of their own.
    fn name_congestion_control(&self, observation: &mut ObserverReport) {
        let objects = self.settings.congestion_objects.iter().map(|object| object.name.as_str());
        let names: Vec<&str> = objects.chain([BPF_BIC]).collect();
        let flows = observation.parts.iter_mut().filter_map(|host| host.tcp.as_mut());
        for flow in flows.flat_map(|tcp| &mut tcp.flows) {
            let Some(kernel_name) = &flow.congestion_control else { continue };
            let name = names.iter().find(|name| is_of(kernel_name, name));
            if let Some(name) = name {
                flow.congestion_control = Some((*name).to_owned());
            }
        }
    }

    /// Waits until no strand begins another transaction by itself.
    fn held(
        &mut self,
        phase: u32,
        start: Nanos,
        end: Option<Nanos>,
        patience: Duration,
    ) -> Result<Vec<Counts>, Stopped> {
        let mut held: Vec<Option<Counts>> = vec![None; self.hosts.len()];
        let stall = STALL + patience + Duration::from_nanos(self.interval) * 2;
        let mut progress = (0u64, Instant::now());
        loop {
            // Where iterations decide, a host may wait for datagrams that are lost: only the others
            // know when it is over.
            let enough = held.iter().zip(&self.hosts).all(|(held, host)| {
                held.is_some() || (end.is_none() && may_wait(&host.program, phase))
            });
            // Where every host may wait for another, the first one that is through decides.
            let begun = held
                .iter()
                .zip(&self.hosts)
                .any(|(held, host)| held.is_some() && takes_part(&host.program, phase));
            if enough && begun {
                return Ok(held.into_iter().map(Option::unwrap_or_default).collect());
            }
            let due = Instant::now() + Duration::from_millis(500);
            match self.next(due)? {
                Some((from, Notice::Quiesced { phase: of, started })) if of == phase => {
                    held[from] = Some(started);
                    progress.1 = Instant::now();
                }
                Some((from, notice)) => self.live(from, phase, start, notice),
                None => {}
            }
            let sum: u64 = self
                .counters(start)
                .iter()
                .map(|c| {
                    let counters = &c.counters;
                    let operations: u64 = counters.flowops.iter().map(|f| f.done + f.failed).sum();
                    counters.bytes.total() + operations
                })
                .sum();
            let is_awaited = self.settings.dead_time == DeadTimePolicy::Report
                && end.is_some_and(|end| Monotonic.now() < end);
            if sum != progress.0 || is_awaited {
                progress = (sum, Instant::now());
            }
            if progress.1.elapsed() > stall {
                return Err(Stopped::new(
                    Status::Peer,
                    format!(
                        "phase {} made no progress for {} s: check for a firewall between the hosts, \
                         and for a read in the profile without a write",
                        phase + 1,
                        stall.as_secs()
                    ),
                ));
            }
        }
    }

    /// Waits for the results; cuts off what does not end. Returns whether it had to.
    fn ended(&mut self, phase: u32, start: Nanos, patience: Duration) -> Result<bool, Stopped> {
        let mut ended = vec![false; self.hosts.len()];
        let mut due = Instant::now() + patience;
        let mut cut_off = false;
        while !ended.iter().all(|&ended| ended) {
            match self.next(due)? {
                Some((from, Notice::Ended(result))) => {
                    ended[from] = true;
                    self.hosts[from].newest = result.snapshots.last().cloned();
                    self.hosts[from].phases.push(*result);
                }
                Some((from, notice)) => self.live(from, phase, start, notice),
                None if cut_off => {
                    return Err(Stopped::new(
                        Status::Peer,
                        format!("a host did not end phase {}", phase + 1),
                    ));
                }
                None => {
                    cut_off = true;
                    due = Instant::now() + DRAIN;
                    for (host, _) in self.hosts.iter_mut().zip(&ended).filter(|(_, ended)| !**ended)
                    {
                        host.member.host.order(Order::CutOff)?;
                    }
                }
            }
        }
        Ok(cut_off)
    }

    /// Counters of the phase under way. A tick is told when all hosts have taken theirs.
    fn live(&mut self, from: usize, phase: u32, start: Nanos, notice: Notice) {
        let (of, snapshot) = match notice {
            Notice::Snapshot { phase, snapshot } => (phase, *snapshot),
            Notice::Readings { phase: of, readings } => {
                if of == phase && self.hosts[from].program.side == Side::Master {
                    self.readings.extend(readings);
                }
                return;
            }
            // Whoever observes may be done before the other hosts are.
            Notice::Observed { .. } => return self.deferred.push((from, notice)),
            _ => return,
        };
        if of != phase {
            return;
        }
        let host = &mut self.hosts[from];
        if host.program.side == Side::Master {
            self.readings.push(Reading::new(&snapshot, host.offset.host_time(start)));
        }
        host.newest = Some(snapshot);
        let due = |host: &HostState| Some(host.offset.controller_time(host.newest.as_ref()?.due));
        let Some(oldest) = self.hosts.iter().map(due).min().flatten() else { return };
        if oldest <= self.ticked {
            return;
        }
        self.ticked = oldest;
        let hosts = self.counters(start);
        let elapsed = oldest.saturating_sub(start);
        let readings = std::mem::take(&mut self.readings);
        self.listener.event(&Event::Tick { phase, elapsed, unix_ms: unix_ms(), hosts, readings });
    }

    /// What the master had counted at each instant of the phase that has ended.
    fn phase_readings(&self, start: Nanos) -> Vec<Reading> {
        let master = self.hosts.iter().find(|host| host.program.side == Side::Master);
        let Some(master) = master else { return Vec::new() };
        let start = master.offset.host_time(start);
        let snapshots = master.phases.last().map_or(&[][..], |phase| &phase.snapshots);
        snapshots.iter().map(|snapshot| Reading::new(snapshot, start)).collect()
    }

    fn counters(&self, start: Nanos) -> Vec<HostCounters> {
        self.hosts
            .iter()
            .enumerate()
            .filter_map(|(number, host)| {
                let snapshot = host.newest.as_ref()?;
                Some(HostCounters {
                    host: number as u32,
                    side: host.program.side,
                    elapsed: snapshot.at.saturating_sub(host.offset.host_time(start)),
                    counters: snapshot.counters.clone(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_the_window_is_a_tenth_of_it_on_either_side() {
        let ms = |from: u64, to: u64| (from * MILLISECOND, to * MILLISECOND);
        let of = |start: u64, from, to| beside(start * MILLISECOND, ms(from, to));
        assert_eq!(of(5_000, 6_000, 8_000), [ms(5_700, 5_900), ms(8_100, 8_300)]);
        // At most half a second, and at most what the ramp leaves.
        assert_eq!(of(5_000, 9_000, 69_000), [ms(8_400, 8_900), ms(69_100, 69_600)]);
        assert_eq!(of(5_000, 5_450, 15_450), [ms(5_200, 5_350), ms(15_550, 15_700)]);
        // Too short to say anything.
        assert_eq!(of(5_000, 6_000, 6_999), []);
        assert_eq!(of(5_000, 5_399, 15_399), []);
    }
}
