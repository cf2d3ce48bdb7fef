//! Hosts in a virtual machine with another kernel, whose agents serve serial ports.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use wirecost_linux::privilege::skip;

use crate::document::Document;
use crate::guest::{Guest, LACKS};
use crate::program::{BINARY, Finished, Program, signal_to};
use crate::rss::{NETWORK, packets_of_queue};

/// `scripts/vm-up`, ended when this is dropped.
struct Vm {
    process: Child,
    runtime: TempDir,
}

impl Vm {
    /// With Debian's own kernel, or with a version. `None` where this machine lacks what it takes, which is
    /// then told.
    fn up(test: &str, version: Option<&str>) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/vm-up");
        let runtime = tempfile::tempdir().unwrap();
        let mut command = Command::new(script);
        command.args(["--name", "other", BINARY]).args(version);
        if version.is_some() {
            command.env_remove("WIRECOST_VM_KERNEL");
        }
        let mut process = command
            .env("WIRECOST_RUNTIME_DIR", runtime.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.contains("other runs Linux") {
            return Some(Self { process, runtime });
        }
        let ended = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(LACKS), "{said}");
        skip(test, said.trim());
        None
    }

    fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).on_machine(self.runtime.path())
    }

    /// A run between its hosts. Emulated CPUs take time for what happens at the edges of a window.
    fn run(&self, arguments: &[&str]) -> Program {
        let run = ["run", "@stream", "--vm", "other", "--duration", "5s", "--quiet", "--details"];
        self.program(&run).args(arguments)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        signal_to(self.process.id(), Signal::TERM);
        let _ = self.process.wait();
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

#[test]
fn another_kernel_is_measured_observed_and_tuned() {
    let Some(vm) = Vm::up("another_kernel_is_measured_observed_and_tuned", None) else { return };
    let before = measured_and_observed(&vm, "6.1.");
    settings_hold_and_are_restored(&vm, &before, SETTINGS);
    // The guest sees that its controller was killed, restores, and serves the next one.
    let arguments = ["run", "@stream", "--vm", "other", "--duration", "60s", "--observe", "none"];
    let mut killed = vm.program(&arguments).args(["--tune", "mtu=1400"]).start();
    killed.error_line(|line| line.contains("window"));
    killed.signal(Signal::KILL);
    killed.wait_only();
    let after = vm.run(&["--observe", "none", "--out", "kept", "--json", "run.json"]).finish();
    assert_eq!(after.code, 0, "{after}");
    assert_eq!(device(&after, "h1")["mtu"], 1500);
    study(&vm);
}

#[test]
fn a_later_kernel_is_measured_observed_and_tuned() {
    let test = "a_later_kernel_is_measured_observed_and_tuned";
    let Some(vm) = Vm::up(test, Some("6.12")) else { return };
    let before = measured_and_observed(&vm, "6.12.");
    settings_hold_and_are_restored(&vm, &before, STEERING);
}

/// A run with all probes on a kernel of this version.
fn measured_and_observed(vm: &Vm, version: &str) -> Finished {
    let run = vm.run(&["--observe", PROBES, "--out", "kept", "--json", "run.json"]).finish();
    assert_eq!(run.code, 0, "{run}");
    observed(&run.document());
    let hosts = run.json("kept/hosts.json");
    for host in ["h1", "h2"] {
        let release = hosts[host]["kernel"]["release"].as_str().expect("a kernel");
        assert!(release.starts_with(version), "{release}");
        assert_eq!(hosts[host]["cpu"]["emulated"], true);
    }
    has_features_of_hardware(&run);
    doctor(vm, version);
    run
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

fn doctor(vm: &Vm, version: &str) {
    let socket = format!("unix:{}/vm/other.h1.sock", vm.runtime.path().display());
    let finished = vm.program(&["doctor", "--host", &socket, "--json", "doctor.json"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let doctor = finished.json("doctor.json");
    let release = doctor["host"]["kernel"].as_str().expect("a kernel");
    assert!(release.starts_with(version), "{release}");
}

fn settings_hold_and_are_restored(vm: &Vm, before: &Finished, tune: &[(&str, &str)]) {
    let mut arguments = vec!["--observe".to_owned(), "none".to_owned()];
    for (name, value) in tune {
        arguments.extend(["--tune".to_owned(), format!("{name}={value}")]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tuned = vm.run(&arguments).args(["--out", "kept", "--json", "run.json"]).finish();
    assert_eq!(tuned.code, 0, "{tuned}");
    let run = tuned.document();
    let settings = run.list("/settings");
    for (name, value) in tune {
        let (of, name) = name.split_once(':').map_or((None, *name), |(of, name)| (Some(of), name));
        let name = format!("tune.{name}");
        let is_it = |s: &&Value| s["name"] == name && of.is_none_or(|of| s["host"] == of);
        let found: Vec<&Value> = settings.iter().filter(is_it).collect();
        assert!(!found.is_empty(), "{name}: {settings:#?}");
        assert!(found.iter().all(|s| s["effective"] == *value), "{found:#?}");
    }
    if tune.contains(&("h1:channels.combined", "1")) {
        assert_eq!(device(&tuned, "h1")["channels"]["combined"], 1);
    }
    let after = vm.run(&["--observe", "none", "--out", "kept", "--json", "run.json"]).finish();
    assert_eq!(after.code, 0, "{after}");
    for host in ["h1", "h2"] {
        let (before, after) = (device(before, host), device(&after, host));
        for key in ["rings", "channels", "coalescing", "flow_control", "mtu", "rss"] {
            assert_eq!(before[key], after[key], "{key} of {host}");
        }
    }
}

/// One study in two places.
fn study(vm: &Vm) {
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
    assert_eq!(finished.code, 0, "{finished}");
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

/// The key, the table and the fields are those of a device that is not ours.
#[test]
fn connections_arrive_on_the_queues_of_virtio_net_where_a_profile_places_them() {
    let profile = r#"
        name = "placed"
        [variables]
        h = { help = "remote host" }
        [[group]]
        strands = 4
        [[group.transaction]]
        flowops = [{ type = "connect", remotehost = "${h}", protocol = "udp", placement = "even" }]
        [[group.transaction]]
        iterations = 1000
        flowops = [{ type = "write", size = 100 }, { type = "read", size = 100 }]
        [[group.transaction]]
        flowops = ["disconnect"]
    "#;
    let script = format!(
        r#"{NETWORK}
$in_h1 '{BINARY}' agent --listen 198.18.0.1:20050 >agent 2>&1 &
agent=$!
until grep -q 198.18.0.1:20050 agent; do sleep 0.2; done
for placement in even all-on-one; do
    $in_h1 ethtool -S eth0 >before-$placement
    $in_h2 '{BINARY}' run placed.toml --host h=198.18.0.1:20050 --placement $placement --observe none \
        --json run-$placement.json
    $in_h1 ethtool -S eth0 >after-$placement
done
kill $agent
"#
    );
    let test = "connections_arrive_on_the_queues_of_virtio_net_where_a_profile_places_them";
    let files = [("placed.toml".to_owned(), profile.as_bytes().to_vec())];
    let guest = match Guest::run_with(&["--nics"], "virtio_net,e1000e", &files, &script) {
        Ok(guest) => guest,
        Err(missing) => return skip(test, &missing),
    };
    let packets = |name: &str, queue| packets_of_queue(&guest, name, queue);
    // Each strand sends 1000; the control connection adds a packet now and then to one of the queues.
    for (placement, expected) in [("even", [2000, 2000]), ("all-on-one", [4000, 0])] {
        let got = [0, 1].map(|of| {
            packets(&format!("after-{placement}"), of) - packets(&format!("before-{placement}"), of)
        });
        let near = |(got, wanted): (u64, u64)| (wanted..wanted + 800).contains(&got);
        assert!(got.into_iter().zip(expected).all(near), "{placement}: {got:?}");
        let run = Document::valid(guest.json(&format!("run-{placement}.json")));
        let queues = run.list("/placements").iter().map(|strand| {
            assert_eq!(strand["by"], "device-table", "{strand}");
            strand["queue"].as_u64().unwrap()
        });
        let one = u64::from(placement == "even");
        assert_eq!(queues.collect::<Vec<_>>(), [0, one, 0, one]);
    }
}
