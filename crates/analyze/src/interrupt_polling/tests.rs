//! Studies with known answers. The rates are those of figure 6-1 of "Eliminating Receive Livelock in an Interrupt-Driven Kernel":
//! the unmodified kernel forwards 4,700 packets a second at best, and nearly none of 12,000; the one that polls keeps its rate.

use wirecost_model::frames::{Frames, FramesDirection, FramesStage, Stage};
use wirecost_model::program::Side;
use wirecost_model::run::{HostRow, Latency};
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef};
use wirecost_model::warning::{Entry, NoEffect, Warning};

use super::*;
use crate::fixtures;

fn frames(sent: f64, read: f64) -> Frames {
    let stage = |(stage, rate)| FramesStage {
        stage,
        datagrams: None,
        packets: None,
        foreign: None,
        per_second: Some(rate),
        missing: None,
        places: Vec::new(),
        traced: None,
    };
    let stages = Stage::ALL.into_iter().zip([sent, sent, sent, read, read]).map(stage).collect();
    let directions = vec![FramesDirection { from: Side::Master, stages, intervals: Vec::new() }];
    Frames { directions, queues: Vec::new(), cpus: Vec::new(), uncounted: Vec::new(), reason: None }
}

#[derive(Default)]
struct Study {
    runs: Vec<Run>,
    place: u32,
}

impl Study {
    fn add(&mut self, receive: &str, offered: &str, each: impl IntoIterator<Item = Run>) {
        self.place += 1;
        let axes = vec![Value::new(RECEIVE, receive), Value::new(OFFERED, offered)];
        for (repeat, mut run) in (1..).zip(each) {
            run.status = Status::Ok;
            run.window = Some(fixtures::window(10.0));
            let peer = HostRow { role: Side::Peer, ..fixtures::host("h2") };
            run.hosts = vec![fixtures::host("h1"), peer];
            run.study = Some(StudyRunRef {
                study: "s".to_owned(),
                point: Point { axes: axes.clone(), settings: Vec::new() },
                place: self.place,
                repeat,
                order: repeat,
                search: None,
            });
            self.runs.push(run);
        }
    }

    /// Three runs of each rate, which differ by 1%.
    fn floods(&mut self, receive: &str, rates: &[(f64, f64)]) {
        for (sent, read) in rates {
            let run = |factor: f64| {
                let mut run = Run::empty("@udp-stream", "epoll", "0.1.0", 0);
                run.frames = Some(frames(*sent, read * factor));
                run
            };
            self.add(receive, &sent.to_string(), [0.99, 1.0, 1.01].map(run));
        }
    }

    fn light(&mut self, receive: &str, p50: f64) {
        let run = |factor: f64| {
            let mut run = Run::empty("@udp-rr", "epoll", "0.1.0", 0);
            let p50 = p50 * factor;
            run.latency_us = Some(Latency {
                p50,
                p90: p50,
                p99: 2.0 * p50,
                p999: p50,
                max: p50,
                mean: p50,
                trimmed_mean: None,
                count: 1000,
            });
            run
        };
        self.add(receive, LIGHT, [0.99, 1.0, 1.01].map(run));
    }

    fn conclusions(&self) -> Conclusions {
        conclusions(&Measurements::of(self.runs.iter().map(|run| (String::new(), run.clone()))))
    }

    fn sentences(&self, kind: &str) -> Vec<String> {
        let of_kind = self.conclusions().findings.into_iter().filter(|of| of.kind == kind);
        of_kind.map(|finding| finding.sentence).collect()
    }

    fn reasons(&self, question: &str) -> Vec<String> {
        let unanswered = self.conclusions().unanswered.into_iter();
        unanswered.filter(|(of, _)| *of == question).flat_map(|(_, reasons)| reasons).collect()
    }
}

/// Out of the order of the rates.
const UNMODIFIED: [(f64, f64); 5] =
    [(8000.0, 3000.0), (2000.0, 2000.0), (4750.0, 4700.0), (6000.0, 4000.0), (12000.0, 150.0)];
const POLLING: [(f64, f64); 4] =
    [(2000.0, 2000.0), (5000.0, 4990.0), (8000.0, 5000.0), (12000.0, 4980.0)];

#[test]
fn livelock_is_where_less_is_delivered_when_more_is_offered() {
    let mut study = Study::default();
    study.floods("interrupts", &UNMODIFIED);
    study.floods("polling", &POLLING);
    assert_eq!(
        study.sentences("receive-livelock"),
        [
            "With interrupts, delivered datagrams fall from 4,700 /s (4,750 /s offered) to 150 /s (12,000 /s offered), 3% of the \
             most: receive livelock.",
            "With polling, 4,980 /s are delivered when 12,000 /s are offered, 100% of the most: no receive livelock.",
        ]
    );
    assert_eq!(study.reasons("receive livelock"), [] as [&str; 0]);
}

#[test]
fn a_fall_of_less_than_a_tenth_is_no_livelock() {
    let of = |last: f64| {
        let mut study = Study::default();
        study.floods("interrupts", &[(5000.0, 5000.0), (12000.0, last)]);
        study.sentences("receive-livelock").concat()
    };
    assert!(of(4600.0).contains("92% of the most: no receive livelock"), "{}", of(4600.0));
    assert!(of(4300.0).contains("86% of the most: receive livelock"), "{}", of(4300.0));
}

/// Runs that differ as much as the rates do.
#[test]
fn a_fall_within_the_intervals_is_no_livelock() {
    let mut study = Study::default();
    for (offered, reads) in
        [(5000.0, [2000.0, 5000.0, 3500.0]), (12000.0, [1500.0, 4500.0, 3000.0])]
    {
        let runs = reads.map(|read| {
            let mut run = Run::empty("@udp-stream", "epoll", "0.1.0", 0);
            run.frames = Some(frames(offered, read));
            run
        });
        study.add("interrupts", &offered.to_string(), runs);
    }
    assert!(study.sentences("receive-livelock").concat().ends_with("no receive livelock."));
}

#[test]
fn nothing_is_said_of_a_receiver_that_was_not_overloaded() {
    let mut study = Study::default();
    study.floods("interrupts", &[(1000.0, 1000.0), (2000.0, 1990.0)]);
    study.floods("polling", &[(9000.0, 4000.0)]);
    assert_eq!(study.sentences("receive-livelock"), [] as [&str; 0]);
    assert_eq!(
        study.reasons("receive livelock"),
        [
            "interrupts: the receiver took at least 95% of all offered rates, up to 2,000 /s: offer more",
            "polling: fewer than two offered rates were measured",
        ]
    );
}

#[test]
fn nothing_is_said_of_livelock_where_the_sender_takes_the_receivers_cpu() {
    let mut study = Study::default();
    study.floods("interrupts", &UNMODIFIED);
    for run in &mut study.runs {
        run.hosts[0].shares_machine_with = vec!["h2".to_owned()];
    }
    assert_eq!(study.sentences("receive-livelock"), [] as [&str; 0]);
    assert!(study.reasons("receive livelock").concat().contains("the hosts share CPUs"));
}

fn warn(run: &mut Run, warning: impl Into<Warning>) {
    run.warnings.push(Entry::from(&warning.into()));
}

fn no_effect(host: &str) -> NoEffect {
    let reason = "no packet arrived through a device that can be polled".to_owned();
    NoEffect { host: host.to_owned(), option: "busy_poll".to_owned(), reason }
}

#[test]
fn nothing_is_said_where_something_else_took_the_cpu() {
    let mut study = Study::default();
    study.light("interrupts", 50.0);
    study.light("polling", 30.0);
    study.floods("interrupts", &UNMODIFIED);
    for run in [5, 20] {
        study.runs[run].warnings.push(Entry {
            code: "foreign-cpu".to_owned(),
            ..Entry::from(&Warning::from(no_effect("h1")))
        });
    }
    assert_eq!(study.conclusions().findings, []);
    let reason = "interrupts: other programs used CPU time";
    assert_eq!(study.reasons("receive livelock")[0], reason);
    let reasons = study.reasons("latency at light load").concat();
    assert!(reasons.contains("polling: other programs used CPU time"), "{reasons}");
}

/// The sender was the limit: what was offered hardly differs.
#[test]
fn a_fall_without_an_overload_is_no_livelock() {
    let mut study = Study::default();
    study.floods("interrupts", &[(10_000.0, 8000.0), (11_000.0, 4000.0)]);
    assert_eq!(study.sentences("receive-livelock"), [] as [&str; 0]);
    assert!(study.reasons("receive livelock").concat().contains("differ too little"));
}

/// Who sends datagrams receives none, so there is nothing to poll for.
#[test]
fn polling_has_to_have_an_effect_only_where_datagrams_are_received() {
    let of = |host: &str| {
        let mut study = Study::default();
        study.floods("busy polling", &POLLING);
        study.runs.iter_mut().for_each(|run| warn(run, no_effect(host)));
        study.sentences("receive-livelock").len()
    };
    assert_eq!((of("h1"), of("h2")), (1, 0));
}

#[test]
fn latency_at_light_load_is_compared_with_the_first_way() {
    let mut study = Study::default();
    study.light("interrupts", 50.0);
    study.light("deferred", 90.0);
    study.light("busy polling", 30.0);
    study.light("threads", 51.0);
    assert_eq!(
        study.sentences("light-load-latency"),
        [
            "At light load, busy polling lowers the median latency below that with interrupts, deferred raises it: busy polling \
          30.0 us (p99 60.0 us), interrupts 50.0 us (p99 100 us), threads 51.0 us (p99 102 us), deferred 90.0 us (p99 180 us)."
        ]
    );
    let mut same = Study::default();
    same.light("interrupts", 50.0);
    same.light("threads", 51.0);
    let said = same.sentences("light-load-latency").concat();
    assert!(said.contains("is not distinguishable from that with interrupts"), "{said}");
}

#[test]
fn a_way_that_had_no_effect_is_not_compared() {
    let mut study = Study::default();
    study.light("interrupts", 50.0);
    study.light("busy polling", 30.0);
    for run in &mut study.runs[3..] {
        warn(run, no_effect("h2"));
    }
    assert_eq!(study.sentences("light-load-latency"), [] as [&str; 0]);
    let reasons = study.reasons("latency at light load").concat();
    assert!(reasons.contains("busy polling: busy_poll had no effect on h2"), "{reasons}");
    // Without the way that the others are compared with, nothing is said.
    let mut without = Study::default();
    without.light("busy polling", 30.0);
    without.floods("interrupts", &UNMODIFIED);
    assert_eq!(without.sentences("light-load-latency"), [] as [&str; 0]);
}

#[test]
fn other_studies_have_no_such_sentences() {
    let run = Run::empty("@stream", "epoll", "0.1.0", 0);
    let measured = Measurements::of([(String::new(), run)]);
    assert_eq!(conclusions(&measured), Conclusions::default());
}
