//! The hosts of a run, and how they differ.

use wirecost_analyze::compare::Hosts;
use wirecost_model::document::{Cell, Column, Emphasis, Section, Table};
use wirecost_model::environment::Environment;
use wirecost_model::run::{HostRow, Run};
use wirecost_model::units::{bytes, cpus};

/// A property of a host, as a reader compares it.
type Property = (&'static str, fn(&HostRow, &Environment) -> Option<String>);

const PROPERTIES: &[Property] = &[
    ("machine", |host, _| text(&host.facts.hostname)),
    ("address", |host, _| host.address.clone()),
    ("kernel", |host, _| text(&host.facts.kernel)),
    ("architecture", |host, _| text(&host.facts.architecture)),
    ("CPU", |host, _| text(&host.facts.cpu_model)),
    ("CPUs of the run", |host, _| text(&cpus(&host.cpus))),
    ("CPUs of the machine", |host, _| Some(host.facts.machine_cpus.to_string())),
    ("memory", |host, _| Some(bytes(host.facts.memory_bytes))),
    ("virtual machine", |_, of| yes_or_no(of.cpu.virtual_machine)),
    ("frequency governors", |_, of| Some(of.cpu.governors.as_ref()?.join(", "))),
    ("turbo", |_, of| yes_or_no(of.cpu.turbo)),
    ("hardware threads share cores", |_, of| yes_or_no(of.cpu.smt)),
    ("clock source", |_, of| of.kernel.clocksource.clone()),
    ("transparent huge pages", |_, of| of.kernel.transparent_hugepage.clone()),
    ("devices", |_, of| devices(of)),
    ("congestion control", |_, of| of.sysctl("net.ipv4.tcp_congestion_control").map(str::to_owned)),
    ("receive buffer (tcp_rmem)", |_, of| of.sysctl("net.ipv4.tcp_rmem").map(str::to_owned)),
    ("send buffer (tcp_wmem)", |_, of| of.sysctl("net.ipv4.tcp_wmem").map(str::to_owned)),
    ("wirecost", |host, _| text(&host.facts.version)),
];

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn yes_or_no(value: Option<bool>) -> Option<String> {
    value.map(|value| if value { "yes" } else { "no" }.to_owned())
}

/// Those that are up, without loopback beside others.
fn devices(of: &Environment) -> Option<String> {
    let devices = of.devices.as_ref()?.iter().filter(|device| device.up);
    let shown: Vec<String> = devices
        .clone()
        .filter(|device| device.name != "lo" || devices.clone().count() == 1)
        .map(|device| {
            let kind = device.driver.as_deref().or(device.kind.as_deref());
            let kind = kind.map(|kind| format!("{kind}, ")).unwrap_or_default();
            let mtu = device.mtu.map_or_else(String::new, |mtu| format!("MTU {mtu}"));
            format!("{} ({kind}{mtu})", device.name)
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// A row for each property, a column for each host; what differs stands out.
pub(super) fn section(run: &Run, environments: &Hosts) -> Option<Section> {
    if run.hosts.is_empty() {
        return None;
    }
    let mut section = Section::named("host-differences", "Hosts, and how they differ");
    let unknown = Environment::default();
    let mut columns = vec![Column::text("")];
    columns.extend(run.hosts.iter().map(|host| Column::text(&host.name)));
    let mut table = Table::new(columns);
    let mut differing = Vec::new();
    for (name, of) in PROPERTIES {
        let value = |host: &HostRow| of(host, environments.get(&host.name).unwrap_or(&unknown));
        let values: Vec<Option<String>> = run.hosts.iter().map(value).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let differs = values.iter().any(|value| *value != values[0]);
        // Each host has an address and CPUs of its own.
        let matters = differs && !matches!(*name, "address" | "CPUs of the run");
        differing.extend(matters.then_some(*name));
        let emphasis = if matters { Emphasis::Strong } else { Emphasis::Plain };
        let mut row = vec![Cell::text(*name)];
        row.extend(values.iter().map(|value| match value {
            Some(value) => Cell::marked(emphasis, value),
            None => Cell::Missing("unknown".to_owned()),
        }));
        table.row(row);
    }
    let one_kernel = run.hosts.iter().any(|host| !host.shares_machine_with.is_empty());
    section.text(match (differing.as_slice(), one_kernel) {
        ([], true) => "The hosts share one kernel and do not differ in what was read.".to_owned(),
        ([], false) => "The hosts do not differ in what was read.".to_owned(),
        (names, _) => format!("The hosts differ in: {}.", names.join(", ")),
    });
    section.table(table);
    if environments.is_empty() {
        section
            .note("The record has no hosts.json: only what run.json says of the hosts is shown.");
    }
    Some(section)
}
