//! The figures of a run whose traffic is known to the byte, and the warnings.

use std::time::Duration;

use proptest::prelude::*;
use wirecost_model::clock::SECOND;
use wirecost_model::environment::{Device, Environment};
use wirecost_model::histogram::Histogram;
use wirecost_model::link::netem::{NetemLine, NetemOutcome, NetemSample, QdiscCounts};
use wirecost_model::link::nic::{DeviceCounts, QueueCounts};
use wirecost_model::link::{
    LineCounts, LinkCounts, LinkOutcome, LinkSample, LinkSpec, NamedLine, SideCounts, Topology,
};
use wirecost_model::measure::{
    Datagrams, Edge, FairnessSums, FileChecks, FlowopCounts, Quiet, Setting, WorkerUse,
};
use wirecost_model::outcome::Outcome;
use wirecost_model::profile::Until;
use wirecost_model::program::Side;
use wirecost_model::run::{AfterRamp, Run, WindowKind};
use wirecost_model::status::Status;
use wirecost_model::warning::{self, Warning};

use crate::two_hosts::{CPU, Fault, TSC_HZ, Traffic, analyze, analyze_offered, key};

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= b.abs() * relative + 1e-9
}

fn codes(run: &Run) -> Vec<&str> {
    run.warnings.iter().map(|w| w.code.as_str()).collect()
}

fn message<'a>(run: &'a Run, code: &str) -> &'a str {
    let found = run.warnings.iter().find(|w| w.code == code);
    found.map_or("", |warning| warning.message.as_str())
}

fn honest() -> Outcome {
    Traffic::default().outcome(Fault::None)
}

fn on_one_machine(outcome: &mut Outcome, owns_cpus: bool) {
    for (number, host) in outcome.hosts.iter_mut().enumerate() {
        host.facts.boot_id = "one".to_owned();
        host.facts.hostname = "alpha".to_owned();
        host.owns_cpus = owns_cpus;
        if owns_cpus {
            host.cpus = vec![number as u32];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the noise, nothing is counted twice or left out between the window's edges, and
    /// rates are what the traffic was made with.
    #[test]
    fn intervals_add_up_to_the_window(
        tx_rate in 1e7f64..1e10,
        rx_rate in 0.0f64..1e10,
        interval in 0.05f64..2.0,
        window in 0.3f64..5.0,
        jitter in 0.0f64..0.02,
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        seed in any::<u64>(),
    ) {
        let traffic = Traffic { tx_rate, rx_rate, interval, window, jitter, seed, ..Traffic::default() };
        let mut outcome = traffic.outcome(Fault::None);
        for (number, index) in dropped.iter().enumerate() {
            let snapshots = &mut outcome.hosts[number % 2].phases[0].snapshots;
            let inner: Vec<usize> = (0..snapshots.len()).filter(|&i| snapshots[i].edge == Edge::Interval).collect();
            if !inner.is_empty() {
                snapshots.remove(inner[index.index(inner.len())]);
            }
        }
        let run = analyze(&outcome);
        let whole = run.window.as_ref().unwrap();
        let throughput = run.throughput.as_ref().unwrap();
        prop_assert_eq!(run.intervals.iter().map(|i| i.tx_bytes).sum::<u64>(), throughput.tx_bytes);
        prop_assert_eq!(run.intervals.iter().map(|i| i.rx_bytes).sum::<u64>(), throughput.rx_bytes);
        prop_assert_eq!(
            run.intervals.iter().map(|i| i.transactions).sum::<u64>(),
            run.transactions.as_ref().unwrap().count
        );
        prop_assert!(close(run.intervals.iter().map(|i| i.seconds).sum::<f64>(), whole.seconds, 1e-9));
        let mut clock = 0.0;
        for interval in &run.intervals {
            prop_assert!(close(interval.start, clock, 1e-6));
            clock += interval.seconds;
        }
        // Operations are whole, and traffic stops at the window's end while the last snapshot may
        // be late.
        let steps = 8.0 * (2.0 * traffic.operation_bytes as f64 + (tx_rate + rx_rate) * jitter) / window;
        prop_assert!((throughput.tx_bits_per_second - tx_rate * 8.0).abs() < steps * 1.2);
        prop_assert!((throughput.rx_bits_per_second - rx_rate * 8.0).abs() < steps * 1.2);
        prop_assert!(close(
            throughput.bits_per_second,
            throughput.tx_bits_per_second + throughput.rx_bits_per_second,
            1e-12
        ));
    }

    /// However the strands are spread over hosts, the index is that of all of them.
    #[test]
    fn fairness_is_jains_index_of_all_strands(
        moved in prop::collection::vec(0.0f64..1e12, 1..40),
        split in any::<prop::sample::Index>(),
    ) {
        prop_assume!(moved.iter().sum::<f64>() > 0.0);
        let mut outcome = honest();
        let mut second = outcome.hosts[0].clone();
        let split_at = split.index(moved.len());
        for (host, strands) in [(&mut outcome.hosts[0], &moved[..split_at]), (&mut second, &moved[split_at..])] {
            let mut sums = FairnessSums::default();
            strands.iter().for_each(|&bytes| sums.add(bytes));
            host.phases[0].fairness = sums;
        }
        outcome.hosts.push(second);
        // The peer's view of the same strands is not counted again.
        outcome.hosts[1].phases[0].fairness.add(1e15);
        let fairness = analyze(&outcome).fairness.unwrap();
        let (n, sum) = (moved.len() as f64, moved.iter().sum::<f64>());
        let squares = moved.iter().map(|x| x * x).sum::<f64>();
        prop_assert!(close(fairness.jain, sum * sum / (n * squares), 1e-9));
        prop_assert!(fairness.jain <= 1.0 + 1e-9 && fairness.jain >= 1.0 / n - 1e-9);
        prop_assert_eq!(fairness.strands, moved.len() as u64);
    }

    #[test]
    fn cpu_percents_add_up(window in 0.3f64..20.0, jitter in 0.0f64..0.02, seed in any::<u64>()) {
        let run = analyze(&Traffic { window, jitter, seed, ..Traffic::default() }.outcome(Fault::None));
        for cpu in run.hosts.iter().map(|h| &h.cpu).chain(run.machines.iter().map(|m| &m.cpu)) {
            let cpu = cpu.as_ref().unwrap();
            let sum = cpu.usr + cpu.sys + cpu.irq + cpu.softirq + cpu.steal + cpu.idle + cpu.unaccounted;
            prop_assert!((sum - 100.0).abs() < 1e-9);
            // A tick is 10 ms, at each end of each column.
            let tick = 1.0 / (window * 100.0) * 100.0;
            prop_assert!((cpu.sys - CPU[1]).abs() < 2.0 * tick);
            prop_assert!(cpu.unaccounted.abs() < 8.0 * tick);
            prop_assert_eq!(cpu.per_cpu.len(), 2);
        }
    }
}

#[test]
fn figures_of_a_stream() {
    let run = analyze(&honest());
    assert_eq!((run.status, &run.error), (Status::Ok, &None));
    assert!(run.warnings.is_empty(), "{:?}", run.warnings);
    let window = run.window.unwrap();
    assert_eq!((window.seconds, window.ramp_seconds), (5.0, 1.0));
    assert_eq!(window.kind, WindowKind::Duration);
    assert_eq!(run.intervals.len(), 5);
    let throughput = run.throughput.unwrap();
    assert!(close(throughput.tx_bytes as f64, 5e9, 1e-4));
    assert!(close(throughput.bits_per_second, 8e9, 1e-4));
    assert_eq!(throughput.rx_bytes, 0);
    // Each write of the master is a transaction; the peer's reads are not counted again.
    let transactions = run.transactions.unwrap();
    assert!(close(transactions.per_second, 1e9 / 65536.0, 1e-3));
    assert_eq!(run.operations.unwrap().count, transactions.count);
    assert_eq!(run.connections.unwrap().open, 4);
    let latency = run.latency_us.unwrap();
    assert!(close(latency.p50, 500.0, 0.01) && close(latency.max, 1000.0, 0.01));
    assert_eq!(latency.count, 1000);
    assert_eq!(run.fairness.unwrap().jain, 1.0);
    let sides: Vec<Side> = run.flowops.iter().map(|row| row.side).collect();
    assert_eq!(sides, [Side::Master, Side::Master, Side::Peer, Side::Peer]);
    assert!(run.flowops[0].latency_us.is_some() && run.flowops[1].latency_us.is_none());
    let tcp = run.tcp.unwrap();
    // The peer only receives: its round-trip time of 300 us is that of the handshake.
    assert_eq!((tcp.retransmits, tcp.rtt_us, tcp.rtt_samples), (Some(6), Some(100.0), 1));
    assert_eq!(run.phases.len(), 1);
    assert!(run.phases[0].headline);
    assert_eq!(run.datagrams, None);
}

/// Half of two CPUs at 3 GHz for a gigabyte a second, at either end.
#[test]
fn cycles_per_kbyte_of_hosts_with_their_own_cpus() {
    let run = analyze(&honest());
    let busy = (CPU[0] + CPU[1] + CPU[2] + CPU[3]) / 100.0;
    let expected = busy * 2.0 * TSC_HZ / (1e9 / 1024.0);
    for (host, machine) in run.hosts.iter().zip(&run.machines) {
        assert!(close(host.cycles_per_kbyte.unwrap(), expected, 1e-3));
        assert_eq!(host.cycles_source.as_deref(), Some("tsc-ticks"));
        assert_eq!(host.cpu_source.as_deref(), Some("proc-stat"));
        assert!(close(machine.cycles_per_kbyte.unwrap(), expected, 1e-3));
        assert_eq!(machine.hosts, [host.name.as_str()]);
        assert!(host.shares_machine_with.is_empty());
    }
}

#[test]
fn retransmissions_are_told_where_there_are_too_many_for_a_path_without_loss() {
    let of = |retransmits: u64, sent: u64| {
        let mut outcome = honest();
        let counts = [(Some(retransmits), Some(sent)), (Some(0), Some(0))];
        for (host, (retransmits, sent)) in outcome.hosts.iter_mut().zip(counts) {
            let phase = &mut host.phases[0];
            (phase.retransmits, phase.segments_sent) = (retransmits, sent);
        }
        let run = analyze(&outcome);
        assert_eq!(run.tcp.as_ref().and_then(|tcp| tcp.segments_sent), Some(sent));
        let told = run.warnings.into_iter().find(|w| w.code == "segments-retransmitted");
        told.map(|warning| warning.message)
    };
    let message = of(175_283, 20_000_000).unwrap_or_default();
    assert!(message.contains("175283 of 20000000 TCP segments") && message.contains("(0.88%)"));
    assert!(message.contains("look for drops"), "{message}");
    assert_eq!(of(100, 100_000), None);
    // Tail loss probes of a short window.
    assert_eq!(of(9, 100), None);
    assert!(of(10, 100).is_some());
}

/// The root of a device, or a queue or class below it.
#[test]
fn retransmissions_where_netem_is_configured_are_told_as_such() {
    let message_of = |device: Device| {
        let mut outcome = honest();
        for host in &mut outcome.hosts {
            let phase = &mut host.phases[0];
            (phase.retransmits, phase.segments_sent) = (Some(500), Some(50_000));
        }
        let devices = Some(vec![Device { name: "eth0".to_owned(), ..device }]);
        let environment = Environment { devices, ..Environment::default() };
        outcome.hosts[1].environment = serde_json::to_value(environment).unwrap();
        let run = analyze(&outcome);
        message(&run, "segments-retransmitted").to_owned()
    };
    let kinds = |kinds: &[&str]| Some(kinds.iter().map(|&kind| (kind.to_owned(), 1)).collect());
    let below = Device { qdiscs: kinds(&["mq", "netem"]), ..Device::default() };
    let root = Device { qdisc: Some("netem".to_owned()), ..Device::default() };
    for device in [below, root] {
        let message = message_of(device);
        assert!(message.contains("configured by netem on eth0 of "), "{message}");
        assert!(!message.contains("look for drops"), "{message}");
    }
    let message = message_of(Device { qdiscs: kinds(&["fq_codel"]), ..Device::default() });
    assert!(message.contains("look for drops") && !message.contains("netem"), "{message}");
}

#[test]
fn a_load_that_was_not_reached_is_told() {
    let of = |share: f64, transactions: u64| {
        let delivered = analyze(&honest()).throughput.unwrap().bits_per_second;
        let mut outcome = honest();
        for host in &mut outcome.hosts {
            let snapshots = &mut host.phases[0].snapshots;
            let at = |edge: Edge| snapshots.iter().position(|s| s.edge == edge).unwrap();
            let (start, end) = (at(Edge::WindowStart), at(Edge::WindowEnd));
            let before = snapshots[start].counters.transactions;
            snapshots[end].counters.transactions = before + transactions;
        }
        let run = analyze_offered(&outcome, Some(delivered / share));
        assert_eq!(run.offered_bits_per_second, Some(delivered / share));
        let told = run.warnings.into_iter().find(|w| w.code == "offered-load-not-reached");
        told.map(|warning| warning.message)
    };
    let message = of(0.5, 100_000).unwrap_or_default();
    assert!(message.contains("of the offered") && message.contains("(50%)"), "{message}");
    assert_eq!(of(0.97, 100_000), None);
    // A hundred random starts may as well be eighty.
    assert!(of(0.8, 100_000).is_some());
    assert_eq!(of(0.8, 100), None);
}

/// On a starved host the counter is read long after the rest of a snapshot, but it says when.
#[test]
fn the_rate_of_the_counter_is_of_the_instants_at_which_it_was_read() {
    let mut outcome = honest();
    for host in &mut outcome.hosts {
        let snapshots = &mut host.phases[0].snapshots;
        let end = snapshots.iter_mut().find(|s| s.edge == Edge::WindowEnd).unwrap();
        let cpu = end.cpu.as_mut().unwrap();
        cpu.tsc = Some(cpu.tsc.unwrap() + TSC_HZ as u64);
        cpu.tsc_at = Some(cpu.tsc_at.unwrap() + 1_000_000_000);
    }
    let (late, punctual) = (analyze(&outcome), analyze(&honest()));
    for (late, punctual) in late.hosts.iter().zip(&punctual.hosts) {
        let (late, punctual) = (late.cycles_per_kbyte.unwrap(), punctual.cycles_per_kbyte.unwrap());
        assert!(close(late, punctual, 1e-6), "{late} of {punctual}");
    }
}

#[test]
fn hosts_of_one_machine_that_share_cpus_have_no_cost_of_their_own() {
    let mut outcome = honest();
    on_one_machine(&mut outcome, false);
    let run = analyze(&outcome);
    for host in &run.hosts {
        assert_eq!((host.cpu.is_some(), host.cycles_per_kbyte), (true, None));
        assert!(host.cycles_reason.as_ref().unwrap().contains("see machines"));
    }
    assert_eq!(run.hosts[0].shares_machine_with, ["server"]);
    let [machine] = &run.machines[..] else { panic!("one machine: {:?}", run.machines) };
    // Each byte once, though both ends were here.
    let busy = (CPU[0] + CPU[1] + CPU[2] + CPU[3]) / 100.0;
    let expected = busy * 2.0 * TSC_HZ / (1e9 / 1024.0);
    assert!(close(machine.cycles_per_kbyte.unwrap(), expected, 1e-3));
    assert_eq!(codes(&run), ["shared-cpus"]);
    assert_eq!(run.status, Status::Ok);
}

#[test]
fn hosts_of_one_machine_with_cpus_of_their_own_have_a_cost_each() {
    let mut outcome = honest();
    on_one_machine(&mut outcome, true);
    let run = analyze(&outcome);
    let cost = |n: usize| run.hosts[n].cycles_per_kbyte.unwrap();
    assert!(close(cost(0) + cost(1), run.machines[0].cycles_per_kbyte.unwrap(), 1e-3));
    assert_eq!(run.hosts[0].cpu.as_ref().unwrap().per_cpu.len(), 1);
    assert!(run.warnings.is_empty(), "{:?}", run.warnings);
}

#[test]
fn a_machine_with_some_of_both_sides_knows_its_bytes_only_if_all_pass_through_it() {
    let mut outcome = honest();
    let mut other = outcome.hosts[1].clone();
    other.name = "server2".to_owned();
    other.facts.boot_id = "boot-0".to_owned();
    outcome.hosts.push(other);
    // The only master is on the first machine, with one of two peers.
    let run = analyze(&outcome);
    assert_eq!(run.machines.len(), 2);
    assert!(run.machines[0].cycles_per_kbyte.is_some());
    let mut second = outcome.hosts[0].clone();
    second.name = "client2".to_owned();
    second.facts.boot_id = "boot-1".to_owned();
    outcome.hosts.push(second);
    let run = analyze(&outcome);
    assert_eq!(run.machines[0].cycles_per_kbyte, None);
    assert!(run.machines[0].cycles_reason.is_some());
}

#[test]
fn what_was_not_measured_is_null_with_its_reason() {
    let reason = |change: &dyn Fn(&mut Outcome)| {
        let mut outcome = honest();
        change(&mut outcome);
        let row = analyze(&outcome).hosts.remove(0);
        assert_eq!((row.cycles_per_kbyte, row.cycles_source), (None, None));
        row.cycles_reason.unwrap()
    };
    let each_cpu = |outcome: &mut Outcome, change: &dyn Fn(&mut _)| {
        for snapshot in &mut outcome.hosts[0].phases[0].snapshots {
            change(&mut snapshot.cpu);
        }
    };
    assert!(reason(&|o| each_cpu(o, &|cpu| *cpu = None)).contains("not read"));
    let no_tsc = |cpu: &mut Option<wirecost_model::host::CpuSnapshot>| {
        if let Some(cpu) = cpu {
            cpu.tsc = None;
        }
    };
    assert!(reason(&|o| each_cpu(o, &no_tsc)).contains("time-stamp counter"));
    let idle = |cpu: &mut Option<wirecost_model::host::CpuSnapshot>| {
        for ticks in cpu.iter_mut().flat_map(|cpu| &mut cpu.ticks) {
            (ticks.user, ticks.system, ticks.irq, ticks.softirq) = (0, 0, 0, 0);
        }
    };
    assert!(reason(&|o| each_cpu(o, &idle)).contains("no busy tick"));
    let silent = Traffic { tx_rate: 0.0, ..Traffic::default() };
    let row = analyze(&silent.outcome(Fault::None)).hosts.remove(0);
    assert!(row.cycles_reason.unwrap().contains("no byte"));
}

#[test]
fn an_iterations_phase_is_counted_whole_and_its_ends_may_differ() {
    let mut outcome = honest();
    outcome.phases[0].until = Until::Iterations(1000);
    let end = outcome.hosts[1].phases[0]
        .snapshots
        .iter_mut()
        .find(|snapshot| snapshot.edge == Edge::WindowEnd)
        .unwrap();
    (end.at, end.due) = (end.at + 400_000_000, end.due + 400_000_000);
    outcome.hosts[1].phases[0].snapshots.last_mut().unwrap().at += 400_000_000;
    let run = analyze(&outcome);
    assert_eq!((run.status, run.error), (Status::Ok, None));
    let window = run.window.unwrap();
    assert_eq!(window.kind, WindowKind::Iterations);
    assert!(close(window.seconds, 5.2, 1e-6));
}

#[test]
fn the_end_of_the_run_as_the_controller_saw_it_wins() {
    let mut outcome = honest();
    outcome.status = Status::Interrupted;
    outcome.error = Some("stopped by the user".to_owned());
    outcome.hosts[1].phases.clear();
    let run = analyze(&outcome);
    assert_eq!(run.status, Status::Interrupted);
    assert_eq!(run.error.as_deref(), Some("stopped by the user"));
    assert_eq!((run.window, run.throughput, run.latency_us), (None, None, None));
    assert!(run.phases.iter().all(|phase| phase.reason.is_some()) && run.intervals.is_empty());
    assert_eq!(run.hosts[0].cycles_reason.as_deref(), Some("no complete window"));
    assert_eq!(run.hosts[0].bytes, None);
}

#[test]
fn a_run_that_ends_well_without_a_window_is_invalid() {
    let mut outcome = honest();
    outcome.hosts[1].phases.clear();
    let run = analyze(&outcome);
    assert_eq!(run.status, Status::Invalid);
    assert!(run.error.unwrap().starts_with("no complete window: server did not end phase 1"));
    let empty = Outcome { hosts: Vec::new(), ..honest() };
    assert_eq!(analyze(&empty).status, Status::Invalid);
}

#[test]
fn warnings_name_what_spoils_the_run() {
    let mut outcome = honest();
    let host = &mut outcome.hosts[0];
    host.clock_error = 250_000;
    host.settings[0].effective = "32768".to_owned();
    host.warnings.push(Warning::from(warning::ConnectionsRejected {
        host: "client".to_owned(),
        connections: 1,
    }));
    host.phases[0].workers.push(WorkerUse { worker: 1, cpu: Some(1), busy: Some(0.97) });
    for snapshot in &mut host.phases[0].snapshots {
        if let Some(cpu) = &mut snapshot.cpu {
            // Steal of 10% and as much in no column at all.
            for ticks in &mut cpu.ticks {
                let seconds = snapshot.at as f64 / 1e9;
                ticks.steal = (seconds * 10.0) as u64;
                ticks.idle = (seconds * 24.0) as u64;
            }
        }
    }
    let run = analyze(&outcome);
    assert_eq!(
        codes(&run),
        [
            "connections-rejected",
            "saturated-worker",
            "steal",
            "unaccounted-cpu",
            "clipped-setting",
            "clock-offset",
        ]
    );
    assert!(message(&run, "clipped-setting").contains("net.core.wmem_max=65536"));
    assert!(message(&run, "steal").contains("10.0%"));
    assert_eq!(run.status, Status::Ok);
}

#[test]
fn late_cuts_are_lost_intervals_and_a_skewed_window() {
    let mut outcome = honest();
    let snapshots = &mut outcome.hosts[1].phases[0].snapshots;
    snapshots.remove(3);
    snapshots[3].at += 600_000_000;
    let end = snapshots.iter_mut().find(|c| c.edge == Edge::WindowEnd).unwrap();
    end.at += 11_000_000;
    let run = analyze(&outcome);
    assert_eq!(codes(&run), ["lost-intervals", "window-skew"]);
    assert!(message(&run, "lost-intervals").starts_with("2 of 5 snapshots of server"));
    assert!(message(&run, "window-skew").contains("11.0 ms"));
    assert_eq!(run.intervals.len(), 4);
}

/// Both hosts read the end of the window when their load was over, so rates would be too low.
#[test]
fn a_window_that_ends_after_its_traffic_is_no_result() {
    for (late, status) in [(40_000_000, Status::Ok), (400_000_000, Status::Invalid)] {
        let mut outcome = honest();
        for host in &mut outcome.hosts {
            let snapshots = &mut host.phases[0].snapshots;
            let last =
                snapshots.iter().find(|c| c.edge == Edge::PhaseEnd).unwrap().counters.clone();
            let end = snapshots.iter_mut().find(|c| c.edge == Edge::WindowEnd).unwrap();
            end.at += late;
            end.counters = last;
        }
        let run = analyze(&outcome);
        assert_eq!(run.status, status, "{:?}", run.error);
        assert_eq!(
            run.error.is_some_and(|error| error.contains("0.400 s late")),
            late > 50_000_000
        );
    }
}

/// A window of 5 s from one second after the beginning, in which hosts were quiet from one second to
/// another.
fn quiet(hosts: &[usize], from: f64, to: f64) -> Outcome {
    let mut outcome = honest();
    for &host in hosts {
        let phase = &mut outcome.hosts[host].phases[0];
        phase.tcp_samples.iter_mut().for_each(|sample| sample.rtt_us = 100.0);
        let begin = phase.snapshot(Edge::WindowStart).unwrap().due - SECOND;
        let at = |seconds: f64| begin + (seconds * SECOND as f64) as u64;
        phase.quiet.push(Quiet { from: at(from), to: at(to) });
    }
    outcome
}

fn dead_seconds(outcome: &Outcome) -> f64 {
    let run = analyze(outcome);
    let dead = run.window.as_ref().unwrap().dead_seconds.unwrap();
    assert_eq!(dead > 0.0, codes(&run).contains(&"dead-time"), "{:?}", codes(&run));
    let invalid = run.error.as_ref().is_some_and(|error| error.contains("no byte moved for"));
    assert_eq!(invalid, dead > 0.5, "{dead} s: {:?}", run.error);
    assert_eq!(run.status == Status::Invalid, invalid);
    dead
}

#[test]
fn dead_time_is_what_all_ends_have_of_it_in_the_window() {
    let dead = |hosts: &[usize], from, to| dead_seconds(&quiet(hosts, from, to));
    assert!(close(dead(&[0, 1], 2.0, 3.2), 1.2, 1e-6));
    // What lies in the ramp does not count, nor what lies after the window.
    assert!(close(dead(&[0, 1], 0.5, 1.4), 0.0, 1e-6));
    assert!(close(dead(&[0, 1], 0.3, 1.4), 0.4, 1e-6));
    assert!(close(dead(&[0, 1], 5.0, 9.0), 1.0, 1e-6));
    assert!(close(dead(&[0, 1], 6.1, 9.0), 0.0, 1e-6));
    // A host that waits while the other has traffic is not dead.
    assert!(close(dead(&[0], 2.0, 3.2), 0.0, 1e-6));
    let mut apart = quiet(&[0], 2.0, 3.5);
    apart.hosts[1].phases[0].quiet = quiet(&[1], 3.1, 4.8).hosts[1].phases[0].quiet.clone();
    assert!(close(dead_seconds(&apart), 0.0, 1e-6));
    assert!(dead_seconds(&apart).is_sign_positive(), "JSON has 0.0");
    let message = message(&analyze(&quiet(&[0, 1], 5.5, 9.0)), "dead-time").to_owned();
    assert!(
        message.starts_with("no byte moved for 0.5 s of the window (10%), part of a gap of 3.5 s"),
        "{message}"
    );
    assert!(message.contains("client and server"), "{message}");
}

#[test]
fn a_time_without_traffic_is_measured_by_round_trips_and_by_the_ramp() {
    let mut slow = quiet(&[0, 1], 2.0, 4.0);
    assert!(dead_seconds(&slow) > 1.9);
    slow.hosts[0].phases[0].tcp_samples.iter_mut().for_each(|sample| sample.rtt_us = 120_000.0);
    slow.hosts[1].phases[0].tcp_samples.clear();
    assert!(close(dead_seconds(&slow), 0.0, 1e-6), "20 round trips are 2.4 s");
    let mut bursts = quiet(&[0, 1], 2.0, 4.0);
    bursts.hosts[1].phases[0].longest_quiet_in_ramp = SECOND / 2;
    assert!(close(dead_seconds(&bursts), 0.0, 1e-6), "5 times the longest of the ramp are 2.5 s");
}

/// What was lost in the ramp is of another time, and the last losses are known when the phase has ended.
#[test]
fn losses_of_a_trial_are_counted_from_the_ramp_to_the_end_of_the_phase() {
    let mut outcome = honest();
    outcome.phases[0].datagrams = true;
    let mut count = |host: usize, edge: Edge, counted: Datagrams| {
        let snapshots = &mut outcome.hosts[host].phases[0].snapshots;
        let snapshot = snapshots.iter_mut().find(|snapshot| snapshot.edge == edge).unwrap();
        snapshot.counters.datagrams = counted;
    };
    let sent = |sent| Datagrams { sent, ..Datagrams::default() };
    let lost = |received, lost| Datagrams { received, lost, ..Datagrams::default() };
    count(0, Edge::WindowStart, sent(100));
    count(0, Edge::WindowEnd, sent(1100));
    count(0, Edge::PhaseEnd, sent(1110));
    count(1, Edge::WindowStart, lost(60, 30));
    count(1, Edge::WindowEnd, lost(1010, 50));
    count(1, Edge::PhaseEnd, lost(1045, 65));
    let datagrams = analyze(&outcome).datagrams.unwrap();
    assert_eq!((datagrams.sent, datagrams.lost), (1000, 20));
    assert_eq!(datagrams.after_ramp, Some(AfterRamp { sent: 1010, lost: 35 }));
    // Some that were lost when the ramp ended came late.
    let hosts = &mut outcome.hosts[1].phases[0].snapshots;
    hosts.last_mut().unwrap().counters.datagrams = lost(1090, 20);
    let datagrams = analyze(&outcome).datagrams.unwrap();
    assert_eq!(datagrams.after_ramp, Some(AfterRamp { sent: 1010, lost: 0 }));
}

/// The sender of datagrams does not know that none arrives.
#[test]
fn one_end_tells_where_the_other_cannot() {
    let mut outcome = quiet(&[1], 2.0, 3.2);
    outcome.phases[0].datagrams = true;
    assert!(close(dead_seconds(&outcome), 1.2, 1e-6));
    outcome.phases[0].may_idle = true;
    assert!(close(dead_seconds(&outcome), 0.0, 1e-6));
    // Of several peers one has no traffic while the master has that of the other.
    let mut outcome = quiet(&[1], 2.0, 3.2);
    let mut other = outcome.hosts[1].clone();
    other.phases[0].quiet.clear();
    other.name = "other".to_owned();
    outcome.hosts.push(other);
    let run = analyze(&outcome);
    assert!(close(run.window.unwrap().dead_seconds.unwrap(), 1.2, 1e-6));
}

#[test]
fn windows_more_than_a_percent_apart_are_invalid() {
    let skewed = |milliseconds: u64| {
        let mut outcome = honest();
        for snapshot in &mut outcome.hosts[1].phases[0].snapshots {
            snapshot.at += milliseconds * 1_000_000;
        }
        analyze(&outcome).error.unwrap_or_default()
    };
    assert!(!skewed(40).contains("apart"));
    assert!(skewed(60).contains("the windows of the hosts are 0.060 s apart"), "{}", skewed(60));
}

#[test]
fn failures_time_outs_and_what_was_cut_off() {
    let mut outcome = honest();
    let end = outcome.hosts[0].phases[0].snapshots.last_mut().unwrap();
    end.counters.flowops[1] = FlowopCounts { failed: 3, timeouts: 2, ..end.counters.flowops[1] };
    let run = analyze(&outcome);
    assert!(message(&run, "failed-operations").starts_with("3 operations failed (2 of them"));
    assert_eq!(run.status, Status::Ok);

    let mut outcome = honest();
    outcome.hosts[1].phases[0].unfinished_strands = 2;
    let run = analyze(&outcome);
    assert_eq!((run.status, codes(&run)), (Status::Invalid, vec!["unfinished-strands"]));

    let mut outcome = honest();
    outcome.hosts[1].phases[0].verify_failures = 7;
    let run = analyze(&outcome);
    assert_eq!(run.status, Status::Invalid);
    assert!(run.error.unwrap().contains("verify failed: 7 messages received by server"));
}

#[test]
fn checksums_of_files_that_differ_make_a_run_invalid() {
    let with = |sent: FileChecks, received: FileChecks| {
        let mut outcome = honest();
        outcome.hosts[0].phases[0].file_checks = sent;
        outcome.hosts[1].phases[0].file_checks = received;
        analyze(&outcome)
    };
    let sent = FileChecks { sent_bytes: 100, sent: 7, ..FileChecks::default() };
    let received = FileChecks { received_bytes: 100, received: 7, ..FileChecks::default() };
    assert_eq!(with(sent, received).status, Status::Ok);
    for other in [
        FileChecks { received: 8, ..received },
        FileChecks { received_bytes: 99, ..received },
        FileChecks::default(),
    ] {
        let run = with(sent, other);
        assert_eq!(run.status, Status::Invalid);
        assert!(run.error.unwrap().contains("the checksums of 100 bytes sent from files differ"));
    }
    let blocks = FileChecks { read_back_blocks: 9, read_back_failures: 2, ..received };
    let run = with(sent, blocks);
    assert_eq!(run.status, Status::Invalid);
    assert!(run.error.unwrap().contains("2 of 9 blocks that server wrote to its sink"));

    // A phase that was cut off is not compared, and does not say that it was.
    let mut outcome = honest();
    outcome.hosts[0].phases[0].file_checks = sent;
    outcome.hosts[0].phases[0].io.source_bytes = 100;
    outcome.hosts[1].phases[0].unfinished_strands = 1;
    let mut cut_off = outcome.hosts[0].phases[0].clone();
    let run = analyze(&outcome);
    assert_eq!(codes(&run), ["unfinished-strands"]);
    assert!(!run.error.as_ref().unwrap().contains("verify failed"), "{:?}", run.error);
    assert_eq!(run.io.unwrap().files[0].checked_bytes, None);
    // Another one is.
    cut_off.phase += 1;
    outcome.hosts[0].phases.push(cut_off);
    let error = analyze(&outcome).error.unwrap();
    assert!(error.contains("verify failed: in phase 2, the checksums of 100 bytes"), "{error}");
}

#[test]
fn a_page_cache_in_another_state_than_asked_is_named() {
    let with = |name: &str, state: &str, cached: Option<u64>| {
        let mut outcome = honest();
        let host = outcome.hosts[0].name.clone();
        let (name, requested) = (name.to_owned(), state.to_owned());
        let effective = requested.clone();
        outcome.hosts[0].settings.push(Setting {
            name,
            host,
            requested,
            effective,
            previous: None,
        });
        let io = &mut outcome.hosts[0].phases[0].io;
        io.source_bytes = 1000;
        io.source_pass_bytes = cached.map_or(0, |_| 100);
        io.source_cached_bytes = cached.unwrap_or_default();
        analyze(&outcome)
    };
    for (state, fine, wrong) in [("cold", 5, 6), ("warm", 95, 94)] {
        let run = with("page_cache", state, Some(fine));
        assert_eq!(codes(&run), [] as [&str; 0]);
        let run = with("page_cache", state, Some(wrong));
        assert_eq!(codes(&run), ["page-cache"]);
        let said = message(&run, "page-cache");
        assert!(said.contains(&format!("{wrong}% of the source was in the page cache")), "{said}");
        let run = with("page_cache", state, None);
        let said = message(&run, "page-cache");
        assert!(said.contains(&format!("page_cache={state} of ")), "{said}");
        assert!(said.contains("is not verified"), "{said}");
    }
    assert_eq!(codes(&with("page_cache", "as-is", None)), [] as [&str; 0]);
    assert_eq!(codes(&with("o_direct", "on", Some(0))), [] as [&str; 0]);
    assert_eq!(codes(&with("o_direct", "on", Some(100))), ["page-cache"]);
}

#[test]
fn nothing_moved_is_invalid_but_a_long_transaction_is_not() {
    let silent = Traffic { tx_rate: 0.0, ..Traffic::default() };
    let run = analyze(&silent.outcome(Fault::None));
    assert_eq!((run.status, codes(&run)), (Status::Invalid, vec!["nothing-moved"]));

    let mut outcome = honest();
    for snapshot in &mut outcome.hosts[0].phases[0].snapshots {
        snapshot.counters.transactions = 0;
    }
    assert_eq!(analyze(&outcome).status, Status::Ok);
}

#[test]
fn flowops_of_several_hosts_of_a_side_are_one_row() {
    let mut outcome = honest();
    let mut second = outcome.hosts[0].clone();
    second.name = "client2".to_owned();
    second.facts.boot_id = "boot-2".to_owned();
    // Half of what the server got came from each.
    for host in [&mut outcome.hosts[0], &mut second] {
        for snapshot in &mut host.phases[0].snapshots {
            snapshot.counters.bytes.tx_sent /= 2;
        }
    }
    let one = analyze(&honest()).flowops[0].clone();
    outcome.hosts.push(second);
    let run = analyze(&outcome);
    assert_eq!(run.flowops.len(), 4);
    assert_eq!(run.flowops[0].count, 2 * one.count);
    assert_eq!(run.flowops[0].latency_us.as_ref().unwrap().count, 2000);
    assert_eq!(run.flowops[0].kind, key(Side::Master, 0).kind);
}

/// A phase too short for one interval has one row: itself.
#[test]
fn a_window_shorter_than_an_interval_is_one_interval() {
    let traffic = Traffic { window: 0.4, ..Traffic::default() };
    let mut outcome = traffic.outcome(Fault::None);
    outcome.phases[0].until = Until::Duration(Duration::from_millis(400));
    let run = analyze(&outcome);
    assert_eq!(run.intervals.len(), 1);
    assert!(close(run.intervals[0].seconds, 0.4, 1e-6));
}

/// Threads of emulated links that used this share of CPU 0, with 2% of their frames late.
fn with_links(outcome: &mut Outcome, share: f64) {
    let window = outcome.hosts[0].phases[0].snapshot(Edge::WindowStart).unwrap().at;
    let samples = (0..100_u64).map(|number| {
        let mut error = Histogram::new();
        error.record_many(40_000, 980 * number);
        error.record_many(3_000_000, 20 * number);
        let counts = LineCounts {
            sent: 1_000 * number,
            sent_bytes: 1_462_000 * number,
            queue: 500 * number,
            ..LineCounts::default()
        };
        let side = SideCounts {
            error,
            late: 20 * number,
            cpu_nanoseconds: [(0, (share * 1e8) as u64 * number)].into(),
            ..SideCounts::default()
        };
        let queue = QueueCounts {
            cpu: 1,
            received: 500 * number,
            dropped: 3 * number,
            ..QueueCounts::default()
        };
        let device =
            DeviceCounts { host: "h2".to_owned(), pauses: number, queues: vec![queue, queue] };
        LinkSample {
            at: window + number * SECOND / 10,
            counts: LinkCounts {
                lines: vec![NamedLine { name: "forward".to_owned(), counts }],
                sides: vec![side],
                devices: vec![device],
                unread: 0,
            },
        }
    });
    let (topology, link) = (Topology::Pair, LinkSpec::default());
    outcome.link = Some(LinkOutcome { topology, link, pid: 1, samples: samples.collect() });
}

#[test]
fn what_links_used_is_in_no_cost() {
    let mut outcome = honest();
    on_one_machine(&mut outcome, true);
    let before = analyze(&outcome);
    with_links(&mut outcome, 0.02);
    let after = analyze(&outcome);
    let link = after.link.as_ref().unwrap();
    assert!(close(link.lines[0].bits_per_second, 1_500.0 * 8.0 * 1e4, 0.01), "{link:?}");
    let parts = &link.lines[0].parts;
    assert!(close(parts.len() as f64, 10.0 * link.seconds, 0.01), "{link:?}");
    for (number, part) in parts.iter().enumerate() {
        assert!(close(part.start, number as f64 / 10.0, 1e-6) && close(part.seconds, 0.1, 1e-6));
        assert!(close(part.bits_per_second, 1_500.0 * 8.0 * 1e4, 0.01), "{part:?}");
        assert_eq!(part.queue_bytes, 500 * (number as u64 + 1));
    }
    assert!(close(link.cpu_percent, 2.0, 0.01), "{link:?}");
    assert!(close(link.late, 0.02, 0.01), "{link:?}");
    assert_eq!(link.cpu_source, "schedstat");
    let device = &link.devices[0];
    let queue = device.queues[1];
    assert_eq!(queue.received, device.pauses * 500);
    assert_eq!((queue.cpu, queue.dropped), (1, device.pauses * 3));
    assert!(close(device.pauses as f64, link.seconds * 10.0, 0.01));
    let error = link.error_us.unwrap();
    assert!(close(error.p50, 40.0, 0.02) && close(error.p99, 3_000.0, 0.02), "{error:?}");
    let cost = |run: &Run, host: usize| run.hosts[host].cycles_per_kbyte.unwrap();
    let cpu = before.hosts[0].cpu.as_ref().unwrap();
    let busy = cpu.usr + cpu.sys + cpu.irq + cpu.softirq;
    assert!(close(cost(&after, 0), cost(&before, 0) * (1.0 - 2.0 / busy), 0.01));
    assert!(close(cost(&after, 1), cost(&before, 1), 1e-9));
    let machine = |run: &Run| run.machines[0].cycles_per_kbyte.unwrap();
    assert!(machine(&after) < machine(&before));
    assert_eq!(after.hosts[0].cpu, before.hosts[0].cpu);
    assert!(codes(&after).contains(&"link-late") && !codes(&before).contains(&"link-late"));
}

#[test]
fn an_emulator_that_does_not_answer_is_told() {
    let mut outcome = honest();
    with_links(&mut outcome, 0.02);
    assert!(!codes(&analyze(&outcome)).contains(&"link-unmeasured"));
    outcome.link.as_mut().unwrap().samples.truncate(1);
    let run = analyze(&outcome);
    assert_eq!(run.link, None);
    assert!(codes(&run).contains(&"link-unmeasured"));
}

/// Counters of links by netem that send a hundred packets in a reading.
fn with_netem(outcome: &mut Outcome, readings: u64) {
    let window = outcome.hosts[0].phases[0].snapshot(Edge::WindowStart).unwrap().at;
    let samples = (0..readings).map(|number| {
        // The lab was there before the run.
        let counted = 50 + number;
        let qdisc = |kind: &str, drops| QdiscCounts {
            kind: kind.to_owned(),
            packets: 100 * counted,
            bytes: 146_200 * counted,
            drops: drops * counted,
            backlog_packets: 7,
            ..QdiscCounts::default()
        };
        let qdiscs = vec![qdisc("tbf", 3), qdisc("netem", 1)];
        let lines = vec![NetemLine { name: "forward".to_owned(), qdiscs }];
        NetemSample { at: window + number * SECOND / 10, lines }
    });
    let (topology, link) = (Topology::Pair, LinkSpec::default());
    outcome.netem = Some(NetemOutcome { topology, link, samples: samples.collect() });
}

#[test]
fn links_by_netem_have_the_counters_of_the_window() {
    let mut outcome = honest();
    let before = analyze(&outcome);
    with_netem(&mut outcome, 100);
    let run = analyze(&outcome);
    assert!(!codes(&run).contains(&"link-qdiscs-unread"));
    let netem = run.netem.as_ref().unwrap();
    let line = &netem.lines[0];
    assert!(close(line.bits_per_second, 1_500.0 * 8.0 * 1e3, 0.01), "{line:?}");
    let [tbf, delay] = line.line.qdiscs.as_slice() else { panic!("{line:?}") };
    let readings = (netem.seconds * 10.0).round() as u64;
    assert_eq!((tbf.drops, delay.drops, delay.backlog_packets), (3 * readings, readings, 7));
    assert!(netem.unknown.iter().any(|what| what == "how late packets were released"));
    // What the links used is not known, so it is in the costs.
    assert_eq!((&run.hosts, &run.machines, &run.link), (&before.hosts, &before.machines, &None));
}

#[test]
fn counters_of_netem_that_were_not_read_are_told() {
    let mut outcome = honest();
    with_netem(&mut outcome, 1);
    let run = analyze(&outcome);
    assert!(codes(&run).contains(&"link-qdiscs-unread"));
    let netem = run.netem.unwrap();
    assert!(netem.lines.is_empty());
    assert!(netem.unknown.iter().any(|what| what.contains("not read twice")), "{netem:?}");
}
