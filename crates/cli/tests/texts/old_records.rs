//! Records that commit a8e7742 wrote are reported, compared and explained with the figures that it found.
//! They are in `crates/store/tests/fixtures/a8e7742`, and so is what it made of them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/a8e7742")
}

/// What today's program says, and what that of a8e7742 said.
fn documents(arguments: &[&str], written: &str) -> (Value, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_wirecost"))
        .args(arguments)
        .args(["--format", "json"])
        .current_dir(fixtures())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::read(fixtures().join(written)).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), serde_json::from_slice(&written).unwrap())
}

fn is_same(now: f64, then: f64) -> bool {
    (now - then).abs() <= 1e-9 * then.abs().max(1e-9)
}

/// Every number of `then` is at its place in `now`. Texts may be worded anew, and keys be added.
/// Returns how many numbers there were.
fn has_the_numbers(now: &Value, then: &Value, place: &str) -> usize {
    match then {
        Value::Object(keys) => keys
            .iter()
            .map(|(key, then)| has_the_numbers(&now[key], then, &format!("{place}.{key}")))
            .sum(),
        Value::Array(items) => {
            assert_eq!(now.as_array().map(Vec::len), Some(items.len()), "{place}");
            let item =
                |(number, then)| has_the_numbers(&now[number], then, &format!("{place}[{number}]"));
            items.iter().enumerate().map(item).sum()
        }
        Value::Number(then) => {
            let same = now.as_f64().is_some_and(|now| is_same(now, then.as_f64().unwrap()));
            assert!(same, "{place} was {then} and is {now}");
            1
        }
        Value::Null | Value::Bool(_) => {
            assert_eq!(now, then, "{place}");
            0
        }
        Value::String(_) => {
            assert!(now.is_string(), "{place} was {then} and is {now}");
            0
        }
    }
}

/// Cells of all tables that have a number: its unit, the number, and its interval.
fn cells(document: &Value) -> Vec<(String, Vec<f64>)> {
    let mut cells = Vec::new();
    let mut next = vec![document];
    while let Some(value) = next.pop() {
        match value {
            Value::Object(keys) => {
                if let (Some(number), Some(unit)) = (keys.get("value"), keys.get("unit")) {
                    let interval = keys.get("interval").and_then(Value::as_array);
                    let numbers = interval.into_iter().flatten().chain([number]);
                    let numbers = numbers.filter_map(Value::as_f64).collect();
                    cells.push((unit.to_string(), numbers));
                }
                next.extend(keys.values());
            }
            Value::Array(items) => next.extend(items),
            _ => {}
        }
    }
    cells
}

fn has_the_cells(now: &Value, then: &Value) -> usize {
    let (now, then) = (cells(now), cells(then));
    for (unit, numbers) in &then {
        let same = |(other, found): &(String, Vec<f64>)| {
            other == unit
                && found.len() == numbers.len()
                // Intervals of figures that cannot be negative end at 0 now.
                && found.iter().zip(numbers).all(|(&now, &then)| is_same(now, then.max(0.0)))
        };
        assert!(now.iter().any(same), "{numbers:?} {unit} is gone; there are {now:?}");
    }
    then.len()
}

#[test]
fn the_tables_of_a_study_have_the_same_figures() {
    let (now, then) = documents(&["report", "a"], "report-a.json");
    assert_eq!(now["title"], then["title"]);
    assert!(has_the_cells(&now, &then) >= 16);
}

#[test]
fn the_report_of_a_run_has_the_same_figures() {
    let (now, then) = documents(&["report", "run"], "report-run.json");
    assert!(has_the_cells(&now, &then) >= 2);
}

#[test]
fn two_studies_compare_as_they_did() {
    let (now, then) = documents(&["compare", "a", "b"], "compare-a-b.json");
    assert_eq!(now["schema"], then["schema"]);
    // Differences of the definitions are told beside those of the runs now.
    let of_runs = now["differences"].as_array().unwrap().iter();
    let of_runs: Vec<&Value> = of_runs.filter(|difference| difference["kind"] != "study").collect();
    assert_eq!(of_runs, then["differences"].as_array().unwrap().iter().collect::<Vec<_>>());
    // ADR 0030 replaced the criterion, and with it ratios, intervals and verdicts.
    let figures = |document: &Value| -> Vec<Value> {
        let points = document["points"].as_array().unwrap().iter();
        let figures = points.flat_map(|point| point["figures"].as_array().unwrap());
        let means = |figure: &Value| {
            let [a, b] = ["a", "b"].map(|side| [&figure[side]["mean"], &figure[side]["runs"]]);
            serde_json::json!([figure["metric"], figure["unit"], a, b])
        };
        figures.map(means).collect()
    };
    let (now, then) = (Value::from(figures(&now)), Value::from(figures(&then)));
    assert!(has_the_numbers(&now, &then, "figures") >= 12);
}

#[test]
fn the_cost_model_of_a_study_has_the_same_parameters() {
    let (now, then) = documents(&["explain", "a"], "explain-a.json");
    assert!(has_the_numbers(&now, &then, "explain") >= 30);
}
