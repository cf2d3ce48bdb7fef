//! The probe `memory` against what connections hold unread, and against /proc/net/sockstat as the
//! test itself reads it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use wirecost_linux::clock::Monotonic;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::sysctl;
use wirecost_model::clock::Clock;
use wirecost_model::observe::{
    Gauge, HostObservation, MemorySection, ObserveRequest, ObserverReport, Part, ProbeStatus,
};
use wirecost_observe::Observer;

use crate::two_hosts::{Host, World};

const CONNECTIONS: usize = 8;
const EACH: usize = 6 << 20;
/// What no reader has taken: far more than CPUs keep to themselves, and than other connections of
/// the machine come and go with.
const UNREAD: u64 = (CONNECTIONS * EACH) as u64;

fn section(observed: &HostObservation) -> &MemorySection {
    observed.memory.as_ref().expect("a section")
}

/// A value of the host's own /proc/net/sockstat, here read without the crate that is tested.
fn sockstat(host: &Host, protocol: &str, name: &str) -> u64 {
    let text = host.run(|| std::fs::read_to_string("/proc/thread-self/net/sockstat"));
    let text = text.expect("every kernel has it");
    let line = text.lines().find(|line| line.starts_with(protocol)).expect("its line");
    let mut words = line.split_whitespace().skip_while(|word| *word != name).skip(1);
    words.next().and_then(|value| value.parse().ok()).expect("a number")
}

fn page_bytes() -> u64 {
    let output = std::process::Command::new("getconf").arg("PAGESIZE").output().expect("runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Buffers that take all of what is written, with nobody to read it.
fn with_room(host: &Host) {
    host.run(|| {
        for setting in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            sysctl::write(setting, "4096 16777216 16777216").expect(setting);
        }
    });
}

fn max(gauge: Option<Gauge>) -> u64 {
    gauge.expect("read").max
}

fn sysctl_of_the_kernel(name: &str) -> [u64; 3] {
    let text = sysctl::read(name).expect("this test's own namespace shows it");
    let pages: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
    let pages: [u64; 3] = pages.try_into().expect("three");
    pages.map(|pages| pages * page_bytes())
}

#[test]
fn as_basic_the_caches_are_left_out() {
    let parts = vec![Part { host: "a".to_owned(), ..Part::default() }];
    let mut observer =
        Observer::open(ObserveRequest { probes: vec!["memory:basic".to_owned()], parts });
    observer.attach();
    observer.begin();
    observer.end();
    observer.detach();
    let observation = observer.take();
    let memory = section(&observation.parts[0]);
    assert_eq!(memory.slabs, None);
    assert_eq!(memory.tcp_bytes.map(|gauge| gauge.readings), Some(2));
}

#[test]
fn a_namespace_that_is_gone_is_told() {
    // No process has this number: https://man7.org/linux/man-pages/man5/proc_sys_kernel.5.html
    let nowhere = Part { host: "a".to_owned(), netns_of: Some(1 << 22), ..Part::default() };
    let probes = vec!["memory:basic".to_owned()];
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![nowhere] });
    observer.attach();
    observer.begin();
    observer.end();
    observer.detach();
    let observation = observer.take();
    assert_eq!(observation.probes[0].status, ProbeStatus::Partial);
    assert!(observation.probes[0].reason.as_ref().unwrap().starts_with("nothing of a"));
    assert_eq!(observation.parts[0].memory, None);
}

/// The memory of TCP is of the whole machine.
mod alone {
    use super::*;

    #[test]
    fn unread_data_is_in_the_memory_of_the_window() {
        if skip_without_namespaces("unread_data_is_in_the_memory_of_the_window") {
            return;
        }
        let world = World::new();
        for host in [&world.a, &world.b] {
            with_room(host);
        }
        let request = ObserveRequest {
            probes: vec!["memory".to_owned()],
            parts: vec![world.a.part("a"), world.b.part("b")],
        };
        let mut observer = Observer::open(request);
        observer.attach();
        observer.begin();
        // The connection by which the hosts found each other.
        wait_until(|| [&world.a, &world.b].iter().all(|host| sockstat(host, "TCP:", "inuse") == 0));
        let [earlier, earlier_b] = [&world.a, &world.b].map(|host| sockstat(host, "TCP:", "tw"));
        let mut pairs: Vec<(TcpStream, TcpStream)> =
            (0..CONNECTIONS).map(|_| world.connect(|_| (), |_| ())).collect();
        let data = vec![7; EACH];
        for (client, _) in &mut pairs {
            client.write_all(&data).expect("the send buffer takes it");
        }
        let page = page_bytes();
        // Read next to each reading of the probe: the kernel goes on to merge what it received.
        let mut held = 0;
        let now = Monotonic.now();
        observer.watch(now, now + 300_000_000, 100_000_000, |due| {
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(Monotonic.now())));
            held = held.max(sockstat(&world.a, "TCP:", "mem") * page);
            true
        });
        let mut buffer = vec![0; EACH];
        for (_, server) in &mut pairs {
            server.read_exact(&mut buffer).expect("what was written");
        }
        for (client, mut server) in pairs {
            drop(client);
            // Whose FIN comes second does not wait: both would, if both closed at once.
            assert_eq!(server.read(&mut buffer).expect("the end"), 0);
            drop(server);
        }
        let waiting = earlier + CONNECTIONS as u64;
        wait_until(|| {
            sockstat(&world.a, "TCP:", "tw") == waiting && sockstat(&world.b, "TCP:", "inuse") == 0
        });
        observer.end();
        observer.detach();
        let ObserverReport { probes, parts } = observer.take();
        assert_eq!(probes[0].status, ProbeStatus::Ready, "{:?}", probes[0].reason);
        let (a, b) = (section(&parts[0]), section(&parts[1]));

        let tcp = a.tcp_bytes.expect("read");
        let off = a.uncertainty_bytes.unwrap_or(0) + UNREAD / 4;
        assert!(tcp.max - tcp.min >= UNREAD - off, "{tcp:?} for {UNREAD}");
        assert!(tcp.max.abs_diff(held) <= off, "{tcp:?}, where the test read {held}");
        assert!(tcp.end + UNREAD - off <= tcp.max, "{tcp:?} after all was read");
        assert!(tcp.min as f64 <= tcp.mean && tcp.mean <= tcp.max as f64, "{tcp:?}");
        assert_eq!(tcp.readings, a.samples.len() as u64);
        assert_eq!(a.samples.iter().filter_map(|sample| sample.tcp_bytes).max(), Some(tcp.max));
        assert_eq!(a.samples.last().and_then(|sample| sample.tcp_bytes), Some(tcp.end));

        let limits = a.tcp_limits.expect("root may read them");
        let own = sysctl_of_the_kernel("net.ipv4.tcp_mem");
        assert_eq!([limits.low_bytes, limits.pressure_bytes, limits.high_bytes], own);
        assert!(
            tcp.max < limits.pressure_bytes,
            "the test is not to bring the machine under pressure"
        );
        assert_eq!((a.pressure.entered, a.pressure.aborted), (Some(0), Some(0)));
        assert_eq!(a.pressure.readings, Some(0));

        // What is of a namespace is of that alone: who closes first waits.
        let connections = CONNECTIONS as u64;
        let opened = |section: &MemorySection| {
            let tcp = section.sockets.tcp.expect("read");
            (tcp.min, tcp.max, tcp.end)
        };
        assert_eq!(opened(a), (0, connections, 0));
        assert_eq!(opened(b), (0, connections, 0));
        assert_eq!(a.sockets.time_wait.map(|gauge| gauge.end), Some(waiting));
        assert_eq!(max(b.sockets.time_wait), earlier_b);
        assert!(max(a.sockets.tcp_allocated) >= 2 * connections, "of both namespaces");

        let slabs = a.slabs.as_ref().expect("root may read them");
        assert!(!slabs.is_empty());
        for slab in slabs {
            let least = slab.objects_end * slab.object_bytes;
            assert!(slab.bytes_end >= least && slab.object_bytes > 0, "{slab:?}");
        }
    }
}
