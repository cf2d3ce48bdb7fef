//! Predicted cost of a load that the study did not run.

use wirecost_model::cost::{Input, PredictedInput, Prediction};
use wirecost_model::study::number;
use wirecost_model::units::decimal;

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
        "outside the studied range: {0}; --extrapolate predicts it anyway, as a rough estimate"
    )]
    Outside(String),
}

/// Adds a prediction to the document.
///
/// # Errors
/// The load is ambiguous, or outside the studied range without permission.
pub fn predict(explained: &mut FittedModel, load: &Load) -> Result<(), PredictError> {
    let points = &explained.points;
    let size = size(points, load)?;
    unambiguous(points)?;
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
    let place =
        Place { connections: load.connections as f64, size: size.map(|(selector, _)| selector) };
    let mut inputs = Vec::new();
    let mut values = Vec::new();
    // Connections say where among the points the load is, also where they cost nothing themselves.
    let connections = range(&means(points, Input::Connections));
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
    if !fit.inputs.contains(&Input::Connections) && connections.0.is_finite() {
        check(Input::Connections, place.connections, connections);
    }
    for input in &fit.inputs {
        let range = range(&means(points, *input));
        let value = match input {
            Input::Bytes => bytes,
            Input::Connections => place.connections,
            Input::Constant => 1.0,
            Input::Operations | Input::Packets | Input::Interrupts => {
                bytes * per_byte(points, *input, &place)
            }
        };
        let outside = check(*input, value, range);
        values.push(value);
        inputs.push(PredictedInput { input: *input, value, range, outside, share: 0.0 });
    }
    if !outside.is_empty() && !load.extrapolate {
        return Err(PredictError::Outside(outside.join(", ")));
    }
    let cycles = fit.cycles(&values);
    for (input, cost) in inputs.iter_mut().zip(&fit.costs) {
        input.share = if cycles > 0.0 { cost * input.value / cycles } else { 0.0 };
    }
    let interval = fit.interval(&values);
    let rate = explained.document.cycles_per_cpu_second;
    explained.document.prediction = Some(Prediction {
        bits_per_second: load.bits_per_second,
        connections: load.connections,
        size: load.size.clone(),
        inputs,
        extrapolated: !outside.is_empty(),
        cycles_per_second: cycles,
        interval,
        cycles_per_kbyte: cycles * 1024.0 / bytes,
        cpus: rate.map(|rate| cycles / rate),
        cpus_interval: rate.and_then(|rate| Some((interval?.0 / rate, interval?.1 / rate))),
    });
    Ok(())
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
            let differs = |value: &&wirecost_model::study::Value| {
                b.point.get(&value.name) != Some(value.value.as_str())
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
struct Place {
    connections: f64,
    size: Option<f64>,
}

/// How many of an input come with a byte there: between the points around it along straight lines
/// of logarithms, beyond them as at the last.
fn per_byte(points: &[PointSamples], input: Input, place: &Place) -> f64 {
    let known: Vec<(f64, f64, f64)> = points
        .iter()
        .zip(means(points, input))
        .zip(means(points, Input::Connections).into_iter().zip(means(points, Input::Bytes)))
        .map(|((point, count), (connections, bytes))| {
            let size = point.point.number("size").unwrap_or(1.0);
            (size, connections, count / bytes)
        })
        .collect();
    let mut sizes: Vec<f64> = known.iter().map(|(size, ..)| *size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let along_connections = |size: f64| {
        let line = known.iter().filter(|(of, ..)| *of == size).map(|(_, c, count)| (*c, *count));
        interpolate(line.collect(), place.connections)
    };
    let line: Vec<(f64, f64)> =
        sizes.iter().map(|size| (*size, along_connections(*size))).collect();
    interpolate(line, place.size.unwrap_or(1.0))
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
