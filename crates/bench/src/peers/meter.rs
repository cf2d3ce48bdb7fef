//! One measurement method for all programs: what the kernel counted in a window in the middle of a run.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use wirecost_linux::clock::{Monotonic, sleep};
use wirecost_linux::net_counters::NetCounters;
use wirecost_linux::{net_dev, process, process_time};
use wirecost_model::clock::{Clock, Nanos, seconds};
use wirecost_model::observe::{CpuSection, ObserveRequest, Part, ProbeStatus};
use wirecost_observe::Observer;

use super::point::{Kind, Point};

/// Header bytes that `lo` counts per packet: IPv4, TCP with timestamps. It counts after the Ethernet
/// header was removed:
/// <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/loopback.c#L67>.
const TCP_HEADERS: u64 = 20 + 32;
/// The same for a message of datagrams, which passes `lo` in one piece.
const UDP_HEADERS: u64 = 20 + 8;

/// Counters of this namespace.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    at: Nanos,
    pub(crate) packets: u64,
    bytes: u64,
    protocols: NetCounters,
}

impl Counters {
    /// # Errors
    /// When /proc cannot be read.
    pub(crate) fn read() -> io::Result<Self> {
        let protocols = NetCounters::of(Path::new("/proc/thread-self"))?;
        let devices = net_dev::read(None)?;
        let device = devices.get("lo").copied().unwrap_or_default();
        Ok(Self {
            at: Monotonic.now(),
            packets: device.rx_packets,
            bytes: device.rx_bytes,
            protocols,
        })
    }

    /// Open ends of TCP connections.
    pub(crate) fn open_ends(&self) -> u64 {
        self.protocols.get("Tcp.CurrEstab").unwrap_or(0)
    }

    fn since(&self, before: &Self) -> Traffic {
        let time = seconds(self.at.saturating_sub(before.at)).max(f64::MIN_POSITIVE);
        let grown = |name: &str| self.protocols.since(&before.protocols, name).unwrap_or(0) as f64;
        let packets = self.packets.saturating_sub(before.packets);
        let bytes = self.bytes.saturating_sub(before.bytes);
        let without = |headers: u64| bytes.saturating_sub(packets * headers) as f64 / time;
        // The kernel counts joined datagrams as one, both received and dropped. Their ratio is the
        // fraction received; `lo` gives the total.
        let received = grown("Udp.InDatagrams");
        let dropped = grown("Udp.InErrors") + grown("Udp.NoPorts");
        let part = received / (received + dropped).max(1.0);
        Traffic {
            payload: without(TCP_HEADERS),
            opened: grown("Tcp.PassiveOpens") / time,
            in_datagrams: without(UDP_HEADERS) * part,
        }
    }
}

/// Traffic per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Traffic {
    /// Bytes over TCP, without headers.
    payload: f64,
    /// Connections accepted.
    opened: f64,
    /// Bytes of datagrams that were received, without headers.
    in_datagrams: f64,
}

impl Traffic {
    /// The work of a point: bytes, transactions or connections per second.
    fn work_rate(&self, point: &Point) -> f64 {
        match point.kind {
            Kind::Stream | Kind::Http => self.payload,
            Kind::Rr => self.payload / (2.0 * f64::from(point.size)),
            Kind::Crr => self.opened,
            Kind::Udp => self.in_datagrams,
            Kind::UdpRr => self.in_datagrams / (2.0 * f64::from(point.size)),
        }
    }
}

/// The figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WindowFigures {
    /// The work of the point: bytes, transactions or connections per second.
    pub(crate) work_rate: f64,
    /// Cycles of all busy CPUs per KByte or transaction; none if the time was not traced.
    pub(crate) cost: Option<f64>,
    /// The same by the CPU clocks of both ends and of the kernel threads that work for them.
    pub(crate) cost_by_clocks: Option<f64>,
    /// CPUs that unrelated processes used.
    pub(crate) others: f64,
    /// Work of the smaller half of the window over that of the larger half.
    pub(crate) steady: f64,
}

/// CPU time since a reading, in seconds, by user.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Clocks {
    /// Processes of both ends, ksoftirqd and kworkers.
    run: f64,
    others: f64,
}

/// Measures windows. Each includes the probe `cpu`, so its cost is the same for all programs.
#[derive(Debug)]
pub(crate) struct WindowMeter {
    observer: Observer,
}

impl WindowMeter {
    pub(crate) fn open() -> Self {
        let request =
            ObserveRequest { probes: vec!["cpu".to_owned()], parts: vec![Part::default()] };
        Self { observer: Observer::open(request) }
    }

    /// Why CPU time is not exact on this machine, if it is not.
    pub(crate) fn lacks(&mut self) -> Option<String> {
        let report = self.observer.reports().into_iter().next()?;
        (report.status != ProbeStatus::Ready).then_some(report.reason).flatten()
    }

    /// Attaches the hooks, so that a window can begin immediately.
    pub(crate) fn attach(&mut self) {
        self.observer.attach();
    }

    /// Measures for this time, then detaches the hooks. `goes_on` returns whether the run still goes on
    /// at the end.
    ///
    /// # Errors
    /// The run ended early, or the kernel's counters cannot be read.
    pub(crate) fn measure_window(
        &mut self,
        point: &Point,
        window: Nanos,
        goes_on: impl FnOnce() -> bool,
    ) -> Result<WindowFigures, String> {
        let read = || Counters::read().map_err(|error| format!("/proc/net: {error}"));
        self.observer.begin();
        let before = process_time::cpu_times();
        let begin = read();
        sleep(window / 2);
        let middle = read();
        sleep(window - window / 2);
        let end = read();
        let clocks = clocks(&before);
        let goes_on = goes_on();
        self.observer.end();
        let observed = self.observer.take();
        self.observer.detach();
        if !goes_on {
            return Err("its traffic ended before the window did".to_owned());
        }

        let (begin, middle, end) = (begin?, middle?, end?);
        let work_rate = end.since(&begin).work_rate(point);
        let halves = (middle.since(&begin).work_rate(point), end.since(&middle).work_rate(point));
        let cpu = observed.parts.first().and_then(|part| part.cpu.as_ref());
        let hertz = cpu.and_then(|cpu| cpu.tsc_hz);
        // Both are fractions of one CPU.
        let length = seconds(end.at.saturating_sub(begin.at)).max(f64::MIN_POSITIVE);
        let traced = cpu.and_then(busy_cpus);
        let units = if point.is_bulk() { work_rate / 1024.0 } else { work_rate };
        let cost = |busy: f64| hertz.filter(|_| units > 0.0).map(|hertz| busy * hertz / units);
        Ok(WindowFigures {
            work_rate,
            cost: traced.and_then(cost),
            cost_by_clocks: cost(clocks.run / length),
            others: clocks.others / length,
            steady: halves.0.min(halves.1) / halves.0.max(halves.1).max(f64::MIN_POSITIVE),
        })
    }
}

/// Number of CPUs that were not halted; none if that was not traced.
pub(crate) fn busy_cpus(cpu: &CpuSection) -> Option<f64> {
    let each = cpu.total.wall / cpu.per_cpu.len().max(1) as f64;
    (cpu.source == "bpf").then(|| (cpu.total.wall - cpu.total.idle) / each.max(f64::MIN_POSITIVE))
}

/// Both ends are the processes that this process started.
fn clocks(before: &std::collections::BTreeMap<u32, Nanos>) -> Clocks {
    let after = process_time::cpu_times();
    let this = std::process::id();
    let ends: BTreeSet<u32> = process::descendants(this).into_iter().collect();
    let mut clocks = Clocks::default();
    for (pid, now) in after {
        let used = seconds(now.saturating_sub(before.get(&pid).copied().unwrap_or(0)));
        if used == 0.0 || pid == this {
            continue;
        }
        let of_kernel = || {
            let name = process_time::name(pid).unwrap_or_default();
            name.starts_with("ksoftirqd/") || name.starts_with("kworker/")
        };
        match ends.contains(&pid) || of_kernel() {
            true => clocks.run += used,
            false => clocks.others += used,
        }
    }
    clocks
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use wirecost_linux::datagrams::{Calls, enable_gro};

    use super::*;
    use crate::peers::point::Placement;

    #[test]
    fn payload_is_bytes_without_headers() {
        let point = |kind, size| Point {
            kind,
            connections: 1,
            size,
            placement: Placement::Shared,
            quick: false,
        };
        let traffic = Traffic { payload: 12_800.0, opened: 7.0, in_datagrams: 4200.0 };
        assert_eq!(traffic.work_rate(&point(Kind::Stream, 1024)), 12_800.0);
        assert_eq!(traffic.work_rate(&point(Kind::Rr, 64)), 100.0);
        assert_eq!(traffic.work_rate(&point(Kind::Crr, 64)), 7.0);
        assert_eq!(traffic.work_rate(&point(Kind::Udp, 1400)), 4200.0);
        assert_eq!(traffic.work_rate(&point(Kind::UdpRr, 60)), 35.0);
    }

    #[test]
    fn the_kernel_counts_what_was_written() {
        const BYTES: usize = 1 << 20;
        let test = "meter::the_kernel_counts_what_was_written";
        if wirecost_linux::privilege::skip_without_namespaces(test) {
            return;
        }
        // Whoever else uses loopback would be counted too.
        crate::namespace::enter_own_namespace().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Which segments are sent again is up to the machine, and `lo` counts those too.
        let undisturbed = (0..10).find_map(|_| {
            let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut to, _) = listener.accept().unwrap();
            let before = Counters::read().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| to.read_exact(&mut vec![0; BYTES]).unwrap());
                from.write_all(&vec![1; BYTES]).unwrap();
            });
            let _second = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let after = Counters::read().unwrap();
            assert_eq!(after.open_ends() - before.open_ends(), 2);
            let _accepted = listener.accept().unwrap();
            let again = after.protocols.since(&before.protocols, "Tcp.RetransSegs").unwrap();
            (again == 0).then_some((before, after))
        });
        let (before, after) = undisturbed.expect("segments were sent again each time");
        let length = seconds(after.at - before.at);
        let traffic = after.since(&before);
        // The second connection's SYN and its answer have longer headers than others.
        assert_eq!((traffic.payload * length).round() as usize, BYTES + 2 * 8);
        assert_eq!((traffic.opened * length).round(), 1.0);
    }

    #[test]
    fn joined_datagrams_count_with_their_full_size() {
        const MESSAGES: u64 = 100;
        const DATAGRAMS: u64 = 40;
        const SIZE: u64 = 1000;
        let test = "meter::joined_datagrams_count_with_their_full_size";
        if wirecost_linux::privilege::skip_without_namespaces(test) {
            return;
        }
        crate::namespace::enter_own_namespace().unwrap();
        for joins in [false, true] {
            let to = UdpSocket::bind("127.0.0.1:0").unwrap();
            to.set_nonblocking(true).unwrap();
            if joins {
                enable_gro(&to).unwrap();
            }
            let from = UdpSocket::bind("127.0.0.1:0").unwrap();
            from.connect(to.local_addr().unwrap()).unwrap();
            let before = Counters::read().unwrap();
            let message = vec![1; (DATAGRAMS * SIZE) as usize];
            for _ in 0..MESSAGES {
                let lengths = std::iter::once(message.len());
                Calls::default().send(&from, &message, lengths, Some(SIZE as u16)).unwrap();
            }
            // More than the receiver has a buffer for: some are dropped.
            let mut received = 0;
            let counted = MESSAGES * if joins { 1 } else { DATAGRAMS };
            let after = loop {
                while let Ok(length) = to.recv(&mut [0; 1 << 16]) {
                    received += length;
                }
                let now = Counters::read().unwrap();
                let since = |name: &str| now.protocols.since(&before.protocols, name).unwrap();
                if since("Udp.InDatagrams") + since("Udp.InErrors") == counted {
                    break now;
                }
            };
            let length = seconds(after.at - before.at);
            let measured = after.since(&before).in_datagrams * length;
            assert_eq!(measured.round() as usize, received, "{joins}");
            assert!((received as u64) < MESSAGES * DATAGRAMS * SIZE, "none was dropped");
        }
    }
}
