//! What a study shows that switches options on and off, each alone, by size and connections: what each saves in cycles/KByte,
//! above which size, and what it costs in latency.
//!
//! The ratio of a figure with an option to that without it is paired: both runs of a repeat follow each other. The
//! variance is shrunk towards that of all pairs of a figure and kind of traffic; p-values are corrected for their number.

pub mod break_even;
mod cost;
mod design;
mod largest;
mod latency;
#[cfg(test)]
mod tests;
mod words;

use crate::conclusions::Answer;
use crate::measured::{MeasuredPoint, Measurements};
use crate::statistics::holm;
use crate::statistics::moderated::{Effect, Pairs, paired_effects};
use crate::{Conclusions, metrics};

pub use break_even::{BreakEven, Verdict};
pub use design::{AtSize, Curve, curves};

/// The axis of sizes.
pub const SIZE: &str = "size";
/// The axis of options, the first value of which is the base. Each further axis is an option too.
pub const OPTION: &str = "option";
/// The axis of streams and round trips.
const TRAFFIC: &str = "traffic";
/// Its value of round trips of several datagrams at once.
pub const BURSTS: &str = "bursts";
/// Axes that are combined with every option; all others are options.
pub const ACROSS: [&str; 4] = ["transport", "connections", TRAFFIC, SIZE];

const LEVEL: f64 = 0.05;

/// A figure that an option may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Cost,
    Throughput,
    P50,
    P99,
}

impl Figure {
    pub const ALL: [Self; 4] = [Self::Cost, Self::Throughput, Self::P50, Self::P99];

    /// The name of its metric.
    #[must_use]
    pub fn metric(self) -> &'static str {
        match self {
            Figure::Cost => "cycles_per_kbyte",
            Figure::Throughput => "throughput",
            Figure::P50 => "latency.p50",
            Figure::P99 => "latency.p99",
        }
    }
}

/// A figure with an option, compared with that without it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Geometric mean over the pairs.
    pub ratio: f64,
    /// `None` where there is one pair.
    pub effect: Option<Effect>,
    /// Of a ratio of 1, corrected for all pairs of the study with this figure and kind of traffic.
    pub p_value: Option<f64>,
}

impl Comparison {
    /// Whether the figure is smaller with the option.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.p_value {
            Some(p_value) if p_value < LEVEL && self.ratio < 1.0 => Verdict::Saves,
            Some(p_value) if p_value < LEVEL => Verdict::Costs,
            _ => Verdict::Unclear,
        }
    }

    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.effect.map(|effect| effect.interval(LEVEL))
    }
}

/// A curve with its comparisons.
#[derive(Debug, Clone)]
pub struct Payoff<'a> {
    pub curve: Curve<'a>,
    /// For each figure, each size, or why there is none.
    comparisons: Vec<Vec<Result<Comparison, String>>>,
}

impl Payoff<'_> {
    /// At each size of the curve.
    pub fn of(&self, figure: Figure) -> &[Result<Comparison, String>] {
        &self.comparisons[figure as usize]
    }

    /// Where the option costs as much as it saves.
    #[must_use]
    pub fn break_even(&self) -> BreakEven {
        let sizes = self.curve.sizes.iter().zip(self.of(Figure::Cost));
        let at = |(size, of): (&AtSize<'_>, &Result<Comparison, String>)| {
            let comparison = of.as_ref().ok()?;
            Some(break_even::At {
                size: size.bytes?,
                effect: comparison.effect?,
                verdict: comparison.verdict(),
            })
        };
        break_even::break_even(&sizes.filter_map(at).collect::<Vec<_>>())
    }
}

/// What each option changes.
#[must_use]
pub fn payoffs(measured: &Measurements) -> Vec<Payoff<'_>> {
    let curves = curves(measured);
    let mut payoffs: Vec<Payoff<'_>> =
        curves.into_iter().map(|curve| Payoff { curve, comparisons: Vec::new() }).collect();
    // Round trips vary otherwise than streams, and bursts otherwise than one message.
    let mut kinds: Vec<(bool, Option<String>)> = Vec::new();
    let mut kind_of_curve = Vec::new();
    for Payoff { curve, .. } in &payoffs {
        let kind = (curve.has_round_trips(), curve.traffic().map(str::to_owned));
        let known = kinds.iter().position(|known| *known == kind);
        kind_of_curve.push(known.unwrap_or(kinds.len()));
        if known.is_none() {
            kinds.push(kind);
        }
    }
    for figure in Figure::ALL {
        let of_pair = |at: &AtSize<'_>| differences(at, figure);
        let all: Vec<Vec<Result<Vec<f64>, String>>> =
            payoffs.iter().map(|of| of.curve.sizes.iter().map(of_pair).collect()).collect();
        let mut places = Vec::new();
        let mut pairs = Vec::new();
        for (place, sizes) in all.iter().enumerate() {
            for (size, differences) in sizes.iter().enumerate() {
                let Ok(differences) = differences else { continue };
                if differences.len() > 1 {
                    places.push((place, size));
                    let metric = kind_of_curve[place];
                    pairs.push(Pairs { metric, differences: differences.clone() });
                }
            }
        }
        let effects = paired_effects(&pairs);
        let corrected = corrected(&pairs, &effects, kinds.len());
        for (place, sizes) in all.into_iter().enumerate() {
            let comparison = |(size, differences): (usize, Result<Vec<f64>, String>)| {
                let differences = differences?;
                let mean = differences.iter().sum::<f64>() / differences.len() as f64;
                let tested = places.iter().position(|at| *at == (place, size));
                Ok(Comparison {
                    ratio: mean.exp(),
                    effect: tested.map(|at| effects[at]),
                    p_value: tested.map(|at| corrected[at]),
                })
            };
            let of = sizes.into_iter().enumerate().map(comparison).collect();
            payoffs[place].comparisons.push(of);
        }
    }
    payoffs
}

/// p-values, corrected among those of the same metric.
fn corrected(pairs: &[Pairs], effects: &[Effect], metrics: usize) -> Vec<f64> {
    let mut corrected = vec![1.0; pairs.len()];
    for metric in 0..metrics {
        let places: Vec<usize> =
            (0..pairs.len()).filter(|place| pairs[*place].metric == metric).collect();
        let p_values: Vec<f64> = places.iter().map(|place| effects[*place].p_value()).collect();
        for (place, p_value) in places.iter().zip(holm(&p_values)) {
            corrected[*place] = p_value;
        }
    }
    corrected
}

/// Of each repeat that has both runs, the logarithm of the ratio of the figure.
fn differences(at: &AtSize<'_>, figure: Figure) -> Result<Vec<f64>, String> {
    let selector = metrics::find(figure.metric()).map_err(|unknown| unknown.to_string())?;
    at.off.estimate(&selector)?;
    at.on.estimate(&selector)?;
    let repeat = |run: &wirecost_model::run::Run| run.study.as_ref().map(|study| study.repeat);
    let mut differences = Vec::new();
    for on in &at.on.runs {
        let Some(off) = at.off.runs.iter().find(|off| repeat(off) == repeat(on)) else { continue };
        if let (Ok(on), Ok(off)) = (selector.of(on), selector.of(off))
            && on > 0.0
            && off > 0.0
        {
            differences.push((on / off).ln());
        }
    }
    match differences.is_empty() {
        true => Err("no repeat has a valid run with the option and one without it".to_owned()),
        false => Ok(differences),
    }
}

/// A question, and how it is answered.
struct Rule {
    name: &'static str,
    /// What it answers, in the middle of a sentence.
    question: &'static str,
    answers: for<'a> fn(&[Payoff<'a>]) -> Vec<Answer>,
}

/// In the order of the report.
static RULES: &[Rule] = &[
    Rule { name: "largest-saving", question: "which option saves most", answers: largest::answers },
    Rule { name: "payoff", question: "what an option saves", answers: cost::answers },
    Rule {
        name: "latency-cost",
        question: "what an option costs in latency",
        answers: latency::answers,
    },
];

/// The answers of all rules.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let payoffs = payoffs(measured);
    let mut conclusions = Conclusions::default();
    for rule in RULES {
        conclusions.add((rule.name, rule.question), (rule.answers)(&payoffs));
    }
    conclusions
}

/// Warnings that all runs with an option have, and none without it.
fn warnings(at: &AtSize<'_>) -> Vec<String> {
    let has = |point: &MeasuredPoint, code: &str| {
        let with = |run: &wirecost_model::run::Run| run.warnings.iter().any(|of| of.code == code);
        point.runs.iter().filter(|run| with(run)).count()
    };
    let Some(first) = at.on.runs.first() else { return Vec::new() };
    let own = first.warnings.iter().filter(|warning| {
        has(at.on, &warning.code) == at.on.runs.len() && has(at.off, &warning.code) == 0
    });
    own.map(|warning| warning.brief.clone().unwrap_or_else(|| warning.message.clone())).collect()
}
