//! A host's load: its workers, its services and its counters, from the plan to the end of the last
//! phase. An agent owns one and only passes messages on.

mod connections;
mod departures;
mod listeners;
mod lone;
mod placement;
mod quiet;
mod served;
mod services;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use wirecost_linux::clock::{Monotonic, ThreadClock};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::Links;
use wirecost_linux::packet_counters::PacketReader;
use wirecost_linux::{descriptors, thread};
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::histogram::Histogram;
use wirecost_model::measure::{Edge, FlowopKey, FlowopLatency, PhaseResult, Snapshot, WorkerUse};
use wirecost_model::packets::PacketCounters;
use wirecost_model::placement::StrandPlacement;
use wirecost_model::plan::limits::FILES;
use wirecost_model::plan::{Address, Endpoints, FileSizes, Plan, Prepared, at_most};
use wirecost_model::profile::{Payload, Size};
use wirecost_model::program::{Program, Service};
use wirecost_model::rss::DeviceSpreading;
use wirecost_model::warning::{self, Warning};
use wirecost_profile::protocols;
use wirecost_program::calls::{self, EffectiveSetting};
use wirecost_program::files;
use wirecost_program::hello;
use wirecost_program::operation_log::LogMemory;
use wirecost_program::payload::{Contents, MAX_PIECE, Patterns};
use wirecost_program::record::WorkerCounters;
use wirecost_program::step::{self, Group};

pub use self::lone::Lone;
use crate::broker::{Broker, Route, inbox};
use crate::clients::Clients;
use crate::congestion::{self, Programs, Unloaded};
use crate::disk_space;
use crate::engines::{self, Engine, Setup, Shared, Unavailable, Wakers, WorkerThread};
use crate::files::Files;
use crate::frames::HostProgram;
use crate::permissions::{Partners, Permissions};
use crate::preparation::Preparation;
use crate::sockets::{
    Common, Mailbox, ObservedFlows, OwnService, Sockets, SourceFiles, check_file_rings,
    observe_flows,
};
use crate::stream_files::StreamFiles;
use crate::tls::Credentials;
pub use crate::worker::Notify;
use crate::worker::{Event, EventSender, Limits, Order, PhaseOrder, SegmentCounts, WorkerReport};
pub(crate) use connections::transports_of;
use listeners::Accepted;
use placement::Placement;
use services::{Announced, Services};
pub(crate) use snapshots::DueSnapshots;
use snapshots::{SharedReader, Snapshots, Workers};

/// Samples of connections that are kept of a phase: as many as fit a message with the rest of it.
const SAMPLES: usize = 1_000_000;
/// Most strands of a host whose bytes are recorded over time.
const FOLLOWED: u64 = 64;

/// Datagrams of any length fit.
const DATAGRAM: usize = 64 << 10;

/// Why a load cannot be put up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{act}: {source}")]
    System {
        act: String,
        #[source]
        source: io::Error,
    },
    #[error("{0}")]
    Plan(String),
    #[error("this host cannot do protocol={protocol}: {reason}")]
    Protocol { protocol: String, reason: String },
    #[error(
        "{address} is not the controller's address, and this host exchanges data with its controller only"
    )]
    NotAPartner { address: String },
    #[error("{address} has not agreed to receive: {reason}")]
    NoConsent { address: String, reason: String },
    #[error(transparent)]
    Engine(Unavailable),
    #[error(transparent)]
    CongestionControl(Unloaded),
}

impl LoadError {
    pub(crate) fn system(act: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let act = act.into();
        move |source| match rustix::io::Errno::from_io_error(&source) {
            Some(rustix::io::Errno::MFILE) => LoadError::Plan(format!(
                "{act}: this host allows a process too few descriptors ({}): raise the limit \
                 (ulimit -n), or use fewer connections or workers",
                descriptors::raise_limit().unwrap_or_default()
            )),
            _ => LoadError::System { act, source },
        }
    }

    /// What a worker says that could not start.
    fn of_worker(error: io::Error) -> Self {
        match error.downcast() {
            Ok(unavailable) => LoadError::Engine(unavailable),
            Err(error) => LoadError::system("worker")(error),
        }
    }
}

/// When a phase happens, on this host's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub phase: u32,
    pub start: Nanos,
    /// Beginning and end of the window; none where iterations decide.
    pub window: Option<(Nanos, Nanos)>,
    /// Times beside the window in which nothing observes; traffic goes on to the end of the last.
    pub unobserved: Vec<(Nanos, Nanos)>,
}

impl Schedule {
    /// When strands begin no more transactions.
    fn end(&self) -> Option<Nanos> {
        let (_, window) = self.window?;
        Some(self.unobserved.iter().map(|&(_, end)| end).fold(window, Nanos::max))
    }
}

/// What a load says while it runs.
#[derive(Debug)]
pub enum LoadEvent {
    Snapshot(Box<Snapshot>),
    /// No strand here begins another transaction by itself; so many has each begun, by group.
    Quiesced(BTreeMap<u32, Vec<u64>>),
    Ended(Box<PhaseResult>),
    /// A strand failed, and the profile does not allow that.
    Failed(String),
}

struct Handle {
    orders: Sender<Order>,
    wake: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    cpu: Option<u32>,
    clock: Option<ThreadClock>,
}

/// What a worker says once it is ready.
struct Started {
    worker: u32,
    clock: Option<ThreadClock>,
    listens: Announced,
}

impl Handle {
    fn order(&self, order: Order) {
        // A worker that is gone has said why.
        let _ = self.orders.send(order);
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

struct Phase {
    schedule: Schedule,
    rows: Vec<FlowopKey>,
    snapshots: Snapshots,
    held: Vec<bool>,
    started: BTreeMap<u32, Vec<u64>>,
    reports: Vec<Option<WorkerReport>>,
    told: bool,
    /// Of a phase by iterations: whether the snapshot of its window's end was taken.
    window_ended: bool,
}

/// The load of one host.
pub struct Load {
    plan: Plan,
    /// What the workers run on, which need not be what the plan asks for.
    engine: &'static dyn Engine,
    placement: Placement,
    handles: Handles,
    /// What the workers use, which end first.
    _shared: Shared,
    congestion_control: Programs,
    outlet: EventSender,
    events: Receiver<Event>,
    partners: Partners,
    /// Dropping it removes the paths of Unix sockets.
    _services: Services,
    own_services: Arc<[OwnService]>,
    broker: Option<Broker>,
    groups: Arc<[Group]>,
    rows: Vec<Vec<FlowopKey>>,
    /// Memory for single operations, where these are reported.
    log: Option<Arc<LogMemory>>,
    phase: Option<Phase>,
    /// Where datagrams move.
    packets: Option<SharedReader>,
    /// What was read when nothing moved: before the first phase, and after each.
    packets_at_rest: Option<PacketCounters>,
    settings: BTreeSet<EffectiveSetting>,
    /// By number of the peer, group and strand.
    placements: BTreeMap<(u32, u32, u32), StrandPlacement>,
    /// Known to workers before they connect.
    observed: Arc<OnceLock<ObservedFlows>>,
    /// Connections at listeners that workers share.
    accepted: Accepted,
    warnings: Vec<Warning>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("workers", &self.handles.0.len()).finish_non_exhaustive()
    }
}

/// How the device by which the services of a host receive spreads packets over its queues.
fn spreading(plan: &Plan) -> Option<DeviceSpreading> {
    let address = plan.data_address.filter(|_| !plan.program.services.is_empty())?;
    let links = Links::here().ok()?;
    let index = links.index_of_address(address).ok()??;
    let link = links.list().ok()?.into_iter().find(|link| link.index == index)?;
    Ethtool::open().ok()?.device_spreading(&link.name).ok()
}

/// Files of the `sendfile` flowops.
#[derive(Debug)]
struct Sources {
    files: Arc<[SourceFiles]>,
    sizes: Vec<FileSizes>,
}

/// Whether this host can carry out a plan, as far as that is known before anything starts: the kernel
/// has what its connections are set up with, its files are there, and descriptors are enough.
///
/// # Errors
/// What this host lacks.
pub fn check_host(plan: &Plan, permissions: &Permissions) -> Result<(), LoadError> {
    let files = &permissions.files;
    let engine = engines::find(plan.engine.as_str())
        .ok_or_else(|| LoadError::Plan(format!("this host has no engine {}", plan.engine)))?;
    let limit = descriptors::raise_limit().map_err(LoadError::system("descriptor limit"))?;
    let placement = Placement::new(plan, engine, limit)?;
    check_engine(plan, engine, placement.workers())?;
    connections::check(&plan.program)?;
    congestion::check(plan).map_err(LoadError::CongestionControl)?;
    connections::check_sockets(plan)?;
    Sources::find(plan, files)?;
    contents(&plan.program, files)?;
    for place in calls::sinks(&plan.program) {
        let directory = Path::new(&place.directory);
        permissions.writable.writable_directory(directory).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    ": sink= names a directory that is there"
                }
                _ => "",
            };
            LoadError::System {
                act: format!("sink {}", place.directory),
                source: io::Error::new(error.kind(), format!("{error}{remedy}")),
            }
        })?;
    }
    check_file_rings(&plan.program)?;
    disk_space::check(&plan.program, permissions, placement.workers())?;
    StreamFiles::check(&plan.program, permissions)
}

/// What an engine cannot do is said before anything is sent.
fn check_engine(plan: &Plan, engine: &'static dyn Engine, workers: u32) -> Result<(), LoadError> {
    let refused = engine.refuses(&plan.program);
    let unstamped = || engine.lacks_stamps().filter(|_| plan.receive_stamps).map(str::to_owned);
    let longest = largest_message(&plan.program);
    let missing = || engine.limits().and_then(|limits| (limits.lacks)(plan, longest, workers));
    match refused.or_else(unstamped).or_else(missing) {
        Some(reason) => Err(LoadError::Plan(format!("engine {}: {reason}", engine.name()))),
        None => Ok(()),
    }
}

impl Load {
    /// Starts the workers and listens; nothing connects yet. The plan may do what `permissions` says.
    /// `notify` is called whenever [`Load::event`] may have something new.
    ///
    /// # Errors
    /// What this host lacks: descriptors, files, addresses, ports.
    pub fn prepare(
        plan: Plan,
        permissions: &Permissions,
        notify: Notify,
        preparation: &Preparation,
    ) -> Result<(Load, Prepared), LoadError> {
        let engine = engines::find(plan.engine.as_str()).ok_or_else(|| {
            let (name, names) = (&plan.engine, engines::names());
            LoadError::Plan(format!("this host has no engine {name}; it has {names}"))
        })?;
        let Some(used) = engine.fallback() else {
            return Self::start_workers(plan, engine, permissions, notify, preparation);
        };
        match Self::start_workers(plan.clone(), engine, permissions, notify.clone(), preparation) {
            Err(LoadError::Engine(Unavailable { reason, .. })) => {
                let (mut load, prepared) =
                    Self::start_workers(plan, used, permissions, notify, preparation)?;
                load.warnings.push(Warning::from(warning::Fallback {
                    host: String::new(),
                    wanted: format!("engine {}", engine.name()),
                    used: format!("engine {}", used.name()),
                    reason,
                }));
                Ok((load, prepared))
            }
            done => done,
        }
    }

    fn start_workers(
        mut plan: Plan,
        engine: &'static dyn Engine,
        permissions: &Permissions,
        notify: Notify,
        preparation: &Preparation,
    ) -> Result<(Load, Prepared), LoadError> {
        let files = &permissions.files;
        let limit = descriptors::raise_limit().map_err(LoadError::system("descriptor limit"))?;
        let placement = Placement::new(&plan, engine, limit)?;
        check_engine(&plan, engine, placement.workers())?;
        connections::check(&plan.program)?;
        let sources = Sources::find(&plan, files)?;
        let contents = contents(&plan.program, files)?;
        check_file_rings(&plan.program)?;
        disk_space::check(&plan.program, permissions, placement.workers())?;
        let streams = StreamFiles::prepare(&plan.program, permissions, plan.seed, preparation)?;
        let congestion_control = Programs::load(&mut plan).map_err(LoadError::CongestionControl)?;
        let mut warnings = placement.warnings();
        let run = hello::run_number(&plan.token);
        let mailbox = Arc::new(Mailbox::default());
        let observed = Arc::<OnceLock<ObservedFlows>>::default();
        let common = Common {
            blocking: !engine.shares_threads(),
            run,
            host: plan.host,
            services: OwnService::all(&plan.program.services)
                .map_err(LoadError::system("services"))?,
            mailbox: mailbox.clone(),
            files: sources.files.clone(),
            streams,
            permissions: permissions.clone(),
            credentials: credentials(&plan.program)?,
            observed: observed.clone(),
        };
        // Who may be anyone learns nothing of this host but its traffic.
        let spreading = (permissions.partners == Partners::OfRun).then(|| spreading(&plan));
        let answers = spreading.as_ref().map(Option::as_ref);
        let (mut services, mut shared) =
            Services::open(&plan, engine, &common.services, &placement, answers)?;
        warnings.extend(shared.by_hash.map(|reason| {
            Warning::from(warning::Fallback {
                host: String::new(),
                wanted: "a socket or listener for each CPU (server_sockets=per-worker)".to_owned(),
                used: "sockets chosen by the hash of addresses".to_owned(),
                reason: reason.to_owned(),
            })
        }));
        let certificate = common.credentials.as_ref().map(|own| own.certificate().to_vec());
        let patterns = shared_patterns(&plan, engine, &contents)?;
        let shared_by_workers =
            engine.share(placement.workers()).map_err(LoadError::system(engine.name()))?;
        let mut handles = Handles::default();
        let mut inboxes = Vec::new();
        let (announce, announced) = channel();
        let (outlet, events) = EventSender::new(notify);
        let mut of_workers = std::mem::take(&mut shared.of_workers).into_iter();
        for number in 0..placement.workers() {
            let (handle, inbox) = start_worker(
                (&plan, engine),
                (number, of_workers.next().unwrap_or_default()),
                &placement,
                &common,
                (&services, &shared_by_workers),
                (patterns.clone(), contents.clone()),
                (announce.clone(), outlet.clone()),
            )?;
            handles.0.push(handle);
            inboxes.extend(inbox);
        }
        drop(announce);
        for _ in 0..handles.0.len() {
            let said = announced
                .recv_timeout(Duration::from_secs(60))
                .map_err(|_| LoadError::Plan("a worker did not start".to_owned()))?;
            let started = said.map_err(LoadError::of_worker)?;
            handles.0[started.worker as usize].clock = started.clock;
            services.announced(started.listens);
        }
        let route = match engine.shares_threads() {
            true => Route::Inboxes { inboxes, worker: placement.worker_of() },
            false => Route::Mailbox(mailbox),
        };
        let consent = services.consent();
        for arrival in shared.arrivals {
            route.deliver(arrival).map_err(LoadError::system("sockets of clients"))?;
        }
        let own_services = common.services.clone();
        let accepted = Accepted::new(&own_services, shared.by_hash.is_some());
        let listeners = services.with_consent_answer(shared.listeners, &plan);
        let broker = (!listeners.is_empty())
            .then(|| {
                let partners = permissions.partners;
                Broker::start(run, partners, listeners, route, placement.connections())
            })
            .transpose()
            .map_err(LoadError::system("broker"))?;
        let prepared = Prepared {
            workers: handles.0.len() as u32,
            services: services.addresses(),
            certificate,
            consent,
            spreading: spreading.flatten(),
            connects_from: Vec::new(),
            files: sources.sizes.clone(),
        };
        warnings.extend(engine.warnings(&plan.program));
        warnings.dedup();
        let settings = calls::settings(&plan.program);
        let logged = plan.logged_operations;
        let log = || Arc::new(LogMemory::new(logged, placement.workers()));
        let load = Load {
            log: (logged > 0).then(log),
            plan,
            engine,
            placement,
            handles,
            _shared: shared_by_workers,
            congestion_control,
            outlet,
            events,
            partners: permissions.partners,
            _services: services,
            own_services,
            broker,
            groups: Arc::new([]),
            rows: Vec::new(),
            phase: None,
            packets: None,
            packets_at_rest: None,
            settings,
            placements: BTreeMap::new(),
            observed,
            accepted,
            warnings,
        };
        Ok((load, prepared))
    }

    /// Learns where the others listen, makes sure that they have agreed to receive, and gets the
    /// strands ready.
    ///
    /// # Errors
    /// A host that has not agreed, or a program that this version cannot run.
    pub fn connect(&mut self, endpoints: Endpoints) -> Result<(), LoadError> {
        services::check_partners(&self.plan, self.partners, &endpoints)?;
        services::check_consent(&self.plan, &endpoints)?;
        let files: Vec<FileSizes> =
            endpoints.hosts.iter().flat_map(|host| host.files.clone()).collect();
        let groups =
            step::compile(&self.plan.program, self.plan.seed, &files).map_err(LoadError::Plan)?;
        let run = hello::run_number(&self.plan.token);
        let observed = observe_flows(&groups, &endpoints, run).map_err(LoadError::Plan)?;
        // Set once: a host connects once.
        let _ = self.observed.set(observed);
        self.warnings.extend(departures::check(&groups, self.plan.host, &endpoints)?);
        let phases = groups.iter().map(|group| group.rows.len()).max().unwrap_or_default();
        self.rows = (0..phases)
            .map(|phase| {
                groups.iter().filter_map(|g| g.rows.get(phase)).flatten().cloned().collect()
            })
            .collect();
        self.groups = groups.into();
        self.packets = self.packet_reader(&endpoints).unwrap_or_else(|error| {
            self.warnings.push(Warning::from(warning::Fallback {
                host: String::new(),
                wanted: "the kernel's counters of packets".to_owned(),
                used: "counters of programs".to_owned(),
                reason: error.to_string(),
            }));
            None
        });
        self.packets_at_rest = self.packets.as_ref().and_then(snapshots::packets);
        let endpoints = Arc::new(endpoints);
        for handle in &self.handles.0 {
            let (endpoints, groups) = (endpoints.clone(), self.groups.clone());
            handle.order(Order::Connect { endpoints, groups });
        }
        Ok(())
    }

    /// What reads the kernel's counters of packets, where datagrams move.
    fn packet_reader(&self, endpoints: &Endpoints) -> io::Result<Option<SharedReader>> {
        let has_datagrams = transports_of(&self.plan.program)
            .any(|(transport, _)| !transport.protocol().delivery().is_reliable());
        // Who may be anyone learns nothing of this host but its traffic.
        if !has_datagrams || self.partners != Partners::OfRun {
            return Ok(None);
        }
        let (mut local, mut remote) = (BTreeSet::new(), BTreeSet::new());
        for (number, host) in (0u32..).zip(&endpoints.hosts) {
            let addresses = host.services.iter().flat_map(|service| &service.addresses);
            let inet = addresses.filter_map(|address| match address {
                Address::Inet(address) => Some(address.ip().to_canonical()),
                Address::Unix(_) | Address::Vsock { .. } => None,
            });
            let side = if number == self.plan.host { &mut local } else { &mut remote };
            side.extend(inet.filter(|address| !address.is_unspecified()));
        }
        let reader = PacketReader::open(&local, &remote)?;
        Ok(Some(Arc::new(Mutex::new(reader))))
    }

    /// The kernel's counters of packets now that every host has ended the phase; `None` where no datagrams move.
    pub fn drained(&mut self) -> Option<PacketCounters> {
        self.packets_at_rest = self.packets.as_ref().and_then(snapshots::packets);
        self.packets_at_rest.clone()
    }

    /// Begins a phase. Its events come from [`Load::event`].
    pub fn start(&mut self, schedule: Schedule) {
        let rows = self.rows.get(schedule.phase as usize).cloned().unwrap_or_default();
        let (window, end): (Range<Nanos>, Nanos) = match schedule.window {
            Some((from, to)) => (from..to, schedule.end().unwrap_or(to)),
            None => (schedule.start..Nanos::MAX, 0),
        };
        let whole = step::whole_rows(&self.groups, schedule.phase as usize);
        let of_worker = || Arc::new(WorkerCounters::new(rows.len(), whole.clone()));
        let counters: Vec<Arc<WorkerCounters>> =
            self.handles.0.iter().map(|_| of_worker()).collect();
        let snapshots = Snapshots::start(
            Workers {
                counters: counters.clone(),
                clocks: self.handles.0.iter().map(|handle| handle.clock).collect(),
                rows: rows.len(),
                packets: self.packets.clone(),
                before: self.packets_at_rest.clone(),
            },
            schedule.clone(),
            self.plan.interval,
            self.outlet.clone(),
        );
        let strands: u64 =
            self.plan.program.groups.iter().map(|group| u64::from(group.strands)).sum();
        let completed: Arc<[AtomicU64]> = self.groups.iter().map(|_| AtomicU64::new(0)).collect();
        for (number, (handle, counters)) in (0u32..).zip(self.handles.0.iter().zip(&counters)) {
            // A thread of each connection's own: not all of them.
            let samples = self.engine.shares_threads() || number < self.plan.tcp_samples;
            handle.order(Order::Phase(PhaseOrder {
                phase: schedule.phase,
                start: schedule.start,
                window: window.clone(),
                end,
                counters: counters.clone(),
                snapshots: Some(snapshots.due()),
                tcp_samples: if samples { self.plan.tcp_samples } else { 0 },
                details: self.plan.details,
                log: self.log.clone(),
                completed: completed.clone(),
                most_samples: SAMPLES / self.handles.0.len().max(1),
                follow: (strands <= FOLLOWED).then_some(self.plan.interval),
            }));
        }
        let started = self
            .plan
            .program
            .groups
            .iter()
            .map(|group| (group.group, vec![0; group.strands as usize]))
            .collect();
        self.phase = Some(Phase {
            schedule,
            rows,
            snapshots,
            held: vec![false; self.handles.0.len()],
            started,
            reports: self.handles.0.iter().map(|_| None).collect(),
            told: false,
            window_ended: false,
        });
    }

    /// Lets every strand end after that many transactions (by group and strand).
    pub fn finish(&self, limits: Limits) {
        let limits = Arc::new(limits);
        for handle in &self.handles.0 {
            handle.order(Order::Finish(limits.clone()));
        }
    }

    /// Ends the phase now; what is under way is cut off and counted as unfinished.
    pub fn cut_off(&self) {
        for handle in &self.handles.0 {
            handle.order(Order::CutOff);
        }
    }

    /// The next event, if there is one.
    pub fn event(&mut self) -> Option<LoadEvent> {
        while let Ok(event) = self.events.try_recv() {
            let Some(phase) = &mut self.phase else {
                continue;
            };
            match event {
                Event::Snapshot(snapshot) => {
                    return Some(LoadEvent::Snapshot(phase.snapshots.keep(snapshot)));
                }
                Event::Clocks(clocks) => phase.snapshots.keep_clocks(clocks),
                Event::Quiesced { worker, started } => {
                    phase.held[worker as usize] = true;
                    for ((group, strand), count) in self.placement.strands(worker).zip(started) {
                        let of_group = phase.started.get_mut(&group);
                        if let Some(place) = of_group.and_then(|g| g.get_mut(strand as usize)) {
                            *place = count;
                        }
                    }
                }
                Event::Ended(report) => {
                    let worker = report.worker as usize;
                    phase.reports[worker] = Some(*report);
                }
                Event::Failed(error) => return Some(LoadEvent::Failed(error.to_string())),
                Event::Endless(readings) => {
                    return Some(LoadEvent::Failed(format!(
                        "phase {} has not ended within {readings} intervals, and no more of them \
                         can be kept: use a longer --interval",
                        phase.schedule.phase + 1
                    )));
                }
            }
        }
        let phase = self.phase.as_mut()?;
        if !phase.told && phase.held.iter().all(|&held| held) {
            phase.told = true;
            // A host that has no part in the phase is through before it begins: its window ends
            // with the phase.
            let number = phase.schedule.phase as usize;
            let shares_listeners = |group: &Group| {
                let of_group = group.phases.get(number).and_then(Option::as_deref);
                of_group.is_some_and(|phase| phase.shares_listeners)
            };
            // Who serves any client does not know before the end how many transactions there are.
            if phase.schedule.window.is_none()
                && !self.groups.iter().any(shares_listeners)
                && Monotonic.now() > phase.schedule.start
            {
                phase.snapshots.snapshot_at(Edge::WindowEnd);
                phase.window_ended = true;
            }
            return Some(LoadEvent::Quiesced(std::mem::take(&mut phase.started)));
        }
        if phase.reports.iter().all(Option::is_some) {
            return self.end().map(|result| LoadEvent::Ended(Box::new(result)));
        }
        None
    }

    /// Puts the workers' reports together.
    fn end(&mut self) -> Option<PhaseResult> {
        let mut phase = self.phase.take()?;
        phase.snapshots.end_thread();
        if phase.schedule.window.is_none() && !phase.window_ended {
            // Ended by the others: of the datagrams it waited for some were lost.
            phase.snapshots.snapshot_at(Edge::WindowEnd);
        }
        for late in self.events.try_iter() {
            match late {
                Event::Snapshot(snapshot) => drop(phase.snapshots.keep(snapshot)),
                Event::Clocks(clocks) => phase.snapshots.keep_clocks(clocks),
                Event::Quiesced { .. } | Event::Ended(_) | Event::Failed(_) | Event::Endless(_) => {
                }
            }
        }
        if let Some((_, end)) = phase.schedule.window {
            phase.snapshots.late_window_end(end);
        }
        phase.snapshots.snapshot_at(Edge::PhaseEnd);
        let busy: Vec<_> = (0..self.handles.0.len()).map(|n| phase.snapshots.busy(n)).collect();
        let (quiet, longest_quiet_in_ramp) = phase.snapshots.quiet();
        let mut result = PhaseResult {
            phase: phase.schedule.phase,
            snapshots: phase.snapshots.finish(),
            quiet,
            longest_quiet_in_ramp,
            memory: phase.snapshots.memory(),
            latencies: phase
                .rows
                .iter()
                .map(|key| FlowopLatency { key: key.clone(), latency: Default::default() })
                .collect(),
            flowops: phase.rows,
            ..PhaseResult::default()
        };
        let (mut segments, mut rejected_connections) = (SegmentCounts::default(), 0);
        let mut of_workers = Vec::new();
        let workers = self.handles.0.iter().zip(busy);
        for ((handle, busy), report) in workers.zip(phase.reports.into_iter().flatten()) {
            result.transactions.merge(&report.transactions);
            of_workers.push(report.group_transactions);
            result.strands.extend(report.strands);
            result.strand_series.extend(report.strand_series);
            result.logged.extend(report.logged);
            result.not_logged += report.not_logged;
            for (sum, latency) in result.latencies.iter_mut().zip(&report.latencies) {
                sum.latency.merge(latency);
            }
            result.one_way.merge(&report.one_way);
            if let Some(stamps) = &report.receive_stamps {
                result.receive_stamps.get_or_insert_default().add(stamps);
            }
            result.connections_open += report.open;
            result.connections_failed += report.failed_connections;
            segments.retransmits += report.segments.retransmits;
            segments.sent += report.segments.sent;
            segments.out_of_order += report.segments.out_of_order;
            result.closed_unread += report.closed_unread;
            result.tcp_samples.extend(report.tcp_samples);
            result.workers.push(WorkerUse { worker: report.worker, cpu: handle.cpu, busy });
            result.fairness.merge(&report.fairness);
            result.receive_buffer_drops += report.drops;
            result.verify_failures += report.verify_failures;
            result.file_checks.add(&report.file_checks);
            result.io.add(report.io);
            result.unfinished_strands += report.unfinished;
            result.buffer_bytes += report.buffer_bytes;
            rejected_connections += report.rejected_connections;
            self.settings.extend(report.settings);
            // A strand is of one worker, which reports all that it has seen so far.
            self.placements.extend(report.placements);
        }
        if self.plan.details {
            let whole = step::whole_rows(&self.groups, result.phase as usize);
            result.group_transactions =
                group_transactions(&self.groups, &of_workers, &whole, &result.latencies);
            result.strands.sort_unstable_by_key(|strand| (strand.group, strand.strand));
            // Of a group whose strands are on all workers, those of one number count together.
            result.strands.dedup_by(|more, sum| {
                let same = (more.group, more.strand) == (sum.group, sum.strand);
                if same {
                    sum.bytes += more.bytes;
                    sum.transactions += more.transactions;
                }
                same
            });
        }
        result.strand_series.sort_unstable_by_key(|series| (series.group, series.strand));
        result.logged.sort_unstable_by_key(|strand| (strand.group, strand.strand));
        let has_tcp = transports_of(&self.plan.program)
            .any(|(transport, _)| transport.protocol().has_tcp_info());
        if has_tcp && result.closed_unread == 0 {
            result.retransmits = Some(segments.retransmits);
            result.segments_sent = Some(segments.sent);
            result.out_of_order = Some(segments.out_of_order);
        }
        rejected_connections += self.broker.as_ref().map_or(0, Broker::rejected_connections);
        let clients = self.own_services.iter().filter_map(|service| service.clients.as_deref());
        rejected_connections += clients.map(Clients::rejected).sum::<u64>();
        self.accepted.add(&result.io);
        self.warnings.retain(|warning| {
            !matches!(warning, Warning::ConnectionsRejected(_) | Warning::ConnectionsOnOtherCpu(_))
        });
        self.warnings.extend(self.accepted.warning());
        if rejected_connections > 0 {
            let host = String::new();
            self.warnings.push(Warning::from(warning::ConnectionsRejected {
                host,
                connections: rejected_connections,
            }));
        }
        Some(result)
    }

    /// Socket options as asked for and granted, of all connections so far.
    pub fn settings(&self) -> impl Iterator<Item = EffectiveSetting> {
        self.settings.iter().map(|setting| self.congestion_control.shown(setting))
    }

    /// Where the connections of strands were placed, or arrived, each with the number of the host where they arrive.
    pub fn placements(&self) -> impl Iterator<Item = (u32, &StrandPlacement)> {
        self.placements.iter().take(StrandPlacement::MOST).map(|((peer, ..), of)| (*peer, of))
    }

    /// What the host has to say about itself; the name of the host is left to the controller.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    pub fn workers(&self) -> u32 {
        self.handles.0.len() as u32
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Nobody comes any more when the workers end.
        self.broker = None;
    }
}

/// The workers, which have ended when this is dropped.
#[derive(Default)]
struct Handles(Vec<Handle>);

impl Drop for Handles {
    fn drop(&mut self) {
        for handle in &mut self.0 {
            let (orders, _) = channel();
            handle.orders = orders;
            if let Some(wake) = &handle.wake {
                let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
            }
        }
        for handle in &mut self.0 {
            if let Some(thread) = handle.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// Latencies of transactions by number of the group. `of_workers` has those of transactions of several
/// operations, in the order of group numbers; of the other transactions there is a row each (`whole`).
fn group_transactions(
    groups: &[Group],
    of_workers: &[Vec<Histogram>],
    whole: &[u32],
    latencies: &[FlowopLatency],
) -> BTreeMap<u32, Histogram> {
    let of_group = |number: u32| {
        let mut sum = Histogram::new();
        for of_worker in of_workers {
            if let Some(histogram) = of_worker.get(number as usize) {
                sum.merge(histogram);
            }
        }
        let rows = whole.iter().filter_map(|&row| latencies.get(row as usize));
        for row in rows.filter(|row| row.key.group == number) {
            sum.merge(&row.latency);
        }
        (number, sum)
    };
    groups.iter().map(|group| of_group(group.number)).collect()
}

/// Where each strand has a thread, all send from the same bytes: thousands of copies would cost
/// time to make and leave no cache. Other workers are few, and make theirs where they run.
fn shared_patterns(
    plan: &Plan,
    engine: &'static dyn Engine,
    contents: &Contents,
) -> Result<Option<Patterns>, LoadError> {
    if engine.shares_threads() {
        return Ok(None);
    }
    let message = largest_message(&plan.program);
    let patterns = Patterns::new(&step::payloads(&plan.program), message, plan.seed, contents);
    patterns.map(Some).map_err(LoadError::system("worker"))
}

/// Starts one worker's thread, which announces where it listens.
fn start_worker(
    (plan, engine): (&Plan, &'static dyn Engine),
    (number, listeners): (u32, Vec<(u32, Vec<OwnedFd>)>),
    placement: &Placement,
    common: &Common,
    (services, shared): (&Services, &Shared),
    (patterns, contents): (Option<Patterns>, Contents),
    (announce, outlet): (Sender<io::Result<Started>>, EventSender),
) -> Result<(Handle, Option<OwnedFd>), LoadError> {
    let (orders_to, orders) = channel();
    let (cpu, second_cpu) = (placement.cpu(number), placement.second_cpu(number));
    let mine: Vec<_> = placement.strands(number).collect();
    let wanted = services.own_addresses(&mine);
    let mut common = common.clone();
    let payloads = step::payloads(&plan.program);
    let sinks = calls::sinks(&plan.program);
    let workers = placement.workers();
    let message = largest_message(&plan.program);
    let (seed, shares_cpus, stamps) = (plan.seed, plan.shares_cpus, plan.receive_stamps);
    let mut wake = None;
    let mut broker_end = None;
    let mut worker_end = None;
    if engine.shares_threads() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| LoadError::system("eventfd")(e.into()))?;
        wake = Some(event);
        let (broker, worker) = inbox().map_err(LoadError::system("inbox of a worker"))?;
        broker_end = Some(broker);
        worker_end = Some(worker);
    }
    let access = shared.program.as_ref().map(|program| program.access(number));
    let of_program = || shared.program.iter().flat_map(HostProgram::descriptors);
    // The services, and how many listeners each has.
    let services_of: Vec<(u32, usize)> =
        listeners.iter().map(|(service, fds)| (*service, fds.len())).collect();
    let listeners: Vec<OwnedFd> = listeners.into_iter().flat_map(|(_, fds)| fds).collect();
    let waits = wake.iter().chain(&worker_end).count();
    let (own, maps) = (waits + listeners.len(), of_program().count());
    let (allowed, made) = (common.permissions.clone(), common.streams.clone());
    let thread = move |kept: io::Result<Vec<OwnedFd>>| {
        let set_up = move || -> io::Result<_> {
            if let Some(cpu) = cpu {
                thread::pin(cpu)?;
            }
            thread::minimize_timer_slack();
            let mut kept = kept?;
            let mut program = None;
            let mut own_listeners = Vec::new();
            let wakers = match engine.shares_threads() {
                true => {
                    let mut files = kept.split_off(own + maps).into_iter();
                    let Permissions { files: readable, writable, .. } = &mut common.permissions;
                    for allowed in [readable, writable] {
                        let count = allowed.descriptors().count();
                        *allowed = allowed.with(files.by_ref().take(count).collect::<Vec<_>>());
                    }
                    common.streams = StreamFiles::with(&common.streams, files);
                    let maps = kept.split_off(own);
                    program = access.map(|access| access.with(maps)).transpose()?;
                    own_listeners = kept.split_off(waits);
                    let mut kept = kept.into_iter();
                    kept.next().zip(kept.next()).map(|(wake, inbox)| Wakers { wake, inbox })
                }
                false => None,
            };
            let patterns = match patterns {
                Some(shared) => shared,
                None => Patterns::new(&payloads, message, seed, &contents)?,
            };
            let buffer = usize::try_from(message).unwrap_or(MAX_PIECE).clamp(DATAGRAM, MAX_PIECE);
            let mut sockets = Sockets::new(&common, buffer);
            patterns.shared().for_each(|bytes| sockets.data.held.hold(bytes));
            if stamps {
                sockets.stamp(&mine, !engine.shares_threads())?;
            }
            let run = engine.prepare(&mut Setup {
                sockets: &mut sockets,
                patterns: &patterns,
                message,
                wakers: wakers.as_ref(),
                shares_cpus,
                program,
                second_cpu,
            })?;
            sockets.data.open_sinks(
                (&sinks, &common.permissions.writable),
                common.host,
                (number, workers),
            )?;
            let listens = services::listen(&mut sockets, &wanted)?;
            sockets.opener.set_cpu(cpu);
            let mut own_listeners = own_listeners.into_iter();
            for (service, count) in services_of {
                let fds = own_listeners.by_ref().take(count).collect();
                sockets.opener.share_listeners(service, fds)?;
            }
            let started = Started { worker: number, clock: ThreadClock::own(), listens };
            Ok((run, sockets, patterns, mine, wakers, started))
        };
        match set_up() {
            Ok((run, sockets, patterns, mine, wakers, started)) => {
                let _ = announce.send(Ok(started));
                drop(announce);
                run(WorkerThread { number, sockets, patterns, outlet, orders, mine, wakers });
            }
            Err(error) => {
                let _ = announce.send(Err(error));
            }
        }
    };
    let builder = std::thread::Builder::new()
        .name(format!("wirecost-{number}"))
        // A strand needs little stack; thousands of threads need thousands of them.
        .stack_size(256 << 10);
    let thread = if engine.shares_threads() {
        let own = wake.iter().chain(&worker_end).chain(&listeners).map(AsFd::as_fd);
        let Permissions { files, writable, .. } = &allowed;
        let files = files.descriptors().chain(writable.descriptors());
        let files = files.chain(StreamFiles::descriptors(&made));
        let keep: Vec<_> = own.chain(of_program()).chain(files).collect();
        descriptors::spawn_with_own_table(builder, &keep, thread)
    } else {
        builder.spawn(move || thread(Ok(Vec::new())))
    };
    let thread = thread.map_err(LoadError::system(format!("thread of worker {number}")))?;
    let handle = Handle { orders: orders_to, wake, thread: Some(thread), cpu, clock: None };
    Ok((handle, broker_end))
}

/// What a host proves itself by that has TLS services.
fn credentials(program: &Program) -> Result<Option<Arc<Credentials>>, LoadError> {
    let secure = |service: &Service| {
        protocols::find(&service.protocol).is_some_and(|protocol| protocol.is_secure())
    };
    if !program.services.iter().any(secure) {
        return Ok(None);
    }
    let credentials = Credentials::new().map_err(LoadError::system("certificate"))?;
    Ok(Some(Arc::new(credentials)))
}

/// The longest message of a program, bytes.
fn largest_message(program: &Program) -> u64 {
    let options = step::acts(program).map(|act| &act.options);
    options
        .map(|options| options.size.as_ref().map_or(0, Size::max).max(options.rsize.unwrap_or(0)))
        .max()
        .unwrap_or(0)
}

/// What the payload files of a program hold, as far as messages have any of it.
fn contents(program: &Program, files: &Files) -> Result<Contents, LoadError> {
    let most = largest_message(program).clamp(8, MAX_PIECE as u64);
    let payloads = step::payloads(program);
    let named = payloads.iter().filter_map(|payload| match payload {
        Payload::File(path) => Some(path),
        Payload::Random | Payload::Zero => None,
    });
    named
        .map(|path| {
            let content = files.payload(path, most).map_err(LoadError::system("worker"))?;
            Ok((path.clone(), content.into()))
        })
        .collect()
}

impl Sources {
    /// Looks up the files of every `sendfile` that this host executes.
    fn find(plan: &Plan, allowed: &Files) -> Result<Self, LoadError> {
        let sources = files::sources(&plan.program).into_iter();
        let mut sources: Vec<SourceFiles> =
            sources.map(|source| SourceFiles { source, paths: Vec::new() }).collect();
        let (mut sizes, mut count) = (Vec::new(), 0);
        for group in &plan.program.groups {
            for (number, phase) in group.phases.iter().enumerate() {
                for act in phase.iter().flat_map(|phase| &phase.acts) {
                    if act.kind != "sendfile" {
                        continue;
                    }
                    let source = files::source(group, act).ok_or_else(|| {
                        LoadError::Plan(format!("{}: sendfile needs dir=", act.at))
                    })?;
                    let dir = &source.directory;
                    let here = || LoadError::system(format!("{}: sendfile of {dir}", act.at));
                    let mut found = allowed.sources(Path::new(dir)).map_err(here())?;
                    found.sort();
                    let wanted = act.options.nfiles.unwrap_or(u64::MAX);
                    found.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
                    if source.direct {
                        for (path, _) in &found {
                            allowed.source(path, true).map_err(here())?;
                        }
                    }
                    count += found.len();
                    at_most("the number of files of all sendfile flowops", count, FILES)
                        .map_err(|error| LoadError::Plan(error.to_string()))?;
                    if found.is_empty() {
                        let message = format!("{}: {dir} has no file to send", act.at);
                        return Err(LoadError::Plan(message));
                    }
                    sizes.push(FileSizes {
                        group: group.group,
                        phase: number as u32,
                        flowop: act.flowop,
                        sizes: found.iter().map(|(_, size)| *size).collect(),
                    });
                    // Another flowop may use more of the same files (`nfiles`).
                    let known = sources.iter_mut().find(|files| files.source == source);
                    if let Some(known) = known.filter(|known| known.paths.len() < found.len()) {
                        known.paths = found.into_iter().map(|(path, _)| path).collect();
                    }
                }
            }
        }
        Ok(Self { files: sources.into(), sizes })
    }
}
