//! On a kernel without BTF, BPF and performance events, and on one in lockdown. Everything that /proc
//! and netlink tell is there, and what is not says why.
//!
//! A guest has such a kernel: there its type information is covered, system calls are refused as by a
//! kernel that lacks them, and lockdown is turned on, for which there is no way back.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::Value;

use crate::guest::{Left, Part, checks};

const NO_BTF: &str = "CONFIG_DEBUG_INFO_BTF";
const NO_PERF: &str = "CONFIG_PERF_EVENTS";

/// Probes, how much of each there is, and a word of the reason.
type Expected = [(&'static str, &'static str, &'static str)];

const OF_STANDARD: &Expected = &[
    ("cpu", "partial", NO_BTF),
    ("pmu", "no", "virtual machine"),
    ("interrupts", "ready", ""),
    ("tcp", "ready", ""),
    ("drops", "ready", ""),
    ("nic", "ready", ""),
    ("host", "ready", ""),
    ("memory", "ready", ""),
    ("functions", "no", NO_PERF),
];

const OF_FULL: &Expected = &[
    ("cpu", "partial", NO_BTF),
    ("pmu", "no", "virtual machine"),
    ("interrupts", "partial", NO_BTF),
    ("segments", "no", NO_BTF),
    ("tcp", "partial", NO_BTF),
    ("drops", "partial", NO_BTF),
    ("nic", "ready", ""),
    ("host", "ready", ""),
    ("scheduling", "no", NO_BTF),
    ("locks", "no", NO_BTF),
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
    let rows = interrupts["interrupts"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains("timer")), "{names:?}");
    assert!(names.iter().all(|name| !name.contains("  ")), "{names:?}");
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

/// An emulated CPU has no time-stamp counter of a constant rate; that of KVM may.
#[track_caller]
fn cycles_have_a_source_or_a_reason(of: &Value) {
    if of["cycles_per_kbyte"].is_null() {
        assert!(of["cycles_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{of:#}");
    } else {
        assert_eq!(of["cycles_source"], "tsc-ticks");
    }
}

/// bpf(2) and perf_event_open(2) of the guest.
const REFUSED: [i64; 2] = [321, 298];

/// What seccomp(2) takes to answer these calls as a kernel does that was built without them.
fn without_bpf_and_perf() -> Vec<u8> {
    let filter = SeccompFilter::new(
        REFUSED.map(|call| (call, Vec::new())).into(),
        SeccompAction::Allow,
        SeccompAction::Errno(rustix::io::Errno::NOSYS.raw_os_error() as u32),
        seccompiler::TargetArch::x86_64,
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    let bytes = program.iter().flat_map(|instruction| {
        let [code, k] =
            [instruction.code.to_ne_bytes().to_vec(), instruction.k.to_ne_bytes().to_vec()];
        [code, vec![instruction.jt, instruction.jf], k].concat()
    });
    bytes.collect()
}

/// `filtered` runs a command under the filter in a file: prctl(2) with PR_SET_SECCOMP, and SECCOMP_MODE_FILTER.
/// Every Debian has perl. Emulated CPUs are slow: what is read at the edges of a window takes a part of it.
const SCRIPT: &str = r#"
filtered() {
    perl -e 'open F, "<", "filter" or die; binmode F; local $/; $filter = <F>;
        $program = pack "Sx6P", length($filter) / 8, $filter;
        syscall(157, 22, 2, $program) == 0 or die $!; exec @ARGV or die $!' -- "$@"
}
set -e
mount -t tmpfs none /sys/kernel/btf
run="run @stream --details --quiet"
# Reads the program, its symbols and perl, which the guest gets slowly the first time.
by=filtered measure first $run --duration 1s --observe full
by=filtered measure standard $run --duration 5s --observe standard
by=filtered measure full $run --duration 5s --observe full
# The traffic that is observed does not claim the guest's CPUs.
WIRECOST_RUNTIME_DIR=/run/traffic "$program" $run --duration 600s --observe none >said 2>&1 &
until grep -q ' 01 ' /proc/net/tcp; do is_running said; sleep 0.01; done
by=filtered measure observed observe --for 3s
by=filtered measure doctor doctor
kill $!
wait $! || true
umount /sys/kernel/btf
echo confidentiality >/sys/kernel/security/lockdown
measure locked $run --duration 5s --observe full
measure locked-doctor doctor
"#;

/// Leaves the guest in lockdown.
pub(crate) fn part() -> Part {
    Part {
        name: "less_kernel",
        files: vec![("filter".to_owned(), without_bpf_and_perf())],
        script: SCRIPT.to_owned(),
        checks: checks![
            without_btf_the_other_sources_are_left_and_named,
            what_lockdown_takes_away_is_told_with_the_remedy,
        ],
    }
}

fn without_btf_the_other_sources_are_left_and_named(left: &Left) {
    for (name, expected) in [("standard", OF_STANDARD), ("full", OF_FULL)] {
        let document = left.measured(name);
        assert_eq!(document.text("/status"), "ok");
        says(document.list("/observe/probes"), expected);
        tables_are_there(document.at("/observe/hosts/0"));
        assert_eq!(document.text("/machines/0/cpu_source"), "proc-stat");
        cycles_have_a_source_or_a_reason(document.at("/machines/0"));
        assert!(document.at("/tcp/retransmits").is_u64());
        let text = left.read(&format!("{name}.txt"));
        assert!(text.contains("CPU: ticks of /proc/stat"), "{text}");
        assert!(text.contains("functions (master): not measured: this kernel"), "{text}");
    }

    let document = left.measured("observed");
    assert_eq!(document.text("/status"), "ok");
    says(document.list("/probes"), OF_FULL);
    tables_are_there(document.at("/hosts/0"));
    assert_eq!(document.text("/cpu_source"), "proc-stat");
    cycles_have_a_source_or_a_reason(document.value());
    let text = left.read("observed.txt");
    assert!(text.contains("cost"), "{text}");

    let doctor = left.ended_well("doctor");
    let probes = doctor["probes"].as_array().unwrap();
    for (name, status, _) in OF_FULL {
        let probe = probes.iter().find(|probe| probe["name"] == *name).unwrap();
        assert_eq!(probe["status"], *status, "{probe:#}");
        assert!(probe["reason"].is_string() || *status == "ready", "{probe:#}");
    }
}

/// Without `bpf_probe_read_kernel` (kernel_lockdown(7)): the names of devices, and what is only in
/// packets.
const OF_LOCKDOWN: &Expected = &[
    ("cpu", "ready", ""),
    ("pmu", "no", "virtual machine"),
    ("interrupts", "partial", "lockdown=integrity"),
    ("segments", "no", "lockdown=integrity"),
    ("tcp", "partial", "lockdown=integrity"),
    ("drops", "partial", "lockdown=integrity"),
    ("nic", "ready", ""),
    ("host", "ready", ""),
    ("scheduling", "ready", ""),
    ("locks", "no", "lockdown=integrity"),
    ("memory", "ready", ""),
    ("functions", "ready", ""),
];

fn what_lockdown_takes_away_is_told_with_the_remedy(left: &Left) {
    let document = left.measured("locked");
    assert_eq!(document.text("/status"), "ok");
    says(document.list("/observe/probes"), OF_LOCKDOWN);
    assert_eq!(document.text("/machines/0/cpu_source"), "bpf");
    let host = document.at("/observe/hosts/0");
    assert_eq!(host["interrupts"]["source"], "bpf");
    above_zero(host, &["/interrupts/interrupts_per_second", "/tcp/segments_sent"]);
    assert!(host["segments"].is_null());

    let doctor = left.ended_well("locked-doctor");
    for (name, status, word) in OF_LOCKDOWN.iter().filter(|(name, ..)| *name != "pmu") {
        let probes = doctor["probes"].as_array().unwrap();
        let probe = probes.iter().find(|probe| probe["name"] == *name).unwrap();
        assert_eq!(probe["status"], *status, "{probe:#}");
        assert!(probe["reason"].as_str().unwrap_or_default().contains(word), "{probe:#}");
    }
}
