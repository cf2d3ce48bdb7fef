//! `wirecost tune`: a search in a lab whose winner is known, and what it refuses.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::sysctl;

use crate::agents::Agent;
use crate::program::{Finished, Program};

const RMEM: &str = "net.ipv4.tcp_rmem";
const SACK: &str = "net.ipv4.tcp_sack";
/// In 20 ms, a window of this buffer carries a few megabits per second.
const TINY: &str = "4096 16384 16384";
/// Larger than the path and shorter than the queue that it stands in: nothing is lost, and the time of
/// each round trip is that of the full window.
const STANDING: &str = "4096 1048576 1048576";
/// Fills 50 Mb/s.
const LARGE: &str = "4096 131072 6291456";

/// A lab that is removed at the end of a test.
struct TestLab {
    name: String,
}

impl TestLab {
    fn up() -> Self {
        let name = format!("test-{}-tune", std::process::id());
        let links = ["--rate", "50mbit", "--rtt", "20ms"];
        // The emulator stays.
        let up = Program::new(["lab", "up", "--name", &name]).args(links).start().wait_only();
        assert_eq!(up.code, 0, "{up}");
        Self { name }
    }

    fn settings(&self, name: &str) -> Vec<String> {
        let of = |host: &str| {
            let namespace = NetNs::open(&format!("wirecost-{}-{host}", self.name)).unwrap();
            namespace.run(|| sysctl::read(name).unwrap()).unwrap()
        };
        ["h1", "h2"].map(of).to_vec()
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        Program::new(["lab", "down", "--name", &self.name]).finish();
    }
}

fn section<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut sections = report["sections"].as_array().unwrap().iter();
    sections.find(|section| section["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

/// The rows of the first table of a section.
fn rows(section: &Value) -> Vec<Vec<Value>> {
    let mut tables = section["blocks"].as_array().unwrap().iter().filter_map(|b| b.get("table"));
    let rows = tables.next().unwrap()["rows"].as_array().unwrap().clone();
    rows.into_iter().map(|row| row.as_array().unwrap().clone()).collect()
}

mod waiting {
    use super::*;

    #[test]
    fn a_search_finds_the_buffer_that_fills_a_link_and_keeps_it_only_if_asked() {
        if skip_without_namespaces(
            "a_search_finds_the_buffer_that_fills_a_link_and_keeps_it_only_if_asked",
        ) {
            return;
        }
        let lab = TestLab::up();
        let (before, sack) = (lab.settings(RMEM), lab.settings(SACK));
        let search = |more: &[&str], check: &dyn Fn(&Finished, &Value)| {
            let rmem = format!("tune.tcp_rmem={TINY},{LARGE}");
            let on_lab = format!("--lab={}", lab.name);
            Program::new(["tune", "@stream", &on_lab, "--maximize", "throughput"])
                .args(["--factor", &rmem, "--var", "connections=1"])
                .args(["--duration", "300ms", "--ramp", "100ms", "--observe", "none"])
                .args(["--format", "json", "--out", "kept", "--quiet", "--seed", "1"])
                .args(more)
                .finish_and(|finished| {
                    assert_eq!(finished.code, 0, "{finished}");
                    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
                    let best = rows(section(&report, "setting"));
                    let of_buffer = best.iter().find(|row| row[0]["text"] == "tune.tcp_rmem");
                    // False failures: 1e-6 (x2), computed: as that of the effect, which may be much less.
                    assert_eq!(of_buffer.unwrap()[2]["set"]["text"], LARGE, "{finished}");
                    check(finished, &report);
                });
        };
        search(&["--factor", "tune.tcp_sack=1,0", "--budget", "19"], &|finished, report| {
            assert_eq!(
                (lab.settings(RMEM), lab.settings(SACK)),
                (before.clone(), sack.clone()),
                "{finished}"
            );
            let effects = rows(section(report, "effects"));
            let first = &effects[0];
            assert_eq!(first[0]["text"], "tune.tcp_rmem");
            // Twice the throughput, and more.
            // False failures: 1e-6, computed: it is eightfold; of eight windows one would lack three quarters, in three attempts.
            assert!(first[3]["number"]["interval"][0].as_f64().unwrap() > 100.0, "{finished}");
            let commands = section(report, "commands").to_string();
            for wanted in [
                format!("net.ipv4.tcp_rmem = {LARGE}"),
                "rm /etc/sysctl.d/90-wirecost-stream-".to_owned(),
                format!("sysctl -w 'net.ipv4.tcp_rmem={}'", before[0]),
            ] {
                assert!(commands.contains(&wanted), "{wanted}: {commands}");
            }
            // The records alone tell the same.
            let kept = finished.path("kept");
            assert!(fs::read_dir(kept.join("runs")).unwrap().count() >= 19);
            let again =
                Program::new(["report", kept.to_str().unwrap(), "--format", "json"]).finish();
            let again: Value = serde_json::from_str(&again.stdout).unwrap();
            assert_eq!(section(&again, "tune"), section(report, "tune"));
            assert_eq!(section(&again, "effects"), section(report, "effects"));
            let page =
                Program::new(["report", kept.to_str().unwrap(), "--format", "html"]).finish();
            // Runs that were chosen by results are no sample of anything: no headline says what they reach.
            let says = |text: &str| page.stdout.contains(text);
            assert!(says("Best setting") && !says(", the most at "), "{page}");
            let resumed =
                Program::new(["study", "resume", kept.to_str().unwrap(), "--quiet"]).finish();
            assert_eq!(resumed.code, 0, "{resumed}");
            assert!(resumed.stdout.contains("Best setting: tune.tcp_rmem"), "{resumed}");
        });

        search(&["--apply", "--budget", "15"], &|finished, _| {
            assert_eq!(lab.settings(RMEM), [LARGE, LARGE], "{finished}");
        });
    }

    /// A small receive buffer keeps the link's queue empty and the throughput low.
    #[test]
    fn a_setting_that_breaks_a_bound_is_not_recommended_however_good_it_is() {
        if skip_without_namespaces(
            "a_setting_that_breaks_a_bound_is_not_recommended_however_good_it_is",
        ) {
            return;
        }
        Program::new(["tune", "@stream", "--minimize", "rtt", "--budget", "19"])
            .args([
                "--lab", "--rate", "50mbit", "--rtt", "20ms", "--queue", "16bdp", "--cc", "reno",
            ])
            .args([
                "--factor",
                &format!("tune.tcp_rmem={STANDING},{TINY}"),
                "--factor",
                "size=64k,4k",
            ])
            .args(["--factor", "tune.tcp_sack=1,0", "--subject-to", "throughput >= 0.8*best"])
            .args(["--duration", "300ms", "--ramp", "400ms", "--observe", "none"])
            .args(["--format", "json", "--out", "kept", "--quiet", "--seed", "1"])
            .finish_and(is_not_recommended);
    }

    fn is_not_recommended(finished: &Finished) {
        assert_eq!(finished.code, 0, "{finished}");
        let report: Value = serde_json::from_str(&finished.stdout).unwrap();
        // It lowers the objective, and cannot be part of the result.
        let effects = rows(section(&report, "effects"));
        let buffer = effects.iter().find(|row| row[0]["text"] == "tune.tcp_rmem").unwrap();
        // False failures: 1e-6, computed: 20 ms against 160; a window would have to be as short of data, in three attempts.
        assert!(buffer[3]["number"]["interval"][1].as_f64().unwrap() < 0.0, "{finished}");
        assert!(!section(&report, "tune").to_string().contains(TINY), "{finished}");
        // What disturbed the runs is told in the end.
        assert!(section(&report, "runs").to_string().contains("runs of "), "{finished}");
    }
}

/// On loopback, where no setting is changed.
#[test]
fn every_congestion_control_that_the_kernel_offers_is_a_level_of_a_factor() {
    let offered = sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap();
    let offered: BTreeSet<String> = offered.split_whitespace().map(str::to_owned).collect();
    if offered.len() < 2 {
        return;
    }
    // The fewest runs of one factor, which has one level more where root can load the program's own.
    let budget = (15 + 2 * offered.len()).to_string();
    let finished = Program::new(["tune", "@stream", "--maximize", "throughput"])
        .args(["--factor", "cc=available", "--duration", "200ms", "--ramp", "50ms"])
        .args(["--observe", "none", "--budget", &budget, "--format", "json", "--out", "kept"])
        .args(["--quiet", "--seed", "1"])
        .finish();
    assert_eq!(finished.code, 0, "{finished}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let effect = &rows(section(&report, "effects"))[0];
    assert_eq!(effect[0]["text"], "cc", "{finished}");
    let mut levels: BTreeSet<String> =
        [1, 2].map(|column| effect[column]["set"]["text"].as_str().unwrap().to_owned()).into();
    let candidates = rows(section(&report, "candidates"));
    let further = candidates.iter().filter_map(|row| row[0]["text"].as_str()?.strip_prefix("cc="));
    levels.extend(further.map(str::to_owned));
    // Where root can load it, the program's own stands beside those of the kernel.
    levels.remove("bpf-bic");
    assert_eq!(levels, offered, "{finished}");
    // Each was run, and the connections had it.
    let mut used = BTreeSet::new();
    for run in fs::read_dir(finished.path("kept/runs")).unwrap() {
        let run: Value =
            serde_json::from_slice(&fs::read(run.unwrap().path().join("run.json")).unwrap())
                .unwrap();
        let asked = run["study"]["point"]["axes"].as_array().unwrap();
        let asked = asked.iter().find(|axis| axis["name"] == "cc").unwrap()["value"].clone();
        let settings = run["settings"].as_array().unwrap().iter();
        for setting in settings.filter(|setting| setting["name"] == "cc") {
            assert_eq!(setting["effective"], asked, "{run}");
            used.insert(asked.as_str().unwrap().to_owned());
        }
    }
    assert!(used.is_superset(&offered), "{used:?} of {offered:?}");
}

#[test]
fn factors_that_cannot_be_searched_are_refused_and_nothing_is_left() {
    let refused = |arguments: &[&str], code: i32, wanted: &[&str]| {
        let common = ["tune", "@stream", "--out", "kept", "--quiet"];
        let finished = Program::new(common).args(arguments).finish();
        assert_eq!(finished.code, code, "{finished}");
        for text in wanted {
            assert!(finished.stderr.contains(text), "{text}: {finished}");
        }
        assert!(!finished.path("kept").exists(), "{finished}");
    };
    let high = ["--maximize", "throughput"];
    let with = |more: &[&'static str]| [&high[..], more].concat();
    for (arguments, wanted) in [
        (with(&["--factor", "mtu=keep,9000"]), ["unknown factor", "did you mean tune.mtu?"]),
        (
            with(&["--factor", "engin=epoll,io_uring"]),
            ["no variable engin", "did you mean engine?"],
        ),
        (with(&["--factor", "engine=epoll"]), ["single level", "--factor engine=keep,epoll"]),
        (with(&["--factor", "engine=epoll,io_urin"]), ["engine", "io_urin"]),
        (
            with(&["--factor", "engine=keep,threads", "--budget", "9"]),
            ["budget of 9", "--budget 15"],
        ),
        (
            with(&["--factor", "engine=keep,threads", "--subject-to", "throughput > 3"]),
            ["throughput > 3", "METRIC >= NUMBER"],
        ),
        (with(&["--apply", "--lab"]), ["ends with it", "--lab=NAME"]),
        (
            vec!["--factor", "engine=keep,threads", "--minimize", "throughput"],
            ["better when higher", "--maximize throughput"],
        ),
        (vec!["--factor", "engine=keep,threads", "--minimize", "p98"], ["no metric p98", "p98"]),
        (vec!["--loopback"], ["--maximize", "--minimize"]),
    ] {
        refused(&arguments, 2, &wanted);
    }
    if skip_without_namespaces("factors_that_cannot_be_searched_are_refused_and_nothing_is_left") {
        return;
    }
    let factor = "tune.tcp_congestion_control=keep,nosuch";
    let lacking = with(&["--lab", "--factor", factor]);
    refused(&lacking, 3, &["level nosuch", "this kernel has no congestion control `nosuch`"]);
    let agent = Agent::start();
    let host = format!("server={}", agent.address);
    // The master is on the same machine, and may change what all of it share.
    let without_consent = ["--host", &host, "--factor", "tune.server:tcp_sack=keep,0"];
    refused(
        &[&high[..], &without_consent].concat(),
        2,
        &["level 0", "this agent changes no settings of its host; start it with --tune"],
    );
}
