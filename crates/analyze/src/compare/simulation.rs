//! Simulated comparisons: how often equal studies are called different, and how often a change is found.
//! `wirecost-bench statistics` prints this for many kinds of noise.

use fastrand::Rng;

use super::LEVEL;
use super::families::{Tested, Values, decide};
use crate::statistics::bootstrap::normal;
use crate::statistics::{holm, welch};

/// Two studies of the same points.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: &'static str,
    /// Standard deviation of the logarithm of a run, of each point.
    pub noise: Vec<f64>,
    pub metrics: usize,
    pub repeats: usize,
    /// Correlation of the metrics of one run.
    pub between_metrics: f64,
    /// Correlation of each run with the one before.
    pub between_runs: f64,
    /// Whether the runs of both studies alternate; otherwise B follows A.
    pub interleaved: bool,
    /// B's noise in parts of A's.
    pub noise_of_b: f64,
    /// Probability of a run with four times the noise.
    pub outliers: f64,
    pub change: Change,
}

/// The change of the first metric from A to B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    None,
    AllPoints(f64),
    /// Of the first point only.
    OnePoint(f64),
}

/// Numbers of studies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    pub studies: u32,
    /// With a significant difference that is none, at a point or over all points.
    pub false_alarms: u32,
    /// In which the change was found: at its point, or, of all points, at any of them or overall.
    pub found: u32,
    /// With an interval that misses the true ratio.
    pub missed: u32,
    /// The same as `false_alarms` and `found` by Welch's tests of single points with Holm's correction,
    /// the criterion of ADR 0019.
    pub former_alarms: u32,
    pub former_found: u32,
}

impl Scenario {
    /// Three repeats at three points of four metrics, with 5% noise.
    #[must_use]
    pub fn usual(name: &'static str, change: Change) -> Self {
        Self {
            name,
            noise: vec![0.05; 3],
            metrics: 4,
            repeats: 3,
            between_metrics: 0.0,
            between_runs: 0.0,
            interleaved: false,
            noise_of_b: 1.0,
            outliers: 0.0,
            change,
        }
    }

    /// Compares this many pairs of studies.
    #[must_use]
    pub fn simulate(&self, studies: u32, seed: u64) -> Outcome {
        let mut random = Rng::with_seed(seed);
        let mut outcome = Outcome { studies, ..Outcome::default() };
        for _ in 0..studies {
            self.compare(&mut random, &mut outcome);
        }
        outcome
    }

    fn compare(&self, random: &mut Rng, outcome: &mut Outcome) {
        let values = self.study(random);
        let decision = decide(&values);
        let truth = |metric: usize, point: Option<usize>| match (self.change, metric, point) {
            (Change::AllPoints(ratio), 0, _) | (Change::OnePoint(ratio), 0, Some(0)) => ratio.ln(),
            (Change::OnePoint(ratio), 0, None) => ratio.ln() / self.noise.len() as f64,
            _ => 0.0,
        };
        let of = |tested: &Tested, truth: f64| {
            let moved = tested.effect.map(|mut effect| {
                effect.log_ratio -= truth;
                effect.p_value() < tested.interval_level
            });
            let significant = tested.is_significant();
            (significant && truth == 0.0, significant && truth != 0.0, moved.unwrap_or(false))
        };
        let (mut alarm, mut found, mut missed) = (false, false, false);
        let at_points = (decision.at_points.iter().flatten().enumerate()).map(|(place, tested)| {
            of(tested, truth(place % self.metrics, Some(place / self.metrics)))
        });
        let one_point = matches!(self.change, Change::OnePoint(_));
        for (false_alarm, is_found, misses) in at_points {
            alarm |= false_alarm;
            found |= is_found;
            missed |= misses;
        }
        for (metric, tested) in &decision.overall {
            let (false_alarm, is_found, misses) = of(tested, truth(*metric, None));
            alarm |= false_alarm;
            found |= is_found && !one_point;
            missed |= misses;
        }
        outcome.false_alarms += u32::from(alarm);
        outcome.found += u32::from(found);
        outcome.missed += u32::from(missed);

        let p_values: Vec<f64> = values.iter().filter_map(|of| welch(&of.a, &of.b)).collect();
        let former: Vec<(bool, bool)> = (holm(&p_values).into_iter().enumerate())
            .map(|(place, p_value)| {
                let changed = truth(place % self.metrics, Some(place / self.metrics)) != 0.0;
                (p_value < LEVEL, changed)
            })
            .collect();
        outcome.former_alarms += u32::from(former.contains(&(true, false)));
        outcome.former_found += u32::from(former.contains(&(true, true)));
    }

    /// The values of both sides, point by point, as a comparison tests them.
    fn study(&self, random: &mut Rng) -> Vec<Values> {
        let points = self.noise.len();
        let empty = |place: usize| Values { metric: place % self.metrics, a: vec![], b: vec![] };
        let mut values: Vec<Values> = (0..points * self.metrics).map(empty).collect();
        // A study shuffles its points in each round.
        let mut order = Vec::new();
        let rounds: &[&[bool]] =
            if self.interleaved { &[&[false, true]] } else { &[&[false], &[true]] };
        for sides in rounds {
            for _ in 0..self.repeats {
                let turns =
                    (0..points).flat_map(|point| sides.iter().map(move |of_b| (point, *of_b)));
                let mut turns: Vec<(usize, bool)> = turns.collect();
                random.shuffle(&mut turns);
                order.extend(turns);
            }
        }
        // Of each metric, and last what all have in common.
        let mut states: Vec<f64> = (0..=self.metrics).map(|_| normal(random)).collect();
        for (number, (point, of_b)) in order.into_iter().enumerate() {
            if !self.interleaved && number == points * self.repeats {
                // B begins long after A.
                states.iter_mut().for_each(|state| *state = normal(random));
            }
            let fresh = (1.0 - self.between_runs.powi(2)).sqrt();
            for state in &mut states {
                *state = self.between_runs * *state + fresh * normal(random);
            }
            let common = self.between_metrics.sqrt() * states[self.metrics];
            let own = (1.0 - self.between_metrics).sqrt();
            let outlier = if random.f64() < self.outliers { 4.0 } else { 1.0 };
            let noise = self.noise[point] * outlier * if of_b { self.noise_of_b } else { 1.0 };
            for metric in 0..self.metrics {
                let change = match self.change {
                    Change::AllPoints(ratio) if of_b && metric == 0 => ratio,
                    Change::OnePoint(ratio) if of_b && metric == 0 && point == 0 => ratio,
                    _ => 1.0,
                };
                let value = 100.0 * change * (noise * (common + own * states[metric])).exp();
                let of = &mut values[point * self.metrics + metric];
                if of_b { of.b.push(value) } else { of.a.push(value) }
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDIES: u32 = 1000;

    /// Four standard deviations of a number of studies with this probability.
    fn slack(probability: f64) -> f64 {
        4.0 * (f64::from(STUDIES) * probability * (1.0 - probability)).sqrt()
    }

    #[track_caller]
    fn at_most(number: u32, probability: f64) {
        let most = f64::from(STUDIES) * probability + slack(probability);
        assert!(f64::from(number) <= most, "{number} of {STUDIES}, at most {most:.0}");
    }

    #[track_caller]
    fn at_least(number: u32, probability: f64) {
        let least = f64::from(STUDIES) * probability - slack(probability);
        assert!(f64::from(number) >= least, "{number} of {STUDIES}, at least {least:.0}");
    }

    #[test]
    fn equal_studies_have_a_false_alarm_in_at_most_5_percent() {
        let tenfold = vec![0.01, 0.03, 0.1];
        for (seed, noise) in (1..).zip([vec![0.05; 3], tenfold, vec![0.05, 0.05, 0.15]]) {
            let scenario = Scenario { noise, ..Scenario::usual("equal", Change::None) };
            let outcome = scenario.simulate(STUDIES, seed);
            at_most(outcome.false_alarms, 0.05);
            at_most(outcome.missed, 0.05);
            // The test is not merely one that never rejects.
            assert!(outcome.false_alarms >= 10, "{outcome:?}");
        }
    }

    #[test]
    fn fifteen_percent_at_all_points_are_found_in_90_percent() {
        for (seed, ratio) in [(4, 0.85), (5, 1.15)] {
            let outcome = Scenario::usual("15%", Change::AllPoints(ratio)).simulate(STUDIES, seed);
            at_least(outcome.found, 0.9);
            at_most(outcome.missed, 0.05);
            assert!(outcome.former_found < STUDIES / 2, "{outcome:?}");
        }
    }

    #[test]
    fn thirty_percent_at_one_point_are_found_in_80_percent() {
        for (seed, ratio) in [(6, 0.7), (7, 1.3)] {
            let outcome = Scenario::usual("30%", Change::OnePoint(ratio)).simulate(STUDIES, seed);
            at_least(outcome.found, 0.8);
            at_most(outcome.missed, 0.05);
        }
    }

    #[test]
    fn drift_is_a_false_alarm_unless_runs_alternate() {
        let one_after_the_other =
            Scenario { between_runs: 0.6, ..Scenario::usual("drift", Change::None) };
        let interleaved = Scenario { interleaved: true, ..one_after_the_other.clone() };
        at_most(interleaved.simulate(STUDIES, 8).false_alarms, 0.05);
        assert!(one_after_the_other.simulate(STUDIES, 8).false_alarms > 77);
    }
}
