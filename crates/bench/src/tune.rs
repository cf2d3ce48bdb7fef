//! `tune`: how near to the best the searches of `wirecost tune` end on simulated surfaces, and how often they
//! claim a gain where there is none.

use std::io::Write;

use wirecost_study::tuning::simulation::{SCENARIOS, SearchCounts};

/// Simulate searches for the best setting: how near to it they end, and gains claimed where there is none.
///
/// Each row is a kind of surface of which many are drawn. The same seed gives the same table.
#[derive(Debug, clap::Args)]
pub(crate) struct Tune {
    /// Searches in each row.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..))]
    searches: u32,

    /// Seed of the surfaces and of the noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Noise between runs of the same setting, of which only the first has goals.
const NOISE: [f64; 2] = [0.01, 0.05];

const NEAR: f64 = 0.9;
const CLAIMED: f64 = 0.05;

impl Tune {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        writeln!(
            out,
            "{} searches a row, seed {}, with the default budget.\n\n| surfaces | noise | within 2% of the best | \
             changed something | broke the bound | interval misses the gain | runs | goal |\n\
             |---|---|---|---|---|---|---|---|",
            self.searches, self.seed
        )
        .map_err(failed)?;
        let mut missed = Vec::new();
        for noise in NOISE {
            for scenario in SCENARIOS {
                let counts = scenario.simulate(self.searches, noise, self.seed);
                let SearchCounts { searches, near_best, changed, .. } = counts;
                let share = |part: u32, of: u32| f64::from(part) / f64::from(of.max(1));
                let is_met = match scenario.nothing_helps {
                    true => share(changed, searches) <= CLAIMED,
                    false => share(near_best, searches) >= NEAR,
                };
                let goal = match (noise > NOISE[0], is_met) {
                    (true, _) => "none",
                    (false, true) => "met",
                    (false, false) => "MISSED",
                };
                if goal == "MISSED" {
                    missed.push(scenario.name);
                }
                let bound = match scenario.keep > 0.0 {
                    true => format!("{:.1}%", 100.0 * share(counts.broke_bound, searches)),
                    false => "-".to_owned(),
                };
                writeln!(
                    out,
                    "| {} | {:.0}% | {:.1}% | {:.1}% | {bound} | {:.1}% | {:.1} | {goal} |",
                    scenario.name,
                    100.0 * noise,
                    100.0 * share(near_best, searches),
                    100.0 * share(changed, searches),
                    100.0 * share(counts.missed, counts.confirmed),
                    f64::from(counts.runs) / f64::from(searches),
                )
                .map_err(failed)?;
            }
        }
        match missed.as_slice() {
            [] => Ok(()),
            missed => Err(format!("goals missed: {}", missed.join("; "))),
        }
    }
}
