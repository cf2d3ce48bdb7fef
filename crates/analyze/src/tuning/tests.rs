//! Searches of surfaces without noise, whose outcome is known exactly, and with failures.

use std::convert::Infallible;

use super::*;

fn tuning(levels: &[usize], bounds: Vec<Bound>) -> Tuning {
    let mut of = Tuning { levels: levels.to_vec(), maximize: true, bounds, budget: 0, seed: 3 };
    of.budget = of.usual();
    of
}

/// The outcome where a run measures what `of` says: the objective, and the metric of each bound.
fn outcome(tuning: &Tuning, of: impl Fn(&[usize]) -> (f64, Vec<f64>)) -> Outcome {
    let found = search::<Infallible>(tuning, &mut |ask| {
        let (objective, bounded) = of(ask.levels);
        Ok(Ok(Measured { objective, bounded }))
    });
    found.unwrap().unwrap()
}

fn times(levels: &[usize], effects: &[f64]) -> f64 {
    levels.iter().zip(effects).filter(|(level, _)| **level > 0).map(|(_, effect)| effect).product()
}

#[test]
fn effects_are_exact_without_noise() {
    let effects = [1.2, 0.9, 1.0, 1.0, 1.05, 1.0];
    let found = outcome(&tuning(&[2; 6], vec![]), |at| (100.0 * times(at, &effects), vec![]));
    for (of, effect) in found.factors.iter().zip(effects) {
        assert!((of.ratio - effect).abs() < 1e-9, "{of:?}");
        assert_eq!(of.is_active, effect != 1.0);
    }
    assert_eq!(found.winner, [1, 0, 0, 0, 1, 0]);
    assert_eq!(found.verdict, Verdict::Better);
    let gain = found.confirmation.unwrap().ratio;
    assert!((gain.mean - 1.26).abs() < 1e-9);
}

#[test]
fn an_interaction_is_told_from_main_effects() {
    // Each harms alone; together they help.
    let of = |at: &[usize]| match (at[1], at[4]) {
        (1, 1) => 1.3,
        (0, 0) => 1.0,
        _ => 0.9,
    };
    let found = outcome(&tuning(&[2; 8], vec![]), |at| (of(at), vec![]));
    let pairs: Vec<_> = found.interactions.iter().map(|pair| (pair.a, pair.b)).collect();
    assert_eq!(pairs, [(1, 4)]);
    assert!((found.interactions[0].ratio - 1.3 / 0.81).abs() < 1e-9);
    assert_eq!(found.winner, [0, 1, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_low_objective_is_minimized() {
    let tuning = Tuning { maximize: false, ..tuning(&[2, 2], vec![]) };
    let found = outcome(&tuning, |at| (times(at, &[0.8, 1.1]), vec![]));
    assert_eq!((found.winner, found.verdict), (vec![1, 0], Verdict::Better));
    assert!((found.factors[0].ratio - 0.8).abs() < 1e-9);
}

#[test]
fn further_levels_race() {
    let of = |at: &[usize]| ([1.0, 1.1, 1.3, 0.7][at[0]], vec![]);
    let found = outcome(&tuning(&[4, 2], vec![]), of);
    assert_eq!((found.winner, found.verdict), (vec![2, 0], Verdict::Better));
    assert!(found.candidates.iter().any(|one| one.levels == [3, 0] && one.left.is_some()));
}

#[test]
fn a_setting_that_breaks_a_bound_does_not_win() {
    let bound = Bound { at_least: true, amount: 0.95, of: Reference::Best };
    let found = outcome(&tuning(&[2; 5], vec![bound]), |at| {
        (times(at, &[1.5, 1.1, 1.0, 1.0, 1.0]), vec![times(at, &[0.8, 1.0, 1.0, 1.0, 1.0])])
    });
    assert_eq!((found.winner, found.verdict), (vec![0, 1, 0, 0, 0], Verdict::Better));
    assert!(found.confirmation.unwrap().bounds[0].is_kept);
}

#[test]
fn a_base_that_breaks_a_bound_is_left_though_it_is_better() {
    let bound = Bound { at_least: true, amount: 0.95, of: Reference::Best };
    let found = outcome(&tuning(&[2; 5], vec![bound]), |at| {
        (times(at, &[0.9, 1.0, 1.0, 1.0, 1.0]), vec![times(at, &[1.5, 1.0, 1.0, 1.0, 1.0])])
    });
    assert_eq!((found.winner, found.verdict), (vec![1, 0, 0, 0, 0], Verdict::KeepsBounds));
}

#[test]
fn a_base_at_the_limit_is_left_only_for_what_is_better() {
    // The base and all others are as often above the limit as below: that is no evidence against the base.
    let bound = Bound { at_least: true, amount: 1.0, of: Reference::Number };
    for effect in [1.0, 0.8] {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let tuning = Tuning { seed, ..tuning(&[2; 5], vec![bound]) };
            let found = search::<Infallible>(&tuning, &mut |ask| {
                let mut noise = || 1.0 + 0.02 * (random.f64() - 0.5);
                let objective = noise() * times(ask.levels, &[effect; 5]);
                Ok(Ok(Measured { objective, bounded: vec![noise()] }))
            });
            let found = found.unwrap().unwrap();
            assert_ne!(found.verdict, Verdict::KeepsBounds, "{found:?}");
        }
    }
}

#[test]
fn a_bound_of_a_metric_that_is_0_is_kept() {
    for amount in [0.01, 0.0] {
        let bound = Bound { at_least: false, amount, of: Reference::Number };
        let found = outcome(&tuning(&[2; 5], vec![bound]), |at| {
            (times(at, &[1.5, 1.1, 1.0, 1.0, 1.0]), vec![if at[0] > 0 { 0.05 } else { 0.0 }])
        });
        assert_eq!((found.winner, found.verdict), (vec![0, 1, 0, 0, 0], Verdict::Better));
        let kept = found.confirmation.unwrap().bounds[0];
        assert_eq!((kept.is_kept, kept.measured.mean, kept.limit), (true, 0.0, amount));
    }
}

#[test]
fn a_winner_whose_runs_fail_does_not_win() {
    for fails in [1, 2, 9] {
        let mut number = 0;
        let found = search::<Infallible>(&tuning(&[2; 5], vec![]), &mut |ask| {
            let objective = times(ask.levels, &[1.5, 1.0, 1.0, 1.0, 1.0]);
            if ask.stage == Stage::Confirmation && ask.levels[0] > 0 {
                number += 1;
                if number <= fails {
                    return Ok(Err("no link".to_owned()));
                }
            }
            Ok(Ok(Measured { objective, bounded: vec![] }))
        });
        let found = found.unwrap().unwrap();
        let (runs, failed) = found.confirming;
        let wins = fails <= 1;
        assert_eq!(found.verdict == Verdict::Better, wins, "{found:?}");
        assert_eq!((failed, found.recommended()[0]), (fails.min(runs), usize::from(wins)));
    }
}

#[test]
fn the_largest_of_many_effects_are_changed() {
    let effects: Vec<f64> = (0..14).map(|factor| 1.02 + 0.01 * f64::from(factor)).collect();
    let found = outcome(&tuning(&[2; 14], vec![]), |at| (times(at, &effects), vec![]));
    let raced = found.candidates.iter().map(|one| &one.levels);
    assert!(raced.chain([&found.winner]).any(|at| at[2..].iter().all(|level| *level == 1)));
}

#[test]
fn the_least_budget_tries_every_level() {
    let mut tuning = tuning(&[4, 3, 2], vec![]);
    tuning.budget = tuning.least();
    let mut tried = std::collections::BTreeSet::new();
    let found = search::<Infallible>(&tuning, &mut |ask| {
        tried.extend(ask.levels.iter().copied().enumerate());
        Ok(Ok(Measured { objective: times(ask.levels, &[1.1, 1.1, 1.1]), bounded: vec![] }))
    });
    assert!(found.unwrap().unwrap().runs <= tuning.budget);
    assert_eq!(tried.len(), 4 + 3 + 2);
}

#[test]
fn a_bound_that_nothing_keeps_is_told() {
    let bound = Bound { at_least: true, amount: 9.0, of: Reference::Number };
    let found = outcome(&tuning(&[2; 5], vec![bound]), |at| {
        (times(at, &[1.2, 1.0, 1.0, 1.0, 1.0]), vec![1.0])
    });
    assert_eq!(found.verdict, Verdict::NoneKeepsBounds);
    assert_eq!(found.recommended(), [0; 5]);
}

#[test]
fn no_effect_is_no_help() {
    let found = outcome(&tuning(&[2; 5], vec![]), |_| (7.0, vec![]));
    assert_eq!((found.verdict, found.confirmation), (Verdict::NothingHelps, None));
    assert_eq!(found.runs, 27);
}

#[test]
fn runs_without_a_result_do_not_end_a_search() {
    let effects = [1.2, 1.0, 1.0, 1.0, 1.0, 1.0];
    let mut number = 0;
    let mut make = |ask: Ask<'_>| -> Result<_, Infallible> {
        number += 1;
        let objective = times(ask.levels, &effects) * (1.0 + 1e-3 * f64::from(number % 3));
        Ok(match number % 9 {
            0 => Err("the run is invalid".to_owned()),
            _ => Ok(Measured { objective, bounded: vec![] }),
        })
    };
    let found = search(&tuning(&[2; 6], vec![]), &mut make).unwrap().unwrap();
    assert_eq!((found.winner[0], found.verdict), (1, Verdict::Better));
    assert!(found.failed > 2);
}

#[test]
fn a_base_without_a_valid_run_is_an_error() {
    let mut make = |ask: Ask<'_>| -> Result<_, Infallible> {
        Ok(match ask.levels.iter().sum() {
            0 => Err("no link".to_owned()),
            sum => Ok(Measured { objective: 1.0 + sum as f64, bounded: vec![] }),
        })
    };
    let error = search(&tuning(&[2; 3], vec![]), &mut make).unwrap().unwrap_err();
    assert_eq!(error, TuningError::Base("no link".to_owned()));
}

#[test]
fn a_search_keeps_its_budget() {
    for factors in [1, 2, 3, 5, 11, 12, 23] {
        for more in [0, 3, 40] {
            let mut tuning = tuning(&vec![2; factors], vec![]);
            tuning.budget = tuning.least() + more;
            let effects = vec![1.1; factors];
            let mut number = 0;
            let noisy = |at: &[usize]| times(at, &effects) * if at[0] > 0 { 1.0 } else { 1.001 };
            let found = search::<Infallible>(&tuning, &mut |ask| {
                number += 1;
                Ok(Ok(Measured { objective: noisy(ask.levels), bounded: vec![] }))
            });
            assert_eq!(found.unwrap().unwrap().runs, number);
            assert!(number <= tuning.budget, "{factors} factors: {number} of {}", tuning.budget);
        }
    }
}
