//! Every check on a host that has nothing wrong, and on one that has just that wrong.

use std::collections::BTreeSet;

use wirecost_model::doctor::{Examination, Severity};
use wirecost_model::environment::*;
use wirecost_model::observe::{ProbeReport, ProbeStatus};

use super::{ALL, USER_BYTES, bytes, capacity, examine, list, probes};

/// A server of two sockets, well prepared.
fn prepared() -> Environment {
    let node = |node: u32| NumaNode {
        node,
        cpus: Some((node * 4..node * 4 + 4).collect()),
        memory_bytes: Some(64 << 30),
    };
    let vector = |irq: u32| Vector {
        irq,
        name: format!("eth0-{irq}"),
        cpus: Some((0..4).collect()),
        effective_cpus: Some(vec![irq % 4]),
    };
    let features = ["tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro", "rx-checksum"];
    let eth0 = Device {
        name: "eth0".to_owned(),
        up: true,
        speed_bits_per_second: Some(25_000_000_000),
        qdisc: Some("mq".to_owned()),
        bus: Some("0000:3b:00.0".to_owned()),
        driver: Some("ice".to_owned()),
        features: Some(features.map(|name| (name.to_owned(), true)).into()),
        changeable_features: Some(features.map(str::to_owned).into()),
        rings: Some(Rings { rx: 4096, rx_max: 4096, tx: 512, tx_max: 4096 }),
        coalescing: Some(Coalescing {
            adaptive_rx: false,
            adaptive_tx: false,
            rx_us: 5,
            rx_frames: 0,
            tx_us: 50,
            tx_frames: 0,
        }),
        flow_control: Some(FlowControl { negotiated: true, rx: false, tx: false }),
        channels: Some(Channels {
            rx: 0,
            rx_max: 0,
            tx: 0,
            tx_max: 0,
            combined: 8,
            combined_max: 64,
        }),
        numa_node: Some(0),
        vectors: Some((40..48).map(vector).collect()),
        rss: Some(DeviceRss { key: None, table: (0..8).cycle().take(128).collect() }),
        rx_missed: Some(0),
        ..Device::default()
    };
    let lo = Device { name: "lo".to_owned(), up: true, ..Device::default() };
    let sysctls = [
        ("fs.file-max", "9223372036854775807"),
        ("net.ipv4.tcp_available_congestion_control", "reno bbr cubic"),
        ("net.ipv4.tcp_allowed_congestion_control", "reno cubic"),
        ("fs.nr_open", "1048576"),
        ("kernel.numa_balancing", "0"),
        ("kernel.perf_event_paranoid", "2"),
        ("net.core.bpf_jit_enable", "1"),
        ("net.core.busy_poll", "0"),
        ("net.core.busy_read", "0"),
        ("net.core.netdev_budget", "300"),
        ("net.core.netdev_budget_usecs", "2000"),
        ("net.core.netdev_max_backlog", "1000"),
        ("net.core.rmem_max", "67108864"),
        ("net.core.somaxconn", "4096"),
        ("net.core.wmem_max", "67108864"),
        ("net.ipv4.ip_local_port_range", "32768 60999"),
        ("net.ipv4.tcp_max_syn_backlog", "4096"),
        ("net.ipv4.tcp_mem", "1527480 2036643 3054960"),
        ("net.ipv4.tcp_moderate_rcvbuf", "1"),
        ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_wmem", "4096 16384 67108864"),
        ("net.netfilter.nf_conntrack_count", "0"),
        ("net.netfilter.nf_conntrack_max", "262144"),
    ];
    Environment {
        kernel: Kernel {
            release: Some("6.12.0".to_owned()),
            architecture: Some("x86_64".to_owned()),
            clocksource: Some("tsc".to_owned()),
            available_clocksources: Some(vec!["tsc".to_owned(), "hpet".to_owned()]),
            transparent_hugepage: Some("madvise".to_owned()),
            lockdown: Some("none".to_owned()),
            btf: Some(true),
            tracefs: Some(true),
            ..Kernel::default()
        },
        cpu: Cpu {
            threads: Some(8),
            numa_nodes: Some(vec![node(0), node(1)]),
            virtual_machine: Some(false),
            governors: Some(vec!["performance".to_owned()]),
            turbo: Some(false),
            turbo_setting: Some("/sys/devices/system/cpu/intel_pstate/no_turbo".to_owned()),
            idle_states: Some(vec![
                IdleState { name: "POLL".to_owned(), latency_us: 0, disabled: false },
                IdleState { name: "C6".to_owned(), latency_us: 170, disabled: true },
            ]),
            smt: Some(false),
            smt_control: Some("off".to_owned()),
            constant_tsc: Some(true),
            cycle_counter: Some(CycleCounter::Counts),
            steal_percent: Some(0.0),
            load: Some(0.2),
            irqbalance: Some(false),
            ..Cpu::default()
        },
        memory: Memory {
            total_bytes: Some(128 << 30),
            available_bytes: Some(120 << 30),
            page_bytes: Some(4096),
            slab_bytes: Some([("TCP".to_owned(), 3000), ("filp".to_owned(), 200)].into()),
            ..Memory::default()
        },
        devices: Some(vec![lo, eth0]),
        path: Path {
            nftables: Some(vec![]),
            iptables: Some(vec![]),
            ipsec: Some(Ipsec { policies: 0, associations: 0 }),
            backlog: Some(Backlog { processed: 10_000_000, dropped: 0, squeezed: 10 }),
        },
        process: Process {
            capabilities: Some(vec!["cap_net_admin".to_owned(), "cap_sys_admin".to_owned()]),
            rights_hold_everywhere: Some(true),
            allowed_cpus: Some((0..4).collect()),
            descriptors: Some(1 << 20),
            io_uring: Some(Usability::Usable),
            bpf_congestion: Some(Usability::Usable),
            ..Process::default()
        },
        sysctls: sysctls.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into(),
    }
}

/// A small virtual machine as a cloud gives it, and nobody has touched. Who asks is not root.
fn plain_vm() -> Environment {
    let prepared = prepared();
    let mut sysctls = prepared.sysctls.clone();
    for (name, value) in [
        ("net.core.rmem_max", "212992"),
        ("net.core.wmem_max", "212992"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_mem", "47184 62914 94368"),
    ] {
        sysctls.insert(name.to_owned(), Some(value.to_owned()));
    }
    for name in ["net.netfilter.nf_conntrack_count", "net.netfilter.nf_conntrack_max"] {
        sysctls.insert(name.to_owned(), None);
    }
    let vector = |irq: u32, name: &str| Vector {
        irq,
        name: name.to_owned(),
        cpus: Some(vec![0, 1]),
        effective_cpus: Some(vec![0]),
    };
    let eth0 = Device {
        name: "eth0".to_owned(),
        up: true,
        qdisc: Some("fq_codel".to_owned()),
        driver: Some("virtio_net".to_owned()),
        bus: Some("0000:00:03.0".to_owned()),
        features: Some([("rx-gro".to_owned(), true), ("rx-checksum".to_owned(), false)].into()),
        changeable_features: Some(vec!["rx-gro".to_owned()]),
        rings: Some(Rings { rx: 256, rx_max: 256, tx: 256, tx_max: 256 }),
        channels: Some(Channels {
            rx: 0,
            rx_max: 0,
            tx: 0,
            tx_max: 0,
            combined: 1,
            combined_max: 1,
        }),
        vectors: Some(vec![vector(37, "virtio2-input.0"), vector(38, "virtio2-output.0")]),
        ..Device::default()
    };
    Environment {
        cpu: Cpu {
            threads: Some(2),
            numa_nodes: Some(vec![NumaNode { node: 0, cpus: None, memory_bytes: None }]),
            virtual_machine: Some(true),
            constant_tsc: Some(true),
            cycle_counter: Some(CycleCounter::Absent),
            steal_percent: Some(0.02),
            load: Some(0.1),
            irqbalance: Some(false),
            ..Cpu::default()
        },
        memory: Memory { total_bytes: Some(4 << 30), page_bytes: Some(4096), ..Memory::default() },
        devices: Some(vec![eth0]),
        path: Path { nftables: None, iptables: Some(vec![]), ipsec: None, ..prepared.path },
        process: Process {
            capabilities: Some(vec![]),
            rights_hold_everywhere: Some(true),
            allowed_cpus: Some(vec![0, 1]),
            descriptors: Some(524_288),
            io_uring: Some(Usability::Usable),
            bpf_congestion: Some(Usability::Usable),
            ..Process::default()
        },
        kernel: prepared.kernel,
        sysctls,
    }
}

fn examined(environment: &Environment) -> Examination {
    let mut examination = Examination::empty("0.1.0", 0);
    examine(environment, &mut examination);
    examination
}

fn eth0(environment: &mut Environment) -> &mut Device {
    environment.devices.as_mut().unwrap().last_mut().unwrap()
}

fn set(environment: &mut Environment, name: &str, value: &str) {
    environment.sysctls.insert(name.to_owned(), Some(value.to_owned()));
}

type Harm = fn(&mut Environment);

/// A check, what makes it fire, how much that matters, and a part of the command that fixes it.
const CASES: &[(&str, Harm, Severity, &str)] = &[
    (
        "turbo",
        |e| e.cpu.turbo = Some(true),
        Severity::Problem,
        "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo",
    ),
    (
        "turbo",
        |e| {
            e.cpu.turbo = Some(true);
            e.cpu.turbo_setting = Some("/sys/devices/system/cpu/cpufreq/boost".to_owned());
        },
        Severity::Problem,
        "echo 0 > /sys/devices/system/cpu/cpufreq/boost",
    ),
    (
        "governor",
        |e| e.cpu.governors = Some(vec!["schedutil".to_owned()]),
        Severity::Problem,
        "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    ),
    (
        "idle-states",
        |e| e.cpu.idle_states.as_mut().unwrap()[1].disabled = false,
        Severity::Problem,
        "cpupower idle-set -D 10",
    ),
    ("steal", |e| e.cpu.steal_percent = Some(3.2), Severity::Problem, ""),
    (
        "cpu-quota",
        |e| {
            e.process.quota_cpus = Some(1.5);
            e.process.quota_setting = Some("/sys/fs/cgroup/a/cpu.max".to_owned());
            e.process.quota_value = Some("150000 100000".to_owned());
        },
        Severity::Problem,
        "echo max > /sys/fs/cgroup/a/cpu.max",
    ),
    ("busy-host", |e| e.cpu.load = Some(7.0), Severity::Problem, ""),
    ("busy-host", |e| e.cpu.load = Some(3.0), Severity::Note, ""),
    (
        "clocksource",
        |e| e.kernel.clocksource = Some("hpet".to_owned()),
        Severity::Problem,
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    (
        "clocksource",
        |e| {
            e.kernel.clocksource = Some("kvm-clock".to_owned());
            e.kernel.available_clocksources = Some(vec!["kvm-clock".to_owned()]);
        },
        Severity::Note,
        "",
    ),
    (
        "numa-balancing",
        |e| set(e, "kernel.numa_balancing", "1"),
        Severity::Problem,
        "sysctl -w kernel.numa_balancing=0",
    ),
    (
        "irqbalance",
        |e| e.cpu.irqbalance = Some(true),
        Severity::Problem,
        "systemctl stop irqbalance",
    ),
    (
        "flow-control",
        |e| {
            eth0(e).flow_control = Some(FlowControl { negotiated: true, rx: true, tx: true });
            eth0(e).driver = Some("igb".to_owned());
        },
        Severity::Problem,
        "ethtool -A eth0 autoneg off rx off tx off",
    ),
    (
        "flow-control",
        |e| eth0(e).flow_control = Some(FlowControl { negotiated: true, rx: true, tx: false }),
        Severity::Problem,
        "ethtool -A eth0 rx off tx off",
    ),
    (
        "shaping",
        |e| eth0(e).qdisc = Some("netem".to_owned()),
        Severity::Problem,
        "tc qdisc del dev eth0 root",
    ),
    (
        "offloads",
        |e| {
            for name in ["tx-tcp-segmentation", "rx-gro"] {
                eth0(e).features.as_mut().unwrap().insert(name.to_owned(), false);
            }
        },
        Severity::Problem,
        "ethtool -K eth0 tso on gro on",
    ),
    (
        "device-node",
        |e| e.process.allowed_cpus = Some(vec![4, 5]),
        Severity::Problem,
        "taskset -c 0-3 wirecost run",
    ),
    (
        "device-node",
        |e| e.process.allowed_cpus = Some((0..8).collect()),
        Severity::Note,
        "taskset -c 0-3 wirecost run",
    ),
    (
        "vector-node",
        |e| {
            for vector in &mut eth0(e).vectors.as_mut().unwrap()[..2] {
                vector.effective_cpus = Some(vec![5]);
            }
        },
        Severity::Problem,
        "for irq in 40 41; do echo 0-3 > /proc/irq/$irq/smp_affinity_list; done",
    ),
    (
        "vector-spread",
        |e| {
            for vector in eth0(e).vectors.as_mut().unwrap() {
                vector.effective_cpus = Some(vec![2]);
            }
        },
        Severity::Problem,
        "set -- 0 1 2 3; for irq in 40 41 42 43 44 45 46 47; do",
    ),
    (
        "queues",
        |e| eth0(e).channels.as_mut().unwrap().combined = 1,
        Severity::Problem,
        "ethtool -L eth0 combined 8",
    ),
    (
        "queues",
        |e| eth0(e).channels.as_mut().unwrap().combined = 4,
        Severity::Note,
        "ethtool -L eth0 combined 8",
    ),
    (
        "queues",
        |e| eth0(e).rss.as_mut().unwrap().table = vec![0, 1, 0, 1],
        Severity::Note,
        "ethtool -X eth0 equal 8",
    ),
    (
        "ring-size",
        |e| eth0(e).rings.as_mut().unwrap().rx = 512,
        Severity::Note,
        "ethtool -G eth0 rx 4096",
    ),
    (
        "ring-size",
        |e| {
            eth0(e).rings.as_mut().unwrap().rx = 512;
            eth0(e).rx_missed = Some(17);
        },
        Severity::Problem,
        "ethtool -G eth0 rx 4096",
    ),
    ("ring-size", |e| eth0(e).rx_missed = Some(17), Severity::Note, ""),
    (
        "firewall",
        |e| e.path.nftables = Some(vec![table("inet", "filter", 3)]),
        Severity::Problem,
        "nft list ruleset > ruleset.saved && nft flush ruleset",
    ),
    (
        "firewall",
        |e| e.path.iptables = Some(vec![table("ip", "filter", 2)]),
        Severity::Problem,
        "iptables-legacy -t filter -F",
    ),
    (
        "firewall",
        |e| {
            e.path.nftables = None;
            set(e, "net.netfilter.nf_conntrack_count", "12");
        },
        Severity::Problem,
        "",
    ),
    (
        "connection-tracking",
        |e| set(e, "net.netfilter.nf_conntrack_count", "250000"),
        Severity::Problem,
        "sysctl -w net.netfilter.nf_conntrack_max=1048576",
    ),
    (
        "ipsec",
        |e| e.path.ipsec = Some(Ipsec { policies: 3, associations: 2 }),
        Severity::Problem,
        "ip xfrm policy flush",
    ),
    (
        "backlog",
        |e| e.path.backlog.as_mut().unwrap().dropped = 5000,
        Severity::Problem,
        "sysctl -w net.core.netdev_max_backlog=10000",
    ),
    (
        "backlog",
        |e| e.path.backlog.as_mut().unwrap().dropped = 1,
        Severity::Note,
        "sysctl -w net.core.netdev_max_backlog=10000",
    ),
    (
        "backlog",
        |e| set(e, "net.core.netdev_max_backlog", "300"),
        Severity::Note,
        "sysctl -w net.core.netdev_max_backlog=10000",
    ),
    (
        "backlog",
        |e| {
            e.path.backlog.as_mut().unwrap().dropped = 5000;
            set(e, "net.core.netdev_max_backlog", "10000");
        },
        Severity::Note,
        "",
    ),
    (
        "tcp-features",
        |e| set(e, "net.ipv4.tcp_sack", "0"),
        Severity::Problem,
        "sysctl -w net.ipv4.tcp_sack=1",
    ),
    (
        "socket-buffers",
        |e| set(e, "net.core.rmem_max", "212992"),
        Severity::Problem,
        "sysctl -w net.core.rmem_max=67108864",
    ),
    (
        "socket-buffers",
        |e| {
            eth0(e).speed_bits_per_second = None;
            set(e, "net.core.wmem_max", "212992");
        },
        Severity::Note,
        "sysctl -w net.core.wmem_max=67108864",
    ),
    (
        "tcp-buffers",
        |e| set(e, "net.ipv4.tcp_rmem", "4096 131072 6291456"),
        Severity::Note,
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864'",
    ),
    (
        "tcp-memory",
        |e| set(e, "net.ipv4.tcp_mem", "1000 2000 3000"),
        Severity::Note,
        "sysctl -w net.ipv4.tcp_mem='1048576 1398101 2097152'",
    ),
    (
        "accept-queue",
        |e| set(e, "net.core.somaxconn", "128"),
        Severity::Note,
        "sysctl -w net.core.somaxconn=4096",
    ),
    (
        "port-range",
        |e| set(e, "net.ipv4.ip_local_port_range", "50000 59999"),
        Severity::Note,
        "sysctl -w net.ipv4.ip_local_port_range='16384 65535'",
    ),
    (
        "descriptors",
        |e| e.process.descriptors = Some(1024),
        Severity::Note,
        "prlimit --pid $$ --nofile=1048576:1048576",
    ),
    (
        "io-uring",
        |e| {
            e.process.io_uring = Some(Usability::Unusable("it is disabled".to_owned()));
            set(e, "kernel.io_uring_disabled", "2");
        },
        Severity::Note,
        "sysctl -w kernel.io_uring_disabled=0",
    ),
    (
        "congestion-control",
        |e| {
            let reason = "it needs Linux 6.4 or later (this is 6.1)".to_owned();
            e.process.bpf_congestion = Some(Usability::Unusable(reason));
        },
        Severity::Note,
        "",
    ),
    (
        "coalescing",
        |e| eth0(e).coalescing.as_mut().unwrap().adaptive_rx = true,
        Severity::Note,
        "ethtool -C eth0 adaptive-rx off",
    ),
    (
        "coalescing",
        |e| eth0(e).coalescing.as_mut().unwrap().rx_us = 50,
        Severity::Note,
        "ethtool -C eth0 rx-usecs 0",
    ),
    (
        "receive-budget",
        |e| e.path.backlog.as_mut().unwrap().squeezed = 100_000,
        Severity::Note,
        "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=4000",
    ),
    (
        "busy-poll",
        |e| set(e, "net.core.busy_read", "50"),
        Severity::Note,
        "sysctl -w net.core.busy_read=0",
    ),
    (
        "smt",
        |e| {
            e.cpu.smt = Some(true);
            e.cpu.smt_control = Some("on".to_owned());
        },
        Severity::Note,
        "echo off > /sys/devices/system/cpu/smt/control",
    ),
    (
        "huge-pages",
        |e| e.kernel.transparent_hugepage = Some("always".to_owned()),
        Severity::Note,
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    (
        "bpf-jit",
        |e| set(e, "net.core.bpf_jit_enable", "0"),
        Severity::Note,
        "sysctl -w net.core.bpf_jit_enable=1",
    ),
];

fn table(family: &str, name: &str, rules: u32) -> RuleTable {
    RuleTable { family: family.to_owned(), name: name.to_owned(), rules }
}

#[test]
fn names_are_unique_and_each_has_a_case() {
    let names: BTreeSet<&str> = ALL.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), ALL.len());
    assert_eq!(names, CASES.iter().map(|(name, ..)| *name).collect());
}

#[test]
fn a_prepared_host_has_nothing_wrong() {
    let examination = examined(&prepared());
    assert_eq!(examination.findings, []);
    assert_eq!(examination.unknown, []);
    assert_eq!(examination.checks.len(), ALL.len());
}

#[test]
fn each_problem_is_found_by_its_check_alone() {
    for (name, harm, severity, command) in CASES {
        let mut environment = prepared();
        harm(&mut environment);
        let findings = examined(&environment).findings;
        let [finding] = findings.as_slice() else { panic!("{name}: {findings:#?}") };
        assert_eq!((finding.check.as_str(), finding.severity), (*name, *severity));
        if command.is_empty() {
            assert!(finding.fix.is_empty() && finding.advice.is_some(), "{finding:#?}");
        } else {
            let found = finding.fix.iter().any(|fix| fix.starts_with(command));
            assert!(found, "{command}: {finding:#?}");
            // What has no way back says so.
            assert!(!finding.undo.is_empty() || finding.advice.is_some(), "{finding:#?}");
        }
    }
}

#[test]
fn unknown_values_are_neither_good_nor_bad() {
    let examination = examined(&Environment::default());
    assert_eq!(examination.findings, []);
    // These are there only where something is set.
    let silent = [
        "cpu-quota",
        "numa-balancing",
        "device-node",
        "vector-node",
        "vector-spread",
        "connection-tracking",
        "tcp-buffers",
        "busy-poll",
        "smt",
        "huge-pages",
        "bpf-jit",
    ];
    let unknown: BTreeSet<&str> = examination.unknown.iter().map(|u| u.check.as_str()).collect();
    let said = |name: &str| unknown.contains(name);
    for check in ALL {
        assert_eq!(said(check.name), !silent.contains(&check.name), "{}", check.name);
    }
}

#[test]
fn a_plain_virtual_machine_has_no_false_findings() {
    let examination = examined(&plain_vm());
    let notes: Vec<_> = examination.findings.iter().map(|f| (&*f.check, f.severity)).collect();
    // Small buffers are what it has, and are no more than worth a note.
    assert_eq!(notes, [("socket-buffers", Severity::Note); 2]);
    let unknown: Vec<&str> = examination.unknown.iter().map(|u| &*u.check).collect();
    let expected =
        ["turbo", "governor", "idle-states", "flow-control", "firewall", "ipsec", "coalescing"];
    assert_eq!(unknown, expected);
}

#[test]
fn what_the_kernel_offers_stands_beside_what_it_lacks() {
    let mut environment = prepared();
    environment.process.bpf_congestion = Some(Usability::Unusable("it needs CAP_BPF".to_owned()));
    let why = |environment: &Environment| examined(environment).findings[0].why.clone();
    assert!(why(&environment).ends_with("The kernel offers reno, bbr, cubic"));
    // Without the right to choose any, only the allowed ones.
    environment.process.capabilities = Some(vec![]);
    assert!(why(&environment).ends_with("The kernel offers reno, cubic"));
}

#[test]
fn the_worst_comes_first() {
    let mut environment = prepared();
    environment.cpu.smt = Some(true);
    environment.cpu.irqbalance = Some(true);
    environment.cpu.turbo = Some(true);
    let checks: Vec<String> =
        examined(&environment).findings.into_iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["turbo", "irqbalance", "smt"]);
}

#[test]
fn a_pair_needs_no_gro() {
    let mut environment = prepared();
    let pair = Device {
        bus: None,
        kind: Some("veth".to_owned()),
        features: Some([("rx-gro".to_owned(), false)].into()),
        ..eth0(&mut environment).clone()
    };
    environment.devices.as_mut().unwrap().push(pair);
    assert_eq!(examined(&environment).findings, []);
    let features = eth0(&mut environment).features.as_mut().unwrap();
    features.insert("tx-tcp-segmentation".to_owned(), false);
    assert_eq!(examined(&environment).findings[0].fix, ["ethtool -K eth0 tso on"]);
}

#[test]
fn rules_beside_the_path_do_not_count() {
    let mut environment = prepared();
    environment.path.nftables =
        Some(vec![table("arp", "filter", 3), table("bridge", "filter", 3), table("ip", "nat", 0)]);
    assert_eq!(examined(&environment).findings, []);
    let bridge = Device { up: true, kind: Some("bridge".to_owned()), ..Device::default() };
    environment.devices.as_mut().unwrap().push(bridge);
    let findings = examined(&environment).findings;
    assert!(findings[0].found.starts_with("3 firewall rules in table bridge filter"));
}

/// A probe of that name that could not be had.
fn refused(name: &str) -> ProbeReport {
    ProbeReport {
        host: String::new(),
        name: name.to_owned(),
        status: ProbeStatus::No,
        reason: Some("it said so".to_owned()),
        cost: Default::default(),
    }
}

#[test]
fn probes_answer_for_themselves_and_the_remedy_is_of_the_surroundings() {
    let mut environment = prepared();
    let ready = ProbeReport { status: ProbeStatus::Ready, reason: None, ..refused("cpu") };
    let rows = probes(&environment, &[ready, refused("segments"), refused("functions")]);
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["cpu", "cycles", "segments", "functions"]);
    assert_eq!(rows[0].status, ProbeStatus::Ready);
    assert_eq!((&rows[0].reason, &rows[0].fix), (&None, &None));
    assert_eq!(rows[2].reason.as_deref(), Some("it said so"));
    // With all rights, rights are not what is missing.
    assert_eq!(rows[2].fix, None);

    environment.process.capabilities = Some(vec!["cap_bpf".to_owned()]);
    let rows = probes(&environment, &[refused("segments"), refused("functions")]);
    assert!(rows[1..].iter().all(|row| row.fix.as_ref().is_some_and(|m| m.contains("setcap"))));
    // Sampling takes one right, tracing two.
    environment.process.capabilities = Some(vec!["cap_perfmon".to_owned()]);
    let rows = probes(&environment, &[refused("segments"), refused("functions")]);
    assert!(rows[1].fix.is_some() && rows[2].fix.is_none());
}

#[test]
fn cycles_are_counted_or_made_of_the_tsc() {
    let row = |environment: &Environment| probes(environment, &[]).remove(0);
    assert_eq!(row(&prepared()).status, ProbeStatus::Ready);
    assert_eq!(row(&plain_vm()).status, ProbeStatus::Partial);
    let mut environment = prepared();
    environment.cpu.cycle_counter = Some(CycleCounter::Refused);
    environment.kernel.clocksource = Some("hpet".to_owned());
    assert_eq!(row(&environment).status, ProbeStatus::No);
    assert!(row(&environment).reason.is_some());
}

#[test]
fn numbers_are_rounded_for_display() {
    assert_eq!(list(&[3, 0, 1, 2, 8]), "0-3,8");
    assert_eq!(bytes(212_992), "208 KiB");
    assert_eq!(bytes(6_291_456), "6.00 MiB");
}

#[test]
fn a_prepared_server_takes_many_connections() {
    let capacity = capacity(&prepared(), 200_000);
    assert_eq!(capacity.connections, 200_000);
    let of = |name: &str| capacity.needs.iter().find(|need| need.name == name).unwrap();
    for need in &capacity.needs {
        assert_eq!(need.enough, Some(true), "{need:?}");
        assert!(need.fix.is_empty() && need.undo.is_empty() && !need.why.is_empty());
    }
    // Four workers.
    assert_eq!(of("descriptors").needed, 50_032);
    // 98 ports of the peer.
    assert_eq!(of("local ports").needed, 2041);
    assert_eq!(of("accept queue").needed, 1024);
    assert_eq!(of("TCP buffers").needed, 200_000 * 8192);
    // Two sizes by the allocator, four that are usual.
    assert_eq!(of("memory").needed, 200_000 * (3000 + 200 + 832 + 192 + 128 + 72 + USER_BYTES));
}

#[test]
fn missing_resources_for_a_million_connections_have_a_command() {
    let mut environment = prepared();
    environment.process.descriptors = Some(20_000);
    environment.sysctls.insert("net.ipv4.tcp_mem".to_owned(), Some("1000 2000 3000".to_owned()));
    environment.sysctls.insert("fs.nr_open".to_owned(), Some("100000".to_owned()));
    environment.sysctls.remove("fs.file-max");
    environment.sysctls.remove("net.netfilter.nf_conntrack_max");
    let capacity = capacity(&environment, 1_000_000);
    let of = |name: &str| capacity.needs.iter().find(|need| need.name == name);
    let descriptors = of("descriptors").unwrap();
    assert_eq!((descriptors.needed, descriptors.enough), (250_032, Some(false)));
    assert_eq!(
        descriptors.fix,
        ["sysctl -w fs.nr_open=250032", "prlimit --pid $$ --nofile=250032:250032"]
    );
    assert_eq!(
        descriptors.undo,
        ["sysctl -w fs.nr_open=100000", "prlimit --pid $$ --nofile=20000:20000"]
    );
    assert!(descriptors.advice.as_ref().unwrap().contains("--workers 51"));
    let buffers = of("TCP buffers").unwrap();
    assert_eq!(buffers.enough, Some(false));
    assert_eq!(buffers.fix, ["sysctl -w net.ipv4.tcp_mem='1000000 1500000 2000000'"]);
    assert_eq!(buffers.undo, ["sysctl -w net.ipv4.tcp_mem='1000 2000 3000'"]);
    // Not known is not enough, nor too little.
    let files = of("open files").unwrap();
    assert_eq!((files.available, files.enough), (None, None));
    assert!(files.why.contains("fs.file-max"));
    // Nobody tracks connections here.
    assert_eq!(of("tracked connections"), None);
    assert_eq!(of("memory").unwrap().enough, Some(true));
}
