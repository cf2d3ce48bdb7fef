//! The controller: takes the hosts of a run through its phases, all at the same instants, and
//! gathers what they measured. Nothing it waits for is without a deadline.

mod members;
mod phases;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use wirecost_linux::clock::{Monotonic, unix_ms};
use wirecost_linux::vsock;
use wirecost_model::clock::{Clock, Nanos, SECOND};
use wirecost_model::congestion::CongestionObject;
use wirecost_model::event::{Event, HostBrief, Listener, Reading};
use wirecost_model::host::HostFacts;
use wirecost_model::measure::{PhaseResult, Setting, Snapshot};
use wirecost_model::observe::{ObserveRequest, Part};
use wirecost_model::outcome::{DeadTimePolicy, HostOutcome, Outcome, PhaseObservation, PhasePlan};
use wirecost_model::placement::StrandPlacement;
use wirecost_model::plan::{Address, Endpoints, EngineName, Plan, Prepared, WorkerCpus, Workers};
use wirecost_model::profile::{Profile, Until};
use wirecost_model::program::{Program, Side};
use wirecost_model::status::Status;
use wirecost_model::tuning::{self, NotRestored, Tuned, Tuning};
use wirecost_model::units;
use wirecost_model::warning::{SettingLeft, Warning};
use wirecost_program::congestion;
use wirecost_program::program::{self, ProgramError};
use wirecost_tunable::{Scope, Setting as TunableSetting};

use crate::agent::LEASE;
use crate::clock_offset::{Exchange, Offset, estimate};
use crate::host::HostError;
use crate::machine;
use crate::memory;
use crate::wire::{self, Notice, Order};

pub use members::Member;

/// How often each agent is asked for the time, which shows both that the other is alive.
const PING: Duration = Duration::from_secs(2);
/// How long anything may take that needs no traffic: putting up workers, listening, consent.
const SET_UP: Duration = Duration::from_secs(60);
/// How long all strands may make no progress at all, beyond what the profile makes them wait.
const STALL: Duration = Duration::from_secs(30);
/// How long strands may take to end what they have begun, beyond what the profile makes them wait.
const DRAIN: Duration = Duration::from_secs(10);
/// Exchanges for the estimate of a clock's offset.
const EXCHANGES: usize = 16;
/// How much later than its consequence the end of a host's process may be known.
const CAUSE: Duration = Duration::from_secs(1);
/// In place of an instant beyond the end of time.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long hosts are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For any message of a host.
    pub lease: Duration,
    /// For what needs no traffic. A host that prepares files is waited for as long as it tells how far it is.
    pub set_up: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { lease: LEASE, set_up: SET_UP }
    }
}

/// How a run is to be done.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub engine: EngineName,
    pub workers: Workers,
    pub cpus: WorkerCpus,
    /// Of the time series; `None`: [`Settings::interval_of`] chooses.
    pub interval: Option<Nanos>,
    /// Before each window.
    pub ramp: Nanos,
    /// Longest time of the whole run.
    pub timeout: Option<Duration>,
    pub seed: u64,
    /// Shared by the run's hosts; anything that nobody guesses.
    pub token: String,
    /// Connections each worker samples with TCP_INFO.
    pub tcp_samples: u32,
    /// Whether hosts report each strand and each group by itself too.
    pub details: bool,
    /// Single operations that the master reports.
    pub logged_operations: u64,
    /// Whether some sockets of every host have the kernel stamp what comes to them.
    pub receive_stamps: bool,
    /// Names of the probes that watch every machine.
    pub probes: Vec<String>,
    pub dead_time: DeadTimePolicy,
    /// What is changed on every host.
    pub tuning: Tuning,
    /// Congestion control of the user's, for the hosts whose connections choose it.
    pub congestion_objects: Vec<CongestionObject>,
    pub patience: Patience,
}

/// Intervals of a phase whose length nobody has set, at most: more would take memory and files for hours that differ little.
const INTERVALS: u32 = 36_000;

impl Settings {
    /// Interval of the time series of this profile: as it was set, else a second, or as many as give its longest phase
    /// 36,000 intervals (a phase of ten hours).
    #[must_use]
    pub fn interval_of(&self, profile: &Profile) -> Nanos {
        let transactions = profile.groups.iter().flat_map(|group| &group.transactions);
        let lengths = transactions.filter_map(|transaction| match transaction.until {
            Until::Duration(length) => Some(length),
            Until::Iterations(_) => None,
        });
        let longest = lengths.max().unwrap_or_default();
        let chosen = longest.as_secs().div_ceil(u64::from(INTERVALS)).max(1);
        self.interval.unwrap_or_else(|| chosen.saturating_mul(SECOND))
    }
}

/// Why a run ended before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stopped {
    status: Status,
    message: String,
}

impl Stopped {
    fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl From<HostError> for Stopped {
    fn from(error: HostError) -> Self {
        Self::new(Status::Peer, chain(&error))
    }
}

/// An error with all its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Runs a profile on its hosts: the master first, then one for each of
/// [`program::remote_hosts`], in that order. `stop` ends it early (Ctrl-C). Whatever happens, what
/// has been measured until then comes back.
pub fn run(
    profile: &Profile,
    members: Vec<Member>,
    settings: &Settings,
    stop: &AtomicBool,
    listener: &mut dyn Listener,
) -> Outcome {
    let programs = match program::compile(profile) {
        Ok(programs) => programs,
        Err(errors) => return refused(&errors),
    };
    let mut controller = Controller::new(members, programs, settings, stop, listener);
    controller.interval = settings.interval_of(profile);
    let result = controller.run(profile);
    controller.outcome(result)
}

fn refused(errors: &[ProgramError]) -> Outcome {
    let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Outcome {
        status: Status::Usage,
        error: Some(text.join("\n")),
        phases: Vec::new(),
        hosts: Vec::new(),
        observations: Vec::new(),
        warnings: Vec::new(),
        link: None,
        netem: None,
    }
}

/// What the controller knows of a host.
struct HostState {
    member: Member,
    program: Program,
    facts: HostFacts,
    /// Of its agent.
    pid: u32,
    /// Bytes that its machine could give to programs when the run began.
    available_memory: Option<u64>,
    /// Of its agent.
    network_namespace: Option<u64>,
    /// Whether it watches its machine, for all hosts there.
    observes: bool,
    offset: Offset,
    last_received: Instant,
    cpus: Vec<u32>,
    owns_cpus: bool,
    /// Those of its CPUs on which its workers run.
    worker_cpus: Vec<u32>,
    workers: u32,
    phases: Vec<PhaseResult>,
    settings: Vec<Setting>,
    placements: Vec<StrandPlacement>,
    warnings: Vec<Warning>,
    /// Whether its settings are changed.
    is_tuned: bool,
    environment: serde_json::Value,
    /// Newest counters of the phase under way.
    newest: Option<Snapshot>,
    /// When it said last how far it is with its files.
    told_of_preparation: Option<Instant>,
}

struct Controller<'a> {
    hosts: Vec<HostState>,
    notices: Receiver<(usize, Result<Notice, HostError>)>,
    settings: &'a Settings,
    interval: Nanos,
    stop: &'a AtomicBool,
    listener: &'a mut dyn Listener,
    deadline: Option<Instant>,
    pinged: Instant,
    /// Hosts that prepare files are waited for at least until then.
    preparing_until: Instant,
    /// Of the newest ping, so that an answer is taken for that of its own question only.
    ping: u64,
    plans: Vec<PhasePlan>,
    observations: Vec<PhaseObservation>,
    warnings: Vec<Warning>,
    /// What has come while something else was waited for.
    deferred: Vec<(usize, Notice)>,
    /// Instant, on the controller's clock, whose counters have been told last.
    ticked: Nanos,
    /// Of the master, since then.
    readings: Vec<Reading>,
}

impl<'a> Controller<'a> {
    fn new(
        members: Vec<Member>,
        programs: Vec<Program>,
        settings: &'a Settings,
        stop: &'a AtomicBool,
        listener: &'a mut dyn Listener,
    ) -> Self {
        let (sender, notices) = channel();
        let mut hosts = Vec::new();
        for (number, (mut member, program)) in members.into_iter().zip(programs).enumerate() {
            member.host.attach(number, sender.clone());
            hosts.push(HostState {
                member,
                program,
                facts: HostFacts::default(),
                pid: 0,
                available_memory: None,
                network_namespace: None,
                observes: false,
                offset: Offset::default(),
                last_received: Instant::now(),
                cpus: Vec::new(),
                owns_cpus: false,
                worker_cpus: Vec::new(),
                workers: 0,
                phases: Vec::new(),
                settings: Vec::new(),
                placements: Vec::new(),
                warnings: Vec::new(),
                is_tuned: false,
                environment: serde_json::Value::Null,
                newest: None,
                told_of_preparation: None,
            });
        }
        Self {
            hosts,
            notices,
            settings,
            interval: SECOND,
            stop,
            listener,
            // One beyond the end of time is none.
            deadline: settings.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            pinged: Instant::now(),
            preparing_until: Instant::now(),
            ping: 0,
            plans: Vec::new(),
            observations: Vec::new(),
            warnings: Vec::new(),
            deferred: Vec::new(),
            ticked: 0,
            readings: Vec::new(),
        }
    }

    fn run(&mut self, profile: &Profile) -> Result<(), Stopped> {
        self.welcome()?;
        self.check_machines()?;
        self.match_clocks()?;
        self.share_cpus()?;
        self.tune()?;
        self.order_all(|_| Order::Environment)?;
        for (number, notice) in self.one_from_each("environment", is_environment)? {
            if let Notice::Environment(environment) = notice {
                self.hosts[number].environment = environment;
            }
        }
        let endpoints = self.prepare()?;
        self.order_all(|_| Order::Connect(endpoints.clone()))?;
        self.one_from_each("readiness", |notice| matches!(notice, Notice::Ready))?;
        self.observe()?;
        let phases = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap_or(0);
        let hosts = self
            .hosts
            .iter()
            .map(|host| HostBrief {
                name: host.member.host.name().to_owned(),
                side: host.program.side,
                workers: host.workers,
                cpus: host.worker_cpus.clone(),
            })
            .collect();
        self.listener.event(&Event::Ready { hosts, phases: phases as u32 });
        self.plans = phases::plan(profile, self.settings.ramp);
        for phase in 0..phases as u32 {
            self.phase(profile, phase)?;
        }
        self.summarize()?;
        self.restore()
    }

    /// Changes settings of the hosts.
    fn tune(&mut self) -> Result<(), Stopped> {
        let Tuning { settings, device, allow_control_device } = self.settings.tuning.clone();
        for (number, own) in self.settings_of_hosts(&settings)?.into_iter().enumerate() {
            if own.is_empty() {
                continue;
            }
            // The user names one device for all hosts, or each has its own.
            let device = device.clone().or_else(|| self.hosts[number].member.device.clone());
            let tuning = Tuning { settings: own, device, allow_control_device };
            self.hosts[number].member.host.order(Order::Tune(tuning))?;
            let due = Instant::now() + SET_UP;
            let (_, notice) = self.wait("the change of settings", due, |from, notice| {
                from == number && matches!(notice, Notice::Tuned { .. })
            })?;
            // That this order comes is what it says.
            self.hosts[number].member.host.order(Order::ConfirmTuning)?;
            if let Notice::Tuned { settings, left } = notice {
                let host = &mut self.hosts[number];
                host.is_tuned = true;
                let name = host.member.host.name().to_owned();
                let setting = |tuned: Tuned| Setting {
                    name: format!("tune.{}", tuned.name),
                    host: name.clone(),
                    requested: tuned.requested,
                    effective: tuned.effective,
                    previous: Some(tuned.previous),
                };
                host.settings.extend(settings.into_iter().map(setting));
                self.warn_of(number, left);
            }
        }
        Ok(())
    }

    /// What is changed on each host. What hosts share, the first of them changes. A setting of one host counts
    /// for more than one of every host.
    fn settings_of_hosts(
        &self,
        settings: &[(String, String)],
    ) -> Result<Vec<Vec<(String, String)>>, Stopped> {
        let mut of_hosts: Vec<Vec<(String, String)>> = Vec::new();
        for (number, host) in self.hosts.iter().enumerate() {
            let names = [host.member.host.name(), host.program.side.name()];
            let is_named = |of: Option<&str>| of.is_some_and(|of| names.contains(&of));
            let mut own = Vec::new();
            for (text, value) in settings {
                let (of, name) = tuning::host_and_name(text);
                let is_own = |(other, _): &(String, String)| {
                    let (of, other) = tuning::host_and_name(other);
                    is_named(of) && other == name
                };
                if !is_named(of) && (of.is_some() || settings.iter().any(is_own)) {
                    continue;
                }
                let setting = TunableSetting::new(name, value)
                    .map_err(|error| Stopped::new(Status::Usage, chain(&error)))?;
                let sharing = self.earlier_sharing(number, setting.tunable().scope());
                let has_it = |other: &usize| of_hosts[*other].iter().any(|(set, _)| set == name);
                match sharing.into_iter().find(has_it) {
                    // Restored in turn, one of them would restore what the other has set.
                    Some(other) if of.is_some() => {
                        let other = self.hosts[other].member.host.name();
                        let message = format!(
                            "{} and {other} share the setting {name}, and cannot have values of their own",
                            names[0]
                        );
                        return Err(Stopped::new(Status::Usage, message));
                    }
                    Some(_) => {}
                    None => own.push((name.to_owned(), value.clone())),
                }
            }
            of_hosts.push(own);
        }
        Ok(of_hosts)
    }

    /// Earlier hosts that share settings of this scope with a host.
    fn earlier_sharing(&self, number: usize, scope: Scope) -> Vec<usize> {
        let host = &self.hosts[number];
        let shares = |other: &usize| {
            let other = &self.hosts[*other];
            let is_same_machine = other.facts.boot_id == host.facts.boot_id;
            let is_same_namespace = other.network_namespace == host.network_namespace;
            is_same_machine && (scope == Scope::Machine || is_same_namespace)
        };
        (0..number).filter(shares).collect()
    }

    /// Restores what was changed.
    fn restore(&mut self) -> Result<(), Stopped> {
        for number in 0..self.hosts.len() {
            if !self.hosts[number].is_tuned {
                continue;
            }
            self.hosts[number].member.host.order(Order::Restore)?;
            let due = Instant::now() + SET_UP;
            let (_, notice) = self.wait("that settings are restored", due, |from, notice| {
                from == number && matches!(notice, Notice::Restored { .. })
            })?;
            if let Notice::Restored { left } = notice {
                self.warn_of(number, left);
            }
        }
        Ok(())
    }

    fn warn_of(&mut self, number: usize, left: Vec<NotRestored>) {
        let host = self.hosts[number].member.host.name().to_owned();
        let warnings = left
            .into_iter()
            .map(|setting| Warning::from(SettingLeft { host: host.clone(), setting }));
        self.hosts[number].warnings.extend(warnings);
    }

    fn order_all(&mut self, order: impl Fn(&HostState) -> Order) -> Result<(), Stopped> {
        for host in &mut self.hosts {
            let order = order(host);
            host.member.host.order(order)?;
        }
        Ok(())
    }

    fn welcome(&mut self) -> Result<(), Stopped> {
        self.order_all(|_| Order::Hello { version: wire::VERSION })?;
        let welcomes =
            self.one_from_each("greeting", |notice| matches!(notice, Notice::Welcome { .. }))?;
        for (number, notice) in welcomes {
            if let Notice::Welcome { facts, pid, available_memory, network_namespace, .. } = notice
            {
                self.hosts[number].facts = *facts;
                self.hosts[number].pid = pid;
                self.hosts[number].available_memory = available_memory;
                self.hosts[number].network_namespace = network_namespace;
            }
        }
        self.claim()
    }

    /// Claims the machines of all agents for this run.
    fn claim(&mut self) -> Result<(), Stopped> {
        let mut claiming = Vec::new();
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if let Some(request) = &host.member.claim {
                host.member.host.order(Order::Claim(request.clone()))?;
                claiming.push((number, Instant::now().checked_add(SET_UP + request.wait)));
            }
        }
        for (number, due) in claiming {
            let due = due.unwrap_or_else(|| Instant::now() + FOR_EVER);
            self.wait("the claim", due, |from, notice| {
                from == number && matches!(notice, Notice::Claimed)
            })?;
        }
        Ok(())
    }

    /// Hosts on one machine share its clock. Those of this machine have this one; the others are asked.
    fn match_clocks(&mut self) -> Result<(), Stopped> {
        let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        for number in 0..self.hosts.len() {
            if self.hosts[number].facts.boot_id == here.trim() && !here.is_empty() {
                continue;
            }
            let (before, rest) = self.hosts.split_at(number);
            let of_machine = &rest[0].facts.boot_id;
            let same = before.iter().find(|other| other.facts.boot_id == *of_machine);
            if let Some(offset) = same.map(|other| other.offset) {
                self.hosts[number].offset = offset;
                continue;
            }
            let mut exchanges = Vec::new();
            for _ in 0..EXCHANGES {
                let (sent, ping) = (Monotonic.now(), self.next_ping());
                self.hosts[number].member.host.order(Order::Ping { number: ping })?;
                let due = Instant::now() + SET_UP;
                let answer = self.wait("the time", due, |from, notice| {
                    from == number
                        && matches!(notice, Notice::Pong { number, .. } if *number == ping)
                })?;
                if let (_, Notice::Pong { now, .. }) = answer {
                    exchanges.push(Exchange { sent, there: now, received: Monotonic.now() });
                }
            }
            self.hosts[number].offset = estimate(&exchanges);
        }
        Ok(())
    }

    fn one_machine(&self) -> bool {
        self.hosts.windows(2).all(|two| two[0].facts.boot_id == two[1].facts.boot_id)
    }

    /// Sockets of the Unix domain do not leave a machine.
    fn check_machines(&self) -> Result<(), Stopped> {
        let uses_unix =
            |host: &HostState| host.program.services.iter().any(|s| s.protocol == "unix");
        if !self.one_machine() && self.hosts.iter().any(uses_unix) {
            return Err(Stopped::new(
                Status::Usage,
                "protocol unix needs all hosts on one machine; these are not",
            ));
        }
        Ok(())
    }

    fn next_ping(&mut self) -> u64 {
        self.ping += 1;
        self.ping
    }

    /// Decides which CPUs each host uses, whether they are its own, and on which its workers run.
    fn share_cpus(&mut self) -> Result<(), Stopped> {
        let machines: Vec<String> = self.hosts.iter().map(|s| s.facts.boot_id.clone()).collect();
        let strands = self.hosts.iter().map(|host| strands(&host.program)).max().unwrap_or(0);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let on_machine = machines.iter().filter(|m| **m == machines[number]).count();
            let place = machines[..number].iter().filter(|m| **m == machines[number]).count();
            host.owns_cpus = host.member.owns_cpus || on_machine == 1;
            let shared = host.member.cpus.is_empty();
            host.cpus = if shared { host.facts.cpus.clone() } else { host.member.cpus.clone() };
            let name = host.member.host.name();
            let chosen = self.settings.cpus.of(name, host.program.side);
            let chosen = chosen.unwrap_or(&host.cpus).clone();
            let other: Vec<u32> =
                chosen.iter().copied().filter(|cpu| !host.cpus.contains(cpu)).collect();
            if !other.is_empty() {
                let (other, cpus) = (units::cpus(&other), units::cpus(&host.cpus));
                let message = format!("{name} cannot use CPU {other}: it has CPU {cpus}");
                return Err(Stopped::new(Status::Usage, message));
            }
            host.worker_cpus = chosen;
            if shared {
                let first = first_cpu(host.worker_cpus.len(), place, on_machine, strands);
                host.worker_cpus.rotate_left(first);
            }
        }
        Ok(())
    }

    /// Has the first host of every machine watch it. Hooks in a kernel are paid by all its hosts,
    /// so one must do.
    fn observe(&mut self) -> Result<(), Stopped> {
        if self.settings.probes.is_empty() {
            return Ok(());
        }
        let machines: Vec<String> = self.hosts.iter().map(|s| s.facts.boot_id.clone()).collect();
        let control: Vec<_> =
            self.hosts.iter().filter_map(|host| host.member.host.connection()).collect();
        let mut loading = Vec::new();
        for (number, machine) in machines.iter().enumerate() {
            if machines[..number].contains(machine) {
                continue;
            }
            let here: Vec<&HostState> = self
                .hosts
                .iter()
                .zip(&machines)
                .filter_map(|(host, of)| (of == machine).then_some(host))
                .collect();
            let mut parts = parts(&here);
            for part in &mut parts {
                part.control.clone_from(&control);
            }
            let request = ObserveRequest { probes: self.settings.probes.clone(), parts };
            let host = &mut self.hosts[number];
            host.observes = true;
            host.member.host.order(Order::Observe(request))?;
            loading.push(number);
        }
        for number in loading {
            let due = Instant::now() + SET_UP;
            self.wait("the probes", due, |from, notice| {
                from == number && matches!(notice, Notice::Watching { .. })
            })?;
        }
        Ok(())
    }

    fn plans_of_hosts(&self) -> Vec<Plan> {
        let settings = self.settings;
        let plan = |(number, host): (usize, &HostState)| Plan {
            token: settings.token.clone(),
            seed: settings.seed,
            host: number as u32,
            engine: settings.engine.clone(),
            workers: settings.workers.of(host.member.host.name(), host.program.side).copied(),
            cpus: host.worker_cpus.clone(),
            shares_cpus: !host.owns_cpus,
            interval: self.interval,
            program: host.program.clone(),
            data_address: host.member.listens_at,
            tcp_samples: settings.tcp_samples,
            details: settings.details,
            logged_operations: match host.program.side {
                Side::Master => settings.logged_operations,
                Side::Peer => 0,
            },
            receive_stamps: settings.receive_stamps,
            congestion_objects: {
                let chosen = congestion::chosen(&host.program);
                let objects = settings.congestion_objects.iter();
                objects.filter(|object| chosen.contains(object.name.as_str())).cloned().collect()
            },
        };
        self.hosts.iter().enumerate().map(plan).collect()
    }

    /// Agents check their own plans. What the hosts of one machine need together only the controller
    /// knows.
    fn check_memory(&self, plans: &[Plan]) -> Result<(), Stopped> {
        let mut machines: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, host) in self.hosts.iter().enumerate() {
            machines.entry(&host.facts.boot_id).or_default().push(number);
        }
        for hosts in machines.values() {
            let available = hosts.iter().filter_map(|host| self.hosts[*host].available_memory);
            let Some(available) = available.min() else { continue };
            let named: Vec<(&str, &Plan)> = hosts
                .iter()
                .map(|host| (self.hosts[*host].member.host.name(), &plans[*host]))
                .collect();
            memory::check(&named, available)
                .map_err(|error| Stopped::new(Status::Peer, error.to_string()))?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<Endpoints, Stopped> {
        let plans = self.plans_of_hosts();
        self.check_memory(&plans)?;
        for (host, plan) in self.hosts.iter_mut().zip(plans) {
            host.member.host.order(Order::Prepare(Box::new(plan)))?;
        }
        let mut hosts = vec![Prepared::default(); self.hosts.len()];
        let all = self.one_from_each("the workers", |n| matches!(n, Notice::Prepared(_)))?;
        for (number, notice) in all {
            if let Notice::Prepared(mut prepared) = notice {
                let host = &mut self.hosts[number];
                host.workers = prepared.workers;
                let mut fill = |address: &mut Address| {
                    if let (Address::Inet(address), Some(known)) =
                        (address, host.member.data_address)
                        && address.ip().is_unspecified()
                    {
                        address.set_ip(known);
                    }
                };
                prepared.consent.iter_mut().for_each(&mut fill);
                prepared.services.iter_mut().flat_map(|s| &mut s.addresses).for_each(fill);
                if let Some(emulated) = &host.member.spreading {
                    prepared.spreading = Some(emulated.clone());
                }
                hosts[number] = prepared;
            }
        }
        self.check_reach(&hosts)?;
        Ok(Endpoints { hosts })
    }

    /// Nor does a vsock leave a machine that has no number for others to know it by.
    fn check_reach(&self, hosts: &[Prepared]) -> Result<(), Stopped> {
        let local = |host: &Prepared| {
            let mut addresses = host.services.iter().flat_map(|service| &service.addresses);
            addresses.any(|at| matches!(at, Address::Vsock { cid, .. } if *cid == vsock::LOCAL))
        };
        match hosts.iter().position(local) {
            Some(number) if !self.one_machine() => Err(Stopped::new(
                Status::Peer,
                format!(
                    "{}: other machines cannot reach it by vsock: it is neither a virtual machine \
                     with a vsock device nor a host with the module vhost_vsock",
                    self.hosts[number].member.host.name()
                ),
            )),
            _ => Ok(()),
        }
    }

    fn summarize(&mut self) -> Result<(), Stopped> {
        self.order_all(|_| Order::Summarize)?;
        let all = self.one_from_each("the summary", |n| matches!(n, Notice::Summary { .. }))?;
        let names: Vec<String> =
            self.hosts.iter().map(|host| host.member.host.name().to_owned()).collect();
        for (number, notice) in all {
            if let Notice::Summary { settings, placements, warnings } = notice {
                let host = &mut self.hosts[number];
                let name = host.member.host.name().to_owned();
                let of_host = |setting| Setting { host: name.clone(), ..setting };
                host.settings.extend(settings.into_iter().map(of_host));
                host.placements.extend(placements.into_iter().filter_map(|(peer, placement)| {
                    let peer = names.get(peer as usize)?.clone();
                    Some(StrandPlacement { host: name.clone(), peer, ..placement })
                }));
                host.warnings.extend(warnings.into_iter().map(|warning| warning.of_host(&name)));
            }
        }
        Ok(())
    }

    /// One notice of that kind from every host.
    fn one_from_each(
        &mut self,
        what: &str,
        is: impl Fn(&Notice) -> bool,
    ) -> Result<Vec<(usize, Notice)>, Stopped> {
        let due = Instant::now() + self.settings.patience.set_up;
        let mut got: BTreeMap<usize, Notice> = BTreeMap::new();
        while got.len() < self.hosts.len() {
            let (number, notice) =
                self.wait(what, due, |from, notice| !got.contains_key(&from) && is(notice))?;
            got.insert(number, notice);
        }
        Ok(got.into_iter().collect())
    }

    /// The next notice that fits; others are put by.
    fn wait(
        &mut self,
        what: &str,
        due: Instant,
        fits: impl Fn(usize, &Notice) -> bool,
    ) -> Result<(usize, Notice), Stopped> {
        if let Some(place) = self.deferred.iter().position(|(from, notice)| fits(*from, notice)) {
            return Ok(self.deferred.remove(place));
        }
        loop {
            match self.next(due)? {
                Some((from, notice)) if fits(from, &notice) => return Ok((from, notice)),
                // A sign of life that came too late to tell the time.
                Some((_, Notice::Pong { .. })) => {}
                Some(other) => self.deferred.push(other),
                None => {
                    return Err(Stopped::new(
                        Status::Peer,
                        format!("timed out waiting for {what} of the hosts"),
                    ));
                }
            }
        }
    }

    /// The next notice, or `None` when `due` has come. Keeps up signs of life meanwhile.
    fn next(&mut self, due: Instant) -> Result<Option<(usize, Notice)>, Stopped> {
        let patience = self.settings.patience;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped::new(Status::Interrupted, "interrupted"));
            }
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return Err(Stopped::new(
                    Status::Invalid,
                    "the run took longer than --timeout allows",
                ));
            }
            if now.duration_since(self.pinged) >= PING {
                self.pinged = now;
                let number = self.next_ping();
                // Nobody reads what goes to a host that prepares files; it says by itself that it is there.
                let recently = |at: Instant| now.duration_since(at) < 2 * PING;
                for host in &mut self.hosts {
                    if !host.told_of_preparation.is_some_and(recently) {
                        host.member.host.order(Order::Ping { number })?;
                    }
                }
            }
            if let Some(silent) =
                self.hosts.iter().find(|s| now.duration_since(s.last_received) >= patience.lease)
            {
                return Err(Stopped::new(
                    Status::Peer,
                    format!(
                        "no message from {} for {} s",
                        silent.member.host.name(),
                        patience.lease.as_secs()
                    ),
                ));
            }
            let due = due.max(self.preparing_until);
            if now >= due {
                return Ok(None);
            }
            let patience = (due - now).min(Duration::from_millis(100));
            match self.notices.recv_timeout(patience) {
                Ok((from, Ok(notice))) => {
                    self.hosts[from].last_received = Instant::now();
                    match notice {
                        Notice::Failed { status, message } => {
                            let name = self.hosts[from].member.host.name();
                            let stopped = Stopped::new(status, format!("{name}: {message}"));
                            return Err(self.cause_of(stopped));
                        }
                        Notice::SessionEnded { reason } => {
                            return Err(self.session_ended(from, &reason));
                        }
                        Notice::Busy { holders } => {
                            let name = self.hosts[from].member.host.name();
                            let held = machine::list(&holders);
                            let message = format!("another run measures on {name}: {held}");
                            return Err(Stopped::new(Status::Peer, message));
                        }
                        Notice::Preparing { done, total } => {
                            self.hosts[from].told_of_preparation = Some(Instant::now());
                            self.preparing_until = Instant::now() + self.settings.patience.set_up;
                            let host = self.hosts[from].member.host.name().to_owned();
                            let unix_ms = unix_ms();
                            self.listener.event(&Event::Preparing { host, done, total, unix_ms });
                        }
                        notice => return Ok(Some((from, notice))),
                    }
                }
                Ok((_, Err(error))) => return Err(error.into()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Stopped::new(Status::Peer, "all hosts are gone"));
                }
            }
        }
    }

    fn session_ended(&self, from: usize, reason: &str) -> Stopped {
        let name = self.hosts[from].member.host.name();
        Stopped::new(Status::Peer, format!("{name}: {reason}"))
    }

    /// Where a host fails because the process of another has ended, that is what there is to tell,
    /// and it may come later than the failure.
    fn cause_of(&self, stopped: Stopped) -> Stopped {
        let due = Instant::now() + CAUSE;
        while stopped.status == Status::Peer
            && let Ok((from, notice)) =
                self.notices.recv_timeout(due.saturating_duration_since(Instant::now()))
        {
            match notice {
                Ok(Notice::SessionEnded { reason }) => return self.session_ended(from, &reason),
                Err(error) => return error.into(),
                Ok(_) => {}
            }
        }
        stopped
    }

    fn outcome(self, result: Result<(), Stopped>) -> Outcome {
        let (status, error) = match result {
            Ok(()) => (Status::Ok, None),
            Err(stopped) => (stopped.status, Some(stopped.message)),
        };
        let hosts: Vec<HostOutcome> = self
            .hosts
            .into_iter()
            .map(|host| HostOutcome {
                name: host.member.host.name().to_owned(),
                side: host.program.side,
                address: host.member.address.clone(),
                cpus: match (host.member.cpus.is_empty(), host.owns_cpus) {
                    (false, _) => host.cpus,
                    // Alone on its machine: also what the kernel does elsewhere is for it.
                    (true, true) => (0..host.facts.machine_cpus).collect(),
                    (true, false) => host.facts.cpus.clone(),
                },
                owns_cpus: host.owns_cpus,
                workers: host.workers,
                pid: host.pid,
                network_namespace: host.network_namespace,
                clock_offset: host.offset.nanos,
                clock_error: host.offset.error,
                phases: host.phases,
                settings: host.settings,
                placements: host.placements,
                warnings: host.warnings,
                environment: host.environment,
                facts: host.facts,
            })
            .collect();
        let mut phases = self.plans;
        phases::choose_headline(&mut phases, &hosts);
        Outcome {
            status,
            error,
            phases,
            hosts,
            observations: self.observations,
            warnings: self.warnings,
            link: None,
            netem: None,
        }
    }
}

/// What figures are wanted of: of the machine, and of each host where all have CPUs of their own.
fn parts(here: &[&HostState]) -> Vec<Part> {
    let name = |host: &&HostState| host.member.host.name().to_owned();
    let part = |hosts: &[&HostState], cpus| Part {
        host: hosts.first().map(name).unwrap_or_default(),
        covers: hosts.iter().map(name).collect(),
        cpus,
        netns_of: hosts.first().map(|host| host.pid),
        workers_of: hosts.iter().map(|host| (name(host), host.pid)).collect(),
        ..Part::default()
    };
    let mut parts = vec![part(here, None)];
    if here.len() > 1 && here.iter().all(|host| host.owns_cpus) {
        parts.extend(here.iter().map(|host| part(&[*host], Some(host.cpus.clone()))));
    }
    parts
}

fn is_environment(notice: &Notice) -> bool {
    matches!(notice, Notice::Environment(_))
}

/// Strands of all groups.
fn strands(program: &Program) -> u64 {
    program.groups.iter().map(|group| u64::from(group.strands)).sum()
}

/// Which of the CPUs that hosts share a host begins with: each with others, so that the two ends of
/// a single flow do not meet on one (ADR 0005). Where there are flows for every CPU all begin with
/// the same: each flow then stays on one, where a scheduler would take it as well.
fn first_cpu(cpus: usize, place: usize, hosts: usize, strands: u64) -> usize {
    if strands >= cpus as u64 { 0 } else { (place * cpus / hosts.max(1)).min(cpus) }
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::{Group, Position, Transaction};

    use super::*;

    #[test]
    fn intervals_of_long_runs_are_longer() {
        let interval = |length: u64, set: Option<Nanos>| {
            let until = Until::Duration(Duration::from_secs(length));
            let (flowops, order) = (Vec::new(), Vec::new());
            let transaction =
                Transaction { until, arrivals: None, flowops, order, at: Position::default() };
            let group = Group { transactions: vec![transaction], ..Group::default() };
            let profile = Profile { groups: vec![group], ..Profile::default() };
            Settings { interval: set, ..Settings::default() }.interval_of(&profile)
        };
        assert_eq!(interval(10, None), SECOND);
        assert_eq!(interval(10 * 3600, None), SECOND);
        assert_eq!(interval(10 * 3600 + 1, None), 2 * SECOND);
        assert_eq!(interval(3 * 86_400, None), 8 * SECOND);
        assert_eq!(interval(3 * 86_400, Some(SECOND)), SECOND);
    }

    #[test]
    fn the_ends_of_few_flows_are_apart_and_those_of_many_together() {
        let of = |strands| [0, 1].map(|place| first_cpu(4, place, 2, strands));
        assert_eq!(of(1), [0, 2]);
        assert_eq!(of(3), [0, 2]);
        assert_eq!(of(4), [0, 0]);
        assert_eq!([0, 1, 2].map(|place| first_cpu(2, place, 3, 1)), [0, 0, 1]);
        assert_eq!(first_cpu(1, 1, 2, 0), 0);
    }
}
