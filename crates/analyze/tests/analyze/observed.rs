//! What probes saw, in the figures of a run whose traffic is known to the byte.

use wirecost_model::measure::{Bytes, Edge, Snapshot};
use wirecost_model::observe::{
    CpuHolder, CpuSection, CpuTime, EndedProgram, EndedPrograms, FunctionsSection, HostObservation,
    LayerShare, ObserverReport, PmuCounts, ProbeCost, ProbeReport, ProbeStatus, ProcessTime,
    SchedulingSection, ThreadScheduling, UsrSys, WaitTimes,
};
use wirecost_model::outcome::{Outcome, PhaseObservation};
use wirecost_model::run::{CryptoShare, Run};
use wirecost_model::status::Status;
use wirecost_model::warning::Entry;

use crate::two_hosts::{Fault, TSC_HZ, Traffic, analyze};

/// Seconds of a window as the probes timed it: a little off the load's 5 s.
const SECONDS: f64 = 5.001;

/// A CPU of which half was task time, a tenth softirq, a twentieth interrupt, a twentieth the idle
/// loop, and of that a fiftieth stolen.
fn cpu(number: u32) -> CpuTime {
    CpuTime {
        cpu: Some(number),
        wall: SECONDS,
        idle: 0.3 * SECONDS,
        idle_loop: Some(0.05 * SECONDS),
        task: 0.5 * SECONDS,
        irq: 0.05 * SECONDS,
        softirq: 0.1 * SECONDS,
        steal: Some(0.02 * SECONDS),
        ..CpuTime::default()
    }
}

fn section(cpus: &[u32]) -> CpuSection {
    let usr_sys = UsrSys { source: "sampled".to_owned(), usr: 0.25, interval: None, samples: 8 };
    let per_cpu: Vec<CpuTime> = cpus.iter().map(|&number| cpu(number)).collect();
    CpuSection {
        source: "bpf".to_owned(),
        total: CpuTime {
            wall: SECONDS * cpus.len() as f64,
            idle: 0.3 * SECONDS * cpus.len() as f64,
            ..CpuTime::default()
        },
        usr_sys_per_cpu: per_cpu.iter().map(|_| Some(usr_sys.clone())).collect(),
        per_cpu,
        tsc_hz: Some(TSC_HZ),
        ..CpuSection::default()
    }
}

fn seen(host: &str, covers: &[&str], cpus: &[u32]) -> HostObservation {
    HostObservation {
        host: host.to_owned(),
        covers: covers.iter().map(|&name| name.to_owned()).collect(),
        seconds: SECONDS,
        cpu: Some(section(cpus)),
        ..HostObservation::default()
    }
}

fn report(name: &str, status: ProbeStatus) -> ProbeReport {
    ProbeReport {
        host: "client".to_owned(),
        name: name.to_owned(),
        status,
        reason: None,
        cost: ProbeCost::default(),
    }
}

fn observed(mut outcome: Outcome, parts: Vec<HostObservation>) -> Outcome {
    let probes = vec![report("cpu", ProbeStatus::Ready)];
    let observation = ObserverReport { probes, parts };
    outcome.observations.push(PhaseObservation { phase: 0, host: 0, observation });
    outcome
}

/// Both hosts on one machine, on the same two CPUs or on one each.
fn one_machine(owns_cpus: bool) -> Outcome {
    let mut outcome = Traffic::default().outcome(Fault::None);
    for (number, host) in outcome.hosts.iter_mut().enumerate() {
        host.facts.boot_id = "one".to_owned();
        host.owns_cpus = owns_cpus;
        host.pid = 100 + number as u32;
        if owns_cpus {
            host.cpus = vec![number as u32];
        }
    }
    outcome
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= b.abs() * 1e-3 + 1e-9
}

fn codes(run: &Run) -> Vec<&str> {
    run.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

#[test]
fn a_trace_takes_the_place_of_the_ticks() {
    let run = analyze(&observed(
        one_machine(false),
        vec![seen("client", &["client", "server"], &[0, 1])],
    ));
    assert_eq!(run.status, Status::Ok, "{:?}", run.error);
    let machine = &run.machines[0];
    assert_eq!(machine.cpu_source.as_deref(), Some("bpf"));
    assert_eq!(machine.cycles_source.as_deref(), Some("tsc-exact"));
    let split = machine.cpu.as_ref().unwrap();
    // What was stolen is taken off tasks, a quarter of whose time was in user space; the idle loop
    // is work of the system.
    let expected = [12.0, 36.0 + 5.0, 5.0, 10.0, 2.0, 30.0];
    let found = [split.usr, split.sys, split.irq, split.softirq, split.steal, split.idle];
    for (found, expected) in found.into_iter().zip(expected) {
        assert!(close(found, expected), "{split:?}");
    }
    assert_eq!(split.unaccounted, 0.0);
    assert!(!codes(&run).contains(&"unaccounted-cpu"));
    // 68% of two CPUs were busy for the machine; a gigabyte a second was delivered once.
    let cycles = machine.cycles_per_kbyte.unwrap();
    let expected = 0.68 * 2.0 * TSC_HZ / (1e9 / 1024.0);
    assert!(close(cycles, expected), "{cycles} is not {expected}");
}

/// Nobody knows the end of a phase by iterations beforehand: the observer goes on for a while, in which
/// the CPUs have nothing to do.
#[test]
fn idle_time_after_a_phase_by_iterations_does_not_dilute_its_cost() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    part.seconds *= 2.0;
    for time in &mut part.cpu.as_mut().unwrap().per_cpu {
        (time.wall, time.idle) = (2.0 * SECONDS, time.idle + SECONDS);
    }
    let mut outcome = one_machine(false);
    outcome.phases[0].until = wirecost_model::profile::Until::Iterations(9);
    let run = analyze(&observed(outcome, vec![part]));
    let cycles = run.machines[0].cycles_per_kbyte.unwrap();
    let expected = 0.68 * 2.0 * TSC_HZ / (1e9 / 1024.0);
    assert!(close(cycles, expected), "{cycles} is not {expected}");
}

/// A hypervisor also takes time of a CPU that is about to wake up.
#[test]
fn what_was_stolen_beyond_the_time_of_tasks_was_not_busy() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    for time in &mut part.cpu.as_mut().unwrap().per_cpu {
        (time.task, time.idle) = (0.1 * SECONDS, time.idle + 0.4 * SECONDS);
        time.steal = Some(0.4 * SECONDS);
    }
    let run = analyze(&observed(one_machine(false), vec![part]));
    let machine = &run.machines[0];
    let split = machine.cpu.as_ref().unwrap();
    assert!(close(split.steal, 10.0) && close(split.sys, 5.0) && split.usr == 0.0, "{split:?}");
    // Interrupts, softirqs and the idle loop.
    let expected = 0.2 * 2.0 * TSC_HZ / (1e9 / 1024.0);
    assert!(close(machine.cycles_per_kbyte.unwrap(), expected), "{machine:?}");
}

#[test]
fn without_any_work_there_is_no_cost_and_the_reason_is_not_the_ticks() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    for time in &mut part.cpu.as_mut().unwrap().per_cpu {
        *time = CpuTime { cpu: time.cpu, wall: SECONDS, task: 0.1, ..CpuTime::default() };
        time.steal = Some(0.2);
    }
    let run = analyze(&observed(one_machine(false), vec![part]));
    let machine = &run.machines[0];
    assert_eq!(machine.cycles_per_kbyte, None);
    assert!(machine.cycles_reason.as_deref().unwrap().contains("except for steal"), "{machine:?}");
}

#[test]
fn each_host_has_its_own_trace_and_the_machine_the_whole() {
    let parts = vec![
        seen("client", &["client", "server"], &[0, 1]),
        seen("client", &["client"], &[0]),
        seen("server", &["server"], &[1]),
    ];
    let run = analyze(&observed(one_machine(true), parts));
    for host in &run.hosts {
        assert_eq!(host.cpu_source.as_deref(), Some("bpf"));
        let cycles = host.cycles_per_kbyte.unwrap();
        assert!(close(cycles, 0.68 * TSC_HZ / (1e9 / 1024.0)), "{cycles}");
    }
    // What is told of each host is not told again of the machine.
    let hosts = &run.observe.as_ref().unwrap().hosts;
    let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, ["client", "server"]);
    assert!(close(run.machines[0].cycles_per_kbyte.unwrap(), 1.36 * TSC_HZ / (1e9 / 1024.0)));
}

#[test]
fn counted_cycles_beat_calculated_ones() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    part.pmu = Some(PmuCounts { cycles: 1e9 * SECONDS, counted: 1.0, ..PmuCounts::default() });
    let run = analyze(&observed(one_machine(false), vec![part]));
    assert_eq!(run.machines[0].cycles_source.as_deref(), Some("pmu"));
    assert!(close(run.machines[0].cycles_per_kbyte.unwrap(), 1024.0));
}

#[test]
fn what_ticks_say_is_not_taken_for_a_trace() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    part.cpu.as_mut().unwrap().source = "proc-stat".to_owned();
    let run = analyze(&observed(one_machine(false), vec![part]));
    assert_eq!(run.machines[0].cpu_source.as_deref(), Some("proc-stat"));
    assert_eq!(run.machines[0].cycles_source.as_deref(), Some("tsc-ticks"));
}

#[test]
fn functions_cost_their_share() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    let copy = LayerShare {
        layer: "copy".to_owned(),
        share: 0.25,
        interval: (0.2, 0.3),
        cycles_per_kbyte: None,
    };
    part.functions = Some(FunctionsSection { layers: vec![copy], ..FunctionsSection::default() });
    let run = analyze(&observed(one_machine(false), vec![part]));
    let all = run.machines[0].cycles_per_kbyte.unwrap();
    let observe = run.observe.unwrap();
    let layers = &observe.hosts[0].functions.as_ref().unwrap().layers;
    assert!(close(layers[0].cycles_per_kbyte.unwrap(), all / 4.0));
}

#[test]
fn other_programs_are_told_where_they_matter() {
    let process = |pid, name: &str, seconds, kernel_thread| ProcessTime {
        pid,
        name: name.to_owned(),
        kernel_thread,
        role: match (name, pid) {
            ("wirecost", 99) => Some("controller".to_owned()),
            ("wirecost", _) => Some("agent".to_owned()),
            _ => None,
        },
        seconds,
    };
    let of = |seconds| {
        let mut part = seen("client", &["client", "server"], &[0, 1]);
        part.cpu.as_mut().unwrap().processes = vec![
            process(100, "wirecost", 3.0, false),
            process(22, "ksoftirqd/1", 2.0, true),
            process(7, "rustc", seconds, false),
            process(99, "wirecost", 2.0, false),
        ];
        analyze(&observed(one_machine(false), vec![part]))
    };
    let loud = of(1.0);
    let warning = loud.warnings.iter().find(|warning| warning.code == "foreign-cpu").unwrap();
    // Of 0.7 * 2 * 5.001 busy seconds.
    assert!(warning.message.contains("rustc 14.3%"), "{}", warning.message);
    assert!(!codes(&of(0.1)).contains(&"foreign-cpu"));
    // The same share of the cost.
    let machine = &loud.machines[0];
    let foreign = machine.foreign_cycles_per_kbyte.unwrap() / machine.cycles_per_kbyte.unwrap();
    assert!(close(foreign, 1.0 / (0.7 * 2.0 * SECONDS)), "{foreign}");
    let roles: Vec<String> = loud.observe.as_ref().unwrap().hosts[0]
        .cpu
        .iter()
        .flat_map(|cpu| {
            cpu.processes.iter().map(|process| process.role.clone().unwrap_or_default())
        })
        .collect();
    assert_eq!(roles, ["agent of client", "", "", "controller"]);
}

#[test]
fn workers_that_waited_for_a_cpu_are_told_with_the_size_and_for_whom() {
    let worker = |host: &str, worker, seconds: f64| ThreadScheduling {
        host: Some(host.to_owned()),
        worker: Some(worker),
        cpu: Some(worker),
        run_queue: Some(WaitTimes { seconds, ..WaitTimes::default() }),
        preempted_seconds: Some(seconds / 2.0),
        waited_for: vec![CpuHolder {
            name: "rustc".to_owned(),
            process: Some(4711),
            preempted_seconds: seconds,
            ..CpuHolder::default()
        }],
        ..ThreadScheduling::default()
    };
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    part.scheduling = Some(SchedulingSection {
        seconds: 5.0,
        threads: vec![
            worker("client", 0, 0.1),
            worker("client", 1, 0.6),
            worker("client", 2, 0.04),
            worker("server", 0, 0.04),
        ],
        ..SchedulingSection::default()
    });
    let run = analyze(&observed(one_machine(false), vec![part]));
    let waited = |entry: &&Entry| entry.code == "worker-waited";
    let found: Vec<&Entry> = run.warnings.iter().filter(waited).collect();
    let [warning] = found.as_slice() else { panic!("{:?}", run.warnings) };
    let brief = "worker 1 of client (CPU 1) waited 12.0% of the window for a CPU";
    assert_eq!(warning.brief.as_deref(), Some(brief));
    let message = &warning.message;
    assert!(
        message.contains("(by cause: rustc (4711) 12.0%), of which 6.0% after preemptions"),
        "{message}"
    );
    assert!(message.contains("; so did 1 other worker:"), "{message}");
}

#[test]
fn programs_that_ended_are_foreign_by_name() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    let ended = |name: &str, seconds, kernel_thread| EndedProgram {
        name: name.to_owned(),
        kernel_thread,
        processes: 1200,
        seconds,
    };
    part.cpu.as_mut().unwrap().ended = Some(EndedPrograms {
        seconds: 3.0,
        programs: vec![ended("kworker/0:1", 2.0, true), ended("date", 1.0, false)],
    });
    let run = analyze(&observed(one_machine(false), vec![part]));
    let warning = run.warnings.iter().find(|warning| warning.code == "foreign-cpu").unwrap();
    assert!(warning.message.contains("date (1,200 ended) 14.3%"), "{}", warning.message);
    assert!(!warning.message.contains("kworker"), "{}", warning.message);
}

/// Of many compilers a section lists the first: the others count, too.
#[test]
fn programs_beyond_the_list_are_foreign() {
    let mut part = seen("client", &["client", "server"], &[0, 1]);
    part.cpu.as_mut().unwrap().unlisted_programs = Some(2.6);
    let run = analyze(&observed(one_machine(false), vec![part]));
    let warning = run.warnings.iter().find(|warning| warning.code == "foreign-cpu").unwrap();
    assert!(warning.message.contains("programs that used less each 37.1%"), "{}", warning.message);
    let machine = &run.machines[0];
    let foreign = machine.foreign_cycles_per_kbyte.unwrap() / machine.cycles_per_kbyte.unwrap();
    assert!(close(foreign, 2.6 / (0.7 * 2.0 * SECONDS)), "{foreign}");
}

/// In a PID namespace nobody sees the processes outside of it, but the CPUs' time is gone.
#[test]
fn time_of_tasks_that_is_no_process_s_is_foreign() {
    let of = |unseen| {
        let mut part = seen("client", &["client", "server"], &[0, 1]);
        part.cpu.as_mut().unwrap().unseen_processes = unseen;
        analyze(&observed(one_machine(false), vec![part]))
    };
    let run = of(Some(2.6));
    let warning = run.warnings.iter().find(|warning| warning.code == "foreign-cpu").unwrap();
    assert!(warning.message.contains("other PID namespaces 37.1%"), "{}", warning.message);
    assert!(!codes(&of(Some(0.0))).contains(&"foreign-cpu"));
    assert!(!codes(&of(None)).contains(&"foreign-cpu"));
}

/// Traffic that is faster by this factor in the time beside the window than within it.
fn slowed(factor: u64) -> Outcome {
    let traffic = Traffic { beside: 0.5, ..Traffic::default() };
    let mut outcome = traffic.outcome(Fault::None);
    for host in &mut outcome.hosts {
        let snapshots = &mut host.phases[0].snapshots;
        let end = snapshots
            .iter()
            .find(|snapshot| snapshot.edge == Edge::WindowEnd)
            .map_or(0, |snapshot| snapshot.at);
        for before in [true, false] {
            let of_side = |snapshot: &&mut Snapshot| {
                snapshot.edge == Edge::Unobserved && (snapshot.at < end) == before
            };
            let mut first: Option<Bytes> = None;
            for snapshot in snapshots.iter_mut().filter(of_side) {
                let bytes = &mut snapshot.counters.bytes;
                let base = *first.get_or_insert(*bytes);
                bytes.tx_sent = base.tx_sent + factor * (bytes.tx_sent - base.tx_sent);
                bytes.tx_received =
                    base.tx_received + factor * (bytes.tx_received - base.tx_received);
            }
        }
    }
    outcome
}

#[test]
fn what_observing_costs_is_the_window_over_the_time_beside_it() {
    for (factor, expected) in [(1, 1.0), (2, 0.5)] {
        let part = seen("client", &["client"], &[0, 1]);
        let run = analyze(&observed(slowed(factor), vec![part]));
        let observe = run.observe.unwrap();
        let cost = observe.cost.unwrap();
        assert_eq!((cost.metric.as_str(), observe.cost_reason), ("bits_per_second", None));
        assert!(close(cost.ratio, expected), "{cost:?}");
        assert!(close(cost.observed, 8e9), "{cost:?}");
        assert!(close(cost.unobserved_seconds, 1.0), "{cost:?}");
        let (low, high) = cost.interval.unwrap();
        assert!(low <= cost.ratio && cost.ratio <= high && high - low < 0.01, "{cost:?}");
    }
}

#[test]
fn without_time_beside_the_window_the_cost_is_not_known() {
    let part = seen("client", &["client"], &[0, 1]);
    let run = analyze(&observed(Traffic::default().outcome(Fault::None), vec![part]));
    let observe = run.observe.unwrap();
    assert_eq!(observe.cost, None);
    assert!(observe.cost_reason.unwrap().contains("too short"));
}

#[test]
fn where_nobody_looked_nothing_is_said() {
    assert_eq!(analyze(&Traffic::default().outcome(Fault::None)).observe, None);
}

#[test]
fn a_further_pass_adds_what_is_missing_and_changes_no_figure() {
    let first = analyze(&observed(
        Traffic::default().outcome(Fault::None),
        vec![seen("client", &["client"], &[0, 1])],
    ));
    let mut further = first.clone();
    further.throughput.as_mut().unwrap().bits_per_second = 1.0;
    let seen = further.observe.as_mut().unwrap();
    seen.hosts[0].cpu.as_mut().unwrap().tsc_hz = None;
    seen.hosts[0].pmu = Some(PmuCounts::default());
    seen.probes = vec![report("cpu", ProbeStatus::No), report("pmu", ProbeStatus::Ready)];
    let mut document = first.clone();
    wirecost_analyze::add_pass(&mut document, further, &["pmu".to_owned()]);
    assert_eq!(document.throughput, first.throughput);
    let observe = document.observe.unwrap();
    assert_eq!(observe.hosts.len(), 1);
    assert_eq!(observe.hosts[0].cpu, first.observe.unwrap().hosts[0].cpu);
    assert!(observe.hosts[0].pmu.is_some());
    let probes: Vec<_> = observe.probes.iter().map(|p| (p.name.as_str(), p.status)).collect();
    assert_eq!(probes, [("cpu", ProbeStatus::Ready), ("pmu", ProbeStatus::Ready)]);
    assert_eq!(observe.passes.len(), 2);
    assert_eq!((observe.passes[0].headline, observe.passes[1].headline), (true, false));
    assert_eq!(observe.passes[1].bits_per_second, Some(1.0));
}

/// Both hosts on CPUs of their own; a quarter of the client's samples were in ciphers, of the
/// server's none.
#[test]
fn the_share_of_ciphers_is_told_where_the_profile_encrypts() {
    let mut client = seen("client", &["client"], &[0]);
    let crypto = LayerShare {
        layer: "crypto".to_owned(),
        share: 0.25,
        interval: (0.2, 0.3),
        cycles_per_kbyte: None,
    };
    let copy = LayerShare { layer: "copy".to_owned(), share: 1.0, ..crypto.clone() };
    let functions = |layer| FunctionsSection {
        samples: 400,
        layers: vec![layer],
        ..FunctionsSection::default()
    };
    client.functions = Some(functions(crypto));
    let mut server = seen("server", &["server"], &[1]);
    server.functions = Some(functions(copy));
    let mut outcome = observed(one_machine(true), vec![client, server]);
    assert_eq!(analyze(&outcome).crypto, None);
    outcome.phases[0].encrypts = true;
    let run = analyze(&outcome);
    let all = run.hosts[0].cycles_per_kbyte.unwrap();
    let shares = run.crypto.unwrap().shares;
    let hosts = vec!["client".to_owned()];
    let share =
        CryptoShare { hosts, share: 0.25, interval: (0.2, 0.3), cycles_per_kbyte: Some(all / 4.0) };
    assert_eq!(shares[0], share);
    assert_eq!((shares[1].share, shares[1].cycles_per_kbyte), (0.0, Some(0.0)));
    assert!(shares[1].interval.1 > 0.0 && shares[1].interval.1 < 0.01);
    assert_eq!(shares.len(), 2);
}

#[test]
fn without_samples_the_share_of_ciphers_is_not_known() {
    let mut outcome = one_machine(false);
    outcome.phases[0].encrypts = true;
    let mut reports = Vec::new();
    for (functions, says) in [
        (None, "use --observe standard"),
        (Some(ProbeStatus::No), "CAP_PERFMON"),
        (Some(ProbeStatus::Ready), "no busy CPU"),
    ] {
        if let Some(status) = functions {
            let reason = Some("needs CAP_PERFMON".to_owned());
            reports = vec![ProbeReport { reason, ..report("functions", status) }];
        }
        let mut seen =
            observed(outcome.clone(), vec![seen("client", &["client", "server"], &[0, 1])]);
        seen.observations[0].observation.probes.append(&mut reports);
        let crypto = analyze(&seen).crypto.unwrap();
        assert_eq!(crypto.shares, []);
        let reason = crypto.reason.unwrap();
        assert!(reason.contains(says), "{reason}");
    }
}
