//! Agents that listen, as on other machines.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use wirecost_fleet::wire::{self, Notice, Order, PhaseTimes};
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, MILLISECOND};
use wirecost_model::plan::{Address, Endpoints, EngineKind, Plan, Prepared};
use wirecost_model::status::Status;
use wirecost_program::program;

use crate::honesty::profile;
use crate::program::{Program, Running};

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

    /// Its processes, that of sessions included.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let running = self.running.as_ref().unwrap();
        running.children().into_iter().chain([running.pid]).collect()
    }

    /// The process that listens.
    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().pid
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.signal(Signal::TERM);
            // Another failure is under way, and the one to tell.
            if std::thread::panicking() {
                running.wait_only();
            } else {
                assert_eq!(running.wait().code, 1015);
            }
        }
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

#[test]
fn two_controllers_at_once() {
    let agent = Agent::start();
    let host = format!("peer={}", agent.address);
    let start = || Program::short_run("@rr", &["--host", &host, "--json", "run.json"]).start();
    let both = [start(), start()];
    for running in both {
        let finished = running.wait();
        assert_eq!(finished.code, 0, "{finished}");
        assert!(finished.document().count("/transactions/count") > 0);
    }
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
        engine: EngineKind::Epoll,
        workers: Some(1),
        cpus: vec![],
        interval: 100 * MILLISECOND,
        program: programs[host as usize].clone(),
        data_address: Some("127.0.0.1".parse().unwrap()),
        tcp_samples: 0,
    }
}

/// A controller that says what it likes.
pub(crate) struct Hostile {
    pub(crate) stream: TcpStream,
}

impl Hostile {
    pub(crate) fn connect(address: &str) -> Self {
        let mut hostile = Self { stream: TcpStream::connect(address).unwrap() };
        hostile.order(&Order::Hello { version: wire::VERSION });
        assert!(matches!(hostile.notice(), Notice::Welcome { .. }));
        hostile
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
    let mut hostile = Hostile::connect(&agent.address);
    hostile.order(&Order::Connect(Endpoints::default()));
    assert!(matches!(hostile.notice(), Notice::Failed { .. }));
    let host = format!("peer={}", agent.address);
    Program::short_run("@rr", &["--host", &host]).measure();
}
