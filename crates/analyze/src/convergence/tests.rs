//! Series with known answers.

use super::*;
use crate::statistics::bootstrap::normal;
use ConvergenceState::{Converged, Idle, TooShort, Trend, Unsteady};

/// A rate for each second.
fn series(seconds: usize, rate: impl FnMut(f64) -> f64) -> Convergence {
    judge((0..seconds).map(|second| second as f64).map(rate).collect(), 1.0)
}

fn answer(convergence: &Convergence) -> (ConvergenceState, Option<f64>) {
    (convergence.state, convergence.seconds)
}

#[test]
fn a_step_converges_when_it_comes_however_long_the_run() {
    for seconds in [20, 60, 600] {
        let step = series(seconds, |t| if t < 5.0 { 1e6 } else { 1e9 });
        assert_eq!(answer(&step), (Converged, Some(5.0)), "{seconds}");
        assert_eq!(step.steady_bits_per_second, Some(1e9));
        assert_eq!(step.steady_share, Some(1.0));
    }
    assert_eq!(answer(&series(20, |_| 1e9)), (Converged, Some(0.0)));
    // A step beyond the middle is none that the steady mean tells.
    assert_eq!(series(20, |t| if t < 14.0 { 1e6 } else { 1e9 }).seconds, None);
}

#[test]
fn the_unit_is_the_length_of_a_window() {
    let rates = (0..20).map(|window| if window < 3 { 1.0 } else { 5.0 }).collect();
    assert_eq!(answer(&judge(rates, 4.0)), (Converged, Some(12.0)));
}

#[test]
fn an_exponential_approach_converges_at_a_tenth_of_its_distance() {
    // 1 - exp(-t / 5) reaches 0.9 at 5 ln 10 = 11.5 s.
    let approach = |constant: f64| series(60, move |t| 1e9 * (1.0 - (-t / constant).exp()));
    assert_eq!(answer(&approach(5.0)), (Converged, Some(12.0)));
    // With 40 s it rises from 0.53 to 0.77 in the last half.
    let slow = approach(40.0);
    assert_eq!(slow.state, Trend);
    assert!((0.2..0.5).contains(&slow.change.unwrap()), "{slow:?}");
    assert!(slow.p_value.unwrap() < 1e-6 && slow.seconds.is_none());
}

#[test]
fn a_saw_tooth_converges_if_it_is_flat_enough() {
    // From a least to 1 in 8 s: the mean is half-way.
    let saw_tooth = |least: f64| {
        series(80, move |t| {
            let slow_start = if t < 4.0 { 0.1 } else { 1.0 };
            slow_start * 1e9 * (least + (1.0 - least) * (t % 8.0) / 7.0)
        })
    };
    assert_eq!(answer(&saw_tooth(0.85)), (Converged, Some(4.0)));
    // Reno's halves: most of it is farther than 10% from the mean, but it has no trend.
    assert_eq!(answer(&saw_tooth(0.5)), (Unsteady, None));
}

#[test]
fn a_drift_in_the_last_half_is_no_convergence() {
    let drift = |per_second: f64| series(60, move |t| 1e9 * (1.0 + per_second * (t - 45.0)));
    assert_eq!(drift(-0.01).state, Trend);
    assert!((drift(-0.01).change.unwrap() + 0.3).abs() < 0.02);
    // Less than what "near" means is not seen.
    assert_eq!(drift(0.002).state, Converged);
    assert!(drift(0.002).p_value.unwrap() < 1e-6);
}

#[test]
fn a_short_outage_does_not_undo_convergence_and_a_long_one_does() {
    let outage = |length: f64| {
        series(60, move |t| if t < 3.0 || (40.0..40.0 + length).contains(&t) { 0.0 } else { 1e9 })
    };
    // Of 30 windows two lower the mean by 7%.
    assert_eq!(answer(&outage(2.0)), (Converged, Some(3.0)));
    assert_eq!(answer(&outage(6.0)), (Unsteady, None));
}

#[test]
fn noise_within_the_bound_converges_and_beyond_it_does_not() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut noise = |spread: f64, seconds: usize| {
        let start = seconds as f64 / 10.0;
        series(seconds, |t| {
            let level = if t < start { 0.3 } else { 1.0 };
            1e9 * level * (1.0 + spread * normal(&mut random)).max(0.0)
        })
    };
    for _ in 0..200 {
        assert_eq!(answer(&noise(0.02, 60)), (Converged, Some(6.0)));
        assert_eq!(noise(0.5, 60).seconds, None);
    }
}

#[test]
fn too_little_says_nothing() {
    let short = series(LEAST - 1, |_| 1e9);
    assert_eq!(answer(&short), (TooShort, None));
    assert_eq!(
        describe(&short),
        "too short: 9 windows of 1.00 s, and 10 are needed: use at least 10.0 s"
    );
    assert_eq!(series(LEAST, |_| 1e9).state, Converged);
    assert_eq!(answer(&series(20, |t| if t < 5.0 { 1e9 } else { 0.0 })), (Idle, None));
}

#[test]
fn days_are_judged_at_once() {
    let days = series(400_000, |t| if t < 100.0 { 1.0 } else { 1e9 });
    assert_eq!(answer(&days), (Converged, Some(100.0)));
}

#[test]
fn what_lasts_must_leave_enough_after_it() {
    let first = |text: &str| first_lasting(&text.bytes().map(|b| b == b'+').collect::<Vec<_>>());
    assert_eq!(first("++++++++++"), Some(0));
    assert_eq!(first("--++++++++"), Some(2));
    // One of eight is more than a tenth.
    assert_eq!(first("--+++-++++"), None);
    assert_eq!(first("--+++-+++++"), Some(6));
    assert_eq!(first("------++++"), None);
    assert_eq!(first(""), None);
}
