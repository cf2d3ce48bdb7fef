//! Curves whose knee, or lack of one, is known.

use fastrand::Rng;
use proptest::prelude::*;
use wirecost_model::run::{Latency, Run};
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef};
use wirecost_model::warning::Entry;

use super::*;
use crate::statistics::bootstrap::normal;

/// Runs at each of the loads, with relative noise.
fn noisy(
    loads: &[f64],
    runs: usize,
    noise: f64,
    seed: u64,
    of: impl Fn(f64) -> f64,
) -> Vec<(f64, Vec<f64>)> {
    let mut random = Rng::with_seed(seed);
    let mut value = |load| of(load) * (noise * normal(&mut random)).exp();
    loads.iter().map(|&load| (load, (0..runs).map(|_| value(load)).collect())).collect()
}

fn tenths() -> Vec<f64> {
    (1..=10).map(|tenth| f64::from(tenth) * 0.1).collect()
}

/// Flat until the knee, then tenfold with each 0.1.
fn hockey_stick(knee: f64) -> impl Fn(f64) -> f64 {
    move |load| 300.0 * 10f64.powf((load - knee).max(0.0) / 0.1)
}

#[test]
fn the_knee_of_two_lines_is_where_they_meet() {
    let points = noisy(&tenths(), 1, 0.0, 1, hockey_stick(0.75));
    let found = fit(&points, Scale::Linear).unwrap();
    assert!((found.knee - 0.75).abs() < 0.005, "{found:?}");
    assert_eq!(found.interval, None, "each load was run once");
    for (value, expected) in found.values.into_iter().zip([300.0, 300.0, 300.0 * 10f64.powf(2.5)]) {
        assert!((value / expected - 1.0).abs() < 0.1, "{found:?}");
    }
}

#[test]
fn the_order_of_loads_and_their_unit_do_not_matter() {
    let mut points = noisy(&tenths(), 3, 0.05, 2, hockey_stick(0.62));
    let found = fit(&points, Scale::Linear).unwrap();
    points.reverse();
    assert_eq!(fit(&points, Scale::Linear).unwrap(), found);
    // Bits per second, of a link of 100 Gb/s.
    points.iter_mut().for_each(|(load, _)| *load *= 1e11);
    let scaled = fit(&points, Scale::Linear).unwrap();
    assert!((scaled.knee / 1e11 - found.knee).abs() < 1e-6, "{scaled:?} {found:?}");
}

#[test]
fn intervals_cover_the_knee() {
    let mut covered = 0;
    for seed in 0..8 {
        let points = noisy(&tenths(), 3, 0.1, seed, hockey_stick(0.62));
        let found = fit(&points, Scale::Linear).unwrap();
        let (low, high) = found.interval.unwrap();
        assert!(low <= found.knee && found.knee <= high && high - low < 0.15, "{found:?}");
        covered += usize::from(low <= 0.62 && 0.62 <= high);
    }
    // Of eight, 95% are between seven and eight.
    assert!(covered >= 6, "{covered}");
}

#[test]
fn a_queue_has_its_knee_where_waiting_takes_over() {
    // Waiting time of an M/M/1 queue: 1 / (1 - load).
    let loads = [0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
    let points = noisy(&loads, 3, 0.03, 3, |load| 100.0 / (1.0 - load));
    let found = fit(&points, Scale::Linear).unwrap();
    assert!((0.75..=0.95).contains(&found.knee), "{found:?}");
}

#[test]
fn connections_have_a_knee_on_a_logarithmic_scale() {
    // Closed loop: beyond saturation, latency is proportional to connections.
    let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    let points = noisy(&loads, 2, 0.02, 4, |connections| 50.0 * (connections / 20.0).max(1.0));
    let found = fit(&points, Scale::Logarithmic).unwrap();
    assert!((17.0..=23.0).contains(&found.knee), "{found:?}");
}

#[test]
fn curves_without_a_knee_have_none() {
    let flat = noisy(&tenths(), 3, 0.05, 5, |_| 300.0);
    let none = fit(&flat, Scale::Linear);
    assert!(matches!(none, Err(NoKnee::Flat(_) | NoKnee::Slows)), "{none:?}");
    let exponential = noisy(&tenths(), 3, 0.05, 6, |load| 300.0 * (3.0 * load).exp());
    let none = fit(&exponential, Scale::Linear);
    assert!(matches!(none, Err(NoKnee::Straight(p)) if p >= 0.01), "{none:?}");
    // Fast growth that slows down.
    let saturating = noisy(&tenths(), 3, 0.02, 7, |load| 300.0 * (1.0 - (-5.0 * load).exp()));
    assert_eq!(fit(&saturating, Scale::Linear), Err(NoKnee::Slows));
    // A bend that is certain and does not matter.
    let slight = noisy(&tenths(), 3, 0.001, 8, |load| 300.0 * (1.0 + (load - 0.5).max(0.0) * 0.2));
    assert!(matches!(fit(&slight, Scale::Linear), Err(NoKnee::Flat(_))));
}

/// The place is searched, so the test is milder than its level: this is what it comes to.
#[test]
fn few_straight_lines_are_said_to_have_a_knee() {
    let straight = |seed| noisy(&tenths(), 3, 0.1, seed, |load| 300.0 * (2.0 * load).exp());
    let found = (0..400).filter(|seed| fit(&straight(*seed), Scale::Linear).is_ok()).count();
    assert!(found <= 20, "{found} of 400");
}

#[test]
fn a_knee_needs_five_loads() {
    let points = noisy(&[0.2, 0.4, 0.6, 0.8], 3, 0.0, 9, hockey_stick(0.6));
    assert_eq!(fit(&points, Scale::Linear), Err(NoKnee::TooFewLoads));
    assert_eq!(fit(&[], Scale::Linear), Err(NoKnee::TooFewLoads));
    // Loads without runs do not count.
    let mut points = noisy(&tenths(), 1, 0.0, 9, hockey_stick(0.6));
    points.iter_mut().skip(4).for_each(|(_, values)| values.clear());
    assert_eq!(fit(&points, Scale::Linear), Err(NoKnee::TooFewLoads));
}

proptest! {
    /// Whatever the knee, unless too little of the curve is on one side of it.
    #[test]
    fn a_known_knee_is_found(knee in 0.3f64..0.85, seed in 0u64..1000) {
        let points = noisy(&tenths(), 1, 0.05, seed, hockey_stick(knee));
        let found = fit(&points, Scale::Linear).unwrap();
        prop_assert!((found.knee - knee).abs() < 0.03, "{found:?}");
    }
}

/// A study by offered load, with a saturating point.
fn by_load(p99: impl Fn(f64) -> f64) -> Vec<Run> {
    let mut runs = Vec::new();
    for (place, percent) in
        (0..).zip([None, Some(10.0), Some(30.0), Some(50.0), Some(70.0), Some(90.0)])
    {
        let load = percent.map_or("max".to_owned(), |percent: f64| format!("{percent}%"));
        for repeat in 1..=2 {
            let mut run = Run::empty("@rr", "epoll", "0.1.0", 0);
            run.status = Status::Ok;
            run.offered_bits_per_second = percent.map(|percent| percent * 1e6);
            let value = percent.map_or(1e6, &p99) * if repeat == 1 { 0.99 } else { 1.01 };
            run.latency_us = Some(Latency {
                p50: value / 2.0,
                p90: value,
                p99: value,
                p999: value,
                max: value,
                mean: value,
                trimmed_mean: None,
                count: 1000,
            });
            let axes = vec![Value::new("size", "64"), Value::new(LOAD, &load)];
            run.study = Some(StudyRunRef {
                study: "s".to_owned(),
                point: Point { axes, settings: Vec::new() },
                place,
                repeat,
                order: 0,
                search: None,
            });
            runs.push(run);
        }
    }
    runs
}

fn measured(runs: Vec<Run>) -> Measurements {
    Measurements::of(runs.into_iter().map(|run| (String::new(), run)))
}

#[test]
fn a_study_by_load_has_a_sentence_and_its_saturating_point_is_left_out() {
    let stick = |percent: f64| 400.0 * 10f64.powf((percent - 55.0).max(0.0) / 20.0);
    let found = conclusions(&measured(by_load(stick)));
    assert_eq!(found.unanswered, []);
    let [finding] = &found.findings[..] else { panic!("{found:?}") };
    assert!(finding.sentence.starts_with("P99 latency has its knee at 5"), "{finding:?}");
    assert!(finding.sentence.contains("at 10.0 Mb/s to "), "{finding:?}");
    assert!(finding.evidence[0].starts_with("10.0 Mb/s: 400 us, 30.0 Mb/s: 400 us"), "{finding:?}");
    assert!(!finding.evidence[0].contains("1.00 s"), "not offered: {finding:?}");
    let knee = finding.effect.as_ref().unwrap();
    assert!((52e6..58e6).contains(&knee.value), "{knee:?}");
}

/// A link of 10 Mb/s, with loads up to 150% of it. Beyond the link's rate, p99 is what the length of the run makes of it,
/// and over the logarithm the curve bends down there.
#[test]
fn loads_that_were_not_delivered_are_no_part_of_the_curve() {
    let stick = |percent: f64| 400.0 * 10f64.powf((percent - 55.0).max(0.0) / 20.0);
    let mut runs = by_load(stick);
    let overloaded = |run: &Run| run.offered_bits_per_second == Some(90e6);
    for run in runs.iter_mut().filter(|run| overloaded(run)) {
        run.warnings.push(Entry {
            code: "offered-load-not-reached".to_owned(),
            message: String::new(),
            brief: None,
        });
    }
    let found = conclusions(&measured(runs.clone()));
    assert_eq!(found.findings, []);
    let reason = "a knee needs at least 5 loads that were delivered".to_owned();
    assert_eq!(found.unanswered, [("the knee of latency", vec![reason])]);
    // With a fifth load that was delivered, the overloaded one neither moves the knee nor hides it.
    let mut fifth = runs.clone();
    for run in fifth.iter_mut().filter(|run| overloaded(run)) {
        run.warnings.clear();
        run.offered_bits_per_second = Some(80e6);
        let latency = run.latency_us.as_mut().unwrap();
        latency.p99 = stick(80.0);
        let study = run.study.as_mut().unwrap();
        study.place = 6;
        study.point.axes[1] = Value::new(LOAD, "80%");
    }
    fifth.retain(|run| run.offered_bits_per_second == Some(80e6));
    runs.extend(fifth);
    let found = conclusions(&measured(runs));
    let sentence = &found.findings[0].sentence;
    assert!(sentence.starts_with("P99 latency has its knee at 5"), "{sentence}");
    assert!(sentence.ends_with("at 80.0 Mb/s; 90.0 Mb/s was not delivered."), "{sentence}");
}

#[test]
fn a_study_without_a_knee_says_so_and_one_without_loads_says_why() {
    let found = conclusions(&measured(by_load(|_| 400.0)));
    let sentence = &found.findings[0].sentence;
    assert!(
        sentence.starts_with("P99 latency has no knee from 10.0 Mb/s to 90.0 Mb/s: "),
        "{sentence}"
    );
    let mut runs = by_load(|_| 400.0);
    for run in &mut runs {
        run.study.as_mut().unwrap().point.axes.pop();
    }
    let none = conclusions(&measured(runs));
    let reason = "the study has none of the axes load, rate, connections".to_owned();
    assert_eq!(none.unanswered, [("the knee of latency", vec![reason])]);
    assert_eq!(none.findings, []);
}
