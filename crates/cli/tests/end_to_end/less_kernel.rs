//! On a kernel without BTF, BPF and performance events: User-Mode Linux. Everything that /proc and
//! netlink tell is there, and what is not says why.

use serde_json::Value;

use crate::document::Document;
use crate::guest::Guest;
use crate::program::BINARY;

const NO_BTF: &str = "CONFIG_DEBUG_INFO_BTF";
const NO_PERF: &str = "CONFIG_PERF_EVENTS";

/// Probes, how much of each there is, and a word of the reason.
type Expected = [(&'static str, &'static str, &'static str)];

const OF_STANDARD: &Expected = &[
    ("cpu", "partial", NO_BTF),
    ("pmu", "no", "virtual machine"),
    ("interrupts", "ready", ""),
    ("tcp", "ready", ""),
    ("memory", "ready", ""),
    ("functions", "no", NO_PERF),
];

const OF_FULL: &Expected = &[
    ("cpu", "partial", NO_BTF),
    ("pmu", "no", "virtual machine"),
    ("interrupts", "partial", NO_BTF),
    ("segments", "no", NO_BTF),
    ("tcp", "partial", NO_BTF),
    ("memory", "ready", ""),
    ("functions", "no", NO_PERF),
];

#[track_caller]
fn says(probes: &[Value], expected: &Expected) {
    assert_eq!(probes.len(), expected.len(), "{probes:#?}");
    for (probe, (name, status, word)) in probes.iter().zip(expected) {
        assert_eq!((&probe["name"], &probe["status"]), (&(*name).into(), &(*status).into()));
        match *status {
            "ready" => assert!(probe["reason"].is_null(), "{probe:#}"),
            _ => assert!(probe["reason"].as_str().unwrap().contains(word), "{probe:#}"),
        }
    }
}

#[track_caller]
fn above_zero(of: &Value, paths: &[&str]) {
    for path in paths {
        let number = of.pointer(path).and_then(Value::as_f64);
        assert!(number.is_some_and(|number| number > 0.0), "{path} of {of:#}");
    }
}

/// The tables of a host that has moved a stream over loopback, by other means than BPF.
#[track_caller]
fn tables_are_there(host: &Value) {
    let cpu = &host["cpu"];
    assert_eq!(
        (&cpu["source"], &cpu["usr_sys"]["source"]),
        (&"proc-stat".into(), &"proc-stat".into())
    );
    above_zero(cpu, &["/total/wall", "/total/task", "/processes/0/seconds"]);
    // Ticks do not tell these.
    for unknown in ["/total/switches", "/total/idle_loop", "/total/in_ksoftirqd"] {
        assert_eq!(cpu.pointer(unknown), Some(&Value::Null), "{unknown}");
    }

    let interrupts = &host["interrupts"];
    assert_eq!(interrupts["source"], "proc");
    above_zero(interrupts, &["/interrupts_per_second", "/softirqs_per_second"]);
    above_zero(interrupts, &["/interrupts/0/total/count", "/softnet_total/processed"]);
    let name = interrupts["interrupts"][0]["name"].as_str().unwrap();
    assert!(name.contains("timer") && !name.contains("  "), "{name}");
    let softirqs = interrupts["softirqs"].as_array().unwrap();
    let net_rx = softirqs.iter().find(|row| row["source"] == "net_rx").unwrap();
    above_zero(net_rx, &["/total/count"]);
    assert!(net_rx["total"]["seconds"].is_null());

    let tcp = &host["tcp"];
    above_zero(tcp, &["/segments_sent", "/packets_received", "/flows_open", "/rtt_us/samples"]);
    assert_eq!(tcp["acks_received"]["source"], "tcp-info");
    above_zero(tcp, &["/acks_received/data_segments", "/acks_received/segments_per_ack"]);
    assert_eq!(tcp["retransmits"]["source"], "netstat");
    assert!(tcp["retransmits"]["segments"].is_u64());
    assert!(tcp["duplicate_acks_received"].is_null());
    assert!(host["segments"].is_null() && host["functions"].is_null());
}

#[test]
fn without_btf_the_other_sources_are_left_and_named() {
    let measure = |command: &str, to: &str| {
        format!("timeout 60 '{BINARY}' {command} --json {to}.json >{to} || exit\n")
    };
    let run = "run @stream --quiet --ramp 200ms";
    let script = [
        measure(&format!("{run} --duration 1s --observe standard"), "standard"),
        measure(&format!("{run} --duration 1s --observe full"), "full"),
        // The traffic that is observed ends with the guest.
        format!("'{BINARY}' {run} --duration 60s --observe none >/dev/null &\n"),
        "until grep -q ' 01 ' /proc/net/tcp; do kill -0 $! || exit; sleep 0.01; done\n".to_owned(),
        measure("observe --for 1s", "observed"),
        measure("doctor", "doctor"),
    ];
    let test = "without_btf_the_other_sources_are_left_and_named";
    let Some(guest) = Guest::run(test, "", &[], &script.concat()) else { return };

    for (name, expected) in [("standard", OF_STANDARD), ("full", OF_FULL)] {
        let document = Document::valid(guest.json(&format!("{name}.json")));
        assert_eq!(document.text("/status"), "ok");
        says(document.list("/observe/probes"), expected);
        tables_are_there(document.at("/observe/hosts/0"));
        assert_eq!(document.text("/machines/0/cpu_source"), "proc-stat");
        assert!(document.is_null("/machines/0/cycles_per_kbyte"));
        assert!(document.at("/machines/0/cycles_reason").is_string());
        assert!(document.at("/tcp/retransmits").is_u64());
        let text = guest.read(name);
        assert!(text.contains("CPU: ticks of /proc/stat"), "{text}");
        assert!(text.contains("functions (master): not measured: this kernel"), "{text}");
    }

    let document = Document::valid(guest.json("observed.json"));
    assert_eq!(document.text("/status"), "ok");
    says(document.list("/probes"), OF_FULL);
    tables_are_there(document.at("/hosts/0"));
    assert_eq!(document.text("/cpu_source"), "proc-stat");
    assert!(document.is_null("/cycles_per_kbyte"));
    let (text, reason) = (guest.read("observed"), document.text("/cycles_reason"));
    assert!(!reason.is_empty() && text.contains("cost"), "{reason}\n{text}");

    let doctor = guest.json("doctor.json");
    let probes = doctor["probes"].as_array().unwrap();
    for (name, status, _) in OF_FULL {
        let probe = probes.iter().find(|probe| probe["name"] == *name).unwrap();
        assert_eq!(probe["status"], *status, "{probe:#}");
        assert!(probe["reason"].is_string(), "{probe:#}");
    }
}
