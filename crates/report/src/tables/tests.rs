//! Tables of real runs, as data, and of runs that no probe watched.

use std::fmt::Write;

use wirecost_model::document::{Block, Cell};
use wirecost_model::run::Run;
use wirecost_model::study::{Point, StudyRunRef, Value};

use super::*;

/// Runs of a built-in study, cut down to what its table reads.
pub(super) fn fixture(name: &str) -> Measurements {
    let file = format!("{}/tests/fixtures/tables/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = match std::env::var("WIRECOST_RUNS") {
        // For a look at other runs.
        Ok(folder) => std::fs::read_to_string(format!("{folder}/{name}.json")),
        Err(_) => std::fs::read_to_string(file),
    };
    let runs: Vec<Run> = serde_json::from_str(&text.unwrap()).unwrap();
    Measurements::of(runs.into_iter().map(|run| (String::new(), run)))
}

/// The same but for the digits that were written down.
#[track_caller]
pub(super) fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} is not {b}");
}

pub(super) fn section(name: &str, measured: &Measurements) -> Section {
    find(name).unwrap().build(measured)
}

/// The data, cell by cell: `text {low, high}`, and `! why` of what is missing.
pub(super) fn shown(section: &Section) -> String {
    let mut out = format!("== {}\n", section.title);
    for block in &section.blocks {
        match block {
            Block::Text(text) => writeln!(out, "\n{text}").unwrap(),
            Block::Table(table) => {
                let titles: Vec<&str> = table.columns.iter().map(|c| c.title.as_str()).collect();
                writeln!(out, "\n-- {}\n{}", table.title, titles.join(" | ")).unwrap();
                for row in &table.rows {
                    assert_eq!(row.len(), table.columns.len(), "{}", table.title);
                    let cells: Vec<String> = row.iter().map(cell).collect();
                    writeln!(out, "{}", cells.join(" | ").trim_end()).unwrap();
                }
            }
            other => panic!("{other:?}"),
        }
    }
    out
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Missing(why) => format!("! {why}"),
        Cell::Text(_) | Cell::Marked(_) | Cell::Set(_) | Cell::Parts(_) => cell.shown().to_owned(),
        Cell::Number(number) => match number.interval {
            Some((low, high)) => format!("{} {{{low:.3}, {high:.3}}}", number.text),
            None => number.text.clone(),
        },
    }
}

/// The cell in a row that begins so, of the table whose title begins so.
#[track_caller]
pub(super) fn at<'a>(section: &'a Section, title: &str, row: &str, column: &str) -> &'a Cell {
    let tables = section.blocks.iter().filter_map(|block| match block {
        Block::Table(table) => Some(table),
        _ => None,
    });
    let table = { tables }.find(|table| table.title.starts_with(title)).expect(title);
    let column = table.columns.iter().position(|c| c.title == column).expect(column);
    let begins = |cells: &&Vec<Cell>| match &cells[0] {
        Cell::Text(text) => text.starts_with(row),
        cell => cell.shown() == row,
    };
    &table.rows.iter().find(begins).expect(row)[column]
}

#[track_caller]
pub(super) fn value(section: &Section, title: &str, row: &str, column: &str) -> f64 {
    match at(section, title, row, column) {
        Cell::Number(number) => number.value,
        other => panic!("{other:?}"),
    }
}

/// Runs that measured nothing, at two points.
fn nothing() -> Measurements {
    let run = |place: u32| {
        let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
        let axes = vec![Value::new("case", &place.to_string())];
        let point = Point { settings: axes.clone(), axes };
        run.study = Some(StudyRunRef {
            study: String::new(),
            point,
            place,
            repeat: 1,
            order: place,
            search: None,
        });
        (String::new(), run)
    };
    Measurements::of([run(1), run(2)])
}

/// What no probe watched, of real runs.
fn unwatched(name: &str) -> Measurements {
    let mut measured = fixture(name);
    for run in measured.points.iter_mut().flat_map(|point| &mut point.runs) {
        for observed in run.observe.iter_mut().flat_map(|observe| &mut observe.hosts) {
            observed.cpu = None;
            observed.interrupts = None;
            observed.segments = None;
            observed.tcp = None;
            observed.functions = None;
        }
    }
    measured
}

#[test]
fn what_was_not_measured_says_why_and_is_no_number() {
    for name in ["lso", "function-cost", "interrupt-cost", "patterns"] {
        for measured in [nothing(), Measurements::default()] {
            let section = section(name, &measured);
            let cells = |block: &Block| match block {
                Block::Table(table) => table.rows.iter().flatten().cloned().collect(),
                _ => Vec::new(),
            };
            for cell in section.blocks.iter().flat_map(cells) {
                match cell {
                    Cell::Missing(why) => assert!(!why.is_empty(), "{name}"),
                    Cell::Text(_) | Cell::Marked(_) | Cell::Set(_) | Cell::Parts(_) => {}
                    // What the article assumes was not measured by anyone.
                    Cell::Number(number) => assert_eq!(name, "interrupt-cost", "{number:?}"),
                }
            }
        }
    }
}

#[test]
fn tables_of_runs_without_their_probes() {
    for name in ["lso", "function-cost", "interrupt-cost", "patterns"] {
        insta::assert_snapshot!(
            format!("{name}_without_probes"),
            shown(&section(name, &unwatched(name)))
        );
    }
}

#[test]
fn tables_of_real_runs() {
    for name in ["lso", "function-cost", "interrupt-cost", "patterns"] {
        insta::assert_snapshot!(name, shown(&section(name, &fixture(name))));
    }
}

/// As a person reads them.
#[test]
fn tables_fit_eighty_columns() {
    let style = crate::outputs::TerminalStyle::plain(80);
    let output = crate::outputs::find("terminal").unwrap();
    for name in ["lso", "function-cost", "interrupt-cost", "patterns"] {
        let mut report = wirecost_model::document::Document::new(name);
        report.sections.push(section(name, &fixture(name)));
        let mut text = Vec::new();
        output.write(&mut text, &report, &style).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        insta::assert_snapshot!(format!("{name}_80"), text);
    }
}
