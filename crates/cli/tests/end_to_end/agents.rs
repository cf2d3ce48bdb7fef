//! Agents that listen, as on other machines.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;
use wirecost_fleet::machine;
use wirecost_fleet::wire::{self, ClaimRequest, Notice, Order, PhaseTimes};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::privilege::{Capability, LOAD, OBSERVING, missing};
use wirecost_model::clock::{Clock, MILLISECOND};
use wirecost_model::plan::{Address, Endpoints, EngineName, Plan, Prepared};
use wirecost_model::status::Status;
use wirecost_program::program;

use crate::honesty::profile;
use crate::interruption::{is_interrupted, long, moves};
use crate::program::{Program, Running, processes, signal_to, until};

/// An agent that listens; it ends with this.
pub(crate) struct Agent {
    running: Option<Running>,
    pub(crate) address: String,
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let program = Program::new(["agent", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut running = program.start();
        let line = running.line(|line| line.contains("listens at"));
        let address = line.split_whitespace().last().unwrap().to_owned();
        Self { running: Some(running), address }
    }

    /// The process that listens.
    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().pid
    }
}

impl Agent {
    /// Processes of its sessions.
    pub(crate) fn sessions(&self) -> Vec<u32> {
        self.running.as_ref().unwrap().children()
    }

    fn error_line(&mut self, fits: impl Fn(&str) -> bool) -> String {
        self.running.as_mut().unwrap().error_line(fits)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.running.take().into_iter().for_each(end);
    }
}

/// Ends a program that serves until SIGTERM.
pub(crate) fn end(server: Running) {
    server.signal(Signal::TERM);
    // Another failure is under way, and the one to tell.
    if std::thread::panicking() {
        server.wait_only();
    } else {
        assert_eq!(server.wait().code, 1015);
    }
}

#[test]
fn a_run_over_an_agent_that_listens() {
    let agent = Agent::start();
    let host = format!("peer={}", agent.address);
    let document = Program::short_run("@rr", &["--host", &host]).measure();
    assert_eq!(document.text("/hosts/1/name"), "peer");
    assert_eq!(document.text("/hosts/1/address"), agent.address);
    assert!(document.count("/transactions/count") > 0);
    // It is there for the next one.
    let document = Program::short_run("@connect", &["--host", &host]).measure();
    assert!(document.count("/transactions/count") > 0);
}

/// An agent at 127.0.0.1, and its traffic at another address of its host.
#[test]
fn data_takes_another_network_than_the_agent() {
    let agent = Agent::start();
    let host = format!("server={},data=127.0.0.5", agent.address);
    let finished = Program::new(["run", "@stream", "--duration", "1s", "--ramp", "100ms"])
        .args(["--host", &host, "--observe", "none", "--quiet", "--json", "run.json"])
        .start();
    let finds = || {
        let connections = fs::read_to_string("/proc/net/tcp").unwrap();
        // Established, to 127.0.0.5.
        connections.lines().any(|line| line.contains(" 0500007F:") && line.contains(" 01 "))
    };
    until("a connection to the other address", finds);
    let finished = finished.wait();
    assert_eq!(finished.code, 0, "{finished}");
    // False failures: 1e-9, computed: it moves Gb/s.
    assert!(finished.document().number("/throughput/bits_per_second") > 1e6);
    let refused =
        Program::new(["run", "@stream", "--host", "server=127.0.0.1,data=there"]).finish();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("data=there must be an IP address"), "{refused}");
}

#[test]
fn two_controllers_at_once() {
    let agent = Agent::start();
    let host = format!("peer={}", agent.address);
    let first = moves(long().args(["--host", &host]).start());
    // Each controller is as if on a machine of its own; the agent's is what both want.
    let finished = Program::short_run("@rr", &["--host", &host, "--json", "run.json"]).finish();
    assert_eq!(finished.code, 3, "{finished}");
    let error = finished.document().text("/error").to_owned();
    assert!(error.contains("another run measures on peer"), "{error}");
    assert!(error.contains("run @stream --duration 1h"), "{error}");
    let document = Program::short_run("@rr", &["--host", &host, "--share"]).measure();
    assert!(document.count("/transactions/count") > 0);
    let warning = document.warning("shared-machine");
    assert!(warning.contains("CPUs of peer") && warning.contains("@stream"), "{warning}");
    first.signal(Signal::INT);
    is_interrupted(first);
    // Its claim ends with it.
    Program::short_run("@rr", &["--host", &host]).measure();
}

#[test]
fn a_session_that_is_killed_ends_its_run_only() {
    let mut agent = Agent::start();
    let host = format!("peer={}", agent.address);
    for (signal, name) in [(Signal::KILL, "SIGKILL"), (Signal::ABORT, "SIGABRT")] {
        let running = moves(long().args(["--host", &host]).start());
        for session in agent.sessions() {
            signal_to(session, signal);
        }
        let finished = running.wait();
        let document = finished.document();
        assert_eq!((finished.code, document.text("/status")), (3, "peer"), "{finished}");
        let error = document.text("/error").to_owned();
        assert!(error.contains("peer: the process of the session (pid "), "{error}");
        assert!(error.contains(name), "{error}");
        agent.error_line(|line| {
            line.contains("wirecost: session of 127.0.0.1") && line.contains(name)
        });
    }
    let document = Program::short_run("@rr", &["--host", &host]).measure();
    assert!(document.count("/transactions/count") > 0);
    until("all sessions have ended", || agent.sessions().is_empty());
}

#[test]
fn a_controller_that_is_killed_takes_its_sessions_along() {
    let agent = Agent::start();
    let running = moves(long().args(["--host", &format!("peer={}", agent.address)]).start());
    assert!(!agent.sessions().is_empty());
    let mark = running.mark.clone();
    running.signal(Signal::KILL);
    running.wait_only();
    until("all sessions have ended", || agent.sessions().is_empty());
    until("the controller's own agent has ended", || processes(&mark).is_empty());
}

/// One that can do nothing by itself any more.
#[test]
fn a_session_that_hangs_is_killed_when_its_controller_has_gone() {
    let mut agent = Agent::start();
    let controller = Hostile::connect(&agent.address);
    let [pid] = agent.sessions()[..] else { panic!("one session") };
    signal_to(pid, Signal::STOP);
    drop(controller);
    let line = agent.error_line(|line| line.contains("wirecost: session of 127.0.0.1"));
    assert!(line.contains("was killed: it did not end after its controller had gone"), "{line}");
    assert!(agent.sessions().is_empty());
}

/// The numbers of a line of /proc/PID/limits.
fn limits(pid: u32, name: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

/// A line of /proc/PID/status.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn a_session_has_limits_and_few_rights() {
    let agent = Agent::with(&["--session-memory", "512m", "--session-descriptors", "300"]);
    let mut session = Hostile::greet(&agent.address);
    let [pid] = agent.sessions()[..] else { panic!("one session") };
    assert_eq!(limits(pid, "Max data size"), ["536870912"; 2]);
    assert_eq!(limits(pid, "Max open files")[1], "300");
    assert_eq!(limits(pid, "Max core file size"), ["0"; 2]);
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    let of = |names: &[Capability]| names.iter().fold(0, |all, one| all | one.bits());
    let effective = || u64::from_str_radix(&status(pid, "CapEff"), 16).unwrap();
    let most = of(LOAD) | of(OBSERVING);
    assert_eq!(effective() & !most, 0, "{:x}", effective());
    if missing(&[LOAD, OBSERVING].concat()).is_empty() {
        assert_eq!(effective(), most);
    }
    // A run that observes nothing needs no more than this from here on.
    session.claim();
    assert_eq!(effective() & !of(LOAD), 0, "{:x}", effective());
    // A plan that needs more memory than the session may use is refused, not begun.
    let mut large = plan(0);
    large.program.groups[0].strands = 600_000;
    session.order(&Order::Prepare(Box::new(large)));
    let Notice::Failed { message, .. } = session.notice() else { panic!("it prepares") };
    assert!(message.contains("the memory in bytes that the plan needs"), "{message}");
    // Nor is a run prepared for which the host was not claimed.
    let mut hostile = Hostile::greet(&agent.address);
    hostile.order(&Order::Prepare(Box::new(plan(0))));
    let Notice::Failed { message, .. } = hostile.notice() else { panic!("it prepares") };
    assert!(message.contains("claimed"), "{message}");
}

#[test]
fn the_master_elsewhere() {
    let (master, peer) = (Agent::start(), Agent::start());
    let hosts = [format!("master={}", master.address), format!("server={}", peer.address)];
    let arguments = ["--host", &hosts[0], "--host", &hosts[1]];
    let document = Program::short_run("@rr", &arguments).measure();
    assert_eq!(document.text("/hosts/0/address"), master.address);
    assert_eq!(document.text("/hosts/1/name"), "server");
    assert!(document.count("/transactions/count") > 0);
}

/// What a host of `@stream` on loopback is to do.
pub(crate) fn plan(host: u32) -> Plan {
    let programs = program::compile(&profile("stream")).unwrap();
    Plan {
        token: "an honest token".to_owned(),
        seed: 1,
        host,
        engine: EngineName::default(),
        workers: Some(1),
        cpus: vec![],
        shares_cpus: false,
        interval: 100 * MILLISECOND,
        program: programs[host as usize].clone(),
        data_address: Some("127.0.0.1".parse().unwrap()),
        tcp_samples: 0,
        details: false,
        logged_operations: 0,
        receive_stamps: false,
        congestion_objects: Vec::new(),
    }
}

/// A controller that says what it likes.
pub(crate) struct Hostile {
    pub(crate) stream: TcpStream,
}

impl Hostile {
    pub(crate) fn connect(address: &str) -> Self {
        let mut hostile = Self::greet(address);
        hostile.claim();
        hostile
    }

    /// Claims nothing yet.
    fn greet(address: &str) -> Self {
        let mut hostile = Self { stream: TcpStream::connect(address).unwrap() };
        hostile.order(&Order::Hello { version: wire::VERSION });
        assert!(matches!(hostile.notice(), Notice::Welcome { .. }));
        hostile
    }

    fn claim(&mut self) {
        let mut run = machine::this_run("a test".to_owned()).unwrap();
        // All are one run.
        run.id = "hostile".to_owned();
        let (wait, share, observes) = (Duration::ZERO, false, false);
        self.order(&Order::Claim(ClaimRequest {
            run,
            wait,
            share,
            observes,
            tunes: false,
            loads_congestion_control: false,
        }));
        assert!(matches!(self.notice(), Notice::Claimed));
    }

    pub(crate) fn order(&mut self, order: &Order) {
        wire::write(&mut self.stream, order).unwrap();
    }

    pub(crate) fn notice(&mut self) -> Notice {
        wire::read(&mut self.stream).unwrap()
    }

    fn prepare(&mut self, host: u32) -> Prepared {
        self.order(&Order::Prepare(Box::new(plan(host))));
        match self.notice() {
            Notice::Prepared(prepared) => prepared,
            other => panic!("{other:?}"),
        }
    }

    /// Lets the master connect to the peer at `told`; it must refuse, and send nothing later either.
    fn refuses(mut self, master: Prepared, told: Prepared) {
        self.order(&Order::Connect(Endpoints { hosts: vec![master, told] }));
        let Notice::Failed { status, message } = self.notice() else { panic!("it connects") };
        assert_eq!(status, Status::Peer);
        assert!(message.contains("has not agreed to receive"), "{message}");
        let start = Monotonic.now();
        let window = Some((start, start + 50 * MILLISECOND));
        let times = |phase, window| PhaseTimes {
            phase,
            start,
            window,
            unobserved: Vec::new(),
            observe: None,
        };
        self.order(&Order::Start(times(0, None)));
        self.order(&Order::Start(times(1, window)));
        self.order(&Order::Summarize);
        while !matches!(self.notice(), Notice::Summary { .. }) {}
    }
}

/// Somebody who has agreed to nothing: hangs up on everybody, and tells what came.
fn victim() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = vec![0; 1 << 16];
            let got = stream.read(&mut bytes).unwrap_or(0);
            bytes.truncate(got);
            if sender.send(bytes).is_err() {
                return;
            }
        }
    });
    (address, received)
}

#[test]
fn who_has_not_agreed_gets_nothing() {
    let (agent, peer) = (Agent::start(), Agent::start());
    let (address, received) = victim();

    // The peer is asked and agrees, but not to what the controller says of it.
    let mut of_peer = Hostile::connect(&peer.address);
    let mut hostile = Hostile::connect(&agent.address);
    let honest = of_peer.prepare(1);
    let mut told = honest.clone();
    for service in &mut told.services {
        service.addresses.fill(Address::Inet(address));
    }
    let master = hostile.prepare(0);
    hostile.refuses(master, told);
    assert!(received.try_recv().is_err(), "nobody needed to connect there");

    // The victim itself is asked.
    let mut told = honest.clone();
    told.consent = vec![Address::Inet(address)];
    for service in &mut told.services {
        service.addresses.fill(Address::Inet(address));
    }
    let mut hostile = Hostile::connect(&agent.address);
    let master = hostile.prepare(0);
    hostile.refuses(master, told);
    let asked: Vec<Vec<u8>> = received.try_iter().collect();
    assert_eq!(asked.len(), 1, "one question and no more");
    assert!(asked[0].len() <= 32, "a question is short: {} bytes", asked[0].len());

    // Nobody is asked.
    let mut told = honest;
    told.consent.clear();
    let mut hostile = Hostile::connect(&agent.address);
    let master = hostile.prepare(0);
    hostile.refuses(master, told);
}

/// What is no controller does not disturb an agent.
#[test]
fn strangers_at_an_agent() {
    use std::io::Write;
    let agent = Agent::start();
    let stream = TcpStream::connect(&agent.address).unwrap();
    (&stream).write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // It hangs up.
    let mut rest = Vec::new();
    let _ = (&stream).read_to_end(&mut rest);
    let mut hostile = Hostile { stream: TcpStream::connect(&agent.address).unwrap() };
    hostile.order(&Order::Hello { version: wire::VERSION + 1 });
    assert!(matches!(hostile.notice(), Notice::Failed { .. }));
    let mut hostile = Hostile::greet(&agent.address);
    hostile.order(&Order::Connect(Endpoints::default()));
    assert!(matches!(hostile.notice(), Notice::Failed { .. }));
    let host = format!("peer={}", agent.address);
    Program::short_run("@rr", &["--host", &host]).measure();
}

/// Sessions cost memory, so an agent has a limited number of them. One that ends makes room.
#[test]
fn an_agent_has_a_limited_number_of_sessions() {
    let agent = Agent::start();
    let mut sessions: Vec<Hostile> = (0..64).map(|_| Hostile::greet(&agent.address)).collect();
    let answer = || {
        let mut another = Hostile { stream: TcpStream::connect(&agent.address).unwrap() };
        another.order(&Order::Hello { version: wire::VERSION });
        another.notice()
    };
    match answer() {
        Notice::SessionEnded { reason } => assert!(reason.contains("64 sessions"), "{reason}"),
        other => panic!("{other:?}"),
    }
    sessions.pop();
    until("there is room for another session", || matches!(answer(), Notice::Welcome { .. }));
}
