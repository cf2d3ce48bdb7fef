//! Studies with known answers; the throughput of the first is that of "TCP performance optimization for 10 Gb/s LHCOPN
//! connections" (Ferrari and others, 2006).

use wirecost_model::convergence::{Convergence, ConvergenceState};
use wirecost_model::host::HostFacts;
use wirecost_model::measure::{Bytes, Setting};
use wirecost_model::program::Side;
use wirecost_model::run::{Datagrams, Fairness, HostRow, Rfc6349, Run};
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef};
use wirecost_model::warning::Entry;

use super::*;
use crate::fixtures;

const AXES: [(&str, &str); 5] = [
    ("option.cc", "bic"),
    ("option.wndsz", "20m"),
    ("tune.txqueuelen", "1000"),
    ("size", "64k"),
    ("tune.netdev_max_backlog", "default"),
];

/// Runs with some axes at other values than the base.
#[derive(Default)]
struct Study {
    runs: Vec<Run>,
    place: u32,
    /// Further axes, with their base.
    axes: Vec<(&'static str, &'static str)>,
}

impl Study {
    fn add(&mut self, streams: &str, changed: &[(&str, &str)], gigabits: &[f64]) -> &mut [Run] {
        self.place += 1;
        let value = |(axis, base): (&str, &str)| {
            let changed = changed.iter().find(|(name, _)| *name == axis);
            Value::new(axis, changed.map_or(base, |(_, value)| value))
        };
        let axes = [("connections", streams)].into_iter().chain(AXES).chain(self.axes.clone());
        let axes = axes.map(value).collect();
        let point = Point { axes, settings: Vec::new() };
        let from = self.runs.len();
        for (repeat, gigabits) in (1..).zip(gigabits) {
            let mut run = run(*gigabits * 1e9);
            run.study = Some(StudyRunRef {
                study: "s".to_owned(),
                point: point.clone(),
                place: self.place,
                repeat,
                order: repeat,
                search: None,
            });
            self.runs.push(run);
        }
        &mut self.runs[from..]
    }

    fn conclusions(&self) -> Conclusions {
        conclusions(&Measurements::of(self.runs.iter().map(|run| (String::new(), run.clone()))))
    }

    fn sentences(&self, kind: &str) -> Vec<String> {
        let of_kind = self.conclusions().findings.into_iter().filter(|of| of.kind == kind);
        of_kind.map(|finding| finding.sentence).collect()
    }
}

/// Between hosts with a link of 10 Gb/s and 20 ms: 25 MB.
fn run(bits_per_second: f64) -> Run {
    let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
    run.status = Status::Ok;
    run.throughput = Some(fixtures::throughput(bits_per_second, 1 << 30));
    run.window = Some(fixtures::window(10.0));
    let facts = HostFacts { link_bits_per_second: Some(10_000_000_000), ..HostFacts::default() };
    let host = |name: &str, role, cost| HostRow {
        role,
        facts: facts.clone(),
        cycles_per_kbyte: Some(cost),
        ..fixtures::host(name)
    };
    run.hosts = vec![host("h1", Side::Master, 900.0), host("h2", Side::Peer, 1500.0)];
    run.hosts[0].bytes = Some(Bytes { tx_sent: 1 << 30, ..Bytes::default() });
    run.hosts[1].bytes = Some(Bytes { tx_received: 1 << 30, ..Bytes::default() });
    run.rfc6349 = Some(Rfc6349 {
        transfer_time_ratio: None,
        transfer_time_reason: None,
        max_bits_per_second: None,
        efficiency_percent: None,
        efficiency_reason: None,
        buffer_delay_percent: None,
        buffer_delay_reason: None,
        baseline_rtt_us: Some(20_000.0),
    });
    converges(&mut run, Some(3.0));
    run
}

fn converges(run: &mut Run, seconds: Option<f64>) {
    run.convergence = Some(Convergence {
        state: match seconds {
            Some(_) => ConvergenceState::Converged,
            None => ConvergenceState::Trend,
        },
        seconds,
        steady_bits_per_second: Some(1e9),
        steady_share: Some(1.0),
        change: Some(0.31),
        p_value: Some(0.001),
        window_seconds: 1.0,
        windows: vec![1e9; 20],
    });
}

fn seed() -> Study {
    let mut study = Study::default();
    study.add("5", &[], &[6.8]);
    study.add("5", &[("option.cc", "reno")], &[6.2]);
    study
}

#[test]
fn the_shape_of_the_seeds_table() {
    assert_eq!(seed().sentences("achieved"), ["5 streams: bic -> 6.80 Gb/s; reno -> 6.20 Gb/s."]);
}

#[test]
fn the_best_setting_comes_first() {
    let mut study = seed();
    study.add("5", &[("size", "512k")], &[8.5]);
    study.add("5", &[("size", "4k")], &[3.4]);
    let all = study.conclusions().findings;
    assert_eq!(
        all[0].sentence,
        "With 5 streams, throughput is highest with size=512k: 8.50 Gb/s, 1.25x the base (6.80 Gb/s)."
    );
    assert_eq!(all[0].evidence[1], "the base: 6.80 Gb/s");
    // What is better by less than 5%, or less than its intervals, is no better.
    let mut study = seed();
    study.add("5", &[("size", "512k")], &[7.0]);
    let none = "With 5 streams, no setting has a higher throughput than the base (6.80 Gb/s)";
    assert!(study.sentences("best")[0].starts_with(none), "{:?}", study.sentences("best"));
    let mut study = Study::default();
    study.add("5", &[], &[6.0, 6.8, 7.6]);
    study.add("5", &[("size", "512k")], &[6.4, 8.4, 9.4]);
    assert!(study.sentences("best")[0].contains("no setting"), "{:?}", study.sentences("best"));
}

#[test]
fn factors_that_matter_are_told_apart_from_those_that_do_not() {
    let mut study = Study::default();
    study.add("5", &[], &[6.8]);
    study.add("5", &[("size", "4k")], &[3.4]);
    study.add("5", &[("option.wndsz", "1m")], &[0.68]);
    study.add("5", &[("tune.txqueuelen", "100")], &[6.7]);
    assert_eq!(
        study.sentences("factors"),
        [
            "With 5 streams, throughput depends on option.wndsz (680 Mb/s with 1m to 6.80 Gb/s with 20m, 10.00x) and \
          size (3.40 Gb/s with 4k to 6.80 Gb/s with 64k, 2.00x); it changes by less than 5%, or less than its \
          interval, with tune.txqueuelen."
        ]
    );
}

#[test]
fn the_smallest_buffer_that_is_enough_stands_beside_the_product() {
    let mut study = Study::default();
    for streams in ["1", "5"] {
        study.add(streams, &[], &[6.8]);
        study.add(streams, &[("option.wndsz", "auto")], &[6.9]);
        study.add(streams, &[("option.wndsz", "1m")], &[0.68]);
        study.add(streams, &[("option.wndsz", "10m")], &[6.6]);
        study.add(streams, &[("tune.txqueuelen", "100")], &[3.4]);
    }
    assert_eq!(
        study.sentences("socket-buffer"),
        [
            "With 1 stream, the smallest socket buffer that reaches 95% of the best throughput is 10m (96%); the \
             bandwidth-delay product is 25.0 MB.",
            "With 5 streams, the smallest socket buffer that reaches 95% of the best throughput is 10m (96%); the \
             bandwidth-delay product is 25.0 MB, 5.00 MB for each stream.",
        ]
    );
    assert_eq!(
        study.sentences("txqueuelen")[0],
        "With 1 stream, the smallest txqueuelen that reaches 95% of the best throughput is 1000 (100%); the \
         bandwidth-delay product is 25.0 MB, 16667 packets of 1500 bytes."
    );
    let unanswered = study.conclusions().unanswered;
    let backlog = unanswered.iter().find(|(question, _)| *question == "the smallest backlog queue");
    let only = "only one value of tune.netdev_max_backlog was measured, default";
    assert_eq!(backlog.unwrap().1, [only]);
    for (packets, gigabits) in [("100", 3.4), ("10000", 6.8)] {
        study.add("1", &[("tune.netdev_max_backlog", packets)], &[gigabits]);
    }
    // The default is no number, and only says what can be reached.
    assert_eq!(
        study.sentences("backlog"),
        [
            "With 1 stream, the smallest netdev_max_backlog that reaches 95% of the best throughput is 10000 (100%); the \
             bandwidth-delay product is 25.0 MB, 16667 packets of 1500 bytes."
        ]
    );
}

/// A limit of the kernel (tcp_rmem, rmem_max) is no size that was tried.
#[test]
fn buffers_that_were_not_granted_were_not_tried() {
    let clips = |runs: &mut [Run], bytes: &str| {
        for run in runs {
            run.settings.push(Setting {
                name: "wndsz.receive".to_owned(),
                host: "h2".to_owned(),
                requested: bytes.to_owned(),
                effective: "4194304".to_owned(),
                previous: None,
            });
        }
    };
    let mut study = Study::default();
    study.add("5", &[], &[6.8]);
    study.add("5", &[("option.wndsz", "auto")], &[6.9]);
    clips(study.add("5", &[("option.wndsz", "8m")], &[6.8]), "8388608");
    clips(study.add("5", &[("option.wndsz", "16m")], &[6.8]), "16777216");
    clips(&mut study.runs[..1], "20971520");
    assert!(study.sentences("socket-buffer").is_empty());
    let unanswered = study.conclusions().unanswered;
    let buffer = unanswered.iter().find(|(question, _)| question.contains("socket buffer"));
    let reason = &buffer.unwrap().1[0];
    assert!(
        reason
            .contains("the kernel clipped every requested value of option.wndsz: 20m: not tested"),
        "{reason}"
    );
    study.add("5", &[("option.wndsz", "2m")], &[6.6]);
    let least = "the smallest socket buffer that was tried, 2m, reaches 96%";
    assert!(
        study.sentences("socket-buffer")[0].contains(least),
        "{:?}",
        study.sentences("socket-buffer")
    );
    let found = study.conclusions().findings;
    let buffer = found.iter().find(|finding| finding.kind == "socket-buffer").unwrap();
    assert!(
        buffer
            .evidence
            .iter()
            .any(|of| of.starts_with("8m: not tested, the effective value was 4194304")),
        "{buffer:?}"
    );
}

/// Adds a run of UDP at 5 streams that loses so many of 1,000 datagrams.
fn add_udp(study: &mut Study, changed: &[(&str, &str)], offered: f64, lost: u64) {
    let all: Vec<(&str, &str)> = [("traffic", "udp")].iter().chain(changed).copied().collect();
    let arrives = offered * (1000 - lost) as f64 / 1000.0;
    let run = &mut study.add("5", &all, &[arrives / 1e9])[0];
    run.offered_bits_per_second = Some(offered);
    run.datagrams = Some(Datagrams {
        sent: 1000,
        received: 1000 - lost,
        lost: lost as i64,
        late: 0,
        reordered: None,
        duplicated: None,
        loss_bursts: None,
        jitter_us: None,
        one_way_us: None,
        after_ramp: None,
    });
}

fn with_udp() -> Study {
    let axes = vec![("traffic", "tcp"), ("offered", "95%"), ("coalescing", "0us")];
    let mut study = Study { axes, ..Study::default() };
    study.add("5", &[], &[6.8]);
    study.add("5", &[("option.cc", "reno")], &[6.2]);
    study.add("5", &[("size", "512k")], &[6.9]);
    study
}

/// The rate of datagrams is set: what arrives is no effect of a factor of TCP.
#[test]
fn datagrams_are_told_apart() {
    for (lost, told) in [
        (5, "450 Mb/s offered, 448 Mb/s received (0.50% lost)."),
        (
            600,
            "every offered load loses more than 1%, the lowest too: 450 Mb/s offered, 180 Mb/s received (60.00% lost); \
             @udp-rate-search finds the highest that does not.",
        ),
    ] {
        let mut study = with_udp();
        add_udp(&mut study, &[], 450e6, lost);
        let factors = &study.sentences("factors")[0];
        assert!(!factors.contains("traffic"), "{factors}");
        assert_eq!(study.sentences("datagrams"), [format!("With 5 streams of UDP, {told}")]);
        assert!(study.sentences("datagram-factors").is_empty());
    }
}

#[test]
fn what_udp_achieves_and_what_changes_it_is_told() {
    let mut study = with_udp();
    add_udp(&mut study, &[], 450e6, 4);
    add_udp(&mut study, &[("offered", "50%")], 240e6, 0);
    add_udp(&mut study, &[("offered", "100%")], 480e6, 30);
    add_udp(&mut study, &[("option.wndsz", "64k")], 450e6, 120);
    add_udp(&mut study, &[("coalescing", "500us")], 450e6, 2);
    assert_eq!(
        study.sentences("datagrams"),
        [
            "With 5 streams of UDP, the highest load with at most 1% lost: 450 Mb/s offered, 448 Mb/s received (0.40% \
          lost)."
        ]
    );
    assert_eq!(
        study.sentences("datagram-factors"),
        [
            "With 5 streams of UDP, the loss depends on option.wndsz (0.40% with 20m to 12.00% with 64k); it does not change by \
          more than 1 percentage point and their intervals with coalescing."
        ]
    );
    // Each has rows of its own runs only.
    let measured = Measurements::of(study.runs.iter().map(|run| (String::new(), run.clone())));
    let all = |blocks: Vec<Block<'_>>, of_udp: bool| {
        assert_eq!(blocks.len(), 1);
        let points = blocks[0].points();
        points.len() > 1 && points.iter().all(|point| is_of_datagrams(point) == of_udp)
    };
    assert!(all(blocks(&measured), false) && all(datagram_blocks(&measured), true));
    // TCP has no factor of these runs.
    let factors = &study.sentences("factors")[0];
    assert!(!factors.contains("wndsz") && !factors.contains("coalescing"), "{factors}");
}

#[test]
fn the_smallest_budget_has_no_bandwidth_delay_product() {
    let mut study = Study { axes: vec![("tune.netdev_budget", "default")], ..Study::default() };
    study.add("5", &[], &[6.8]);
    study.add("5", &[("size", "512k")], &[6.8]);
    study.add("5", &[("tune.netdev_budget", "100")], &[6.0]);
    study.add("5", &[("tune.netdev_budget", "1000")], &[6.8]);
    assert_eq!(
        study.sentences("napi-budget"),
        [
            "With 5 streams, the smallest netdev_budget that reaches 95% of the best throughput is 1000 (100%)."
        ]
    );
}

#[test]
fn disturbed_runs_are_told_in_the_sentences_that_rest_on_them() {
    let mut study = seed();
    let best = study.add("5", &[("size", "512k")], &[8.5]);
    let late = Entry { code: "link-late".to_owned(), message: String::new(), brief: None };
    best[0].warnings.push(late);
    let told = "; in 1 of 2 runs the emulated links fell behind.";
    assert!(study.sentences("best")[0].ends_with(told), "{:?}", study.sentences("best"));
    let told = "; in 1 of 3 runs the emulated links fell behind.";
    assert!(study.sentences("factors")[0].ends_with(told), "{:?}", study.sentences("factors"));
}

#[test]
fn a_buffer_that_is_too_small_or_always_enough_is_told_so() {
    let mut study = Study::default();
    study.add("5", &[("option.wndsz", "auto")], &[6.9]);
    study.add("5", &[("option.wndsz", "auto"), ("size", "4k")], &[6.9]);
    study.add("5", &[("option.wndsz", "auto"), ("size", "1k")], &[6.9]);
    study.add("5", &[("option.wndsz", "1m")], &[0.69]);
    study.add("5", &[("option.wndsz", "2m")], &[1.38]);
    let none = "no socket buffer that was tried reaches 95% of the best throughput: 2m reaches 20%";
    assert!(study.sentences("socket-buffer")[0].contains(none));
    let mut study = Study::default();
    study.add("5", &[], &[6.9]);
    study.add("5", &[("option.wndsz", "10m")], &[6.8]);
    let least = "the smallest socket buffer that was tried, 10m, reaches 99%";
    assert!(study.sentences("socket-buffer")[0].contains(least));
}

#[test]
fn convergence_tells_which_never_did() {
    let mut study = Study::default();
    study.add("5", &[], &[6.8, 6.8]);
    let reno = study.add("5", &[("option.cc", "reno")], &[6.2, 6.2]);
    reno.iter_mut().for_each(|run| converges(run, None));
    let bbr = study.add("5", &[("option.cc", "bbr")], &[6.8, 6.8]);
    converges(&mut bbr[0], Some(9.0));
    converges(&mut bbr[1], None);
    let cubic = study.add("5", &[("option.cc", "cubic")], &[6.5, 6.5, 6.5]);
    for (run, seconds) in cubic.iter_mut().zip([4.0, 5.0, 6.0]) {
        converges(run, Some(seconds));
    }
    assert_eq!(
        study.sentences("convergence"),
        [
            "With 5 streams, throughput converges after 3.00 s with bic, 9.00 s with bbr in 1 of 2 runs and 5.00 s (2.52 s to \
          7.48 s) with cubic (reno: did not converge: throughput changed by +31% over the last half)."
        ]
    );
}

#[test]
fn cpu_and_fairness_are_told_by_congestion_control() {
    let mut study = Study::default();
    let jain = |run: &mut Run, jain, seconds| {
        run.fairness = Some(Fairness {
            jain,
            strands: 5,
            ratio: None,
            fair_share_seconds: seconds,
            fair_share_reason: None,
            between_groups: None,
        });
    };
    jain(&mut study.add("5", &[], &[6.8])[0], 0.98, Some(2.0));
    let reno = &mut study.add("5", &[("option.cc", "reno")], &[6.2])[0];
    jain(reno, 0.71, None);
    reno.hosts[0].cycles_per_kbyte = Some(700.0);
    assert_eq!(
        study.sentences("cpu"),
        [
            "With 5 streams, the sender's cycles/KByte are 900 with bic and 700 with reno, the receiver's 1,500 with bic \
          and 1,500 with reno."
        ]
    );
    assert_eq!(
        study.sentences("fairness"),
        [
            "With 5 streams, Jain's index of the streams is 0.980 with bic, fair after 2.00 s; 0.710 with reno."
        ]
    );
    // One stream shares with none.
    assert!(seed().sentences("fairness").is_empty());
}

#[test]
fn the_link_limits_where_it_is_full() {
    let mut study = Study::default();
    study.add("5", &[], &[9.4])[0].hosts[0].bytes =
        Some(Bytes { tx_sent: 11_750_000_000, ..Bytes::default() });
    study.add("5", &[("size", "4k")], &[3.4]);
    let sentence = &study.sentences("bottleneck")[0];
    assert!(
        sentence.starts_with("With 5 streams, at the base, the link of h1 was saturated"),
        "{sentence}"
    );
}

/// The link of one end carries this share of its rate.
fn fills(run: &mut Run, host: usize, share: f64) {
    // 10 Gb/s in 10 s.
    let bytes = (share * 12.5e9) as u64;
    run.hosts[host].bytes = Some(match host {
        0 => Bytes { tx_sent: bytes, ..Bytes::default() },
        _ => Bytes { tx_received: bytes, ..Bytes::default() },
    });
}

#[test]
fn what_limits_the_best_setting_stands_beside_what_limits_the_base() {
    let mut study = Study::default();
    study.add("5", &[], &[6.8]);
    fills(&mut study.add("5", &[("size", "512k")], &[9.4])[0], 1, 0.94);
    // The next best is not told.
    fills(&mut study.add("5", &[("option.wndsz", "auto")], &[8.9])[0], 0, 0.93);
    let all = study.conclusions().findings;
    let finding = all.iter().find(|of| of.kind == "bottleneck").unwrap();
    assert_eq!(
        finding.sentence,
        "With 5 streams, at the base, no monitored resource was saturated; with the best setting (size=512k), the link of \
         h2 was saturated (94% of 10.0 Gb/s)."
    );
    let of = |start: &str| finding.evidence.iter().filter(|of| of.starts_with(start)).count();
    assert_eq!(of("the base: ") + of("size=512k: "), finding.evidence.len(), "{finding:?}");
    assert!(of("the base: ") > 0 && of("size=512k: ") > 0, "{finding:?}");

    // The same of both is told once, and the base alone where nothing is better.
    let told = |base: f64, other: f64| -> String {
        let mut study = Study::default();
        fills(&mut study.add("5", &[], &[base])[0], 0, 0.95);
        fills(&mut study.add("5", &[("size", "512k")], &[other])[0], 0, 0.95);
        study.sentences("bottleneck").remove(0)
    };
    assert_eq!(
        told(6.8, 8.5),
        "With 5 streams, at the base and with the best setting (size=512k), no monitored resource was saturated."
    );
    assert_eq!(
        told(9.2, 9.4),
        "With 5 streams, at the base, the link of h1 was saturated (92% of 10.0 Gb/s)."
    );
}

#[test]
fn the_base_is_the_point_whose_values_most_points_have() {
    let mut study = Study::default();
    study.add("1", &[("size", "4k")], &[1.0]);
    study.add("1", &[], &[2.0]);
    study.add("1", &[("option.cc", "reno")], &[3.0]);
    study.add("1", &[("option.cc", "reno"), ("option.wndsz", "1m")], &[4.0]);
    let runs = study.runs.iter().map(|run| (String::new(), run.clone()));
    let measured = Measurements::of(runs);
    let blocks = blocks(&measured);
    let [block] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(block.base.runs[0].throughput.as_ref().unwrap().bits_per_second, 2e9);
    assert_eq!(block.factors.iter().map(|of| of.axis).collect::<Vec<_>>(), ["option.cc", "size"]);
    let names: Vec<String> = block.points().into_iter().map(|point| block.name(point)).collect();
    let together = "option.cc=reno option.wndsz=1m";
    assert_eq!(names, ["the base", "option.cc=reno", "size=4k", together]);
    assert_eq!(conclusions(&Measurements::default()), Conclusions::default());
}
