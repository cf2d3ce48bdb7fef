//! `statistics`: how often `wirecost compare` calls equal studies different, and how often it finds a
//! change, in simulated studies; and the same of findings.

use std::io::Write;

use wirecost_analyze::compare::simulation::{Change, Outcome, Scenario};

use crate::findings;

/// Simulate comparisons of studies: false alarms, and changes found.
///
/// Each row is a kind of study that is simulated many times. The same seed gives the same table.
#[derive(Debug, clap::Args)]
pub(crate) struct Statistics {
    /// Pairs of studies in each row.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    studies: u32,

    /// Seed of the random noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a row has to reach.
#[derive(Debug, Clone, Copy)]
enum Goal {
    /// At most 5% of studies have a false alarm.
    FewAlarms,
    /// At least this share finds the change, and few alarms.
    Found(f64),
    /// It is shown what happens; no criterion based on runs alone could hold there.
    None,
}

const LEVEL: f64 = 0.05;

fn rows() -> Vec<(Scenario, Goal)> {
    let usual = Scenario::usual;
    let equal = |name| usual(name, Change::None);
    let noise = |name, noise: [f64; 3]| Scenario { noise: noise.to_vec(), ..equal(name) };
    let drift = |name| Scenario { between_runs: 0.6, ..equal(name) };
    vec![
        (equal("equal"), Goal::FewAlarms),
        (usual("-15% at all points", Change::AllPoints(0.85)), Goal::Found(0.9)),
        (usual("+15% at all points", Change::AllPoints(1.15)), Goal::Found(0.9)),
        (usual("-30% at one point", Change::OnePoint(0.7)), Goal::Found(0.8)),
        (usual("+30% at one point", Change::OnePoint(1.3)), Goal::Found(0.8)),
        (noise("equal, noise 1, 3, 10%", [0.01, 0.03, 0.1]), Goal::FewAlarms),
        (noise("equal, noise 5, 5, 50%", [0.05, 0.05, 0.5]), Goal::FewAlarms),
        (noise("equal, noise 5, 50, 50%", [0.05, 0.5, 0.5]), Goal::FewAlarms),
        (noise("equal, noise 5, 5, 15%", [0.05, 0.05, 0.15]), Goal::FewAlarms),
        (noise("equal, noise 5, 5, 10%", [0.05, 0.05, 0.1]), Goal::FewAlarms),
        (
            Scenario { between_metrics: 0.9, ..equal("equal, metrics correlated by 0.9") },
            Goal::FewAlarms,
        ),
        (Scenario { repeats: 2, ..equal("equal, 2 repeats") }, Goal::FewAlarms),
        (Scenario { repeats: 10, ..equal("equal, 10 repeats") }, Goal::FewAlarms),
        (
            Scenario { outliers: 0.1, ..equal("equal, every 10th run 4 times as noisy") },
            Goal::FewAlarms,
        ),
        (
            Scenario { interleaved: true, ..drift("equal, autocorrelation 0.6, interleaved") },
            Goal::FewAlarms,
        ),
        (drift("equal, autocorrelation 0.6, B after A"), Goal::None),
        (Scenario { noise_of_b: 3.0, ..equal("equal, B 3 times as noisy") }, Goal::None),
        (Scenario { noise_of_b: 10.0, ..equal("equal, B 10 times as noisy") }, Goal::None),
    ]
}

impl Statistics {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        writeln!(
            out,
            "{} pairs of studies a row, seed {}; unless said otherwise 3 repeats x 3 points x 4 metrics with \
             5% noise.\nA change is one of the first metric. Formerly: Welch's test and Holm's correction \
             at single points.\n",
            self.studies, self.seed
        )
        .map_err(failed)?;
        writeln!(
            out,
            "| studies | false alarm | found | an interval misses | formerly false alarm | formerly found | \
             goal |\n|---|---|---|---|---|---|---|"
        )
        .map_err(failed)?;
        let mut missed = Vec::new();
        for (scenario, goal) in rows() {
            let outcome = scenario.simulate(self.studies, self.seed);
            let (text, met) = verdict(goal, &outcome);
            if !met {
                missed.push(scenario.name);
            }
            let share = |number: u32| format!("{:.1}%", 100.0 * part(number, &outcome));
            let changed = |number| match scenario.change {
                Change::None => "-".to_owned(),
                _ => share(number),
            };
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {text} |",
                scenario.name,
                share(outcome.false_alarms),
                changed(outcome.found),
                share(outcome.missed),
                share(outcome.former_alarms),
                changed(outcome.former_found),
            )
            .map_err(failed)?;
        }
        missed.extend(self.of_findings(out).map_err(failed)?);
        match missed.as_slice() {
            [] => Ok(()),
            missed => Err(format!("goals missed: {}", missed.join("; "))),
        }
    }
}

impl Statistics {
    /// The same of findings, of fewer studies: each is shuffled thousands of times. Returns which goals
    /// are missed.
    fn of_findings(&self, out: &mut dyn Write) -> std::io::Result<Vec<&'static str>> {
        let studies = self.studies / 10;
        writeln!(
            out,
            "\nFindings, {studies} studies a row: an option that is off or on at 3 numbers of connections, 3 \
             repeats, 4 metrics\n(throughput, cycles/KByte of both ends, p99 latency) with 5% noise. A change is \
             one of throughput with the option.\n\n| studies | false alarm | found | goal |\n|---|---|---|---|"
        )?;
        let mut missed = Vec::new();
        for scenario in findings::SCENARIOS {
            let outcome = scenario.simulate(studies, self.seed);
            let outcome = Outcome {
                studies,
                false_alarms: outcome.alarms,
                found: outcome.found,
                ..Outcome::default()
            };
            let (text, met) = verdict(scenario.goal.map_or(Goal::FewAlarms, Goal::Found), &outcome);
            if !met {
                missed.push(scenario.name);
            }
            let share = |number| format!("{:.1}%", 100.0 * part(number, &outcome));
            let [alarms, found] = [outcome.false_alarms, outcome.found].map(share);
            writeln!(out, "| {} | {alarms} | {found} | {text} |", scenario.name)?;
        }
        Ok(missed)
    }
}

fn part(number: u32, of: &Outcome) -> f64 {
    f64::from(number) / f64::from(of.studies)
}

fn verdict(goal: Goal, outcome: &Outcome) -> (String, bool) {
    let few = part(outcome.false_alarms, outcome) <= LEVEL;
    let (text, met) = match goal {
        Goal::None => return ("none".to_owned(), true),
        Goal::FewAlarms => ("alarms at most 5%".to_owned(), few),
        Goal::Found(least) => {
            let found = part(outcome.found, outcome) >= least;
            (format!("found at least {:.0}%", 100.0 * least), few && found)
        }
    };
    (format!("{text}: {}", if met { "met" } else { "missed" }), met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_is_called_missed() {
        let outcome = |false_alarms, found| Outcome {
            studies: 100,
            false_alarms,
            found,
            ..Outcome::default()
        };
        assert!(verdict(Goal::FewAlarms, &outcome(5, 0)).1);
        assert!(!verdict(Goal::FewAlarms, &outcome(6, 0)).1);
        assert!(verdict(Goal::Found(0.9), &outcome(0, 90)).1);
        assert!(!verdict(Goal::Found(0.9), &outcome(0, 89)).1);
        assert!(!verdict(Goal::Found(0.9), &outcome(6, 100)).1);
        assert!(verdict(Goal::None, &outcome(100, 0)).1);
    }

    #[test]
    fn the_table_has_a_row_for_each_kind_of_study_and_depends_on_its_seed_alone() {
        let table = |seed| {
            let mut out = Vec::new();
            // A goal can be missed by chance in so few studies.
            let _ = Statistics { studies: 100, seed }.run(&mut out);
            String::from_utf8(out).unwrap()
        };
        let first = table(1);
        let lines = first.lines().filter(|line| line.starts_with("| ")).count();
        assert_eq!(lines, rows().len() + findings::SCENARIOS.len() + 2);
        assert_eq!(first, table(1));
        assert_ne!(first, table(2));
    }
}
