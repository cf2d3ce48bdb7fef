//! How often a study finds the effect that its test relies on. A test of a finding is worth nothing where
//! the finding comes by luck: what these tests and the end-to-end tests look for is found in over 99% of
//! simulated repeats, each with noise of its own.

use fastrand::Rng;
use wirecost_analyze::findings::simulation::{Figures, study};
use wirecost_analyze::findings::{Finding, findings};
use wirecost_analyze::measured::Measurements;

use crate::seed::cases;

use super::{
    costs, engines, falling_throughput, full_receiver, grown_functions, http_get, of_kind,
    rising_latency, scalability, tcp_transmit,
};

/// Simulates the study again and again; `holds` says whether one has found what it has to.
fn is_found(study: impl Fn(&mut Rng) -> Measurements, holds: impl Fn(&[Finding]) -> bool) {
    let studies = cases(30, 100);
    let mut missed = Vec::new();
    for seed in 0..u64::from(studies) {
        let found = findings(&study(&mut Rng::with_seed(9000 + seed)));
        if !holds(&found) {
            missed.push((seed, found));
        }
    }
    let share = missed.len() as f64 / f64::from(studies);
    assert!(share < 0.01, "{} of {studies}, one of them {:#?}", missed.len(), missed[0]);
}

/// Whether there is one of this kind, which says this.
fn says(found: &[Finding], kind: &str, text: &str) -> bool {
    matches!(of_kind(found, kind)[..], [one] if one.sentence.contains(text))
}

#[test]
fn saturated_links_and_changing_costs_of_a_large_study() {
    is_found(
        |random| tcp_transmit(3, 0.005, random),
        |found| of_kind(found, "saturation").len() == 2 && of_kind(found, "cost").len() == 2,
    );
}

#[test]
fn full_cpus() {
    is_found(http_get, |found| {
        says(found, "saturation", "the CPUs of the sender (h1)")
            && says(found, "ends", "The CPUs of the sender (h1)")
    });
}

#[test]
fn a_law() {
    is_found(scalability, |found| says(found, "scalability", "it peaks at "));
}

#[test]
fn a_changing_cost() {
    is_found(costs, |found| says(found, "cost", "from size 1k to 64k"));
}

#[test]
fn a_changing_latency() {
    is_found(rising_latency, |found| says(found, "latency", "from 1 to 64 connections"));
}

#[test]
fn a_falling_throughput() {
    is_found(falling_throughput, |found| says(found, "throughput", "from 1 to 64 connections"));
}

#[test]
fn the_end_that_limits() {
    is_found(full_receiver, |found| says(found, "ends", "The CPUs of the receiver (h2)"));
}

#[test]
fn functions_that_grow() {
    is_found(grown_functions, |found| says(found, "functions", "lock_sock "));
}

#[test]
fn the_best_engine() {
    is_found(engines, |found| says(found, "choices", "With engine io_uring"));
}

/// The two studies of `cli/tests/end_to_end/findings.rs`: throughput grows with the connections up to
/// `most` bits a second, ten runs at each point, which differ by 2%.
fn limited(
    numbers: &[&str],
    (each, most): (f64, f64),
    figures: &Figures,
    random: &mut Rng,
) -> Measurements {
    study(&[("connections", numbers)], 10, |point| {
        let n: f64 = point[0].parse().unwrap();
        let bits_per_second = (each * n).min(most);
        let full = bits_per_second >= most;
        let noisy = Figures { bits_per_second, ..figures.clone() }.noisy(0.02, random);
        // No more goes over a link than it carries, and CPUs are no more than full.
        match figures.link {
            Some(_) => Figures { bits_per_second: noisy.bits_per_second.min(most), ..noisy },
            None if full => Figures { busy: [99.0, 97.0], ..noisy },
            None => noisy,
        }
    })
}

#[test]
fn the_full_link_of_the_end_to_end_test() {
    let slow = Figures { link: Some(100_000_000), busy: [10.0, 10.0], ..Figures::default() };
    let numbers = ["1", "4", "32", "64"];
    is_found(
        |random| limited(&numbers, (13e6, 96e6), &slow, random),
        |found| {
            says(found, "saturation", "; there the link of h1 (")
                && says(found, "saturation", "% of 100 Mb/s)")
                && !says(found, "saturation", "grows up to 4 ")
                && !says(found, "saturation", "CPU")
        },
    );
}

#[test]
fn the_full_cpus_of_the_end_to_end_test() {
    let figures = Figures { busy: [30.0, 30.0], ..Figures::default() };
    let numbers = ["1", "16", "512", "1024"];
    is_found(
        |random| limited(&numbers, (4e6, 600e6), &figures, random),
        |found| {
            says(found, "saturation", "; there the CPUs of ") && !says(found, "saturation", "link")
        },
    );
}

/// How many of 100 studies with runs that differ by 4% miss where a plateau begins, and in how many of
/// them the interval is wrong.
fn plateau(numbers: &[&str], repeats: u32) -> (u32, u32) {
    let (mut missed, mut wrong) = (0, 0);
    for seed in 0..100 {
        let mut random = Rng::with_seed(9000 + seed);
        let found = findings(&study(&[("connections", numbers)], repeats, |point| {
            let n: f64 = point[0].parse().unwrap();
            let bits_per_second = (13e6 * n).min(96e6);
            Figures { bits_per_second, ..Figures::default() }.noisy(0.04, &mut random)
        }));
        match of_kind(&found, "saturation")[..] {
            [one] if one.effect.is_some() => {
                let (low, high) = super::interval(one);
                wrong += u32::from(low >= 8.0 || high < 8.0);
            }
            _ => missed += 1,
        }
    }
    (missed, wrong)
}

/// Unimodal means halve the misses: without them 46 of these are missed.
#[test]
fn a_plateau_of_noisy_runs() {
    let (missed, wrong) = plateau(&["1", "2", "4", "8", "16", "32", "64"], 5);
    assert!(missed <= 30 && wrong <= 3, "{missed} {wrong}");
}
