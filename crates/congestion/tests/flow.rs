//! BIC in a real flow with losses, against the model: as a BPF program, and as the kernel's module.
#![cfg(test)]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, Object, ObjectBuilder};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use wirecost_congestion::bic::model::{LOW_WINDOW, replay};
use wirecost_congestion::bic::trace::{self, Call, Event};
use wirecost_congestion::bic::{self, Traced};
use wirecost_congestion::names;
use wirecost_lab::{Lab, LabSpec};
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::{skip, skip_without_namespaces, skip_without_tracing};

const LOSS: u32 = 4;
const BUFFER: usize = 4 << 20;
/// Far more than any of it takes on a busy machine: seconds.
const PATIENCE: Duration = Duration::from_secs(300);

/// Records the calls of congestion control.
trait Trace {
    /// For setsockopt(2), `TCP_CONGESTION`.
    fn name(&self) -> &str;
    /// Events since the last call, and how many were lost.
    fn events(&self) -> (Vec<Event>, u64);
}

impl Trace for Traced {
    fn name(&self) -> &str {
        self.kernel_name()
    }

    fn events(&self) -> (Vec<Event>, u64) {
        self.events().unwrap()
    }
}

/// Of the kernel's own BIC, by fentry and fexit.
struct KernelTrace {
    object: Object,
    _links: Vec<Link>,
}

impl KernelTrace {
    fn start() -> Self {
        const TRACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bic_kernel_trace.bpf.o"));
        let load = || {
            let object = ObjectBuilder::default().open_memory(TRACE)?.load()?;
            let links: libbpf_rs::Result<_> =
                object.progs_mut().map(|prog| prog.attach()).collect();
            Ok::<_, libbpf_rs::Error>((object, links?))
        };
        let (object, links) = wirecost_bpf_log::logged(load)
            .unwrap_or_else(|(error, log)| panic!("{error:#}\n{log}"));
        Self { object, _links: links }
    }
}

impl Trace for KernelTrace {
    fn name(&self) -> &str {
        "bic"
    }

    fn events(&self) -> (Vec<Event>, u64) {
        trace::read(&self.object).unwrap()
    }
}

/// A connection from the first host to the second, whose sender has this congestion control.
fn connect(a: &NetNs, b: &NetNs, to: SocketAddr, name: &str) -> (TcpStream, TcpStream) {
    let socket = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        // So that the congestion window is what limits.
        socket.set_recv_buffer_size(BUFFER).unwrap();
        socket.set_send_buffer_size(BUFFER).unwrap();
        socket
    };
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
    lose_one_of(&server, 400);
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

/// All events of a flow that loses packets, and its path once.
fn record(trace: &dyn Trace) -> (Vec<Event>, u64) {
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    let [a, b] = [0, 1].map(|host: usize| lab.hosts()[host].open().unwrap());
    let to = SocketAddr::new(lab.hosts()[1].ipv4.into(), 0);
    let (mut client, mut server) = connect(&a, &b, to, trace.name());
    client.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let ends = AtomicBool::new(false);
    let (mut events, mut lost) = (Vec::new(), 0);
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
        let set = |state: &str| {
            let done = b.run(|| Command::new("ip").args(["link", "set", "eth0", state]).status());
            assert!(done.unwrap().unwrap().success());
        };
        let count =
            |events: &[Event], call| events.iter().filter(|e| e.call() == Some(call)).count();
        // A flow that has ended, or a writer that has, would be waited for without end.
        let mut read = |what: &str, until: &dyn Fn(&[Event]) -> bool| {
            let began = Instant::now();
            while !until(&events) {
                let calls: BTreeMap<_, usize> =
                    events.iter().fold(BTreeMap::new(), |mut all, e| {
                        *all.entry(e.call()).or_default() += 1;
                        all
                    });
                assert!(began.elapsed() < PATIENCE, "no {what}: {calls:?}, and {lost} lost");
                let (more, gone) = trace.events();
                events.extend(more);
                lost = gone;
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        read("20 losses", &|events| count(events, Call::Ssthresh) >= 20);
        set("down");
        let in_loss =
            |event: &Event| event.call() == Some(Call::SetState) && event.argument == LOSS;
        read("timeout", &|events| events.iter().any(in_loss));
        set("up");
        read("growth after the timeout", &|events| {
            let after = events.iter().rposition(in_loss).unwrap_or(0);
            count(&events[after..], Call::CongAvoid) > 500
        });
    });
    (events, lost)
}

/// Records a flow, and replays it.
fn agrees(trace: &dyn Trace) {
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

#[test]
fn the_trace_of_a_flow_with_losses_agrees_with_the_model() {
    let test = "the_trace_of_a_flow_with_losses_agrees_with_the_model";
    if skip_without_namespaces(test) || skip_without_tracing(test) {
        return;
    }
    agrees(&Traced::load().unwrap());
}

/// Set where this test is the program of a virtual machine, whose kernel has the module.
const IN_GUEST: &str = "WIRECOST_TEST_IN_GUEST";
/// Exit code of `scripts/vm` where this machine lacks what it takes.
const LACKS: i32 = 126;

#[test]
fn the_trace_of_the_kernels_own_bic_agrees_with_the_model() {
    let test = "the_trace_of_the_kernels_own_bic_agrees_with_the_model";
    if std::env::var_os(IN_GUEST).is_some() {
        return agrees(&KernelTrace::start());
    }
    let directory = tempfile::tempdir().unwrap();
    let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/vm");
    let mut command = Command::new(vm);
    command.arg(directory.path()).args(["tcp_bic,veth", "env", &format!("{IN_GUEST}=1")]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let done = command.output().unwrap();
    if done.status.code() == Some(LACKS) {
        return skip(test, String::from_utf8_lossy(&done.stderr).trim());
    }
    let read = |name| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let said = ["console", "stdout", "stderr"].map(read).join("\n");
    assert!(done.status.success(), "{done:?}\n{said}");
    let agreement = said.lines().find(|line| line.contains("Agreement {"));
    println!("{}", agreement.unwrap_or_else(|| panic!("{said}")));
}

#[test]
fn processes_have_names_of_their_own_that_end_with_them() {
    let test = "processes_have_names_of_their_own_that_end_with_them";
    if skip_without_tracing(test) {
        return;
    }
    let (one, other) = (bic::load().unwrap(), bic::load().unwrap());
    let names = [one.kernel_name().to_owned(), other.kernel_name().to_owned()];
    assert_ne!(names[0], names[1]);
    let registered = || names::registered().unwrap();
    assert!(names.iter().all(|name| registered().contains(name)));
    // It is offered by no other name, and not to those who ask what the kernel has.
    assert!(!names::available().unwrap().iter().any(|name| name.starts_with("bpf_bic")));
    drop((one, other));
    assert!(!names.iter().any(|name| registered().contains(name)));
}
