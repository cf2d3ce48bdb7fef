//! The report of a comparison of two studies or two runs.

use wirecost_analyze::metrics;
use wirecost_model::comparison::{
    ComparedFigure, Comparison, Difference, DifferenceKind, Side, SideEstimate, Verdict,
};
use wirecost_model::document::{Cell, Column, Document, Number, Section, Table, show};
use wirecost_model::metric::Unit;
use wirecost_model::study::Point;
use wirecost_model::units;

/// Other differences come first, because they may be the cause of a difference between figures.
#[must_use]
pub fn report(comparison: &Comparison) -> Document {
    let (a, b) = (&comparison.a, &comparison.b);
    let mut report = Document::new(&format!("{} (B) compared with {} (A)", b.name, a.name));
    report.sections = vec![surroundings(comparison)];
    report.sections.extend(figures(comparison));
    report.sections.push(verdict(comparison));
    report
}

fn surroundings(comparison: &Comparison) -> Section {
    let mut section = Section::new("Other differences");
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        section.text(format!("{letter} is {}.", described(side)));
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

fn described(side: &Side) -> String {
    let runs = units::counted(side.runs, "run", "runs");
    let points = units::counted(side.points, "point", "points");
    let mut text = match &side.study {
        Some(study) if !study.is_empty() => format!("{}: {study}, {runs} of {points}", side.name),
        _ => format!("{}: {runs} of {points}", side.name),
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
    let axes = axes(comparison.points.iter().map(|compared| &compared.point));
    let mut columns: Vec<Column> = axes.iter().map(|axis| Column::number(axis)).collect();
    columns.extend(["A", "B", "B/A"].map(Column::number));
    columns.extend(["95% interval", "B is"].map(Column::text));
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
                interval: figure.interval,
                text: format!("{ratio:.3}"),
                unit: Unit::Ratio,
            }),
            None => Cell::Missing(reason()),
        });
        row.push(match (figure.interval, figure.ratio) {
            (Some((low, high)), _) => Cell::text(format!("{low:.3} to {high:.3}")),
            (None, Some(_)) if figure.reason.is_none() => {
                Cell::Missing("too variable for an interval; add runs".to_owned())
            }
            (None, _) => Cell::Missing(reason()),
        });
        row.push(Cell::text(word(figure)));
        row
    });
    Table { rows: rows.collect(), columns, ..Table::default() }
}

/// Axes of the points, in the order of the first that has them.
fn axes<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<&'a str> {
    let mut axes: Vec<&str> = Vec::new();
    for axis in points.flat_map(|point| &point.axes) {
        if !axes.contains(&axis.name.as_str()) {
            axes.push(&axis.name);
        }
    }
    axes
}

fn word(figure: &ComparedFigure) -> &'static str {
    match figure.verdict {
        Verdict::Worse => "worse",
        Verdict::Better => "better",
        Verdict::Different => "a little different",
        Verdict::Same => "not significant",
        Verdict::Unknown => "not tested",
    }
}

fn verdict(comparison: &Comparison) -> Section {
    let mut section = Section::new("Verdict");
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
    let none = [Verdict::Worse, Verdict::Better, Verdict::Different]
        .into_iter()
        .all(|verdict| comparison.count(verdict) == 0);
    let tests = units::counted(comparison.tests, "comparison", "comparisons");
    match (comparison.tests, none) {
        (0, _) => section.text("No significance test: it needs two runs or more on each side."),
        (_, true) => section.text(format!("No significant difference in {tests}.")),
        (_, false) => section.text(format!(
            "Significant: p < 0.05 by Welch's t-test, corrected for {tests} (Holm)."
        )),
    }
    section
}

/// How far the figure went, up or down alike.
fn change(figure: &ComparedFigure) -> f64 {
    figure.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs())
}
