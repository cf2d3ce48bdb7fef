//! What TCP did: acknowledgements, order, retransmissions, and the state of flows over time.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, counted, reading};
use crate::document::Section;
use crate::metric::Better::{Higher, Lower};
use crate::metric::Unit::{Count, Ratio};
use crate::sample::{Rows, SampleName, Series, figure};

/// What the probe `tcp` says of a network namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TcpSection {
    /// Segments by the kernel's own counters; without those sent again.
    pub segments_sent: Option<u64>,
    /// As TCP got them: what GRO joined is one.
    pub packets_received: Option<u64>,
    /// Of what is sent here and acknowledged there.
    pub acks_received: AckRatio,
    /// Of what is sent there and acknowledged here.
    pub acks_sent: AckRatio,
    /// Acknowledgements put together while the receiver was busy (TCPAckCompressed).
    pub acks_compressed: Option<u64>,
    /// Acknowledgements that say nothing new and no new window, while data is outstanding (RFC 5681).
    /// Null without BPF.
    pub duplicate_acks_received: Option<u64>,
    /// Packets received beyond what was awaited.
    pub out_of_order_packets: Option<u64>,
    pub retransmits: Retransmits,
    pub recoveries: Recoveries,
    pub listen: ListenDrops,
    pub windows: Windows,
    pub memory: MemoryPressure,
    /// Round-trip times and congestion windows of all samples of all flows below.
    pub rtt_us: Option<Spread>,
    pub cwnd_segments: Option<Spread>,
    /// Connections that were open when flows were chosen last; null where they could not be listed.
    pub flows_open: Option<u64>,
    /// The busiest of them, over time.
    pub flows: Vec<TcpFlow>,
}

/// How many segments with data there are for each acknowledgement without.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AckRatio {
    /// `bpf` (all connections), `tcp-info` (the sampled flows) or `netstat` (all, by the kernel's
    /// counters, which tell only how many acknowledgements were sent).
    pub source: Option<String>,
    pub data_segments: Option<u64>,
    pub pure_acks: Option<u64>,
    /// Null where there is no such acknowledgement, and where `reason` says why it is unknown.
    pub segments_per_ack: Option<f64>,
    /// Why the ratio is unknown; null where it is known or there is no such acknowledgement, and in older
    /// records.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Segments sent again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Retransmits {
    /// RetransSegs.
    pub segments: Option<u64>,
    /// `bpf` or `netstat`: of the kinds.
    pub source: Option<String>,
    pub fast_segments: Option<u64>,
    /// By a timeout, and what followed it while the connection recovered.
    pub timeout_segments: Option<u64>,
    /// Tail loss probes (RFC 8985); null without BPF, where they are among the timeouts.
    pub probe_segments: Option<u64>,
    /// SYN and SYN-ACK.
    pub syn_segments: Option<u64>,
    /// Timeouts that came (TCPTimeouts), and probes that were sent, also of new data.
    pub timeouts: Option<u64>,
    pub loss_probes: Option<u64>,
    /// Duplicates that the other end told of: sent again for nothing (RFC 2883).
    pub spurious_dsack: Option<u64>,
    /// Timeouts found to have come too early (RFC 5682).
    pub spurious_timeouts: Option<u64>,
    /// What was sent again and was lost again.
    pub lost_again: Option<u64>,
    /// Percent of all segments sent.
    pub percent: Option<f64>,
}

/// How often connections went into recovery.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Recoveries {
    pub fast: Option<u64>,
    /// Null without BPF.
    pub loss: Option<u64>,
    /// Reductions by ECN or a full local queue (state CWR); null without BPF.
    pub window_reduced: Option<u64>,
    pub undone: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListenDrops {
    /// Connections that found the queue of accepted ones full.
    pub overflows: Option<u64>,
    /// The same, and those dropped for any other reason.
    pub drops: Option<u64>,
    pub syn_queue_full: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// Times this host announced a window of 0, and took it back.
    pub zero_announced: Option<u64>,
    pub zero_ended: Option<u64>,
    /// Windows of 0 that came from other ends, and for how long all of them together kept connections
    /// from sending. Null without BPF.
    pub zero_received: Option<u64>,
    pub zero_received_seconds: Option<f64>,
    /// Of the sampled flows: time limited by the other end's window, by the send buffer, and with
    /// data in flight at all.
    pub receive_window_limited_seconds: Option<f64>,
    pub send_buffer_limited_seconds: Option<f64>,
    pub busy_seconds: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryPressure {
    /// Times all of TCP came under pressure, and for how long.
    pub entered: Option<u64>,
    pub seconds: Option<f64>,
    /// Packets dropped or joined as a receive buffer was full.
    pub receive_pruned: Option<u64>,
    pub receive_collapsed: Option<u64>,
    pub backlog_dropped: Option<u64>,
    pub receive_queue_dropped: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
    pub samples: u64,
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpFlow {
    pub local: String,
    pub remote: String,
    pub congestion_control: Option<String>,
    /// Bytes acknowledged by the other end, and received from it, between first and last sample.
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub retransmitted_segments: u64,
    pub samples: Vec<TcpSample>,
}

/// A flow at an instant, by TCP_INFO.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpSample {
    /// Since the beginning of the window.
    pub seconds: f64,
    pub cwnd_segments: u32,
    /// Null before the first loss.
    pub slow_start_threshold_segments: Option<u32>,
    pub in_flight_segments: u32,
    pub rtt_us: u32,
    pub min_rtt_us: Option<u32>,
    /// Null where the flow is not paced.
    pub pacing_bits_per_second: Option<f64>,
    pub delivery_bits_per_second: Option<f64>,
    pub send_window_bytes: Option<u32>,
    /// Since the connection began.
    pub retransmitted_segments: u32,
    /// Null in records that do not have it.
    pub congestion_state: Option<CongestionState>,
    /// Milliseconds since the connection began: with data in flight; of them limited by the receiver's window, and by the
    /// send buffer. Null where the kernel does not tell.
    pub busy_ms: Option<f64>,
    pub receive_window_limited_ms: Option<f64>,
    pub send_buffer_limited_ms: Option<f64>,
}

/// What congestion control does with losses (<https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tcp.h#L180>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CongestionState {
    /// Nothing unusual.
    Open,
    /// Duplicate acknowledgements or selective ones came; nothing is known to be lost.
    Disorder,
    /// The window shrinks after a sign of congestion: ECN, or a queue of this host.
    Cwr,
    /// Lost segments are sent again (fast recovery).
    Recovery,
    /// After a timeout.
    Loss,
}

impl CongestionState {
    const ALL: [Self; 5] = [Self::Open, Self::Disorder, Self::Cwr, Self::Recovery, Self::Loss];

    /// By the kernel's number.
    #[must_use]
    pub fn of_kernel(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The kernel's number, as samples have it.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        ["open", "disorder", "CWR", "recovery", "loss"][usize::from(self.number())]
    }
}

/// Of one end of a connection, at an instant.
const FLOW: Series<TcpSample> = Series {
    kind: "flow",
    figures: &[
        figure("cwnd_segments", "count", |s| Some(f64::from(s.cwnd_segments))),
        figure("slow_start_threshold_segments", "count", |s| {
            s.slow_start_threshold_segments.map(f64::from)
        }),
        figure("in_flight_segments", "count", |s| Some(f64::from(s.in_flight_segments))),
        figure("rtt", "us", |s| Some(f64::from(s.rtt_us))),
        figure("min_rtt", "us", |s| s.min_rtt_us.map(f64::from)),
        figure("pacing_rate", "b/s", |s| s.pacing_bits_per_second),
        figure("delivery_rate", "b/s", |s| s.delivery_bits_per_second),
        figure("send_window_bytes", "B", |s| s.send_window_bytes.map(f64::from)),
        figure("retransmitted_segments", "count", |s| Some(f64::from(s.retransmitted_segments))),
        figure("congestion_state", "state", |s| {
            s.congestion_state.map(|state| f64::from(state.number()))
        }),
        figure("busy", "ms", |s| s.busy_ms),
        figure("receive_window_limited", "ms", |s| s.receive_window_limited_ms),
        figure("send_buffer_limited", "ms", |s| s.send_buffer_limited_ms),
    ],
};

impl Observation for TcpSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "segments_per_ack",
            Ratio,
            Higher,
            MetricScope::Namespace,
            "data segments sent for each acknowledgement received",
            Value::One(|tcp| {
                let AckRatio { segments_per_ack, reason, .. } = &tcp.acks_received;
                let reason = reason.as_deref().unwrap_or("no acknowledgement without data came");
                segments_per_ack.ok_or_else(|| reason.to_owned())
            }),
        ),
        reading(
            "duplicate_acks",
            Count,
            Lower,
            MetricScope::Namespace,
            "duplicate acknowledgements received",
            Value::One(|tcp| counted(tcp.duplicate_acks_received, "they are counted by BPF only")),
        ),
        reading(
            "out_of_order",
            Count,
            Lower,
            MetricScope::Namespace,
            "packets received beyond what was awaited",
            Value::One(|tcp| counted(tcp.out_of_order_packets, "this kernel does not count them")),
        ),
    ];

    fn sample_names() -> Vec<SampleName> {
        FLOW.names()
    }

    fn samples(&self, rows: &mut Rows<'_>) {
        for flow in &self.flows {
            let name = format!("{} > {}", flow.local, flow.remote);
            for sample in &flow.samples {
                rows.add(&FLOW, Some(&name), (sample.seconds, 0.0), sample);
            }
        }
    }

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}
