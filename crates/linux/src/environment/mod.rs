//! Reads the surroundings of a host ([`wirecost_model::environment`]). Nothing fails: what cannot be
//! read is `None`.

mod cycles;
pub(crate) mod devices;
mod emulation;
pub(crate) mod files;
mod path;
mod process;

use std::path::Path;

use wirecost_model::congestion::is_temporary;
use wirecost_model::environment::{
    ALLOWED_CONGESTION_CONTROL, AVAILABLE_CONGESTION_CONTROL, Device, Environment, NumaNode,
};

use crate::sysctl::tidy;
use files::Files;

/// Settings that move results of TCP and UDP, and the limits that clip them.
pub const SYSCTLS: &[&str] = &[
    "fs.file-max",
    "fs.nr_open",
    "kernel.io_uring_disabled",
    "kernel.numa_balancing",
    "kernel.perf_event_paranoid",
    "kernel.unprivileged_bpf_disabled",
    "net.core.bpf_jit_enable",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    ALLOWED_CONGESTION_CONTROL,
    "net.ipv4.tcp_autocorking",
    AVAILABLE_CONGESTION_CONTROL,
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_orphans",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
];

/// Whether this is a virtual machine; `None` where the CPU does not say.
#[must_use]
pub fn virtual_machine() -> Option<bool> {
    files::is_virtual(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// What kernel lockdown keeps even from root: `none`, `integrity` or `confidentiality`
/// (kernel_lockdown(7)). `None` when the kernel lacks it or does not show it.
#[must_use]
pub fn lockdown() -> Option<String> {
    Files { root: Path::new("/") }.lockdown()
}

/// Network devices of the calling thread's namespace, with their settings and interrupts; `None` when the kernel
/// does not list them.
#[must_use]
pub fn devices() -> Option<Vec<Device>> {
    devices::read(&Files { root: Path::new("/") })
}

/// NUMA nodes and their CPUs; `None` when the kernel does not show them.
#[must_use]
pub fn numa_nodes() -> Option<Vec<NumaNode>> {
    Files { root: Path::new("/") }.numa_nodes()
}

/// The surroundings of the calling thread: its host, its network namespace and its rights.
#[must_use]
pub fn read() -> Environment {
    let root = Path::new("/");
    let files = Files { root };
    let mut environment = from_files(root);
    environment.cpu.cycle_counter = cycles::count();
    environment.cpu.emulated = emulation::read();
    environment.devices = devices::read(&files);
    environment.path = path::read(&files);
    environment.process = process::read(&files);
    environment.memory.page_bytes = Some(rustix::param::page_size() as u64);
    environment
}

/// Sysctls that list names of congestion control.
const CONGESTION_LISTS: [&str; 2] = [AVAILABLE_CONGESTION_CONTROL, ALLOWED_CONGESTION_CONTROL];

/// A list without the names of congestion control that runs have loaded and that go with them.
fn without_temporary(list: &str) -> String {
    let words = list.split(' ').filter(|word| !is_temporary(word));
    words.collect::<Vec<_>>().join(" ")
}

/// What the files of the kernel below `root` say of the machine. Devices cannot be read from /sys,
/// which shows those of the namespace in which it was mounted.
fn from_files(root: &Path) -> Environment {
    let files = Files { root };
    Environment {
        kernel: files.kernel(),
        cpu: files.cpu(),
        memory: files.memory(),
        sysctls: SYSCTLS
            .iter()
            .map(|&name| {
                let path = format!("proc/sys/{}", name.replace('.', "/"));
                let value = files.text(&path).map(|value| tidy(&value));
                let value = match CONGESTION_LISTS.contains(&name) {
                    true => value.map(|list| without_temporary(&list)),
                    false => value,
                };
                (name.to_owned(), value)
            })
            .collect(),
        ..Environment::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::link::Links;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    pub(crate) fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn what_is_not_there_is_null_not_zero() {
        let root = fixture(&[]);
        let environment = from_files(root.path());
        let json = serde_json::to_value(&environment).unwrap();
        for part in ["kernel", "cpu", "memory", "sysctls"] {
            let values = json[part].as_object().unwrap();
            assert!(values.values().all(serde_json::Value::is_null), "{part}: {values:?}");
        }
        assert_eq!(serde_json::from_value::<Environment>(json).unwrap(), environment);
    }

    #[test]
    fn two_sockets_of_two_cores_with_two_threads() {
        let mut files = vec![
            ("proc/cpuinfo".to_owned(), "model name\t: Test\nflags\t: fpu hypervisor\n".to_owned()),
            ("proc/meminfo".to_owned(), "MemTotal:  16 kB\nMemAvailable: 8 kB\n".to_owned()),
            ("proc/sys/net/ipv4/tcp_rmem".to_owned(), "4096\t131072\t6291456\n".to_owned()),
            ("sys/kernel/mm/transparent_hugepage/enabled".to_owned(), "a [b] c\n".to_owned()),
        ];
        let system = "sys/devices/system";
        for (path, text) in [
            ("cpu/online", "0-7\n"),
            ("cpu/isolated", "\n"),
            ("cpu/intel_pstate/no_turbo", "1\n"),
            ("cpu/vulnerabilities/mds", "Not affected\n"),
            ("node/node0/cpulist", "0-3\n"),
            ("node/node0/meminfo", "Node 0 MemTotal:   4 kB\n"),
            ("node/node1/cpulist", "4-7\n"),
            ("node/possible", "0-1\n"),
        ] {
            files.push((format!("{system}/{path}"), text.to_owned()));
        }
        for cpu in 0..8 {
            let path = format!("{system}/cpu/cpu{cpu}");
            files.push((format!("{path}/topology/physical_package_id"), format!("{}\n", cpu / 4)));
            files.push((format!("{path}/topology/core_id"), format!("{}\n", cpu % 2)));
            files.push((format!("{path}/cpufreq/scaling_governor"), "performance\n".to_owned()));
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        let root = fixture(&files);

        let environment = from_files(root.path());
        let cpu = &environment.cpu;
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (Some(2), Some(4), Some(8)));
        assert_eq!(cpu.model.as_deref(), Some("Test"));
        assert_eq!(cpu.virtual_machine, Some(true));
        assert_eq!(cpu.turbo, Some(false));
        let setting = "/sys/devices/system/cpu/intel_pstate/no_turbo";
        assert_eq!(cpu.turbo_setting.as_deref(), Some(setting));
        assert_eq!(cpu.isolated, Some(vec![]));
        assert_eq!(cpu.governors, Some(vec!["performance".to_owned()]));
        assert_eq!(cpu.mitigations.as_ref().unwrap()["mds"], "Not affected");
        let nodes = cpu.numa_nodes.as_ref().unwrap();
        assert_eq!(nodes[0].memory_bytes, Some(4096));
        assert_eq!(nodes[1].cpus, Some(vec![4, 5, 6, 7]));
        assert_eq!(nodes[1].memory_bytes, None);
        assert_eq!(environment.memory.total_bytes, Some(16384));
        assert_eq!(environment.memory.swap_total_bytes, None);
        assert_eq!(environment.kernel.transparent_hugepage.as_deref(), Some("b"));
        let rmem = environment.sysctls["net.ipv4.tcp_rmem"].as_deref();
        assert_eq!(rmem, Some("4096 131072 6291456"));
    }

    #[test]
    fn this_host() {
        let environment = read();
        assert!(environment.kernel.release.is_some());
        assert!(environment.cpu.threads.is_some());
        assert!(environment.memory.total_bytes.is_some());
        assert!(environment.devices.unwrap().iter().any(|device| device.name == "lo"));
        assert!(environment.sysctls["net.core.somaxconn"].is_some());
    }

    #[test]
    fn devices_and_settings_are_those_of_the_namespace() {
        if skip_without_namespaces("environment::devices_and_settings_are_those_of_the_namespace") {
            return;
        }
        let name = format!("wirecost-test-{}-environment", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        Links::of(&namespace).unwrap().add_veth("only", "there", &namespace).unwrap();
        let environment = namespace
            .run(|| {
                crate::sysctl::write("net.ipv4.tcp_tw_reuse", "0").unwrap();
                crate::packet_filter::tests::add_rules(3);
                read()
            })
            .unwrap();
        let devices = environment.devices.unwrap();
        assert!(!devices.iter().any(|device| device.name.starts_with("eth")));
        let device = devices.iter().find(|device| device.name == "only").unwrap();
        assert_eq!(device.driver.as_deref(), Some("veth"));
        assert_eq!(device.mtu, Some(1500));
        assert!(device.features.as_ref().unwrap()["tx-tcp-segmentation"]);
        // Its driver would say 10 Gb/s.
        assert_eq!(device.speed_bits_per_second, None);
        // It is down, and has no queue yet.
        assert!(device.qdiscs.as_ref().unwrap().keys().all(|kind| kind == "noop"));
        assert_eq!(environment.sysctls["net.ipv4.tcp_tw_reuse"].as_deref(), Some("0"));
        // It has no rings, no wire and no place on a bus.
        assert_eq!((device.rings, device.flow_control, device.numa_node), (None, None, None));
        assert!(device.vectors.is_none() && device.bus.is_none());
        assert!(device.channels.is_some());
        let tables = environment.path.nftables.unwrap();
        assert_eq!((tables[0].family.as_str(), tables[0].rules), ("inet", 3));
        assert_eq!(environment.path.ipsec.unwrap().policies, 0);
        assert!(environment.path.backlog.is_some());
        let rights = environment.process.capabilities.unwrap();
        assert!(rights.iter().any(|right| right == "cap_net_admin"));
    }

    #[test]
    fn what_moves_the_speed_of_a_cpu() {
        let cpus = "sys/devices/system/cpu";
        let mut files = vec![
            ("proc/stat".to_owned(), "cpu0 1 0 1 90 0 0 0 8 0 0\n".to_owned()),
            ("proc/loadavg".to_owned(), "0.61 0.79 1.30 1/79 17403\n".to_owned()),
            ("sys/kernel/security/lockdown".to_owned(), "none [integrity] x\n".to_owned()),
            ("sys/kernel/btf/vmlinux".to_owned(), String::new()),
            ("sys/class/dmi/id/sys_vendor".to_owned(), "QEMU\n".to_owned()),
            (format!("{cpus}/online"), "0-1\n".to_owned()),
            (format!("{cpus}/cpufreq/boost"), "1\n".to_owned()),
            (format!("{cpus}/smt/active"), "1\n".to_owned()),
            (format!("{cpus}/smt/control"), "on\n".to_owned()),
        ];
        for (cpu, disabled) in [(0, "1\n"), (1, "0\n")] {
            for (state, name, latency) in [(0, "POLL", "0\n"), (1, "C6", "133\n")] {
                let path = format!("{cpus}/cpu{cpu}/cpuidle/state{state}");
                files.push((format!("{path}/name"), name.to_owned()));
                files.push((format!("{path}/latency"), latency.to_owned()));
                files.push((format!("{path}/disable"), disabled.to_owned()));
            }
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        let root = fixture(&files);
        let environment = from_files(root.path());
        let cpu = &environment.cpu;
        assert_eq!(cpu.steal_percent, Some(8.0));
        assert_eq!(cpu.load, Some(0.61));
        assert_eq!(cpu.turbo, Some(true));
        let boost = "/sys/devices/system/cpu/cpufreq/boost";
        assert_eq!(cpu.turbo_setting.as_deref(), Some(boost));
        assert_eq!((cpu.smt, cpu.smt_control.as_deref()), (Some(true), Some("on")));
        let states = cpu.idle_states.as_ref().unwrap();
        assert_eq!((states[1].name.as_str(), states[1].latency_us), ("C6", 133));
        // One CPU may still use it.
        assert!(!states[1].disabled);
        assert_eq!(cpu.machine.as_deref(), Some("QEMU"));
        let kernel = &environment.kernel;
        assert_eq!(kernel.lockdown.as_deref(), Some("integrity"));
        assert_eq!((kernel.btf, kernel.tracefs), (Some(true), Some(false)));
    }

    #[test]
    fn a_program_is_absent_only_where_all_can_be_seen() {
        let runs = |files: &[(&str, &str)], first_namespace: bool| {
            let root = fixture(files);
            if first_namespace {
                let namespace = root.path().join("proc/self/ns/pid");
                fs::create_dir_all(namespace.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink("pid:[4026531836]", namespace).unwrap();
            }
            from_files(root.path()).cpu.irqbalance
        };
        let (init, it) = (("proc/1/comm", "systemd\n"), ("proc/17/comm", "irqbalance\n"));
        assert_eq!(runs(&[init, it], true), Some(true));
        assert_eq!(runs(&[init], true), Some(false));
        // In a container, and where others' processes are hidden.
        assert_eq!(runs(&[init], false), None);
        assert_eq!(runs(&[("proc/18/comm", "sh\n")], true), None);
        assert_eq!(runs(&[init, it], false), Some(true));
    }
}
