//! What a result depends on beside the workload: kernel, CPUs, memory, network devices and
//! settings, as `hosts.json` of a record keeps it. A value that could not be read is `null`; 0 and
//! `""` always mean that the kernel said so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cpu_list::parse_list;
use crate::ethtool::{Driver, Ethtool};
use crate::link::{Link, Links};
use crate::sysctl::tidy;

/// Surroundings of a host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Environment {
    pub kernel: Kernel,
    pub cpu: Cpu,
    pub memory: Memory,
    /// Devices of the namespace; `None` when the kernel did not list them.
    pub devices: Option<Vec<Device>>,
    /// Settings by name, blanks as single blanks.
    pub sysctls: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Kernel {
    pub release: Option<String>,
    pub version: Option<String>,
    pub architecture: Option<String>,
    pub command_line: Option<String>,
    pub clocksource: Option<String>,
    pub transparent_hugepage: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cpu {
    pub model: Option<String>,
    /// Packages, cores and hardware threads that are online.
    pub sockets: Option<u32>,
    pub cores: Option<u32>,
    pub threads: Option<u32>,
    pub numa_nodes: Option<Vec<NumaNode>>,
    /// Hypervisor's flag of the CPU: the machine is a virtual one. x86 only.
    pub virtual_machine: Option<bool>,
    /// Vulnerability to what the kernel does about it.
    pub mitigations: Option<BTreeMap<String, String>>,
    /// Frequency governors in use.
    pub governors: Option<Vec<String>>,
    pub turbo: Option<bool>,
    /// CPUs kept from ordinary work by `isolcpus`.
    pub isolated: Option<Vec<u32>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: Option<Vec<u32>>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// Kind of a virtual device; `None` for hardware and `lo`.
    pub kind: Option<String>,
    pub up: bool,
    pub mtu: Option<u32>,
    pub speed_bits_per_second: Option<u64>,
    pub tx_queue_len: Option<u32>,
    /// Kind of the root queueing discipline.
    pub qdisc: Option<String>,
    pub driver: Option<String>,
    pub driver_version: Option<String>,
    pub firmware: Option<String>,
    pub bus: Option<String>,
    /// Features by the kernel's names: whether each is on.
    pub features: Option<BTreeMap<String, bool>>,
}

/// Settings that move results of TCP and UDP, and the limits that clip them.
pub const SYSCTLS: &[&str] = &[
    "kernel.numa_balancing",
    "kernel.perf_event_paranoid",
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
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
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
    "net.netfilter.nf_conntrack_max",
];

impl Environment {
    /// Reads the surroundings of the calling thread: its host, and its network namespace. Never
    /// fails: what cannot be read is `None`.
    #[must_use]
    pub fn read() -> Self {
        Self { devices: devices(), ..Self::from_files(Path::new("/")) }
    }

    /// All but the devices, from the files of the kernel below `root`. The devices cannot be read
    /// from /sys, which shows those of the namespace in which it was mounted.
    fn from_files(root: &Path) -> Self {
        let files = Files { root };
        Self {
            kernel: files.kernel(),
            cpu: files.cpu(),
            memory: files.memory(),
            devices: None,
            sysctls: SYSCTLS
                .iter()
                .map(|&name| {
                    let path = format!("proc/sys/{}", name.replace('.', "/"));
                    (name.to_owned(), files.text(&path).map(|value| tidy(&value)))
                })
                .collect(),
        }
    }
}

/// Devices of the calling thread's namespace.
fn devices() -> Option<Vec<Device>> {
    let links = Links::here().and_then(|links| links.list()).ok()?;
    let ethtool = Ethtool::open().ok();
    Some(links.into_iter().map(|link| Device::new(link, ethtool.as_ref())).collect())
}

impl Device {
    fn new(link: Link, ethtool: Option<&Ethtool>) -> Self {
        let driver = ethtool.and_then(|ethtool| ethtool.driver(&link.name).ok());
        let (driver, driver_version, firmware, bus) = match driver {
            Some(Driver { name, version, firmware, bus }) => (Some(name), version, firmware, bus),
            None => (None, None, None, None),
        };
        Self {
            speed_bits_per_second: ethtool.and_then(|ethtool| ethtool.speed(&link.name).ok()),
            features: ethtool.and_then(|ethtool| ethtool.features(&link.name).ok()),
            name: link.name,
            kind: link.kind,
            up: link.up,
            mtu: link.mtu,
            tx_queue_len: link.tx_queue_len,
            qdisc: link.qdisc,
            driver,
            driver_version,
            firmware,
            bus,
        }
    }
}

/// The kernel's files below a root: `/`, or a fixture.
struct Files<'a> {
    root: &'a Path,
}

impl Files<'_> {
    /// Contents without the end of line.
    fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    fn cpus(&self, path: &str) -> Option<Vec<u32>> {
        parse_list(&self.text(path)?)
    }

    fn kernel(&self) -> Kernel {
        Kernel {
            release: self.text("proc/sys/kernel/osrelease"),
            version: self.text("proc/sys/kernel/version"),
            architecture: self.text("proc/sys/kernel/arch"),
            command_line: self.text("proc/cmdline"),
            clocksource: self
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            transparent_hugepage: self
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .as_deref()
                .and_then(chosen),
        }
    }

    fn cpu(&self) -> Cpu {
        let cpuinfo = self.text("proc/cpuinfo");
        let online = self.cpus("sys/devices/system/cpu/online");
        let topology = |online: &[u32]| -> Option<Vec<(u64, u64)>> {
            let place = |cpu: &u32| {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/topology");
                let package = self.number(&format!("{path}/physical_package_id"))?;
                Some((package, self.number(&format!("{path}/core_id"))?))
            };
            online.iter().map(place).collect()
        };
        let topology = online.as_deref().and_then(topology);
        let governors = online.as_deref().map(|online| self.governors(online));
        Cpu {
            model: cpuinfo.as_deref().and_then(|text| field(text, "model name")),
            sockets: topology.as_ref().map(|cores| {
                cores.iter().map(|(package, _)| package).collect::<BTreeSet<_>>().len() as u32
            }),
            cores: topology
                .as_ref()
                .map(|cores| cores.iter().collect::<BTreeSet<_>>().len() as u32),
            threads: online.as_ref().map(|cpus| cpus.len() as u32),
            numa_nodes: self.numa_nodes(),
            virtual_machine: cpuinfo
                .as_deref()
                .and_then(|text| field(text, "flags"))
                .map(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")),
            mitigations: self.mitigations(),
            governors: governors.filter(|governors| !governors.is_empty()),
            turbo: self.turbo(),
            isolated: self.cpus("sys/devices/system/cpu/isolated"),
        }
    }

    fn governors(&self, online: &[u32]) -> Vec<String> {
        let of =
            |cpu| self.text(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
        online.iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Intel's driver says it the other way round than all others.
    fn turbo(&self) -> Option<bool> {
        match self.number("sys/devices/system/cpu/intel_pstate/no_turbo") {
            Some(off) => Some(off == 0),
            None => self.number("sys/devices/system/cpu/cpufreq/boost").map(|on| on != 0),
        }
    }

    fn mitigations(&self) -> Option<BTreeMap<String, String>> {
        let directory = "sys/devices/system/cpu/vulnerabilities";
        let known = self
            .names(directory)?
            .into_iter()
            .filter_map(|name| {
                let state = self.text(&format!("{directory}/{name}"))?;
                Some((name, state))
            })
            .collect();
        Some(known)
    }

    fn numa_nodes(&self) -> Option<Vec<NumaNode>> {
        let directory = "sys/devices/system/node";
        let node_of = |name: String| -> Option<u32> { name.strip_prefix("node")?.parse().ok() };
        let mut nodes: Vec<NumaNode> = self
            .names(directory)?
            .into_iter()
            .filter_map(node_of)
            .map(|node| {
                let path = format!("{directory}/node{node}");
                let prefix = format!("Node {node} ");
                NumaNode {
                    node,
                    cpus: self.cpus(&format!("{path}/cpulist")),
                    memory_bytes: self
                        .text(&format!("{path}/meminfo"))
                        .and_then(|text| kibibytes(&text.replace(&prefix, ""), "MemTotal")),
                }
            })
            .collect();
        nodes.sort_by_key(|node| node.node);
        Some(nodes)
    }

    fn memory(&self) -> Memory {
        let text = self.text("proc/meminfo");
        let bytes = |name| text.as_deref().and_then(|text| kibibytes(text, name));
        Memory {
            total_bytes: bytes("MemTotal"),
            available_bytes: bytes("MemAvailable"),
            swap_total_bytes: bytes("SwapTotal"),
        }
    }

    fn names(&self, directory: &str) -> Option<Vec<String>> {
        let path: PathBuf = self.root.join(directory);
        let entries = fs::read_dir(path).ok()?;
        Some(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }
}

/// Value of the first line `name : value` (/proc/cpuinfo, /proc/meminfo).
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Value of a line `name: 17 kB` in bytes.
pub(crate) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = field(text, name)?;
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The choice in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
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
        let environment = Environment::from_files(root.path());
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

        let environment = Environment::from_files(root.path());
        let cpu = &environment.cpu;
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (Some(2), Some(4), Some(8)));
        assert_eq!(cpu.model.as_deref(), Some("Test"));
        assert_eq!(cpu.virtual_machine, Some(true));
        assert_eq!(cpu.turbo, Some(false));
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
        let environment = Environment::read();
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
                Environment::read()
            })
            .unwrap();
        let devices = environment.devices.unwrap();
        assert!(!devices.iter().any(|device| device.name.starts_with("eth")));
        let device = devices.iter().find(|device| device.name == "only").unwrap();
        assert_eq!(device.driver.as_deref(), Some("veth"));
        assert_eq!(device.mtu, Some(1500));
        assert!(device.features.as_ref().unwrap()["tx-tcp-segmentation"]);
        assert_eq!(environment.sysctls["net.ipv4.tcp_tw_reuse"].as_deref(), Some("0"));
    }
}
