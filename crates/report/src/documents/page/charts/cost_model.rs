//! What cycles were spent on, by the cost model: shares of bytes, operations, packets and so on.

use wirecost_model::cost::{CostModel, ModelledPoint};
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::metric::Unit;

use super::Built;
use super::cpu::BARS;
use super::points::Names;

/// A bar for each point of a model.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn shares(model: &CostModel) -> Built {
    if model.points.len() > BARS {
        return Err(format!("{} points are too many for bars", model.points.len()));
    }
    let points = || model.points.iter().map(|of| &of.point);
    let mut axes: Vec<&str> = Vec::new();
    for axis in points().flat_map(|point| &point.axes) {
        let differs = points().any(|point| point.get(&axis.name) != Some(&axis.value));
        if differs && !axes.contains(&axis.name.as_str()) {
            axes.push(&axis.name);
        }
    }
    let names = Names::of(points(), &axes);
    let x = Axis::of_names("point", points().map(|point| names.name(point)));
    let y = Axis::new("cycles by the model", Unit::Percent);
    let mut chart = Chart::new("What cycles were spent on", ChartKind::Stack, x, y);
    for term in &model.terms {
        let share = |(place, point): (usize, &ModelledPoint)| {
            let share = point.shares.iter().find(|share| share.input == term.input)?;
            Some(Sample { x: place as f64, y: 100.0 * share.share })
        };
        let samples = model.points.iter().enumerate().filter_map(share).collect();
        chart.series.push(Series::new(term.input.name(), samples));
    }
    Ok(vec![chart])
}
