//! Forest plots: a row with an interval for each effect, beside a line where there is none.

use maud::{Markup, html};
use wirecost_model::comparison::Verdict;
use wirecost_model::document::{AxisScale, Chart, Sample, Series, SeriesRole};
use wirecost_model::metric::{Better, Unit};

use super::axis::{Placed, apart};
use super::{LETTER, WIDTH, fitting, picture, short};
use crate::documents::comparison::{FAR, shown_interval};

const TOP: f64 = 20.0;
const BOTTOM: f64 = 44.0;
const ROW: f64 = 21.0;
const HEADING: f64 = 28.0;
/// Most room for labels.
const LABELS: f64 = 270.0;
/// Half the size of a marker.
const MARKER: f64 = 5.0;
/// Figures can be read beside an axis that is as far away.
const TALL: f64 = 520.0;
/// An interval that goes farther from no effect than the largest effect by this factor is cut off.
const REACH: f64 = 2.0;

/// A row of the plot, or the name of a group above its rows.
enum Row<'a> {
    Heading(&'a Series),
    Effect(&'a Series, usize),
}

pub(super) fn draw(chart: &Chart) -> Markup {
    let (rows, height) = rows(chart);
    let told = |series: &Series, number: usize| {
        let (sample, interval) = (series.samples[number], interval(series, number));
        match interval {
            Some(_) => format!("{} ({})", chart.y.show(sample.y), between(chart, interval)),
            None => chart.y.show(sample.y),
        }
    };
    let effects = || {
        rows.iter().filter_map(|(row, _)| match row {
            Row::Effect(series, number) => Some((*series, *number)),
            Row::Heading(_) => None,
        })
    };
    let widest = |texts: &mut dyn Iterator<Item = String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
    };
    let labels = &mut effects().map(|(series, number)| chart.x.show(series.samples[number].x));
    let left = (LETTER * (widest(labels) + 2.0)).clamp(40.0, LABELS);
    let figures = LETTER * (widest(&mut effects().map(|(of, number)| told(of, number))) + 1.0);
    let words = widest(&mut effects().map(|(of, number)| word(of, number).to_owned()));
    let right = WIDTH - figures - LETTER * (words + 1.0);
    let y = Placed::new(&chart.y, values(chart).into_iter(), (left, right.max(left + 80.0)), false);
    let right = right.max(left + 80.0);
    let bottom = TOP + height;
    let nothing = y.at(no_effect(chart));
    let content = html! {
        g class="grid" {
            @for tick in apart(y.ticks(5)) {
                line x1=(short(tick.place)) x2=(short(tick.place)) y1=(short(TOP)) y2=(short(bottom)) {}
                text x=(short(tick.place)) y=(short(bottom + 16.0)) text-anchor="middle" { (tick.text) }
                @if height > TALL {
                    text x=(short(tick.place)) y=(short(TOP - 6.0)) text-anchor="middle" { (tick.text) }
                }
            }
        }
        text class="axis" x=(short(right)) y=(short(bottom + 36.0)) text-anchor="end" { (y.title()) }
        line class="nothing" x1=(short(nothing)) x2=(short(nothing)) y1=(short(TOP)) y2=(short(bottom)) {}
        @for (row, top) in &rows {
            @match row {
                Row::Heading(series) => {
                    text class="heading" x="0" y=(short(TOP + top + 19.0)) {
                        (series.name) tspan class="direction" { (direction(series)) }
                    }
                }
                Row::Effect(series, number) => {
                    @let sample = series.samples[*number];
                    @let middle = TOP + top + ROW / 2.0;
                    g class=(class(series, *number)) data-series=(series.name) {
                        title {
                            (series.name) ", " (chart.x.show(sample.x)) ": " (told(series, *number))
                            @if !word(series, *number).is_empty() { ", " (word(series, *number)) }
                        }
                        // Room to point at.
                        rect class="row" x="0" y=(short(TOP + top)) width=(short(WIDTH)) height=(short(ROW)) {}
                        text class="label" x=(short(left - 10.0)) y=(short(middle + 4.0)) text-anchor="end" {
                            (fitting(&chart.x.show(sample.x), left - 10.0))
                        }
                        @if let Some(ends) = interval(series, *number) {
                            path class="interval" d=(whisker(&y, ends, middle)) {}
                        }
                        path class="marker" d=(marker(series, *number, (y.at(sample.y), middle))) {}
                        text class="value" x=(short(right + LETTER)) y=(short(middle + 4.0)) { (told(series, *number)) }
                        text class="word" x=(short(WIDTH)) y=(short(middle + 4.0)) text-anchor="end" { (word(series, *number)) }
                    }
                }
            }
        }
    };
    picture(chart, WIDTH, bottom + BOTTOM, &content)
}

/// All rows with their places, and the height of all.
fn rows(chart: &Chart) -> (Vec<(Row<'_>, f64)>, f64) {
    let (mut rows, mut top) = (Vec::new(), 0.0);
    for series in chart.series.iter().filter(|series| !series.samples.is_empty()) {
        if series.role != SeriesRole::Summary && !series.name.is_empty() {
            rows.push((Row::Heading(series), top));
            top += HEADING;
        }
        for number in 0..series.samples.len() {
            rows.push((Row::Effect(series, number), top));
            top += ROW;
        }
    }
    (rows, top + 6.0)
}

fn interval(series: &Series, number: usize) -> Option<(f64, f64)> {
    series.intervals.get(number).copied().flatten()
}

fn between(chart: &Chart, interval: Option<(f64, f64)>) -> String {
    interval.map_or_else(String::new, |(low, high)| {
        // Ends so far away say no more than that nothing is known.
        match chart.y.unit == Unit::Ratio && (low < 1.0 / FAR || high > FAR) {
            true => shown_interval((low, high)),
            false => format!("{} to {}", chart.y.show(low), chart.y.show(high)),
        }
    })
}

/// Where there is no effect.
fn no_effect(chart: &Chart) -> f64 {
    if chart.y.unit == Unit::Ratio { 1.0 } else { 0.0 }
}

/// What the axis must have room for: an interval can be far wider than all effects.
fn values(chart: &Chart) -> Vec<f64> {
    let is_logarithmic = chart.y.scale == AxisScale::Logarithmic;
    let nothing = no_effect(chart);
    let far = |value: f64| if is_logarithmic { (value / nothing).ln() } else { value - nothing };
    let place = |far: f64| if is_logarithmic { nothing * far.exp() } else { nothing + far };
    let effects = || chart.series.iter().flat_map(|series| &series.samples);
    let known = |sample: &&Sample| !is_logarithmic || sample.y > 0.0;
    let largest = effects().filter(known).map(|sample| far(sample.y).abs()).fold(0.0, f64::max);
    // Where nothing has changed, intervals alone say how large the picture is.
    let reach = if is_logarithmic { (REACH * largest).max(0.1) } else { REACH * largest };
    let ends = chart.series.iter().flat_map(|series| series.intervals.iter().flatten());
    let ends = ends.flat_map(|(low, high)| [*low, *high]);
    let mut values: Vec<f64> = ends
        .filter(|end| !end.is_nan())
        .map(|end| place(far(end).clamp(-reach, reach)))
        .chain(effects().filter(known).map(|sample| sample.y))
        .collect();
    values.push(nothing);
    values
}

/// Which direction is better, in words and as an arrow.
fn direction(series: &Series) -> &'static str {
    match series.better {
        Some(Better::Higher) => "  higher is better \u{2192}",
        Some(Better::Lower) => "  \u{2190} lower is better",
        Some(Better::Neither) | None => "",
    }
}

fn verdict(series: &Series, number: usize) -> Option<Verdict> {
    series.verdicts.get(number).copied()
}

fn word(series: &Series, number: usize) -> &'static str {
    verdict(series, number).map_or("", Verdict::word)
}

fn class(series: &Series, number: usize) -> &'static str {
    match verdict(series, number) {
        Some(Verdict::Better) => "effect better",
        Some(Verdict::Worse) => "effect worse",
        Some(Verdict::Same | Verdict::Unknown) => "effect same",
        Some(Verdict::Different) | None => "effect",
    }
}

/// From one end of an interval to the other; an end beyond the axis is an arrow.
fn whisker(y: &Placed<'_>, (low, high): (f64, f64), middle: f64) -> String {
    let mut path = format!("M{} {}H{}", short(y.at(low)), short(middle), short(y.at(high)));
    for (end, inwards) in [(low, 5.0), (high, -5.0)] {
        let (x, top, bottom) = (short(y.at(end)), short(middle - 4.0), short(middle + 4.0));
        match y.contains(end) {
            true => path += &format!("M{x} {top}V{bottom}"),
            false => {
                let base = short(y.at(end) + inwards);
                path += &format!("M{base} {top}L{x} {}L{base} {bottom}", short(middle));
            }
        }
    }
    path
}

/// A shape for each verdict, so that none is told by its colour alone.
fn marker(series: &Series, number: usize, (x, y): (f64, f64)) -> String {
    let r = if series.role == SeriesRole::Summary { MARKER + 2.0 } else { MARKER };
    let point = |dx: f64, dy: f64| format!("{} {}", short(x + dx), short(y + dy));
    let corners: Vec<(f64, f64)> = match verdict(series, number) {
        Some(Verdict::Better) => vec![(-r, r - 1.0), (0.0, -r), (r, r - 1.0)],
        Some(Verdict::Worse) => vec![(-r, 1.0 - r), (0.0, r), (r, 1.0 - r)],
        Some(Verdict::Different) => vec![(-r, 0.0), (0.0, -r), (r, 0.0), (0.0, r)],
        Some(Verdict::Same | Verdict::Unknown) | None => {
            let r = r - 1.0;
            vec![(-r, -r), (r, -r), (r, r), (-r, r)]
        }
    };
    let corners: Vec<String> = corners.into_iter().map(|(dx, dy)| point(dx, dy)).collect();
    format!("M{}Z", corners.join("L"))
}

#[cfg(test)]
mod tests {
    use wirecost_model::document::{Axis, ChartKind};

    use super::*;

    fn chart() -> Chart {
        let x = Axis::of_names("point", ["a", "b", "c", "all points"].map(str::to_owned));
        let y = Axis::new("B/A", Unit::Ratio).logarithmic();
        let mut chart = Chart::new("ratios", ChartKind::Forest, x, y);
        let samples = [0.8, 1.2, 1.0].into_iter().enumerate();
        let samples = samples.map(|(x, y)| Sample { x: x as f64, y }).collect();
        chart.series.push(Series {
            better: Some(Better::Higher),
            verdicts: vec![Verdict::Worse, Verdict::Better, Verdict::Same],
            intervals: vec![Some((0.7, 0.9)), Some((1.1, 1.3)), Some((1e-9, 1e9))],
            ..Series::new("throughput", samples)
        });
        chart.series.push(Series {
            role: SeriesRole::Summary,
            verdicts: vec![Verdict::Different],
            intervals: vec![Some((0.95, 1.01))],
            ..Series::new("throughput", vec![Sample { x: 3.0, y: 0.98 }])
        });
        chart
    }

    #[test]
    fn each_verdict_has_its_shape_and_its_word() {
        let drawn = draw(&chart()).into_string();
        let shapes: std::collections::BTreeSet<usize> = drawn
            .split("class=\"marker\" d=\"")
            .skip(1)
            .map(|of| of.split('"').next().unwrap().matches('L').count())
            .collect();
        // Triangles; squares and rhombs.
        assert_eq!(shapes, [2, 3].into());
        for word in ["worse", "better", "not significant", "different", "higher is better"] {
            assert!(drawn.contains(word), "no {word}: {drawn}");
        }
        // One heading for the group and its sum.
        assert_eq!(drawn.matches("class=\"heading\"").count(), 1);
    }

    #[test]
    fn an_interval_that_says_nothing_does_not_squeeze_the_others() {
        let chart = chart();
        let values = values(&chart);
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(most < 1.7 && least > 0.6, "{least} to {most}");
        let y = Placed::new(&chart.y, values.into_iter(), (0.0, 100.0), false);
        assert!(whisker(&y, (1e-9, 1e9), 10.0).contains('L'), "no arrow at an end that is cut off");
        assert!(!whisker(&y, (0.8, 0.9), 10.0).contains('L'));
    }

    #[test]
    fn an_interval_that_says_nothing_is_not_written_in_full() {
        let mut chart = chart();
        chart.y.unit = Unit::Ratio;
        assert_eq!(between(&chart, Some((0.0, 5e15))), "< 0.001 to > 1000");
        assert_eq!(between(&chart, Some((0.5, 2.0))), "0.500 to 2.00");
    }

    #[test]
    fn the_line_without_an_effect_is_in_the_picture() {
        let mut chart = chart();
        chart.series[0].samples.retain(|sample| sample.y > 1.1);
        chart.series.truncate(1);
        assert!(values(&chart).contains(&1.0));
        chart.y = Axis::new("share", Unit::Percent);
        assert!(values(&chart).contains(&0.0));
    }
}
