//! The report of a comparison of two studies or two runs.

use wirecost_analyze::metrics;
use wirecost_model::comparison::{
    ComparedFigure, Comparison, Difference, DifferenceKind, Side, SideEstimate, Verdict,
};
use wirecost_model::document::{Cell, Column, Document, Number, Section, Table, show};
use wirecost_model::metric::Unit;
use wirecost_model::study::{Point, Value};
use wirecost_model::units;

/// Other differences come first, because they may be the cause of a difference between figures.
#[must_use]
pub fn report(comparison: &Comparison) -> Document {
    let (a, b) = (&comparison.a, &comparison.b);
    let mut report = Document::new(&format!("{} (B) compared with {} (A)", b.name, a.name));
    report.sections = vec![surroundings(comparison)];
    report.sections.extend(figures(comparison));
    report.sections.extend(overall(comparison));
    report.sections.extend(sensitivity(comparison));
    report.sections.push(verdict(comparison));
    report
}

fn surroundings(comparison: &Comparison) -> Section {
    let mut section = Section::named("differences", "Other differences");
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        section.text(format!("{letter}: {}.", described(side)));
    }
    let common: Vec<String> =
        common(comparison).iter().map(|axis| format!("{}={}", axis.name, axis.value)).collect();
    if !common.is_empty() {
        section.text(format!("All points have {}.", common.join(" ")));
    }
    for unknown in &comparison.unknown {
        section.text(format!("{unknown}."));
    }
    if comparison.differences.is_empty() {
        section.text("No differences of versions, hosts or settings were found.");
    }
    for difference in &comparison.differences {
        section.text(told(difference));
    }
    section
}

/// The name stands in the title.
fn described(side: &Side) -> String {
    let runs = units::counted(side.runs, "run", "runs");
    let points = units::counted(side.points, "point", "points");
    let mut text = match &side.study {
        Some(study) if !study.is_empty() => format!("{study}, {runs} of {points}"),
        _ => format!("{runs} of {points}"),
    };
    if side.failed > 0 {
        text += &format!("; {} excluded", units::counted(side.failed, "failed run", "failed runs"));
    }
    text
}

fn told(difference: &Difference) -> String {
    let kind = match difference.kind {
        DifferenceKind::Wirecost => "wirecost",
        DifferenceKind::Run => "run",
        DifferenceKind::Study => "study",
        DifferenceKind::Kernel => "kernel",
        DifferenceKind::Sysctl => "sysctl",
        DifferenceKind::Offload => "offload",
        DifferenceKind::Mitigation => "mitigation",
        DifferenceKind::Frequency => "frequency",
        DifferenceKind::Cpu => "cpu",
        DifferenceKind::Device => "device",
        DifferenceKind::Memory => "memory",
        DifferenceKind::Path => "packet path",
        DifferenceKind::Process => "process",
    };
    let value = |value: &Option<String>| match value.as_deref() {
        Some("") => "nothing".to_owned(),
        Some(value) => value.to_owned(),
        None => "unknown".to_owned(),
    };
    let hosts = match difference.hosts.as_slice() {
        [] => String::new(),
        hosts => format!(" on {}", hosts.join(", ")),
    };
    let (a, b) = (value(&difference.a), value(&difference.b));
    format!("{kind} {}{hosts}: A {a}; B {b}", difference.what)
}

/// A section for each figure.
fn figures(comparison: &Comparison) -> Vec<Section> {
    let Some(first) = comparison.points.first() else { return Vec::new() };
    let of = |place: usize| {
        let name = &first.figures[place].metric;
        let selector = metrics::find(name).ok();
        let unit = selector.as_ref().map_or(Unit::Ratio, |selector| selector.metric().unit);
        let mut section = Section::new(&titled(name));
        section.name = name.clone();
        section.table(table(comparison, place, unit));
        section
    };
    (0..first.figures.len()).map(of).collect()
}

fn titled(name: &str) -> String {
    let metric = metrics::find(name).map(|selector| selector.metric());
    let (host, short) = match name.strip_prefix("hosts.").and_then(|rest| rest.split_once('.')) {
        Some((host, _)) => (format!(" of the {host}"), metric.map_or(name, |m| m.name)),
        None => (String::new(), name),
    };
    match short {
        "cycles_per_kbyte" => format!("cycles/KByte{host}"),
        short => format!("{short}{host}"),
    }
}

fn table(comparison: &Comparison, place: usize, unit: Unit) -> Table {
    let common = common(comparison);
    let mut axes = axes(comparison.points.iter().map(|compared| &compared.point));
    axes.retain(|axis| common.iter().all(|value| value.name != *axis));
    let mut columns: Vec<Column> = axes.iter().map(|axis| Column::number(axis)).collect();
    columns.extend(["A", "B", "B/A"].map(Column::number));
    columns.extend(["interval", "B is"].map(Column::text));
    columns.push(Column::number("detectable").drop_order(1));
    let rows = comparison.points.iter().map(|compared| {
        let figure = &compared.figures[place];
        let key = |axis: &&str| Cell::set(compared.point.get(axis).unwrap_or_default());
        let mut row: Vec<Cell> = axes.iter().map(key).collect();
        let reason = || figure.reason.clone().unwrap_or_else(|| "not measured".to_owned());
        let seen = |seen: &Option<SideEstimate>| match seen {
            Some(seen) => Cell::Number(Number {
                value: seen.mean,
                interval: seen.interval,
                text: show(unit, seen.mean),
                unit,
            }),
            None => Cell::Missing(reason()),
        };
        row.extend([seen(&figure.a), seen(&figure.b)]);
        row.push(match figure.ratio {
            Some(ratio) => Cell::Number(Number {
                value: ratio,
                // Not one of 95%: it has a column of its own.
                interval: None,
                text: shown_ratio(ratio),
                unit: Unit::Ratio,
            }),
            None => Cell::Missing(reason()),
        });
        row.push(match figure.interval {
            Some(interval) => Cell::text(shown_interval(interval)),
            None => Cell::Missing(reason()),
        });
        row.push(Cell::text(figure.verdict.word()));
        row.push(figure.detectable_change.map_or_else(|| Cell::Missing(reason()), change_cell));
        row
    });
    // As lists of runs name them.
    let points = comparison.points.iter().map(|compared| compared.point.to_string()).collect();
    Table { rows: rows.collect(), columns, common, points, ..Table::default() }
}

/// Axes with the same value at all points, of which rows then say nothing. A single point has all that
/// it is in its row.
pub(crate) fn common(comparison: &Comparison) -> Vec<Value> {
    let points = || comparison.points.iter().map(|compared| &compared.point);
    let Some(first) = points().next().filter(|_| comparison.points.len() > 1) else {
        return Vec::new();
    };
    let is_same = |axis: &&Value| points().all(|point| point.get(&axis.name) == Some(&axis.value));
    first.axes.iter().filter(is_same).cloned().collect()
}

/// Axes of the points, in the order of the first that has them.
pub(crate) fn axes<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<&'a str> {
    let mut axes: Vec<&str> = Vec::new();
    for axis in points.flat_map(|point| &point.axes) {
        if !axes.contains(&axis.name.as_str()) {
            axes.push(&axis.name);
        }
    }
    axes
}

pub(crate) fn shown_ratio(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.3}") } else { units::three_digits(ratio) }
}

/// Ends so far away say no more than that nothing is known.
pub(crate) const FAR: f64 = 1000.0;

pub(crate) fn shown_interval((low, high): (f64, f64)) -> String {
    let low = if low < 1.0 / FAR { format!("< {}", 1.0 / FAR) } else { shown_ratio(low) };
    let high = if high > FAR { format!("> {FAR}") } else { shown_ratio(high) };
    format!("{low} to {high}")
}

/// A relative change that would be detected.
pub(crate) fn change_cell(change: f64) -> Cell {
    let text = match change {
        // A change so large says no more than that nothing can be detected.
        change if change > 100.0 => "over 100x".to_owned(),
        change if change >= 1.0 => format!("{}x", units::three_digits(1.0 + change)),
        change => format!("{}%", units::three_digits(100.0 * change)),
    };
    Cell::Number(Number { value: change, interval: None, text, unit: Unit::Ratio })
}

/// Each figure over all points.
fn overall(comparison: &Comparison) -> Option<Section> {
    if comparison.overall.is_empty() {
        return None;
    }
    let mut section = Section::named("overall", "Over all points");
    let mut columns = vec![Column::text("figure")];
    columns.extend(["points", "B/A"].map(Column::number));
    columns.extend(["interval", "B is"].map(Column::text));
    columns.push(Column::number("adjusted p").drop_order(1));
    let mut table = Table::new(columns);
    for figure in &comparison.overall {
        let number =
            |value, text| Cell::Number(Number { value, interval: None, text, unit: Unit::Ratio });
        table.row(vec![
            Cell::text(titled(&figure.metric)),
            Cell::number(Unit::Count, figure.points as f64),
            number(figure.ratio, shown_ratio(figure.ratio)),
            Cell::text(shown_interval(figure.interval)),
            Cell::text(figure.verdict.word()),
            number(figure.p_value_corrected, shown_p(figure.p_value_corrected)),
        ]);
    }
    section.table(table);
    section.note("B/A is the geometric mean of the ratios of the points.");
    Some(section)
}

fn shown_p(p_value: f64) -> String {
    if p_value < 0.0001 { "< 0.0001".to_owned() } else { format!("{p_value:.4}") }
}

/// What could have been detected.
fn sensitivity(comparison: &Comparison) -> Option<Section> {
    if comparison.sensitivity.is_empty() {
        return None;
    }
    let mut section = Section::named("sensitivity", "Sensitivity");
    let mut columns = vec![Column::text("figure")];
    columns.extend(
        ["least noisy", "noisiest", "overall", "runs (each)", "runs (all)"].map(Column::number),
    );
    let mut table = Table::new(columns);
    for of in &comparison.sensitivity {
        let runs = |runs: Option<u64>| match runs {
            Some(runs) => Cell::number(Unit::Count, runs as f64),
            None => Cell::text("over 10,000"),
        };
        let one_point = || Cell::Missing("only one point was tested".to_owned());
        table.row(vec![
            Cell::text(titled(&of.metric)),
            change_cell(of.at_points.0),
            change_cell(of.at_points.1),
            of.overall.map_or_else(one_point, change_cell),
            runs(of.runs_for_5_percent_at_each_point),
            of.overall.map_or_else(one_point, |_| runs(of.runs_for_5_percent_overall)),
        ]);
    }
    section.table(table);
    section.note(
        "The smallest change detectable with 80% power: at the least noisy point, at the noisiest, and over \
         all points. Runs: of a point on each side, to detect 5% at each point, and over all points.",
    );
    Some(section)
}

fn verdict(comparison: &Comparison) -> Section {
    let mut section = Section::named("verdict", "Verdict");
    for (letter, points) in [("A", &comparison.only_in_a), ("B", &comparison.only_in_b)] {
        if !points.is_empty() {
            let names: Vec<String> = points.iter().map(Point::to_string).collect();
            section.text(format!("Only in {letter}: {}.", names.join("; ")));
        }
    }
    for left_out in &comparison.not_compared {
        section.text(format!("Not compared: {}: {}.", left_out.point, left_out.reason));
    }
    let percent = format!("{}%", (1e6 * comparison.threshold).round() / 1e4);
    for (verdict, word) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
        let all = || comparison.figures().filter(|(_, figure)| figure.verdict == verdict);
        let extreme = all().max_by(|(_, a), (_, b)| change(a).total_cmp(&change(b)));
        if let Some((point, figure)) = extreme {
            let figures = units::counted(all().count() as u64, "figure is", "figures are");
            let most = match figure.ratio {
                Some(ratio) => format!("{:+.1}%", 100.0 * (ratio - 1.0)),
                None => "from 0".to_owned(),
            };
            section.text(format!(
                "{figures} significantly {word} by more than {percent}. Largest change: {} at {point} \
                 ({most}).",
                titled(&figure.metric)
            ));
        }
    }
    let different = comparison.count(Verdict::Different) as u64;
    if different > 0 {
        let figures = units::counted(different, "figure differs", "figures differ");
        section.text(format!(
            "{figures} significantly, but by no more than {percent}, or neither direction is better."
        ));
    }
    for figure in &comparison.overall {
        if let Verdict::Worse | Verdict::Better | Verdict::Different = figure.verdict {
            section.text(format!(
                "Over all points, {} of B is {} ({:+.1}%, adjusted p {}).",
                titled(&figure.metric),
                figure.verdict.word(),
                100.0 * (figure.ratio - 1.0),
                shown_p(figure.p_value_corrected)
            ));
        }
    }
    let none = [Verdict::Worse, Verdict::Better, Verdict::Different].into_iter().all(|verdict| {
        let overall = comparison.overall.iter().filter(|figure| figure.verdict == verdict);
        comparison.count(verdict) + overall.count() == 0
    });
    let overall = comparison.overall.len();
    let tests = units::counted(comparison.tests + overall as u64, "comparison", "comparisons");
    match (comparison.tests, none) {
        (0, _) => section.text("No significance test: it needs two runs or more on each side."),
        (_, true) => section.text(format!("No significant difference in {tests}.")),
        (_, false) => section.text(format!(
            "Significant: p < 0.05 by moderated t-tests of log ratios, corrected for {tests}{} (Holm).",
            if overall > 0 { format!(", {overall} of them over all points") } else { String::new() }
        )),
    }
    let confidence = comparison.figures().filter_map(|(_, figure)| figure.interval_confidence);
    if let Some(confidence) = confidence.reduce(f64::max) {
        section.text(format!(
            "Intervals are at the level of their corrected test ({:.2}% at single points): one excludes 1 \
             exactly if its difference is significant.",
            100.0 * confidence
        ));
    }
    section
}

/// How far the figure went, up or down alike.
pub(crate) fn change(figure: &ComparedFigure) -> f64 {
    figure.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_far_away_are_bounds() {
        assert_eq!(shown_interval((0.5, 20.0)), "0.500 to 20.0");
        assert_eq!(shown_interval((0.001, 1000.0)), "0.001 to 1000");
        assert_eq!(shown_interval((0.000_9, 1000.1)), "< 0.001 to > 1000");
        assert_eq!(shown_interval((0.0, f64::INFINITY)), "< 0.001 to > 1000");
    }
}
