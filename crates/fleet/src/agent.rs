//! One session of an agent, in a process of its own: carries out the orders of one controller, and
//! ends what it runs when the controller is gone.

use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::process::{Resource, getrlimit};
use socket2::Socket;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::privilege::{LOAD, TRACING, TUNING};
use wirecost_linux::{confine, facts};
use wirecost_load::engines;
pub use wirecost_load::files::Files;
use wirecost_load::load::{Load, LoadError, LoadEvent, Notify, Schedule};
use wirecost_load::permissions::{Partners, Permissions};
use wirecost_load::preparation::Preparation;
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::event::Reading;
use wirecost_model::holder::Holder;
use wirecost_model::measure::{Edge, Setting, Snapshot};
use wirecost_model::observe::ObserveTimes;
use wirecost_model::plan::limits::{MEMORY_SHARE, SHORTEST_INTERVAL};
use wirecost_model::plan::{EngineName, Extent, Plan, Prepared};
use wirecost_model::status::Status;
use wirecost_model::warning::{UnauthenticatedPeer, Warning};
use wirecost_program::calls::KnownOptions;

use crate::listener::GRACE;
use crate::machine::{self, Claim, ClaimError, ClaimWaiter, ConflictPolicy};
use crate::observing::{ObserverEvent, Observing};
use crate::tuning::{Tuner, TuningError};
use crate::unauthenticated;
use crate::watchdog::{Watchdog, is_gone};
use crate::wire::{self, ClaimRequest, Known, LONGEST_HELLO, Notice, Order};

/// A controller that has said nothing for this long is gone: it asks for the time every other
/// second.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// All counters are passed on no more often, and the sums of intervals in between with them; all of
/// them come with the phase's result.
const LIVE: Duration = Duration::from_millis(90);

/// Inputs of a session that wait to be dealt with. Of orders there is one: the next is read when it
/// has been obeyed. The writes of a controller that does not read its answers then block, so it
/// cannot fill memory with orders.
const INPUTS: usize = 64;

/// Why a session could not go on.
#[derive(Debug, thiserror::Error)]
#[error("session: {0}")]
pub struct SessionError(#[source] io::Error);

/// What a session may do, and what has been said of it already.
#[derive(Debug)]
pub struct SessionPolicy {
    /// Files that orders may have read.
    pub files: Files,
    /// Where orders may have files made and written.
    pub writable: Files,
    /// A run is prepared only after it has claimed this host.
    pub must_claim: bool,
    /// Version of the protocol in the controller's hello, where that has been read.
    pub hello: Option<u32>,
    /// The controller may be anyone who reached the port: it gets load to and from its own address, and
    /// neither files nor observations nor a description of the host.
    pub anyone: bool,
    /// How settings of this host are changed, if orders may ask for it.
    pub tuning: Option<TuningPolicy>,
    /// Whether congestion control of the controller's is loaded into the kernel.
    pub congestion_objects: bool,
}

/// How an agent changes settings of its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningPolicy {
    /// What starts a process that calls `wirecost_tunable::guardian::run`: a program and its arguments.
    pub guardian: Vec<OsString>,
    /// Whether registers of PCI devices may be changed.
    pub allow_pci: bool,
}

/// Serves the one session whose stream is given, of the domain Unix or over TCP. When the
/// controller has gone and what the session has started does not end by itself, `hangs` is called,
/// which ends the process.
///
/// # Errors
/// When the stream fails other than by its end.
pub fn session(
    stream: OwnedFd,
    policy: SessionPolicy,
    hangs: impl FnOnce() + Send + 'static,
) -> Result<(), SessionError> {
    serve(Socket::from(stream), policy, hangs).map_err(SessionError)
}

enum Input {
    Order(Order),
    /// The load has news.
    News,
    /// So has who observes.
    ObserverEvent(ObserverEvent),
    /// What came is no order.
    Unreadable(String),
    Gone,
}

fn serve(
    stream: Socket,
    policy: SessionPolicy,
    hangs: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let SessionPolicy { files, writable, must_claim, hello, anyone, tuning, congestion_objects } =
        policy;
    let permissions = match anyone {
        true => Permissions { partners: Partners::only(peer(&stream)?), ..Permissions::default() },
        false => Permissions { files, writable, ..Permissions::default() },
    };
    // A listener starts it by a link that has another name; what is observed names programs.
    let _ = rustix::thread::set_name(c"wirecost");
    // No write blocks for longer than a lease.
    stream.set_write_timeout(Some(LEASE))?;
    let (inputs_to, inputs) = sync_channel(INPUTS);
    let (obeyed, next) = sync_channel(1);
    let reader = stream.try_clone()?;
    let orders = inputs_to.clone();
    std::thread::Builder::new().name("wirecost-orders".to_owned()).spawn(move || {
        // It reads, and needs no rights for that.
        let _ = confine::keep_only(&[]);
        read_orders(reader, hello, &orders, &next);
    })?;
    // The thread that reads orders does not read on while one of them is carried out.
    let watchdog = Watchdog::start(stream.try_clone()?, GRACE, hangs)?;
    let mut session = Session {
        stream,
        inputs,
        inputs_to,
        obeyed,
        permissions,
        anyone,
        must_claim,
        tuning,
        congestion_objects,
        load: None,
        observing: None,
        tuner: None,
        observes: None,
        interval: 0,
        extent: None,
        stage: Stage::Unknown,
        last_live: Instant::now(),
        phase_start: 0,
        skipped: Vec::new(),
        phase: 0,
        claim: None,
    };
    let result = session.run();
    // The thread that reads orders blocks until then, however silent the other side is.
    let stream = session.stream.try_clone()?;
    let _ = stream.shutdown(Shutdown::Read);
    // The load ends first, then the claim, and then the controller is told.
    drop(session);
    let _ = stream.shutdown(Shutdown::Both);
    drop(watchdog);
    match result {
        Err(error) if has_gone(&error) => Ok(()),
        result => result,
    }
}

/// Whether the controller went before it had read an answer. Whatever made it go, it is what knows.
fn has_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The address of the controller.
fn peer(stream: &Socket) -> io::Result<IpAddr> {
    let address = stream.peer_addr()?.as_socket();
    let unknown = || io::Error::new(io::ErrorKind::Unsupported, "the controller has no address");
    address.map(|address| address.ip()).ok_or_else(unknown)
}

fn read_orders(
    stream: impl Read,
    hello: Option<u32>,
    inputs: &SyncSender<Input>,
    obeyed: &Receiver<()>,
) {
    let mut stream = BufReader::new(stream);
    let first = match hello {
        Some(version) => Ok(Order::Hello { version }),
        None => wire::read_within(&mut stream, LONGEST_HELLO),
    };
    let mut next = first;
    let end = loop {
        match next {
            Ok(order) => {
                if inputs.send(Input::Order(order)).is_err() || obeyed.recv().is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                break Input::Unreadable(error.to_string());
            }
            Err(_) => break Input::Gone,
        }
        next = wire::read(&mut stream);
    };
    let _ = inputs.send(end);
}

/// How often the controller is told how far a preparation is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Unknown,
    Greeted,
    Prepared,
    Connected,
    Running,
}

struct Session {
    stream: Socket,
    inputs: Receiver<Input>,
    inputs_to: SyncSender<Input>,
    /// Lets the next order be read.
    obeyed: SyncSender<()>,
    permissions: Permissions,
    /// The controller may be anyone.
    anyone: bool,
    must_claim: bool,
    tuning: Option<TuningPolicy>,
    congestion_objects: bool,
    load: Option<Load>,
    observing: Option<Observing>,
    /// Restores what it has changed when it is dropped, after the load.
    tuner: Option<Tuner>,
    /// Of the phase under way, where this host observes.
    observes: Option<ObserveTimes>,
    /// Of the plan.
    interval: Nanos,
    extent: Option<Extent>,
    stage: Stage,
    last_live: Instant,
    phase: u32,
    /// On this host's clock.
    phase_start: Nanos,
    /// Of intervals whose counters have not been passed on.
    skipped: Vec<Reading>,
    /// Since when this host is claimed for the run. Dropped last: what measures has ended then.
    claim: Option<(Claim, Instant)>,
}

impl Session {
    fn run(&mut self) -> io::Result<()> {
        let mut last_received = Instant::now();
        loop {
            let patience = LEASE.saturating_sub(last_received.elapsed());
            match self.inputs.recv_timeout(patience) {
                Ok(Input::Order(order)) => {
                    self.handle_order(order)?;
                    // Orders wait while one is carried out, which can take long.
                    last_received = Instant::now();
                    let _ = self.obeyed.send(());
                }
                Ok(Input::News) => {}
                Ok(Input::ObserverEvent(ObserverEvent::Watching(probes))) => {
                    self.send_notice(&Notice::Watching { probes })?;
                }
                Ok(Input::ObserverEvent(ObserverEvent::Observed(observation))) => {
                    self.send_notice(&Notice::Observed { phase: self.phase, observation })?;
                }
                Ok(Input::Unreadable(reason)) => {
                    return self.fail(Status::Usage, format!("the agent refuses: {reason}"));
                }
                Ok(Input::Gone) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if last_received.elapsed() >= LEASE {
                        return Err(io::Error::new(
                            io::ErrorKind::TimedOut,
                            "the controller stopped responding",
                        ));
                    }
                }
            }
            self.send_load_events()?;
        }
    }

    fn send_notice(&mut self, notice: &Notice) -> io::Result<()> {
        wire::write(&mut self.stream, notice)
    }

    fn fail(&mut self, status: Status, message: impl ToString) -> io::Result<()> {
        self.send_notice(&Notice::Failed { status, message: message.to_string() })
    }

    /// Carries out an order, if it is within all limits and comes in its turn.
    fn handle_order(&mut self, order: Order) -> io::Result<()> {
        if self.anyone
            && let Err(refusal) = unauthenticated::check(&order)
        {
            return self.fail(Status::Usage, format!("the agent refuses: {refusal}"));
        }
        let known = Known {
            now: Monotonic.now(),
            memory: memory(),
            has_thread_for_each,
            extent: self.extent.as_ref(),
            io: &KnownOptions,
        };
        if let Err(error) = order.check(known) {
            return self.fail(Status::Usage, format!("the agent refuses: {error}"));
        }
        if !self.is_in_turn(&order) {
            return self.unexpected_order();
        }
        self.carry_out(order)
    }

    fn is_in_turn(&self, order: &Order) -> bool {
        match order {
            Order::Hello { .. } => self.stage == Stage::Unknown,
            Order::Ping { .. } | Order::Environment => self.stage >= Stage::Greeted,
            Order::Observe(_) => self.stage >= Stage::Greeted && self.observing.is_none(),
            Order::Claim(_) => self.stage == Stage::Greeted && self.claim.is_none(),
            Order::Tune(_) => self.stage == Stage::Greeted && self.tuner.is_none(),
            Order::ConfirmTuning | Order::Restore => self.tuner.is_some(),
            Order::Prepare(_) => self.stage == Stage::Greeted,
            Order::Connect(_) => self.stage == Stage::Prepared,
            Order::Start(_) => self.stage == Stage::Connected,
            // A phase may have ended by itself when these come.
            Order::Finish { .. } | Order::CutOff | Order::CountPackets => {
                self.stage >= Stage::Connected
            }
            Order::Summarize => self.stage >= Stage::Prepared,
        }
    }

    fn carry_out(&mut self, order: Order) -> io::Result<()> {
        match order {
            Order::Hello { version } if version != wire::VERSION => self.fail(
                Status::Peer,
                format!(
                    "this agent speaks version {} of the protocol and the controller {version}: \
                     install the same wirecost on both",
                    wire::VERSION
                ),
            ),
            Order::Hello { version } => match facts::read() {
                Ok(mut facts) => {
                    self.stage = Stage::Greeted;
                    facts.version = env!("CARGO_PKG_VERSION").to_owned();
                    let pid = std::process::id();
                    let available_memory = facts::available_memory();
                    self.send_notice(&Notice::Welcome {
                        version,
                        facts: Box::new(facts),
                        pid,
                        available_memory,
                        network_namespace: facts::network_namespace(),
                    })
                }
                Err(error) => self.fail(Status::Peer, error),
            },
            Order::Ping { number } => {
                self.send_notice(&Notice::Pong { number, now: Monotonic.now() })
            }
            Order::Claim(request) => self.claim(request),
            Order::Tune(_) if self.must_claim && self.claim.is_none() => self.fail(
                Status::Peer,
                "the controller changes settings before it has claimed this host",
            ),
            Order::Tune(tuning) => {
                let Some(policy) = &self.tuning else {
                    return self.fail(
                        Status::Usage,
                        "this agent changes no settings of its host; start it with --tune",
                    );
                };
                let control = self.control_connections().map(|(local, _)| local.ip());
                match Tuner::start(&tuning, policy, control) {
                    Ok((tuner, settings, left)) => {
                        self.tuner = Some(tuner);
                        self.send_notice(&Notice::Tuned { settings, left })
                    }
                    Err(TuningError { status, message }) => self.fail(status, message),
                }
            }
            Order::ConfirmTuning => match self.tuner.as_mut().map(Tuner::confirm) {
                None | Some(Ok(())) => Ok(()),
                Some(Err(TuningError { status, message })) => self.fail(status, message),
            },
            Order::Restore => {
                // Its sockets can keep a setting from being restored: a queue of an AF_XDP socket does not end.
                self.load = None;
                match self.tuner.take().map(Tuner::restore) {
                    None => self.unexpected_order(),
                    Some(Ok(left)) => self.send_notice(&Notice::Restored { left }),
                    Some(Err(TuningError { status, message })) => self.fail(status, message),
                }
            }
            Order::Prepare(_) if self.must_claim && self.claim.is_none() => self.fail(
                Status::Peer,
                "the controller prepares a run before it has claimed this host",
            ),
            Order::Prepare(plan)
                if !plan.congestion_objects.is_empty() && !self.congestion_objects =>
            {
                self.fail(
                    Status::Usage,
                    "this agent does not load congestion control from controllers (--cc-object): start it with \
                     --allow-cc-object",
                )
            }
            Order::Prepare(plan) => {
                self.interval = plan.interval;
                self.extent = Some(Extent::of(&plan));
                // Everything the session starts runs on the host's CPUs and nowhere else.
                if let Err(error) = wirecost_linux::thread::restrict(&plan.cpus) {
                    return self.fail(Status::Peer, format!("CPUs {:?}: {error}", plan.cpus));
                }
                let news = self.inputs_to.clone();
                // Where there is no room, what is there makes the session look for news as well.
                let notify = Arc::new(move || {
                    let _ = news.try_send(Input::News);
                });
                match self.prepare(*plan, notify)? {
                    Ok((load, prepared)) => {
                        self.load = Some(load);
                        self.stage = Stage::Prepared;
                        self.send_notice(&Notice::Prepared(prepared))
                    }
                    Err(error) => self.fail(status_of(&error), error),
                }
            }
            Order::Connect(endpoints) => match &mut self.load {
                Some(load) => match load.connect(endpoints) {
                    Ok(()) => {
                        self.stage = Stage::Connected;
                        self.send_notice(&Notice::Ready)
                    }
                    Err(error) => self.fail(status_of(&error), error),
                },
                None => self.unexpected_order(),
            },
            Order::Observe(mut request) => {
                // Behind address translation the controller knows other addresses.
                let own: Vec<_> = self.control_connections().collect();
                for part in &mut request.parts {
                    part.control.extend(&own);
                }
                let said = self.inputs_to.clone();
                let say = move |word| {
                    let _ = said.send(Input::ObserverEvent(word));
                };
                let interval = self.interval.max(SHORTEST_INTERVAL);
                match Observing::start(request, interval, say) {
                    Ok(observing) => {
                        self.observing = Some(observing);
                        Ok(())
                    }
                    Err(error) => self.fail(Status::Peer, error),
                }
            }
            Order::Start(times) => {
                self.phase = times.phase;
                self.phase_start = times.start;
                self.skipped.clear();
                match &mut self.load {
                    Some(load) => {
                        self.stage = Stage::Running;
                        if let (Some(observing), Some(times)) = (&self.observing, times.observe) {
                            observing.window(times);
                        }
                        self.observes = times.observe;
                        load.start(Schedule {
                            phase: times.phase,
                            start: times.start,
                            window: times.window,
                            unobserved: times.unobserved,
                        });
                        Ok(())
                    }
                    None => self.unexpected_order(),
                }
            }
            Order::Finish { limits } => match &self.load {
                Some(load) => {
                    load.finish(limits);
                    Ok(())
                }
                None => self.unexpected_order(),
            },
            Order::CutOff => match &self.load {
                Some(load) => {
                    load.cut_off();
                    Ok(())
                }
                None => self.unexpected_order(),
            },
            Order::CountPackets => match &mut self.load {
                Some(load) => {
                    let packets = load.drained();
                    self.send_notice(&Notice::Packets(packets))
                }
                None => self.unexpected_order(),
            },
            Order::Environment if self.anyone => {
                self.send_notice(&Notice::Environment(serde_json::Value::Null))
            }
            Order::Environment => {
                let environment = serde_json::to_value(crate::environment::read())?;
                self.send_notice(&Notice::Environment(environment))
            }
            Order::Summarize => {
                let Some(load) = &self.load else { return self.unexpected_order() };
                let settings = load
                    .settings()
                    .map(|effective| Setting {
                        name: effective.name.to_owned(),
                        host: String::new(),
                        requested: effective.requested,
                        effective: effective.effective,
                        previous: None,
                    })
                    .collect();
                let mut warnings = load.warnings().to_vec();
                warnings.extend(self.shared());
                if self.anyone {
                    warnings.push(UnauthenticatedPeer { host: String::new() }.into());
                }
                let placements =
                    load.placements().map(|(peer, placement)| (peer, placement.clone())).collect();
                self.send_notice(&Notice::Summary { settings, placements, warnings })
            }
        }
    }

    /// Prepares a load. The controller is told how far this is: files can take long.
    fn prepare(
        &self,
        plan: Plan,
        notify: Notify,
    ) -> io::Result<Result<(Load, Prepared), LoadError>> {
        let stream = self.stream.try_clone()?;
        let preparation = Preparation::default();
        Ok(std::thread::scope(|scope| {
            let (ends, end) = sync_channel(0);
            let told = &preparation;
            scope.spawn(move || report_progress(told, stream, end, PROGRESS_EVERY));
            let prepared = Load::prepare(plan, &self.permissions, notify, &preparation);
            // Ended when this scope returns, so that nobody else writes.
            drop::<SyncSender<()>>(ends);
            prepared
        }))
    }

    /// The connection of this session, and that of ssh(1) where it goes through one: each address of this host
    /// and that of the other.
    fn control_connections(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> + use<> {
        let address = |address: io::Result<socket2::SockAddr>| address.ok()?.as_socket();
        let own = address(self.stream.local_addr()).zip(address(self.stream.peer_addr()));
        let ssh = std::env::var("SSH_CONNECTION").ok().and_then(|text| ssh_connection(&text));
        own.into_iter().chain(ssh)
    }

    /// Claims this host for the run of the controller.
    fn claim(&mut self, request: ClaimRequest) -> io::Result<()> {
        let cpus = wirecost_linux::thread::allowed_cpus()?;
        let began = Instant::now();
        let conflict = ConflictPolicy { wait: request.wait, share: request.share };
        let run = request.run.printable();
        let mut waiting = SessionClaimWaiter { stream: self.stream.try_clone()? };
        match Claim::take(&run, &cpus, conflict, &mut waiting) {
            Ok(claim) => self.claim = Some((claim, began)),
            Err(ClaimError::Busy { holders }) => {
                return self.send_notice(&Notice::Busy { holders });
            }
            Err(error) => return self.fail(Status::Peer, error),
        }
        if self.must_claim && !request.observes {
            // What starts from now on may do no more than that.
            let tuning = if request.tunes { TUNING } else { &[] };
            // Only for its BPF programs.
            let congestion: &[_] = if request.loads_congestion_control { TRACING } else { &[] };
            confine::keep_only(&[LOAD, tuning, congestion].concat())?;
        }
        self.send_notice(&Notice::Claimed)
    }

    /// That other runs have used the same CPUs.
    fn shared(&self) -> Option<Warning> {
        let (claim, began) = self.claim.as_ref()?;
        machine::shared("", &claim.others_since(*began))
    }

    fn unexpected_order(&mut self) -> io::Result<()> {
        self.fail(Status::Peer, "the controller sent an unexpected order")
    }

    fn send_load_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.load.as_mut().and_then(Load::event) {
            let phase = self.phase;
            let notice = match event {
                LoadEvent::Snapshot(snapshot) if self.is_live(&snapshot) => {
                    let readings = std::mem::take(&mut self.skipped);
                    if !readings.is_empty() {
                        self.send_notice(&Notice::Readings { phase, readings })?;
                    }
                    Notice::Snapshot { phase, snapshot }
                }
                LoadEvent::Snapshot(snapshot) => {
                    self.skipped.push(Reading::new(&snapshot, self.phase_start));
                    continue;
                }
                LoadEvent::Quiesced(started) => {
                    self.end_of_window();
                    Notice::Quiesced { phase, started }
                }
                LoadEvent::Ended(result) => {
                    self.stage = Stage::Connected;
                    // Where datagrams were lost nothing is held: the others know when it is over.
                    self.end_of_window();
                    if let (Some(observing), Some(_)) = (&self.observing, self.observes.take()) {
                        observing.request_report();
                    }
                    Notice::Ended(result)
                }
                LoadEvent::Failed(message) => Notice::Failed { status: Status::Peer, message },
            };
            self.send_notice(&notice)?;
        }
        Ok(())
    }

    /// A window whose end nobody knew before has come to it.
    fn end_of_window(&self) {
        if let (Some(observing), Some(ObserveTimes { end: None, .. })) =
            (&self.observing, self.observes)
        {
            observing.end();
        }
    }

    fn is_live(&mut self, snapshot: &Snapshot) -> bool {
        if snapshot.edge == Edge::Interval && self.last_live.elapsed() < LIVE {
            return false;
        }
        self.last_live = Instant::now();
        true
    }
}

/// Tells the controller how far the preparation is, until `end` is disconnected. A controller that has gone cancels it.
fn report_progress(
    preparation: &Preparation,
    mut stream: impl Write,
    end: Receiver<()>,
    every: Duration,
) {
    while end.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let (done, total) = preparation.progress();
        if wire::write(&mut stream, &Notice::Preparing { done, total }).is_err() {
            return preparation.cancel();
        }
    }
}

/// Of the variable SSH_CONNECTION, as sshd(8) sets it (address and port of the client, then of the
/// server): that of the server, and of the client.
fn ssh_connection(text: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = text.split_ascii_whitespace();
    let mut address =
        || Some(SocketAddr::new(words.next()?.parse().ok()?, words.next()?.parse().ok()?));
    let client = address()?;
    Some((address()?, client))
}

/// Whether an engine has a thread for each strand. One that this host does not have is refused when the plan is carried out.
#[must_use]
pub fn has_thread_for_each(engine: &EngineName) -> bool {
    engines::find(engine.as_str()).is_some_and(|engine| !engine.shares_threads())
}

/// Bytes that this machine has, or of which this process may use a plan's share.
pub fn memory() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = machine.totalram.saturating_mul(machine.mem_unit.into());
    let limit = getrlimit(Resource::Data).current.unwrap_or(u64::MAX);
    machine.min(limit.saturating_mul(MEMORY_SHARE))
}

/// Who waits for a claim.
struct SessionClaimWaiter {
    stream: Socket,
}

impl ClaimWaiter for SessionClaimWaiter {
    fn is_cancelled(&self) -> bool {
        is_gone(&self.stream, Some(Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn on_conflict(&mut self, _: &[Holder]) {}
}

/// How a run ends that a host cannot carry out.
pub fn status_of(error: &LoadError) -> Status {
    match error {
        LoadError::Plan(_) => Status::Usage,
        LoadError::System { .. }
        | LoadError::Protocol { .. }
        | LoadError::NotAPartner { .. }
        | LoadError::NoConsent { .. }
        | LoadError::Engine(_) => Status::Peer,
        LoadError::CongestionControl(unloaded) if unloaded.is_of_object() => Status::Usage,
        LoadError::CongestionControl(_) => Status::Peer,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_waits_for_a_preparation_is_told_how_far_it_is() {
        let (mut controller, agent) = UnixStream::pair().unwrap();
        let preparation = Preparation::default();
        let (ends, end) = sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let told = &preparation;
            scope.spawn(move || report_progress(told, agent, end, Duration::from_millis(1)));
            for _ in 0..3 {
                let notice: Notice = wire::read(&mut controller).unwrap();
                assert_eq!(notice, Notice::Preparing { done: 0, total: 0 });
            }
            drop(ends);
        });
        // All that was written is whole, and nothing follows.
        loop {
            match wire::read::<Notice>(&mut controller) {
                Ok(notice) => assert_eq!(notice, Notice::Preparing { done: 0, total: 0 }),
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof),
            }
        }
    }

    #[test]
    fn a_controller_that_goes_cancels_what_is_prepared_for_it() {
        let (controller, agent) = UnixStream::pair().unwrap();
        let preparation = Preparation::default();
        let (ends, end) = sync_channel::<()>(0);
        drop(controller);
        // Returns by itself, as nobody disconnects `end`.
        report_progress(&preparation, agent, end, Duration::from_millis(1));
        drop(ends);
        assert!(preparation.is_cancelled());
    }

    #[test]
    fn a_controller_that_goes_before_the_answer_is_no_failure() {
        let (mut controller, agent) = UnixStream::pair().unwrap();
        wire::write(&mut controller, &Order::Hello { version: wire::VERSION }).unwrap();
        drop(controller);
        let policy = SessionPolicy {
            files: Files::default(),
            writable: Files::default(),
            must_claim: false,
            hello: None,
            anyone: false,
            tuning: None,
            congestion_objects: false,
        };
        session(agent.into(), policy, || ()).unwrap();
    }
}
