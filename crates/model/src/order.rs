//! What controller and agent say to each other, and the check of what an agent is told.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::{Nanos, nanos};
use crate::event::Reading;
use crate::holder::{Holder, RunIdentity};
use crate::host::HostFacts;
use crate::measure::{PhaseResult, Setting, Snapshot};
use crate::observe::{ObserveRequest, ObserveTimes, ObserverReport, ProbeReport};
use crate::packets::PacketCounters;
use crate::placement::StrandPlacement;
use crate::plan::limits::{
    CPUS, HOSTS, LONGEST_PHASE, PARTS, PROBES, SETTINGS, START_WITHIN, UNOBSERVED,
};
use crate::plan::{
    Endpoints, EngineName, Extent, IoLimits, LimitError, Plan, Prepared, at_least, at_most, text,
};
use crate::status::Status;
use crate::tuning::{NotRestored, Tuned, Tuning};
use crate::warning::Warning;

/// What the controller tells an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// First word of a session.
    Hello { version: u32 },
    /// What time is it there? Also a sign of life. The answer has the same number.
    Ping { number: u64 },
    /// Claim the host for a run, for as long as the session lasts.
    Claim(ClaimRequest),
    /// Put the load up and listen.
    Prepare(Box<Plan>),
    /// Where everybody listens: get ready to connect.
    Connect(Endpoints),
    /// Get ready to observe the machine, for all its hosts.
    Observe(ObserveRequest),
    /// Begin a phase.
    Start(PhaseTimes),
    /// End the phase after so many transactions, by group and strand.
    Finish { limits: BTreeMap<u32, Vec<u64>> },
    /// End the phase now.
    CutOff,
    /// Every host has ended the phase: read the kernel's counters of packets.
    CountPackets,
    /// Change settings of the host, and restore them at the end of the session at the latest.
    Tune(Tuning),
    /// The controller still reaches the host, so changes of the device between them stay.
    ConfirmTuning,
    /// Restore what was changed.
    Restore,
    /// Describe the host.
    Environment,
    /// Say what there is to say of the whole run.
    Summarize,
}

/// Which run wants a host, and what to do where another has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    pub run: RunIdentity,
    /// How long to wait for others to end.
    pub wait: Duration,
    /// Run beside others; the results say so.
    pub share: bool,
    /// Whether the session is to observe the host as well.
    pub observes: bool,
    /// Whether it is to change settings of the host.
    #[serde(default)]
    pub tunes: bool,
    /// Whether it is to load congestion control as BPF programs.
    #[serde(default)]
    pub loads_congestion_control: bool,
}

/// Instants of a phase on the agent's own clock, nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes {
    pub phase: u32,
    pub start: Nanos,
    /// Beginning and end of the window; none where iterations decide.
    pub window: Option<(Nanos, Nanos)>,
    /// Times beside the window in which nothing observes.
    pub unobserved: Vec<(Nanos, Nanos)>,
    /// For the host that observes.
    pub observe: Option<ObserveTimes>,
}

/// What an agent tells the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    Welcome {
        version: u32,
        facts: Box<HostFacts>,
        /// Of the agent, as its machine numbers processes.
        pid: u32,
        /// Bytes of memory that its machine can give to programs; null where the kernel does not tell.
        available_memory: Option<u64>,
        /// Number of the agent's network namespace: hosts of a kernel with the same one share its settings.
        /// Null where it is not known.
        network_namespace: Option<u64>,
    },
    Pong {
        number: u64,
        now: Nanos,
    },
    /// The host is this run's.
    Claimed,
    /// Other runs have the host.
    Busy {
        holders: Vec<Holder>,
    },
    /// The host is preparing the files that it sends: bytes that it has written or read, and those that it is to. It comes
    /// every second until [`Notice::Prepared`].
    Preparing {
        done: u64,
        total: u64,
    },
    Prepared(Prepared),
    Ready,
    /// What this host had counted at instants since the last snapshot that it passed on.
    Readings {
        phase: u32,
        readings: Vec<Reading>,
    },
    /// Counters, while a phase runs.
    Snapshot {
        phase: u32,
        snapshot: Box<Snapshot>,
    },
    /// No strand begins another transaction by itself; so many has each begun, by group.
    Quiesced {
        phase: u32,
        started: BTreeMap<u32, Vec<u64>>,
    },
    Ended(Box<PhaseResult>),
    /// `None` where no datagrams move, or the kernel does not tell.
    Packets(Option<PacketCounters>),
    /// Everything that observing needs is loaded; nothing is attached. What each probe can do.
    Watching {
        probes: Vec<ProbeReport>,
    },
    /// What was observed in a phase.
    Observed {
        phase: u32,
        observation: Box<ObserverReport>,
    },
    Tuned {
        settings: Vec<Tuned>,
        /// What earlier sessions had left changed.
        left: Vec<NotRestored>,
    },
    Restored {
        left: Vec<NotRestored>,
    },
    Environment(Value),
    Summary {
        settings: Vec<Setting>,
        /// Each with the number of the host where its packets arrive.
        placements: Vec<(u32, StrandPlacement)>,
        warnings: Vec<Warning>,
    },
    /// There is no process (any more) that serves the session: said by the listener.
    SessionEnded {
        reason: String,
    },
    /// The run cannot go on.
    Failed {
        status: Status,
        message: String,
    },
}

/// What is known where an order is checked.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// On the clock of the host.
    pub now: Nanos,
    /// Bytes that the machine has.
    pub memory: u64,
    /// Whether an engine has a thread for each strand, as far as this host knows it.
    pub has_thread_for_each: fn(&EngineName) -> bool,
    /// Of the plan that is being carried out.
    pub extent: Option<&'a Extent>,
    pub io: &'a dyn IoLimits,
}

impl Order {
    /// Checks everything in it that says how much there is to do, and what it refers to.
    ///
    /// # Errors
    /// The first value that is out of bounds.
    pub fn check(&self, known: Known<'_>) -> Result<(), LimitError> {
        let planned = || {
            let early = || LimitError::invalid("the order", "comes before a plan");
            known.extent.ok_or_else(early)
        };
        match self {
            Order::Hello { .. }
            | Order::Ping { .. }
            | Order::ConfirmTuning
            | Order::Restore
            | Order::Environment => Ok(()),
            Order::Tune(tuning) => check_tuning(tuning),
            Order::Claim(request) => request.check(),
            Order::Prepare(plan) => match known.extent {
                None => {
                    let threads = (known.has_thread_for_each)(&plan.engine);
                    plan.check(known.memory, threads, known.io)
                }
                Some(_) => Err(LimitError::invalid("the plan", "is the second of this session")),
            },
            Order::Connect(endpoints) => planned().and_then(|_| endpoints.check()),
            Order::Observe(request) => check_request(request),
            Order::Start(times) => {
                let length = times.check(known.now)?;
                planned()?.check_phase(times.phase, length)
            }
            Order::Finish { limits } => planned()?.check_limits(limits),
            Order::CutOff | Order::CountPackets | Order::Summarize => planned().map(drop),
        }
    }
}

impl ClaimRequest {
    fn check(&self) -> Result<(), LimitError> {
        at_most("the time to wait for other runs", nanos(self.wait), LONGEST_PHASE)?;
        let RunIdentity { id, user, host, pid: _, command } = &self.run;
        for (field, value) in [
            ("the identity of the run", id),
            ("the user of the run", user),
            ("the host of the run", host),
            ("the command of the run", command),
        ] {
            text(field, value)?;
        }
        Ok(())
    }
}

impl PhaseTimes {
    /// Returns how long the phase takes, where that is known.
    fn check(&self, now: Nanos) -> Result<Option<Nanos>, LimitError> {
        let latest = now.saturating_add(START_WITHIN);
        at_most("start", self.start, latest)?;
        let end = self.start.saturating_add(LONGEST_PHASE);
        let within = |field: &str, at: Nanos| {
            at_least(field, at, self.start)?;
            at_most(field, at, end)
        };
        let ordered = |field: &str, (from, to): (Nanos, Nanos)| {
            within(&format!("the beginning of {field}"), from)?;
            within(&format!("the end of {field}"), to)?;
            at_least(&format!("the end of {field}"), to, from)
        };
        let mut length = None;
        if let Some(window) = self.window {
            ordered("the window", window)?;
            length = Some(window.1 - self.start);
        }
        at_most("the number of times without observers", self.unobserved.len(), UNOBSERVED)?;
        for &beside in &self.unobserved {
            ordered("a time without observers", beside)?;
            length = length.map(|length| length.max(beside.1 - self.start));
        }
        if let Some(observe) = self.observe {
            at_most("the beginning of observing", observe.attach, observe.start)?;
            ordered("what is observed", (observe.start, observe.end.unwrap_or(observe.start)))?;
        }
        Ok(length)
    }
}

fn check_tuning(tuning: &Tuning) -> Result<(), LimitError> {
    at_most("the number of settings", tuning.settings.len(), SETTINGS)?;
    for (name, value) in &tuning.settings {
        text("the name of a setting", name)?;
        text("the value of a setting", value)?;
    }
    tuning.device.iter().try_for_each(|device| text("the device of settings", device))
}

fn check_request(request: &ObserveRequest) -> Result<(), LimitError> {
    at_most("the number of probes", request.probes.len(), PROBES)?;
    at_most("the number of parts", request.parts.len(), PARTS)?;
    for probe in &request.probes {
        text("a probe", probe)?;
    }
    for part in &request.parts {
        at_most("the number of hosts of a part", part.covers.len(), HOSTS)?;
        at_most("the number of cpus of a part", part.cpus.iter().flatten().count(), CPUS)?;
        at_most("the number of control connections", part.control.len(), HOSTS)?;
        at_most("the number of processes of a part", part.workers_of.len(), HOSTS)?;
        let of_processes = part.workers_of.iter().map(|(host, _)| host);
        for name in part.covers.iter().chain([&part.host]).chain(&part.device).chain(of_processes) {
            text("the name of a part", name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::io_limits::TwoOptions;

    const NOW: Nanos = 1 << 40;

    fn times() -> PhaseTimes {
        PhaseTimes {
            phase: 0,
            start: NOW,
            window: Some((NOW + 10, NOW + 1000)),
            unobserved: vec![(NOW + 1, NOW + 5), (NOW + 1010, NOW + 1020)],
            observe: Some(ObserveTimes { attach: NOW, start: NOW + 10, end: Some(NOW + 1000) }),
        }
    }

    #[test]
    fn times_of_a_phase_are_in_order() {
        assert_eq!(times().check(NOW), Ok(Some(1020)));
        let refused = |words: &str, edit: fn(&mut PhaseTimes)| {
            let mut times = times();
            edit(&mut times);
            let error = times.check(NOW).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused("start is 18446744073709551615", |t| t.start = u64::MAX);
        refused("the beginning of the window is", |t| t.window = Some((0, NOW + 10)));
        refused("the end of the window is", |t| t.window = Some((NOW + 10, NOW + 9)));
        refused("the end of the window is", |t| t.window = Some((NOW, u64::MAX)));
        refused("without observers is 3", |t| t.unobserved = vec![(NOW, NOW); 3]);
        refused("the end of a time without observers", |t| t.unobserved[0].1 = NOW);
        refused("the end of a time without observers", |t| t.unobserved[1].1 = u64::MAX);
        refused("the beginning of a time without", |t| t.unobserved[0].0 = 0);
        refused("the beginning of observing", |t| {
            t.observe = Some(ObserveTimes { attach: NOW + 20, start: NOW + 10, end: None });
        });
        refused("the beginning of what is observed", |t| {
            t.observe = Some(ObserveTimes { attach: 0, start: 1, end: None });
        });
        refused("the end of what is observed", |t| {
            t.observe = Some(ObserveTimes { attach: NOW, start: NOW, end: Some(u64::MAX) });
        });
    }

    #[test]
    fn what_is_to_be_observed_has_limits() {
        let known = Known {
            now: NOW,
            memory: 1 << 30,
            has_thread_for_each: |_| false,
            extent: None,
            io: &TwoOptions,
        };
        let check = |edit: fn(&mut ObserveRequest)| {
            let part = crate::observe::Part::default();
            let mut request = ObserveRequest { probes: vec!["full".to_owned()], parts: vec![part] };
            edit(&mut request);
            Order::Observe(request).check(known)
        };
        assert_eq!(check(|_| {}), Ok(()));
        assert!(check(|r| r.probes = vec![String::new(); 65]).is_err());
        assert!(check(|r| r.probes[0] = "p".repeat(5000)).is_err());
        assert!(check(|r| r.parts = vec![r.parts[0].clone(); 5000]).is_err());
        assert!(check(|r| r.parts[0].cpus = Some(vec![0; 10_000])).is_err());
        assert!(check(|r| r.parts[0].covers = vec!["h".repeat(5000)]).is_err());
        assert!(check(|r| r.parts[0].workers_of = vec![("h".repeat(5000), 1)]).is_err());
        assert!(check(|r| r.parts[0].workers_of = vec![("h".to_owned(), 1); 1 << 20]).is_err());
    }

    #[test]
    fn settings_have_limits() {
        let known = Known {
            now: NOW,
            memory: 1 << 30,
            has_thread_for_each: |_| false,
            extent: None,
            io: &TwoOptions,
        };
        let check = |edit: fn(&mut Tuning)| {
            let setting = ("tcp_rmem".to_owned(), "4096 131072 6291456".to_owned());
            let mut tuning = Tuning { settings: vec![setting], ..Tuning::default() };
            edit(&mut tuning);
            Order::Tune(tuning).check(known)
        };
        assert_eq!(check(|_| {}), Ok(()));
        assert!(check(|t| t.settings = vec![t.settings[0].clone(); 1_000]).is_err());
        assert!(check(|t| t.settings[0].1 = "1".repeat(5000)).is_err());
        assert!(check(|t| t.device = Some("d".repeat(5000))).is_err());
    }

    #[test]
    fn claims_have_limits() {
        let known = Known {
            now: NOW,
            memory: 1 << 30,
            has_thread_for_each: |_| false,
            extent: None,
            io: &TwoOptions,
        };
        let refused = |words: &str, edit: fn(&mut ClaimRequest)| {
            let text = String::new;
            let run =
                RunIdentity { id: text(), user: text(), host: text(), pid: 1, command: text() };
            let (wait, share, observes) = (Duration::from_secs(60), false, false);
            let mut request = ClaimRequest {
                run,
                wait,
                share,
                observes,
                tunes: false,
                loads_congestion_control: false,
            };
            assert_eq!(Order::Claim(request.clone()).check(known), Ok(()));
            edit(&mut request);
            let error = Order::Claim(request).check(known).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused("the time to wait for other runs is", |r| r.wait = Duration::MAX);
        refused("the length of the identity of the run is", |r| r.run.id = "i".repeat(5000));
        refused("the length of the user of the run is", |r| r.run.user = "u".repeat(5000));
        refused("the length of the host of the run is", |r| r.run.host = "h".repeat(5000));
        refused("the length of the command of the run", |r| r.run.command = "c".repeat(5000));
    }

    #[test]
    fn orders_of_a_run_come_after_its_plan() {
        let known = Known {
            now: NOW,
            memory: 1 << 30,
            has_thread_for_each: |_| false,
            extent: None,
            io: &TwoOptions,
        };
        for order in [
            Order::Connect(Endpoints::default()),
            Order::Start(times()),
            Order::Finish { limits: BTreeMap::new() },
            Order::CutOff,
            Order::CountPackets,
            Order::Summarize,
        ] {
            let error = order.check(known).unwrap_err().to_string();
            assert_eq!(error, "the order comes before a plan");
        }
    }
}
