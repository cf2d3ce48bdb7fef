//! What the doctor says, for people and for programs.

use serde_json::Value;
use wirecost_model::doctor::{
    Capacity, Examination, Finding, Need, ProbeState, SCHEMA, Subject, Unit, Unknown,
};
use wirecost_model::environment::CycleCounter;
use wirecost_model::observe::ProbeStatus;
use wirecost_model::run::schema_of;
use wirecost_model::status::Status;
use wirecost_report::documents;
use wirecost_report::json::{self, Target};
use wirecost_report::outputs::{Output, Terminal, TerminalStyle};

fn probe(probe: &str, status: ProbeStatus, reason: Option<&str>, fix: Option<&str>) -> ProbeState {
    ProbeState {
        name: probe.to_owned(),
        status,
        reason: reason.map(str::to_owned),
        fix: fix.map(str::to_owned),
    }
}

fn named(check: &str, finding: Finding) -> Finding {
    Finding { check: check.to_owned(), ..finding }
}

fn unknown(check: &str, about: Option<&str>, reason: &str) -> Unknown {
    Unknown { check: check.to_owned(), about: about.map(str::to_owned), reason: reason.to_owned() }
}

fn capacity() -> Capacity {
    let mut descriptors = Need::new("descriptors", 250_032, Unit::Count, Some(20_000))
        .why("one per connection, spread over 4 workers, each with its own descriptor table")
        .fix("prlimit --pid $$ --nofile=250032:250032")
        .undo("prlimit --pid $$ --nofile=20000:20000");
    descriptors.advice = Some("or run with --workers 51".to_owned());
    let files = Need::new("open files", 1_000_000, Unit::Count, Some(u64::MAX)).why("of all");
    let ports = Need::new("local ports", 2_045, Unit::Count, None).why("of the side that connects");
    let memory =
        Need::new("memory", 5_830_000_000, Unit::Bytes, Some(8 << 30)).why("of the kernel");
    Capacity { connections: 1_000_000, needs: vec![descriptors, files, ports, memory] }
}

/// Every part filled.
fn ill() -> Examination {
    let setcap = Some("setcap cap_bpf,cap_perfmon=ep \"$(command -v wirecost)\"");
    let takes = Some("needs root, or CAP_BPF and CAP_PERFMON; CPU time by the ticks of /proc/stat");
    let vm = "not visible in a virtual machine: check its host";
    let checks = ["turbo", "governor", "flow-control", "firewall", "socket-buffers", "steal"];
    Examination {
        address: Some("198.18.0.2:20050".to_owned()),
        host: Some(Subject {
            name: Some("server".to_owned()),
            kernel: Some("6.12.0".to_owned()),
            cpu_model: Some("A CPU".to_owned()),
            threads: Some(8),
            virtual_machine: Some(true),
            cycle_counter: Some(CycleCounter::Absent),
        }),
        probes: vec![
            probe("cpu", ProbeStatus::Partial, takes, setcap),
            probe("segments", ProbeStatus::No, takes, setcap),
            probe("tcp", ProbeStatus::Ready, None, None),
        ],
        findings: vec![
            named(
                "flow-control",
                Finding::problem(
                    "pause frames are enabled (receive and send)",
                    "a slow receiver stops the sender",
                )
                .about("eth0")
                .fix("ethtool -A eth0 autoneg off rx off tx off")
                .undo("ethtool -A eth0 autoneg on rx on tx on"),
            ),
            named(
                "firewall",
                Finding::problem(
                    "3 firewall rules in table inet filter",
                    "every packet is compared",
                )
                .fix("nft list ruleset > ruleset.saved && nft flush ruleset")
                .undo("nft -f ruleset.saved")
                .advice("do it only on a network you trust"),
            ),
            named(
                "socket-buffers",
                Finding::note(
                    "net.core.rmem_max limits receive buffers to 208 KiB",
                    "larger values of `wndsz` have no effect, and bursts of datagrams overflow the buffer",
                )
                .fix("sysctl -w net.core.rmem_max=67108864")
                .undo("sysctl -w net.core.rmem_max=212992"),
            ),
        ],
        unknown: vec![
            unknown("turbo", None, vm),
            unknown("governor", None, vm),
            unknown("flow-control", Some("eth1"), "the driver does not report it"),
        ],
        checks: checks.map(str::to_owned).to_vec(),
        capacity: Some(capacity()),
        ..Examination::empty("0.1.0", 1_700_000_000_000)
    }
}

fn well() -> Examination {
    Examination {
        address: None,
        findings: Vec::new(),
        unknown: Vec::new(),
        probes: vec![probe("tcp", ProbeStatus::Ready, None, None)],
        capacity: None,
        ..ill()
    }
}

fn failed() -> Examination {
    Examination {
        status: Status::Peer,
        error: Some("198.18.0.2: no agent answers".to_owned()),
        ..Examination::empty("0.1.0", 0)
    }
}

fn shown(examination: &Examination, style: TerminalStyle) -> String {
    let mut out = Vec::new();
    assert!(Terminal.write(&mut out, &documents::doctor::document(examination), &style).is_ok());
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn texts() {
    insta::assert_snapshot!("ill_80", shown(&ill(), TerminalStyle::plain(80)));
    insta::assert_snapshot!("well_80", shown(&well(), TerminalStyle::plain(80)));
}

/// Commands are to be copied, and may be longer than the line.
#[test]
fn nothing_but_a_command_is_wider_than_the_terminal() {
    for width in 60..120 {
        let text = shown(&ill(), TerminalStyle::plain(width));
        assert!(text.is_ascii());
        for line in text.lines() {
            let command = line.starts_with("    fix ") || line.starts_with("    undo ");
            assert!(command || line.len() <= width, "{width}: {line}");
            assert_eq!(line.trim_end(), line);
        }
        for command in ill().findings.iter().flat_map(|finding| &finding.fix) {
            assert!(text.lines().any(|line| line.ends_with(command.as_str())));
        }
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let coloured = shown(&ill(), TerminalStyle { width: 80, colour: true });
    let escapes = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
    assert!(escapes.is_match(&coloured));
    assert_eq!(escapes.replace_all(&coloured, ""), shown(&ill(), TerminalStyle::plain(80)));
}

fn schema() -> Value {
    let text = include_str!("../../../../docs/schema/wirecost.doctor-1.json");
    serde_json::from_str(text).unwrap_or_default()
}

fn document(examination: &Examination) -> Value {
    let mut text = Vec::new();
    assert!(json::write(examination, &Target::Stream, &mut text).is_ok());
    serde_json::from_slice(&text).unwrap_or_default()
}

#[test]
fn documents_are_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for examination in [ill(), well(), failed()] {
        let document = document(&examination);
        assert!(validator.is_valid(&document), "{document:#}");
        assert_eq!(serde_json::from_value::<Examination>(document).unwrap(), examination);
    }
    let mut document = document(&ill());
    document["findings"][0]["severity"] = Value::from("awful");
    assert!(!validator.is_valid(&document));
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/wirecost.doctor-1.json");
    let mut text = serde_json::to_string_pretty(&schema_of::<Examination>(SCHEMA)).unwrap();
    text.push('\n');
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == text, "docs/schema is not that of the types: run with UPDATE_SCHEMA=1");
}
