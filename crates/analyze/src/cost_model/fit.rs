//! The fit of the costs, their intervals, and their error at held-out points.

use fastrand::Rng;
use wirecost_model::cost::{CostModel, Errors, Input, ModelledPoint, Share, Term};

use super::PointSamples;
use super::inputs::Sample;
use super::least_squares::{inflation, nonnegative};
use super::selection::{means, range};
use crate::statistics::bootstrap;

/// Fixed seed: the same data give the same intervals.
const SEED: u64 = 0x00c0_57ed;

#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) inputs: Vec<Input>,
    /// Cycles for each, in the order of `inputs`.
    pub(super) costs: Vec<f64>,
    /// The same of points and runs that were drawn of those there are.
    pub(super) drawn: Vec<Vec<f64>>,
    /// What was measured over what a model of the other points says, less 1, in the order of the points.
    pub(super) held_out: Vec<f64>,
}

/// The mean of runs, for a row of the equations.
#[derive(Debug, Clone)]
struct Row {
    values: Vec<f64>,
    cycles: f64,
}

impl Row {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>, inputs: &[Input]) -> Self {
        let mut row = Row { values: vec![0.0; inputs.len()], cycles: 0.0 };
        let mut runs = 0.0;
        for sample in samples {
            runs += 1.0;
            row.cycles += sample.cycles;
            for (value, input) in row.values.iter_mut().zip(inputs) {
                *value += sample.value(*input).unwrap_or(0.0);
            }
        }
        row.cycles /= runs;
        row.values.iter_mut().for_each(|value| *value /= runs);
        row
    }

    /// Relative errors give each point the same weight; otherwise the busiest would dominate.
    fn weighted(&self) -> Vec<f64> {
        self.values.iter().map(|value| value / self.cycles).collect()
    }
}

/// The weighted rows of points.
pub(super) fn rows(points: &[PointSamples], inputs: &[Input]) -> Vec<Vec<f64>> {
    points.iter().map(|point| Row::of(point.samples.iter(), inputs).weighted()).collect()
}

fn costs(rows: &[Row]) -> Vec<f64> {
    let weighted: Vec<Vec<f64>> = rows.iter().map(Row::weighted).collect();
    nonnegative(&weighted, &vec![1.0; rows.len()])
}

fn product(costs: &[f64], values: &[f64]) -> f64 {
    costs.iter().zip(values).map(|(cost, value)| cost * value).sum()
}

impl Fit {
    pub(super) fn of(points: &[PointSamples], inputs: &[Input]) -> Self {
        let whole = |point: &PointSamples| Row::of(point.samples.iter(), inputs);
        let rows: Vec<Row> = points.iter().map(whole).collect();
        let mut random = Rng::with_seed(SEED);
        let drawn = (0..bootstrap::DRAWS)
            .map(|_| {
                let draw = |_| {
                    let point = &points[random.usize(..points.len())];
                    let runs = point.samples.len();
                    let samples = (0..runs).map(|_| &point.samples[random.usize(..runs)]);
                    Row::of(samples, inputs)
                };
                costs(&(0..points.len()).map(draw).collect::<Vec<_>>())
            })
            .collect();
        let held_out = match points.len() > inputs.len() + 1 {
            true => (0..rows.len()).map(|place| held_out(&rows, place)).collect(),
            false => Vec::new(),
        };
        Self { inputs: inputs.to_vec(), costs: costs(&rows), drawn, held_out }
    }

    pub(super) fn cycles(&self, values: &[f64]) -> f64 {
        product(&self.costs, values)
    }

    /// 95% interval of what the load would take: the costs as drawn, and the error as it was at points
    /// that a model had not seen.
    pub(super) fn interval(&self, values: &[f64]) -> Option<(f64, f64)> {
        let mut drawn = self.drawn.iter();
        if self.held_out.is_empty() {
            return None;
        }
        bootstrap::interval(|random| {
            let error = self.held_out[random.usize(..self.held_out.len())];
            Some(product(drawn.next()?, values) * (1.0 + error))
        })
    }

    pub(super) fn write(&self, points: &[PointSamples], document: &mut CostModel) {
        let weighted = rows(points, &self.inputs);
        for (place, point) in points.iter().enumerate() {
            let row = Row::of(point.samples.iter(), &self.inputs);
            let modelled = self.cycles(&row.values);
            let share = |((input, cost), value): ((&Input, &f64), &f64)| Share {
                input: *input,
                share: if modelled > 0.0 { cost * value / modelled } else { 0.0 },
            };
            let terms = self.inputs.iter().zip(&self.costs).zip(&row.values);
            let bytes = point.samples.iter().map(|sample| sample.bytes).sum::<f64>();
            document.points.push(ModelledPoint {
                point: point.point.clone(),
                runs: point.samples.len() as u64,
                cycles_per_second: row.cycles,
                cycles_per_kbyte: row.cycles * 1024.0 * point.samples.len() as f64 / bytes,
                modelled_cycles_per_second: modelled,
                error: modelled / row.cycles - 1.0,
                held_out_error: self.held_out.get(place).map(|error| 1.0 / (1.0 + error) - 1.0),
                shares: terms.map(share).collect(),
            });
        }
        for (place, input) in self.inputs.iter().enumerate() {
            let mut drawn = self.drawn.iter().map(|costs| costs[place]);
            let others: Vec<usize> = (0..self.inputs.len()).filter(|o| *o != place).collect();
            let shares = document.points.iter().map(|point| point.shares[place].share);
            document.terms.push(Term {
                input: *input,
                cycles: self.costs[place],
                unit: input.unit().to_owned(),
                interval: bootstrap::interval(|_| drawn.next()),
                range: range(&means(points, *input)),
                inflation: inflation(&weighted, place, &others),
                share: shares.sum::<f64>() / points.len() as f64,
            });
        }
        let of = |error: fn(&ModelledPoint) -> Option<f64>| errors(&document.points, error);
        document.fit = of(|point| Some(point.error));
        document.held_out = of(|point| point.held_out_error);
    }
}

/// Measured value of a point over its prediction from the others, less 1.
fn held_out(rows: &[Row], place: usize) -> f64 {
    let others: Vec<Row> = rows[..place].iter().chain(&rows[place + 1..]).cloned().collect();
    let modelled = product(&costs(&others), &rows[place].values);
    rows[place].cycles / modelled.max(f64::MIN_POSITIVE) - 1.0
}

fn errors(points: &[ModelledPoint], error: fn(&ModelledPoint) -> Option<f64>) -> Option<Errors> {
    let mut sizes: Vec<(f64, &ModelledPoint)> =
        points.iter().filter_map(|point| Some((error(point)?.abs(), point))).collect();
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = sizes.len();
    let (worst, at) = sizes.last()?;
    Some(Errors {
        median: (sizes[(n - 1) / 2].0 + sizes[n / 2].0) / 2.0,
        worst: *worst,
        worst_at: at.point.clone(),
    })
}
