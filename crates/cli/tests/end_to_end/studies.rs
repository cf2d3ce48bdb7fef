//! Studies: all runs of a matrix, kept as they are made, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::agents::Agent;
use crate::attempts::undisturbed_machine;
use crate::document::Document;
use crate::program::{Finished, Program, processes, until};

/// Four points of short runs.
const STUDY: &str = r#"
    title = "Small"
    profile = "@rr"
    [set]
    duration = "100ms"
    ramp = "20ms"
    observe = "none"
    [repeat]
    times = 2
    [axes]
    connections = [1, 3]
    response = ["64", "1k"]
"#;

/// `wirecost study run` of this text, kept in `kept`.
fn study(text: &str, arguments: &[&str]) -> Program {
    Program::new(["study", "run", "s.toml", "--out", "kept"]).args(arguments).file("s.toml", text)
}

/// Every record that can be seen, by its name.
fn records(kept: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(kept.join("runs")) else { return BTreeMap::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let visible = names.filter(|name| !name.starts_with('.'));
    visible
        .map(|name| {
            let record = kept.join("runs").join(&name);
            let run = fs::read(record.join("run.json")).expect("a record has a run");
            let document: Value = serde_json::from_slice(&run).expect("it is whole");
            assert!(document["study"]["place"].is_u64(), "{name}");
            let hosts = fs::read(record.join("hosts.json")).expect("a record has hosts");
            let _: Value = serde_json::from_slice(&hosts).expect("it is whole");
            assert!(record.join("samples.parquet").exists(), "{name}");
            (name, run)
        })
        .collect()
}

/// Whether the records of valid runs are as they were: others are repeated.
fn are_kept(before: &BTreeMap<String, Vec<u8>>, now: &BTreeMap<String, Vec<u8>>) -> bool {
    let is_valid =
        |run: &[u8]| serde_json::from_slice::<Value>(run).expect("it is whole")["status"] == "ok";
    before.iter().filter(|(_, run)| is_valid(run)).all(|(name, run)| now.get(name) == Some(run))
}

fn resume(home: &Path) -> Program {
    let kept = home.join("kept");
    Program::new(["study", "resume", kept.to_str().unwrap(), "--json-lines", "--quiet"])
}

/// The events of `--json-lines` with this name.
fn events(finished: &Finished, name: &str) -> Vec<Value> {
    let lines = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|event: &Value| event["event"] == name).collect()
}

#[test]
fn every_run_is_kept_and_says_what_it_is_of() {
    let finished = study(STUDY, &["--seed", "7"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let records = records(&finished.path("kept"));
    let names: Vec<&str> = records.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["0001-01", "0001-02", "0002-01", "0002-02", "0003-01", "0003-02", "0004-01", "0004-02"]
    );
    let mut orders = Vec::new();
    for (name, run) in &records {
        let document = Document::valid(serde_json::from_slice(run).unwrap());
        assert_eq!(document.text("/study/study"), "Small");
        let repeat = document.count("/study/repeat");
        assert_eq!(document.count("/seed"), 7 + ((repeat - 1) << 32), "draws of its own");
        let axes: Vec<&str> = document
            .list("/study/point/axes")
            .iter()
            .map(|axis| axis["value"].as_str().unwrap())
            .collect();
        let connections = document.count("/connections/open").to_string();
        assert_eq!(axes[0], connections, "{name}");
        let response = if axes[1] == "1k" { 1024 } else { 64 };
        let transactions = document.count("/transactions/count");
        let received = document.count("/throughput/rx_bytes");
        // Those under way at an edge of the window are in one of the two only.
        let apart = received.abs_diff(transactions * response);
        assert!(apart <= document.count("/connections/open") * response, "{name}: {apart}");
        orders.push(document.count("/study/order"));
    }
    orders.sort_unstable();
    assert_eq!(orders, [1, 2, 3, 4, 5, 6, 7, 8]);
    // Finished rows appear as they come, and the whole table in the end.
    assert!(finished.stderr.contains("4 points, 8 runs"), "{finished}");
    assert!(finished.stderr.contains("8/8"), "{finished}");
    assert!(finished.stdout.contains("connections"), "{finished}");
}

#[test]
fn an_interrupted_study_goes_on_where_it_was() {
    let mut running = study(STUDY, &["--json-lines"]).start();
    running.line(|line| line.contains("run-ended"));
    running.signal(Signal::INT);
    let finished = running.wait();
    assert_eq!(finished.code, 130, "{finished}");
    assert!(finished.stderr.contains("study resume kept"), "{finished}");
    let before = records(&finished.path("kept"));
    assert!((1..8).contains(&before.len()), "{finished}");
    let home = finished.path("");
    let second = resume(&home).finish();
    assert_eq!(second.code, 0, "{second}");
    assert_eq!(events(&second, "run-ended").len() + before.len(), 8, "{second}");
    let after = records(&finished.path("kept"));
    assert_eq!(after.len(), 8);
    assert!(before.iter().all(|(name, run)| after[name] == *run));
    // There is nothing left to do.
    let third = resume(&home).finish();
    assert_eq!((third.code, events(&third, "run-started").len()), (0, 0), "{third}");
}

/// The controller is killed at twenty instants, each at another place of a run.
#[test]
fn a_controller_that_is_killed_loses_the_run_under_way_at_most() {
    const KILLS: u64 = 20;
    let text = STUDY.replace("times = 2", "times = 20");
    let mut first = study(&text, &["--json-lines", "--quiet"]).start();
    first.line(|line| line.contains("run-started"));
    first.signal(Signal::KILL);
    let first = first.wait_only();
    let home = first.path("");
    let kept = first.path("kept");
    let mut seen = records(&kept);
    let mut instants = fastrand::Rng::with_seed(crate::seed::seed());
    for kill in 1..KILLS {
        let mut running = resume(&home).start();
        let mark = running.mark.clone();
        running.line(|line| line.contains("run-started"));
        std::thread::sleep(Duration::from_millis(instants.u64(..600)));
        running.signal(Signal::KILL);
        let killed = running.wait_only();
        let started = events_of_killed(&killed.stdout, "run-started");
        let ended = events_of_killed(&killed.stdout, "run-ended");
        let now = records(&kept);
        assert!(are_kept(&seen, &now), "kill {kill}");
        let new = now.len() - seen.len();
        // What was said to be finished is there, and of those that were begun all but one.
        assert!(ended <= new && new <= started && started <= new + 1, "kill {kill}: {killed}");
        seen = now;
        until("the agents have ended by themselves", || processes(&mark).is_empty());
    }
    let last = resume(&home).finish();
    let all = records(&kept);
    // A machine that stands still for a whole window of 100 ms makes a run invalid.
    let is_invalid =
        |run: &Vec<u8>| serde_json::from_slice::<Value>(run).unwrap()["status"] == "invalid";
    let expected = if all.values().any(is_invalid) { 4 } else { 0 };
    assert_eq!(last.code, expected, "{last}");
    assert_eq!(all.len(), 80, "{last}");
    assert!(are_kept(&seen, &all));
    let left: Vec<_> = fs::read_dir(kept.join("runs")).unwrap().collect();
    assert_eq!(left.len(), 80, "{left:?}");
}

#[test]
fn resume_repeats_runs_that_failed() {
    undisturbed_machine(|| {
        let finished = study(STUDY, &["--json-lines"]).finish();
        assert_eq!(finished.code, 0, "{finished}");
        let before = records(&finished.path("kept"));
        let name = before.keys().nth(2).unwrap();
        let failed = finished.path(&format!("kept/runs/{name}/run.json"));
        let text = fs::read_to_string(&failed).unwrap();
        let text = text.replacen("\"status\": \"ok\"", "\"status\": \"invalid\"", 1);
        // As a record whose run failed, of a version that saved no hashes.
        fs::write(&failed, text.replacen(",\n  \"files\": \"wirecost.files/1\"", "", 1)).unwrap();
        fs::remove_file(failed.with_file_name("files.json")).unwrap();
        let second = resume(&finished.path("")).finish();
        assert_eq!((second.code, events(&second, "run-started").len()), (0, 1), "{second}");
        let after = records(&finished.path("kept"));
        assert_eq!(after.len(), before.len());
        for (key, run) in &before {
            assert_eq!(after[key] == *run, key != name, "{key}");
        }
        let left = fs::read_dir(finished.path("kept/runs")).unwrap().count();
        assert_eq!(left, before.len());
    });
}

/// Lines that are whole.
fn events_of_killed(stdout: &str, name: &str) -> usize {
    let lines = stdout.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|event: &Value| event["event"] == name).count()
}

#[test]
fn a_host_that_vanishes_ends_the_study_and_what_is_finished_stays() {
    let mut agent = Program::new(["agent", "--listen", "127.0.0.1:0"]).start();
    let line = agent.line(|line| line.contains("listens at"));
    let host = format!("peer={}", line.split_whitespace().last().unwrap());
    let mut running = study(STUDY, &["--json-lines", "--host", &host]).start();
    running.line(|line| line.contains("run-ended"));
    agent.signal(Signal::KILL);
    assert_eq!(agent.wait_only().code, 1009);
    let finished = running.wait();
    assert_eq!(finished.code, 3, "{finished}");
    assert!(finished.stderr.contains("peer"), "{finished}");
    assert!(finished.stderr.contains("study resume kept"), "{finished}");
    let before = records(&finished.path("kept"));
    assert!((1..8).contains(&before.len()), "{finished}");
    // The host is back, at the same name but another place.
    let agent = Agent::start();
    let kept = finished.path("kept/study.toml");
    let text = fs::read_to_string(&kept).unwrap();
    let address = host.strip_prefix("peer=").unwrap();
    fs::write(&kept, text.replace(address, &agent.address)).unwrap();
    let second = resume(&finished.path("")).finish();
    assert_eq!(second.code, 0, "{second}");
    let after = records(&finished.path("kept"));
    assert_eq!(after.len(), 8);
    assert!(before.iter().all(|(name, run)| after[name] == *run));
}

#[test]
fn expectations_decide_the_exit_code() {
    let run = |expect: &str| {
        let text = format!("{expect}\n{STUDY}");
        study(&text, &["--axis", "response=64", "--set", "duration=50ms"]).finish()
    };
    let finished = run("expect = [{ that = \"transactions >= 1\" }]");
    assert_eq!(finished.code, 0, "{finished}");
    let finished =
        run("expect = [{ that = \"latency.p50 <= 0.001 us\", at = { connections = 3 } }]");
    assert_eq!(finished.code, 1, "{finished}");
    assert!(finished.stderr.contains("at connections=3 response=64: latency.p50 <= 0.001 us"));
    assert!(!finished.stderr.contains("at connections=1"), "{finished}");
    // What nobody measured holds nothing.
    let finished = run("expect = [{ that = \"hosts.sender.segments_per_ack >= 0\" }]");
    assert_eq!(finished.code, 1, "{finished}");
    assert!(finished.stderr.contains("not measured"), "{finished}");
}

#[test]
fn a_profile_that_is_a_file_goes_with_the_study() {
    let profile = r#"<profile name="mine"><group nthreads="1">
        <transaction iterations="1"><flowop type="connect" options="remotehost=$h protocol=tcp"/></transaction>
        <transaction duration="100ms"><flowop type="write" options="size=$size"/></transaction>
        <transaction iterations="1"><flowop type="disconnect"/></transaction></group></profile>"#;
    let text = "profile = \"mine.xml\"\nset = { ramp = \"0s\", observe = \"none\" }\naxes = { size = [64, 128] }";
    let mut running = study(text, &["--json-lines"]).file("mine.xml", profile).start();
    running.line(|line| line.contains("run-ended"));
    running.signal(Signal::KILL);
    let killed = running.wait_only();
    fs::remove_file(killed.path("mine.xml")).unwrap();
    let finished = resume(&killed.path("")).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let records = records(&killed.path("kept"));
    assert_eq!(records.len(), 2);
    for run in records.values() {
        let document: Value = serde_json::from_slice(run).unwrap();
        assert_eq!(document["profile"], "mine.xml");
    }
}

#[test]
fn bad_studies_are_refused_with_a_message_and_nothing_is_made() {
    let long = "profile = \"@rr\"\n";
    for (text, words) in [
        ("profil = \"@rr\"", ["unknown field", "did you mean profile?"].as_slice()),
        ("profile = \"@rrr\"", &["@rrr", "did you mean"]),
        ("title = \"nothing\"", &["has no profile"]),
        ("profile = \"missing.xml\"", &["cannot read the profile"]),
        ("axes = { connections = [] }", &["axis connections has no values"]),
        (
            "axes = { conections = [1] }",
            &["@rr has no variable conections", "did you mean connections?"],
        ),
        ("axes = { connections = [\"many\"] }", &["many"]),
        ("axes = { engine = [\"epol\"] }", &["must be one of"]),
        (
            "axes = { response = [1] }\nskip = [{ at = { response = \"< 1\" } }]",
            &["skip[0] matches no point"],
        ),
        ("skip = [{ at = { sise = 1 } }]", &["is named sise"]),
        ("set = { \"option.tcp_nodealy\" = true }", &["tcp_nodealy"]),
        ("repeat = { until = { througput = \"5%\" } }", &["did you mean throughput?"]),
        ("expect = [{ that = \"throughput is fine\" }]", &["write METRIC"]),
        ("tables = [\"tcp-trasmit\"]", &["tcp-trasmit", "did you mean tcp-transmit?"]),
        ("tables = [{ title = \"t\", columns = [\"througput\"] }]", &["did you mean throughput?"]),
        ("a = ", &["s.toml"]),
    ] {
        let text = match text.starts_with("profil") || text.starts_with("title") {
            true => text.to_owned(),
            false => format!("{long}{text}"),
        };
        for command in ["run", "check"] {
            let finished = match command {
                "run" => study(&text, &[]).finish(),
                _ => Program::new(["study", "check", "s.toml"]).file("s.toml", &text).finish(),
            };
            assert_eq!(finished.code, 2, "{text}\n{finished}");
            assert!(!finished.path("kept").exists(), "{text}\n{finished}");
            let flat = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in words {
                assert!(flat.contains(word), "{text}: no {word:?} in\n{finished}");
            }
        }
    }
}

#[test]
fn a_directory_that_is_in_use_is_left_alone() {
    let text = format!("{STUDY}\n");
    let finished = study(&text, &["--axis", "connections=1", "--axis", "response=64"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let before = records(&finished.path("kept"));
    let again = finished.again().finish();
    assert_eq!(again.code, 2, "{again}");
    assert!(again.stderr.contains("study resume"), "{again}");
    assert_eq!(records(&again.path("kept")), before);
    let none = Program::new(["study", "resume", "nowhere"]).finish();
    assert_eq!(none.code, 2, "{none}");
    assert!(none.stderr.contains("nowhere"), "{none}");
}

/// The same study on loopback, over the links of its table, and over wires.
const PLACES: &str = r#"
    profile = "@rr"
    lab = { rtt = "20ms" }
    [set]
    duration = "200ms"
    observe = "none"
    [axes]
    place = ["loopback", "lab", "lab:direct"]
"#;

#[test]
fn places_are_an_axis_and_links_are_those_of_the_lab() {
    if skip_without_namespaces("places_are_an_axis_and_links_are_those_of_the_lab") {
        return;
    }
    let finished = study(PLACES, &[]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let mut links: Vec<(String, bool, String)> = records(&finished.path("kept"))
        .into_values()
        .map(|run| {
            let run: Value = serde_json::from_slice(&run).unwrap();
            let place = run["study"]["point"]["axes"][0]["value"].as_str().unwrap().to_owned();
            let master = run["hosts"][0]["name"].as_str().unwrap().to_owned();
            (place, run["link"].is_object(), master)
        })
        .collect();
    links.sort();
    let expected =
        [("lab", true, "h1"), ("lab:direct", false, "h1"), ("loopback", false, "master")];
    assert_eq!(
        links,
        expected.map(|(place, link, host)| (place.to_owned(), link, host.to_owned()))
    );
}

#[test]
fn places_that_cannot_be_are_refused() {
    let of_links = "profile = \"@rr\"\nplace = \"lab:direct\"\n[axes]\n\"lab.rtt\" = [\"1ms\"]";
    let at_links =
        "profile = \"@rr\"\n[axes]\nplace = [\"lab\", \"lab:direct\"]\n\"lab.rtt\" = [\"1ms\"]";
    let in_vm = "profile = \"@rr\"\nplace = \"vm:none\"";
    let cases: [(&str, &[&str], i32, &str); 7] = [
        (of_links, &[], 2, "does not run in a lab with links"),
        (at_links, &[], 2, "at place=lab:direct"),
        (PLACES, &["--lab"], 2, "--axis place=lab"),
        (PLACES, &["--vm", "6.1"], 2, "--axis place=vm:6.1"),
        (PLACES, &["--host", "master=198.18.0.1"], 2, "its hosts have agents"),
        (PLACES, &["--axis", "place=nowhere"], 2, "unknown place `nowhere`"),
        (in_vm, &[], 3, "no virtual machine none runs here"),
    ];
    for (text, arguments, code, reason) in cases {
        let refused = study(text, arguments).finish();
        assert_eq!(refused.code, code, "{text} {arguments:?}: {refused}");
        let flat = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(reason), "{text} {arguments:?}: {refused}");
        assert!(!refused.path("kept").exists(), "{text}");
    }
}

/// What a study may change of a lab's devices, only the user may of others.
#[test]
fn axes_about_a_lab_are_left_out_elsewhere_and_others_on_request() {
    let check = |arguments: &[&str]| {
        let check = ["study", "check", "@tcp-transmit", "--quick"];
        let finished = Program::new(check).args(arguments).finish();
        assert_eq!(finished.code, 0, "{finished}");
        finished
    };
    let in_lab = check(&[]);
    assert!(in_lab.stdout.contains(" size=64k tune.mtu=9000 connections=1 load=max"), "{in_lab}");
    let here = check(&["--loopback"]);
    assert!(!here.stdout.contains("tune.mtu"), "{here}");
    assert!(
        here.stderr
            .contains("the study has no axis tune.mtu; --tunables keeps it, --axis adds one"),
        "{here}"
    );
    let asked = check(&["--loopback", "--axis", "tune.mtu=1280,1500"]);
    assert!(asked.stdout.contains("tune.mtu=1280") && asked.stderr.is_empty(), "{asked}");
    let removed = check(&["--axis", "tune.mtu=", "--axis", "load="]);
    assert!(removed.stdout.contains(" size=1k connections=1  (@stream"), "{removed}");
    assert!(removed.stdout.contains("\n12 points, 12 runs,"), "{removed}");
}
