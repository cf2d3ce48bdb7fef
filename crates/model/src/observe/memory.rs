//! Memory of sockets: what TCP and UDP hold, TCP's limits, and how many sockets there are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, counted, reading};
use crate::metric::Better::{Lower, Neither};
use crate::metric::Unit::{Bytes, Count};
use crate::sample::{Rows, SampleName, Series, figure};

/// What the probe `memory` says. The kernel keeps one account of TCP's and of UDP's memory for all
/// network namespaces; what is of one namespace says so.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemorySection {
    /// Memory charged to TCP sockets for what they have queued, in all namespaces.
    pub tcp_bytes: Option<Gauge>,
    /// By how much `tcp_bytes` and `udp_bytes` may be off in either direction: each CPU keeps part of
    /// the account to itself. Null where the kernel does not tell how much.
    pub uncertainty_bytes: Option<u64>,
    /// The three values of `net.ipv4.tcp_mem`.
    pub tcp_limits: Option<TcpMemoryLimits>,
    pub pressure: TcpMemoryPressure,
    /// The same as `tcp_bytes` of UDP sockets.
    pub udp_bytes: Option<Gauge>,
    /// IP fragments of this namespace that wait for the rest of their packet.
    pub reassembly_bytes: Option<Gauge>,
    pub sockets: SocketCounts,
    /// The kernel's caches of sockets and of packets' headers, of all namespaces. Null where they were
    /// not read.
    pub slabs: Option<Vec<SocketSlab>>,
    pub samples: Vec<MemorySample>,
}

/// Readings of something that goes up and down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gauge {
    pub min: u64,
    /// Of the readings, which are equally far apart.
    pub mean: f64,
    pub max: u64,
    /// At the end of the window.
    pub end: u64,
    pub readings: u64,
}

impl Gauge {
    /// Adds a reading, if there is one.
    pub fn add(gauge: &mut Option<Self>, reading: Option<u64>) {
        let Some(value) = reading else { return };
        let first = Self { min: value, mean: value as f64, max: value, end: value, readings: 0 };
        let gauge = gauge.get_or_insert(first);
        gauge.readings += 1;
        gauge.mean += (value as f64 - gauge.mean) / gauge.readings as f64;
        gauge.min = gauge.min.min(value);
        gauge.max = gauge.max.max(value);
        gauge.end = value;
    }
}

/// Thresholds of all TCP memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpMemoryLimits {
    /// Pressure ends below this.
    pub low_bytes: u64,
    /// Pressure begins above this: buffers grow no further and receive queues are collapsed.
    pub pressure_bytes: u64,
    /// Above this sockets get no memory beyond their minimum.
    pub high_bytes: u64,
}

/// Pressure on all of TCP. The kernel counts it in the namespace of the socket that met it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TcpMemoryPressure {
    /// Times TCP came under pressure (TCPMemoryPressures).
    pub entered: Option<u64>,
    /// Pressure that ended in the window, from its beginning on (TCPMemoryPressuresChrono).
    pub seconds: Option<f64>,
    /// Readings that found TCP under pressure, in any namespace.
    pub readings: Option<u64>,
    /// Connections reset for want of memory (TCPAbortOnMemory).
    pub aborted: Option<u64>,
}

/// Sockets, at each reading.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SocketCounts {
    /// Of every kind that processes have open in this namespace.
    pub used: Option<Gauge>,
    /// TCP sockets of this namespace that are bound or connected, over IPv4 and IPv6.
    pub tcp: Option<Gauge>,
    pub udp: Option<Gauge>,
    /// Connections of this namespace in TIME_WAIT.
    pub time_wait: Option<Gauge>,
    /// TCP sockets of all namespaces that no process has open any more.
    pub orphans: Option<Gauge>,
    /// TCP sockets of all namespaces, in any state.
    pub tcp_allocated: Option<Gauge>,
}

/// One cache of the kernel, at the edges of the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketSlab {
    /// As /proc/slabinfo names it.
    pub name: String,
    pub object_bytes: u64,
    pub objects_begin: u64,
    pub objects_end: u64,
    /// Memory of its pages, objects not in use included.
    pub bytes_begin: u64,
    pub bytes_end: u64,
}

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySample {
    /// Since the beginning of the window.
    pub seconds: f64,
    pub tcp_bytes: Option<u64>,
    pub udp_bytes: Option<u64>,
    pub reassembly_bytes: Option<u64>,
    pub tcp_sockets: Option<u64>,
    pub time_wait: Option<u64>,
    pub orphans: Option<u64>,
    /// Null where the kernel does not tell.
    pub under_pressure: Option<bool>,
}

/// Of the sockets of a host, at an instant.
const MEMORY: Series<MemorySample> = Series {
    kind: "memory",
    figures: &[
        figure("tcp_bytes", "B", |s| s.tcp_bytes.map(|n| n as f64)),
        figure("udp_bytes", "B", |s| s.udp_bytes.map(|n| n as f64)),
        figure("reassembly_bytes", "B", |s| s.reassembly_bytes.map(|n| n as f64)),
        figure("tcp_sockets", "count", |s| s.tcp_sockets.map(|n| n as f64)),
        figure("time_wait", "count", |s| s.time_wait.map(|n| n as f64)),
        figure("orphans", "count", |s| s.orphans.map(|n| n as f64)),
        figure("under_pressure", "count", |s| {
            s.under_pressure.map(|under| f64::from(u8::from(under)))
        }),
    ],
};

const NOT_TOLD: &str = "/proc/net/sockstat does not tell it";

impl Observation for MemorySection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "memory.tcp_mean",
            Bytes,
            Neither,
            MetricScope::Kernel,
            "memory of TCP sockets of all network namespaces, mean of the readings",
            Value::One(|s| Ok(s.tcp_bytes.ok_or(NOT_TOLD)?.mean)),
        ),
        reading(
            "memory.tcp_max",
            Bytes,
            Neither,
            MetricScope::Kernel,
            "memory of TCP sockets of all network namespaces, the largest reading",
            Value::One(|s| counted(s.tcp_bytes.map(|gauge| gauge.max), NOT_TOLD)),
        ),
        reading(
            "memory.udp_max",
            Bytes,
            Neither,
            MetricScope::Kernel,
            "memory of UDP sockets of all network namespaces, the largest reading",
            Value::One(|s| counted(s.udp_bytes.map(|gauge| gauge.max), NOT_TOLD)),
        ),
        reading(
            "memory.pressures",
            Count,
            Lower,
            MetricScope::Namespace,
            "times TCP came under memory pressure",
            Value::One(|s| counted(s.pressure.entered, "this kernel does not count them")),
        ),
        reading(
            "sockets.time_wait",
            Count,
            Neither,
            MetricScope::Namespace,
            "connections in TIME_WAIT, the largest reading",
            Value::One(|s| counted(s.sockets.time_wait.map(|gauge| gauge.max), NOT_TOLD)),
        ),
    ];

    /// The same readings with those of the caches are more.
    fn merge(&mut self, later: Self) {
        if self.slabs.is_none() {
            *self = later;
        }
    }

    fn sample_names() -> Vec<SampleName> {
        MEMORY.names()
    }

    fn samples(&self, rows: &mut Rows<'_>) {
        for sample in &self.samples {
            rows.add(&MEMORY, None, (sample.seconds, 0.0), sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_has_the_mean_and_the_ends_of_its_readings() {
        let mut gauge = None;
        Gauge::add(&mut gauge, None);
        assert_eq!(gauge, None);
        for value in [Some(8), None, Some(2), Some(5)] {
            Gauge::add(&mut gauge, value);
        }
        assert_eq!(gauge, Some(Gauge { min: 2, mean: 5.0, max: 8, end: 5, readings: 3 }));
    }

    #[test]
    fn a_pass_that_read_the_caches_says_more() {
        let section = |bytes, slabs| {
            let mut tcp_bytes = None;
            Gauge::add(&mut tcp_bytes, Some(bytes));
            MemorySection { tcp_bytes, slabs, ..MemorySection::default() }
        };
        let mut first = section(1, None);
        first.merge(section(2, Some(Vec::new())));
        assert_eq!(first, section(2, Some(Vec::new())));
        first.merge(section(3, None));
        assert_eq!(first, section(2, Some(Vec::new())));
    }
}
