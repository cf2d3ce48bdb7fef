//! The page of a cost model.

use wirecost_analyze::compare::Hosts;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_model::cost::{CostModel, ModelledPoint};
use wirecost_model::document::{Cell, Chart, Document, Sample, Section, Series, SeriesRole};
use wirecost_model::run::Run;
use wirecost_model::units::counted;

use super::charts::points::varying;
use super::charts::{self, Gathered};
use super::{SavedRuns, hosts, method, not_measured, runs};
use crate::documents::cost_model::explanation;
use crate::tables;

/// Two ways to add up cycles differ by less.
const SAME: f64 = 0.01;

/// The page of what `wirecost explain` prints, with the evidence: costs with their intervals, and what was measured
/// beside what the model says, against each axis.
#[must_use]
pub fn cost_model(
    model: &CostModel,
    measured: &Measurements,
    environments: &Hosts,
    records: &dyn SavedRuns,
) -> Document {
    let mut gathered = Gathered::default();
    let Document { title, sections, .. } = explanation(model);
    let mut document = Document::new(&title);
    (document.status, document.error) = (model.status, model.error.clone());
    let modelled = of_model(model, measured);
    document.sections.push(headline(model));
    document.sections.extend(costs(model, &mut gathered));
    document.sections.extend(by_axes(model, &modelled, &mut gathered));
    document.sections.extend(sections.into_iter().filter(|section| section.name != "costs"));
    let all: Vec<&Run> = modelled.points.iter().flat_map(|point| &point.runs).collect();
    if let Some(run) = all.first() {
        document.sections.extend(hosts::section(run, environments));
    }
    document.sections.push(method::section(&all, &[]));
    document.sections.extend(not_measured(gathered.missing));
    document.sections.extend(method::observing(&all));
    document.sections.push(Section {
        name: "about".to_owned(),
        title: "About the runs, and warnings".to_owned(),
        ..tables::about(measured, &[])
    });
    document.sections.extend(runs::section(measured, |run| records.record(run)));
    document
}

/// The points that the model was made of.
fn of_model(model: &CostModel, measured: &Measurements) -> Measurements {
    let is_part = |point: &&MeasuredPoint| of_point(model, point).is_some();
    Measurements { points: measured.points.iter().filter(is_part).cloned().collect() }
}

fn of_point<'a>(model: &'a CostModel, point: &MeasuredPoint) -> Option<&'a ModelledPoint> {
    model.points.iter().find(|modelled| modelled.point.axes == point.point.axes)
}

/// What cycles go to, and how far the model can be trusted.
fn headline(model: &CostModel) -> Section {
    let mut section = Section::named("headline", "");
    let mut terms: Vec<_> = model.terms.iter().filter(|term| term.share > 0.0).collect();
    terms.sort_by(|a, b| b.share.total_cmp(&a.share));
    let shares: Vec<String> = terms
        .iter()
        .map(|term| format!("{} {:.0}%", term.input.name(), 100.0 * term.share))
        .collect();
    let of = match &model.host {
        Some(host) => format!("the busy cycles of {host}"),
        None => "all busy cycles".to_owned(),
    };
    section.text(format!("On average over the points, {of} go to: {}.", shares.join(", ")));
    section.text(match &model.held_out {
        Some(errors) => format!(
            "The model predicts the cycles of a point that it has not seen with an error of {:.1}% (median), \
             {:.1}% at worst.",
            100.0 * errors.median,
            100.0 * errors.worst
        ),
        None => "The model is not checked: too few points to hold one out.".to_owned(),
    });
    section.figure("study", Cell::text(&model.name));
    section
        .note(format!("{} of the study.", counted(model.points.len() as u64, "point", "points")));
    section
}

fn costs(model: &CostModel, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("costs", "Costs");
    gathered.add(&mut section, "Costs with their intervals", charts::forest::costs(model));
    let printed = explanation(model).sections.into_iter().find(|section| section.name == "costs");
    section.blocks.extend(printed.into_iter().flat_map(|section| section.blocks));
    gathered.add(&mut section, "What cycles were spent on", charts::cost_model::shares(model));
    section.filled()
}

/// What was measured and what the model says, against each axis.
fn by_axes(model: &CostModel, measured: &Measurements, gathered: &mut Gathered) -> Vec<Section> {
    let figure = match &model.host {
        Some(host) => format!("hosts.{host}.cycles_per_kbyte"),
        None => "cycles_per_kbyte".to_owned(),
    };
    let axes = varying(measured);
    if axes.is_empty() {
        gathered.lacks("Charts by axis", "no axis has several values");
    }
    let mut sections = Vec::new();
    for (place, axis) in axes.into_iter().enumerate() {
        let mut section = Section::named(&format!("by-{axis}"), &format!("By {axis}"));
        let with_model = |charts: Vec<Chart>| -> Vec<Chart> {
            charts.into_iter().map(|chart| modelled(chart, model, measured)).collect()
        };
        let built = charts::by_axis::charts(measured, axis, &figure).map(with_model);
        gathered.add(&mut section, &format!("Measured and modelled cycles by {axis}"), built);
        section.folded = place > 0;
        sections.extend(section.filled());
    }
    sections
}

/// The same chart with what the model says of its points, as dashed lines. Cycles that programs used which are no part of
/// a run are not modelled, so that those that were measured are shown without them.
fn modelled(mut chart: Chart, model: &CostModel, measured: &Measurements) -> Chart {
    chart.title = format!("{}, measured and modelled", chart.title);
    let mut laws = Vec::new();
    for series in chart.series.iter_mut().filter(|series| series.role == SeriesRole::Measured) {
        let mut law = Series { role: SeriesRole::Fit, ..Series::new(&series.name, Vec::new()) };
        let mut is_net = false;
        for sample in &mut series.samples {
            // The runs of a sample tell its point.
            let run = series.runs.iter().find(|run| run.x == sample.x);
            let point = run.and_then(|run| point_of(measured, &run.run));
            let Some(point) = point.and_then(|point| of_point(model, point)) else { continue };
            is_net |= (point.cycles_per_kbyte / sample.y - 1.0).abs() > SAME;
            sample.y = point.cycles_per_kbyte;
            let ratio = point.modelled_cycles_per_second / point.cycles_per_second;
            law.samples
                .extend(ratio.is_finite().then_some(Sample { x: sample.x, y: sample.y * ratio }));
        }
        if is_net {
            // They are of all cycles.
            (series.intervals, series.runs) = (Vec::new(), Vec::new());
        }
        laws.push(law);
    }
    chart.series.extend(laws);
    chart
}

fn point_of<'a>(measured: &'a Measurements, run: &str) -> Option<&'a MeasuredPoint> {
    let has = |point: &&MeasuredPoint| {
        point.runs.iter().any(|of| charts::points::run_name(point, of) == run)
    };
    measured.points.iter().find(has)
}
