//! Figures of one host, or of the machine that hosts share.

use wirecost_model::metric::{Better, Unit};
use wirecost_model::observe::{
    CpuSection, FunctionsSection, HostObservation, InterruptsSection, MetricScope, Observation,
    ObservedMetric, SegmentsSection, TcpSection,
};
use wirecost_model::program::Side;
use wirecost_model::run::{Cpu, HostRow, Latency, MachineRow, Run};

use super::run::nothing;
use super::{Definition, Source, define};

/// Whose figure is meant.
#[derive(Debug)]
pub enum Scope<'a> {
    Host {
        run: &'a Run,
        host: &'a HostRow,
    },
    /// The one machine of all hosts.
    Machine {
        run: &'a Run,
        machine: &'a MachineRow,
    },
    /// Several machines.
    All {
        run: &'a Run,
    },
}

/// Why nothing is told of all machines together.
const NO_MACHINE: &str = "the run has no machine with a complete window";
/// Why a host has no CPU time of its own.
const SHARED_CPUS: &str =
    "hosts share CPUs: their time is known for the machine, not for each host";

use Better::{Higher, Lower, Neither};
use Unit::{Bytes, Count, CyclesPerKByte, Microseconds, Percent};

pub(super) static ALL: &[Definition] = &[
    define(
        "cycles_per_kbyte",
        CyclesPerKByte,
        Lower,
        "busy cycles per 1024 bytes of payload",
        Source::Host(|scope| scope.cycles_per_kbyte()),
    ),
    define(
        "cycles_per_operation",
        Count,
        Lower,
        "busy cycles per completed flowop",
        Source::Host(|scope| scope.cycles_per_operation()),
    ),
    define(
        "cpu.usr",
        Percent,
        Neither,
        "CPU time in user space",
        Source::Host(|s| s.cpu(|c| c.usr)),
    ),
    define(
        "cpu.sys",
        Percent,
        Neither,
        "CPU time in system calls",
        Source::Host(|s| s.cpu(|c| c.sys)),
    ),
    define(
        "cpu.irq",
        Percent,
        Neither,
        "CPU time in interrupts",
        Source::Host(|s| s.cpu(|c| c.irq)),
    ),
    define(
        "cpu.softirq",
        Percent,
        Neither,
        "CPU time in softirqs",
        Source::Host(|s| s.cpu(|c| c.softirq)),
    ),
    define(
        "cpu.intr",
        Percent,
        Neither,
        "CPU time in interrupts and softirqs",
        Source::Host(|s| s.cpu(|c| c.irq + c.softirq)),
    ),
    define(
        "storage.irq",
        Percent,
        Lower,
        "CPU time in interrupts of storage controllers and in the softirqs after them",
        Source::Host(|s| s.share_of_all(InterruptsSection::storage_time)),
    ),
    define(
        "storage.threads",
        Percent,
        Lower,
        "CPU time in kernel threads that write files back or serve block devices",
        Source::Host(|s| s.share_of_all(CpuSection::storage_threads_time)),
    ),
    define(
        "cpu.steal",
        Percent,
        Lower,
        "CPU time taken by the hypervisor",
        Source::Host(|s| s.cpu(|c| c.steal)),
    ),
    define("cpu.idle", Percent, Higher, "idle CPU time", Source::Host(|s| s.cpu(|c| c.idle))),
    define(
        "cpu.busy",
        Percent,
        Lower,
        "busy CPU time",
        Source::Host(|s| s.cpu(|c| c.usr + c.sys + c.irq + c.softirq)),
    ),
    define(
        "cpu.user_share",
        Percent,
        Neither,
        "user time in percent of busy CPU time",
        Source::Host(|s| {
            let busy = s.cpu(|c| c.usr + c.sys + c.irq + c.softirq)?;
            let user = s.cpu(|c| c.usr)?;
            if busy > 0.0 { Ok(100.0 * user / busy) } else { Err("the CPUs were idle".to_owned()) }
        }),
    ),
    define(
        "payload_per_packet",
        Bytes,
        Higher,
        "payload received per packet that the devices received",
        Source::Host(|s| {
            let packets = s.devices()?.packets(|device| device.rx_packets)?;
            if packets == 0.0 {
                return Err("no packet was received".to_owned());
            }
            let received = |host: &HostRow| {
                host.bytes.as_ref().map(|bytes| (bytes.tx_received + bytes.rx_received) as f64)
            };
            let bytes: Option<f64> = s.hosts().into_iter().map(received).sum();
            Ok(bytes.ok_or("the bytes were not counted")? / packets)
        }),
    ),
    define(
        "receive_delay.p50",
        Microseconds,
        Lower,
        "median time from the driver to the application (--receive-stamps)",
        Source::Host(|s| s.receive_delay(|delay| delay.p50)),
    ),
    define(
        "receive_delay.p90",
        Microseconds,
        Lower,
        "90th percentile of the time from the driver to the application (--receive-stamps)",
        Source::Host(|s| s.receive_delay(|delay| delay.p90)),
    ),
    define(
        "receive_delay.p99",
        Microseconds,
        Lower,
        "99th percentile of the time from the driver to the application (--receive-stamps)",
        Source::Host(|s| s.receive_delay(|delay| delay.p99)),
    ),
    define(
        "receive_delay.p999",
        Microseconds,
        Lower,
        "99.9th percentile of the time from the driver to the application (--receive-stamps)",
        Source::Host(|s| s.receive_delay(|delay| delay.p999)),
    ),
    define(
        "receive_delay.mean",
        Microseconds,
        Lower,
        "mean time from the driver to the application (--receive-stamps)",
        Source::Host(|s| s.receive_delay(|delay| delay.mean)),
    ),
    define(
        "receive_delay.max",
        Microseconds,
        Lower,
        "longest time from the driver to the application (--receive-stamps)",
        Source::Host(|s| s.receive_delay(|delay| delay.max)),
    ),
];

impl<'a> Scope<'a> {
    /// The scope of this name, as it stands in that of a figure; of no name, all there is.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn find(run: &'a Run, name: Option<&str>) -> Result<Self, String> {
        if run.hosts.is_empty() {
            return Err(nothing(run));
        }
        let sent = |host: &HostRow| {
            let bytes = host.bytes.as_ref()?;
            let (out, back) =
                (bytes.tx_sent + bytes.rx_sent, bytes.tx_received + bytes.rx_received);
            Some(out as i128 - back as i128)
        };
        let host = |host: Option<&'a HostRow>, why: &str| match host {
            Some(host) => Ok(Scope::Host { run, host }),
            None => Err(why.to_owned()),
        };
        match name {
            None if run.machines.len() == 1 => {
                Ok(Scope::Machine { run, machine: &run.machines[0] })
            }
            None => Ok(Scope::All { run }),
            Some("machine") => match run.machines.as_slice() {
                [machine] => Ok(Scope::Machine { run, machine }),
                machines => Err(format!("the hosts are on {} machines: name one", machines.len())),
            },
            Some("master") => {
                host(run.hosts.iter().find(|h| h.role == Side::Master), "the run has no master")
            }
            Some("peer") => {
                let peers = || run.hosts.iter().filter(|h| h.role == Side::Peer);
                match peers().count() {
                    1 => host(peers().next(), ""),
                    number => Err(format!("the run has {number} peers: name one")),
                }
            }
            Some("sender") => host(
                run.hosts.iter().filter(|h| sent(h) > Some(0)).max_by_key(|h| sent(h)),
                "no host sends more than it receives",
            ),
            Some("receiver") => host(
                run.hosts.iter().filter(|h| sent(h).is_some_and(|s| s < 0)).min_by_key(|h| sent(h)),
                "no host receives more than it sends",
            ),
            Some(name) => host(
                run.hosts.iter().find(|h| h.name == name),
                &format!("the run has no host {name}"),
            ),
        }
    }

    fn run(&self) -> &'a Run {
        match self {
            Scope::Host { run, .. } | Scope::Machine { run, .. } | Scope::All { run } => run,
        }
    }

    fn cycles_per_kbyte(&self) -> Result<f64, String> {
        let known = |cycles: Option<f64>, reason: &Option<String>| {
            cycles.ok_or_else(|| reason.clone().unwrap_or_else(|| "not measured".to_owned()))
        };
        match self {
            Scope::Host { host, .. } => known(host.cycles_per_kbyte, &host.cycles_reason),
            Scope::Machine { machine, .. } => {
                known(machine.cycles_per_kbyte, &machine.cycles_reason)
            }
            // A sum of none would be 0.
            Scope::All { run } if run.machines.is_empty() => Err(NO_MACHINE.to_owned()),
            // Each is of the same bytes, delivered once.
            Scope::All { run } => {
                let each = run.machines.iter().map(|m| known(m.cycles_per_kbyte, &m.cycles_reason));
                each.sum()
            }
        }
    }

    /// The part of the cost that other programs had; `None` where it is unknown of any machine.
    #[must_use]
    pub fn foreign_cycles_per_kbyte(&self) -> Option<f64> {
        match self {
            Scope::Host { host, .. } => host.foreign_cycles_per_kbyte,
            Scope::Machine { machine, .. } => machine.foreign_cycles_per_kbyte,
            Scope::All { run } if run.machines.is_empty() => None,
            Scope::All { run } => run.machines.iter().map(|m| m.foreign_cycles_per_kbyte).sum(),
        }
    }

    /// Of several machines, that of the first.
    pub(crate) fn cycles_source(&self) -> Option<&'a str> {
        match self {
            Scope::Host { host, .. } => host.cycles_source.as_deref(),
            Scope::Machine { machine, .. } => machine.cycles_source.as_deref(),
            Scope::All { run } => run.machines.first()?.cycles_source.as_deref(),
        }
    }

    pub(crate) fn cpu_source(&self) -> Option<&'a str> {
        match self {
            Scope::Host { host, .. } => host.cpu_source.as_deref(),
            Scope::Machine { machine, .. } => machine.cpu_source.as_deref(),
            Scope::All { run } => run.machines.first()?.cpu_source.as_deref(),
        }
    }

    /// The cost of all bytes over the operations that moved them.
    fn cycles_per_operation(&self) -> Result<f64, String> {
        let run = self.run();
        let operations = run.operations.as_ref().map_or(0, |operations| operations.count);
        if operations == 0 {
            return Err("no operation was completed in the window".to_owned());
        }
        let bytes = match self {
            Scope::Host { host, .. } => {
                host.bytes.as_ref().map(|bytes| bytes.sent() + bytes.received())
            }
            Scope::Machine { .. } | Scope::All { .. } => {
                run.throughput.as_ref().map(|moved| moved.tx_bytes + moved.rx_bytes)
            }
        };
        let kbytes = bytes.ok_or_else(|| nothing(run))? as f64 / 1024.0;
        Ok(self.cycles_per_kbyte()? * kbytes / operations as f64)
    }

    /// A share of the time of the CPUs that are meant.
    fn cpu(&self, of: fn(&Cpu) -> f64) -> Result<f64, String> {
        let known = |cpu: &Option<Cpu>| {
            cpu.as_ref().map(of).ok_or_else(|| "CPU time was not measured".to_owned())
        };
        match self {
            Scope::Host { run, host } if run.shares_cpus(host) => Err(SHARED_CPUS.to_owned()),
            Scope::Host { host, .. } => known(&host.cpu),
            Scope::Machine { machine, .. } => known(&machine.cpu),
            Scope::All { run } => {
                let (mut sum, mut cpus) = (0.0, 0.0);
                for machine in &run.machines {
                    sum += known(&machine.cpu)? * f64::from(machine.cpus);
                    cpus += f64::from(machine.cpus);
                }
                Ok(sum / cpus)
            }
        }
    }

    /// A figure of the time from the driver to the application.
    fn receive_delay(&self, of: fn(&Latency) -> f64) -> Result<f64, String> {
        let [host] = self.hosts()[..] else {
            return Err("each host has times of its own: name one".to_owned());
        };
        let stamps =
            host.receive_stamps.as_ref().ok_or("nothing was stamped (--receive-stamps)")?;
        stamps.delay_us.as_ref().map(of).ok_or_else(|| stamps.no_delay())
    }

    /// What probes saw of the hosts that are meant.
    ///
    /// # Errors
    /// Nothing did, and why.
    pub fn observed(&self) -> Result<&'a HostObservation, String> {
        let run = self.run();
        let observe = run.observe.as_ref().ok_or("nothing observed (--observe none)")?;
        let all = &observe.hosts;
        let found = match self {
            Scope::Host { host, .. } => all.iter().find(|o| o.covers.contains(&host.name)),
            Scope::Machine { .. } | Scope::All { .. } if all.len() == 1 => all.first(),
            Scope::Machine { .. } | Scope::All { .. } => {
                return Err("each host was observed separately: name one".to_owned());
            }
        };
        found.ok_or_else(|| "nothing observed there".to_owned())
    }

    /// What one probe read of the hosts that are meant.
    fn section<T: Observation>(&self) -> Result<&'a T, String> {
        T::of(self.observed()?).ok_or_else(|| self.unread(T::NAME))
    }

    pub(super) fn observed_metric(
        &self,
        metric: &dyn ObservedMetric,
        thing: &str,
    ) -> Result<f64, String> {
        if metric.of() == MetricScope::Namespace {
            self.own_namespace()?;
        }
        let value = metric.value(self.observed()?, thing);
        value.unwrap_or_else(|| Err(self.unread(metric.probe())))
    }

    /// Percent of CPU time: what one probe read of all hosts that are meant, also where each was observed by itself.
    fn share_of_all<T: Observation>(
        &self,
        of: fn(&T) -> Result<(f64, f64), String>,
    ) -> Result<f64, String> {
        let hosts = self.hosts();
        let all = self.run().observe.iter().flat_map(|observe| &observe.hosts);
        let covered = all.filter(|o| hosts.iter().any(|host| o.covers.contains(&host.name)));
        let times = covered.filter_map(T::of).map(of).collect::<Result<Vec<_>, _>>()?;
        let (used, time) =
            times.iter().fold((0.0, 0.0), |(used, time), of| (used + of.0, time + of.1));
        if time > 0.0 { Ok(100.0 * used / time) } else { Err(self.unread(T::NAME)) }
    }

    /// Why a probe read nothing.
    fn unread(&self, probe: &str) -> String {
        let reports = self.run().observe.iter().flat_map(|observe| &observe.probes);
        let mut of_probe = reports.filter(|report| report.name == probe);
        match of_probe.find_map(|report| report.reason.clone()) {
            Some(reason) => format!("probe {probe}: {reason}"),
            None => format!("probe {probe} did not run"),
        }
    }

    /// The hosts that are meant.
    #[must_use]
    pub fn hosts(&self) -> Vec<&'a HostRow> {
        match self {
            Scope::Host { host, .. } => vec![*host],
            Scope::Machine { run, machine } => {
                run.hosts.iter().filter(|h| machine.hosts.contains(&h.name)).collect()
            }
            Scope::All { run } => run.hosts.iter().collect(),
        }
    }

    /// That what is of a network namespace is of the hosts that are meant: of hosts that share CPUs only
    /// the first's is watched. Those on loopback share one.
    fn own_namespace(&self) -> Result<(), String> {
        let watched = self.observed()?;
        let other = |host: &&&HostRow| host.name != watched.host && !host.on_loopback();
        match self.hosts().iter().find(other) {
            Some(host) => Err(format!(
                "{} shares its CPUs; of such hosts, only the devices and connections of {} were \
                 observed",
                host.name, watched.host
            )),
            None => Ok(()),
        }
    }

    /// What the probe `cpu` says.
    ///
    /// # Errors
    /// Nothing, and why. So for all that follow.
    pub fn cpu_times(&self) -> Result<&'a CpuSection, String> {
        self.section()
    }

    /// Interrupts and softirqs of the CPUs.
    ///
    /// # Errors
    /// Nobody watched, and why.
    pub fn interrupts(&self) -> Result<&'a InterruptsSection, String> {
        self.section()
    }

    /// Devices and polls, which are of the network namespace.
    ///
    /// # Errors
    /// As [`Scope::interrupts`].
    pub fn devices(&self) -> Result<&'a InterruptsSection, String> {
        let section = self.interrupts()?;
        self.own_namespace().map(|()| section)
    }

    /// What was handed to devices.
    ///
    /// # Errors
    /// As [`Scope::interrupts`].
    pub fn segments(&self) -> Result<&'a SegmentsSection, String> {
        self.own_namespace()?;
        self.section()
    }

    /// What TCP did.
    ///
    /// # Errors
    /// As [`Scope::interrupts`].
    pub fn tcp(&self) -> Result<&'a TcpSection, String> {
        self.own_namespace()?;
        self.section()
    }

    /// Where the CPUs were.
    ///
    /// # Errors
    /// As [`Scope::interrupts`].
    pub fn functions(&self) -> Result<&'a FunctionsSection, String> {
        self.section()
    }
}
