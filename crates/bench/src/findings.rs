//! How often findings of simulated studies tell of an effect that there is not, and of one that there is.

use fastrand::Rng;
use wirecost_analyze::findings::findings;
use wirecost_analyze::findings::simulation::{Figures, study};
use wirecost_analyze::measured::Measurements;

/// An option that is off or on, at each of these numbers of connections.
const OPTION: &str = "option";
const CONNECTIONS: [&str; 3] = ["1", "4", "16"];
const REPEATS: u32 = 3;
/// Standard deviation of the logarithm of a figure.
const NOISE: f64 = 0.05;

/// Studies of [`REPEATS`] repeats x 3 points x 2 values of an option: throughput, p99 latency, and the cost
/// and CPU time of both ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// By number of connections: throughput with the option over that without it.
    pub(crate) effect: [f64; 3],
    /// Least share of studies that tell of the effect.
    pub(crate) goal: Option<f64>,
}

/// The goals are those of comparisons.
pub(crate) const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "equal", effect: [1.0; 3], goal: None },
    Scenario { name: "-15% at all points", effect: [0.85; 3], goal: Some(0.9) },
    Scenario { name: "+15% at all points", effect: [1.15; 3], goal: Some(0.9) },
    Scenario { name: "-30% at one point", effect: [1.0, 0.7, 1.0], goal: Some(0.8) },
    Scenario { name: "+30% at one point", effect: [1.0, 1.3, 1.0], goal: Some(0.8) },
];

/// Of so many studies, those with a finding about what has no effect, and those that tell of the effect.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    pub(crate) alarms: u32,
    pub(crate) found: u32,
}

impl Scenario {
    pub(crate) fn simulate(&self, studies: u32, seed: u64) -> Outcome {
        let mut random = Rng::with_seed(seed);
        let mut outcome = Outcome::default();
        let has_effect = self.effect.iter().any(|effect| *effect != 1.0);
        for _ in 0..studies {
            let all = findings(&self.study(&mut random));
            let mut told = all.iter().filter(|finding| finding.p_value.is_some());
            // At one point it is an effect of the number of connections, too.
            let is_true =
                |metric: &Option<String>| has_effect && metric.as_deref() == Some("throughput");
            let found = told
                .clone()
                .any(|told| is_true(&told.metric) && told.axis.as_deref() == Some(OPTION));
            let alarm = told.any(|told| !is_true(&told.metric));
            outcome.found += u32::from(found);
            outcome.alarms += u32::from(alarm);
        }
        outcome
    }

    fn study(&self, random: &mut Rng) -> Measurements {
        let axes: [(&str, &[&str]); 2] = [("connections", &CONNECTIONS), (OPTION, &["off", "on"])];
        study(&axes, REPEATS, |point| {
            let place = CONNECTIONS.iter().position(|connections| *connections == point[0]);
            let effect = match point[1] {
                "on" => place.map_or(1.0, |place| self.effect[place]),
                _ => 1.0,
            };
            Figures { bits_per_second: 1e9 * effect, ..Figures::default() }.noisy(NOISE, random)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_effect_is_told_and_noise_is_not() {
        let large = Scenario { name: "", effect: [0.5; 3], goal: None };
        assert_eq!(large.simulate(5, 1).found, 5);
        let equal = SCENARIOS[0].simulate(5, 1);
        assert_eq!((equal.alarms, equal.found), (0, 0));
    }

    /// Of so few studies a share differs from the true one by up to ten percentage points.
    #[test]
    fn effects_are_told_as_often_as_the_goals_ask() {
        const STUDIES: u32 = 100;
        for scenario in SCENARIOS {
            let Outcome { alarms, found } = scenario.simulate(STUDIES, 7);
            let share = f64::from(found) / f64::from(STUDIES);
            let goal = scenario.goal.unwrap_or(0.0);
            assert!(alarms <= 8 && share >= goal - 0.1, "{}: {alarms}, {found}", scenario.name);
        }
    }
}
