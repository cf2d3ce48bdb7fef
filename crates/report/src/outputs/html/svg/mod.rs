//! Charts that are no time series, drawn as SVG: axes, ticks and marks.
//!
//! Colours are classes of the page's style (`c1`, `idle`), so that both themes have theirs. Whatever has
//! a `title` tells it when it is pointed at.

mod axis;
mod curve;
mod forest;
mod grid;
mod stack;

use maud::{Markup, html};
use wirecost_model::document::{Chart, ChartKind};

use super::colours::{Colours, Look, apart};
#[cfg(test)]
pub(super) use grid::HEAT;

/// Of all drawings, in pixels: they are not scaled, so that text keeps its size.
const WIDTH: f64 = 800.0;
/// Of the drawing area of curves.
const HEIGHT: f64 = 260.0;
/// Of a letter of labels.
const LETTER: f64 = 7.2;

/// A drawing of a chart. `anchor` gives the place of a run in the page, if it is there.
pub(super) fn draw(
    chart: &Chart,
    colours: &mut Colours,
    anchor: &dyn Fn(&str) -> Option<String>,
) -> Markup {
    match chart.kind {
        ChartKind::Stack => stack::draw(chart, colours),
        ChartKind::HeatMap => grid::draw(chart),
        ChartKind::Forest => forest::draw(chart),
        ChartKind::Lines
        | ChartKind::Panel
        | ChartKind::Curve
        | ChartKind::Steps
        | ChartKind::Histogram => curve::draw(chart, colours, anchor),
    }
}

/// Whether titles of marks are short: the script adds the names of their series, and of the rows that they are in.
fn is_brief(chart: &Chart) -> bool {
    chart.kind != ChartKind::Forest
}

/// The drawing with its size and what it is of.
fn picture(chart: &Chart, width: f64, height: f64, content: &Markup) -> Markup {
    html! {
        svg class=[is_brief(chart).then_some("brief")] viewBox=(format!("0 0 {} {}", short(width), short(height)))
            width=(short(width)) height=(short(height)) role="img" aria-label=(chart.title) {
            (content)
        }
    }
}

/// How the series of a chart look.
pub(super) fn looks(chart: &Chart, colours: &mut Colours) -> Vec<Look> {
    let mut looks: Vec<Look> = chart.series.iter().map(|series| colours.of(&series.name)).collect();
    match chart.kind {
        ChartKind::Stack => return apart(looks),
        // Drawn by the script, by the looks that its data have.
        ChartKind::Lines | ChartKind::Panel => {}
        // Dashes tell some lines from others; of all lines they tell nothing.
        _ if looks.iter().all(|look| look.dashed) => {
            looks.iter_mut().for_each(|look| look.dashed = false);
        }
        _ => {}
    }
    looks
}

/// The class of a series' colour.
pub(super) fn colour_class(look: Look) -> String {
    class(Look { dashed: false, ..look })
}

/// Classes of a series' lines.
pub(super) fn class(look: Look) -> String {
    let colour = if look.colour == 0 { "idle".to_owned() } else { format!("c{}", look.colour) };
    if look.dashed { format!("{colour} dashed") } else { colour }
}

/// A place of a drawing, to a tenth of a pixel.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// As much of a label as there is room for.
fn fitting(text: &str, room: f64) -> String {
    let letters = (room / LETTER).max(4.0) as usize;
    match text.char_indices().nth(letters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(letters - 1).chain(['\u{2026}']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::document::{Axis, Series};
    use wirecost_model::metric::Unit;

    use super::*;

    #[test]
    fn not_all_lines_of_a_chart_are_dashed() {
        let chart = |from: usize, to: usize| {
            let axis = || Axis::new("", Unit::Count);
            let mut chart = Chart::new("", ChartKind::Curve, axis(), axis());
            let names = (from..to).map(|number| format!("line {number}"));
            chart.series = names.map(|name| Series::new(&name, Vec::new())).collect();
            chart
        };
        let mut colours = Colours::default();
        let is_dashed = |looks: &[Look]| looks.iter().filter(|look| look.dashed).count();
        // Eight colours, and four more lines.
        assert_eq!(is_dashed(&looks(&chart(0, 12), &mut colours)), 4);
        assert_eq!(is_dashed(&looks(&chart(8, 12), &mut colours)), 0);
        assert_eq!(is_dashed(&looks(&chart(7, 12), &mut colours)), 4);
    }
}
