//! How often findings of simulated studies tell of an effect that there is not, and of one that there is.

use fastrand::Rng;
use wirecost_analyze::findings::findings;
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::statistics::bootstrap::normal;
use wirecost_model::run::{Latency, Run, Throughput, Window, WindowKind};
use wirecost_model::study::{Point, StudyRunRef, Value};

/// An option that is off or on, at each of these numbers of connections.
const OPTION: &str = "option";
const CONNECTIONS: [&str; 3] = ["1", "4", "16"];
const REPEATS: u32 = 3;
/// Standard deviation of the logarithm of a figure.
const NOISE: f64 = 0.05;

/// Studies of [`REPEATS`] repeats x 3 points x 2 values of an option, of throughput and latency.
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
        let mut runs = Vec::new();
        for (place, connections) in CONNECTIONS.iter().enumerate() {
            for (is_on, value, effect) in [(0, "off", 1.0), (1, "on", self.effect[place])] {
                let axes = vec![Value::new(OPTION, value), Value::new("connections", connections)];
                let place = 2 * place as u32 + is_on + 1;
                for repeat in 1..=REPEATS {
                    let mut blur = |mean: f64| mean * (NOISE * normal(random)).exp();
                    let (rate, p99) = (blur(1e9 * effect), blur(100.0));
                    runs.push((String::new(), run(&axes, (place, repeat), rate, p99)));
                }
            }
        }
        Measurements::of(runs)
    }
}

fn run(axes: &[Value], (place, repeat): (u32, u32), rate: f64, p99: f64) -> Run {
    let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
    let point = Point { axes: axes.to_vec(), settings: axes.to_vec() };
    run.study = Some(StudyRunRef { study: "s".to_owned(), point, place, repeat, order: 1 });
    run.window = Some(Window {
        seconds: 1.0,
        phase: 0,
        ramp_seconds: 0.0,
        kind: WindowKind::Duration,
        dead_seconds: None,
    });
    run.throughput = Some(Throughput {
        bits_per_second: rate,
        tx_bits_per_second: rate,
        rx_bits_per_second: 0.0,
        tx_bytes: 1,
        rx_bytes: 0,
    });
    run.latency_us =
        Some(Latency { p50: p99, p90: p99, p99, p999: p99, max: p99, mean: p99, count: 1 });
    run
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
}
