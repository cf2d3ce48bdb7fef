//! A figure over two axes at once.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};

use super::Built;
use super::by_axis::words;
use super::points::{others, varying};

/// A grid needs as many cells.
const CELLS: usize = 4;

/// What the other axes are, and the points there with their figures.
type Grid<'a> = (Vec<Option<String>>, Vec<(&'a MeasuredPoint, f64)>);

/// A figure over the two axes with the most values, at the values of the others that have the most points.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn chart(measured: &Measurements, metric: &str) -> Built {
    let axes = varying(measured);
    let [across, down, ..] = axes.as_slice() else {
        return Err("it needs two axes with several values each".to_owned());
    };
    let rest: Vec<&str> =
        others(measured, across).into_iter().filter(|axis| axis != down).collect();
    let at = |point: &MeasuredPoint| -> Vec<Option<String>> {
        rest.iter().map(|axis| point.point.get(axis).map(str::to_owned)).collect()
    };
    let selector = metrics::find(metric).map_err(|unknown| unknown.to_string())?;
    let mut grids: Vec<Grid<'_>> = Vec::new();
    let mut reason = None;
    for point in &measured.points {
        let value = match point.estimate(&selector) {
            Ok(estimate) => estimate.mean,
            Err(why) => {
                reason = Some(why);
                continue;
            }
        };
        let key = at(point);
        match grids.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push((point, value)),
            None => grids.push((key, vec![(point, value)])),
        }
    }
    // Of those with as many points the first.
    let largest = grids.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
    let Some((key, cells)) = grids.into_iter().find(|(_, cells)| cells.len() == largest) else {
        return Err(reason.unwrap_or_else(|| "no point has the figure".to_owned()));
    };
    let (columns, rows) = (measured.values(across), measured.values(down));
    let has_both = |axis: &str| {
        let first = cells[0].0.point.get(axis);
        cells.iter().any(|(point, _)| point.point.get(axis) != first)
    };
    if cells.len() < CELLS || !has_both(across) || !has_both(down) {
        return Err("too few points differ in both axes".to_owned());
    }
    let mut title = format!("{} by {across} and {down}", words(metric));
    let fixed: Vec<String> = rest
        .iter()
        .zip(&key)
        .filter_map(|(axis, value)| Some(format!("{axis} {}", value.as_ref()?)))
        .collect();
    if !fixed.is_empty() {
        title += &format!(" ({})", fixed.join(", "));
    }
    let x = Axis::of_names(across, columns.iter().map(|value| (*value).to_owned()));
    let y = Axis::new(&words(metric), selector.metric().unit);
    let mut chart = Chart::new(&title, ChartKind::HeatMap, x, y);
    for row in rows {
        let of_row = cells.iter().filter(|(point, _)| point.point.get(down) == Some(row));
        let sample = |(point, y): &(&MeasuredPoint, f64)| {
            let value = point.point.get(across)?;
            let x = columns.iter().position(|known| *known == value)? as f64;
            Some(Sample { x, y: *y })
        };
        let samples: Vec<Sample> = of_row.filter_map(sample).collect();
        if !samples.is_empty() {
            chart.series.push(Series::new(&format!("{down} {row}"), samples));
        }
    }
    Ok(vec![chart])
}
