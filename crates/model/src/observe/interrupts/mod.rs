//! Interrupts, softirqs, and the packets they brought.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Slices, Value, reading};
use crate::document::Section;
use crate::metric::Better::{Higher, Lower, Neither};
use crate::metric::Unit::{Count, PerSecond, Ratio};
use crate::sample::{Rows, SampleName, Series, figure};

/// What came of one source, on one CPU or on several.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Handled {
    /// None for a sum.
    pub cpu: Option<u32>,
    pub count: u64,
    /// All that follows is null where nothing was timed. Time is a handler's own: what interrupted
    /// it is not in it.
    pub seconds: Option<f64>,
    pub average_us: Option<f64>,
    pub max_us: Option<f64>,
    /// Part of `seconds` that came while the CPU was idle, and took no task's time.
    pub in_idle: Option<f64>,
    /// Part of `seconds` that ksoftirqd ran.
    pub in_ksoftirqd: Option<f64>,
    /// Handlers by their time: at place n those of 2^n to 2^(n+1) ns, the last open.
    pub histogram_ns: Option<Vec<u64>>,
}

/// One source of interrupts, or one softirq vector.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct InterruptRow {
    /// As /proc/interrupts has it: a number, or `LOC`; a softirq vector by its name.
    pub source: String,
    /// The handler: name of the action, or what /proc/interrupts says of a vector.
    pub name: String,
    /// Driver of the device that interrupts; null where no device says so.
    pub module: Option<String>,
    pub per_second: f64,
    pub total: Handled,
    /// Of CPUs where any came.
    pub per_cpu: Vec<Handled>,
}

/// One interrupt vector of a network device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceVector {
    /// As /proc/interrupts has it.
    pub source: String,
    pub name: String,
    /// Of its queue; null for a vector of none, as for link changes.
    pub queue: Option<u32>,
    /// Whether it tells of received packets, and of sent ones.
    pub rx: bool,
    pub tx: bool,
    pub interrupts: u64,
    pub per_second: f64,
    /// Of its queue, where the driver counts them by queue; else null.
    pub rx_packets: Option<u64>,
    pub tx_packets: Option<u64>,
    /// Null also where there was no interrupt, or the vector is not for this direction.
    pub rx_packets_per_interrupt: Option<f64>,
    pub tx_packets_per_interrupt: Option<f64>,
}

/// Packets of one network device, and the interrupts they took.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceInterrupts {
    pub device: String,
    pub rx_packets: u64,
    pub tx_packets: u64,
    /// Of all its vectors; null without one.
    pub interrupts: Option<u64>,
    /// Packets over the interrupts of vectors that tell of this direction; null without these, or
    /// without an interrupt.
    pub rx_packets_per_interrupt: Option<f64>,
    pub tx_packets_per_interrupt: Option<f64>,
    /// Why one of the above is null.
    pub reason: Option<String>,
    pub vectors: Vec<DeviceVector>,
}

/// Polls of one NAPI instance: how packets are fetched once an interrupt has come.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NapiRow {
    /// None for the backlog of the CPUs, which takes what loopback, veth and RPS hand over.
    pub device: Option<String>,
    /// The kernel's number of the instance; null for the backlog.
    pub id: Option<u32>,
    pub polls: u64,
    pub packets: u64,
    pub packets_per_poll: Option<f64>,
    /// Polls that found nothing.
    pub empty: u64,
    /// Polls that took all they may: more was waiting.
    pub budget_exhausted: u64,
    /// Polls by packets: at place 0 those of none, at place n those of 2^(n-1) to 2^n - 1, the last
    /// open.
    pub histogram_packets: Vec<u64>,
}

/// What /proc/net/softnet_stat counts of one CPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SoftnetRow {
    /// None for a sum.
    pub cpu: Option<u32>,
    /// Packets that the stack took.
    pub processed: u64,
    /// Packets for which the backlog had no room.
    pub dropped: u64,
    /// Times that NET_RX stopped with work left: out of budget or time.
    pub time_squeezed: u64,
    /// Wake-ups for packets steered here by another CPU (RPS).
    pub received_rps: u64,
    /// Packets refused by the flow limit; null where the kernel does not count them.
    pub flow_limited: Option<u64>,
}

/// What the threads ksoftirqd did, which run softirqs when there are too many.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct KsoftirqdUse {
    /// CPU time of the threads, by the kernel's clock of them.
    pub seconds: f64,
    /// Softirq time in them; null where nothing was timed.
    pub softirq_seconds: Option<f64>,
    /// Part of all softirq time, 0 to 1; null where nothing was timed, or no softirq came.
    pub share: Option<f64>,
}

/// What the probe `interrupts` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct InterruptsSection {
    /// `bpf` (each one timed) or `proc` (counted only).
    pub source: String,
    /// Length of the window, as this probe timed it.
    pub seconds: f64,
    /// CPUs that were watched.
    pub cpus: u32,
    /// Hard interrupts, most time first, then most.
    pub interrupts: Vec<InterruptRow>,
    pub interrupts_per_second: f64,
    pub softirqs: Vec<InterruptRow>,
    pub softirqs_per_second: f64,
    /// Sources among `interrupts` of storage controllers (of the PCI bus), whether any interrupt came or not. Null where they are not
    /// known, and in older records.
    #[serde(default)]
    pub storage_sources: Option<Vec<String>>,
    /// Devices of the network namespace that is meant.
    pub devices: Vec<DeviceInterrupts>,
    /// Null where polls were not watched. Of all CPUs, and of this namespace's devices.
    pub napi: Option<Vec<NapiRow>>,
    /// The parts of the window in which polls were watched; null for all of it, and without `napi`.
    pub napi_slices: Option<Slices>,
    pub softnet: Vec<SoftnetRow>,
    pub softnet_total: SoftnetRow,
    pub ksoftirqd: Option<KsoftirqdUse>,
    /// Interrupts and softirqs whose end was seen without their beginning: they are in no row. Null
    /// where nothing was traced.
    pub unmatched: Option<u64>,
    /// What is null, and why.
    pub missing: Vec<String>,
}

/// Among what is missing where the devices of the namespace could not be read. Without it, an empty list
/// of devices says that none of them moved a packet.
pub const DEVICES_UNREADABLE: &str =
    "network devices: /proc/net/dev of the namespace cannot be read";

/// What raised an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptKind {
    /// A device: it has a number.
    Device,
    /// Another CPU.
    Ipi,
    /// The timer of the CPU.
    Timer,
    /// NMI, machine checks, hypervisor callbacks...
    Other,
}

impl InterruptRow {
    /// By the names that /proc/interrupts gives them on x86 and arm64.
    #[must_use]
    pub fn kind(&self) -> InterruptKind {
        match self.source.as_str() {
            "LOC" => InterruptKind::Timer,
            "RES" | "CAL" | "TLB" | "IWI" => InterruptKind::Ipi,
            source if source.starts_with("IPI") => InterruptKind::Ipi,
            source if source.parse::<u32>().is_err() => InterruptKind::Other,
            _ if self.name.contains("arch_timer") => InterruptKind::Timer,
            _ => InterruptKind::Device,
        }
    }
}

/// Softirq vectors in which requests of block devices complete.
const STORAGE_VECTORS: [&str; 2] = ["block", "irq_poll"];

impl InterruptsSection {
    /// Seconds of the interrupts of storage controllers and of the softirqs in which their requests complete, and those of all CPUs
    /// that were watched.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn storage_time(&self) -> Result<(f64, f64), String> {
        let Some(sources) = &self.storage_sources else {
            return Err("which interrupts are of storage controllers is unknown".to_owned());
        };
        let interrupts = self.interrupts.iter().filter(|row| sources.contains(&row.source));
        let vectors = |row: &&InterruptRow| STORAGE_VECTORS.contains(&row.source.as_str());
        let rows: Vec<&InterruptRow> =
            interrupts.chain(self.softirqs.iter().filter(vectors)).collect();
        // Without a line of its own and without softirqs, a device is served elsewhere: by the hypervisor, a thread, another bus.
        if sources.is_empty() && rows.is_empty() {
            return Err("no storage controller of this machine has an interrupt, and no softirq \
                        completed requests of block devices"
                .to_owned());
        }
        if self.source != "bpf" {
            return Err("interrupts were counted, not timed".to_owned());
        }
        let seconds = rows.iter().filter_map(|row| row.total.seconds).fold(0.0, |sum, of| sum + of);
        Ok((seconds, self.seconds * f64::from(self.cpus)))
    }

    /// Interrupts of this kind, per second.
    #[must_use]
    pub fn per_second_of(&self, kind: InterruptKind) -> f64 {
        // A sum of nothing would be -0.
        let of_kind = self.interrupts.iter().filter(|row| row.kind() == kind);
        of_kind.fold(0.0, |sum, row| sum + row.per_second)
    }

    /// Received packets for each interrupt of this kind.
    fn packets_per(&self, kind: InterruptKind, named: &str) -> Result<f64, String> {
        let packets = self.packets(|device| device.rx_packets)?;
        let interrupts = self.per_second_of(kind) * self.seconds;
        if interrupts < 0.5 {
            return Err(format!("there was no interrupt of {named}"));
        }
        Ok(packets / interrupts)
    }

    /// Packets of all devices together.
    ///
    /// # Errors
    /// There is no device to count them.
    pub fn packets(&self, of: fn(&DeviceInterrupts) -> u64) -> Result<f64, String> {
        if self.devices.is_empty() {
            return Err(self.why_no_device().to_owned());
        }
        Ok(self.devices.iter().map(of).sum::<u64>() as f64)
    }

    fn why_no_device(&self) -> &str {
        match self.missing.iter().any(|missing| missing == DEVICES_UNREADABLE) {
            true => DEVICES_UNREADABLE,
            false => "no device of the namespace moved a packet",
        }
    }

    fn packets_per_poll(&self) -> Result<f64, String> {
        let rows = self.napi.as_ref().ok_or("polls were not watched (probe interrupts)")?;
        let polls: u64 = rows.iter().map(|row| row.polls).sum();
        let packets: u64 = rows.iter().map(|row| row.packets).sum();
        if polls == 0 {
            return Err("there was no poll".to_owned());
        }
        Ok(packets as f64 / polls as f64)
    }

    fn packets_per_interrupt(&self) -> Result<f64, String> {
        let with = |d: &&DeviceInterrupts| d.rx_packets_per_interrupt.is_some();
        // The device that most came in by.
        let busiest = self.devices.iter().max_by_key(|device| device.rx_packets);
        match self.devices.iter().filter(with).max_by_key(|device| device.rx_packets) {
            Some(device) => Ok(device.rx_packets_per_interrupt.unwrap_or_default()),
            None => Err(busiest
                .and_then(|device| Some(format!("{}: {}", device.device, device.reason.as_ref()?)))
                .unwrap_or_else(|| self.why_no_device().to_owned())),
        }
    }
}

/// Of an interrupt vector of a device, in the whole window.
const VECTOR: Series<DeviceVector> = Series {
    kind: "vector",
    figures: &[
        figure("interrupts", "count", |v| Some(v.interrupts as f64)),
        figure("rx_packets", "count", |v| v.rx_packets.map(|n| n as f64)),
        figure("tx_packets", "count", |v| v.tx_packets.map(|n| n as f64)),
    ],
};

impl Observation for InterruptsSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "interrupts",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "hard interrupts",
            Value::One(|s| Ok(s.interrupts_per_second)),
        ),
        reading(
            "interrupts.device",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "hard interrupts of devices",
            Value::One(|s| Ok(s.per_second_of(InterruptKind::Device))),
        ),
        reading(
            "interrupts.ipi",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "hard interrupts by other CPUs (IPI): wake-ups, function calls, packets steered by RPS",
            Value::One(|s| Ok(s.per_second_of(InterruptKind::Ipi))),
        ),
        reading(
            "interrupts.timer",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "hard interrupts of the CPUs' timers",
            Value::One(|s| Ok(s.per_second_of(InterruptKind::Timer))),
        ),
        reading(
            "softirqs",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "softirqs",
            Value::One(|s| Ok(s.softirqs_per_second)),
        ),
        reading(
            "packets_per_poll",
            Ratio,
            Higher,
            MetricScope::Cpus,
            "packets that a poll of NAPI takes",
            Value::One(Self::packets_per_poll),
        ),
        reading(
            "packets_per_interrupt",
            Ratio,
            Higher,
            MetricScope::Namespace,
            "received packets for each interrupt of the devices' receive vectors",
            Value::One(Self::packets_per_interrupt),
        ),
        reading(
            "packets_per_interrupt.ipi",
            Ratio,
            Higher,
            MetricScope::Namespace,
            "received packets for each interrupt by another CPU (IPI)",
            Value::One(|s| s.packets_per(InterruptKind::Ipi, "another CPU")),
        ),
        reading(
            "packets_per_interrupt.timer",
            Ratio,
            Higher,
            MetricScope::Namespace,
            "received packets for each interrupt of a CPU's timer",
            Value::One(|s| s.packets_per(InterruptKind::Timer, "a CPU's timer")),
        ),
        reading(
            "packets.received",
            Count,
            Neither,
            MetricScope::Namespace,
            "packets that the devices received in the window, as they count them",
            Value::One(|s| s.packets(|d| d.rx_packets)),
        ),
        reading(
            "packets.sent",
            Count,
            Neither,
            MetricScope::Namespace,
            "packets that the devices sent in the window, as they count them",
            Value::One(|s| s.packets(|d| d.tx_packets)),
        ),
    ];

    /// One pass may have counted what anlater timed.
    fn merge(&mut self, later: Self) {
        if self.source != "bpf" {
            *self = later;
        }
    }

    fn sample_names() -> Vec<SampleName> {
        VECTOR.names()
    }

    fn samples(&self, rows: &mut Rows<'_>) {
        for device in &self.devices {
            for vector in &device.vectors {
                let name = format!("{} {}", device.device, vector.name);
                rows.add(&VECTOR, Some(&name), (0.0, self.seconds), vector);
            }
        }
    }

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_divided_by_what_raised_them() {
        let row = |source: &str, name: &str, per_second| InterruptRow {
            source: source.to_owned(),
            name: name.to_owned(),
            per_second,
            ..InterruptRow::default()
        };
        let section = InterruptsSection {
            seconds: 2.0,
            interrupts: vec![
                row("24", "virtio0-input.0", 100.0),
                row("26", "arch_timer", 7.0),
                row("LOC", "Local timer interrupts", 250.0),
                row("RES", "Rescheduling interrupts", 1_000.0),
                row("CAL", "Function call interrupts", 4_000.0),
                row("IPI0", "Rescheduling interrupts", 5.0),
                row("NMI", "Non-maskable interrupts", 1.0),
            ],
            devices: vec![DeviceInterrupts { rx_packets: 20_020, ..DeviceInterrupts::default() }],
            ..InterruptsSection::default()
        };
        let of = |kind| section.per_second_of(kind);
        assert_eq!(of(InterruptKind::Device), 100.0);
        assert_eq!((of(InterruptKind::Timer), of(InterruptKind::Ipi)), (257.0, 5_005.0));
        assert_eq!(of(InterruptKind::Other), 1.0);
        assert_eq!(section.packets_per(InterruptKind::Ipi, "another CPU"), Ok(2.0));
        let none = InterruptsSection { interrupts: Vec::new(), ..section.clone() };
        assert!(none.packets_per(InterruptKind::Timer, "a timer").is_err());
        let nothing = InterruptsSection { devices: Vec::new(), ..section };
        let why = nothing.packets_per(InterruptKind::Ipi, "another CPU").unwrap_err();
        assert_eq!(why, "no device of the namespace moved a packet");
    }

    #[test]
    fn time_of_storage_is_that_of_its_interrupts_and_of_the_softirqs_after_them() {
        let row = |source: &str, seconds: f64| InterruptRow {
            source: source.to_owned(),
            total: Handled { count: 1, seconds: Some(seconds), ..Handled::default() },
            ..InterruptRow::default()
        };
        let section = InterruptsSection {
            source: "bpf".to_owned(),
            seconds: 10.0,
            cpus: 2,
            interrupts: vec![row("36", 0.5), row("37", 3.0), row("LOC", 1.0)],
            softirqs: vec![row("block", 1.0), row("net_rx", 4.0), row("irq_poll", 0.5)],
            storage_sources: Some(vec!["36".to_owned(), "35".to_owned()]),
            ..InterruptsSection::default()
        };
        assert_eq!(section.storage_time(), Ok((2.0, 20.0)));
        let why = |section: InterruptsSection| section.storage_time().unwrap_err();
        let older = InterruptsSection { storage_sources: None, ..section.clone() };
        assert!(why(older).contains("unknown"));
        let counted = InterruptsSection { source: "proc".to_owned(), ..section.clone() };
        assert_eq!(why(counted), "interrupts were counted, not timed");
        // A controller that had nothing to do is measured; a machine without one is not.
        let idle = InterruptsSection {
            interrupts: Vec::new(),
            softirqs: vec![row("net_rx", 4.0)],
            ..section.clone()
        };
        assert_eq!(idle.storage_time(), Ok((0.0, 20.0)));
        let none = InterruptsSection { storage_sources: Some(Vec::new()), ..idle };
        assert!(why(none).starts_with("no storage controller"));
        let soft = InterruptsSection { storage_sources: Some(Vec::new()), ..section };
        assert_eq!(soft.storage_time(), Ok((1.5, 20.0)));
    }
}
