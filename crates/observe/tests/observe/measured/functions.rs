//! The probe `functions` on loads that are known: it finds their layers, and their shares.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wirecost_linux::privilege;
use wirecost_model::observe::{FunctionsSection, ObserveRequest, Part, ProbeStatus};
use wirecost_observe::Observer;

/// What the samples of a load in this process say.
fn sampled(load: impl FnOnce()) -> FunctionsSection {
    let part = Part { host: "here".to_owned(), pid: Some(std::process::id()), ..Part::default() };
    let mut observer = Observer::open_at(
        ObserveRequest { probes: vec!["functions".to_owned()], parts: vec![part] },
        997,
    );
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    let mut observation = observer.take();
    let report = &observation.probes[0];
    assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
    assert_eq!(report.cost.lost, 0);
    observation.parts.remove(0).functions.expect("a section")
}

/// Runs both ends until the process has used so much more time of CPUs, however long others make it wait,
/// or one has ended.
fn both(for_: Duration, one: impl Fn() -> bool + Sync, other: impl Fn() -> bool + Sync) {
    let over = AtomicBool::new(false);
    let used = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let end = used() + for_;
    let until = |step: &(dyn Fn() -> bool + Sync)| {
        let mut goes_on = true;
        while goes_on {
            goes_on = step() && !over.load(Ordering::Relaxed) && used() < end;
        }
        over.store(true, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| until(&one));
        scope.spawn(|| until(&other));
    });
}

const LENGTH: Duration = Duration::from_millis(1500);

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LENGTH)).unwrap();
        stream.set_write_timeout(Some(LENGTH)).unwrap();
    }
    (near, far)
}

fn stream() {
    let (near, far) = tcp_pair();
    let bytes = vec![1u8; 1 << 16];
    both(
        LENGTH,
        || (&near).write_all(&bytes).is_ok(),
        || (&far).read(&mut vec![0; 1 << 16]).is_ok_and(|read| read > 0),
    );
}

fn rr() {
    let (near, far) = tcp_pair();
    both(
        LENGTH,
        || (&near).write_all(&[1; 64]).is_ok() && (&near).read_exact(&mut [0; 64]).is_ok(),
        || (&far).read_exact(&mut [0; 64]).is_ok() && (&far).write_all(&[1; 64]).is_ok(),
    );
}

fn crr() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    both(
        LENGTH,
        || {
            let Ok(mut stream) = TcpStream::connect(address) else { return true };
            stream.set_read_timeout(Some(LENGTH)).unwrap();
            let _ = stream.write_all(&[1; 64]);
            let _ = stream.read_exact(&mut [0; 64]);
            true
        },
        || {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::yield_now();
                return true;
            };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(LENGTH)).unwrap();
            let _ = stream.read_exact(&mut [0; 64]);
            let _ = stream.write_all(&[1; 64]);
            true
        },
    );
}

fn udp() {
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    both(
        LENGTH,
        || {
            let _ = near.send(&[1; 64]);
            true
        },
        || {
            let _ = far.recv(&mut [0; 64]);
            true
        },
    );
}

fn sendfile() {
    let (near, far) = tcp_pair();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    both(
        LENGTH,
        || rustix::fs::sendfile(&near, &file, Some(&mut 0), 1 << 16).is_ok(),
        || (&far).read(&mut vec![0; 1 << 16]).is_ok_and(|read| read > 0),
    );
}

fn unix() {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_write_timeout(Some(LENGTH)).unwrap();
    far.set_read_timeout(Some(LENGTH)).unwrap();
    both(
        LENGTH,
        || (&near).write_all(&[1; 4096]).is_ok(),
        || (&far).read(&mut [0; 4096]).is_ok_and(|read| read > 0),
    );
}

/// The share of samples that a wake-up of the other CPU takes, and of those in which that one waits for the
/// socket meanwhile. Where an interrupt of another CPU is an exit to the hypervisor that may be nine
/// tenths of a request-response, and which tenth is left to the layers says nothing about them.
fn waking(section: &FunctionsSection) -> f64 {
    let names = ["_raw_spin_unlock_irqrestore", "__pv_queued_spin_lock_slowpath"];
    let functions =
        section.functions.iter().filter(|function| names.contains(&function.name.as_str()));
    functions.map(|function| function.exclusive).sum()
}

/// Its name, itself, and layers that it is known to be in.
type Load = (&'static str, fn(), &'static [&'static str]);

/// The layers must hold at least 95% of the samples in the kernel, and find what each load is known
/// to do. One test, as loads at once would be in each other's samples.
#[test]
fn layers_cover_what_traffic_does() {
    if privilege::skip_without_tracing("layers_cover_what_traffic_does") {
        return;
    }
    for (name, load, expected) in [
        ("stream", stream as fn(), &["copy", "TCP/UDP"]),
        ("rr", rr, &["TCP/UDP", "scheduler", "IP"]),
        ("crr", crr, &["TCP/UDP", "IP", "files"]),
        ("udp", udp, &["TCP/UDP", "IP", "skb memory"]),
        ("sendfile", sendfile, &["files", "copy"]),
        ("unix", unix, &["socket", "copy"]),
    ] as [Load; 6]
    {
        let section = sampled(load);
        // False failures: 1e-9 (x6), computed: 1,500 ms of CPU time are 1,495 samples, and most of each load is in the kernel.
        assert!(section.kernel_samples > 200, "{name}: {}", section.kernel_samples);
        let unmapped = section.unmapped.expect("samples") * section.samples as f64;
        let covered = 1.0 - unmapped / section.kernel_samples as f64;
        println!(
            "{name}: {} samples, {:.2}% of the kernel's covered; not: {:?}",
            section.samples,
            covered * 100.0,
            section.unmapped_functions
        );
        for layer in section.layers.iter().take(12) {
            println!("    {:16} {:5.1}%", layer.layer, layer.share * 100.0);
        }
        // False failures: 1e-8 (x6), computed: 99.7% or more are covered (sampling.md), so of 200 samples 10 would miss, not 0.6.
        assert!(covered >= 0.95, "{name}: {covered} {:?}", section.unmapped_functions);
        let working = 1.0 - waking(&section);
        for layer in expected {
            let found = section.layers.iter().find(|found| found.layer == *layer);
            // False failures: 3e-7 (x15), computed: a layer of 3% has 45 of 1,500 samples (Poisson), and 16 are enough.
            assert!(
                found.is_some_and(|found| found.share > 0.01 * working),
                "{name}: {layer} {found:?} of {working}"
            );
        }
    }
}
