//! Searches on simulated surfaces, through the point runner: how near to the best they end, and how often they
//! claim a gain where there is none.

use std::time::Duration;

use fastrand::Rng;
use wirecost_analyze::statistics::bootstrap::normal;
use wirecost_model::run::{Run, Throughput, Transactions};
use wirecost_model::status::Status;

use super::{KEEP, TuneDefinition, run};
use crate::definition::Definition;
use crate::order::Task;
use crate::runner::{PointError, PointRunner};

/// Of each factor, logarithms of what its levels do to the objective; the first level does nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Surface {
    pub levels: Vec<Vec<f64>>,
    /// What two factors do together beyond their own effects, where neither is at its first level.
    pub together: Vec<(usize, usize, f64)>,
    /// The same of the bounded metric, by factor.
    pub bounded: Vec<f64>,
    /// Standard deviation of a run, relative.
    pub noise: f64,
}

impl Surface {
    fn objective(&self, at: &[usize]) -> f64 {
        let alone: f64 = self.levels.iter().zip(at).map(|(levels, at)| levels[*at]).sum();
        let both = self.together.iter().filter(|(a, b, _)| at[*a] > 0 && at[*b] > 0);
        alone + both.map(|(.., effect)| effect).sum::<f64>()
    }

    fn bound(&self, at: &[usize]) -> f64 {
        let changed = self.bounded.iter().zip(at).filter(|(_, at)| **at > 0);
        changed.map(|(effect, _)| effect).sum()
    }

    fn settings(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for levels in &self.levels {
            let with = |at: &Vec<usize>| {
                let at = at.clone();
                (0..levels.len()).map(move |level| [at.clone(), vec![level]].concat())
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }

    /// The best objective of those that keep the bound.
    fn best(&self, bound: f64) -> f64 {
        let settings = self.settings();
        let kept = settings.iter().filter(|at| self.bound(at) >= bound);
        kept.map(|at| self.objective(at)).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// A kind of surface.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub draw: fn(&mut Rng) -> Surface,
    /// Whether nothing is better than the base.
    pub nothing_helps: bool,
    /// The share of the best bounded metric that a setting has to keep; 0 without a bound.
    pub keep: f64,
}

/// Of searches on surfaces of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchCounts {
    pub searches: u32,
    /// Those that recommend a setting within 2% of the best, which keeps the bounds.
    pub near_best: u32,
    /// Those that recommend to change something.
    pub changed: u32,
    /// Those whose setting breaks the bound by more than 2%.
    pub broke_bound: u32,
    /// Runs of all of them.
    pub runs: u32,
    /// Confirmations, and those whose interval misses the true gain.
    pub confirmed: u32,
    pub missed: u32,
}

/// As near to the best as this is good.
const NEAR: f64 = 0.02;

/// The kinds of surfaces that the claims of docs/tune.md are about.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "8 factors: 3 effects, 2 interactions",
        draw: interacting,
        nothing_helps: false,
        keep: 0.0,
    },
    Scenario {
        name: "8 factors: two help only together",
        draw: only_together,
        nothing_helps: false,
        keep: 0.0,
    },
    Scenario {
        name: "11 factors: 4 effects, 2 interactions",
        draw: wide,
        nothing_helps: false,
        keep: 0.0,
    },
    Scenario {
        name: "3 factors: 2 effects, 1 interaction",
        draw: small,
        nothing_helps: false,
        keep: 0.0,
    },
    Scenario {
        name: "6 factors, two with 4 levels",
        draw: many_levels,
        nothing_helps: false,
        keep: 0.0,
    },
    Scenario {
        name: "8 factors: the best breaks a bound",
        draw: bounded,
        nothing_helps: false,
        keep: 0.95,
    },
    Scenario { name: "8 factors without any effect", draw: flat, nothing_helps: true, keep: 0.0 },
    Scenario {
        name: "8 factors: every change harms, or nothing",
        draw: harmful,
        nothing_helps: true,
        keep: 0.0,
    },
];

fn surface(random: &mut Rng, factors: usize, effects: usize, together: usize) -> Surface {
    let mut order: Vec<usize> = (0..factors).collect();
    random.shuffle(&mut order);
    let mut levels = vec![vec![0.0, 0.0]; factors];
    for factor in &order[..effects] {
        let size = 0.03 + 0.22 * random.f64();
        levels[*factor][1] = if random.f64() < 0.6 { size } else { -size };
    }
    // One of the two has an effect by itself, the other may have none.
    let pairs = (0..together).map(|place| {
        let other = order[(place + 1 + random.usize(..effects)) % factors];
        let size = 0.02 + 0.08 * random.f64();
        (order[place], other, if random.bool() { size } else { -size })
    });
    let together = pairs.filter(|(a, b, _)| a != b).collect();
    Surface { levels, together, bounded: vec![0.0; factors], noise: 0.0 }
}

fn interacting(random: &mut Rng) -> Surface {
    surface(random, 8, 3, 2)
}

fn wide(random: &mut Rng) -> Surface {
    surface(random, 11, 4, 2)
}

fn small(random: &mut Rng) -> Surface {
    surface(random, 3, 2, 1)
}

fn only_together(random: &mut Rng) -> Surface {
    let mut of = surface(random, 8, 1, 0);
    let alone = of.levels.iter().position(|levels| levels[1] != 0.0).unwrap_or_default();
    let others: Vec<usize> = (0..8).filter(|factor| *factor != alone).collect();
    of.together = vec![(others[0], others[1], 0.05 + 0.2 * random.f64())];
    of
}

fn many_levels(random: &mut Rng) -> Surface {
    let mut of = surface(random, 6, 3, 1);
    for factor in [random.usize(..3), 3 + random.usize(..3)] {
        let second = of.levels[factor][1];
        let further = |random: &mut Rng| second + 0.1 * (random.f64() - 0.5);
        of.levels[factor].extend([further(random), further(random)]);
    }
    of
}

fn bounded(random: &mut Rng) -> Surface {
    let mut of = surface(random, 8, 3, 1);
    // The factor that helps most takes more of the bounded metric than is allowed.
    let help = |factor: &usize| of.levels[*factor][1];
    let most = (0..8).max_by(|a, b| help(a).total_cmp(&help(b))).unwrap_or_default();
    of.bounded[most] = -0.1 - 0.2 * random.f64();
    of
}

fn flat(random: &mut Rng) -> Surface {
    surface(random, 8, 0, 0)
}

fn harmful(random: &mut Rng) -> Surface {
    let mut of = surface(random, 8, 3, 0);
    of.levels.iter_mut().for_each(|levels| levels[1] = -levels[1].abs());
    of
}

/// Hosts that measure what a surface says, with noise, in no time.
struct SimulatedHosts {
    surface: Surface,
    random: Rng,
    runs: u32,
}

impl PointRunner for SimulatedHosts {
    fn run(&mut self, task: &Task) -> Result<Run, PointError> {
        self.runs += 1;
        let at: Vec<usize> =
            task.point.axes.iter().map(|axis| axis.value.parse().unwrap_or_default()).collect();
        let noisy =
            |value: f64, random: &mut Rng| (value + self.surface.noise * normal(random)).exp();
        let per_second = 1e5 * noisy(self.surface.objective(&at), &mut self.random);
        let bits_per_second = 1e9 * noisy(self.surface.bound(&at), &mut self.random);
        let mut run = Run::empty("@simulated", "simulated", "0", 0);
        run.status = Status::Ok;
        run.transactions = Some(Transactions { count: 1, per_second });
        run.throughput = Some(Throughput {
            bits_per_second,
            tx_bits_per_second: 0.0,
            rx_bits_per_second: 0.0,
            tx_bytes: 0,
            rx_bytes: 0,
        });
        Ok(run)
    }

    fn spent(&self) -> Duration {
        Duration::ZERO
    }

    fn stopped(&self) -> bool {
        false
    }
}

/// The study that searches a surface: factors `f0`, `f1`, with levels `keep`, `1`, `2`.
fn study(surface: &Surface, keep: f64, seed: u64) -> Definition {
    let mut study = Definition {
        title: "simulated".to_owned(),
        profile: Some("@simulated".to_owned()),
        seed,
        tune: Some(TuneDefinition {
            maximize: Some("transactions".to_owned()),
            subject_to: match keep > 0.0 {
                true => vec![format!("throughput >= {keep}*best")],
                false => Vec::new(),
            },
            ..TuneDefinition::default()
        }),
        ..Definition::default()
    };
    for (factor, levels) in surface.levels.iter().enumerate() {
        let names: Vec<String> = (0..levels.len())
            .map(|level| if level == 0 { KEEP.to_owned() } else { level.to_string() })
            .collect();
        study.set_levels(&format!("f{factor}"), &names);
    }
    study
}

impl Scenario {
    /// Searches so many surfaces, with this noise between runs.
    #[must_use]
    pub fn simulate(&self, searches: u32, noise: f64, seed: u64) -> SearchCounts {
        let mut counts = SearchCounts { searches, ..SearchCounts::default() };
        for number in 0..searches {
            let mut random = Rng::with_seed(seed ^ (u64::from(number) << 20));
            let surface = Surface { noise, ..(self.draw)(&mut random) };
            self.search(&surface, random, &mut counts);
        }
        counts
    }

    fn search(&self, surface: &Surface, mut random: Rng, counts: &mut SearchCounts) {
        let study = study(surface, self.keep, random.u64(..));
        let mut hosts = SimulatedHosts { surface: surface.clone(), random, runs: 0 };
        let tuned = run(&study, [], &mut hosts, &mut ());
        counts.runs += hosts.runs;
        let Some(Ok(outcome)) = tuned.ok().and_then(|tuned| tuned.outcome) else { return };
        let chosen = outcome.recommended();
        let bound = match self.keep > 0.0 {
            true => {
                self.keep.ln()
                    + surface.settings().iter().map(|at| surface.bound(at)).fold(f64::MIN, f64::max)
            }
            false => f64::MIN,
        };
        let broke = surface.bound(&chosen) < bound - NEAR;
        let lost = surface.best(bound) - surface.objective(&chosen);
        counts.broke_bound += u32::from(broke);
        counts.near_best += u32::from(!broke && lost <= -(1.0 - NEAR).ln());
        counts.changed += u32::from(chosen.iter().any(|level| *level > 0));
        if let Some(confirmed) = &outcome.confirmation {
            let truth =
                surface.objective(&outcome.winner) - surface.objective(&vec![0; chosen.len()]);
            let (low, high) = confirmed.ratio.interval.unwrap_or((0.0, f64::INFINITY));
            counts.confirmed += 1;
            counts.missed += u32::from(truth < low.ln() || truth > high.ln());
        }
    }
}
