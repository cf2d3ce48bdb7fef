//! What TCP did in a network namespace: by the kernel's own counters and by TCP_INFO of the busiest
//! flows, which need no BPF; and what neither tells, by BPF.

mod flows;

use std::collections::BTreeMap;

use wirecost_linux::net_counters::NetCounters;
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    AckRatio, HostObservation, ListenDrops, MemoryPressure, Part, ProbeCost, Recoveries,
    Retransmits, TcpSection, Windows,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bpf::{BpfError, LoadedObject, Options, compiled};
use crate::probe::{
    Description, Edge, Extent, Namespace, Probe, Session, Sets, Shared, Unavailable,
};
use flows::{Flows, Totals};

const NAME: &str = "tcp";
/// Sampled flows stand for the others, unless more connections came in the window than are open, and those
/// that were sampled have less than one of so many of all segments.
const LEAST_SHARE: u64 = 4;

#[derive(Debug)]
pub(crate) struct Tcp;

impl Probe for Tcp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> Description {
        Description {
            tells: "data segments per acknowledgement, duplicate acknowledgements, reordering, \
                    retransmissions by cause, drops of listeners, zero windows, memory; congestion \
                    window, RTT, pacing rate and delivery rate of the busiest flows over time",
            needs: "nothing for counters and for flows of this user; BPF with BTF (root, or \
                    CAP_BPF and CAP_PERFMON) for duplicate acknowledgements, zero windows and all \
                    causes",
            costs: "`tcp:basic`, which is in `standard`: two files at the edges of the window, one \
                    list of connections, and a query for each of at most 32 flows per interval. \
                    `tcp`: also a program at each packet of an established connection",
            limitations: "flows between two samples: `tcp:basic` has no ACK ratio of short \
                    connections; the kernel's counters of received packets count packets joined by \
                    GRO once; duplicate acknowledgements that were coalesced in a backlog; the zero \
                    window of a connection that closes lasts until the end of the window",
        }
    }

    fn extents(&self) -> &'static [Extent] {
        &[Extent::Basic]
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Basic), full: Some(Extent::Whole) }
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let bpf = match shared.basic(NAME) {
            true => None,
            false => Some(load(shared).map_err(|error| error.to_string())),
        };
        let refused = bpf.as_ref().and_then(|bpf| bpf.as_ref().err());
        let missing = refused.map(|error| without_bpf(error)).into_iter().collect();
        Ok(Box::new(Watch { bpf, missing, ..Watch::default() }))
    }
}

fn load(shared: &mut Shared) -> Result<LoadedObject, Unavailable> {
    let cpus = shared.need_tracker()?.share();
    let cpus = cpus.ok_or_else(|| Unavailable::Other("the tracker has no map".to_owned()))?;
    let options = Options { shared: &[cpus], ..Options::default() };
    Ok(LoadedObject::load(compiled!("tcp", "probes_tcp_probe"), &options)?)
}

/// Causes of a retransmission, as probe.bpf.c numbers them.
mod cause {
    pub(super) const FAST: usize = 0;
    pub(super) const TIMEOUT: usize = 1;
    pub(super) const PROBE: usize = 2;
    pub(super) const SYN: usize = 3;
    pub(super) const ALL: usize = 4;
}

/// States of congestion control, as the kernel numbers them.
mod state {
    pub(super) const CWR: usize = 2;
    pub(super) const RECOVERY: usize = 3;
    pub(super) const LOSS: usize = 4;
    pub(super) const ALL: usize = 8;
}

/// `struct flows` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Traced {
    netns: u32,
    pad: u32,
    packets: u64,
    data_packets: u64,
    data_segments: u64,
    pure_acks: u64,
    fins_sent: u64,
    duplicate_acks: u64,
    out_of_order: u64,
    old: u64,
    resent: [u64; cause::ALL],
    states: [u64; state::ALL],
    zero_windows: u64,
    zero_window_ns: u64,
}

impl Traced {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.data_packets += other.data_packets;
        self.data_segments += other.data_segments;
        self.pure_acks += other.pure_acks;
        self.fins_sent += other.fins_sent;
        self.duplicate_acks += other.duplicate_acks;
        self.out_of_order += other.out_of_order;
        self.old += other.old;
        self.zero_windows += other.zero_windows;
        self.zero_window_ns += other.zero_window_ns;
        for (sum, segments) in self.resent.iter_mut().zip(other.resent) {
            *sum += segments;
        }
        for (sum, times) in self.states.iter_mut().zip(other.states) {
            *sum += times;
        }
    }
}

/// `struct overview` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Overview {
    used: u64,
    no_room: u64,
}

/// `struct stalled` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Stalled {
    since: u64,
    netns: u32,
    pad: u32,
}

/// `struct closing` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Closing {
    segments: u32,
    data_segments: u32,
    fin: u32,
    pad: u32,
}

/// One part of the machine.
#[derive(Debug)]
struct Watched {
    namespace: Namespace,
    before: Option<NetCounters>,
    after: Option<NetCounters>,
    flows: Flows,
}

/// What tells parts apart here: whose namespace, and which process.
type PartKey = (Option<u32>, Option<u32>);

fn key(part: &Part) -> PartKey {
    (part.netns_of, part.pid)
}

#[derive(Debug, Default)]
struct Watch {
    /// None where it was not asked for.
    bpf: Option<Result<LoadedObject, String>>,
    parts: BTreeMap<PartKey, Watched>,
    begin: Nanos,
    traced: BTreeMap<u32, Traced>,
    missing: Vec<String>,
}

impl Watch {
    /// What the programs counted, by namespace.
    fn read(loaded: &LoadedObject, end: Nanos) -> Result<(BTreeMap<u32, Traced>, u64), BpfError> {
        let overviews = loaded.percpu::<Overview>("overviews", 0)?;
        let used = overviews.iter().fold(0, |used, overview| used | overview.used);
        let mut all: BTreeMap<u32, Traced> = BTreeMap::new();
        for place in (0..u64::BITS).filter(|place| used >> place & 1 == 1) {
            for traced in loaded.percpu::<Traced>("namespaces", place)? {
                if traced.netns != 0 {
                    all.entry(traced.netns).or_default().add(&traced);
                }
            }
        }
        // Those that still wait have waited until now.
        for (_, stalls) in loaded.values::<u64, Stalled>("stalls")? {
            for stalled in stalls {
                let traced = all.entry(stalled.netns).or_default();
                traced.zero_window_ns += end.saturating_sub(stalled.since);
            }
        }
        Ok((all, overviews.iter().map(|overview| overview.no_room).sum()))
    }

    fn clear(loaded: &LoadedObject) -> Result<(), BpfError> {
        loaded.clear::<Traced>("namespaces")?;
        loaded.clear::<Overview>("overviews")?;
        loaded.clear::<Stalled>("stalls")?;
        loaded.clear::<Closing>("closings")
    }

    fn attach_programs(&mut self, shared: &Shared) {
        let Some(Ok(loaded)) = &mut self.bpf else { return };
        if let Some(error) = shared.tracker_error() {
            self.missing.push(without_bpf(error));
            return;
        }
        self.missing.extend(loaded.missing.iter().map(|hook| format!("no tracepoint {hook}")));
        if let Err(error) = Self::clear(loaded).and_then(|()| loaded.attach()) {
            self.missing.push(without_bpf(&error.to_string()));
        }
    }
}

fn without_bpf(reason: &str) -> String {
    format!("no duplicate acknowledgements, zero windows and causes: {reason}")
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        self.missing.clear();
        self.traced.clear();
        self.parts.clear();
        if let Some(Err(error)) = &self.bpf {
            self.missing.push(without_bpf(error));
        }
        self.missing.extend(shared.lost_namespaces());
        let namespaces = shared.namespaces();
        for part in shared.parts() {
            let Some(namespace) = namespaces.get(&part.netns_of) else { continue };
            let mut flows = Flows::open(&namespace.process, part);
            // Connections that are there already are chosen before anything is measured.
            flows.choose();
            self.missing.extend(flows.refused().map(str::to_owned));
            let namespace = namespace.clone();
            let watched = Watched { namespace, before: None, after: None, flows };
            self.parts.insert(key(part), watched);
        }
        self.attach_programs(shared);
        Ok(())
    }

    fn edge(&mut self, _shared: &Shared, _at: Nanos, edge: Edge) {
        for watched in self.parts.values_mut() {
            let counters = NetCounters::of(&watched.namespace.process).ok();
            match edge {
                Edge::Begin => watched.before = counters,
                Edge::End => watched.after = counters,
            }
        }
    }

    fn begin(&mut self, _shared: &Shared, at: Nanos) {
        self.begin = at;
        for watched in self.parts.values_mut() {
            watched.flows.sample(at);
        }
    }

    fn interval(&mut self, _shared: &Shared, at: Nanos) {
        for watched in self.parts.values_mut() {
            watched.flows.sample(at);
        }
    }

    fn end(&mut self, _shared: &Shared, at: Nanos) {
        for watched in self.parts.values_mut() {
            watched.flows.sample_last(at);
            if watched.before.is_none() || watched.after.is_none() {
                self.missing.push("the counters of the network namespace".to_owned());
            }
        }
        if let Some(Ok(loaded)) = &self.bpf {
            match Self::read(loaded, at) {
                Ok((traced, 0)) => self.traced = traced,
                Ok((traced, no_room)) => {
                    self.traced = traced;
                    self.missing
                        .push(format!("{no_room} packets, because there were too many namespaces"));
                }
                Err(error) => self.missing.push(error.to_string()),
            }
        }
        self.missing.sort();
        self.missing.dedup();
    }

    fn detach(&mut self) {
        if let Some(Ok(loaded)) = &mut self.bpf {
            loaded.detach();
        }
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(watched) = self.parts.get(&key(part)) else { return };
        // A namespace in which nothing was received has no entry, but was looked at.
        let traced = matches!(self.bpf, Some(Ok(_)))
            .then(|| self.traced.get(&watched.namespace.inode).copied().unwrap_or_default());
        into.tcp = Some(section(watched, traced.as_ref(), self.begin));
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    fn cost(&self) -> ProbeCost {
        match &self.bpf {
            Some(Ok(loaded)) => loaded.cost(),
            _ => ProbeCost::default(),
        }
    }
}

fn section(watched: &Watched, traced: Option<&Traced>, begin: Nanos) -> TcpSection {
    let grown = |name: &str| watched.after.as_ref()?.since(watched.before.as_ref()?, name);
    let tcp = |name: &str| grown(&format!("Tcp.{name}"));
    let ext = |name: &str| grown(&format!("TcpExt.{name}"));
    let sum = |names: &[&str]| {
        names
            .iter()
            .filter_map(|name| ext(name))
            .fold(None, |sum: Option<u64>, value| Some(sum.unwrap_or(0) + value))
    };
    let totals = watched.flows.totals();
    let resent = tcp("RetransSegs");
    let sent = tcp("OutSegs");
    let syn = ext("TCPSynRetrans");
    let opened =
        tcp("ActiveOpens").zip(tcp("PassiveOpens")).map(|(active, passive)| active + passive);
    let all = sent.zip(tcp("InSegs")).map(|(sent, received)| sent + received);
    let telling = totals.as_ref().filter(|totals| {
        let short = opened > watched.flows.open_connections();
        !short || all.is_none_or(|all| totals.segments() * LEAST_SHARE >= all)
    });
    let explained = |ratio: AckRatio| {
        let measured = ratio.data_segments.is_some() && ratio.pure_acks.is_some();
        let reason = || match (traced.is_some() || telling.is_some(), totals.is_some()) {
            (true, _) => "the namespace has no counters of segments sent".to_owned(),
            (false, true) => unknown("most connections were too short to be sampled"),
            (false, false) => {
                unknown(watched.flows.refused().unwrap_or("no connection was open for two samples"))
            }
        };
        AckRatio { reason: (!measured).then(reason), ..ratio }
    };
    TcpSection {
        segments_sent: sent,
        packets_received: tcp("InSegs"),
        acks_received: explained(acks_received(traced, telling, &tcp, &ext)),
        acks_sent: explained(acks_sent(traced, telling, &tcp, &ext)),
        acks_compressed: ext("TCPAckCompressed"),
        duplicate_acks_received: traced.map(|traced| traced.duplicate_acks),
        out_of_order_packets: ext("TCPOFOQueue").or(traced.map(|traced| traced.out_of_order)),
        retransmits: Retransmits {
            segments: resent,
            source: Some(if traced.is_some() { "bpf" } else { "netstat" }.to_owned()),
            fast_segments: match traced {
                Some(traced) => Some(traced.resent[cause::FAST]),
                None => ext("TCPFastRetrans"),
            },
            timeout_segments: match traced {
                Some(traced) => Some(traced.resent[cause::TIMEOUT]),
                None => resent
                    .zip(ext("TCPFastRetrans"))
                    .map(|(all, fast)| all.saturating_sub(fast + syn.unwrap_or(0))),
            },
            probe_segments: traced.map(|traced| traced.resent[cause::PROBE]),
            syn_segments: traced.map(|traced| traced.resent[cause::SYN]).or(syn),
            timeouts: ext("TCPTimeouts"),
            loss_probes: ext("TCPLossProbes"),
            spurious_dsack: ext("TCPDSACKRecv"),
            spurious_timeouts: ext("TCPSpuriousRTOs"),
            lost_again: ext("TCPLostRetransmit"),
            percent: resent
                .zip(sent)
                .filter(|(resent, sent)| resent + sent > 0)
                .map(|(resent, sent)| resent as f64 * 100.0 / (resent + sent) as f64),
        },
        recoveries: Recoveries {
            fast: match traced {
                Some(traced) => Some(traced.states[state::RECOVERY]),
                None => sum(&["TCPSackRecovery", "TCPRenoRecovery"]),
            },
            loss: traced.map(|traced| traced.states[state::LOSS]),
            window_reduced: traced.map(|traced| traced.states[state::CWR]),
            undone: sum(&["TCPFullUndo", "TCPPartialUndo", "TCPDSACKUndo", "TCPLossUndo"]),
        },
        listen: ListenDrops {
            overflows: ext("ListenOverflows"),
            drops: ext("ListenDrops"),
            syn_queue_full: sum(&["TCPReqQFullDrop", "TCPReqQFullDoCookies"]),
        },
        windows: Windows {
            zero_announced: ext("TCPToZeroWindowAdv"),
            zero_ended: ext("TCPFromZeroWindowAdv"),
            zero_received: traced.map(|traced| traced.zero_windows),
            zero_received_seconds: traced.map(|traced| seconds(traced.zero_window_ns)),
            receive_window_limited_seconds: totals.as_ref().map(|t| t.receive_window_limited),
            send_buffer_limited_seconds: totals.as_ref().map(|t| t.send_buffer_limited),
            busy_seconds: totals.as_ref().map(|t| t.busy),
        },
        memory: MemoryPressure {
            entered: ext("TCPMemoryPressures"),
            seconds: ext("TCPMemoryPressuresChrono").map(|milliseconds| milliseconds as f64 / 1e3),
            receive_pruned: ext("RcvPruned"),
            receive_collapsed: ext("TCPRcvCollapsed"),
            backlog_dropped: ext("TCPBacklogDrop"),
            receive_queue_dropped: ext("TCPRcvQDrop"),
        },
        rtt_us: watched.flows.rtt(),
        cwnd_segments: watched.flows.cwnd(),
        flows_open: watched.flows.open_connections(),
        flows: watched.flows.described(begin),
    }
}

fn ratio(source: &str, data_segments: Option<u64>, pure_acks: Option<u64>) -> AckRatio {
    AckRatio {
        source: Some(source.to_owned()),
        data_segments,
        pure_acks,
        segments_per_ack: data_segments
            .zip(pure_acks)
            .filter(|(_, acks)| *acks > 0)
            .map(|(data, acks)| data as f64 / acks as f64),
        reason: None,
    }
}

/// Why there is no ratio where nothing was traced and flows do not tell. The kernel's counters do not
/// either: they count a FIN as data sent (TCPOrigDataSent), and acknowledgements that came with data among
/// those that came without (TCPHPAcks; <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_input.c>,
/// `tcp_ack`). Of short connections these are as many as the others.
fn unknown(flows: &str) -> String {
    format!(
        "{flows}; the kernel's counters do not distinguish ACKs with and without data: use \
         `--observe tcp` (BPF)"
    )
}

type Grown<'a> = &'a dyn Fn(&str) -> Option<u64>;

fn acks_received(
    traced: Option<&Traced>,
    totals: Option<&Totals>,
    tcp: Grown<'_>,
    ext: Grown<'_>,
) -> AckRatio {
    // Segments sent for the first time, and those sent again. The kernel counts a FIN as data.
    let sent = ext("TCPOrigDataSent").zip(tcp("RetransSegs")).map(|(new, again)| new + again);
    match (traced, totals) {
        (Some(traced), _) => {
            let control = traced.fins_sent + traced.resent[cause::SYN];
            let data = sent.map(|sent| sent.saturating_sub(control));
            ratio("bpf", data, Some(traced.pure_acks))
        }
        (None, Some(totals)) => ratio("tcp-info", Some(totals.data_out), Some(totals.acks_in)),
        (None, None) => AckRatio::default(),
    }
}

fn acks_sent(
    traced: Option<&Traced>,
    totals: Option<&Totals>,
    tcp: Grown<'_>,
    ext: Grown<'_>,
) -> AckRatio {
    // What is neither data (a FIN counts as such), nor begins a connection, nor refuses one.
    let sent = || {
        let all = tcp("OutSegs")?;
        let known =
            [ext("TCPOrigDataSent"), tcp("OutRsts"), tcp("ActiveOpens"), tcp("PassiveOpens")];
        Some(all.saturating_sub(known.into_iter().sum::<Option<u64>>()?))
    };
    match (traced, totals) {
        (Some(traced), _) => ratio("bpf", Some(traced.data_segments), sent()),
        (None, Some(totals)) => ratio("tcp-info", Some(totals.data_in), Some(totals.acks_out)),
        (None, None) => ratio("netstat", None, sent()),
    }
}
