//! The agent: carries out the orders of one controller at a time for each session, and ends what it
//! runs when the controller is gone.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use wirecost_linux::clock::Monotonic;
use wirecost_linux::{environment, facts};
pub use wirecost_load::files::Files;
use wirecost_load::load::{Load, LoadError, LoadEvent, Schedule};
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::measure::{Cut, Edge, Setting};
use wirecost_model::observe::ObserveTimes;
use wirecost_model::plan::Extent;
use wirecost_model::plan::limits::SHORTEST_INTERVAL;
use wirecost_model::status::Status;

use crate::acceptor::Acceptor;
use crate::observing::{Observing, Said};
use crate::wire::{self, Known, LONGEST_HELLO, Notice, Order};

/// A controller that has said nothing for this long is gone: it asks for the time every other second.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// Counters of intervals are passed on no more often; all of them come with the phase's result.
const LIVE: Duration = Duration::from_millis(90);

/// Sessions at a time. A run has one for each of its hosts that this agent plays.
const SESSIONS: usize = 64;

/// Inputs of a session that wait to be dealt with. Of orders there is one: the next is read when it has
/// been obeyed. The writes of a controller that does not read its answers then block, so it cannot fill
/// memory with orders.
const INPUTS: usize = 64;

/// Why an agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot listen at {address}: {source}")]
    Listen {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("session: {0}")]
    Session(#[source] io::Error),
}

/// A stream that can be read and written at once.
trait Duplex: Read + Write + Send + Sized + 'static {
    /// The same stream for another thread. No write blocks for longer than a lease.
    fn second(&self) -> io::Result<Self>;

    /// Ends the stream for all who hold it.
    fn end(&self);
}

impl Duplex for TcpStream {
    fn second(&self) -> io::Result<Self> {
        self.set_write_timeout(Some(LEASE))?;
        self.try_clone()
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Duplex for UnixStream {
    fn second(&self) -> io::Result<Self> {
        self.set_write_timeout(Some(LEASE))?;
        self.try_clone()
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Serves controllers that connect to `address`, each in a session of its own, until the process is
/// ended. Their orders may name `files`. `listening` is told where.
///
/// # Errors
/// When it cannot listen.
pub fn listen(
    address: &str,
    files: &Files,
    listening: impl FnOnce(std::net::SocketAddr),
) -> Result<(), AgentError> {
    let failed = |source| AgentError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listening(listener.local_addr().map_err(failed)?);
    let mut acceptor = Acceptor::new(listener).map_err(failed)?;
    let sessions = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((mut stream, hello)) = acceptor.next() else {
            // The kernel is out of memory, and may not be for long.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let Some(place) = Place::take(&sessions) else {
            let message = format!("this agent has {SESSIONS} sessions already, its limit");
            // Fits the empty buffer of a new connection.
            let _ = wire::write(&mut stream, &Notice::Failed { status: Status::Peer, message });
            continue;
        };
        // A session changes its threads' CPUs and descriptors: it has threads of its own.
        let session = std::thread::Builder::new().name("wirecost-session".to_owned());
        let files = files.clone();
        let _ = session.spawn(move || {
            let _ = serve(stream, Some(hello), files);
            drop(place);
        });
    }
}

/// One of an agent's sessions, which is over when this is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(sessions: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count: usize| (count < SESSIONS).then_some(count + 1);
        sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(sessions.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves the one session whose stream is given. Its orders may name `files`.
///
/// # Errors
/// When the stream fails other than by its end.
pub fn session(stream: UnixStream, files: Files) -> Result<(), AgentError> {
    serve(stream, None, files).map_err(AgentError::Session)
}

enum Input {
    Order(Order),
    /// The load has news.
    News,
    /// So has who observes.
    Said(Said),
    Gone,
}

/// `hello`: the first order, where it has been read.
fn serve<S: Duplex>(stream: S, hello: Option<Order>, files: Files) -> io::Result<()> {
    let (inputs_to, inputs) = sync_channel(INPUTS);
    let (obeyed, next) = sync_channel(1);
    let reader = stream.second()?;
    let orders = inputs_to.clone();
    std::thread::Builder::new()
        .name("wirecost-orders".to_owned())
        .spawn(move || read_orders(reader, hello, &orders, &next))?;
    let mut session = Session {
        stream,
        inputs,
        inputs_to,
        obeyed,
        files,
        load: None,
        observing: None,
        observes: None,
        interval: 0,
        extent: None,
        stage: Stage::Unknown,
        last_live: Instant::now(),
        phase: 0,
    };
    let result = session.run();
    // The thread that reads orders blocks until then, however silent the other side is.
    session.stream.end();
    result
}

fn read_orders(
    stream: impl Read,
    hello: Option<Order>,
    inputs: &SyncSender<Input>,
    obeyed: &Receiver<()>,
) {
    let mut stream = BufReader::new(stream);
    let first = match hello {
        Some(hello) => Ok(hello),
        None => wire::read_within(&mut stream, LONGEST_HELLO),
    };
    let mut next = first;
    while let Ok(order) = next {
        if inputs.send(Input::Order(order)).is_err() || obeyed.recv().is_err() {
            return;
        }
        next = wire::read(&mut stream);
    }
    let _ = inputs.send(Input::Gone);
}

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Unknown,
    Greeted,
    Prepared,
    Connected,
    Running,
}

struct Session<S> {
    stream: S,
    inputs: Receiver<Input>,
    inputs_to: SyncSender<Input>,
    /// Lets the next order be read.
    obeyed: SyncSender<()>,
    files: Files,
    load: Option<Load>,
    observing: Option<Observing>,
    /// Of the phase under way, where this host observes.
    observes: Option<ObserveTimes>,
    /// Of the plan.
    interval: Nanos,
    extent: Option<Extent>,
    stage: Stage,
    last_live: Instant,
    phase: u32,
}

impl<S: Duplex> Session<S> {
    fn run(&mut self) -> io::Result<()> {
        let mut heard = Instant::now();
        loop {
            let patience = LEASE.saturating_sub(heard.elapsed());
            match self.inputs.recv_timeout(patience) {
                Ok(Input::Order(order)) => {
                    heard = Instant::now();
                    self.obey(order)?;
                    let _ = self.obeyed.send(());
                }
                Ok(Input::News) => {}
                Ok(Input::Said(Said::Watching(probes))) => {
                    self.say(&Notice::Watching { probes })?;
                }
                Ok(Input::Said(Said::Observed(observation))) => {
                    self.say(&Notice::Observed { phase: self.phase, observation })?;
                }
                Ok(Input::Gone) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if heard.elapsed() >= LEASE {
                        return Err(io::Error::new(
                            io::ErrorKind::TimedOut,
                            "the controller has gone silent",
                        ));
                    }
                }
            }
            self.tell_news()?;
        }
    }

    fn say(&mut self, notice: &Notice) -> io::Result<()> {
        wire::write(&mut self.stream, notice)
    }

    fn fail(&mut self, status: Status, message: impl ToString) -> io::Result<()> {
        self.say(&Notice::Failed { status, message: message.to_string() })
    }

    /// Carries out an order, if it is within all limits and comes in its turn.
    fn obey(&mut self, order: Order) -> io::Result<()> {
        let known = Known { now: Monotonic.now(), memory: memory(), extent: self.extent.as_ref() };
        if let Err(error) = order.check(known) {
            return self.fail(Status::Usage, format!("the agent refuses: {error}"));
        }
        if !self.is_in_turn(&order) {
            return self.out_of_turn();
        }
        self.carry_out(order)
    }

    fn is_in_turn(&self, order: &Order) -> bool {
        match order {
            Order::Hello { .. } => self.stage == Stage::Unknown,
            Order::Ping { .. } | Order::Environment => self.stage >= Stage::Greeted,
            Order::Observe(_) => self.stage >= Stage::Greeted && self.observing.is_none(),
            Order::Prepare(_) => self.stage == Stage::Greeted,
            Order::Connect(_) => self.stage == Stage::Prepared,
            Order::Start(_) => self.stage == Stage::Connected,
            // A phase may have ended by itself when these come.
            Order::Finish { .. } | Order::CutOff => self.stage >= Stage::Connected,
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
                    self.say(&Notice::Welcome { version, facts: Box::new(facts), pid })
                }
                Err(error) => self.fail(Status::Peer, error),
            },
            Order::Ping { number } => self.say(&Notice::Pong { number, now: Monotonic.now() }),
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
                match Load::prepare(*plan, &self.files, notify) {
                    Ok((load, prepared)) => {
                        self.load = Some(load);
                        self.stage = Stage::Prepared;
                        self.say(&Notice::Prepared(prepared))
                    }
                    Err(error) => self.fail(status_of(&error), error),
                }
            }
            Order::Connect(endpoints) => match &mut self.load {
                Some(load) => match load.connect(endpoints) {
                    Ok(()) => {
                        self.stage = Stage::Connected;
                        self.say(&Notice::Ready)
                    }
                    Err(error) => self.fail(status_of(&error), error),
                },
                None => self.out_of_turn(),
            },
            Order::Observe(request) => {
                let said = self.inputs_to.clone();
                let say = move |word| {
                    let _ = said.send(Input::Said(word));
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
                    None => self.out_of_turn(),
                }
            }
            Order::Finish { limits } => match &self.load {
                Some(load) => {
                    load.finish(limits);
                    Ok(())
                }
                None => self.out_of_turn(),
            },
            Order::CutOff => match &self.load {
                Some(load) => {
                    load.cut_off();
                    Ok(())
                }
                None => self.out_of_turn(),
            },
            Order::Environment => {
                let environment = serde_json::to_value(environment::read())?;
                self.say(&Notice::Environment(environment))
            }
            Order::Summarize => {
                let Some(load) = &self.load else { return self.out_of_turn() };
                let settings = load
                    .settings()
                    .map(|granted| Setting {
                        name: granted.name.to_owned(),
                        host: String::new(),
                        asked: granted.asked.clone(),
                        granted: granted.granted.clone(),
                    })
                    .collect();
                let warnings = load.warnings().to_vec();
                self.say(&Notice::Summary { settings, warnings })
            }
        }
    }

    fn out_of_turn(&mut self) -> io::Result<()> {
        self.fail(Status::Peer, "the controller gave an order out of turn")
    }

    fn tell_news(&mut self) -> io::Result<()> {
        while let Some(event) = self.load.as_mut().and_then(Load::event) {
            let phase = self.phase;
            let notice = match event {
                LoadEvent::Cut(cut) => match self.is_live(&cut) {
                    true => Notice::Cut { phase, cut },
                    false => continue,
                },
                LoadEvent::Held(started) => {
                    self.end_of_window();
                    Notice::Held { phase, started }
                }
                LoadEvent::Ended(result) => {
                    self.stage = Stage::Connected;
                    // Where datagrams were lost nothing is held: the others know when it is over.
                    self.end_of_window();
                    if let (Some(observing), Some(_)) = (&self.observing, self.observes.take()) {
                        observing.tell();
                    }
                    Notice::Ended(result)
                }
                LoadEvent::Failed(message) => Notice::Failed { status: Status::Peer, message },
            };
            self.say(&notice)?;
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

    fn is_live(&mut self, cut: &Cut) -> bool {
        if cut.edge == Edge::Interval && self.last_live.elapsed() < LIVE {
            return false;
        }
        self.last_live = Instant::now();
        true
    }
}

/// Bytes that this machine has.
fn memory() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.totalram.saturating_mul(machine.mem_unit.into())
}

fn status_of(error: &LoadError) -> Status {
    match error {
        LoadError::Plan(_) => Status::Usage,
        LoadError::System { .. }
        | LoadError::Protocol { .. }
        | LoadError::NoConsent { .. }
        | LoadError::NoRing(_) => Status::Peer,
    }
}
