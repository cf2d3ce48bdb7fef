//! `compare`, `explain` and `predict` on studies made of a real run's document with other figures.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::document::validator;
use crate::program::{Finished, Program, until};

/// The document of a real run.
fn run() -> Value {
    Program::short_run("@stream", &["--connections", "2"]).measure().value().clone()
}

/// A run: size, connections, repeat, and what is changed in it.
type Edited<'a> = (&'a str, u32, u32, &'a dyn Fn(&mut Value));

/// A study of these runs.
fn study(directory: &Path, run: &Value, runs: &[Edited<'_>]) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("study.toml"), "title = \"made\"\n").unwrap();
    let mut points: Vec<(&str, u32)> = Vec::new();
    for (size, connections, repeat, change) in runs {
        let point = (*size, *connections);
        let known = points.iter().position(|other| *other == point);
        let place = known.unwrap_or_else(|| {
            points.push(point);
            points.len() - 1
        }) + 1;
        let axes = json!([
            {"name": "size", "value": size},
            {"name": "connections", "value": connections.to_string()},
        ]);
        let mut run = run.clone();
        run["study"] = json!({
            "study": "made",
            "point": {"axes": axes, "settings": axes},
            "place": place,
            "repeat": repeat,
            "order": 1,
        });
        change(&mut run);
        let record = directory.join(format!("runs/{place:04}-{repeat:02}"));
        fs::create_dir_all(&record).unwrap();
        fs::write(record.join("run.json"), run.to_string()).unwrap();
        fs::write(record.join("hosts.json"), "{\"master\": null}").unwrap();
    }
}

fn set_throughput(run: &mut Value, bits_per_second: f64) {
    run["throughput"]["bits_per_second"] = bits_per_second.into();
    run["throughput"]["tx_bits_per_second"] = bits_per_second.into();
}

/// Three runs around a throughput.
fn around(directory: &Path, run: &Value, gigabits: f64) {
    let faster = |factor: f64| move |run: &mut Value| set_throughput(run, gigabits * 1e9 * factor);
    let (less, same, more) = (faster(0.995), faster(1.0), faster(1.005));
    study(directory, run, &[("64k", 8, 1, &less), ("64k", 8, 2, &same), ("64k", 8, 3, &more)]);
}

fn json(finished: &Finished, schema: &str) -> Value {
    let value: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{finished}"));
    let errors: Vec<String> =
        validator(schema).iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    value
}

const COMPARE: &str = include_str!("../../../../docs/schema/wirecost.compare-1.json");
const MODEL: &str = include_str!("../../../../docs/schema/wirecost.model-1.json");

/// Runs the program and holds it to its exit code.
#[track_caller]
fn wirecost(program: Program, arguments: &[&str], code: i32) -> Finished {
    let finished = program.args(arguments).finish();
    assert_eq!(finished.code, code, "{finished}");
    finished
}

#[test]
fn what_is_worse_makes_the_exit_code_1() {
    let run = run();
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (before, slower) = (path("before"), path("slower"));
    around(Path::new(&before), &run, 10.0);
    around(Path::new(&slower), &run, 8.0);
    let other = "title = \"made\"\n[set]\n\"option.wndsz\" = \"64k\"\n";
    fs::write(Path::new(&slower).join("study.toml"), other).unwrap();
    let throughput = ["--metric", "throughput"];
    let compare = |a: &str, b: &str| Program::new(["compare", a, b]);

    let finished = wirecost(compare(&before, &slower), &throughput, 1);
    assert!(finished.stdout.contains("significantly worse by more than 5%"), "{finished}");
    // Sentences are broken into lines.
    let text = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("throughput at size=64k connections=8 (-20.0%)"), "{finished}");
    assert!(text.contains("study set.option.wndsz: A not set; B \"64k\""), "{finished}");
    let order = ["Other differences", "B/A", "Verdict"].map(|word| finished.stdout.find(word));
    assert!(order.is_sorted() && order[0].is_some(), "{finished}");

    wirecost(compare(&before, &slower), &["--metric", "throughput", "--threshold", "30%"], 0);
    let finished = wirecost(compare(&slower, &before), &throughput, 0);
    assert!(finished.stdout.contains("significantly better"), "{finished}");
    let finished = wirecost(compare(&before, &before), &[], 0);
    assert!(finished.stdout.contains("No significant difference in"), "{finished}");

    let json_of = ["--metric", "throughput", "--format", "json"];
    let document = json(&wirecost(compare(&before, &slower), &json_of, 1), COMPARE);
    assert_eq!(document["status"], "failed");
    let figure = &document["points"][0]["figures"][0];
    assert_eq!(figure["verdict"], "worse");
    assert!((figure["ratio"].as_f64().unwrap() - 0.8).abs() < 1e-9);
    assert_eq!(document["a"]["runs"], 3);

    let finished = wirecost(compare(&before, &slower), &["--format", "markdown"], 1);
    assert!(finished.stdout.contains("| 64k"), "{finished}");
}

#[test]
fn two_real_runs_of_the_same_thing_are_never_called_different() {
    let path = |finished: &Finished| finished.path("run.json").display().to_string();
    let run = || {
        let finished = Program::short_run("@stream", &["--json", "run.json"]).finish();
        // Who got no CPU at all has nothing to compare; that is tested elsewhere.
        (finished.code == 0).then_some(finished)
    };
    let pair = (0..4).find_map(|_| run().zip(run())).expect("two runs");
    let (a, b) = (path(&pair.0), path(&pair.1));
    let finished = wirecost(Program::new(["compare", &a, &b]), &[], 0);
    assert!(finished.stdout.contains("it needs two runs or more on each side"), "{finished}");
    let document = wirecost(Program::new(["compare", &a, &b]), &["--format", "json"], 0);
    let document = json(&document, COMPARE);
    let figures = document["points"][0]["figures"].as_array().unwrap();
    assert!(!figures.is_empty() && figures.iter().all(|figure| figure["verdict"] == "unknown"));
}

/// A short window without probes.
const BRIEF: &str = "--duration 200ms --ramp 20ms --observe none";

/// `compare --run` of these settings of a profile, with their effect on the rate.
fn side_by_side(arguments: &[&str]) -> Program {
    let (a, b) = (format!("@rr {BRIEF}"), format!("@rr --connections 3 {BRIEF}"));
    Program::new(["compare", "--run", &a, &b]).args(arguments)
}

#[test]
fn two_settings_are_run_by_turns_and_compared() {
    let arguments =
        ["--repeat", "2", "--axis", "request=64,1k", "--format", "json", "--out", "kept"];
    let finished = side_by_side(&arguments).finish();
    // Whether one is worse is for the noise of this machine to say.
    assert!([0, 1].contains(&finished.code), "{finished}");
    let document = json(&finished, COMPARE);
    assert_eq!(document["points"].as_array().unwrap().len(), 2);
    for side in ["a", "b"] {
        assert_eq!(document[side]["runs"], 4, "{side}");
    }
    let differences = document["differences"].as_array().unwrap();
    let connections = differences.iter().find(|told| told["what"] == "connections");
    let connections = connections.unwrap_or_else(|| panic!("{finished}"));
    assert_eq!((&connections["a"], &connections["b"]), (&json!("not set"), &json!("3")));

    // The runs of the sides alternate: none has all of its runs before the other.
    let kept = finished.path("kept");
    let sides: std::collections::BTreeMap<u64, String> = fs::read_dir(kept.join("runs"))
        .unwrap()
        .map(|entry| {
            let text = fs::read_to_string(entry.unwrap().path().join("run.json")).unwrap();
            let run: Value = serde_json::from_str(&text).unwrap();
            let side = run["study"]["point"]["axes"][0]["value"].as_str().unwrap().to_owned();
            let expected = if side == "B" { Some(3) } else { None };
            if let Some(connections) = expected {
                assert_eq!(run["connections"]["open"], connections);
            }
            (run["study"]["order"].as_u64().unwrap(), side)
        })
        .collect();
    let first_half: Vec<&String> = sides.values().take(5).collect();
    assert!(first_half.iter().any(|side| *side == "A") && first_half.iter().any(|s| *s == "B"));

    // What was kept is a study like others.
    let kept = kept.display().to_string();
    let by = wirecost(
        Program::new(["compare", &kept, "--by", "side"]),
        &["--format", "json"],
        finished.code,
    );
    let by = json(&by, COMPARE);
    assert_eq!(by["points"], document["points"]);
}

#[test]
fn a_study_is_compared_by_an_axis() {
    let run = run();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("study").display().to_string();
    let rate = |gigabits: f64| move |run: &mut Value| set_throughput(run, gigabits * 1e9);
    let rates: Vec<_> = (0..6).map(|at| rate([10.0, 10.1, 9.9, 5.0, 5.05, 4.95][at])).collect();
    let mut runs: Vec<Edited<'_>> = Vec::new();
    for (at, change) in rates.iter().enumerate() {
        let (size, repeat) = (["64k", "1k"][at / 3], at as u32 % 3 + 1);
        runs.push((size, 8, repeat, change));
    }
    study(Path::new(&path), &run, &runs);
    let compare = |by: &str| Program::new(["compare", &path, "--by", by, "--metric", "throughput"]);
    let finished = wirecost(compare("size"), &[], 1);
    assert!(finished.stdout.contains("size=1k (B) compared with size=64k (A)"), "{finished}");
    wirecost(compare("size=1k,64k"), &[], 0);
    for (by, wanted) in [
        ("sise", "has no axis sise"),
        ("connections", "has 1 values: 8"),
        ("size=64k,2k", "has no value 2k"),
        ("size=64k", "must be AXIS or AXIS=A,B"),
    ] {
        let finished = wirecost(compare(by), &[], 2);
        assert!(finished.stderr.contains(wanted), "{finished}");
    }
}

#[test]
fn runs_that_cannot_be_made_are_refused_before_the_first() {
    for (a, b, wanted) in [
        ("@rr", "@stream", "settings of one profile"),
        ("@rr --enginee epoll", "@rr", "A (\"@rr --enginee epoll\"): unexpected argument"),
        ("@rr", "@rr --var 'size=1", "a quotation mark is not closed"),
        ("@rr", "@rr --var sise=1", "sise"),
    ] {
        let finished = Program::new(["compare", "--run", a, b, "--format", "json"]).finish();
        assert_eq!(finished.code, 2, "{finished}");
        assert!(finished.stderr.contains(wanted), "{wanted}: {finished}");
        let document = json(&finished, COMPARE);
        assert_eq!(document["status"], "usage");
        assert_eq!((&document["a"]["name"], &document["b"]["name"]), (&json!(a), &json!(b)));
    }
    for arguments in [["compare", "a", "--repeat"], ["compare", "--by", "x"]] {
        wirecost(Program::new(arguments), &[], 2);
    }
}

#[test]
fn a_run_can_be_repeated() {
    const REPORT: &str = include_str!("../../../../docs/schema/wirecost.report-1.json");
    let repeat = |arguments: &[&str]| {
        let options = ["--duration", "200ms", "--ramp", "20ms", "--observe", "none", "--quiet"];
        Program::new(["run", "@rr", "--repeat", "3"]).args(options).args(arguments)
    };
    repeat(&["--json", "-"]).finish_and(|finished| {
        assert_eq!(finished.code, 0, "{finished}");
        let report = json(finished, REPORT);
        let rows = report["sections"][0]["blocks"][0]["table"]["rows"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row[0]["text"] == "transactions").expect("transactions");
        let value = |column: usize| row[column]["number"]["value"].as_f64().unwrap();
        let (mean, least, most) = (value(1), value(2), value(3));
        assert!(least <= mean && mean <= most && least > 0.0, "{row}");
        assert!(row[1]["number"]["interval"][0].as_f64().unwrap() < mean, "{row}");
    });

    repeat(&["--out", "kept", "--var", "request=1k"]).finish_and(|finished| {
        assert_eq!(finished.code, 0, "{finished}");
        assert!(finished.stdout.contains("variation"), "{finished}");
        let runs = fs::read_dir(finished.path("kept").join("runs")).unwrap().count();
        assert_eq!(runs, 3);
        let first = finished.path("kept").join("runs/0001-02/run.json");
        let run: Value = serde_json::from_str(&fs::read_to_string(first).unwrap()).unwrap();
        let options = run["options"].as_array().unwrap();
        assert!(options.contains(&json!({"name": "request", "value": "1k"})), "{options:?}");
    });

    let finished = wirecost(repeat(&["--format", "uperf"]), &[], 2);
    assert!(finished.stderr.contains("--repeat makes several"), "{finished}");
    let finished = wirecost(repeat(&["--json", "-", "--var", "sise=1"]), &[], 2);
    assert_eq!(json(&finished, REPORT)["status"], "usage");
    // Also where the command line itself is not understood.
    let bad: [&[&str]; 3] = [&["--repeat", "0"], &["--repeat=x"], &["--repeat", "3", "--nonsense"]];
    for arguments in bad {
        let run = Program::new(["run", "@rr", "--json", "-"]).args(arguments);
        let finished = wirecost(run, &[], 2);
        assert_eq!(json(&finished, REPORT)["status"], "usage");
        let says = finished.stderr.contains("a number of runs from 1 to 1000, such as 5");
        assert_eq!(says, arguments.len() < 3, "{finished}");
    }
}

#[test]
fn what_is_interrupted_is_not_judged() {
    const REPORT: &str = include_str!("../../../../docs/schema/wirecost.report-1.json");
    let settings = "@rr --duration 1h --ramp 0s --observe none";
    let compare = Program::new(["compare", "--run", settings, settings, "--format", "json"]);
    let repeat = ["--repeat", "3", "--json", "-"];
    let repeat = Program::new("run".split(' ').chain(settings.split(' '))).args(repeat);
    for (program, schema) in [(compare, COMPARE), (repeat, REPORT)] {
        let running = program.start();
        until("both agents run", || running.children().len() == 2);
        running.signal(Signal::INT);
        let finished = running.wait();
        assert_eq!(finished.code, 130, "{finished}");
        let document = json(&finished, schema);
        assert_eq!(document["status"], "interrupted");
        assert_eq!(document["error"], "interrupted before all runs were made");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let run = run();
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (a, other, profile, newer) =
        (path("a"), path("other"), path("profile"), path("newer.json"));
    around(Path::new(&a), &run, 10.0);
    study(Path::new(&other), &run, &[("1k", 1, 1, &|_| {})]);
    study(Path::new(&profile), &run, &[("64k", 8, 1, &|run| run["profile"] = "@rr".into())]);
    let mut document = run.clone();
    document["schema"] = "wirecost.run/2".into();
    fs::write(&newer, document.to_string()).unwrap();
    let empty = path("empty");
    fs::create_dir(&empty).unwrap();
    for (b, wanted) in [
        (&other, "have no point in common"),
        (&profile, "A ran profile @stream, B @rr"),
        (&newer, "wirecost.run/2"),
        (&empty, "empty"),
        (&path("nothing"), "does not exist"),
    ] {
        let finished = wirecost(Program::new(["compare", &a, b]), &[], 2);
        assert!(finished.stderr.contains(wanted), "{finished}");
        let finished = wirecost(Program::new(["compare", &a, b]), &["--format", "json"], 2);
        let document = json(&finished, COMPARE);
        assert_eq!(document["status"], "usage");
        assert!(document["error"].as_str().unwrap().contains(wanted), "{finished}");
    }
    for arguments in [["--metric", "througput"], ["--threshold", "5"]] {
        wirecost(Program::new(["compare", &a, &a]), &arguments, 2);
    }
}

#[test]
fn costs_are_found_and_loads_predicted() {
    let run = run();
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("study");
    // 0.5 cycles a byte, 2000 an operation, 10,000 a second and connection.
    let does = |size: f64, connections: f64, bytes: f64| {
        move |run: &mut Value| {
            set_throughput(run, bytes * 8.0);
            run["operations"]["per_second"] = (bytes / size).into();
            run["connections"]["open"] = (connections as u64).into();
            let cycles = 0.5 * bytes + 2000.0 * bytes / size + 10_000.0 * connections;
            run["machines"][0]["cycles_per_kbyte"] = (cycles * 1024.0 / bytes).into();
            run["machines"][0]["cycles_source"] = "tsc-exact".into();
            run["machines"][0]["foreign_cycles_per_kbyte"] = Value::Null;
            run["observe"] = Value::Null;
        }
    };
    let mut all = Vec::new();
    for (size, bytes) in [("64k", 65536.0), ("8k", 8192.0), ("1k", 1024.0)] {
        for (connections, rate) in [(1u32, 1e8), (8, 8e8), (100, 1e9), (1000, 6e8)] {
            all.push((size, connections, does(bytes, f64::from(connections), rate)));
        }
    }
    let runs: Vec<Edited<'_>> =
        all.iter().map(|(size, n, change)| (*size, *n, 1, change as &dyn Fn(&mut Value))).collect();
    study(&directory, &run, &runs);
    let directory = directory.display().to_string();

    let finished = wirecost(Program::new(["explain", &directory]), &[], 0);
    for wanted in
        ["an operation", "Left out: packets: not measured at 12 of 12", "At held-out points"]
    {
        assert!(finished.stdout.contains(wanted), "no {wanted}\n{finished}");
    }
    let explained = wirecost(Program::new(["explain", &directory]), &["--format", "json"], 0);
    let document = json(&explained, MODEL);
    for (place, cycles) in [0.5, 2000.0, 10_000.0].into_iter().enumerate() {
        let found = document["terms"][place]["cycles"].as_f64().unwrap();
        assert!((found / cycles - 1.0).abs() < 1e-6, "{found} {cycles}");
    }
    assert!(document["held_out"]["median"].as_f64().unwrap() < 1e-6);

    let predict = || Program::new(["predict", &directory, "--connections", "50", "--size", "8k"]);
    let predicted = wirecost(predict(), &["--rate", "4gbit", "--format", "json"], 0);
    let prediction = json(&predicted, MODEL)["prediction"].clone();
    let expected = 0.5 * 5e8 + 2000.0 * 5e8 / 8192.0 + 500_000.0;
    assert!((prediction["cycles_per_second"].as_f64().unwrap() / expected - 1.0).abs() < 1e-6);
    assert_eq!(prediction["extrapolated"], false);
    assert!(prediction["cpus"].as_f64().unwrap() > 0.0);
    assert_eq!(prediction["along_rate"].as_array().unwrap().len(), 4);
    let shown = wirecost(predict(), &["--rate", "4gbit"], 0);
    assert!(shown.stdout.contains("Cost along the rate"), "{shown}");

    let finished = wirecost(predict(), &["--rate", "100gbit"], 2);
    assert!(finished.stderr.contains("--extrapolate predicts it anyway"), "{finished}");
    let axes = "--axis size=8k,1k --axis connections=5,50,500 --axis load=max,25%,50%,75%";
    assert!(finished.stderr.contains(axes) && finished.stderr.contains("wirecost study run"));
    let refused = wirecost(predict(), &["--rate", "100gbit", "--format", "json"], 2);
    assert_eq!(json(&refused, MODEL)["status"], "usage");
    let finished = wirecost(predict(), &["--rate", "100gbit", "--extrapolate"], 0);
    assert!(finished.stdout.contains("EXTRAPOLATED"), "{finished}");

    let few = home.path().join("few");
    study(&few, &run, &runs[..2]);
    let finished = wirecost(Program::new(["explain", &few.display().to_string()]), &[], 2);
    assert!(finished.stderr.contains("and there are 2"), "{finished}");
}
