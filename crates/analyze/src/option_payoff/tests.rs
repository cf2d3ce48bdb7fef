//! Studies with known answers.

use wirecost_model::run::{Datagrams, Latency, Run};
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef, Value};
use wirecost_model::warning::Entry;

use super::*;
use crate::fixtures;

const BASES: [(&str, &str); 3] = [("option", "base"), ("gro", "on"), ("tune.mtu", "1500")];
const SIZES: [&str; 4] = ["64", "1k", "8k", "64k"];

/// Each repeat is slower than the one before, which pairs have in common; and each run has an error of its own, which is 0 over
/// three repeats.
#[derive(Default)]
struct Study {
    runs: Vec<Run>,
    place: u32,
}

impl Study {
    /// A point with this cost and latency, in `repeats` runs.
    fn add(
        &mut self,
        across: [&str; 3],
        changed: &[(&str, &str)],
        cost: f64,
        repeats: u32,
    ) -> &mut [Run] {
        self.place += 1;
        let [connections, traffic, size] = across;
        let across = [
            ("transport", "tcp"),
            ("connections", connections),
            ("traffic", traffic),
            ("size", size),
        ];
        let options = BASES.map(|(axis, base)| {
            let changed = changed.iter().find(|(name, _)| *name == axis);
            (axis, changed.map_or(base, |(_, value)| *value))
        });
        let axes = across.into_iter().chain(options).map(|(name, value)| Value::new(name, value));
        let point = Point { axes: axes.collect(), settings: Vec::new() };
        let from = self.runs.len();
        for repeat in 1..=repeats {
            let slow = 1.0 + 0.1 * f64::from(repeat);
            let times = if changed.is_empty() { 1.0 } else { 2.0 };
            let own = (0.002 * times * (f64::from(repeat) - 2.0)).exp();
            let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
            run.status = Status::Ok;
            run.throughput = Some(fixtures::throughput(1e9 / own, 1 << 30));
            run.window = Some(fixtures::window(10.0));
            run.hosts = vec![fixtures::host("h1")];
            run.machines = vec![fixtures::machine("h1", cost * slow * own)];
            if traffic != "stream" {
                run.throughput.as_mut().unwrap().rx_bytes = 1 << 30;
                let us = cost * slow * own;
                run.latency_us = Some(Latency {
                    trimmed_mean: None,
                    p50: us,
                    p90: us,
                    p99: 2.0 * us,
                    p999: us,
                    max: us,
                    mean: us,
                    count: 1000,
                });
            }
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

    /// A base and one option at each size, whose cost is the base times a factor.
    fn option(&mut self, across: [&str; 2], option: (&str, &str), factors: &[f64]) {
        let [connections, traffic] = across;
        for (size, factor) in SIZES.iter().zip(factors) {
            let across = [connections, traffic, *size];
            let has_base = self.runs.iter().any(|run| {
                let axes = &run.study.as_ref().unwrap().point.axes;
                axes[1].value == connections && axes[2].value == traffic && axes[3].value == *size
            });
            if !has_base {
                self.add(across, &[], 1000.0, 3);
            }
            self.add(across, &[option], 1000.0 * factor, 3);
        }
    }

    fn measured(&self) -> Measurements {
        Measurements::of(self.runs.iter().map(|run| (String::new(), run.clone())))
    }

    fn sentences(&self, kind: &str) -> Vec<String> {
        let findings = conclusions(&self.measured()).findings.into_iter();
        findings.filter(|of| of.kind == kind).map(|finding| finding.sentence).collect()
    }
}

/// Numbers of an interval change with the method; what is around them does not.
fn without_intervals(sentence: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0;
    for letter in sentence.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            letter if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain.replace("  ", " ").replace(" ,", ",").replace(" ;", ";").replace(" .", ".")
}

#[test]
fn datagrams_that_do_not_arrive_are_told() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "udp-gso"), &[20.0, 1.0, 1.0, 1.0]);
    for run in &mut study.runs {
        let axes = &run.study.as_ref().unwrap().point.axes;
        let is_on = axes.iter().any(|of| of.value == "udp-gso");
        let received = match axes[3].value.as_str() {
            "64" if is_on => 100,
            "64" => 99_000,
            // Below what is told.
            _ => 96_000,
        };
        run.datagrams = Some(Datagrams {
            sent: 100_000,
            received,
            lost: 0,
            late: 0,
            reordered: None,
            duplicated: None,
            loss_bursts: None,
            jitter_us: None,
            one_way_us: None,
            after_ramp: None,
        });
    }
    let told = "; of the datagrams, over 99.5% at 64 (1.0% without the option) did not arrive.";
    let sentences = study.sentences("payoff");
    assert!(sentences[0].ends_with(told), "{sentences:?}");
    assert_eq!(sentences.iter().filter(|of| of.contains("did not arrive")).count(), 1);
}

#[test]
fn an_option_that_pays_for_large_sizes_has_its_break_even() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "zero-copy"), &[1.5, 1.3, 1.02, 0.7]);
    let measured = study.measured();
    let [payoff] = &payoffs(&measured)[..] else { panic!() };
    let BreakEven::At(crossing) = payoff.break_even() else { panic!("{:?}", payoff.break_even()) };
    // Between 8 KiB (+2%) and 64 KiB (-36%), on the logarithm: a few percent of the way.
    assert!((8192.0..11_000.0).contains(&crossing.size), "{crossing:?}");
    assert!(crossing.interval.0 < crossing.size && crossing.size < crossing.interval.1);
    assert!(crossing.saves_above && crossing.interval.1 < 12_000.0, "{crossing:?}");
    let sentences = study.sentences("payoff");
    let plain = without_intervals(&sentences[0]);
    let start = "zero-copy saves 30% of cycles/KByte at 64k, and costs 50% more at 64";
    assert!(plain.starts_with(start), "{plain}");
    assert!(
        plain.contains("; break-even at ") && plain.ends_with(": larger sizes save."),
        "{plain}"
    );
    assert!(sentences[0].contains("30% ("), "{sentences:?}");
}

#[test]
fn pairs_have_intervals_that_drift_does_not_widen() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "zero-copy"), &[0.9, 0.9, 0.9, 0.9]);
    let measured = study.measured();
    let payoffs = payoffs(&measured);
    // Repeats differ by 10%, which a comparison of means would have in its interval.
    for of in payoffs[0].of(Figure::Cost) {
        let of = of.as_ref().unwrap();
        let (low, high) = of.interval().unwrap();
        assert!(low <= 0.9 && 0.9 <= high && high / low < 1.03, "{of:?}");
        assert_eq!(of.verdict(), Verdict::Saves);
    }
    assert_eq!(payoffs[0].break_even(), BreakEven::BelowSmallest);
    assert!(study.sentences("payoff")[0].ends_with("; the break-even is below the smallest size."));
}

#[test]
fn what_is_switched_off_is_compared_with_the_base_where_it_is_on() {
    let mut study = Study::default();
    // Without segmentation by the device, all costs twice as much: with it, half.
    study.option(["1", "stream"], ("option", "tso off"), &[2.0, 2.0, 2.0, 2.0]);
    study.option(["1", "stream"], ("gro", "off"), &[1.9, 1.9, 1.9, 2.5]);
    study.option(["1", "stream"], ("tune.mtu", "9000"), &[1.0, 1.0, 1.0, 0.8]);
    let measured = study.measured();
    let payoffs = payoffs(&measured);
    let names: Vec<&str> = payoffs.iter().map(|of| of.curve.option.as_str()).collect();
    assert_eq!(names, ["tso", "gro", "tune.mtu=9000"]);
    let ratio = payoffs[0].of(Figure::Cost)[0].as_ref().unwrap().ratio;
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    assert!(
        study.sentences("payoff")[2].contains("no detectable difference at 64, 1k and 8k (below ")
    );
    let best = without_intervals(&study.sentences("largest-saving")[0]);
    assert_eq!(
        best,
        "The option that saves most cycles/KByte is tso at 64: 50%; tso at 1k: 50%; tso at 8k: 50%; gro at 64k: 60%."
    );
}

#[test]
fn each_number_of_connections_has_its_own_answer() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "zero-copy"), &[0.8, 0.8, 0.8, 0.8]);
    study.option(["16", "stream"], ("option", "zero-copy"), &[1.2, 1.2, 1.2, 1.2]);
    let sentences = study.sentences("payoff");
    assert!(sentences[0].starts_with("With 1 connection, zero-copy saves 20%"), "{sentences:?}");
    assert!(sentences[1].starts_with("With 16 connections, zero-copy costs 20%"), "{sentences:?}");
    assert!(sentences[1].ends_with("; the break-even is above the largest size."), "{sentences:?}");
}

#[test]
fn latency_is_that_of_round_trips() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "zero-copy"), &[0.8, 0.8, 0.8, 0.8]);
    study.option(["1", "round trips"], ("option", "zero-copy"), &[1.0, 1.0, 1.0, 1.25]);
    let latency = study.sentences("latency-cost");
    let [sentence] = &latency[..] else { panic!("{latency:?}") };
    let plain = without_intervals(sentence);
    assert_eq!(
        plain,
        "zero-copy, in round trips, raises p50 by 25% at 64k, and raises p99 by 25% at 64k; no detectable difference in p50 \
         at 64, 1k and 8k, and in p99 at 64, 1k and 8k."
    );
    // Round trips have no sentence about what streams cost.
    assert_eq!(study.sentences("payoff").len(), 1);
}

/// What puts several datagrams in one call has no round trips of one.
#[test]
fn bursts_have_sentences_and_corrections_of_their_own() {
    let mut study = Study::default();
    study.option(["1", "round trips"], ("option", "io_uring"), &[1.0, 1.0, 1.0, 1.25]);
    let p_values = |study: &Study| -> Vec<Option<f64>> {
        let measured = study.measured();
        let payoffs = payoffs(&measured);
        let of = payoffs.iter().find(|of| of.curve.option == "io_uring").unwrap();
        of.of(Figure::P99).iter().map(|of| of.as_ref().unwrap().p_value).collect()
    };
    let alone = p_values(&study);
    study.option(["1", "bursts"], ("option", "batch"), &[0.5, 1.0, 1.0, 1.0]);
    study.option(["1", "bursts"], ("gro", "off"), &[1.0; 4]);
    assert_eq!(p_values(&study), alone);
    let sentences = study.sentences("latency-cost");
    let [_, first, second] = &sentences[..] else { panic!("{sentences:?}") };
    let plain = without_intervals(first);
    assert!(plain.starts_with("batch, in bursts, lowers p50 by 50% at 64"), "{plain}");
    let start = "No detectable difference in p50 and p99 of bursts with gro (p50 below ";
    assert!(second.starts_with(start), "{second}");
    let measured = study.measured();
    let bursts = payoffs(&measured).into_iter().filter(|of| of.curve.traffic() == Some(BURSTS));
    assert_eq!(bursts.map(|of| of.curve.option).collect::<Vec<_>>(), ["batch", "gro"]);
}

#[test]
fn where_nothing_can_be_seen_the_bound_is_told() {
    let mut study = Study::default();
    study.option(["1", "round trips"], ("option", "zero-copy"), &[1.0; 4]);
    study.option(["1", "stream"], ("option", "zero-copy"), &[1.0; 4]);
    study.option(["1", "stream"], ("gro", "off"), &[1.0; 4]);
    study.option(["1", "stream"], ("option", "tso off"), &[2.0; 4]);
    let sentences = study.sentences("payoff");
    let start = "No detectable difference in cycles/KByte with zero-copy (below ";
    assert_eq!(sentences.len(), 2, "{sentences:?}");
    assert!(
        sentences[1].starts_with(start) && sentences[1].contains("and gro (below "),
        "{sentences:?}"
    );
    let measured = study.measured();
    for payoff in payoffs(&measured).iter().filter(|of| of.curve.option != "tso") {
        assert_eq!(payoff.break_even(), BreakEven::NotResolved);
    }
    let latency = study.sentences("latency-cost");
    let start = "No detectable difference in p50 and p99 of round trips with zero-copy (p50 below ";
    assert!(latency[0].starts_with(start), "{latency:?}");
}

#[test]
fn points_that_were_run_once_have_a_ratio_and_no_sentence() {
    let mut study = Study::default();
    study.add(["1", "stream", "64"], &[], 1000.0, 1);
    study.add(["1", "stream", "64"], &[("option", "zero-copy")], 1200.0, 1);
    let measured = study.measured();
    let payoffs = payoffs(&measured);
    let of = payoffs[0].of(Figure::Cost)[0].as_ref().unwrap();
    assert!((of.ratio - 1.2).abs() < 0.02 && of.effect.is_none(), "{of:?}");
    let conclusions = conclusions(&measured);
    assert!(conclusions.findings.is_empty(), "{conclusions:?}");
    let [(question, reasons)] = &conclusions.unanswered[..] else { panic!("{conclusions:?}") };
    assert_eq!(*question, "what an option saves");
    assert_eq!(reasons, &["zero-copy: fewer than two valid pairs of runs; add --repeat 3"]);
}

#[test]
fn runs_without_a_partner_in_their_repeat_do_not_count() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "zero-copy"), &[0.8; 4]);
    for run in &mut study.runs {
        let of = run.study.as_ref().unwrap();
        // The base fails in the first repeat, the option in the others.
        let is_base = of.point.axes[4].value == "base";
        if is_base == (of.repeat == 1) {
            run.status = Status::Invalid;
        }
    }
    let measured = study.measured();
    let why = "no repeat has a valid run with the option and one without it";
    assert_eq!(payoffs(&measured)[0].of(Figure::Cost)[0], Err(why.to_owned()));
    assert_eq!(conclusions(&Measurements::default()), Conclusions::default());
}

#[test]
fn warnings_that_only_the_option_has_are_evidence() {
    let mut study = Study::default();
    study.option(["1", "stream"], ("option", "zero-copy"), &[0.8; 4]);
    for run in &mut study.runs {
        let is_on = run.study.as_ref().unwrap().point.axes[4].value == "zero-copy";
        let entry = |code: &str, brief: &str| Entry {
            code: code.to_owned(),
            message: String::new(),
            brief: Some(brief.to_owned()),
        };
        run.warnings.push(entry("foreign-cpu", "others"));
        if is_on {
            run.warnings.push(entry("copied", "the kernel copied"));
        }
    }
    let findings = conclusions(&study.measured()).findings;
    let payoff = findings.iter().find(|of| of.kind == "payoff").unwrap();
    assert_eq!(payoff.evidence, ["the kernel copied"]);
    let effect = payoff.effect.as_ref().unwrap();
    assert!((effect.value - 0.8).abs() < 0.01 && payoff.p_value.unwrap() < 0.05, "{payoff:?}");
}
