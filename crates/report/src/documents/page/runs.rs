//! The runs of a page, to which its figures lead.

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::document::{Block, Cell, Column, ListedRun, RunList, Section};

use super::charts::by_axis::words;
use super::charts::points::run_name;

/// Figures of each run.
const FIGURES: [&str; 3] = ["throughput", "cycles_per_kbyte", "latency.p99"];

/// The head of a column. Cycles are not those of one host, as in most charts.
fn title(figure: &str) -> String {
    let suffix = if figure == "cycles_per_kbyte" { ", all hosts" } else { "" };
    format!("{}{suffix}", words(figure))
}

/// All runs, failed ones too. `record` says where the record of a run is.
pub(super) fn section(
    measured: &Measurements,
    record: impl Fn(&str) -> Option<String>,
) -> Option<Section> {
    listed(list(measured, record))
}

/// All runs of some points.
pub(super) fn list(measured: &Measurements, record: impl Fn(&str) -> Option<String>) -> RunList {
    let mut list =
        RunList { columns: FIGURES.map(|of| Column::number(&title(of))).into(), runs: Vec::new() };
    for point in &measured.points {
        for run in point.runs.iter().chain(&point.failed) {
            let name = run_name(point, run);
            let cell = |figure: &str| match metrics::find(figure)
                .map(|selector| selector.of(run).map(|of| (selector.metric().unit, of)))
            {
                Ok(Ok((unit, value))) => Cell::number(unit, value),
                Ok(Err(reason)) => Cell::Missing(reason),
                Err(unknown) => Cell::Missing(unknown.to_string()),
            };
            list.runs.push(ListedRun {
                record: record(&name),
                point: point.point.to_string(),
                status: run.status,
                started_unix_ms: run.started_unix_ms,
                cells: FIGURES.map(cell).into(),
                name,
            });
        }
    }
    list
}

/// The section of a list.
pub(super) fn listed(list: RunList) -> Option<Section> {
    let mut section = Section::named("runs", "Runs").folded();
    if !list.runs.is_empty() {
        section.blocks.push(Block::Runs(list));
    }
    section.filled()
}

/// Says of each finding which points it rests on.
pub(super) fn cite(sections: &mut [Section], measured: &Measurements) {
    for block in sections.iter_mut().flat_map(|section| &mut section.blocks) {
        let Block::Finding(finding) = block else { continue };
        let at = |point: &&_| {
            let point: &wirecost_analyze::measured::MeasuredPoint = point;
            finding.at.iter().all(|at| point.point.get(&at.name) == Some(&at.value))
        };
        let points = measured.points.iter().filter(at).map(|point| point.point.to_string());
        finding.points = points.collect();
    }
}
