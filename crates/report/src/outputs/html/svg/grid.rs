//! Heat maps: a grid whose cells are the stronger the larger their figures are.

use maud::{Markup, html};
use wirecost_model::document::{AxisScale, Chart};

use super::{LETTER, WIDTH, fitting, picture, short};

/// Opacity of the colour of the smallest and of the largest figure. Text on it stays readable.
pub(in super::super) const HEAT: (f64, f64) = (0.05, 0.7);

const TOP: f64 = 48.0;
const ROW: f64 = 34.0;
const RIGHT: f64 = 4.0;
/// Widest cell.
const CELL: f64 = 120.0;

pub(super) fn draw(chart: &Chart) -> Markup {
    let values = || chart.series.iter().flat_map(|series| &series.samples).map(|sample| sample.y);
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    // Figures of several orders of magnitude differ by their logarithms.
    let scale = |value: f64| match chart.y.scale {
        AxisScale::Logarithmic if value > 0.0 => value.ln(),
        _ => value,
    };
    let share = |value: f64| match scale(most) > scale(least) {
        true => (scale(value) - scale(least)) / (scale(most) - scale(least)),
        false => 0.5,
    };
    let opacity = |value: f64| HEAT.0 + (HEAT.1 - HEAT.0) * share(value);
    let longest = chart.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    let left = LETTER * (longest as f64 + 2.5);
    let columns = chart.x.labels.len().max(1) as f64;
    let cell = ((WIDTH - left - RIGHT) / columns).min(CELL);
    let content = html! {
        text class="axis" x="0" y="12" { (chart.y.title) }
        text class="axis" x=(short(left)) y="30" { (chart.x.title) }
        @for (column, label) in chart.x.labels.iter().enumerate() {
            text class="label" x=(short(left + cell * (column as f64 + 0.5))) y=(short(TOP - 4.0)) text-anchor="middle" {
                (fitting(&label.text, cell))
            }
        }
        @for (row, series) in chart.series.iter().enumerate() {
            @let top = TOP + ROW * row as f64;
            text class="label" x=(short(left - 10.0)) y=(short(top + 21.0)) text-anchor="end" { (series.name) }
            @for sample in &series.samples {
                @let x = left + cell * sample.x;
                rect class="heat" x=(short(x + 1.0)) y=(short(top + 1.0)) width=(short(cell - 2.0)) height=(short(ROW - 2.0))
                    fill-opacity=(format!("{:.2}", opacity(sample.y))) {
                    title { (chart.x.title) " " (chart.x.show(sample.x)) ": " (chart.y.show(sample.y)) }
                }
                @if cell > 46.0 {
                    text class="value" x=(short(x + cell / 2.0)) y=(short(top + 21.0)) text-anchor="middle" {
                        (figure(chart, sample.y))
                    }
                }
            }
        }
    };
    picture(chart, WIDTH, TOP + ROW * chart.series.len() as f64 + 6.0, &content)
}

/// Without the unit where the title has it.
fn figure(chart: &Chart, value: f64) -> String {
    let text = chart.y.show(value);
    match text.strip_suffix("cycles/KByte") {
        Some(number) => number.trim_end().to_owned(),
        // What is rounded to nothing is not nothing.
        None if text == "0.0%" && value > 0.0 => "<0.1%".to_owned(),
        None => text,
    }
}
