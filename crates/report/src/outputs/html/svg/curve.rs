//! Curves with intervals and runs, steps, and histograms.

use std::fmt::Write as _;

use maud::{Markup, html};
use wirecost_model::document::{
    AxisScale, Chart, ChartKind, RunSample, Sample, Series, SeriesRole,
};

use super::axis::{Placed, Tick, apart};
use super::{Colours, HEIGHT, LETTER, WIDTH, class, fitting, looks, picture, short};

const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 14.0;
/// Names that do not fit beside one another stand at this angle, in degrees.
const SLANT: f64 = -32.0;
/// Most room for them, in pixels along the text.
const NAME: f64 = 235.0;
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
    let x_values: Vec<f64> = samples().map(|of| of.x).chain(runs().map(|run| run.x)).collect();
    let placed =
        |left| Placed::new(&chart.x, x_values.iter().copied(), (left, WIDTH - RIGHT), false);
    let slant = Slant::of(chart, &placed(left));
    let left = slant.map_or(left, |slant| left.max(slant.before));
    let x = placed(left);
    let number = chart.series.len();
    let looks = looks(chart, colours);
    let below = slant.map_or(0.0, |slant| slant.below);
    let content = html! {
        (grid(&x, &y, left, slant))
        (marks(chart, &x))
        @for (place, series) in chart.series.iter().enumerate() {
            @let drawing = Drawing { chart, series, x: &x, y: &y, shift: shift(chart, place, number, x.step()) };
            g class=(class(looks[place])) data-series=(series.name) data-runs=[drawing.runs(anchor)]
                data-alone[drawing.is_run_alone()] {
                @match chart.kind {
                    ChartKind::Histogram => (drawing.bars()),
                    ChartKind::Steps => path class="line" d=(drawing.steps()) {},
                    _ => (drawing.curve()),
                }
            }
        }
    };
    picture(chart, WIDTH, TOP + HEIGHT + BOTTOM + below, &content)
}

/// Names at an angle, where they do not fit beside one another.
#[derive(Debug, Clone, Copy)]
struct Slant {
    /// Room for the first name before the area, in pixels.
    before: f64,
    /// More room below the area, in pixels.
    below: f64,
}

impl Slant {
    fn of(chart: &Chart, x: &Placed<'_>) -> Option<Self> {
        let names = x.ticks(8);
        if chart.x.scale != AxisScale::Names || apart(names.clone()).len() == names.len() {
            return None;
        }
        let length = |name: &Tick| (LETTER * name.text.chars().count() as f64).min(NAME);
        let (sine, cosine) = (-SLANT).to_radians().sin_cos();
        Some(Self {
            before: (names.first().map_or(0.0, length) + LETTER) * cosine - x.step() / 2.2,
            below: names.iter().map(length).fold(0.0, f64::max) * sine,
        })
    }
}

/// A place to a thousandth of a pixel.
fn fine(value: f64) -> String {
    format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
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

/// The script draws parts of the area again, by what is said of it here.
fn grid(x: &Placed<'_>, y: &Placed<'_>, left: f64, slant: Option<Slant>) -> Markup {
    let bottom = TOP + HEIGHT;
    let area = format!("{} {TOP} {} {bottom}", short(left), short(WIDTH - RIGHT));
    let below = slant.map_or(0.0, |slant| slant.below);
    let ticks = x.ticks(8);
    let shown = if slant.is_some() { ticks.clone() } else { apart(ticks.clone()) };
    // Labels without room are shown in parts of the area.
    let ticks = if x.is_labelled() { ticks } else { shown.clone() };
    html! {
        g class="grid" data-area=(area) data-x=(x.data()) data-y=(y.data()) data-labelled[x.is_labelled()] {
            @for tick in y.ticks(5) {
                line x1=(short(left)) x2=(short(WIDTH - RIGHT)) y1=(short(tick.place)) y2=(short(tick.place)) {}
                text x=(short(left - 7.0)) y=(short(tick.place + 4.0)) text-anchor="end" { (tick.text) }
            }
            @for tick in ticks {
                @let place = short(tick.place);
                g class={ "tick" @if !shown.contains(&tick) { " spare" } } {
                    line x1=(place) x2=(place) y1=(short(bottom)) y2=(short(bottom + 5.0)) {}
                    @match slant {
                        Some(_) => {
                            @let turned = format!("rotate({SLANT} {place} {})", short(bottom + 15.0));
                            text x=(place) y=(short(bottom + 15.0)) text-anchor="end" transform=(turned) {
                                (fitting(&tick.text, NAME))
                            }
                        }
                        None => text x=(place) y=(short(bottom + 19.0)) text-anchor="middle" { (tick.text) },
                    }
                }
            }
        }
        line class="base" x1=(short(left)) x2=(short(WIDTH - RIGHT)) y1=(short(bottom)) y2=(short(bottom)) {}
        text class="axis" x="0" y="12" { (y.title()) }
        text class="axis" x=(short(WIDTH - RIGHT)) y=(short(bottom + 38.0 + below)) text-anchor="end" {
            (x.title())
        }
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

    fn curve(&self) -> Markup {
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
                (self.intervals())
            };
        }
        html! {
            @if is_joined { path class="line" d=(self.line()) {} }
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
            let _ = write!(path, "M{} {}m-3.5 0h7", short(x), short(self.y.at(end)));
        }
        path
    }

    /// Every run for the script, which draws it as a dot that leads to it: place, figure, name, and the link
    /// where it is not that of the name.
    fn runs(&self, anchor: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let line = |run: &RunSample| {
            let (x, y) = self.place(&Sample { x: run.x, y: run.y });
            let name = run.run.replace(['\t', '\n'], " ");
            let mut line =
                format!("{}\t{}\t{}\t{name}", short(x), short(y), self.chart.y.show(run.y));
            if let Some(link) = anchor(&run.run).filter(|link| *link != format!("#run-{name}")) {
                let _ = write!(line, "\t{link}");
            }
            line
        };
        let lines: Vec<String> = self.series.runs.iter().map(line).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// The only run of a point is its mean: there is no room for it beside that.
    fn is_run_alone(&self) -> bool {
        self.series.runs.len() <= self.series.samples.len()
    }

    /// Bars from each sample to the next.
    fn bars(&self) -> Markup {
        let samples = &self.series.samples;
        let base = self.y.at(0.0);
        html! {
            @for pair in samples.windows(2) {
                @let (from, to) = (self.x.at(pair[0].x), self.x.at(pair[1].x));
                @let top = self.y.at(pair[0].y);
                // Of a long tail a part can be drawn.
                rect x=(short(from + 0.5)) y=(fine(top)) width=(short((to - from - 1.0).max(0.5)))
                    height=(fine((base - top).max(0.0))) {
                    title {
                        (self.chart.x.show(pair[0].x)) " to " (self.chart.x.show(pair[1].x)) ": "
                        (self.chart.y.show(pair[0].y))
                    }
                }
            }
        }
    }
}
