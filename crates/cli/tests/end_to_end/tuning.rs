//! Settings of hosts that a run changes: they hold while it runs, and are restored however it ends.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::sysctl;

use crate::program::{Program, Running, until};

const RMEM: &str = "net.ipv4.tcp_rmem";
const OTHER: &str = "4096 65536 131072";

/// A lab that is removed at the end of a test.
struct TestLab {
    name: String,
}

impl TestLab {
    fn up(what: &str) -> Self {
        let name = format!("test-{}-{what}", std::process::id());
        let up = Program::new(["lab", "up", "--name", &name]).finish();
        assert_eq!(up.code, 0, "{up}");
        Self { name }
    }

    /// A setting of a host.
    fn setting(&self, host: &str, name: &str) -> String {
        let namespace = NetNs::open(&format!("wirecost-{}-{host}", self.name)).unwrap();
        namespace.run(|| sysctl::read(name).unwrap()).unwrap()
    }

    fn set(&self, host: &str, name: &str, value: &str) {
        let namespace = NetNs::open(&format!("wirecost-{}-{host}", self.name)).unwrap();
        namespace.run(|| sysctl::write(name, value).unwrap()).unwrap();
    }

    fn mtu(&self, host: &str) -> String {
        let namespace = NetNs::open(&format!("wirecost-{}-{host}", self.name)).unwrap();
        let links = wirecost_linux::link::Links::of(&namespace).unwrap();
        format!("{:?}", links.get("eth0").unwrap().mtu)
    }

    /// A run of so long.
    fn run(&self, duration: &str, arguments: &[&str]) -> Program {
        let on_lab = format!("--lab={}", self.name);
        let run = ["run", "@stream", &on_lab, "--observe", "none", "--ramp", "100ms", "--quiet"];
        Program::new(run).args(["--duration", duration]).args(arguments)
    }

    /// A run of ten seconds under way, with its setting in force.
    fn under_way(&self) -> Running {
        let running = self.run("10s", &["--tune", &format!("tcp_rmem={OTHER}")]).start();
        until("the setting holds", || self.setting("h2", RMEM) == OTHER);
        running
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        Program::new(["lab", "down", "--name", &self.name]).finish();
    }
}

#[test]
fn settings_hold_for_a_run_and_are_restored() {
    if skip_without_namespaces("settings_hold_for_a_run_and_are_restored") {
        return;
    }
    let lab = TestLab::up("tuned");
    let (before, mtu) = (lab.setting("h1", RMEM), lab.mtu("h2"));
    assert_ne!(before, OTHER);
    let rmem = format!("tcp_rmem={OTHER}");
    let finished = lab
        .run("500ms", &["--tune", &rmem, "--tune", "mtu=1400", "--out", "kept", "--details"])
        .finish();
    finished.has_run();
    let run = finished.json("kept/run.json");
    for host in ["h1", "h2"] {
        let of_host = |name: &str| {
            let settings = run["settings"].as_array().unwrap();
            let is_it = |setting: &&Value| setting["name"] == name && setting["host"] == host;
            settings.iter().find(is_it).unwrap_or_else(|| panic!("{settings:?}"))["effective"]
                .clone()
        };
        assert_eq!(of_host("tune.tcp_rmem"), OTHER);
        assert_eq!(of_host("tune.mtu"), "1400");
        assert_eq!(lab.setting(host, RMEM), before);
    }
    assert_eq!(lab.mtu("h2"), mtu);
    // What the record says of the hosts is what held while they were measured.
    let hosts = fs::read_to_string(finished.path("kept/hosts.json")).unwrap();
    assert!(hosts.contains(OTHER), "{hosts}");
    assert!(finished.stdout.contains("tune.mtu"), "{finished}");
}

#[test]
fn settings_are_restored_when_everything_is_killed_at_once() {
    if skip_without_namespaces("settings_are_restored_when_everything_is_killed_at_once") {
        return;
    }
    let lab = TestLab::up("killed");
    let before = lab.setting("h2", RMEM);
    let running = lab.under_way();
    let mark = running.mark.clone();
    running.signal(Signal::KILL);
    running.wait_only();
    until("agents and guardians have ended", || crate::program::processes(&mark).is_empty());
    assert_eq!([lab.setting("h1", RMEM), lab.setting("h2", RMEM)], [before.clone(), before]);
    let restored = Program::new(["restore"]).finish();
    assert_eq!(restored.code, 0, "{restored}");
}

#[test]
fn a_value_that_somebody_else_has_set_is_left_and_told() {
    if skip_without_namespaces("a_value_that_somebody_else_has_set_is_left_and_told") {
        return;
    }
    let lab = TestLab::up("others");
    let rmem = format!("tcp_rmem={OTHER}");
    let running = lab.run("2s", &["--tune", &rmem, "--json", "r.json"]).start();
    until("the setting holds", || lab.setting("h2", RMEM) == OTHER);
    let theirs = "4096 87380 262144";
    lab.set("h2", RMEM, theirs);
    let finished = running.wait();
    finished.has_run();
    assert_eq!(lab.setting("h2", RMEM), theirs);
    let run = finished.json("r.json");
    let warnings = run["warnings"].as_array().unwrap();
    let left: Vec<&Value> = warnings.iter().filter(|w| w["code"] == "setting-left").collect();
    assert_eq!(left.len(), 1, "{warnings:?}");
    let message = left[0]["message"].as_str().unwrap();
    assert!(message.contains("h2") && message.contains(theirs), "{message}");
}

#[test]
fn settings_that_cannot_be_are_refused_before_anything_runs() {
    if skip_without_namespaces("settings_that_cannot_be_are_refused_before_anything_runs") {
        return;
    }
    let lab = TestLab::up("refused");
    for (tuning, code, reason) in [
        ("tcp_rmen=1 2 3", 2, "did you mean `tcp_rmem`?"),
        ("tcp_rmem=much", 2, "tcp_rmem"),
        ("mtu", 2, "must be NAME=VALUE"),
        // A veth has no rings.
        ("rings.rx=64", 3, "rings.rx"),
        ("h9:mtu=1400", 2, "the run has no host h9"),
    ] {
        let refused = lab.run("500ms", &["--tune", tuning]).finish();
        assert_eq!(refused.code, code, "{tuning}: {refused}");
        assert!(refused.to_string().contains(reason), "{tuning}: {refused}");
    }
    // Of several, none is set if one is refused.
    let before = lab.setting("h1", RMEM);
    let rmem = format!("tcp_rmem={OTHER}");
    let refused = lab.run("500ms", &["--tune", &rmem, "--tune", "rings.rx=64"]).finish();
    assert_eq!(refused.code, 3, "{refused}");
    assert_eq!(lab.setting("h1", RMEM), before);
}

#[test]
fn packets_of_a_larger_mtu_pass_the_switch() {
    if skip_without_namespaces("packets_of_a_larger_mtu_pass_the_switch") {
        return;
    }
    for lab in [&["--peers", "2"][..], &["--rate", "1gbit"]] {
        let run =
            ["run", "@stream", "--lab", "--duration", "500ms", "--observe", "none", "--quiet"];
        let tune = ["--tune", "mtu=9000", "--tune", "offload.tso=off", "--tune", "offload.gso=off"];
        Program::new(run).args(lab).args(tune).measure();
    }
}

#[test]
fn hosts_have_values_of_their_own_for_what_they_do_not_share() {
    if skip_without_namespaces("hosts_have_values_of_their_own_for_what_they_do_not_share") {
        return;
    }
    let lab = TestLab::up("own");
    let tune = ["--tune", "mtu=1400", "--tune", "h2:mtu=1300", "--tune", "peer:tcp_sack=0"];
    let finished = lab.run("500ms", &tune).args(["--json", "run.json"]).finish();
    finished.has_run();
    let run = finished.json("run.json");
    let mut set: Vec<String> = (run["settings"].as_array().unwrap().iter())
        .filter(|setting| setting["name"].as_str().unwrap().starts_with("tune."))
        .map(|setting| format!("{}:{}={}", setting["host"], setting["name"], setting["effective"]))
        .map(|text| text.replace('"', ""))
        .collect();
    set.sort();
    assert_eq!(set, ["h1:tune.mtu=1400", "h2:tune.mtu=1300", "h2:tune.tcp_sack=0"]);

    // Both hosts are in one namespace.
    let run = ["run", "@stream", "--duration", "500ms", "--observe", "none", "--quiet"];
    let tune = ["--tune", "master:tcp_sack=0", "--tune", "peer:tcp_sack=1"];
    let shared = Program::in_own_network(&[&run[..], &tune].concat()).finish();
    assert_eq!(shared.code, 2, "{shared}");
    assert!(shared.to_string().contains("share the setting tcp_sack"), "{shared}");
}

#[test]
fn a_tunable_is_an_axis_of_a_study() {
    if skip_without_namespaces("a_tunable_is_an_axis_of_a_study") {
        return;
    }
    let study = r#"
        title = "MTU"
        profile = "@stream"
        place = "lab"
        [set]
        duration = "200ms"
        ramp = "50ms"
        observe = "none"
        [repeat]
        times = 1
        [axes]
        "tune.mtu" = [1400, 9000]
    "#;
    let finished =
        Program::new(["study", "run", "s.toml", "--out", "kept"]).file("s.toml", study).finish();
    finished.has_run();
    let mut values: Vec<String> = fs::read_dir(finished.path("kept/runs"))
        .unwrap()
        .map(|entry| {
            let run = fs::read(entry.unwrap().path().join("run.json")).unwrap();
            let run: Value = serde_json::from_slice(&run).unwrap();
            let settings = run["settings"].as_array().unwrap();
            let mtu = settings.iter().find(|setting| setting["name"] == "tune.mtu").unwrap();
            mtu["effective"].as_str().unwrap().to_owned()
        })
        .collect();
    values.sort();
    assert_eq!(values, ["1400", "9000"]);
}
