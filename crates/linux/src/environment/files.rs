//! What files under /proc and /sys say of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use wirecost_model::environment::{Cpu, IdleState, Kernel, Memory, NumaNode};

use crate::cpu_list::parse_list;
use crate::proc_stat;
use crate::process_time::FIRST_PID_NAMESPACE;

const CPUS: &str = "sys/devices/system/cpu";
const CLOCKSOURCE: &str = "sys/devices/system/clocksource/clocksource0";

/// The kernel's files below a root: `/`, or a fixture.
pub(crate) struct Files<'a> {
    pub(crate) root: &'a Path,
}

impl Files<'_> {
    /// Contents without the end of line.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    pub(crate) fn cpus(&self, path: &str) -> Option<Vec<u32>> {
        parse_list(&self.text(path)?)
    }

    pub(crate) fn lockdown(&self) -> Option<String> {
        self.text("sys/kernel/security/lockdown").as_deref().and_then(chosen)
    }

    pub(crate) fn kernel(&self) -> Kernel {
        Kernel {
            release: self.text("proc/sys/kernel/osrelease"),
            version: self.text("proc/sys/kernel/version"),
            architecture: self.text("proc/sys/kernel/arch"),
            command_line: self.text("proc/cmdline"),
            clocksource: self.text(&format!("{CLOCKSOURCE}/current_clocksource")),
            available_clocksources: self
                .text(&format!("{CLOCKSOURCE}/available_clocksource"))
                .map(|text| words(&text)),
            transparent_hugepage: self
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .as_deref()
                .and_then(chosen),
            lockdown: self.lockdown(),
            security_modules: self
                .text("sys/kernel/security/lsm")
                .map(|text| text.split(',').map(ToOwned::to_owned).collect()),
            btf: self.names("sys/kernel").map(|_| self.exists("sys/kernel/btf/vmlinux")),
            tracefs: self.names("sys/kernel").map(|_| {
                let roots = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
                roots.iter().any(|root| self.names(&format!("{root}/events")).is_some())
            }),
        }
    }

    pub(crate) fn cpu(&self) -> Cpu {
        let cpuinfo = self.text("proc/cpuinfo");
        let online = self.cpus(&format!("{CPUS}/online"));
        let topology = |online: &[u32]| -> Option<Vec<(u64, u64)>> {
            let place = |cpu: &u32| {
                let path = format!("{CPUS}/cpu{cpu}/topology");
                let package = self.number(&format!("{path}/physical_package_id"))?;
                Some((package, self.number(&format!("{path}/core_id"))?))
            };
            online.iter().map(place).collect()
        };
        let topology = online.as_deref().and_then(topology);
        let turbo = self.turbo();
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
            virtual_machine: cpuinfo.as_deref().and_then(is_virtual),
            emulated: None,
            machine: self.machine(),
            mitigations: self.mitigations(),
            frequency_driver: self.text(&format!("{CPUS}/cpu0/cpufreq/scaling_driver")),
            governors: governors.filter(|governors| !governors.is_empty()),
            turbo: turbo.map(|(on, _)| on),
            turbo_setting: turbo.map(|(_, setting)| format!("/{CPUS}/{setting}")),
            idle_states: online.as_deref().and_then(|online| self.idle_states(online)),
            smt: self.number(&format!("{CPUS}/smt/active")).map(|active| active != 0),
            smt_control: self.text(&format!("{CPUS}/smt/control")),
            isolated: self.cpus(&format!("{CPUS}/isolated")),
            constant_tsc: cpuinfo.as_deref().and_then(|text| field(text, "flags")).map(|flags| {
                let has = |wanted| flags.split_ascii_whitespace().any(|flag| flag == wanted);
                has("constant_tsc") && has("nonstop_tsc")
            }),
            pmus: self.names("sys/bus/event_source/devices").map(|mut names| {
                names.sort();
                names
            }),
            cycle_counter: None,
            steal_percent: self.text("proc/stat").as_deref().and_then(steal_percent),
            load: self
                .text("proc/loadavg")
                .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()),
            irqbalance: self.runs("irqbalance"),
        }
    }

    fn governors(&self, online: &[u32]) -> Vec<String> {
        let of = |cpu| self.text(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"));
        online.iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether it is on, and the file that says so: Intel's driver says it the other way round than
    /// all others.
    pub(crate) fn turbo(&self) -> Option<(bool, &'static str)> {
        const INTEL: &str = "intel_pstate/no_turbo";
        const OTHERS: &str = "cpufreq/boost";
        match self.number(&format!("{CPUS}/{INTEL}")) {
            Some(off) => Some((off == 0, INTEL)),
            None => self.number(&format!("{CPUS}/{OTHERS}")).map(|on| (on != 0, OTHERS)),
        }
    }

    /// Those of the first CPU; <https://docs.kernel.org/admin-guide/pm/cpuidle.html>.
    fn idle_states(&self, online: &[u32]) -> Option<Vec<IdleState>> {
        let states = |cpu: &u32| format!("{CPUS}/cpu{cpu}/cpuidle");
        let first = states(online.first()?);
        let mut places: Vec<u32> = self
            .names(&first)?
            .iter()
            .filter_map(|name| name.strip_prefix("state")?.parse().ok())
            .collect();
        places.sort_unstable();
        let state = |place: u32| {
            let disabled = |cpu: &u32| {
                self.number(&format!("{}/state{place}/disable", states(cpu))) == Some(1)
            };
            Some(IdleState {
                name: self.text(&format!("{first}/state{place}/name"))?,
                latency_us: self.number(&format!("{first}/state{place}/latency"))?,
                disabled: online.iter().all(disabled),
            })
        };
        places.into_iter().map(state).collect()
    }

    fn machine(&self) -> Option<String> {
        let words: Vec<String> =
            ["sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name", "sys/hypervisor/type"]
                .into_iter()
                .filter_map(|path| self.text(path))
                .collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// Whether a program runs on this machine; `None` where not all processes can be seen.
    fn runs(&self, program: &str) -> Option<bool> {
        let is_it = |pid: &String| {
            let a_process = pid.bytes().all(|byte| byte.is_ascii_digit());
            a_process && self.text(&format!("proc/{pid}/comm")).as_deref() == Some(program)
        };
        let found = self.names("proc")?.iter().any(is_it);
        // A mount option of /proc (hidepid) hides the processes of others, the first one among them.
        let namespace = fs::read_link(self.root.join("proc/self/ns/pid")).ok();
        let all_are_seen = namespace.is_some_and(|it| it == Path::new(FIRST_PID_NAMESPACE))
            && self.exists("proc/1/comm");
        (found || all_are_seen).then_some(found)
    }

    fn mitigations(&self) -> Option<BTreeMap<String, String>> {
        let directory = &format!("{CPUS}/vulnerabilities");
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

    pub(crate) fn numa_nodes(&self) -> Option<Vec<NumaNode>> {
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

    pub(crate) fn memory(&self) -> Memory {
        let text = self.text("proc/meminfo");
        let bytes = |name| text.as_deref().and_then(|text| kibibytes(text, name));
        Memory {
            total_bytes: bytes("MemTotal"),
            available_bytes: bytes("MemAvailable"),
            swap_total_bytes: bytes("SwapTotal"),
            page_bytes: None,
            slab_bytes: self.text("proc/slabinfo").map(|text| slabs(&text)),
        }
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub(crate) fn names(&self, directory: &str) -> Option<Vec<String>> {
        let path: PathBuf = self.root.join(directory);
        let entries = fs::read_dir(path).ok()?;
        Some(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }
}

/// Caches of what the kernel keeps of a connection.
const SLABS: [&str; 6] =
    ["TCP", "sock_inode_cache", "filp", "dentry", "eventpoll_epi", "eventpoll_pwq"];

/// Bytes of an object of [`SLABS`]: name, active objects, all objects, size...
fn slabs(text: &str) -> BTreeMap<String, u64> {
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().filter(|name| SLABS.contains(name))?;
        Some((name.to_owned(), words.nth(2)?.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
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

/// Words between blanks.
fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(ToOwned::to_owned).collect()
}

/// Part of all CPU time that /proc/stat counts as stolen.
fn steal_percent(stat: &str) -> Option<f64> {
    let ticks = proc_stat::parse(stat).ok()?;
    let all: u64 = ticks
        .iter()
        .map(|t| t.user + t.system + t.irq + t.softirq + t.steal + t.idle + t.iowait)
        .sum();
    let stolen: u64 = ticks.iter().map(|ticks| ticks.steal).sum();
    (all > 0).then(|| stolen as f64 * 100.0 / all as f64)
}

/// The choice in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The hypervisor's flag of the CPU, in the text of /proc/cpuinfo. x86 only.
pub(super) fn is_virtual(cpuinfo: &str) -> Option<bool> {
    let flags = field(cpuinfo, "flags")?;
    Some(flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}
