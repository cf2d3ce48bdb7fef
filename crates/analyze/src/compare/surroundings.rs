//! Differences of hosts and runs other than the compared figures.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wirecost_model::comparison::{Comparison, Difference, DifferenceKind};
use wirecost_model::environment::Environment;
use wirecost_model::program::Side;
use wirecost_model::rss::table_text;
use wirecost_model::run::Run;
use wirecost_model::study::Value as Setting;

use super::Subject;

/// The environments of a run's hosts, by name.
pub type Hosts = BTreeMap<String, Environment>;

/// Values of each property, by property and host.
type Facts = BTreeMap<(DifferenceKind, String), BTreeMap<String, BTreeSet<String>>>;

use DifferenceKind::{
    Cpu, Device, Frequency, Kernel, Memory, Mitigation, Offload, Path, Process, Sysctl, Wirecost,
};

/// Properties that change from run to run by themselves, or follow from another compared property.
const PASSING: [&str; 10] = [
    "cpu.load",
    "cpu.steal_percent",
    "cpu.turbo_setting",
    "cpu.pmus",
    "kernel.available_clocksources",
    "memory.available_bytes",
    "memory.slab_bytes",
    "path.backlog",
    "process.quota_setting",
    "process.quota_value",
];

/// The same of a device. Its vectors have numbers that the kernel chose.
const PASSING_OF_DEVICES: [&str; 6] =
    ["bus", "changeable_features", "name", "rx_missed", "up", "vectors"];

/// Section of each value of `hosts.json`, longest prefix first.
const KINDS: [(&str, DifferenceKind); 11] = [
    ("cpu.mitigations.", Mitigation),
    ("cpu.frequency_driver", Frequency),
    ("cpu.governors", Frequency),
    ("cpu.idle_states", Frequency),
    ("cpu.turbo", Frequency),
    ("cpu.", Cpu),
    ("kernel.", Kernel),
    ("memory.", Memory),
    ("path.", Path),
    ("process.", Process),
    ("sysctls.", Sysctl),
];

/// Collects all differences and unknown values.
pub(super) fn fill(a: &Subject, b: &Subject, comparison: &mut Comparison) {
    let known = |subject: &Subject| !subject.hosts.is_empty();
    for (name, subject) in [("A", a), ("B", b)] {
        if !known(subject) {
            comparison.unknown.push(format!(
                "{name} ({}) has no hosts.json: of the hosts no more is compared than what run.json \
                 says",
                subject.name
            ));
        }
    }
    for (name, subject) in [("A", a), ("B", b)] {
        if !subject.single && subject.study_keys.is_none() {
            comparison.unknown.push(format!(
                "{name} ({}) has no readable study.toml: the settings of the studies are not compared",
                subject.name
            ));
        }
    }
    let records = known(a) && known(b);
    let by_role = hosts(a) != hosts(b);
    let (of_a, of_b) = (facts(a, records, by_role), facts(b, records, by_role));
    of_studies(a, b, &mut comparison.differences);
    of_options(a, b, comparison);
    let things: BTreeSet<&(DifferenceKind, String)> = of_a.keys().chain(of_b.keys()).collect();
    let none = BTreeMap::new();
    for thing in things {
        let (a, b) = (of_a.get(thing).unwrap_or(&none), of_b.get(thing).unwrap_or(&none));
        note(thing, a, b, &mut comparison.differences);
    }
}

/// Keys of study files that say nothing about its runs.
const LABELS: [&str; 2] = ["tables", "title"];

/// Differences of the study files. A key that one of them lacks has its default there.
fn of_studies(a: &Subject, b: &Subject, differences: &mut Vec<Difference>) {
    let (Some(a), Some(b)) = (&a.study_keys, &b.study_keys) else { return };
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for name in names.into_iter().filter(|name| !LABELS.contains(&name.as_str())) {
        let value = |keys: &BTreeMap<String, String>| {
            keys.get(name).cloned().unwrap_or_else(|| "not set".to_owned())
        };
        if a.get(name) != b.get(name) {
            differences.push(Difference {
                kind: DifferenceKind::Study,
                hosts: Vec::new(),
                what: name.clone(),
                a: Some(value(a)),
                b: Some(value(b)),
            });
        }
    }
}

/// Differences of what was set for the runs: options of `run`, and variables of the profile.
fn of_options(a: &Subject, b: &Subject, comparison: &mut Comparison) {
    let all = |subject: &Subject| {
        let runs = subject.measured.points.iter().flat_map(|point| &point.runs);
        runs.map(|run| run.options.as_deref()).collect::<Option<Vec<_>>>().map(|options| {
            let name = |option: &Setting| option.name.clone();
            let names: BTreeSet<String> = options.iter().copied().flatten().map(name).collect();
            (names, options.into_iter().map(<[_]>::to_vec).collect::<Vec<_>>())
        })
    };
    let (of_a, of_b) = (all(a), all(b));
    for (name, subject, options) in [("A", a, &of_a), ("B", b, &of_b)] {
        if options.is_none() {
            comparison.unknown.push(format!(
                "{name} ({}) has runs of an earlier version, which do not say what was set: the settings \
                 are not compared",
                subject.name
            ));
        }
    }
    let (Some((names_a, of_a)), Some((names_b, of_b))) = (of_a, of_b) else { return };
    // The engine has a key of its own.
    for name in names_a.union(&names_b).filter(|name| *name != "engine") {
        let values = |runs: &[Vec<Setting>]| {
            let of_run = |options: &Vec<Setting>| {
                let found = options.iter().find(|option| option.name == *name);
                found.map_or_else(|| "not set".to_owned(), |option| option.value.clone())
            };
            runs.iter().map(of_run).collect::<BTreeSet<String>>()
        };
        let (a, b) = (values(&of_a), values(&of_b));
        if a != b {
            let show = |values: BTreeSet<String>| {
                Some(values.into_iter().collect::<Vec<_>>().join(" or "))
            };
            comparison.differences.push(Difference {
                kind: DifferenceKind::Run,
                hosts: Vec::new(),
                what: name.clone(),
                a: show(a),
                b: show(b),
            });
        }
    }
}

/// Merges differences that are equal on several hosts.
fn note(
    (kind, what): &(DifferenceKind, String),
    a: &BTreeMap<String, BTreeSet<String>>,
    b: &BTreeMap<String, BTreeSet<String>>,
    differences: &mut Vec<Difference>,
) {
    let mut told: Vec<Difference> = Vec::new();
    let hosts: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for host in hosts {
        let value = |side: &BTreeMap<String, BTreeSet<String>>| {
            let values = side.get(host)?.iter().map(String::as_str).collect::<Vec<_>>();
            Some(values.join(" or "))
        };
        let (a, b) = (value(a), value(b));
        if a == b {
            continue;
        }
        let name = (!host.is_empty()).then(|| host.clone());
        match told.iter_mut().find(|told| told.a == a && told.b == b) {
            Some(told) => told.hosts.extend(name),
            None => told.push(Difference {
                kind: *kind,
                hosts: name.into_iter().collect(),
                what: what.clone(),
                a,
                b,
            }),
        }
    }
    differences.extend(told);
}

/// The hosts of all runs, with whether each is the master.
fn hosts(subject: &Subject) -> BTreeMap<&str, Side> {
    let runs = subject.measured.points.iter().flat_map(|point| &point.runs);
    runs.flat_map(|run| &run.hosts).map(|host| (host.name.as_str(), host.role)).collect()
}

/// Of the hosts by their records, or by what the documents of the runs say. Where the two sides have
/// other hosts, who drives is put beside who drives, and the peers beside the peers.
fn facts(subject: &Subject, records: bool, by_role: bool) -> Facts {
    let roles = hosts(subject);
    let mut facts = Facts::new();
    let mut add = |kind, what: &str, host: &str, value: String| {
        let host = match roles.get(host).filter(|_| by_role) {
            Some(Side::Master) => "the master",
            Some(Side::Peer) => "the peers",
            None => host,
        };
        let of_hosts = facts.entry((kind, what.to_owned())).or_default();
        of_hosts.entry(host.to_owned()).or_default().insert(value);
    };
    for run in subject.measured.points.iter().flat_map(|point| &point.runs) {
        of_run(run, &mut add);
        for host in run.hosts.iter().filter(|_| !records) {
            add(Kernel, "release", &host.name, host.facts.kernel.clone());
            add(Cpu, "model", &host.name, host.facts.cpu_model.clone());
            add(Cpu, "threads", &host.name, host.facts.machine_cpus.to_string());
            add(Memory, "total_bytes", &host.name, host.facts.memory_bytes.to_string());
        }
    }
    for (name, host) in subject.hosts.iter().flatten().filter(|_| records) {
        of_host(name, host, &mut add);
    }
    facts
}

type Add<'a> = &'a mut dyn FnMut(DifferenceKind, &str, &str, String);

fn of_run(run: &Run, add: Add<'_>) {
    add(Wirecost, "version", "", run.version.clone());
    add(DifferenceKind::Run, "engine", "", run.engine.clone());
    let hosts: Vec<&str> = run.hosts.iter().map(|host| host.name.as_str()).collect();
    add(DifferenceKind::Run, "hosts", "", hosts.join(", "));
    if let Some(window) = &run.window {
        // The window of each run differs slightly from the requested length.
        add(DifferenceKind::Run, "window", "", format!("{:.1} s", window.seconds));
    }
    let watching = |probe: &&wirecost_model::observe::ProbeReport| probe.reason.is_none();
    let probes = run.observe.iter().flat_map(|observe| &observe.probes).filter(watching);
    let mut probes: Vec<&str> = probes.map(|probe| probe.name.as_str()).collect();
    probes.sort_unstable();
    probes.dedup();
    add(DifferenceKind::Run, "probes", "", probes.join(", "));
    of_settings(run, add);
    for host in &run.hosts {
        let cpus = host.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        add(DifferenceKind::Run, "CPUs of the host", &host.name, cpus);
        add(DifferenceKind::Run, "workers", &host.name, host.workers.to_string());
    }
}

/// What the kernel made of socket options.
fn of_settings(run: &Run, add: Add<'_>) {
    for setting in &run.settings {
        let what = format!("{} in effect", setting.name);
        add(DifferenceKind::Run, &what, &setting.host, setting.effective.clone());
    }
}

fn of_host(host: &str, environment: &Environment, add: Add<'_>) {
    let Ok(Value::Object(mut parts)) = serde_json::to_value(environment) else { return };
    parts.remove("devices");
    for device in environment.devices.iter().flatten().filter(|device| device.up) {
        let Ok(Value::Object(mut parts)) = serde_json::to_value(device) else { continue };
        if let Some(rss) = &device.rss {
            parts.insert("rss.table".to_owned(), table_text(&rss.table).into());
            parts.insert("rss.key".to_owned(), rss.key.clone().into());
            parts.remove("rss");
        }
        PASSING_OF_DEVICES.iter().for_each(|name| drop(parts.remove(*name)));
        let features = parts.remove("features").unwrap_or_default();
        leaves(&features, "", &mut |name, value| {
            add(Offload, &format!("{} {name}", device.name), host, value);
        });
        leaves(&Value::Object(parts), "", &mut |name, value| {
            add(Device, &format!("{} {name}", device.name), host, value);
        });
    }
    leaves(&Value::Object(parts), "", &mut |name, value| {
        if PASSING.iter().any(|passing| within(name, passing)) {
            return;
        }
        let Some((prefix, kind)) = KINDS.iter().find(|(prefix, _)| name.starts_with(prefix)) else {
            return;
        };
        // What a kind is of is not said again in the name.
        let short = match prefix.strip_suffix('.') {
            Some(_) => &name[prefix.len()..],
            None => name.rsplit('.').next().unwrap_or(name),
        };
        add(*kind, short, host, value);
    });
}

fn within(name: &str, part: &str) -> bool {
    name.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Every known value, by its path; a list is one value.
fn leaves(value: &Value, path: &str, found: &mut dyn FnMut(&str, String)) {
    match value {
        Value::Null => {}
        Value::Object(parts) => {
            for (name, part) in parts {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                leaves(part, &path, found);
            }
        }
        Value::String(text) => found(path, text.clone()),
        Value::Bool(on) => found(path, if *on { "on" } else { "off" }.to_owned()),
        Value::Array(list) if list.is_empty() => found(path, "none".to_owned()),
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            found(path, texts.join(", "));
        }
        other => found(path, other.to_string()),
    }
}
