use fastrand::Rng;
use wirecost_model::study::Value;

use super::*;
use crate::findings::findings;
use crate::findings::simulation::{Figures, study};

/// Two engines at two sizes; the second is so many times as fast as the first.
fn engines(times: f64, seed: u64) -> Measurements {
    let mut random = Rng::with_seed(seed);
    let axes = [("engine", &["epoll", "io_uring"][..]), ("size", &["1k", "64k"][..])];
    study(&axes, 5, |point| {
        let faster = if point[0] == "io_uring" { times } else { 1.0 };
        let larger = if point[1] == "64k" { 4.0 } else { 1.0 };
        let bits_per_second = 1e9 * faster * larger;
        let figures = Figures { bits_per_second, cycles: [1000.0, 1000.0], ..Figures::default() };
        figures.noisy(0.01, &mut random)
    })
}

/// The finding about the throughput of engines.
fn of_engine(found: &[Finding]) -> Finding {
    let is_it = |of: &&Finding| {
        of.axis.as_deref() == Some("engine") && of.metric.as_deref() == Some("throughput")
    };
    found.iter().find(is_it).cloned().unwrap()
}

fn verdict_of(there: f64, here: f64) -> Replayed {
    let there = of_engine(&findings(&engines(there, 1)));
    let here = engines(here, 2);
    replayed(&[there], &findings(&here), &here).remove(0)
}

#[test]
fn a_ratio_is_measured_again() {
    for (there, here, wanted) in [
        (1.5, 1.5, Verdict::Holds),
        (1.5, 1.2, Verdict::OtherSize),
        (1.5, 0.8, Verdict::Contradicted),
        (0.5, 0.5, Verdict::Holds),
        (0.5, 2.0, Verdict::Contradicted),
    ] {
        let Replayed { verdict, here: Here::Effect(effect), finding } = verdict_of(there, here)
        else {
            panic!("{there} {here}")
        };
        assert_eq!(verdict, wanted, "{there} {here}: {effect:?}");
        // The same value over the same other, whatever is the faster here.
        let (value, other) = finding.effect.unwrap().between.unwrap();
        let faster = if there > 1.0 { "io_uring" } else { "epoll" };
        assert_eq!(value, faster);
        assert_ne!(value, other);
        let expected = if value == "io_uring" { here } else { 1.0 / here };
        assert!((effect.value / expected - 1.0).abs() < 0.03, "{effect:?}");
    }
    let none = verdict_of(1.5, 1.0);
    let Here::Effect(effect) = &none.here else { panic!("{none:?}") };
    let (low, high) = effect.interval.unwrap();
    // It says how small an effect would not have been seen.
    assert!(none.verdict == Verdict::NotShown && low < 1.0 && high < 1.05, "{effect:?}");
}

#[test]
fn what_was_not_run_is_not_judged() {
    let there = of_engine(&findings(&engines(1.5, 1)));
    let mut at_one_size = there.clone();
    at_one_size.at = vec![Value::new("size", "8k")];
    let mut other_axis = there.clone();
    other_axis.axis = Some("tune.mtu".to_owned());
    let mut other_value = there.clone();
    if let Some(effect) = &mut other_value.effect {
        effect.between = Some(("threads".to_owned(), "epoll".to_owned()));
    }
    let mut other_metric = there.clone();
    other_metric.metric = Some("nonsense".to_owned());
    let here = engines(1.5, 2);
    let all = [at_one_size, other_axis, other_value, other_metric];
    let reasons = replayed(&all, &findings(&here), &here).into_iter().map(|of| {
        assert_eq!(of.verdict, Verdict::NotTested, "{of:?}");
        match of.here {
            Here::Nothing(reason) => reason,
            here => panic!("{here:?}"),
        }
    });
    let wanted = [
        "size=8k was not run",
        "tune.mtu was not varied",
        "engine=threads was not run",
        "there is no metric nonsense",
    ];
    assert_eq!(reasons.collect::<Vec<_>>(), wanted);

    // Single runs of two points say nothing.
    let mut once = engines(1.5, 3);
    once.points.retain(|point| point.point.get("size") == Some("1k"));
    once.points.iter_mut().for_each(|point| point.runs.truncate(1));
    let there = of_engine(&findings(&engines(1.5, 1)));
    assert_eq!(replayed(&[there], &[], &once)[0].verdict, Verdict::NotTested);
}

#[test]
fn findings_without_a_ratio_are_looked_for() {
    let here = engines(1.5, 2);
    let found = findings(&here);
    let mut knee = of_engine(&found);
    knee.kind = "saturation".to_owned();
    knee.effect = Some(Effect {
        name: "connections".to_owned(),
        unit: Unit::Count,
        value: 32.0,
        interval: Some((16.0, 64.0)),
        between: None,
    });
    let size = |value: f64| {
        let mut other = knee.clone();
        other.effect.as_mut().unwrap().value = value;
        other.effect.as_mut().unwrap().interval = Some((value / 1.5, value * 1.5));
        replayed(std::slice::from_ref(&knee), &[other], &here)[0].verdict
    };
    assert_eq!(size(60.0), Verdict::Holds);
    assert_eq!(size(500.0), Verdict::OtherSize);
    assert_eq!(replayed(&[knee], &found, &here)[0].verdict, Verdict::NotShown);

    let mut unchanged = of_engine(&found);
    unchanged.kind = UNCHANGED.to_owned();
    unchanged.metric = None;
    unchanged.effect = None;
    let judged = |found: &[Finding]| replayed(&[unchanged.clone()], found, &here)[0].verdict;
    assert_eq!(judged(&found), Verdict::Contradicted);
    assert_eq!(judged(&[unchanged.clone()]), Verdict::Holds);
    assert_eq!(judged(&[]), Verdict::NotShown);

    // What the page's runs say nothing of is neither shown nor contradicted here; that of these runs is a reason.
    let untested = Finding { kind: UNTESTED.to_owned(), axis: None, ..unchanged.clone() };
    let of_page = std::slice::from_ref(&untested);
    for here_found in [&found[..], of_page, &[]] {
        let [replayed] = &replayed(of_page, here_found, &here)[..] else { panic!() };
        assert_eq!(replayed.verdict, Verdict::NotTested, "{replayed:?}");
    }
    let shown = replayed(&[unchanged.clone()], of_page, &here);
    let Here::Nothing(reason) = &shown[0].here else { panic!("{shown:?}") };
    assert_eq!(*reason, untested.sentence);

    assert!(new(&found, &found).is_empty());
    assert_eq!(new(&[], &found).len(), found.len());
}

/// Findings about functions and hosts differ in their words only.
#[test]
fn findings_of_several_things_are_told_apart_by_their_words() {
    let here = engines(1.5, 2);
    let of = |name: &str, share: f64| {
        let mut finding = of_engine(&findings(&here));
        finding.kind = "functions".to_owned();
        finding.sentence = format!("The share of {name} grows to {share}% (at 1.2 Gb/s).");
        let effect = finding.effect.as_mut().unwrap();
        (effect.value, effect.interval, effect.between) = (share, Some((share, share + 1.0)), None);
        finding
    };
    let there = [of("copy_to_user", 5.0), of("tcp_ack", 9.0)];
    let found = [of("tcp_ack", 9.5), of("skb_release_data", 5.5)];
    let verdicts: Vec<Verdict> =
        replayed(&there, &found, &here).iter().map(|of| of.verdict).collect();
    assert_eq!(verdicts, [Verdict::NotShown, Verdict::Holds]);
    assert_eq!(new(&there, &found), [&found[1]]);
    // One alone on both sides is the same, whatever its words.
    let one = replayed(&there[..1], &found[1..], &here);
    assert_eq!(one[0].verdict, Verdict::Holds);
}
