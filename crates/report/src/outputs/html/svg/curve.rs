//! Curves with intervals and runs, steps, and histograms.

use std::fmt::Write as _;

use maud::{Markup, html};
use wirecost_model::document::{AxisScale, Chart, ChartKind, Sample, Series, SeriesRole};

use super::axis::{Placed, apart};
use super::{Colours, HEIGHT, LETTER, WIDTH, class, looks, picture, short};

const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 14.0;
/// Samples of a curve beyond which they have no dots.
const DENSE: usize = 40;

pub(super) fn draw(
    chart: &Chart,
    colours: &mut Colours,
    anchor: &dyn Fn(&str) -> Option<String>,
) -> Markup {
    let samples = || chart.series.iter().flat_map(|series| &series.samples);
    let ends = chart.series.iter().flat_map(|series| series.intervals.iter().flatten());
    let highest = samples().map(|of| of.y).fold(f64::NEG_INFINITY, f64::max);
    let runs = || chart.series.iter().flat_map(|series| &series.runs);
    let y_values = samples()
        .map(|of| of.y)
        .chain(runs().map(|run| run.y))
        // An interval of two runs can be far wider than all figures: it is cut off at the edge.
        .chain(ends.map(|(_, high)| high.min(2.0 * highest)))
        .filter(|value| chart.y.scale != AxisScale::Logarithmic || *value > 0.0);
    let y = Placed::new(&chart.y, y_values, (TOP + HEIGHT, TOP), true);
    let y_ticks = y.ticks(5);
    let widest = y_ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(1);
    let left = 16.0 + LETTER * widest as f64;
    let x_values = samples().map(|of| of.x).chain(runs().map(|run| run.x));
    let x = Placed::new(&chart.x, x_values, (left, WIDTH - RIGHT), false);
    let number = chart.series.len();
    let looks = looks(chart, colours);
    let content = html! {
        (grid(&x, &y, left))
        (marks(chart, &x))
        @for (place, series) in chart.series.iter().enumerate() {
            @let drawing = Drawing { chart, series, x: &x, y: &y, shift: shift(chart, place, number, x.step()) };
            g class=(class(looks[place])) data-series=(series.name) {
                @match chart.kind {
                    ChartKind::Histogram => (drawing.bars()),
                    ChartKind::Steps => path class="line" d=(drawing.steps()) {},
                    _ => (drawing.curve(anchor)),
                }
            }
        }
    };
    picture(chart, WIDTH, TOP + HEIGHT + BOTTOM, &content)
}

/// Series over names stand side by side.
fn shift(chart: &Chart, place: usize, number: usize, step: f64) -> f64 {
    match chart.x.scale {
        AxisScale::Names => {
            (place as f64 - (number as f64 - 1.0) / 2.0) * (0.6 * step / number as f64).min(14.0)
        }
        _ => 0.0,
    }
}

fn grid(x: &Placed<'_>, y: &Placed<'_>, left: f64) -> Markup {
    let bottom = TOP + HEIGHT;
    html! {
        g class="grid" {
            @for tick in y.ticks(5) {
                line x1=(short(left)) x2=(short(WIDTH - RIGHT)) y1=(short(tick.place)) y2=(short(tick.place)) {}
                text x=(short(left - 7.0)) y=(short(tick.place + 4.0)) text-anchor="end" { (tick.text) }
            }
            @for tick in apart(x.ticks(8)) {
                line class="tick" x1=(short(tick.place)) x2=(short(tick.place)) y1=(short(bottom)) y2=(short(bottom + 5.0)) {}
                text x=(short(tick.place)) y=(short(bottom + 19.0)) text-anchor="middle" { (tick.text) }
            }
        }
        line class="base" x1=(short(left)) x2=(short(WIDTH - RIGHT)) y1=(short(bottom)) y2=(short(bottom)) {}
        text class="axis" x="0" y="12" { (y.title()) }
        text class="axis" x=(short(WIDTH - RIGHT)) y=(short(bottom + 38.0)) text-anchor="end" { (x.title()) }
    }
}

/// Places on the x axis that matter, with their intervals.
fn marks(chart: &Chart, x: &Placed<'_>) -> Markup {
    html! {
        @for mark in &chart.marks {
            g class="mark" {
                @if let Some((low, high)) = mark.interval {
                    @let (from, to) = (x.at(low), x.at(high));
                    rect x=(short(from)) y=(short(TOP)) width=(short((to - from).max(1.0))) height=(short(HEIGHT)) {}
                }
                @let place = short(x.at(mark.x));
                line x1=(place) x2=(place) y1=(short(TOP)) y2=(short(TOP + HEIGHT)) {}
                text x=(place) y=(short(TOP - 5.0)) text-anchor="middle" {
                    (mark.label) " " (chart.x.show(mark.x))
                }
            }
        }
    }
}

struct Drawing<'a> {
    chart: &'a Chart,
    series: &'a Series,
    x: &'a Placed<'a>,
    y: &'a Placed<'a>,
    shift: f64,
}

impl Drawing<'_> {
    fn place(&self, sample: &Sample) -> (f64, f64) {
        (self.x.at(sample.x) + self.shift, self.y.at(sample.y))
    }

    /// A line through all samples.
    fn line(&self) -> String {
        let mut path = String::new();
        for sample in &self.series.samples {
            let (x, y) = self.place(sample);
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{} {}", short(x), short(y));
        }
        path
    }

    fn steps(&self) -> String {
        let mut path = String::new();
        for sample in &self.series.samples {
            let (x, y) = self.place(sample);
            match path.is_empty() {
                true => drop(write!(path, "M{} {}", short(x), short(y))),
                false => drop(write!(path, "H{}V{}", short(x), short(y))),
            }
        }
        path
    }

    fn curve(&self, anchor: &dyn Fn(&str) -> Option<String>) -> Markup {
        if self.series.role == SeriesRole::Fit {
            return html! { path class="line fit" d=(self.line()) {} };
        }
        let is_joined = self.chart.x.scale != AxisScale::Names;
        // Dots of many samples would hide the line: the script shows the one that is pointed at.
        if is_joined && self.series.samples.len() > DENSE {
            let (x, y) = (&self.chart.x, &self.chart.y);
            let told =
                self.series.samples.iter().map(|of| format!("{}@{}", y.show(of.y), x.show(of.x)));
            let told = told.collect::<Vec<_>>().join("|");
            return html! {
                path class="line" d=(self.line()) data-axis=(x.title) data-told=(told) {}
                (self.runs(anchor))
                (self.intervals())
            };
        }
        html! {
            @if is_joined { path class="line" d=(self.line()) {} }
            (self.runs(anchor))
            (self.intervals())
            @for sample in &self.series.samples {
                @let (x, y) = self.place(sample);
                circle class="mean" cx=(short(x)) cy=(short(y)) r="4" { title { (self.told(sample)) } }
            }
        }
    }

    fn told(&self, sample: &Sample) -> String {
        let (x, y) = (self.chart.x.show(sample.x), self.chart.y.show(sample.y));
        let title = &self.chart.x.title;
        format!("{y} at {title} {x}")
    }

    fn intervals(&self) -> Markup {
        let each = self.series.samples.iter().zip(&self.series.intervals);
        html! {
            @for (sample, interval) in each {
                @if let Some((low, high)) = interval {
                    @let x = self.place(sample).0;
                    path class="interval" d=(self.whisker(x, *low, *high)) {
                        title { "95% interval " (self.chart.y.show(*low)) " to " (self.chart.y.show(*high)) }
                    }
                }
            }
        }
    }

    /// From one end of an interval to the other; an end beyond the axis has no cap.
    fn whisker(&self, x: f64, low: f64, high: f64) -> String {
        let mut path =
            format!("M{} {}V{}", short(x), short(self.y.at(low)), short(self.y.at(high)));
        for end in [low, high].into_iter().filter(|end| self.y.contains(*end)) {
            let _ = write!(path, "M{} {}h7", short(x - 3.5), short(self.y.at(end)));
        }
        path
    }

    /// Every run as a dot that leads to it.
    fn runs(&self, anchor: &dyn Fn(&str) -> Option<String>) -> Markup {
        // The only run of a point is its mean.
        let alone = self.series.runs.len() <= self.series.samples.len();
        html! {
            @for run in self.series.runs.iter() {
                @let (x, y) = self.place(&Sample { x: run.x, y: run.y });
                // Beside the interval.
                @let x = if alone { x } else { x + 7.0 };
                @let dot = html! {
                    circle class="run" cx=(short(x)) cy=(short(y)) r=(if alone { "6" } else { "3.5" }) {
                        title { "run " (run.run) ": " (self.chart.y.show(run.y)) }
                    }
                };
                @match anchor(&run.run) {
                    Some(anchor) => a href=(anchor) { (dot) },
                    None => (dot),
                }
            }
        }
    }

    /// Bars from each sample to the next.
    fn bars(&self) -> Markup {
        let samples = &self.series.samples;
        let base = self.y.at(0.0);
        html! {
            @for pair in samples.windows(2) {
                @let (from, to) = (self.x.at(pair[0].x), self.x.at(pair[1].x));
                @let top = self.y.at(pair[0].y);
                rect x=(short(from + 0.5)) y=(short(top)) width=(short((to - from - 1.0).max(0.5)))
                    height=(short((base - top).max(0.0))) {
                    title {
                        (self.chart.x.show(pair[0].x)) " to " (self.chart.x.show(pair[1].x)) ": "
                        (self.chart.y.show(pair[0].y))
                    }
                }
            }
        }
    }
}
