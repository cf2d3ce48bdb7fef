//! Records a real flow with losses, and replays it by the model.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use wirecost_congestion::bic;
use wirecost_congestion::bic::model::{Agreement, LOW_WINDOW, Mechanism, Replay, replay};
use wirecost_congestion::bic::trace::{Call, Event};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsGuard};
use wirecost_linux::rate_limit::RateLimit;
use wirecost_linux::sysctl;

/// Each of them must be in a trace. Whether the window ever is no limit is up to the machine.
fn mechanisms() -> impl Iterator<Item = Mechanism> {
    Mechanism::ALL.into_iter().filter(|mechanism| *mechanism != Mechanism::NotLimited)
}

/// The queue holds 413 segments: a loss that leaves 0.8 of that is further from the maximum than the 64 segments from which
/// on the window grows by Smax.
const LIMIT: RateLimit =
    RateLimit { bits_per_second: 100_000_000, burst_bytes: 25_000, queue_bytes: 625_000 };
/// More than the queue, so that the congestion window is what limits.
const BUFFERS: &str = "4096 4194304 4194304";
/// Far more than any of it takes on a busy machine: seconds.
const PATIENCE: Duration = Duration::from_secs(300);

/// Records the calls of congestion control.
pub(crate) trait Trace {
    /// For setsockopt(2), `TCP_CONGESTION`.
    fn name(&self) -> &str;
    /// Events since the last call, and how many were lost.
    fn events(&self) -> (Vec<Event>, u64);
}

/// Two hosts and a router between them, with a queue before the second. A bridge would not do: the socket owns a packet
/// until a host has received it, and TCP lets few of its own wait on this machine (`tcp_small_queue_check`,
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_output.c>), so the window would limit nothing.
struct Hosts {
    a: NetNs,
    router: NetNs,
    b: NetNs,
    _guards: [NetNsGuard; 3],
}

/// Address of the second host.
const TO: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);

impl Hosts {
    fn up() -> Self {
        let process = std::process::id();
        let names = ["a", "r", "b"].map(|host| format!("wirecost-test-{process}-bic-{host}"));
        let guards = names.each_ref().map(|name| NetNsGuard::new(NetNs::create(name).unwrap()));
        let [a, router, b] = names.each_ref().map(|name| NetNs::open(name).unwrap());
        let between = Links::of(&router).unwrap();
        for (host, device, net) in [(&a, "a", 0), (&b, "b", 1)] {
            let links = Links::of(host).unwrap();
            links.add_veth("eth0", device, &router).unwrap();
            for (links, device, last) in [(&between, device, 1), (&links, "eth0", 2)] {
                links.add_address(device, Ipv4Addr::new(198, 18, net, last).into(), 24).unwrap();
                links.up(device).unwrap();
            }
            let gateway = Ipv4Addr::new(198, 18, net, 1).to_string();
            ip(host, &["route", "add", "default", "via", &gateway]);
            host.run(prepare).unwrap();
        }
        between.limit_rate("b", LIMIT).unwrap();
        router.run(|| sysctl::write("net.ipv4.ip_forward", "1").unwrap()).unwrap();
        Self { a, router, b, _guards: guards }
    }
}

fn ip(namespace: &NetNs, arguments: &[&str]) {
    let done = namespace.run(|| Command::new("ip").args(arguments).status());
    assert!(done.unwrap().unwrap().success(), "ip {arguments:?}");
}

/// Without what merges segments: with few acknowledgements, several mechanisms would come to the same growth.
fn prepare() {
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        sysctl::write(name, BUFFERS).unwrap();
    }
    let ethtool = Ethtool::open().unwrap();
    for feature in ["tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro"] {
        ethtool.set_feature("eth0", feature, false).unwrap();
    }
}

/// A connection from the first host to the second, whose sender has this congestion control.
fn connect(a: &NetNs, b: &NetNs, to: SocketAddr, name: &str) -> (TcpStream, TcpStream) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    let listener: TcpListener = b
        .run(|| {
            let listener = socket();
            listener.bind(&to.into()).unwrap();
            listener.listen(1).unwrap();
            listener.into()
        })
        .unwrap();
    let to: SockAddr = listener.local_addr().unwrap().into();
    let client: TcpStream = a
        .run(|| {
            let client = socket();
            client.set_tcp_congestion(name.as_bytes()).unwrap();
            client.connect(&to).unwrap();
            client.into()
        })
        .unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// Makes a socket lose one of so many packets that come, at random, before TCP sees them.
fn lose_one_of(socket: &TcpStream, number: u32) {
    // Classic BPF: https://docs.kernel.org/networking/filter.html
    const LOAD: u16 = 0x20;
    const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RANDOM: u32 = 0xffff_f000 + 56;
    let filter = [
        SockFilter::new(LOAD, 0, 0, RANDOM),
        SockFilter::new(JUMP_IF_GREATER_OR_EQUAL, 0, 1, u32::MAX / number),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ];
    socket2::SockRef::from(socket).attach_filter(&filter).unwrap();
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All events of a flow: over a queue that overflows, over a path that is gone for a time, and over one that loses much.
fn record(trace: &dyn Trace) -> (Vec<Event>, u64) {
    let Hosts { a, router, b, _guards } = Hosts::up();
    let to = SocketAddr::new(TO.into(), 0);
    let (mut client, mut server) = connect(&a, &b, to, trace.name());
    let lossy = server.try_clone().unwrap();
    client.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let ends = AtomicBool::new(false);
    let (mut events, mut lost) = (Vec::new(), 0);
    let mut replay = Replay::new(bic::jiffies_per_second());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let data = vec![0u8; 1 << 17];
            let mut sent = 0;
            while !ends.load(Ordering::Relaxed) {
                match client.write(&data) {
                    Ok(bytes) => sent += bytes,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            assert!(sent > 0);
            client.shutdown(std::net::Shutdown::Both).unwrap();
        });
        scope.spawn(|| {
            let mut data = vec![0u8; 1 << 17];
            while server.read(&mut data).is_ok_and(|bytes| bytes > 0) {}
        });
        // Also when this thread panics: the others wait for it.
        let _end = EndOnDrop(&ends);
        let set = |state: &str| ip(&router, &["link", "set", "dev", "b", state]);
        // A flow that has ended, or a writer that has, would be waited for without end.
        let mut read = |what: &str, is_there: &dyn Fn(&Agreement) -> bool| {
            let began = Instant::now();
            while !is_there(replay.agreement()) {
                let agreement = replay.agreement();
                assert!(began.elapsed() < PATIENCE, "no {what}: {agreement:?}, {lost} lost");
                let (more, gone) = trace.events();
                for event in &more {
                    replay.add(event).unwrap_or_else(|it| panic!("{it}, {gone} lost"));
                }
                events.extend(more);
                lost = gone;
                std::thread::sleep(Duration::from_millis(5));
            }
            replay.agreement().clone()
        };
        const RARELY: u32 = 40_000;
        lose_one_of(&lossy, RARELY);
        read("growth to the queue's end", &|now| {
            let wanted = [
                Mechanism::SlowStart,
                Mechanism::AdditiveIncrease,
                Mechanism::BinarySearch,
                Mechanism::SmallestStep,
                Mechanism::SlowProbing,
                Mechanism::MaxProbing,
                Mechanism::NewMaximum,
                Mechanism::Decrease,
            ];
            wanted.into_iter().all(|mechanism| now.decided_by(mechanism) > 0)
        });
        // Many losses lower the maximum, which the window then passes by far.
        lose_one_of(&lossy, 500);
        read("fast convergence", &|now| now.decided_by(Mechanism::FastConvergence) >= 5);
        lose_one_of(&lossy, RARELY);
        read("fast probing", &|now| now.decided_by(Mechanism::FastProbing) > 0);
        // A loss before the threshold makes a maximum: then the path is gone once more.
        let losses = |of: &Agreement| of.decided_by(Mechanism::Decrease);
        loop {
            let before = read("anything", &|_| true).decided_by(Mechanism::Timeout);
            set("down");
            let gone = read("timeout", &|now| now.decided_by(Mechanism::Timeout) > before);
            set("up");
            let has_grown = |now: &Agreement| now.decided_by(Mechanism::NoMaximum) > 0;
            let is_decided = |now: &Agreement| has_grown(now) || losses(now) > losses(&gone);
            if has_grown(&read("growth after the timeout", &is_decided)) {
                break;
            }
        }
        lose_one_of(&lossy, 15);
        read("small windows", &|now| {
            let wanted = [Mechanism::LowWindow, Mechanism::LowWindowDecrease];
            wanted.into_iter().all(|mechanism| now.decided_by(mechanism) > 0)
        });
    });
    (events, lost)
}

/// Records a flow, and replays it.
pub(crate) fn agrees(trace: &dyn Trace) {
    let (events, lost) = record(trace);
    assert_eq!(lost, 0);
    let agreement = replay(&events, bic::jiffies_per_second()).unwrap_or_else(|it| panic!("{it}"));
    println!("{agreement:?}");
    assert_eq!(agreement.sockets, 1);
    // The handshake is acknowledged before the socket is initialized.
    assert!(agreement.without_beginning <= 2, "{agreement:?}");
    for call in [Call::CongAvoid, Call::Ssthresh, Call::SetState, Call::PktsAcked] {
        assert!(agreement.calls[&call] >= 4, "{agreement:?}");
    }
    let absent: Vec<_> = mechanisms().filter(|it| agreement.decided_by(*it) == 0).collect();
    assert!(absent.is_empty(), "{absent:?} in no call: {agreement:?}");
    // Beyond the window up to which BIC is Reno.
    let losses = events.iter().filter(|e| e.call() == Some(Call::Ssthresh));
    let largest = losses.map(|loss| loss.before.cwnd).max().unwrap();
    assert!(largest > 2 * LOW_WINDOW, "{largest}");
    // A trace that another algorithm could have made does not agree.
    let mut other = events;
    let wrong = other.iter_mut().rfind(|event| event.call() == Some(Call::CongAvoid)).unwrap();
    wrong.after.cwnd += 1;
    assert!(replay(&other, bic::jiffies_per_second()).is_err());
}
