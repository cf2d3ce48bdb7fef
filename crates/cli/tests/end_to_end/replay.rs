//! Studies of pages, run again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::program::{Finished, Program};

const BEGIN: &str = "<script type=\"application/json\" id=\"replay\">";

const PROFILE: &str = r#"
name = "own"
[variables]
h = { help = "remote host" }
size = { help = "bytes of a write", default = "64" }
[[group]]
strands = 1
[[group.transaction]]
flowops = [{ type = "connect", remotehost = "${h}", protocol = "tcp" }]
[[group.transaction]]
duration = "1s"
flowops = [{ type = "write", size = "${size}" }]
[[group.transaction]]
flowops = ["disconnect"]
"#;

const STUDY: &str = r#"
title = "Sizes of writes"
profile = "own.toml"
[set]
duration = "500ms"
ramp = "100ms"
observe = "none"
[axes]
size = ["64", "16k"]
[repeat]
times = 3
"#;

fn page(folder: &Path) -> String {
    fs::write(folder.join("own.toml"), PROFILE).unwrap();
    fs::write(folder.join("study.toml"), STUDY).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (study, page, out) = (path("study.toml"), path("page.html"), path("record"));
    let made =
        Program::new(["study", "run", &study, "--html", &page, "--out", &out, "--quiet"]).finish();
    // On a busy machine a run may move nothing in its window.
    assert!([0, 4].contains(&made.code), "{made}");
    page
}

fn plan(page: &str) -> Value {
    let (_, rest) = page.split_once(BEGIN).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_is_run_again_and_its_findings_are_measured_here() {
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("wirecost replay PAGE"), "{text}");
    let plan = plan(&text);
    assert_eq!(plan["profiles"]["own.toml"], PROFILE);
    // The record is not needed any more.
    fs::remove_dir_all(folder.path().join("record")).unwrap();
    fs::remove_file(folder.path().join("own.toml")).unwrap();

    let checked = Program::new(["replay", &page, "--check"]).finish();
    assert_eq!(checked.code, 0, "{checked}");
    for wanted in ["Sizes of writes", "size=64", "size=16k", "2 points, 6 runs"] {
        assert!(checked.stdout.contains(wanted), "{wanted}: {checked}");
    }
    let replayed = Program::new(["replay", &page, "--quiet", "--format", "json"]).finish();
    let document: Value = serde_json::from_str(&replayed.stdout).unwrap();
    let findings = plan["findings"].as_array().unwrap();
    let told = document["sections"][0]["blocks"][0]["text"].as_str().unwrap();
    let number = format!("Of {} finding", findings.len());
    assert!(told.starts_with(&number) || findings.is_empty(), "{told}: {plan}");
    assert!([0, 1, 4].contains(&replayed.code), "{replayed}");
    let slow = Program::new(["replay", &page, "--longest", "1s"]).finish();
    assert_eq!(slow.code, 2, "{slow}");
    assert!(slow.stderr.contains("and the limit is 1"), "{slow}");
}

/// Its record holds the plan: the profile that it had, what was set, and the seed.
#[test]
fn the_page_of_a_single_run_is_run_again() {
    if skip_without_namespaces("the_page_of_a_single_run_is_run_again") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("own.toml"), PROFILE).unwrap();
    let (profile, record, page) = (path("own.toml"), path("record"), path("page.html"));
    let run = Program::new(["run", &profile, "--var", "size=1k", "--duration", "300ms"])
        .args(["--ramp", "100ms", "--observe", "none", "--tune", "tcp_sack=1", "--seed", "7"])
        .args([
            "--lab", "--rate", "50mbit", "--rtt", "2ms", "--out", &record, "--html", &page,
            "--quiet",
        ])
        .finish();
    assert!([0, 4].contains(&run.code), "{run}");
    let of_run = plan(&fs::read_to_string(&page).unwrap());
    fs::write(path("own.toml"), "").unwrap();
    let again = Program::new(["report", &record, "--format", "html", "--out", &page, "--force"]);
    assert_eq!(again.finish().code, 0);
    let of_record = plan(&fs::read_to_string(&page).unwrap());
    assert_eq!(of_run, of_record);
    assert_eq!(of_record["profiles"]["own.toml"], PROFILE);
    let study = of_record["study"].as_str().unwrap();
    assert!(study.contains("seed = 7") && study.contains("50mbit"), "{study}");
    // Settings of machines are the user's.
    assert!(!study.contains("tcp_sack"), "{study}");
    assert!(of_record["left_out"].to_string().contains("tune.tcp_sack"), "{of_record}");
    fs::remove_dir_all(&record).unwrap();
    let replayed = Program::new(["replay", &page, "--repeat", "3", "--out", &record]).finish();
    assert!([0, 4].contains(&replayed.code), "{replayed}");
    for wanted in ["left out: the setting tune.tcp_sack", "The page has no findings", "throughput"]
    {
        let shown = format!("{}{}", replayed.stdout, replayed.stderr);
        assert!(shown.contains(wanted), "{wanted}: {replayed}");
    }
    let mut runs = fs::read_dir(Path::new(&record).join("runs")).unwrap();
    let run = runs.next().unwrap().unwrap().path().join("run.json");
    let run: Value = serde_json::from_slice(&fs::read(run).unwrap()).unwrap();
    assert!(run["link"].is_object() && run["plan"].is_null(), "{run}");
}

/// A page that says how it is run again can be.
#[test]
fn a_run_that_a_page_cannot_repeat_has_no_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let page = |profile: &str, redact: &[&str]| {
        fs::write(path(profile), PROFILE).unwrap();
        let run = ["run", &path(profile), "--duration", "200ms", "--quiet", "--observe", "none"];
        let run = Program::new(run).args(["--html", &path("page.html"), "--force"]).args(redact);
        let run = run.finish();
        assert!([0, 4].contains(&run.code), "{run}");
        fs::read_to_string(path("page.html")).unwrap()
    };
    // Its name is more than a name where the page is read.
    let text = page("own (1).toml", &[]);
    assert!(text.contains("not from this page: ") && !text.contains(BEGIN), "{text}");
    let text = page("own.toml", &["--redact"]);
    assert!(text.contains("wirecost replay PAGE") && text.contains(BEGIN), "{text}");
}

/// Whatever the machine does beside the test: 256 times as many bytes in a write are more throughput.
#[test]
fn a_ratio_of_the_page_is_measured_here_with_an_interval() {
    let folder = tempfile::tempdir().unwrap();
    let finding = json!({
        "kind": "choices", "metric": "throughput", "axis": "size", "at": [],
        "sentence": "With size 64, throughput is 40x compared with 16k.",
        "effect": {
            "name": "ratio", "unit": "ratio", "value": 40.0, "interval": [30.0, 50.0],
            "between": ["64", "16k"],
        },
        "p_value": 0.001, "strength": "strong", "evidence": [], "points": [],
    });
    let with_finding = |plan: &mut Value| plan["findings"] = json!([finding]);
    let replayed = hostile(&folder, with_finding, &["--format", "json"]);
    let document: Value = serde_json::from_str(&replayed.stdout).unwrap();
    let row = &document["sections"][0]["blocks"][1]["table"]["rows"][0];
    let here = &row[3]["number"];
    let [low, high] = [0, 1].map(|end| here["interval"][end].as_f64().unwrap());
    let value = here["value"].as_f64().unwrap();
    assert!(value < 1.0 && low <= value && value <= high, "{row}");
    // A page that has it the wrong way round is contradicted, where these runs show anything.
    let wanted = if high < 1.0 { "contradicted" } else { "not shown" };
    assert_eq!(row[1]["marked"]["text"], wanted, "{row}");
    assert!([1, 4].contains(&replayed.code), "{replayed}");

    let once = hostile(&folder, with_finding, &["--repeat", "1"]);
    assert!(once.stdout.contains("not tested"), "{once}");
    assert!(once.stdout.contains("1: With size 64, throughput is 40x"), "{once}");
    // Nothing was tested: that is no success.
    assert!([1, 4].contains(&once.code), "{once}");
}

/// A page that somebody wrote with this plan.
fn hostile(folder: &TempDir, change: impl FnOnce(&mut Value), arguments: &[&str]) -> Finished {
    let mut plan = json!({
        "version": 1,
        "study": STUDY,
        "profiles": { "own.toml": PROFILE },
        "place": "loopback",
        "left_out": [],
        "findings": [],
    });
    change(&mut plan);
    let page = folder.path().join("page.html");
    let text = plan.to_string().replace('<', "\\u003c");
    fs::write(&page, format!("<!DOCTYPE html>{BEGIN}{text}</script>")).unwrap();
    let always = ["replay", page.to_str().unwrap(), "--quiet"];
    Program::new(always.iter().chain(arguments)).finish()
}

fn study(plan: &mut Value, from: &str, to: &str) {
    let text = STUDY.replace(from, to);
    assert_ne!(text, STUDY);
    plan["study"] = text.into();
}

fn profile(plan: &mut Value, from: &str, to: &str) {
    let text = PROFILE.replace(from, to);
    assert_ne!(text, PROFILE);
    plan["profiles"]["own.toml"] = text.into();
}

type Change = fn(&mut Value);

#[test]
fn a_page_names_no_host_no_file_and_no_setting() {
    let folder = tempfile::tempdir().unwrap();
    let refused: &[(Change, &str)] = &[
        (|plan| profile(plan, "\"${h}\"", "\"198.18.0.9\""), "names the host 198.18.0.9"),
        (|plan| study(plan, "[axes]", "h = \"198.18.0.9\"\n[axes]"), "names the host 198.18.0.9"),
        (
            |plan| {
                profile(plan, "size = \"${size}\"", "size = \"${size}\", source = \"/etc/passwd\"")
            },
            "names the file or directory /etc/passwd",
        ),
        (
            |plan| profile(plan, "size = \"${size}\"", "size = \"${size}\", source = \"passwd\""),
            "names the file or directory passwd",
        ),
        (
            |plan| {
                profile(
                    plan,
                    "duration = \"1s\"",
                    "duration = \"1s\"\narrivals = { trace = \"/etc/passwd\" }",
                )
            },
            "a profile of a page may read no file",
        ),
        (|plan| study(plan, "own.toml", "/etc/passwd"), "it has no profile /etc/passwd"),
        (|plan| study(plan, "own.toml", "../own.toml"), "it has no profile ../own.toml"),
        (
            |plan| plan["profiles"] = json!({ "../own.toml": PROFILE }),
            "a profile has a path for a name",
        ),
        (
            |plan| plan["profiles"] = json!({ ".study.toml": PROFILE }),
            "a profile has a path for a name",
        ),
        (
            |plan| {
                study(plan, "[set]", "place = \"lab\"\nlab = { trace = \"/etc/passwd\" }\n[set]")
            },
            "its links follow a file",
        ),
        (
            |plan| plan["place"] = "hosts".into(),
            "ran on other hosts (hosts), and a page names none",
        ),
        (|plan| study(plan, "500ms", "100h"), "and the limit is 2h"),
        (
            |plan| study(plan, "500ms\"", "100h\"\nengine = \"af_xdp_native\""),
            "the engine af_xdp_native changes the network device",
        ),
        (|plan| study(plan, "times = 3", "times = 4294967295"), "and the limit is 2h"),
        (|plan| plan["command"] = "rm".into(), "is damaged"),
        (|plan| plan["version"] = 2.into(), "has version 2"),
        (|plan| plan["study"] = "profile = ".into(), "string values must be quoted"),
        // What the environment has is the user's.
        (|plan| profile(plan, "${size}", "${HOME}"), "HOME"),
    ];
    for (change, reason) in refused {
        let finished = hostile(&folder, change, &[]);
        assert_eq!(finished.code, 2, "{reason}: {finished}");
        assert!(finished.stderr.contains(reason), "{reason}: {finished}");
        assert!(!finished.stderr.contains("root:"), "{finished}");
    }

    // The time of iterations is unknown before.
    let endless = |plan: &mut Value| {
        profile(plan, "duration = \"1s\"", "iterations = 2147483647");
        study(plan, "duration = \"500ms\"\nramp = \"100ms\"\n", "");
    };
    let stopped = hostile(&folder, endless, &["--repeat", "1", "--longest", "5s"]);
    assert_eq!(stopped.code, 130, "{stopped}");
    assert!(stopped.stderr.contains("stopped after 5s"), "{stopped}");

    let with_settings = |plan: &mut Value| {
        study(
            plan,
            "[axes]",
            "\"tune.tcp_sack\" = 0\ntune-device = \"eth0\"\n[axes]\n\"tune.tcp_ecn\" = [0, 1]",
        );
    };
    let checked = hostile(&folder, with_settings, &["--check"]);
    assert_eq!(checked.code, 0, "{checked}");
    for wanted in [
        "2 points, 6 runs",
        "left out: the axis tune.tcp_ecn",
        "left out: the setting tune.tcp_sack",
        "left out: the setting tune-device",
    ] {
        assert!(checked.stdout.contains(wanted), "{wanted}: {checked}");
    }
    let with_hosts = |plan: &mut Value| {
        study(plan, "[set]", "hosts = { h = \"198.18.0.9\" }\n[set]");
    };
    let checked = hostile(&folder, with_hosts, &["--check", "--loopback"]);
    assert!(checked.stdout.contains("left out: the addresses of its hosts"), "{checked}");

    let page = folder.path().join("page.html");
    fs::write(&page, "<!DOCTYPE html><p>wirecost</p>").unwrap();
    let none = Program::new(["replay", page.to_str().unwrap()]).finish();
    assert_eq!(none.code, 2, "{none}");
    assert!(none.stderr.contains("the page holds no plan"), "{none}");
}

#[test]
fn a_redacted_page_is_run_again_too() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("own.toml"), format!("# from /home/me/secret\n{PROFILE}"))
        .unwrap();
    fs::write(folder.path().join("study.toml"), STUDY).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (study, page) = (path("study.toml"), path("page.html"));
    let made = Program::new(["study", "run", &study, "--html", &page, "--redact", "--quiet"])
        .args(["--out", &path("record")])
        .finish();
    // On a busy machine a run may move nothing in its window.
    assert!([0, 4].contains(&made.code), "{made}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(!text.contains("/home/me"), "{text}");
    let checked = Program::new(["replay", &page, "--check"]).finish();
    assert_eq!(checked.code, 0, "{checked}");
    assert!(checked.stdout.contains("2 points, 6 runs"), "{checked}");
}
