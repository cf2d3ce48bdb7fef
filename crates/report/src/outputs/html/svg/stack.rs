//! Stacked bars: a row for each thing, parts of one colour each.

use maud::{Markup, html};
use wirecost_model::document::{Chart, Sample};

use super::axis::Placed;
use super::{Colours, LETTER, WIDTH, class, fitting, looks, picture, short};

const TOP: f64 = 26.0;
const BOTTOM: f64 = 30.0;
const RIGHT: f64 = 22.0;
const ROW: f64 = 22.0;
/// Height of a bar, as the style sheet has it.
const BAR: f64 = 15.0;
/// Most room for labels.
const LABELS: f64 = 330.0;
/// Narrower parts cannot be seen.
const NARROWEST: f64 = 0.2;

pub(super) fn draw(chart: &Chart, colours: &mut Colours) -> Markup {
    let rows = chart.x.labels.len();
    let total = |row: usize| -> f64 {
        let parts = chart.series.iter().filter_map(|series| at(&series.samples, row));
        parts.map(|part| part.max(0.0)).sum()
    };
    let longest = chart.x.labels.iter().map(|label| label.text.chars().count()).max();
    let left = (LETTER * (longest.unwrap_or(0) as f64 + 2.0)).clamp(20.0, LABELS);
    let most = (0..rows).map(total).fold(0.0, f64::max);
    // All of something is 100%, and rounding is no reason for an axis beyond.
    let most = if (99.0..101.0).contains(&most) { 100.0 / 1.05 } else { most };
    let y = Placed::new(&chart.y, [0.0, most].into_iter(), (left, WIDTH - RIGHT), true);
    let bottom = TOP + ROW * rows as f64;
    let begins = begins(chart, rows);
    let looks = looks(chart, colours);
    let content = html! {
        g class="grid" {
            @for tick in y.ticks(5) {
                line x1=(short(tick.place)) x2=(short(tick.place)) y1=(short(TOP)) y2=(short(bottom)) {}
                text x=(short(tick.place)) y=(short(bottom + 16.0)) text-anchor="middle" { (tick.text) }
            }
        }
        text class="axis" x="0" y="12" { (chart.x.title) }
        text class="axis" x=(short(WIDTH - RIGHT)) y="12" text-anchor="end" { (y.title()) }
        @for (row, label) in chart.x.labels.iter().enumerate() {
            @let shown = fitting(&label.text, left - 8.0);
            text class="label" x=(short(left - 8.0)) y=(short(TOP + ROW * row as f64 + 15.0)) text-anchor="end"
                data-whole=[(shown != label.text).then_some(&label.text)] {
                (shown)
            }
        }
        @for ((series, begins), look) in chart.series.iter().zip(&begins).zip(looks) {
            g class=(format!("bars {}", class(look))) data-series=(series.name) {
                @for (sample, begin) in series.samples.iter().zip(begins) {
                    @let row = sample.x.max(0.0);
                    @let (begin, end) = (y.at(*begin), y.at(begin + sample.y.max(0.0)));
                    @if end - begin > NARROWEST {
                        rect x=(short(begin)) y=(short(TOP + ROW * row + (ROW - BAR) / 2.0))
                            width=(short(end - begin)) {
                            title { (chart.y.show(sample.y)) }
                        }
                    }
                }
            }
        }
    };
    picture(chart, WIDTH, bottom + BOTTOM, &content)
}

fn at(samples: &[Sample], row: usize) -> Option<f64> {
    samples.iter().find(|sample| sample.x == row as f64).map(|sample| sample.y)
}

/// Where each sample of each series begins: above those of the series before it.
fn begins(chart: &Chart, rows: usize) -> Vec<Vec<f64>> {
    let mut filled = vec![0.0; rows];
    let mut begin = |sample: &Sample| {
        let Some(row) = filled.get_mut(sample.x.max(0.0) as usize) else { return 0.0 };
        *row += sample.y.max(0.0);
        *row - sample.y.max(0.0)
    };
    chart.series.iter().map(|series| series.samples.iter().map(&mut begin).collect()).collect()
}
