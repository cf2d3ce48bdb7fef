//! Two hosts on a wire, each with a process that names its namespace, and nothing on the wire but
//! what a test sends.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wirecost_lab::{Lab, LabSpec};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::netns::NetNs;
use wirecost_linux::sysctl;
use wirecost_model::observe::{HostObservation, ObserveRequest, ObserverReport, Part};
use wirecost_observe::Observer;

pub const DEVICE: &str = "eth0";

pub struct Host {
    pub namespace: NetNs,
    pub address: IpAddr,
    /// Waits for input that does not come, and keeps the namespace findable by its pid.
    keeper: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Host {
    pub fn part(&self, name: &str) -> Part {
        Part { host: name.to_owned(), netns_of: Some(self.keeper.id()), ..Part::default() }
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).expect("its namespace")
    }

    /// Makes every packet that it sends one segment.
    pub fn send_single_segments(&self) {
        let ethtool = self.run(Ethtool::open).expect("a socket");
        // The pair leaves out GRO while the sender has any of these:
        // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c#L325
        for kind in ["tcp", "tcp6", "tcp-ecn", "tcp-mangleid"] {
            let feature = format!("tx-{kind}-segmentation");
            ethtool.set_feature(DEVICE, &feature, false).expect("it can be off");
        }
        ethtool.set_feature(DEVICE, "tx-generic-segmentation", false).expect("it can be off");
    }

    /// All numbers that can have changed: of the device, and of the protocols.
    pub fn counters(&self) -> Counters {
        self.run(|| {
            let read = |file: &str| {
                std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("a table")
            };
            let line = read("dev");
            let line = line.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
            let device: Vec<u64> = line
                .expect("the device")
                .split_whitespace()
                .map(|number| number.parse().expect("a number"))
                .collect();
            let mut protocols = BTreeMap::new();
            for table in ["snmp", "netstat"] {
                let text = read(table);
                let lines: Vec<&str> = text.lines().collect();
                for pair in lines.chunks_exact(2) {
                    let names = pair[0].split_whitespace();
                    for (name, value) in names.zip(pair[1].split_whitespace()).skip(1) {
                        let protocol = pair[0].split(':').next().unwrap_or_default();
                        let value: i64 = value.parse().expect("a number");
                        protocols.insert(format!("{protocol}.{name}"), value as u64);
                    }
                }
            }
            Counters {
                rx_bytes: device[0],
                rx_packets: device[1],
                tx_bytes: device[8],
                tx_packets: device[9],
                protocols,
            }
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    /// `Tcp.OutSegs`, `TcpExt.TCPOFOQueue`...
    pub protocols: BTreeMap<String, u64>,
}

impl Counters {
    /// How much a counter of a protocol has grown.
    pub fn grown(&self, since: &Self, name: &str) -> u64 {
        self.protocols[name] - since.protocols[name]
    }
}

pub struct World {
    pub a: Host,
    pub b: Host,
    // Goes last: a namespace lives while there is a process in it.
    _lab: Lab,
}

impl World {
    pub fn new() -> Self {
        let lab = Lab::up(&LabSpec::temporary(2)).expect("a lab");
        let hosts: Vec<Host> = lab
            .hosts()
            .iter()
            .map(|host| {
                let mut command = Command::new("cat");
                command.stdin(Stdio::piped()).stdout(Stdio::null());
                host.place(&mut command).expect("its place");
                Host {
                    namespace: host.open().expect("its namespace"),
                    address: host.ipv4.into(),
                    keeper: command.spawn().expect("a process"),
                }
            })
            .collect();
        for host in &hosts {
            host.run(|| {
                for (setting, value) in [
                    // Neighbours are found once, and IPv6 does not look for routers and groups.
                    ("net.ipv4.neigh.eth0.base_reachable_time_ms", "86400000"),
                    ("net.ipv6.conf.eth0.disable_ipv6", "1"),
                ] {
                    sysctl::write(setting, value).expect(setting);
                }
            });
        }
        let Ok([a, b]) = <[Host; 2]>::try_from(hosts) else { panic!("two hosts") };
        let world = Self { a, b, _lab: lab };
        // Both neighbours know each other from here on.
        world.transfer(1, |_| (), |_| ());
        world
    }

    /// A connection from `a` to `b`, as it is before anything was sent.
    pub fn connect(
        &self,
        prepare_a: impl FnOnce(&Socket) + Send,
        prepare_b: impl FnOnce(&Socket) + Send,
    ) -> (TcpStream, TcpStream) {
        let listener: TcpListener = self.b.run(|| {
            let socket = tcp_socket();
            prepare_b(&socket);
            socket.bind(&SocketAddr::new(self.b.address, 0).into()).expect("an address");
            socket.listen(8).expect("listens");
            socket.into()
        });
        let to: SockAddr = listener.local_addr().expect("an address").into();
        let client: TcpStream = self.a.run(|| {
            let socket = tcp_socket();
            prepare_a(&socket);
            socket.connect(&to).expect("a connection");
            socket.into()
        });
        let (server, _) = listener.accept().expect("the connection");
        (client, server)
    }

    /// Sends so many bytes from `a` to `b` on a connection of its own, and waits for its end.
    pub fn transfer(
        &self,
        bytes: usize,
        prepare_a: impl FnOnce(&Socket) + Send,
        prepare_b: impl FnOnce(&Socket) + Send,
    ) {
        let (client, server) = self.connect(prepare_a, prepare_b);
        pump(client, server, bytes);
    }

    /// Waits until nothing has moved for longer than an acknowledgement may be delayed.
    pub fn quiet(&self) -> (Counters, Counters) {
        let mut last = (self.a.counters(), self.b.counters());
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(20));
            let now = (self.a.counters(), self.b.counters());
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    }

    /// Observes both hosts while there is load, and says what the counters were before and after.
    pub fn observe(&self, probes: &[&str], load: impl FnOnce()) -> Watched {
        let mut parts = vec![self.a.part("a"), self.b.part("b")];
        for part in &mut parts {
            part.device = Some(DEVICE.to_owned());
        }
        let probes = probes.iter().map(|&name| name.to_owned()).collect();
        let mut observer = Observer::open(ObserveRequest { probes, parts });
        observer.attach();
        let before = self.quiet();
        observer.begin();
        load();
        let after = self.quiet();
        observer.end();
        observer.detach();
        let observation = observer.take();
        Watched { observation, a: (before.0, after.0), b: (before.1, after.1) }
    }
}

/// What was observed, and each host's counters before and after.
pub struct Watched {
    pub observation: ObserverReport,
    pub a: (Counters, Counters),
    pub b: (Counters, Counters),
}

impl Watched {
    pub fn of_a(&self) -> &HostObservation {
        &self.observation.parts[0]
    }

    pub fn of_b(&self) -> &HostObservation {
        &self.observation.parts[1]
    }
}

/// The congestion control is the same whatever the machine's own: pacing would come from others.
fn tcp_socket() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.set_tcp_congestion(b"cubic").expect("every kernel has it");
    socket
}

/// Moves bytes over a connection that stays open.
pub fn carry(client: &mut TcpStream, server: &mut TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| server.read_exact(&mut vec![0; bytes]).expect("all of it"));
        client.write_all(&vec![7; bytes]).expect("takes it");
    });
}

/// Moves bytes over a connection and closes it.
pub fn pump(mut client: TcpStream, mut server: TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut got = 0;
            let mut buffer = vec![0; 65536];
            while let Ok(more @ 1..) = server.read(&mut buffer) {
                got += more;
            }
            assert_eq!(got, bytes);
        });
        let data = vec![7; bytes.min(131_072)];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(data.len());
            client.write_all(&data[..now]).expect("takes it");
            left -= now;
        }
        drop(client);
    });
}
