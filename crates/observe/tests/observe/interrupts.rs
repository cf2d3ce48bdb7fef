//! The probe `interrupts` against what the kernel itself counts, on known loads.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::interrupts::{self, Line, since};
use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsGuard};
use wirecost_linux::{net_dev, privilege, softnet};
use wirecost_model::observe::{
    InterruptRow, InterruptsSection, ObserveRequest, ObserverReport, Part, ProbeStatus,
};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;

fn watch(probes: &[&str], part: Part, load: impl FnOnce()) -> ObserverReport {
    let probes = probes.iter().map(|&name| name.to_owned()).collect();
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![part] });
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    observer.take()
}

fn of_machine() -> Part {
    Part { host: "here".to_owned(), ..Part::default() }
}

fn section(observation: &ObserverReport) -> &InterruptsSection {
    observation.parts[0].interrupts.as_ref().expect("a section")
}

/// Datagrams over loopback, each received before the next is sent.
fn datagrams(number: usize) {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    exchange(&sender, &receiver, number);
}

fn exchange(sender: &UdpSocket, receiver: &UdpSocket, number: usize) {
    let to = receiver.local_addr().expect("an address");
    let mut buffer = [0; 64];
    // What is lost, as another load has filled the backlog of the CPU, is sent again.
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    let mut received = 0;
    while received < number {
        sender.send_to(&[7; 64], to).expect("sent");
        received += receiver.recv(&mut buffer).map_or(0, |_| 1);
    }
}

/// What /proc counted by source and CPU.
type Counts = BTreeMap<(String, u32), u64>;

fn counts() -> Counts {
    let of = |lines: Vec<Line>| {
        let lines = lines.into_iter().flat_map(|line| {
            let source = line.source.to_ascii_lowercase();
            line.counts.into_iter().map(move |(cpu, count)| ((source.clone(), cpu), count))
        });
        lines.collect::<Vec<_>>()
    };
    let mut all = of(interrupts::interrupts().expect("/proc/interrupts"));
    all.extend(of(interrupts::softirqs().expect("/proc/softirqs")));
    all.into_iter().collect()
}

#[test]
fn polls_fetch_what_the_device_received() {
    let name = "polls_fetch_what_the_device_received";
    if privilege::skip_without_tracing(name) || privilege::skip_without_namespaces(name) {
        return;
    }
    const NUMBER: u64 = 1009;
    let name = format!("wirecost-test-{}-napi", std::process::id());
    let _here = NetNsGuard::new(NetNs::create(&name).expect("a namespace"));
    let peer = format!("{name}-peer");
    let _there = NetNsGuard::new(NetNs::create(&peer).expect("a namespace"));
    let (here, there) = (NetNs::open(&name).expect("it"), NetNs::open(&peer).expect("it"));
    let links = Links::of(&here).expect("netlink");
    links.add_veth("eth0", "eth0", &there).expect("a pair");
    let far = Links::of(&there).expect("netlink");
    for (links, address) in [(&links, [198, 18, 0, 1]), (&far, [198, 18, 0, 2])] {
        links.add_address("eth0", Ipv4Addr::from(address).into(), 24).expect("an address");
        links.up("eth0").expect("up");
    }
    // The device is polled by a NAPI instance of its own where it does this and its peer not that.
    here.run(|| Ethtool::open()?.set_feature("eth0", "rx-gro", true))
        .expect("entered")
        .expect("GRO");
    // All kinds of it: https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c#L330
    let without_tso = || -> std::io::Result<()> {
        let ethtool = Ethtool::open()?;
        let kinds = ["tcp", "tcp-ecn", "tcp-mangleid", "tcp6"];
        kinds.iter().try_for_each(|kind| {
            ethtool.set_feature("eth0", &format!("tx-{kind}-segmentation"), false)
        })
    };
    there.run(without_tso).expect("entered").expect("TSO");
    links.wait_until_running("eth0", Duration::from_secs(10)).expect("running");
    let sender = there
        .run(|| UdpSocket::bind((Ipv4Addr::new(198, 18, 0, 2), 0)))
        .expect("entered")
        .expect("a socket");

    here.run(|| {
        let receiver = UdpSocket::bind((Ipv4Addr::new(198, 18, 0, 1), 0)).expect("a socket");
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let device = Some("eth0".to_owned());
        let part = Part { netns_of: Some(thread), device, ..of_machine() };
        let mut counted = 0;
        let observation = watch(&["interrupts"], part, || {
            let received = || net_dev::read(None).expect("/proc/net/dev")["eth0"].rx_packets;
            let before = received();
            exchange(&sender, &receiver, NUMBER as usize);
            counted = received() - before;
        });
        let section = section(&observation);
        let napi = section.napi.as_ref().expect("polls");
        let of_device: Vec<_> = napi.iter().filter(|row| row.device.is_some()).collect();
        assert_eq!(of_device.len(), 1, "{napi:?}");
        let row = of_device[0];
        assert_eq!(row.device.as_deref(), Some("eth0"));
        // ARP and the like come beside the datagrams, some perhaps between the readings at the edges.
        assert!(counted >= NUMBER);
        let device = &section.devices[0];
        assert!((counted..=device.rx_packets).contains(&row.packets), "{row:?} {device:?}");
        assert!(row.packets < NUMBER + 100, "{row:?}");
        assert!(row.polls <= row.packets + row.empty);
        assert_eq!(row.histogram_packets.iter().sum::<u64>(), row.polls);
        assert_eq!(row.budget_exhausted, 0);
        // No interrupt brings them.
        assert_eq!((device.interrupts, device.rx_packets_per_interrupt), (None, None));
        assert!(device.reason.as_ref().expect("a reason").contains("virtual device"));
    })
    .expect("entered");
}

#[test]
fn the_backlog_takes_what_loopback_hands_over() {
    if privilege::skip_without_tracing("the_backlog_takes_what_loopback_hands_over") {
        return;
    }
    const NUMBER: u64 = 5003;
    let processed = || softnet::read().expect("softnet_stat");
    let outer_before = processed();
    let observation = watch(&["interrupts"], of_machine(), || datagrams(NUMBER as usize));
    let outer_after = processed();
    let section = section(&observation);
    let napi = section.napi.as_ref().expect("polls");
    let backlog = napi.iter().find(|row| row.device.is_none()).expect("the backlog");
    let outer: u64 = outer_before
        .iter()
        .zip(&outer_after)
        .map(|(before, after)| u64::from(after.processed.wrapping_sub(before.processed)))
        .sum();
    assert!((NUMBER..=outer).contains(&backlog.packets), "{backlog:?} of {outer}");
    assert!((NUMBER..=outer).contains(&section.softnet_total.processed));
    let lo = section.devices.iter().find(|device| device.device == "lo").expect("lo");
    assert!(lo.rx_packets >= NUMBER);
    assert!(lo.rx_packets_per_interrupt.is_none() && lo.reason.is_some());
}

#[test]
fn the_counts_of_proc_need_no_privilege_and_no_hook() {
    let outer_before = counts();
    let observation = watch(&["interrupts:basic"], of_machine(), || {
        datagrams(1_009);
        // A timer wakes it.
        std::thread::sleep(Duration::from_millis(20));
    });
    let outer_after = counts();
    let report = &observation.probes[0];
    assert_eq!((report.name.as_str(), report.status), ("interrupts", ProbeStatus::Ready));
    assert_eq!(report.cost.hooks, 0);
    let section = section(&observation);
    assert_eq!(section.source, "proc");
    assert!(section.napi.is_none());
    assert!(section.missing.iter().any(|missing| missing.contains("histograms")));
    let net_rx = section.softirqs.iter().find(|row| row.source == "net_rx").expect("net_rx");
    assert!(net_rx.total.count > 0 && net_rx.total.seconds.is_none());
    for on in &net_rx.per_cpu {
        let key = ("net_rx".to_owned(), on.cpu.expect("a CPU"));
        assert!(on.count <= since(outer_before[&key], outer_after[&key]));
    }
    assert!(section.interrupts_per_second > 0.0);
    assert!(section.softnet_total.processed >= 1_009);
}

/// Interrupts are of the whole machine: while other observers come and go, the kernel counts some `CAL` more than it has
/// us run for.
mod alone {
    use super::*;

    #[test]
    fn counts_are_those_of_proc() {
        if privilege::skip_without_tracing("counts_are_those_of_proc") {
            return;
        }
        undisturbed_machine(|| {
            let wrong = differences();
            assert!(wrong.is_empty(), "traced, and what /proc has at least and at most: {wrong:?}");
        });
    }

    /// Sources and CPUs whose traced count is not that of /proc.
    fn differences() -> Vec<((String, u32), u64, [u64; 2])> {
        let mut wrong = Vec::new();
        let mut observer = Observer::open(ObserveRequest {
            probes: vec!["interrupts".to_owned()],
            parts: vec![of_machine()],
        });
        observer.attach();
        let outer_before = counts();
        observer.begin();
        let inner_before = counts();
        datagrams(10_007);
        std::thread::sleep(Duration::from_millis(50));
        let inner_after = counts();
        observer.end();
        let outer_after = counts();
        observer.detach();
        let observation = observer.take();
        let report = &observation.probes[0];
        assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
        assert_eq!(report.cost.recursion_misses, 0);
        let section = section(&observation);
        assert_eq!(section.source, "bpf");

        let net_rx = section.softirqs.iter().find(|row| row.source == "net_rx").expect("net_rx");
        // One softirq for each datagram, unless another load's softirq took it along.
        // False failures: 1e-6, computed: of 10,007 datagrams nine in ten would have to come with another.
        assert!(net_rx.total.count > 1_000, "{net_rx:?}");
        let traced: Vec<&InterruptRow> = section
            .interrupts
            .iter()
            .chain(&section.softirqs)
            .filter(|row| row.total.seconds.is_some())
            .collect();
        assert!(traced.iter().any(|row| row.source == "LOC"));
        for row in traced {
            assert_eq!(row.total.count, row.per_cpu.iter().map(|cpu| cpu.count).sum::<u64>());
            for on in &row.per_cpu {
                let key = (row.source.to_ascii_lowercase(), on.cpu.expect("a CPU"));
                let delta = |before: &Counts, after: &Counts| {
                    since(before.get(&key).copied().unwrap_or(0), after[&key])
                };
                let inner = delta(&inner_before, &inner_after);
                let outer = delta(&outer_before, &outer_after);
                // /proc counts at the entry and we at the exit: one may be under way at either edge.
                if !(inner.saturating_sub(1)..=outer + 1).contains(&on.count) {
                    wrong.push((key, on.count, [inner, outer]));
                }
            }
            let total = &row.total;
            let histogram = total.histogram_ns.as_ref().expect("a histogram");
            assert_eq!(histogram.iter().sum::<u64>(), total.count);
            let (average, max) = (total.average_us.expect("timed"), total.max_us.expect("timed"));
            assert!(average <= max, "{row:?}");
            // By powers of two, so the longest is in the last that has any.
            let longest = (max * 1e3).round() as u64;
            assert_eq!(histogram.len(), longest.max(1).ilog2() as usize + 1, "{row:?}");
            assert!(total.in_idle.expect("timed") <= total.seconds.expect("timed"), "{row:?}");
        }
        let unmatched = section.unmatched.expect("traced");
        if unmatched >= 5 {
            wrong.push((("unmatched".to_owned(), 0), unmatched, [0, 4]));
        }
        wrong
    }
}

/// Other programs on the CPUs change what these compare.
mod measured {
    use super::*;

    #[test]
    fn times_are_those_of_the_cpus() {
        if privilege::skip_without_tracing("times_are_those_of_the_cpus") {
            return;
        }
        let observation = watch(&["cpu", "interrupts"], of_machine(), || datagrams(5_003));
        let (cpu, section) =
            (observation.parts[0].cpu.as_ref().expect("cpu"), section(&observation));
        let sum =
            |rows: &[InterruptRow]| rows.iter().filter_map(|row| row.total.seconds).sum::<f64>();
        // What is under way at an edge is in one of them in part: on each CPU at most one handler.
        let rows = section.interrupts.iter().chain(&section.softirqs);
        let longest = rows.filter_map(|row| row.total.max_us).fold(0.0, f64::max) / 1e6;
        let edges = 2.0 * longest * f64::from(section.cpus) + 0.001;
        let near = |a: f64, b: f64| (a - b).abs() <= 0.01 * a.max(b) + edges;
        // False failures: 1e-6, computed: both have one reading of the clock at each transition, and edges are allowed for.
        assert!(near(sum(&section.softirqs), cpu.total.softirq), "{:?}", cpu.total);
        // False failures: 1e-6, computed: as that of softirqs.
        assert!(near(sum(&section.interrupts), cpu.total.irq), "{:?}", cpu.total);
        for row in &section.softirqs {
            let of_cpus = cpu.total.softirqs.iter().find(|softirq| softirq.vector == row.source);
            let (traced, of_cpus) =
                (row.total.seconds.expect("timed"), of_cpus.expect("it").seconds);
            // False failures: 1e-6 (x10), computed: as that of all softirqs.
            assert!(near(traced, of_cpus), "{of_cpus} of {row:?}");
            // No datagram is delivered in less.
            let least = if row.source == "net_rx" { 1e-7 * row.total.count as f64 } else { 0.0 };
            assert!(traced >= least && row.total.count > 0, "{row:?}");
        }
        let in_idle =
            |rows: &[InterruptRow]| rows.iter().filter_map(|row| row.total.in_idle).sum::<f64>();
        let idle = in_idle(&section.softirqs) + in_idle(&section.interrupts);
        // False failures: 1e-6, computed: as that of softirqs.
        assert!(near(idle, cpu.total.in_idle.expect("traced")), "{:?}", cpu.total);
        let ksoftirqd = section.ksoftirqd.as_ref().expect("its threads");
        let in_ksoftirqd = cpu.total.in_ksoftirqd.expect("traced");
        assert!((in_ksoftirqd - ksoftirqd.softirq_seconds.expect("traced")).abs() < 1e-9);
        assert!((0.0..=1.0).contains(&ksoftirqd.share.expect("there were softirqs")));
    }
}
