//! Predicted cost of a load that the study did not run.

use wirecost_model::cost::{CostAtRate, Input, PredictedInput, Prediction};
use wirecost_model::study::{LOAD, number};
use wirecost_model::units::{decimal, three_digits};

use super::remedy::Remedy;
use super::selection::{means, range};
use super::{FittedModel, PointSamples};

/// The load to predict.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    pub bits_per_second: f64,
    pub connections: u64,
    /// Value of the study's axis or setting `size`, as it is written there.
    pub size: Option<String>,
    /// Whether to predict outside the studied range.
    pub extrapolate: bool,
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    #[error("the study has several sizes ({0}): select one with --size")]
    WhichSize(String),
    #[error("the study has no sizes")]
    NoSizes,
    #[error("{0} is not a size: write bytes, such as 8k")]
    NotASize(String),
    #[error("the study also varies {axis} ({values}): select one with --at {axis}=VALUE")]
    WhichPoint { axis: String, values: String },
    #[error(
        "outside the studied range: {what}; --extrapolate predicts it anyway, as a rough estimate"
    )]
    Outside { what: String, remedy: Remedy },
    #[error(
        "cannot say: the 95% interval of the CPUs is {low} to {high}, wider than a factor of {WIDEST}"
    )]
    TooWide { low: String, high: String, remedy: Remedy },
    #[error("cannot say: the study has too few points to check its model at held-out points")]
    Unchecked { remedy: Remedy },
}

impl PredictError {
    /// What a study would have to vary.
    #[must_use]
    pub fn remedy(&self) -> Option<&Remedy> {
        match self {
            PredictError::Outside { remedy, .. }
            | PredictError::TooWide { remedy, .. }
            | PredictError::Unchecked { remedy } => Some(remedy),
            _ => None,
        }
    }
}

/// An interval whose ends differ by more than this factor is no answer.
const WIDEST: f64 = 2.0;

/// Shares of the largest rate at which the cost along the rate is told.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// Adds a prediction to the document.
///
/// # Errors
/// The load is ambiguous, outside the studied range without permission, or its cost is too uncertain.
pub fn predict(explained: &mut FittedModel, load: &Load) -> Result<(), PredictError> {
    let points = &explained.points;
    let size = size(points, load)?;
    unambiguous(points)?;
    let remedy = || Remedy::of(load, points);
    let fit = &explained.fit;
    let bytes = load.bits_per_second / 8.0;
    let mut outside = Vec::new();
    if let Some((selector, sizes)) = &size {
        let (least, most) = range(sizes);
        if *selector < least || *selector > most {
            outside.push(format!(
                "size {} (studied: {} to {})",
                decimal(*selector, "B"),
                decimal(least, "B"),
                decimal(most, "B")
            ));
        }
    }
    let connections = load.connections as f64;
    let place = Place { connections, size: size.map(|(selector, _)| selector), bytes };
    let mut inputs = Vec::new();
    // Connections say where among the points the load is, also where they cost nothing themselves.
    let studied = range(&means(points, Input::Connections));
    let mut check = |input: Input, value: f64, (least, most): (f64, f64)| {
        let beyond = value < least * (1.0 - 1e-9) || value > most * (1.0 + 1e-9);
        if beyond {
            outside.push(format!(
                "{} {} (studied: {} to {})",
                input.name(),
                level(input, value),
                level(input, least),
                level(input, most)
            ));
        }
        beyond
    };
    if !fit.inputs.contains(&Input::Connections) && studied.0.is_finite() {
        check(Input::Connections, connections, studied);
    }
    let values = values(points, &fit.inputs, &place);
    for (input, value) in fit.inputs.iter().zip(&values) {
        let range = range(&means(points, *input));
        let outside = check(*input, *value, range);
        inputs.push(PredictedInput { input: *input, value: *value, range, outside, share: 0.0 });
    }
    if !outside.is_empty() && !load.extrapolate {
        return Err(PredictError::Outside { what: outside.join(", "), remedy: remedy() });
    }
    let Some((low, high)) = fit.interval(&values) else {
        return Err(PredictError::Unchecked { remedy: remedy() });
    };
    let rate = explained.document.cycles_per_cpu_second;
    if high > WIDEST * low {
        let shown = |cycles: f64| match rate {
            Some(rate) => three_digits(cycles / rate),
            None => decimal(cycles, "cycles/s"),
        };
        let (low, high) = (shown(low), shown(high));
        return Err(PredictError::TooWide { low, high, remedy: remedy() });
    }
    let cycles = fit.cycles(&values);
    for (input, cost) in inputs.iter_mut().zip(&fit.costs) {
        input.share = if cycles > 0.0 { cost * input.value / cycles } else { 0.0 };
    }
    let here = at_rate(explained, &place);
    let most = largest_rate(points, &place);
    let along = SHARES.map(|share| at_rate(explained, &Place { bytes: share * most, ..place }));
    let idle = fit.inputs.contains(&Input::Constant).then(|| {
        let of = |(input, cost): (&Input, &f64)| match input {
            Input::Constant => *cost,
            Input::Connections => cost * connections,
            _ => 0.0,
        };
        fit.inputs.iter().zip(&fit.costs).map(of).sum()
    });
    explained.document.prediction = Some(Prediction {
        bits_per_second: load.bits_per_second,
        connections: load.connections,
        size: load.size.clone(),
        inputs,
        extrapolated: !outside.is_empty(),
        cycles_per_second: cycles,
        interval: Some((low, high)),
        cycles_per_kbyte: here.cycles_per_kbyte,
        cycles_per_operation: here.cycles_per_operation,
        cpus: here.cpus,
        cpus_interval: rate.map(|rate| (low / rate, high / rate)),
        along_rate: along.into(),
        idle_cycles_per_second: idle,
    });
    Ok(())
}

/// How much of each input comes with a load.
fn values(points: &[PointSamples], inputs: &[Input], place: &Place) -> Vec<f64> {
    let value = |input: &Input| match input {
        Input::Bytes => place.bytes,
        Input::Connections => place.connections,
        Input::Constant => 1.0,
        Input::Operations | Input::Packets | Input::Interrupts => {
            place.bytes * per_byte(points, *input, place)
        }
    };
    inputs.iter().map(value).collect()
}

/// The cost of a load of the same connections and size at some rate.
fn at_rate(explained: &FittedModel, place: &Place) -> CostAtRate {
    let FittedModel { points, fit, document } = explained;
    let cycles = fit.cycles(&values(points, &fit.inputs, place));
    let samples = || points.iter().flat_map(|point| &point.samples);
    let operations = samples()
        .all(|sample| sample.value(Input::Operations).is_ok())
        .then(|| place.bytes * per_byte(points, Input::Operations, place));
    CostAtRate {
        bits_per_second: 8.0 * place.bytes,
        cycles_per_second: cycles,
        cycles_per_kbyte: cycles * 1024.0 / place.bytes,
        cycles_per_operation: operations.filter(|n| *n > 0.0).map(|operations| cycles / operations),
        cpus: document.cycles_per_cpu_second.map(|rate| cycles / rate),
    }
}

/// As a person asks for it.
fn level(input: Input, value: f64) -> String {
    match input {
        Input::Bytes => decimal(8.0 * value, "b/s"),
        Input::Connections | Input::Constant => value.to_string(),
        Input::Operations | Input::Packets | Input::Interrupts => decimal(value, "/s"),
    }
}

/// The size that is meant, and those of the points; `None` where the study has none.
fn size(points: &[PointSamples], load: &Load) -> Result<Option<(f64, Vec<f64>)>, PredictError> {
    let sizes: Vec<f64> = points.iter().filter_map(|point| point.point.number("size")).collect();
    let written = |points: &[PointSamples]| {
        let mut all: Vec<String> = Vec::new();
        for size in points.iter().filter_map(|point| point.point.get("size")) {
            if !all.iter().any(|other| other == size) {
                all.push(size.to_owned());
            }
        }
        all.join(", ")
    };
    let (least, most) = range(&sizes);
    match &load.size {
        Some(_) if sizes.is_empty() => Err(PredictError::NoSizes),
        Some(text) => match number(text).filter(|size| *size > 0.0) {
            Some(size) => Ok(Some((size, sizes))),
            None => Err(PredictError::NotASize(text.clone())),
        },
        None if sizes.is_empty() => Ok(None),
        None if least == most => Ok(Some((least, sizes))),
        None => Err(PredictError::WhichSize(written(points))),
    }
}

/// Two points of as many connections and the same size differ in something that nobody asked for.
fn unambiguous(points: &[PointSamples]) -> Result<(), PredictError> {
    let same = |a: &PointSamples, b: &PointSamples| {
        ["size", "connections"].iter().all(|name| a.point.get(name) == b.point.get(name))
    };
    for (place, a) in points.iter().enumerate() {
        for b in points[..place].iter().filter(|b| same(a, b)) {
            // Loads are what a prediction goes along.
            let differs = |value: &&wirecost_model::study::Value| {
                value.name != LOAD && b.point.get(&value.name) != Some(value.value.as_str())
            };
            if let Some(value) = a.point.axes.iter().find(differs) {
                let mut values: Vec<&str> =
                    points.iter().filter_map(|point| point.point.get(&value.name)).collect();
                values.sort_unstable();
                values.dedup();
                let (axis, values) = (value.name.clone(), values.join(", "));
                return Err(PredictError::WhichPoint { axis, values });
            }
        }
    }
    Ok(())
}

/// Position of a load among the points.
#[derive(Debug, Clone, Copy)]
struct Place {
    connections: f64,
    size: Option<f64>,
    /// Per second.
    bytes: f64,
}

/// A point, and a figure of it.
#[derive(Debug, Clone, Copy)]
struct Known {
    size: f64,
    connections: f64,
    bytes: f64,
    figure: f64,
}

impl Known {
    fn is_beside(&self, other: &Known) -> bool {
        self.size == other.size && self.connections == other.connections
    }
}

fn known(points: &[PointSamples], figures: Vec<f64>, place: &Place) -> Vec<Known> {
    let connections = means(points, Input::Connections);
    let bytes = means(points, Input::Bytes);
    let known = points.iter().zip(figures).zip(connections.into_iter().zip(bytes)).map(
        |((point, figure), (open, bytes))| Known {
            size: point.point.number("size").unwrap_or(1.0),
            connections: point.point.number("connections").unwrap_or(open),
            bytes,
            figure,
        },
    );
    let known: Vec<Known> = known.collect();
    // Where some points were run at several rates, only they say how it is at another.
    let at_rates = |one: &&Known| known.iter().filter(|other| one.is_beside(other)).count() > 1;
    let several: Vec<Known> = known.iter().filter(at_rates).copied().collect();
    let within = |of: fn(&Known) -> f64, wanted: f64| {
        let (least, most) = range(&several.iter().map(of).collect::<Vec<_>>());
        least <= wanted && wanted <= most
    };
    let covers = within(|known| known.connections, place.connections)
        && within(|known| known.size, place.size.unwrap_or(1.0));
    if covers { several } else { known }
}

/// A figure between the points: in `cell`, of those of the same size and connections, then between cells
/// along straight lines of logarithms, beyond them as at the last.
fn between(known: &[Known], place: &Place, cell: impl Fn(Vec<Known>) -> f64) -> f64 {
    let distinct = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    let along_connections = |size: f64| {
        let of_size: Vec<Known> = known.iter().filter(|one| one.size == size).copied().collect();
        let connections = distinct(of_size.iter().map(|one| one.connections).collect());
        let line = connections.iter().map(|connections| {
            let here = of_size.iter().filter(|one| one.connections == *connections).copied();
            (*connections, cell(here.collect()))
        });
        interpolate(line.collect(), place.connections)
    };
    let sizes = distinct(known.iter().map(|one| one.size).collect());
    let line: Vec<(f64, f64)> =
        sizes.iter().map(|size| (*size, along_connections(*size))).collect();
    interpolate(line, place.size.unwrap_or(1.0))
}

/// How many of an input come with a byte there.
fn per_byte(points: &[PointSamples], input: Input, place: &Place) -> f64 {
    let bytes = means(points, Input::Bytes);
    let figures = means(points, input).into_iter().zip(bytes).map(|(count, bytes)| count / bytes);
    let known = known(points, figures.collect(), place);
    between(&known, place, |cell| {
        interpolate(cell.iter().map(|one| (one.bytes, one.figure)).collect(), place.bytes)
    })
}

/// The most bytes per second that points around the load moved.
fn largest_rate(points: &[PointSamples], place: &Place) -> f64 {
    let known = known(points, means(points, Input::Bytes), place);
    between(&known, place, |cell| cell.iter().map(|one| one.bytes).fold(0.0, f64::max))
}

fn interpolate(mut line: Vec<(f64, f64)>, at: f64) -> f64 {
    line.retain(|(x, y)| *x > 0.0 && *y > 0.0);
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    let after = line.iter().position(|(x, _)| *x >= at);
    match (after, line.as_slice()) {
        (_, []) => 0.0,
        (Some(0), [first, ..]) => first.1,
        (None, [.., last]) => last.1,
        (Some(after), line) => {
            let ((x0, y0), (x1, y1)) = (line[after - 1], line[after]);
            let part = (at / x0).ln() / (x1 / x0).ln();
            y0 * (y1 / y0).powf(part)
        }
    }
}
