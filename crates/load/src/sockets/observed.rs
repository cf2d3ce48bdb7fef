//! Flows of a peer whose device does not tell how it spreads packets: which CPU handles them is asked of the peer.
//!
//! The peer reads the CPU of a connection's last packet (SO_INCOMING_CPU). First a few connections show which CPUs there
//! are. Then a strand opens connections until one arrives where it belongs: only the connection itself can tell, as a
//! device without a hash of its own (veth) has the kernel use one that each socket draws:
//! <https://elixir.bootlin.com/linux/v6.12/source/include/net/sock.h#L2251> (`skb_set_hash_from_sk`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_linux::plain_option::{self, Level};
use wirecost_linux::thread;
use wirecost_model::clock::{Clock, Nanos, SECOND};
use wirecost_model::plan::Address;
use wirecost_model::program::ServiceRef;
use wirecost_program::hello::Hello;
use wirecost_program::net::Owner;
use wirecost_program::socket_setup::SocketSetup;
use wirecost_program::step::Open;

use super::probe::{Heard, Probe};
use crate::transports::Transport;

/// Connections that ask at the same time.
pub(super) const TOGETHER: usize = 32;
/// Connections for each CPU that has been seen: one that takes its share of the flows and is not seen among so many has
/// a chance of e^-32.
pub(super) const EACH: usize = 32;
/// The limit for a service.
const MOST: usize = 512;
/// How long one round may take: a SYN that is lost costs a second.
const ROUND: Nanos = 15 * SECOND;
/// Connections that begin at a port whose packets arrived on the right CPU before.
const KNOWN_PORTS: u32 = 3;
/// Such ports that are tried for one connection.
const PORTS_TRIED: usize = 16;

/// The services of peers whose CPUs have been asked for.
pub(crate) type ObservedFlows = BTreeMap<ServiceRef, ObservedService>;

/// On which CPUs of a peer the packets to a service arrive.
#[derive(Debug, Default)]
pub(crate) struct ObservedService {
    /// Ascending.
    pub(super) cpus: Vec<u32>,
    /// Where the connections that showed it went to.
    to: Option<SocketAddr>,
    /// Ports from which packets arrived on each CPU.
    ports: BTreeMap<u32, Vec<u16>>,
}

/// The CPU on which the packets of a strand are to arrive.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) cpu: u32,
    /// How many CPUs packets arrive on.
    cpus: usize,
    /// Ports from which packets arrived there.
    ports: Vec<u16>,
}

impl ObservedService {
    /// What a strand with this place among `cpus` wants, which sends to an address.
    pub(super) fn wanted(&self, place: usize, to: SocketAddr) -> Option<Wanted> {
        let cpu = *self.cpus.get(place)?;
        let ports = self.ports.get(&cpu).filter(|_| self.to == Some(to)).cloned();
        Some(Wanted { cpu, cpus: self.cpus.len(), ports: ports.unwrap_or_default() })
    }
}

/// Opens connections until the packets of one arrive on the wanted CPU.
#[derive(Debug)]
pub(super) struct Search {
    wanted: Wanted,
    owner: Owner,
    /// Number of the other host.
    peer: u32,
    attempt: u64,
    /// Where the hello goes.
    to: Address,
    from: IpAddr,
    setup: Arc<SocketSetup>,
    probe: Option<Probe>,
    tried: u32,
    /// Where the packets of the others arrived.
    elsewhere: BTreeSet<u32>,
}

impl Search {
    pub(super) fn new(
        wanted: Wanted,
        (owner, attempt): (Owner, u64),
        to: Address,
        from: IpAddr,
        open: &Open,
    ) -> Self {
        let (setup, elsewhere) = (open.setup.clone(), BTreeSet::new());
        let peer = open.service.host;
        Self { wanted, owner, peer, attempt, to, from, setup, probe: None, tried: 0, elsewhere }
    }

    pub(super) fn wanted(&self) -> u32 {
        self.wanted.cpu
    }

    /// Whose connection it is, and to which host.
    pub(super) fn of(&self) -> (Owner, u32) {
        (self.owner, self.peer)
    }

    /// Connections so far.
    pub(super) fn tried(&self) -> u32 {
        self.tried
    }

    /// The hello, with the cookie that the other end has given.
    pub(super) fn hello(&self) -> Option<Hello> {
        self.probe.as_ref().map(Probe::hello)
    }

    /// The next connection, which is under way.
    ///
    /// # Errors
    /// Those of connecting.
    pub(super) fn next_connection(
        &mut self,
        transport: &'static dyn Transport,
    ) -> io::Result<OwnedFd> {
        self.tried += 1;
        let ports = &self.wanted.ports;
        if self.tried <= KNOWN_PORTS && !ports.is_empty() {
            // Strands of one CPU and connections of one strand begin at different ports.
            let first = u64::from(self.owner.strand) + self.attempt * 7 + u64::from(self.tried) - 1;
            let first = (first % ports.len() as u64) as usize;
            let in_turn = ports.iter().cycle().skip(first).take(ports.len().min(PORTS_TRIED));
            for &port in in_turn {
                let from = SocketAddr::new(self.from, port);
                // One that somebody has, or had a moment ago, is as good as none.
                if let Ok(fd) = transport.connect_from(from, &self.to, &self.setup) {
                    keep_hash(&fd);
                    return Ok(fd);
                }
            }
        }
        let fd = transport.connect(&self.to, &self.setup)?;
        keep_hash(&fd);
        Ok(fd)
    }

    /// Asks where the packets of a connection arrive, and returns when to look for the answer at the latest.
    pub(super) fn ask(
        &mut self,
        fd: &OwnedFd,
        (hello, reliable, data): (Hello, bool, Option<SocketAddr>),
        now: Nanos,
    ) -> io::Result<Nanos> {
        self.probe.insert(Probe::new(hello, reliable, data)).send(fd, now)
    }

    pub(super) fn progress(&mut self, fd: &OwnedFd, now: Nanos) -> io::Result<Heard> {
        self.probe.as_mut().ok_or(io::ErrorKind::NotConnected)?.progress(fd, now)
    }

    /// Gives up a connection whose packets arrive on another CPU.
    ///
    /// # Errors
    /// When there have been so many that another setting of the peer must move packets.
    pub(super) fn abandon(&mut self, fd: &OwnedFd, cpu: u32) -> io::Result<()> {
        if let Some(probe) = &self.probe {
            probe.abandon(fd);
        }
        self.elsewhere.insert(cpu);
        // Each of them would be right with a chance of one in `cpus`.
        if self.tried as usize > EACH * (self.wanted.cpus + 1) {
            let (tried, wanted) = (self.tried, self.wanted.cpu);
            return Err(io::Error::other(format!(
                "placement: none of {tried} connections arrived on CPU {wanted} of the peer, but on CPU {}: {MOVED}",
                list(&self.elsewhere)
            )));
        }
        Ok(())
    }
}

const MOVED: &str = "something other than the flow selects the CPU there. On loopback and veth without RPS that is the \
    CPU of the sender; RFS, threaded NAPI and a moving IRQ affinity do the same. Set rps_cpus of the peer's device \
    (/sys/class/net/DEV/queues/rx-0/rps_cpus) or use placement=random";

pub(super) fn list(cpus: &BTreeSet<u32>) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Where to ask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) open: &'a Open,
    pub(super) transport: &'static dyn Transport,
    pub(super) hello: Hello,
    /// Where the hello goes.
    pub(super) greeted: SocketAddr,
    /// Where data goes, if not there.
    pub(super) data: Option<SocketAddr>,
}

impl Question<'_> {
    /// Finds the CPUs on which packets arrive.
    ///
    /// # Errors
    /// Why they cannot be told, or why the flow does not select the CPU.
    pub(super) fn survey(self) -> Result<ObservedService, String> {
        // A thread of its own, as it changes the CPU on which it runs.
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || self.survey_here());
            thread.join().unwrap_or_else(|_| Err("the survey of the peer's CPUs failed".to_owned()))
        })
    }

    fn survey_here(self) -> Result<ObservedService, String> {
        let failed = |error: io::Error| {
            let (to, data) = (self.greeted, self.data.unwrap_or(self.greeted));
            let port = if data == to { String::new() } else { format!(" (for {data})") };
            format!("cannot find the CPUs on which packets to {to}{port} arrive: {error}")
        };
        let own = thread::allowed_cpus().unwrap_or_default();
        let mut ports: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        let mut asked = 0;
        while asked < MOST.min((EACH * ports.len()).max(1)) {
            let mut flows = self.open(asked).map_err(failed)?;
            if let Some(&first) = own.first() {
                thread::pin(first).map_err(failed)?;
            }
            ask(&mut flows).map_err(failed)?;
            if asked == 0
                && let Some(&other) = own.get(1)
            {
                thread::pin(other).map_err(failed)?;
                compare(&mut flows).map_err(failed)?.map_or(Ok(()), Err)?;
            }
            asked += flows.len();
            for flow in flows {
                flow.abandon();
                if let Some(cpu) = flow.cpu {
                    ports.entry(cpu).or_default().extend(port_of(&flow.fd));
                }
            }
        }
        let cpus = ports.keys().copied().collect();
        Ok(ObservedService { cpus, to: Some(self.data.unwrap_or(self.greeted)), ports })
    }

    fn open(self, before: usize) -> io::Result<Vec<AskedFlow>> {
        let address = Address::Inet(self.greeted);
        let reliable = self.transport.protocol().delivery().is_reliable();
        let flow = |number: usize| {
            let fd = self.transport.connect(&address, &self.open.setup)?;
            let hello = Hello { ordinal: (before + number) as u32, ..self.hello };
            let probe = Probe::new(hello, reliable, self.data);
            Ok(AskedFlow::new(fd, probe))
        };
        (0..TOGETHER).map(flow).collect()
    }
}

/// By default TCP draws the hash of a connection anew at each retransmission timeout, and on veth RPS would move the flow
/// (<https://elixir.bootlin.com/linux/v6.12/source/include/net/sock.h#L2065>, `sk_rethink_txhash`). Kernels before 5.18 have
/// no such option.
pub(super) fn keep_hash(fd: &OwnedFd) {
    const SO_TXREHASH: i32 = 74;
    let _ = plain_option::set(fd, Level::Socket, SO_TXREHASH, &0i32.to_ne_bytes());
}

fn port_of(fd: &OwnedFd) -> Option<u16> {
    Some(socket2::SockRef::from(fd).local_addr().ok()?.as_socket()?.port())
}

/// One connection that asks.
pub(super) struct AskedFlow {
    fd: OwnedFd,
    probe: Probe,
    asked: bool,
    cpu: Option<u32>,
}

impl AskedFlow {
    /// One that may still be connecting.
    pub(super) fn new(fd: OwnedFd, probe: Probe) -> Self {
        Self { fd, probe, asked: false, cpu: None }
    }

    pub(super) fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    /// Lets the other end forget it.
    pub(super) fn abandon(&self) {
        self.probe.abandon(&self.fd);
    }
}

/// Waits until all know their CPUs.
pub(super) fn ask(flows: &mut [AskedFlow]) -> io::Result<()> {
    let deadline = Monotonic.now() + ROUND;
    loop {
        let now = Monotonic.now();
        let mut until = deadline;
        for flow in flows.iter_mut().filter(|flow| flow.cpu.is_none()) {
            if !flow.asked {
                if rustix::net::getpeername(&flow.fd).is_err() {
                    rustix::net::sockopt::socket_error(&flow.fd)??;
                    continue;
                }
                flow.probe.send(&flow.fd, now)?;
                flow.asked = true;
            }
            match flow.probe.progress(&flow.fd, now)? {
                Heard::Cpu(cpu) => flow.cpu = Some(cpu),
                Heard::Nothing(at) => until = until.min(at),
            }
        }
        let waiting = flows.iter().filter(|flow| flow.cpu.is_none());
        let mut fds: Vec<PollFd<'_>> = waiting
            .map(|flow| {
                PollFd::new(&flow.fd, if flow.asked { PollFlags::IN } else { PollFlags::OUT })
            })
            .collect();
        if fds.is_empty() {
            return Ok(());
        }
        if now >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let wait = timespec(until.saturating_sub(now));
        match rustix::event::poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks the same connections again from where the thread runs now. Returns why the flow does not select the CPU.
fn compare(flows: &mut [AskedFlow]) -> io::Result<Option<String>> {
    let before: Vec<Option<u32>> = flows.iter().map(|flow| flow.cpu).collect();
    for flow in flows.iter_mut() {
        (flow.asked, flow.cpu) = (false, None);
    }
    ask(flows)?;
    let moved = flows.iter().zip(before).find(|(flow, before)| flow.cpu != *before);
    Ok(moved.map(|(flow, before)| {
        let cpu = |cpu: Option<u32>| cpu.map_or("none".to_owned(), |cpu| cpu.to_string());
        format!(
            "packets of one flow arrived on CPU {} of the peer, and then on CPU {}: {MOVED}",
            cpu(before),
            cpu(flow.cpu)
        )
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpStream, UdpSocket};
    use std::time::Duration;

    use wirecost_profile::protocols;
    use wirecost_program::hello::LENGTH;

    use super::*;
    use crate::broker::{Broker, ListenerKind, Route, SharedListener};
    use crate::clients::Clients;
    use crate::permissions::Partners;
    use crate::sockets::Mailbox;
    use crate::transports;

    const HELLO: Hello = Hello { run: 7, group: 0, strand: 0, id: 0, ordinal: 0, cookie: 0 };

    fn open(protocol: &str) -> Open {
        Open {
            service: ServiceRef { host: 1, service: 0 },
            protocol: protocols::find(protocol).unwrap(),
            setup: Arc::default(),
            row: 0,
            most: 1,
            plain_receives: true,
        }
    }

    struct Peer {
        broker: Broker,
        mailbox: Arc<Mailbox>,
        transport: &'static dyn Transport,
        greeted: SocketAddr,
        data: Option<(SocketAddr, OwnedFd, Arc<Clients>)>,
    }

    impl Peer {
        /// Listens at an address of loopback; `served`: its clients share a socket.
        fn start(protocol: &str, at: &str, partners: Partners, served: bool) -> Self {
            let transport = transports::find(protocol).unwrap();
            let listen = || {
                let place = Address::Inet(format!("{at}:0").parse().unwrap());
                let (fd, bound) = transport.listen(&place, &SocketSetup::default()).unwrap();
                let Address::Inet(bound) = bound else { panic!("{bound}") };
                (fd, bound)
            };
            let (listener, greeted) = listen();
            let setup = Arc::default();
            let (kind, data) = if served {
                let (socket, address) = listen();
                let clients = Arc::new(Clients::new(8));
                let data = Address::Inet(address);
                let shared = Arc::new(socket.try_clone().unwrap());
                let clients_of = clients.clone();
                let kind = ListenerKind::Clients { clients: clients_of, data, shared, setup };
                (kind, Some((address, socket, clients)))
            } else {
                (ListenerKind::Data { transport, setup }, None)
            };
            let mailbox = Arc::<Mailbox>::default();
            let route = Route::Mailbox(mailbox.clone());
            let shared = vec![SharedListener { listener, kind }];
            let broker = Broker::start(HELLO.run, partners, shared, route, 1).unwrap();
            Self { broker, mailbox, transport, greeted, data }
        }

        fn survey(&self, protocol: &str) -> Result<ObservedService, String> {
            let open = open(protocol);
            let data = self.data.as_ref().map(|(address, ..)| *address);
            let (transport, greeted) = (self.transport, self.greeted);
            Question { open: &open, transport, hello: HELLO, greeted, data }.survey()
        }
    }

    /// Loopback without RPS handles packets on the CPU that sends them.
    fn loopback_is_steered() -> bool {
        let rps = std::fs::read_to_string("/sys/class/net/lo/queues/rx-0/rps_cpus");
        rps.is_ok_and(|rps| rps.trim().chars().any(|digit| !matches!(digit, '0' | ',')))
    }

    const KINDS: [(&str, &str, bool); 6] = [
        ("udp", "127.0.0.1", false),
        ("udp", "[::1]", false),
        ("udp", "127.0.0.1", true),
        ("udp", "[::1]", true),
        ("tcp", "127.0.0.1", false),
        ("tls", "[::1]", false),
    ];

    #[test]
    fn the_peer_tells_the_cpu_on_which_packets_arrive() {
        if loopback_is_steered() {
            return;
        }
        let cpus = thread::allowed_cpus().unwrap();
        for (protocol, at, served) in KINDS {
            let peer = Peer::start(protocol, at, Partners::OfRun, served);
            for &cpu in &cpus {
                let found = std::thread::scope(|scope| {
                    let survey = || {
                        thread::pin(cpu).unwrap();
                        peer.survey(protocol)
                    };
                    scope.spawn(survey).join().unwrap().unwrap()
                });
                assert_eq!(found.cpus, [cpu], "{protocol} {at} {served}");
                assert_eq!(found.ports[&cpu].len(), EACH);
                let to = peer.data.as_ref().map_or(peer.greeted, |(address, ..)| *address);
                assert!(found.wanted(0, to).unwrap().ports.len() == EACH);
                assert!(found.wanted(0, "198.18.0.1:9".parse().unwrap()).unwrap().ports.is_empty());
                assert!(found.wanted(1, to).is_none());
            }
            if cpus.len() > 1 {
                let refused = peer.survey(protocol).unwrap_err();
                let expected = format!(
                    "packets of one flow arrived on CPU {} of the peer, and then on CPU {}",
                    cpus[0], cpus[1]
                );
                assert!(refused.contains(&expected), "{protocol}: {refused}");
                assert!(refused.contains("rps_cpus"), "{refused}");
            }
            // Connections that only asked are not strangers.
            assert_eq!(peer.broker.rejected_connections(), 0, "{protocol} {at} {served}");
        }
    }

    /// After the question the hello of the same socket makes it a connection.
    #[test]
    fn a_hello_follows_a_probe_on_the_same_connection() {
        for (protocol, at, served) in KINDS {
            let peer = Peer::start(protocol, at, Partners::OfRun, served);
            let address = Address::Inet(peer.greeted);
            let fd = peer.transport.connect(&address, &SocketSetup::default()).unwrap();
            let reliable = peer.transport.protocol().delivery().is_reliable();
            let data = peer.data.as_ref().map(|(address, ..)| *address);
            let probe = Probe::new(HELLO, reliable, data);
            let mut flows = [AskedFlow { fd, probe, asked: false, cpu: None }];
            ask(&mut flows).unwrap();
            let [flow] = flows;
            rustix::io::write(&flow.fd, &flow.probe.hello().bytes()).unwrap();
            if let Some((_, socket, clients)) = &peer.data {
                let mut ready = [PollFd::new(&flow.fd, PollFlags::IN)];
                rustix::event::poll(&mut ready, None).unwrap();
                let mut answer = [0; LENGTH];
                rustix::io::read(&flow.fd, &mut answer).unwrap();
                assert_eq!(answer, flow.probe.hello().welcome());
                assert_eq!(clients.all().len(), 1);
                // Data goes to the shared socket again.
                rustix::io::write(&flow.fd, b"data").unwrap();
                let mut ready = [PollFd::new(socket, PollFlags::IN)];
                rustix::event::poll(&mut ready, None).unwrap();
                assert_eq!(rustix::io::read(socket, &mut answer).unwrap(), 4);
            } else {
                let owner = Owner { group: 0, strand: 0, local: 0, slot: 0, id: 0, ordinal: 0 };
                while peer.mailbox.take(owner).is_none() {
                    peer.mailbox.wait(owner, Duration::from_secs(1));
                }
            }
        }
    }

    /// Who is not of the run, and anyone where the peer serves whoever connects, gets no answer but a challenge.
    #[test]
    fn strangers_are_not_answered() {
        let partners = Partners::only("127.0.0.1".parse().unwrap());
        for (partners, run) in [(Partners::OfRun, 8), (partners, 7)] {
            let probe = Hello { run, ..HELLO }.probe();
            let peer = Peer::start("udp", "127.0.0.1", partners, false);
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(peer.greeted).unwrap();
            client.send(&probe).unwrap();
            while peer.broker.rejected_connections() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            client.set_nonblocking(true).unwrap();
            assert!(client.recv(&mut [0; LENGTH]).is_err());
            let peer = Peer::start("tcp", "127.0.0.1", partners, false);
            let mut client = TcpStream::connect(peer.greeted).unwrap();
            client.write_all(&probe).unwrap();
            assert_eq!(client.read(&mut [0; LENGTH]).unwrap_or(0), 0);
            assert_eq!(peer.broker.rejected_connections(), 1);
        }
    }

    #[test]
    fn a_search_ends_when_no_connection_arrives_where_it_is_wanted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let service = ObservedService { cpus: vec![0, 3], to: Some(to), ports: BTreeMap::new() };
        let owner = Owner { group: 0, strand: 0, local: 0, slot: 0, id: 0, ordinal: 0 };
        let wanted = service.wanted(1, to).unwrap();
        let mut search = Search::new(wanted, (owner, 0), Address::Inet(to), to.ip(), &open("udp"));
        let udp = transports::find("udp").unwrap();
        let mut fd = search.next_connection(udp).unwrap();
        let error = loop {
            match search.abandon(&fd, 0) {
                Ok(()) => fd = search.next_connection(udp).unwrap(),
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(search.tried() as usize, EACH * 3 + 1);
        assert!(error.contains("arrived on CPU 3 of the peer, but on CPU 0"), "{error}");
    }
}
