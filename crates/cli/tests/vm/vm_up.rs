//! Hosts in a virtual machine with another kernel, whose agents serve serial ports: `scripts/vm-up`, as `make vm` runs it.

use std::cell::OnceCell;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::document::Document;
use crate::guest::{Guest, checks, is_wanted, reason_of, run_parts, script, tell_retried};
use crate::program::{BINARY, Finished, Program, signal_to};

/// Hosts that `scripts/vm-up` serves.
struct Vm {
    guest: &'static str,
    /// The first two numbers of the kernel's version.
    kernel: &'static str,
    /// What is set in a run.
    settings: &'static [(&'static str, &'static str)],
    runtime: TempDir,
    /// A run before anything was set.
    before: OnceCell<Finished>,
}

/// Its name, and what panics if it does not hold.
type Check = (&'static str, fn(&Vm));

/// Debian's own kernel. The guest runs the parts of a test before the hosts are made.
pub(crate) fn debian(guest: Guest) {
    if guest.has_parts() {
        std::os::unix::fs::symlink(run_parts(), guest.directory().join("first")).unwrap();
    }
    let mut command = Command::new(script("vm-up"));
    command.arg("--share").arg(guest.directory()).args(["--name", "other", BINARY]);
    let checks: &[Check] = checks![
        is_measured_and_observed,
        settings_hold_and_are_restored,
        settings_are_restored_when_the_controller_is_killed,
        a_study_has_places_in_and_out_of_the_guest,
    ];
    serve(guest, command, "6.1", SETTINGS, checks);
}

/// A version that Debian has beside its own.
pub(crate) fn version(guest: Guest, kernel: &'static str) {
    let mut command = Command::new(script("vm-up"));
    command.env_remove("WIRECOST_VM_KERNEL").args(["--name", "other", BINARY, kernel]);
    let checks: &[Check] = checks![is_measured_and_observed, settings_hold_and_are_restored];
    serve(guest, command, kernel, STEERING, checks);
}

fn serve(
    mut guest: Guest,
    mut command: Command,
    kernel: &'static str,
    settings: &'static [(&'static str, &'static str)],
    checks: &[Check],
) {
    let checks = if is_wanted("vm_up") { checks } else { &[] };
    if checks.is_empty() && !guest.has_parts() {
        return;
    }
    let runtime = tempfile::tempdir().unwrap();
    let mut process = command
        .env("WIRECOST_RUNTIME_DIR", runtime.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = process.stdout.take().unwrap();
    guest.watch(&mut process);
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).unwrap();
    if line.contains("other runs Linux") {
        guest.report.says_after("hosts are up", guest.began);
        let vm = Vm { guest: guest.name(), kernel, settings, runtime, before: OnceCell::new() };
        for (name, check) in checks {
            let began = Instant::now();
            guest.report.check(&format!("vm_up::{name}"), || check(&vm));
            guest.report.says_after(name, began);
        }
        signal_to(process.id(), Signal::TERM);
        guest.ends(process, true);
    } else {
        guest.ends(process, false);
    }
}

impl Vm {
    fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).on_machine(self.runtime.path())
    }

    /// A valid run between its hosts. Emulated CPUs take time for what happens at the edges of a window. On a busy machine one
    /// stands still at times: a run that is invalid for that is repeated, twice at most.
    fn run(&self, arguments: &[&str]) -> Finished {
        let run = ["run", "@stream", "--vm", "other", "--duration", "5s", "--quiet", "--details"];
        let kept = ["--out", "kept", "--json", "run.json"];
        let mut finished = self.program(&run).args(arguments).args(kept).finish();
        for _ in 0..2 {
            if finished.code != 4 {
                break;
            }
            let name = format!("{}::vm_up::{}", self.guest, arguments.join(" "));
            tell_retried(&name, &reason_of(&finished.json("run.json")));
            std::fs::remove_dir_all(finished.path("kept")).unwrap();
            finished = finished.again().finish();
        }
        assert_eq!(finished.code, 0, "{finished}");
        finished
    }
}

/// What the record says of the only device of a host other than `lo`.
fn device(finished: &Finished, host: &str) -> Value {
    let hosts = finished.json("kept/hosts.json");
    let devices = hosts[host]["devices"].as_array().unwrap_or_else(|| panic!("{hosts:#}")).clone();
    devices.into_iter().find(|device| device["name"] == "eth0").expect("its device")
}

const PROBES: &str = "cpu,pmu,interrupts,segments,tcp,drops,memory,functions,syscalls";

/// Settings that no device of a lab has, and their values in the record.
const SETTINGS: &[(&str, &str)] = &[
    ("h1:rings.rx", "512"),
    ("h1:channels.combined", "1"),
    ("h2:rings.rx", "512"),
    ("h2:coalesce.rx-usecs", "64"),
    ("h2:pause.autoneg", "off"),
    ("h2:pause.tx", "off"),
    ("tcp_congestion_control", "bic"),
];

/// How a device steers what it receives. It takes both back when the number of its channels changes.
const STEERING: &[(&str, &str)] = &[("h1:rss.table", "equal 1"), ("h1:rss.key", KEY)];
/// The key of <https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation>.
const KEY: &str = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:\
                   6a:42:b7:3b:be:ac:01:fa";

/// A run with all probes.
fn is_measured_and_observed(vm: &Vm) {
    let run = vm.run(&["--observe", PROBES]);
    observed(&run.document());
    let hosts = run.json("kept/hosts.json");
    for host in ["h1", "h2"] {
        is_kernel(vm, &hosts[host]["kernel"]["release"]);
        assert_eq!(hosts[host]["cpu"]["emulated"], true);
    }
    has_features_of_hardware(&run);
    doctor(vm);
    vm.before.set(run).unwrap();
}

fn is_kernel(vm: &Vm, release: &Value) {
    let release = release.as_str().expect("a kernel");
    assert!(release.starts_with(&format!("{}.", vm.kernel)), "{release}");
}

/// Every probe works on this kernel, but for counters that the CPU lacks.
fn observed(run: &Document) {
    let warned = run.list("/warnings").iter().filter(|w| w["code"] == "emulated-cpu");
    assert_eq!(warned.count(), 2);
    let probes = run.list("/observe/probes");
    // Of the machine that both hosts share.
    assert_eq!(probes.len(), PROBES.split(',').count(), "{probes:#?}");
    for probe in probes {
        let expected = if probe["name"] == "pmu" { "no" } else { "ready" };
        assert_eq!(probe["status"], expected, "{probe:#}");
    }
    let functions = run.at("/observe/hosts/0/functions");
    assert!(functions.is_object(), "{functions:#}");
}

fn has_features_of_hardware(finished: &Finished) {
    let (virtio, e1000e) = (device(finished, "h1"), device(finished, "h2"));
    assert_eq!((&virtio["driver"], &e1000e["driver"]), (&json!("virtio_net"), &json!("e1000e")));
    assert_eq!(virtio["channels"]["combined"], 2, "{virtio:#}");
    assert!(virtio["rings"].is_object() && e1000e["rings"].is_object());
    assert!(e1000e["coalescing"].is_object() && e1000e["flow_control"].is_object());
}

fn doctor(vm: &Vm) {
    let socket = format!("unix:{}/vm/other.h1.sock", vm.runtime.path().display());
    let finished = vm.program(&["doctor", "--host", &socket, "--json", "doctor.json"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    is_kernel(vm, &finished.json("doctor.json")["host"]["kernel"]);
}

fn settings_hold_and_are_restored(vm: &Vm) {
    let before = vm.before.get().expect("a run before anything was set");
    let mut arguments = vec!["--observe".to_owned(), "none".to_owned()];
    for (name, value) in vm.settings {
        arguments.extend(["--tune".to_owned(), format!("{name}={value}")]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tuned = vm.run(&arguments);
    let run = tuned.document();
    let settings = run.list("/settings");
    for (name, value) in vm.settings {
        let (of, name) = name.split_once(':').map_or((None, *name), |(of, name)| (Some(of), name));
        let name = format!("tune.{name}");
        let is_it = |s: &&Value| s["name"] == name && of.is_none_or(|of| s["host"] == of);
        let found: Vec<&Value> = settings.iter().filter(is_it).collect();
        assert!(!found.is_empty(), "{name}: {settings:#?}");
        assert!(found.iter().all(|s| s["effective"] == *value), "{found:#?}");
    }
    if vm.settings.contains(&("h1:channels.combined", "1")) {
        assert_eq!(device(&tuned, "h1")["channels"]["combined"], 1);
    }
    let after = vm.run(&["--observe", "none"]);
    for host in ["h1", "h2"] {
        let (before, after) = (device(before, host), device(&after, host));
        for key in ["rings", "channels", "coalescing", "flow_control", "mtu", "rss"] {
            assert_eq!(before[key], after[key], "{key} of {host}");
        }
    }
}

/// The guest sees that its controller was killed, restores, and serves the next one.
fn settings_are_restored_when_the_controller_is_killed(vm: &Vm) {
    let arguments = ["run", "@stream", "--vm", "other", "--duration", "60s", "--observe", "none"];
    let mut killed = vm.program(&arguments).args(["--tune", "mtu=1400"]).start();
    killed.error_line(|line| line.contains("window"));
    killed.signal(Signal::KILL);
    killed.wait_only();
    let after = vm.run(&["--observe", "none"]);
    assert_eq!(device(&after, "h1")["mtu"], 1500);
}

/// Runs of a study that are invalid (4) have their places too.
fn a_study_has_places_in_and_out_of_the_guest(vm: &Vm) {
    let text = r#"
        profile = "@rr"
        [set]
        duration = "2s"
        observe = "none"
        [repeat]
        times = 2
        [axes]
        place = ["loopback", "vm:other"]
        connections = [1, 4]
    "#;
    let study = vm.program(&["study", "run", "s.toml", "--out", "kept", "--quiet"]);
    let finished = study.file("s.toml", text).finish();
    assert!([0, 4].contains(&finished.code), "{finished}");
    let report = vm.program(&[
        "report",
        finished.path("kept").to_str().unwrap(),
        "--format",
        "json",
        "--out",
        "r.json",
    ]);
    let report = report.finish();
    assert_eq!(report.code, 0, "{report}");
    let report = report.json("r.json");
    let text = report.to_string();
    assert!(text.contains("vm:other"), "{report:#}");
    assert!(!text.contains(r#""axis":"place""#), "{report:#}");
}
