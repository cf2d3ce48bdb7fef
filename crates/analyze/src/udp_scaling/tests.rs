//! Studies with known answers: the counts of "Receive side scaling: testing UDP throughput" (Chadd, 2014), and
//! observations made for the rules.

use wirecost_model::frames::{Frames, FramesDirection, FramesStage, Stage};
use wirecost_model::link::nic::{DeviceCounts, Nic};
use wirecost_model::link::{LinkReport, LinkSpec, Topology};
use wirecost_model::measure::Bytes;
use wirecost_model::observe::{
    ClockChange, CpuHardware, CpuHolder, CpuSection, CpuTime, FunctionShare, FunctionsSection,
    HardwareSection, HostObservation, LayerShare, LockKind, LockSite, LockTask, LocksSection,
    NicDevice, NicSection, PauseFrames, PauseSource, ProcessTime, SchedulingSection,
    ThreadScheduling, WaitContext, WaitTimes, WakeupCounts,
};
use wirecost_model::program::Side;
use wirecost_model::proportion::Proportion;
use wirecost_model::rss::Rss;
use wirecost_model::run::{
    Cpu, CpuLine, HostRow, MachineRow, Observe, Operations, Run, Throughput,
};
use wirecost_model::study::{Point, StudyRunRef, Value};
use wirecost_model::warning::{Entry, LinkLate, Warning};

use super::*;
use crate::Estimate;
use crate::fixtures;

/// The axes of a row beside the pairs, and its rates by pairs.
type Axes<'a> = &'a [(&'a str, &'a str)];
type Rates = [[f64; 4]; 4];

/// What the seed counted per second: generated and received; seen by the server; answered; back at the server's
/// device.
const TURBO: Rates = [
    [710e3, 296e3, 283e3, 281e3],
    [1300e3, 592e3, 592e3, 575e3],
    [1800e3, 636e3, 636e3, 600e3],
    [2100e3, 255e3, 255e3, 255e3],
];
const STEADY: Rates = [
    [710e3, 266e3, 266e3, 266e3],
    [1300e3, 512e3, 512e3, 512e3],
    [1800e3, 810e3, 810e3, 810e3],
    [2100e3, 1120e3, 1120e3, 1120e3],
];
/// Receive only: nothing is answered.
const RECEIVED: Rates = [
    [710e3, 204e3, 0.0, 0.0],
    [1300e3, 378e3, 0.0, 0.0],
    [1800e3, 645e3, 0.0, 0.0],
    [2100e3, 900e3, 0.0, 0.0],
];

fn frames([generated, read, answered, sent]: [f64; 4]) -> Frames {
    let direction = |from, rates: [f64; 5]| FramesDirection {
        from,
        stages: Stage::ALL
            .into_iter()
            .zip(rates)
            .map(|(stage, rate)| FramesStage {
                stage,
                datagrams: None,
                packets: None,
                foreign: None,
                per_second: Some(rate),
                missing: None,
                places: Vec::new(),
                traced: None,
            })
            .collect(),
        intervals: Vec::new(),
    };
    let mut directions =
        vec![direction(Side::Master, [generated, generated, generated, generated, read])];
    if answered > 0.0 {
        directions.push(direction(Side::Peer, [answered, sent, sent, sent, sent]));
    }
    Frames { directions, queues: Vec::new(), cpus: Vec::new(), uncounted: Vec::new(), reason: None }
}

/// Percent of softirqs and tasks, on each of so many CPUs.
fn cpu(softirq: f64, tasks: f64, cpus: u32) -> Cpu {
    let idle = 100.0 - softirq - tasks;
    let line = |cpu| CpuLine { cpu, usr: 0.0, sys: tasks, irq: 0.0, softirq, steal: 0.0, idle };
    Cpu {
        usr: 0.0,
        sys: tasks,
        irq: 0.0,
        softirq,
        steal: 0.0,
        idle,
        unaccounted: 0.0,
        per_cpu: (0..cpus).map(line).collect(),
    }
}

fn run(axes: &[(&str, &str)], rates: [f64; 4]) -> Run {
    let mut run = Run::empty("@udp-rr", "epoll", "0.1.0", 0);
    let values: Vec<Value> = axes.iter().map(|(name, value)| Value::new(name, value)).collect();
    run.study = Some(StudyRunRef {
        study: "s".to_owned(),
        point: Point { axes: values, settings: Vec::new() },
        place: 0,
        repeat: 1,
        order: 1,
        search: None,
    });
    run.frames = Some(frames(rates));
    run.hosts = vec![
        HostRow { cpu: Some(cpu(10.0, 50.0, 1)), ..fixtures::host("h1") },
        HostRow {
            role: Side::Peer,
            cpus: vec![1],
            cpu: Some(cpu(60.0, 38.0, 1)),
            // 510 bytes and 2,000 cycles of each datagram that is read.
            cycles_per_kbyte: Some(2000.0 * 1024.0 / 510.0),
            bytes: Some(Bytes { tx_received: (510.0 * rates[1]) as u64, ..Bytes::default() }),
            ..fixtures::host("h2")
        },
    ];
    run.operations =
        Some(Operations { count: rates[1] as u64, per_second: rates[1], failed: 0, timeouts: 0 });
    run
}

/// A study of these rates by pairs, with what a test adds to each run.
fn study(rows: &[(Axes<'_>, Rates)], change: impl Fn(&mut Run, usize)) -> Measurements {
    let mut place = 0;
    let mut runs = Vec::new();
    for (axes, rates) in rows {
        for (at, rates) in rates.iter().enumerate() {
            let number = (at + 1).to_string();
            let axes: Vec<(&str, &str)> = axes.iter().copied().chain([(PAIRS, &*number)]).collect();
            let mut run = run(&axes, *rates);
            run.study.as_mut().unwrap().place = place;
            place += 1;
            change(&mut run, at);
            runs.push((String::new(), run));
        }
    }
    Measurements::of(runs)
}

fn observed(run: &mut Run) -> &mut HostObservation {
    let observe = run.observe.get_or_insert_with(Observe::default);
    if observe.hosts.is_empty() {
        let (host, covers) = ("h2".to_owned(), vec!["h2".to_owned()]);
        observe.hosts.push(HostObservation { host, covers, seconds: 1.0, ..Default::default() });
    }
    &mut observe.hosts[0]
}

fn of_kind<'a>(conclusions: &'a Conclusions, kind: &str) -> Vec<&'a Finding> {
    conclusions.findings.iter().filter(|finding| finding.kind == kind).collect()
}

#[track_caller]
fn sentence(measured: &Measurements, kind: &str) -> String {
    let conclusions = conclusions(measured);
    match of_kind(&conclusions, kind)[..] {
        [one] => one.sentence.clone(),
        _ => panic!("{kind}: {conclusions:#?}"),
    }
}

/// That a rule says nothing, and why; empty where there is just nothing worth a sentence.
#[track_caller]
fn silent(measured: &Measurements, kind: &str) -> String {
    let conclusions = conclusions(measured);
    assert!(of_kind(&conclusions, kind).is_empty(), "{conclusions:#?}");
    let rule = RULES.iter().find(|rule| rule.name == kind).unwrap();
    let reasons = conclusions.unanswered.iter().find(|(question, _)| *question == rule.question);
    reasons.map(|(_, reasons)| reasons.join("; ")).unwrap_or_default()
}

fn estimates(rates: &[(f64, f64)]) -> Vec<(f64, Estimate)> {
    rates.iter().map(|(pairs, rate)| (*pairs, Estimate::of(&[*rate]).unwrap())).collect()
}

#[test]
fn efficiency_is_relative_to_a_pair_of_the_first_row() {
    let rounded = |points: &[(f64, f64)]| {
        let steps = efficiency(&estimates(points)).into_iter();
        let round = |share: f64| (100.0 * share).round();
        steps
            .map(|step| step.map(|step| (round(step.added.ratio), round(step.per_pair))))
            .collect::<Vec<_>>()
    };
    let good = [(1.0, 266e3), (2.0, 512e3), (3.0, 810e3), (4.0, 1.12e6)];
    let expected = [None, Some((92.0, 96.0)), Some((112.0, 102.0)), Some((117.0, 105.0))];
    assert_eq!(rounded(&good), expected);
    let bad = [(1.0, 296e3), (2.0, 592e3), (3.0, 636e3), (4.0, 255e3)];
    let expected = [None, Some((100.0, 100.0)), Some((15.0, 72.0)), Some((-129.0, 22.0))];
    assert_eq!(rounded(&bad), expected);
    assert_eq!(rounded(&[(2.0, 10.0), (6.0, 20.0)]), [None, Some((50.0, 67.0))]);
    assert_eq!(rounded(&[(1.0, 0.0), (2.0, 20.0)]), [None, None]);
    assert_eq!(rounded(&[]), []);
}

/// By arithmetic: what the second pair adds is the ratio of the rates, less 1, so its error is that of the ratio.
#[test]
fn intervals_of_what_a_pair_adds_have_the_errors_of_its_rates() {
    let rate = |mean: f64, half: f64| Estimate {
        mean,
        interval: Some((mean - half, mean + half)),
        times: 3,
    };
    let points = [(1.0, rate(100.0, 3.0)), (2.0, rate(200.0, 8.0))];
    let step = efficiency(&points)[1].unwrap();
    let (low, high) = step.added.interval.unwrap();
    // (8 / 100)^2 + (2 * 3 / 100)^2 = 0.1^2
    assert!((low - 0.9).abs() < 1e-9 && (high - 1.1).abs() < 1e-9, "{step:?}");
    // Of a row that is not the first: 0.08 and 0.06 of the rates, and 0.5 * 3 / 100 of the first.
    let points = [(1.0, rate(100.0, 3.0)), (2.0, rate(200.0, 6.0)), (3.0, rate(250.0, 8.0))];
    let (low, high) = efficiency(&points)[2].unwrap().added.interval.unwrap();
    let half = (0.08f64.powi(2) + 0.06f64.powi(2) + 0.015f64.powi(2)).sqrt();
    assert!((low - (0.5 - half)).abs() < 1e-9 && (high - (0.5 + half)).abs() < 1e-9);
}

#[test]
fn the_seeds_steady_counts_scale_to_all_pairs() {
    let measured = study(&[(&[], STEADY)], |_, _| {});
    assert_eq!(
        sentence(&measured, "scaling"),
        "The server reads 266,000 /s with 1 pair and 1,120,000 /s with 4 pairs: the rate scales to 4 pairs, each further one adding at \
         least 0.92 of the rate of one."
    );
}

/// A pair that was kept from its CPUs is no measure of what further ones add.
#[test]
fn of_a_disturbed_first_row_no_scaling_is_told() {
    let disturbed: Rates = [
        [20_832.0, 5_297.0, 5_297.0, 5_297.0],
        [200e3, 96_620.0, 96_620.0, 96_620.0],
        [300e3, 190e3, 190e3, 190e3],
        [400e3, 290e3, 290e3, 290e3],
    ];
    let disturbed = study(&[(&[], disturbed)], |_, _| {});
    assert_eq!(
        silent(&disturbed, "scaling"),
        "of 2 pairs each further one adds 17.24 of the rate of one with 1 pair: something disturbed the runs with 1 pair"
    );
}

#[test]
fn the_seeds_first_counts_stop_at_two_pairs_with_what_is_at_its_limit() {
    let measured = study(&[(&[], TURBO)], |_, _| {});
    assert_eq!(
        sentence(&measured, "scaling"),
        "The rate stops scaling at 2 pairs: the server reads 592,000 /s with 2 pairs and 636,000 /s with 3 pairs, so one more pair \
         adds only 0.15 of the rate of one; there the CPUs of the server were 98% busy (60% softirqs, 38% tasks)."
    );
    let conclusions = conclusions(&measured);
    let found = of_kind(&conclusions, "scaling")[0];
    assert!(found.evidence[0].contains("3: 636,000 /s (0.15 per added pair)"), "{found:?}");
    assert!(found.evidence[0].contains("4: 255,000 /s (-1.29 per added pair)"), "{found:?}");
    assert!(
        found.evidence.iter().any(|of| of.contains("read 35% of the 1,800,000 /s")),
        "{found:?}"
    );
    assert_eq!(found.at, [Value::new(PAIRS, "3")]);
}

#[test]
fn what_repeats_cannot_tell_from_scaling_is_no_stop() {
    // The second pair adds 0.85 with an interval that reaches beyond 0.9.
    let noisy = |spread: f64| {
        let mut runs = Vec::new();
        for (number, rate, place) in [("1", 100e3, 0), ("2", 185e3, 1)] {
            for (repeat, sign) in [(1, -1.0), (2, 0.0), (3, 1.0)] {
                let read = rate * (1.0 + sign * spread);
                let mut run = run(&[(PAIRS, number)], [300e3, read, read, read]);
                let study = run.study.as_mut().unwrap();
                (study.place, study.repeat) = (place, repeat);
                runs.push((String::new(), run));
            }
        }
        Measurements::of(runs)
    };
    assert!(sentence(&noisy(0.02), "scaling").contains("scales to 2 pairs"));
    let sure = sentence(&noisy(0.001), "scaling");
    assert!(
        sure.contains("stops scaling at 1 pair") && sure.contains("0.85 (95% interval"),
        "{sure}"
    );
}

#[test]
fn limits_are_the_cpu_that_receives_the_worker_the_link_and_the_client() {
    let limit = |change: &dyn Fn(&mut Run)| {
        let measured = study(&[(&[], TURBO)], |run, _| {
            run.hosts[1].cpu = Some(cpu(20.0, 20.0, 4));
            change(run);
        });
        let sentence = sentence(&measured, "scaling");
        sentence.split_once("; there ").unwrap().1.to_owned()
    };
    assert_eq!(limit(&|_| {}), "no monitored resource was at its limit.");
    assert_eq!(
        limit(&|run| run.hosts[1].cpu.as_mut().unwrap().per_cpu[2].softirq = 99.0),
        "one CPU of the server spent 99% of its time in softirqs."
    );
    assert_eq!(
        limit(&|run| run.hosts[1].busiest_worker = Some(0.97)),
        "the busiest worker of the server was 97% busy."
    );
    assert_eq!(
        limit(&|run| run.hosts[0].busiest_worker = Some(0.98)),
        "the busiest worker of the client was 98% busy."
    );
    let late = Warning::from(LinkLate { late: 0.5, p99: 2000.0, lost: 0 });
    assert_eq!(
        limit(&|run| run.warnings.push(Entry::from(&late))),
        "the emulated links fell behind."
    );
    assert_eq!(
        limit(&|run| {
            let stages = &mut run.frames.as_mut().unwrap().directions[0].stages;
            let sent = stages[1].per_second.unwrap();
            stages[2].per_second = Some(0.6 * sent);
        }),
        "40% of what the client's device sent did not reach the server's."
    );
    assert_eq!(
        limit(&|run| {
            let directions = &mut run.frames.as_mut().unwrap().directions;
            directions.truncate(1);
            directions[0].stages.iter_mut().for_each(|stage| stage.per_second = Some(636e3));
        }),
        "the client generated 636,000 /s, which the server read."
    );
}

#[test]
fn cpus_that_hosts_share_are_the_machines() {
    let measured = study(&[(&[], TURBO)], |run, _| {
        for (host, other) in run.hosts.iter_mut().zip(["h2", "h1"]) {
            host.cpus = vec![0, 1];
            host.shares_machine_with = vec![other.to_owned()];
        }
        let machine = MachineRow {
            hosts: vec!["h1".to_owned(), "h2".to_owned()],
            cpu: Some(cpu(30.0, 70.0, 2)),
            ..fixtures::machine("h1", 1000.0)
        };
        run.machines = vec![machine];
        run.throughput = Some(Throughput { ..fixtures::throughput(1e6, 1024) });
    });
    let told = sentence(&measured, "scaling");
    let expected = "there the CPUs of the machine that both hosts share were 100% busy (30% softirqs, 70% tasks).";
    assert!(told.ends_with(expected), "{told}");
    assert!(sentence(&measured, "cpu-time").contains("of the CPU time of the machine"));
}

const BOTH: [(Axes<'static>, Rates); 2] =
    [(&[(TRAFFIC, "receive only")], RECEIVED), (&[(TRAFFIC, "echo")], STEADY)];

#[test]
fn answering_costs_less_than_what_the_seed_received_only() {
    let measured = study(&BOTH, |run, _| {
        // A datagram that is answered takes 500 cycles more.
        let answers = run.frames.as_ref().unwrap().directions.len() == 2;
        let cycles = if answers { 2500.0 } else { 2000.0 };
        run.hosts[1].cycles_per_kbyte = Some(cycles * 1024.0 / 510.0);
    });
    assert_eq!(
        sentence(&measured, "answering"),
        "With 4 pairs, the server reads 1,120,000 /s when it answers each datagram and 900,000 /s when it only receives (1.24x); a \
         datagram that it answers takes 2,500 busy cycles, 500 more than one that it only reads; without answers, 57% of what its \
         device received was not read by its workers."
    );
    let conclusions = conclusions(&measured);
    let evidence = &of_kind(&conclusions, "answering")[0].evidence[0];
    assert!(evidence.contains("1: 266,000 /s and 204,000 /s (1.30x)"), "{evidence}");
    let unknown = study(&BOTH, |run, _| {
        run.hosts[1].cycles_per_kbyte = None;
        run.hosts[1].cycles_reason = Some("no clock".to_owned());
    });
    assert!(sentence(&unknown, "answering").contains("cycles per datagram are unknown (no clock)"));
    let alone = study(&BOTH[1..], |_, _| {});
    assert_eq!(silent(&alone, "answering"), "there are no points with and without answers");
}

fn site(class: &str, function: &str, context: WaitContext, seconds: f64) -> LockSite {
    let waiter =
        LockTask { pid: 7, name: "wirecost".to_owned(), role: Some("agent of h2".to_owned()) };
    LockSite {
        kind: LockKind::Spinlock,
        class: Some(class.to_owned()),
        lock: None,
        function: Some(function.to_owned()),
        module: None,
        offset: 0,
        context,
        waiter: (context == WaitContext::Task).then_some(waiter),
        owner: None,
        stack: vec![function.to_owned(), "udp_recvmsg".to_owned(), "inet_recvmsg".to_owned()],
        waits: 10,
        seconds,
        spin_seconds: seconds,
        probe_seconds: 0.0,
        inner_seconds: 0.0,
        longest_seconds: 0.001,
        still_waiting: 0,
        still_waiting_seconds: 0.0,
    }
}

/// A shared socket whose receive queue is waited for, in so many seconds of two seconds of busy time.
fn locked(shared: f64, class: &'static str, probed: bool) -> Measurements {
    let servers: [(Axes<'_>, Rates); 2] =
        [(&[(SERVER, "socket per worker")], STEADY), (&[(SERVER, "shared socket")], STEADY)];
    study(&servers, move |run, _| {
        let is_shared = run.study.as_ref().unwrap().point.get(SERVER) == Some("shared socket");
        let observed = observed(run);
        observed.cpu = Some(CpuSection {
            total: CpuTime { task: 1.5, softirq: 0.5, wall: 4.0, ..CpuTime::default() },
            ..CpuSection::default()
        });
        let waits = if is_shared { shared } else { 0.004 };
        let mut foreign = site("mmap_lock", "do_mprotect_pkey", WaitContext::Task, 5.0);
        foreign.waiter.as_mut().unwrap().role = None;
        observed.locks = probed.then(|| LocksSection {
            sites: vec![
                foreign,
                site(class, "__skb_recv_udp", WaitContext::Task, 0.75 * waits),
                site("wait queue", "__wake_up_sync_key", WaitContext::Softirq, 0.25 * waits),
            ],
            ..LocksSection::default()
        });
    })
}

#[test]
fn the_lock_is_named_with_its_share_its_stacks_and_why_it_is_not_the_seeds() {
    let queue = "receive queue of a UDP socket (or busylock)";
    let measured = locked(0.24, queue, true);
    let told = sentence(&measured, "lock-waits");
    assert!(
        told.starts_with(
            "With shared socket and 4 pairs, waiting for locks took 12.0% of the busy CPU time of the server, against 0.2% with \
             socket per worker; by lock: receive queue of a UDP socket (or busylock) (in __skb_recv_udp, task) 75% and wait queue \
             (in __wake_up_sync_key, softirq) 25%; on Linux softirqs are off while the lock of the receive queue is held"
        ),
        "{told}"
    );
    let conclusions = conclusions(&measured);
    let evidence = &of_kind(&conclusions, "lock-waits")[0].evidence;
    assert_eq!(evidence.len(), 2);
    // Of four points each, the last; another program's waits are not the server's.
    assert_eq!(evidence[0], "180 ms waited in __skb_recv_udp < udp_recvmsg < inet_recvmsg");

    // Another lock is not explained by that of the socket.
    let other = sentence(&locked(0.24, "epoll", true), "lock-waits");
    assert!(!other.contains("on Linux"), "{other}");
    let few = silent(&locked(0.01, queue, true), "lock-waits");
    assert_eq!(few, "waits took at most 0.5% of the busy CPU time (shared socket, 4 pairs)");
    assert_eq!(silent(&locked(0.24, queue, false), "lock-waits"), "probe locks did not run");
}

#[test]
fn softirqs_are_told_beside_the_servers_own_time() {
    let measured = study(&[(&[], STEADY)], |run, _| {
        let process = |name: &str, role: Option<&str>, seconds| ProcessTime {
            pid: 1,
            name: name.to_owned(),
            kernel_thread: false,
            role: role.map(str::to_owned),
            seconds,
        };
        observed(run).cpu = Some(CpuSection {
            total: CpuTime { wall: 4.0, in_ksoftirqd: Some(2.0), ..CpuTime::default() },
            processes: vec![
                process("wirecost", Some("agent of h2"), 1.2),
                process("wirecost", Some("agent of h1"), 3.0),
                process("other", None, 2.0),
            ],
            ..CpuSection::default()
        });
    });
    assert_eq!(
        sentence(&measured, "cpu-time"),
        "With 4 pairs, softirqs take 60% of the CPU time of the server (50% in ksoftirqd) and tasks 38%, of which the server's \
         process 30%; 2% is idle."
    );
    let unmeasured = study(&[(&[], STEADY)], |run, _| run.hosts[1].cpu = None);
    assert_eq!(silent(&unmeasured, "cpu-time"), "CPU time was not measured");
}

#[test]
fn copying_is_the_layer_s_part_of_the_cycles_of_a_datagram() {
    let sampled = |samples| {
        study(&[(&[], STEADY)], move |run, _| {
            let function = |name: &str, exclusive| FunctionShare {
                name: name.to_owned(),
                layer: "copy".to_owned(),
                module: "kernel".to_owned(),
                exclusive,
                inclusive: exclusive,
                interval: (0.0, 1.0),
                cycles_per_kbyte: None,
            };
            let layer = |name: &str, share: f64| LayerShare {
                layer: name.to_owned(),
                share,
                interval: Proportion::worth(share, samples as f64).interval,
                cycles_per_kbyte: None,
            };
            observed(run).functions = Some(FunctionsSection {
                samples,
                layers: vec![layer("IP", 0.5), layer("copy", 0.125)],
                functions: vec![function("_copy_to_iter", 0.1)],
                ..FunctionsSection::default()
            });
        })
    };
    assert_eq!(
        sentence(&sampled(4000), "copying"),
        "With 4 pairs, copying takes 250 of the 2,000 busy cycles per datagram of the server (12.5%, 95% interval 11.5% to 13.6%)."
    );
    let conclusions = conclusions(&sampled(4000));
    let evidence = &of_kind(&conclusions, "copying")[0].evidence;
    assert_eq!(evidence[0], "functions of the layer `copy`: _copy_to_iter 10.0%");
    let few = silent(&sampled(49), "copying");
    assert!(few.starts_with("49 samples at pairs=4 are too few"), "{few}");
}

#[test]
fn workers_are_told_with_wake_ups_preemptions_and_whom_they_waited_for() {
    let watched = |of_host: &'static str| {
        study(&[(&[], STEADY)], move |run, _| {
            let thread = |host: &str, worker, waited| ThreadScheduling {
                host: Some(host.to_owned()),
                worker: Some(worker),
                wakeups: WakeupCounts { total: 140_000, ..WakeupCounts::default() },
                run_queue: Some(WaitTimes { seconds: waited, ..WaitTimes::default() }),
                preemptions: 500,
                waited_for: vec![CpuHolder {
                    name: "ksoftirqd/1".to_owned(),
                    kernel_thread: true,
                    preempted_seconds: 0.9 * waited,
                    ..CpuHolder::default()
                }],
                ..ThreadScheduling::default()
            };
            observed(run).scheduling = Some(SchedulingSection {
                seconds: 2.0,
                threads: vec![
                    thread(of_host, 0, 0.1),
                    thread(of_host, 1, 0.5),
                    thread("h1", 0, 1.9),
                ],
                ..SchedulingSection::default()
            });
        })
    };
    assert_eq!(
        sentence(&watched("h2"), "scheduling"),
        "With 4 pairs, the server's workers are woken 140,000 /s (0.12 per datagram read) and preempted 500 /s; the one that \
         waited longest for its CPU waited 25.0% of the time; of all waits, 90% were for [ksoftirqd/1]."
    );
    assert_eq!(silent(&watched("h3"), "scheduling"), "the server's workers were not watched");
    let none = study(&[(&[], STEADY)], |_, _| {});
    assert_eq!(silent(&none, "scheduling"), "nothing observed (--observe none)");
}

/// The seed's turbo: 30% with one and two CPUs, 25% with three, 15% with four, of 3.3 GHz.
#[test]
fn turbo_that_falls_with_more_pairs_is_told() {
    let clocked = |boost: [f64; 4]| {
        study(&[(&[], STEADY)], move |run, at| {
            let ghz = 3.3 * boost[at];
            let clock =
                wirecost_model::observe::ClockRange { min_ghz: ghz, mean_ghz: ghz, max_ghz: ghz };
            let cpu =
                CpuHardware { cpu: 1, clock: Some(clock), busy_percent: None, idle_states: None };
            observed(run).hardware =
                Some(HardwareSection { cpus: vec![cpu], ..HardwareSection::default() });
        })
    };
    assert_eq!(
        sentence(&clocked([1.3, 1.3, 1.25, 1.15]), "clock"),
        "The clock of the server's CPUs fell from 4.29 GHz with 1 pair to 3.79 GHz with 4 pairs (-12%), so a rate per pair compares CPUs \
         of different speed: compare with turbo off (--axis tune.turbo=on,off)."
    );
    assert_eq!(silent(&clocked([1.0, 1.0, 0.99, 0.99]), "clock"), "");
    let unknown = study(&[(&[], STEADY)], |run, _| {
        let clock_reason = Some("no cpufreq".to_owned());
        observed(run).hardware =
            Some(HardwareSection { clock_reason, ..HardwareSection::default() });
    });
    assert_eq!(silent(&unknown, "clock"), "no cpufreq");
    let changed = study(&[(&[], STEADY)], |run, at| {
        let of = ClockChange { from_ghz: 3.4, to_ghz: 2.6, seconds: 1.0 };
        let clock_change = (at == 2).then_some(of);
        observed(run).hardware =
            Some(HardwareSection { clock_change, ..HardwareSection::default() });
    });
    assert_eq!(
        sentence(&changed, "clock"),
        "The clock of the server's CPUs fell from 3.4 to 2.6 GHz within a run (3 pairs): its rate is of no one clock."
    );
}

#[test]
fn pause_frames_are_told_where_there_were_any() {
    let paused = |sent: u64, counted: bool| {
        study(&[(&[], STEADY)], move |run, at| {
            let tx = Some(sent * at as u64);
            let pause = PauseFrames { rx: Some(0), tx, source: PauseSource::Standard };
            let device = NicDevice {
                pause: counted.then_some(pause),
                pause_reason: (!counted).then(|| "its driver has no flow control".to_owned()),
                ..NicDevice::default()
            };
            observed(run).nic = Some(NicSection { devices: vec![device] });
        })
    };
    assert_eq!(
        sentence(&paused(400, true), "flow-control"),
        "Flow control slowed the traffic: the server's devices sent 1,200 pause frames within a run (4 pairs). Where one queue is \
         full, they stop the packets of all queues: repeat the study with --axis tune.pause.rx=on,off."
    );
    assert_eq!(silent(&paused(0, true), "flow-control"), "");
    assert_eq!(silent(&paused(400, false), "flow-control"), "its driver has no flow control");
}

#[test]
fn a_lab_has_pauses_of_its_own_and_its_own_axis() {
    let measured = study(&[(&[], STEADY)], |run, at| {
        let rss = Rss::spread(4);
        let nic = Nic { queues: 4, rss, ring: 64, coalesce_nanoseconds: 0, pause: true };
        let host = run.hosts[1].name.clone();
        run.link = Some(LinkReport {
            topology: Topology::Pair,
            link: LinkSpec { nic: Some(nic), ..LinkSpec::default() },
            seconds: 1.0,
            lines: Vec::new(),
            devices: vec![DeviceCounts { host, pauses: 7 * at as u64, queues: Vec::new() }],
            error_us: None,
            late: 0.0,
            refused: 0,
            unread: 0,
            unheld: 0,
            cpu_percent: 0.0,
            cpu_source: String::new(),
            cpus: BTreeMap::new(),
        });
    });
    assert_eq!(
        sentence(&measured, "flow-control"),
        "Flow control slowed the traffic: the server's devices sent 21 pause frames within a run (4 pairs). Where one queue is \
         full, they stop the packets of all queues: repeat the study with --axis lab.pause=on,off."
    );
}

#[test]
fn a_study_without_pairs_has_no_sentences() {
    let mut measured = study(&[(&[], STEADY)], |_, _| {});
    measured.points.iter_mut().for_each(|point| point.point.axes.clear());
    assert_eq!(conclusions(&measured), Conclusions::default());
}
