//! Records with known answers.

use wirecost_model::run::{Fairness, GroupFairness};
use wirecost_model::study::{Point, StudyRunRef};

use super::*;

/// A run at a point, in which near streams of 20 ms get 8 Mb/s each, and far ones this share of it.
fn run(axes: &[(&str, &str)], place: u32, repeat: u32, far_ms: f64, share: f64) -> Run {
    let group = |host: &str, group, bits_per_second, rtt_ms: f64| StreamGroup {
        host: host.to_owned(),
        group,
        streams: 4,
        bits_per_second,
        rtt_us: Some(rtt_ms * 1e3),
    };
    let mut run = Run::empty("@two-paths", "epoll", "0.1.0", 0);
    run.fairness = Some(Fairness {
        jain: 0.9,
        strands: 8,
        ratio: None,
        fair_share_seconds: None,
        fair_share_reason: None,
        between_groups: Some(GroupFairness {
            jain: 0.9,
            ratio: None,
            fair_share_seconds: None,
            // The host's name sorts before that of the near one.
            groups: vec![group("a", 1, 8e6 * share, far_ms), group("b", 0, 8e6, 20.0)],
        }),
    });
    let axes = axes.iter().map(|(name, value)| Value::new(name, value)).collect();
    run.study = Some(StudyRunRef {
        study: "s".to_owned(),
        point: Point { axes, settings: Vec::new() },
        place,
        repeat,
        order: repeat,
        search: None,
    });
    run
}

fn findings(runs: Vec<Run>) -> Vec<Finding> {
    let runs = runs.into_iter().map(|run| (String::new(), run));
    let conclusions = conclusions(&Measurements::of(runs));
    assert!(conclusions.unanswered.is_empty(), "{:?}", conclusions.unanswered);
    conclusions.findings
}

#[test]
fn each_congestion_control_has_its_share() {
    let mut runs = Vec::new();
    for (place, (cc, far, share)) in
        [("reno", "80ms", 0.25), ("bbr", "80ms", 1.4), ("reno", "20ms", 1.0), ("bbr", "20ms", 1.0)]
            .into_iter()
            .enumerate()
    {
        let rtt = if far == "80ms" { 80.0 } else { 20.0 };
        for (repeat, factor) in [(1, 0.98), (2, 1.0), (3, 1.02)] {
            let axes = [("option.cc", cc), ("far-rtt", far)];
            runs.push(run(&axes, place as u32 + 1, repeat, rtt, share * factor));
        }
    }
    let findings = findings(runs);
    let sentences: Vec<&str> = findings.iter().map(|of| of.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "At far-rtt=80ms, a far stream gets, of the throughput of a near one, 1.40x with bbr (RTT 80.0 ms, near \
             20.0 ms) and 0.25x with reno (RTT 80.0 ms, near 20.0 ms).",
            "At far-rtt=20ms, a far stream gets, of the throughput of a near one, 1.00x with reno (RTT 20.0 ms, near \
             20.0 ms) and 1.00x with bbr (RTT 20.0 ms, near 20.0 ms).",
        ]
    );
    // A quarter of the throughput at four times the round-trip time: as 1/RTT.
    assert_eq!(
        findings[0].evidence[1],
        "0.25x (0.24 to 0.26) with reno: throughput is proportional to RTT^-1.0"
    );
    let equal = "1.00x (0.95 to 1.05) with reno";
    assert_eq!(findings[1].evidence[0], equal);
}

#[test]
fn a_disturbed_study_says_so() {
    let mut only = run(&[("far-rtt", "80ms")], 1, 1, 80.0, 0.5);
    only.warnings.push(wirecost_model::warning::Entry {
        code: "link-late".to_owned(),
        message: "late".to_owned(),
        brief: None,
    });
    let sentence = findings(vec![only]).remove(0).sentence;
    assert!(sentence.ends_with("; in 1 of 1 runs the emulated links fell behind."), "{sentence}");
}

#[test]
fn without_two_groups_nothing_is_said() {
    let mut one = run(&[("far-rtt", "80ms")], 1, 1, 80.0, 0.5);
    one.fairness = None;
    let conclusions = conclusions(&Measurements::of([(String::new(), one)]));
    assert!(conclusions.findings.is_empty());
    let reason = "the run has no two groups of streams".to_owned();
    assert_eq!(conclusions.unanswered, [("fairness between round-trip times", vec![reason])]);
}
