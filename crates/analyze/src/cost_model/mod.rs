//! What the CPU cycles of a study were spent on: cycles a second as a sum of costs per byte,
//! operation, packet, connection and interrupt, fitted to all points at once. docs/cost-model.md
//! has the equations; ADR 0020 says what else was tried.

mod fit;
mod inputs;
mod least_squares;
mod predict;
mod remedy;
mod selection;
#[cfg(test)]
mod tests;

use wirecost_model::cost::{CostModel, ExcludedPoint, Input, SCHEMA};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::{Point, Value};

use crate::measured::{MeasuredPoint, Measurements};
use inputs::{Foreign, Packets, Sample};

pub use predict::{Load, PredictError, predict};
pub use remedy::Remedy;

/// With fewer points there is nothing to fit.
const MIN_POINTS: usize = 3;

/// Options of a model.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The host whose cycles are meant, by a name that [`crate::metrics`] takes; of none, all
    /// machines.
    pub host: Option<String>,
    /// Only points that have these values.
    pub at: Vec<Value>,
}

/// Why no model can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    #[error("no point has {0}")]
    NoPoint(String),
    #[error(
        "a model needs {MIN_POINTS} points or more whose cycles are known, and there {}{}",
        if *.points == 1 { "is 1".to_owned() } else { format!("are {}", .points) },
        .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
    )]
    FewPoints { points: usize, reason: Option<String> },
    #[error(
        "the points have cycles of different sources ({0}), which cannot be put into one model"
    )]
    Sources(String),
}

/// A model, with the data of its study that predictions need.
#[derive(Debug, Clone)]
pub struct FittedModel {
    pub document: CostModel,
    fit: fit::Fit,
    points: Vec<PointSamples>,
}

/// The valid runs of one point.
#[derive(Debug, Clone)]
pub(crate) struct PointSamples {
    pub(crate) point: Point,
    pub(crate) samples: Vec<Sample>,
}

/// The document of a refusal.
#[must_use]
pub fn empty(name: &str, options: &Options, version: &str) -> CostModel {
    CostModel {
        schema: SCHEMA.to_owned(),
        status: Status::Ok,
        error: None,
        version: version.to_owned(),
        name: name.to_owned(),
        study: None,
        host: options.host.clone(),
        at: options.at.clone(),
        cycles_source: None,
        packets_source: None,
        terms: Vec::new(),
        left_out: Vec::new(),
        points: Vec::new(),
        points_left_out: Vec::new(),
        fit: None,
        held_out: None,
        cycles_per_cpu_second: None,
        notes: Vec::new(),
        prediction: None,
    }
}

/// The model of a study, or of a part of its points.
///
/// # Errors
/// The study has too few measurements.
pub fn explain(
    name: &str,
    measured: &Measurements,
    options: &Options,
    version: &str,
) -> Result<FittedModel, NoModel> {
    let mut document = empty(name, options, version);
    let meant = |point: &&MeasuredPoint| options.at.iter().all(|at| has(&point.point, at));
    let meant: Vec<&MeasuredPoint> = measured.points.iter().filter(meant).collect();
    if meant.is_empty() && !options.at.is_empty() {
        let wanted = Point { axes: options.at.clone(), settings: Vec::new() };
        return Err(NoModel::NoPoint(wanted.to_string()));
    }
    let runs = || meant.iter().flat_map(|point| &point.runs);
    document.study = runs().find_map(|run| Some(run.study.as_ref()?.study.clone()));
    // All points alike.
    let is_known = |run: &Run| inputs::foreign_cycles_per_kbyte(run, host(options)).is_some();
    let foreign = if runs().all(is_known) { Foreign::Subtracted } else { Foreign::Included };
    let known = |packets: &Packets| {
        let sampled =
            runs().filter_map(|run| Sample::of(run, host(options), *packets, foreign).ok());
        sampled.filter(|sample| sample.value(Input::Packets).is_ok()).count()
    };
    // Of several that are as well known this finds the last, which is to be the first of the list.
    let packets = Packets::ALL.into_iter().rev().max_by_key(known).unwrap_or(Packets::Segments);
    let mut points = Vec::new();
    for point in &meant {
        match observe(point, options, packets, foreign) {
            Ok(samples) => points.push(PointSamples { point: point.point.clone(), samples }),
            Err(reason) => {
                let point = point.point.clone();
                document.points_left_out.push(ExcludedPoint { point, reason });
            }
        }
    }
    if points.len() < MIN_POINTS {
        let reason = document.points_left_out.first().map(|left_out| left_out.reason.clone());
        return Err(NoModel::FewPoints { points: points.len(), reason });
    }
    document.cycles_source = Some(source(&meant, options)?);
    let inputs = selection::select(&mut points, &mut document);
    if inputs.contains(&Input::Packets) {
        document.packets_source = Some(packets.source().to_owned());
    }
    let fit = fit::Fit::of(&points, &inputs);
    fit.write(&points, &mut document);
    document.cycles_per_cpu_second = per_cpu(&points);
    note(&meant, foreign, &mut document);
    Ok(FittedModel { document, fit, points })
}

fn host(options: &Options) -> Option<&str> {
    options.host.as_deref()
}

fn has(point: &Point, wanted: &Value) -> bool {
    let same = |value: &str| match (wanted.number(), wirecost_model::study::number(value)) {
        (Some(a), Some(b)) => a == b,
        _ => value == wanted.value,
    };
    point.get(&wanted.name).is_some_and(same)
}

fn observe(
    point: &MeasuredPoint,
    options: &Options,
    packets: Packets,
    foreign: Foreign,
) -> Result<Vec<Sample>, String> {
    if point.runs.is_empty() {
        let error = point.failed.iter().find_map(|run| run.error.clone());
        return Err(error.unwrap_or_else(|| "not run yet".to_owned()));
    }
    point.runs.iter().map(|run| Sample::of(run, host(options), packets, foreign)).collect()
}

/// Where the cycles come from, which must be the same everywhere.
fn source(points: &[&MeasuredPoint], options: &Options) -> Result<String, NoModel> {
    let name = match host(options) {
        Some(host) => format!("hosts.{host}.cycles_per_kbyte"),
        None => "cycles_per_kbyte".to_owned(),
    };
    let selector = crate::metrics::find(&name).ok();
    let runs = points.iter().flat_map(|point| &point.runs);
    let mut sources: Vec<&str> = runs
        .filter_map(|run| selector.as_ref().and_then(|selector| selector.method(run)))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    match sources.as_slice() {
        [] => Ok("unknown".to_owned()),
        [one] => Ok((*one).to_owned()),
        several => Err(NoModel::Sources(several.join(", "))),
    }
}

/// Median of the runs.
fn per_cpu(points: &[PointSamples]) -> Option<f64> {
    let samples = points.iter().flat_map(|point| &point.samples);
    let busy = samples.filter_map(|sample| Some((sample.all_cycles, sample.busy_cpus?)));
    let mut rates: Vec<f64> =
        busy.filter(|(_, busy)| *busy > 0.0).map(|(cycles, busy)| cycles / busy).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

fn note(points: &[&MeasuredPoint], foreign: Foreign, document: &mut CostModel) {
    let spoiled = |point: &&&MeasuredPoint| {
        let warnings = point.runs.iter().flat_map(|run| &run.warnings);
        warnings.into_iter().any(|warning| warning.code == "foreign-cpu")
    };
    let spoiled = points.iter().filter(spoiled).count();
    if spoiled > 0 {
        let counted = match foreign {
            Foreign::Included => "the costs include their cycles",
            Foreign::Subtracted => {
                "their cycles are subtracted, but not what they did to caches and to throughput"
            }
        };
        document.notes.push(format!(
            "other programs used the CPUs at {spoiled} of {} points, and {counted}: end them, and run \
             the study again",
            points.len()
        ));
    }
}
