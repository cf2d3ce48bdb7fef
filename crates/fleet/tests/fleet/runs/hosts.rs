//! Hosts that make no traffic but say all that a run needs of them, in an order that a test
//! decides.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use wirecost_fleet::controller::Member;
use wirecost_fleet::host::{Host, HostError, Notices};
use wirecost_fleet::wire::{Notice, Order};
use wirecost_model::clock::Nanos;
use wirecost_model::host::HostFacts;
use wirecost_model::measure::{Counters, Edge, PhaseResult, Setting, Snapshot};
use wirecost_model::observe::ObserverReport;
use wirecost_model::plan::Prepared;

/// What an order asks for: the stages of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Hello,
    Environment,
    Prepare,
    Connect,
    Observe,
    Start,
    Finish,
    Summarize,
}

impl Stage {
    pub const ALL: [Stage; 8] = [
        Stage::Hello,
        Stage::Environment,
        Stage::Prepare,
        Stage::Connect,
        Stage::Observe,
        Stage::Start,
        Stage::Finish,
        Stage::Summarize,
    ];

    /// None for what is no stage.
    fn of(order: &Order) -> Option<Self> {
        Some(match order {
            Order::Hello { .. } => Self::Hello,
            Order::Environment => Self::Environment,
            Order::Prepare(_) => Self::Prepare,
            Order::Connect(_) => Self::Connect,
            Order::Observe(_) => Self::Observe,
            Order::Start(_) => Self::Start,
            Order::Finish { .. } => Self::Finish,
            Order::Summarize => Self::Summarize,
            Order::Ping { .. }
            | Order::Claim(_)
            | Order::Tune(_)
            | Order::ConfirmTuning
            | Order::Restore
            | Order::CountPackets
            | Order::CutOff => return None,
        })
    }
}

/// What a host does with an order of a stage instead of obeying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The order cannot be delivered.
    RefusesOrder,
    /// The order is taken, and then the agent is gone.
    Dies,
    /// The agent says that it cannot go on.
    Fails,
    /// The answer is lost.
    LosesAnswer,
    /// The answer comes after so many further signs of life were asked for.
    AnswersAfterPings(u32),
    /// The host says so many times how far it is with its files, every 20 ms, before it answers.
    Prepares(u64),
}

/// Notices under way: of each host in its own order, of different hosts in the order of `choices`.
struct Wires {
    hosts: Vec<Option<(usize, Notices)>>,
    under_way: Vec<VecDeque<Result<Notice, HostError>>>,
    choices: Box<dyn FnMut(usize) -> usize + Send>,
}

impl Wires {
    fn deliver(&mut self) {
        loop {
            let waiting: Vec<usize> = (0..self.under_way.len())
                .filter(|&host| !self.under_way[host].is_empty())
                .collect();
            if waiting.is_empty() {
                return;
            }
            let host = waiting[(self.choices)(waiting.len()) % waiting.len()];
            let notice = self.under_way[host].pop_front();
            if let (Some(notice), Some((number, notices))) = (notice, &self.hosts[host]) {
                // A controller that has ended hears nothing any more.
                let _ = notices.send((*number, notice));
            }
        }
    }
}

pub struct FakeHost {
    name: String,
    number: usize,
    wires: Arc<Mutex<Wires>>,
    fault: Option<(Stage, Fault)>,
    /// Answers held back, and the pings that are still to come before they go.
    held_back: Option<(Vec<Notice>, u32)>,
    phase: u32,
    available_memory: Option<u64>,
    /// Cuts that it tells of while a phase runs.
    snapshots: u64,
}

/// Hosts of these names; `choices` decides whose notice comes next where several have one (of so
/// many).
/// `fault` says what one of them does wrong, `available_memory` what they say of their machine.
pub fn members(
    names: &[&str],
    choices: impl FnMut(usize) -> usize + Send + 'static,
    fault: Option<(usize, Stage, Fault)>,
    available_memory: Option<u64>,
) -> Vec<Member> {
    let wires = Arc::new(Mutex::new(Wires {
        hosts: names.iter().map(|_| None).collect(),
        under_way: names.iter().map(|_| VecDeque::new()).collect(),
        choices: Box::new(choices),
    }));
    let member = |(number, name): (usize, &&str)| {
        let fault = fault.filter(|(of, ..)| *of == number).map(|(_, stage, fault)| (stage, fault));
        let host = FakeHost {
            name: (*name).to_owned(),
            number,
            wires: wires.clone(),
            fault,
            held_back: None,
            phase: 0,
            available_memory,
            snapshots: 1 + number as u64 * 2,
        };
        Member {
            host: Box::new(host),
            data_address: None,
            listens_at: None,
            address: None,
            cpus: vec![number as u32],
            owns_cpus: true,
            device: None,
            spreading: None,
            claim: None,
        }
    };
    names.iter().enumerate().map(member).collect()
}

/// This machine's, so that nobody asks for the time.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    id.trim().to_owned()
}

fn snapshot(edge: Edge, at: Nanos, transactions: u64) -> Snapshot {
    let counters = Counters { transactions, ..Counters::default() };
    Snapshot { edge, due: at, at, counters, cpu: None, packets: None }
}

/// What a host has measured in a phase, by which it is known again.
pub fn result(host: usize, phase: u32) -> PhaseResult {
    PhaseResult {
        phase,
        snapshots: vec![
            snapshot(Edge::WindowStart, 1, 0),
            snapshot(Edge::WindowEnd, 2, tag(host, phase)),
        ],
        connections_open: tag(host, phase),
        ..PhaseResult::default()
    }
}

fn tag(host: usize, phase: u32) -> u64 {
    100 * (host as u64 + 1) + u64::from(phase)
}

impl FakeHost {
    fn answers(&mut self, order: Order) -> Vec<Notice> {
        match order {
            Order::Hello { version } => {
                let facts = HostFacts { boot_id: boot_id(), ..HostFacts::default() };
                let (pid, available_memory) = (self.number as u32, self.available_memory);
                vec![Notice::Welcome {
                    version,
                    facts: Box::new(facts),
                    pid,
                    available_memory,
                    network_namespace: None,
                }]
            }
            Order::Ping { number } => vec![Notice::Pong { number, now: 0 }],
            Order::Claim(_) => vec![Notice::Claimed],
            Order::Tune(_) => vec![Notice::Tuned { settings: Vec::new(), left: Vec::new() }],
            Order::ConfirmTuning => Vec::new(),
            Order::Restore => vec![Notice::Restored { left: Vec::new() }],
            Order::Environment => vec![Notice::Environment(json!({ "host": self.name }))],
            Order::Prepare(_) => vec![Notice::Prepared(Prepared {
                workers: self.number as u32 + 1,
                ..Prepared::default()
            })],
            Order::Connect(_) => vec![Notice::Ready],
            Order::Observe(_) => vec![Notice::Watching { probes: Vec::new() }],
            Order::Start(times) => {
                self.phase = times.phase;
                // One of a phase that is over, which counts for nothing any more.
                let late = Notice::Snapshot {
                    phase: times.phase.wrapping_sub(1),
                    snapshot: Box::new(snapshot(Edge::Interval, times.start, 1 << 40)),
                };
                let mut notices = vec![late];
                notices.extend((1..=self.snapshots).map(|number| Notice::Snapshot {
                    phase: times.phase,
                    snapshot: Box::new(snapshot(Edge::Interval, times.start + number, number)),
                }));
                // A phase may be observed to its end before all have ended it.
                if times.observe.is_some() {
                    notices.push(Notice::Observed {
                        phase: times.phase,
                        observation: Box::new(ObserverReport::default()),
                    });
                }
                let started = BTreeMap::from([(0, vec![1])]);
                notices.push(Notice::Quiesced { phase: times.phase, started });
                notices
            }
            Order::Finish { .. } => vec![
                Notice::Snapshot {
                    phase: self.phase,
                    snapshot: Box::new(snapshot(Edge::Interval, u64::MAX >> 1, self.snapshots)),
                },
                Notice::Ended(Box::new(result(self.number, self.phase))),
            ],
            Order::CutOff => vec![Notice::Ended(Box::new(result(self.number, self.phase)))],
            Order::CountPackets => vec![Notice::Packets(None)],
            Order::Summarize => {
                let setting = Setting {
                    name: format!("of {}", self.name),
                    host: String::new(),
                    requested: String::new(),
                    effective: String::new(),
                    previous: None,
                };
                vec![Notice::Summary {
                    settings: vec![setting],
                    placements: Vec::new(),
                    warnings: Vec::new(),
                }]
            }
        }
    }

    fn lost(&self) -> HostError {
        let source = io::ErrorKind::ConnectionReset.into();
        HostError::Lost { name: self.name.clone(), source }
    }
}

impl Host for FakeHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn order(&mut self, order: Order) -> Result<(), HostError> {
        let stage = Stage::of(&order);
        let fault = self.fault.filter(|(at, _)| stage == Some(*at)).map(|(_, fault)| fault);
        // Asked of one host, or of all of which this is the last: then they answer.
        let alone = matches!(order, Order::Ping { .. } | Order::Observe(_) | Order::CutOff);
        let mut notices: Vec<Result<Notice, HostError>> = Vec::new();
        if let (Order::Ping { .. }, Some((_, pings))) = (&order, &mut self.held_back) {
            *pings = pings.saturating_sub(1);
        }
        if self.held_back.as_ref().is_some_and(|(_, pings)| *pings == 0) {
            notices.extend(self.held_back.take().into_iter().flat_map(|(held, _)| held).map(Ok));
        }
        let answers = self.answers(order);
        match fault {
            Some(Fault::RefusesOrder) => return Err(self.lost()),
            Some(Fault::Dies) => notices.push(Err(self.lost())),
            Some(Fault::Fails) => notices.push(Ok(Notice::Failed {
                status: wirecost_model::status::Status::Invalid,
                message: "it cannot go on".to_owned(),
            })),
            Some(Fault::LosesAnswer) => {}
            Some(Fault::AnswersAfterPings(pings)) => self.held_back = Some((answers, pings)),
            Some(Fault::Prepares(total)) => {
                let attached = self.wires.lock().unwrap().hosts[self.number].clone();
                let (number, to) = attached.unwrap();
                std::thread::spawn(move || {
                    for done in 0..total {
                        std::thread::sleep(Duration::from_millis(20));
                        let _ = to.send((number, Ok(Notice::Preparing { done, total })));
                    }
                    for answer in answers {
                        let _ = to.send((number, Ok(answer)));
                    }
                });
            }
            None => notices.extend(answers.into_iter().map(Ok)),
        }
        let mut wires = self.wires.lock().unwrap();
        wires.under_way[self.number].extend(notices);
        if alone || self.number + 1 == wires.hosts.len() {
            wires.deliver();
        }
        Ok(())
    }

    fn attach(&mut self, number: usize, notices: Notices) {
        self.wires.lock().unwrap().hosts[self.number] = Some((number, notices));
    }
}
