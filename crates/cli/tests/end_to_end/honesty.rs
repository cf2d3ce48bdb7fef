//! The check of sent and received: a host that loses 1% of its bytes, or that runs 300 ms behind,
//! is found; one that does neither is not.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use wirecost_analyze::RunMeta;
use wirecost_fleet::controller::{self, Member, Settings};
use wirecost_fleet::host::{AgentHost, Host, HostError, Notices};
use wirecost_fleet::wire::{Notice, Order};
use wirecost_model::clock::{MILLISECOND, Nanos};
use wirecost_model::measure::{Bytes, Snapshot};
use wirecost_model::plan::{EngineName, Workers};
use wirecost_model::profile::{Profile, Until};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_profile::builtins;
use wirecost_profile::language::Language;

use crate::engines;
use crate::program::BINARY;

/// What is wrong with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It forgets one byte of a hundred that it received.
    LosesBytes,
    /// It begins, and takes its snapshots, that much later than it was told to.
    IsLate(Nanos),
}

/// A real agent in a process of its own, with a fault.
struct Faulty {
    agent: AgentHost,
    fault: Fault,
}

impl Host for Faulty {
    fn name(&self) -> &str {
        self.agent.name()
    }

    fn order(&mut self, mut order: Order) -> Result<(), HostError> {
        if let (Order::Start(times), Fault::IsLate(late)) = (&mut order, self.fault) {
            times.start += late;
            times.window = times.window.map(|(from, to)| (from + late, to + late));
        }
        self.agent.order(order)
    }

    fn attach(&mut self, number: usize, notices: Notices) {
        let (sender, received) = channel();
        self.agent.attach(number, sender);
        let fault = self.fault;
        std::thread::spawn(move || {
            for (number, mut notice) in received {
                if fault == Fault::LosesBytes {
                    match &mut notice {
                        Ok(Notice::Snapshot { snapshot, .. }) => lose(snapshot),
                        Ok(Notice::Ended(result)) => result.snapshots.iter_mut().for_each(lose),
                        _ => {}
                    }
                }
                if notices.send((number, notice)).is_err() {
                    return;
                }
            }
        });
    }
}

fn lose(snapshot: &mut Snapshot) {
    let Bytes { tx_received, rx_received, .. } = &mut snapshot.counters.bytes;
    for bytes in [tx_received, rx_received] {
        *bytes -= *bytes / 100;
    }
}

/// An agent of one session.
pub(crate) fn agent_command() -> Command {
    let mut command = Command::new(BINARY);
    command.args(["agent", "--session"]);
    command
}

fn agent(name: &str) -> AgentHost {
    AgentHost::spawn(name, agent_command()).unwrap()
}

/// A host of a run on loopback.
pub(crate) fn member(host: impl Host + 'static) -> Member {
    let address = Some("127.0.0.1".parse().unwrap());
    Member {
        host: Box::new(host),
        data_address: address,
        listens_at: address,
        address: None,
        cpus: Vec::new(),
        owns_cpus: false,
        device: None,
        spreading: None,
        claim: None,
    }
}

/// A built-in of half a second, against a peer on loopback.
pub(crate) fn profile(builtin: &str) -> Profile {
    let builtin = builtins::find(builtin).unwrap();
    let look_up = |name: &str| {
        let variable = builtin.variables.iter().find(|variable| variable.name == name)?;
        match variable.default {
            builtins::Default::Text(text) => Some(text.to_owned()),
            _ => Some("127.0.0.1".to_owned()),
        }
    };
    let mut profile =
        Language::of("", builtin.source).parse(builtin.source, &look_up).unwrap().profile;
    for transaction in profile.groups.iter_mut().flat_map(|group| &mut group.transactions) {
        if let Until::Duration(length) = &mut transaction.until {
            *length = Duration::from_millis(500);
        }
    }
    profile
}

/// Of a short run without probes; `name` is of no other that this process makes.
pub(crate) fn settings(engine: EngineName, name: &str) -> Settings {
    Settings {
        engine,
        workers: Workers::default(),
        interval: Some(100 * MILLISECOND),
        ramp: 100 * MILLISECOND,
        timeout: Some(Duration::from_secs(50)),
        seed: 1,
        token: format!("{}-{name}", std::process::id()),
        tcp_samples: 4,
        probes: Vec::new(),
        ..Settings::default()
    }
}

/// A run on loopback of which the peer has a fault.
fn run(builtin: &str, engine: EngineName, fault: Fault) -> Run {
    let settings = settings(engine.clone(), &format!("{builtin}-{fault:?}"));
    let members = vec![member(agent("master")), member(Faulty { agent: agent("peer"), fault })];
    let stop = AtomicBool::new(false);
    let outcome = controller::run(&profile(builtin), members, &settings, &stop, &mut ());
    let meta = RunMeta {
        profile: format!("@{builtin}"),
        engine: engine.to_string(),
        version: String::new(),
        started_unix_ms: 0,
        probes: Vec::new(),
        dead_time: Default::default(),
        offered_bits_per_second: None,
    };
    wirecost_analyze::run(&outcome, &meta)
}

fn is_invalid(run: &Run, words: &[&str]) {
    let error = run.error.clone().unwrap_or_default();
    assert_eq!(run.status, Status::Invalid, "{error}");
    assert_eq!(run.status.exit_code(), 4);
    for word in words {
        assert!(error.contains(word), "no {word} in: {error}");
    }
}

#[test]
fn one_percent_of_the_bytes_of_one_end_is_missed() {
    for engine in ["epoll", "threads"] {
        stream_that_loses_bytes(engine);
    }
    is_invalid(&run("rr", EngineName::default(), Fault::LosesBytes), &["sent and received differ"]);
    let run = run("udp-rr", EngineName::default(), Fault::LosesBytes);
    is_invalid(&run, &["sent and received differ"]);
}

fn stream_that_loses_bytes(engine: &'static str) {
    let run = run("stream", engine.into(), Fault::LosesBytes);
    is_invalid(&run, &["sent and received differ", "tx", "1.00%"]);
}

#[test]
fn a_host_that_is_300_ms_late_is_found() {
    for builtin in ["stream", "maerts", "rr", "udp-stream"] {
        let run = run(builtin, EngineName::default(), Fault::IsLate(300 * MILLISECOND));
        is_invalid(&run, &["sent and received differ", "the snapshots of peer"]);
    }
}

#[test]
fn faultless_hosts_are_not_accused() {
    for builtin in ["stream", "rr", "crr", "udp-stream"] {
        is_not_accused(builtin, "epoll");
    }
    for engine in engines::event_loops().filter(|engine| *engine != "epoll") {
        is_not_accused("stream", engine);
    }
}

fn is_not_accused(builtin: &str, engine: &'static str) {
    let run = run(builtin, engine.into(), Fault::None);
    assert_eq!((run.status, run.error), (Status::Ok, None), "{builtin}, {engine}");
}

mod long {
    use super::*;

    #[test]
    fn one_percent_of_the_bytes_is_missed_on_every_engine() {
        engines::names().for_each(stream_that_loses_bytes);
    }

    #[test]
    fn faultless_hosts_are_not_accused_on_any_engine() {
        for _ in 0..3 {
            for builtin in ["stream", "rr", "crr", "udp-stream"] {
                engines::event_loops().for_each(|engine| is_not_accused(builtin, engine));
            }
        }
    }
}
