//! The busiest connections of a namespace or of a process, looked at now and then.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use wirecost_linux::netns;
use wirecost_linux::sock_diag::{OPEN, SockDiag, SocketId, TcpSocket};
use wirecost_linux::tcp_info::TcpDetail;
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{CongestionState, Part, Spread, TcpFlow, TcpSample};

use crate::series::Series;

const MOST: usize = 32;
/// All connections are listed again only when so many times has passed of what it took last.
const LISTING_SHARE: u32 = 200;

/// One connection.
#[derive(Debug)]
struct Flow {
    id: SocketId,
    congestion: Option<String>,
    gone: bool,
    first: Option<TcpDetail>,
    last: Option<TcpDetail>,
    samples: Series<TcpDetail>,
}

/// Sums over all flows, between the first and the last look at each.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) data_out: u64,
    pub(super) data_in: u64,
    pub(super) acks_out: u64,
    pub(super) acks_in: u64,
    /// Seconds.
    pub(super) busy: f64,
    pub(super) receive_window_limited: f64,
    pub(super) send_buffer_limited: f64,
}

impl Totals {
    /// All that were sent and received.
    pub(super) fn segments(&self) -> u64 {
        self.data_out + self.data_in + self.acks_out + self.acks_in
    }
}

#[derive(Debug)]
pub(super) struct Flows {
    diag: Result<SockDiag, String>,
    pid: Option<u32>,
    /// Connections that are not the load's, from either end.
    control: BTreeSet<(SocketAddr, SocketAddr)>,
    open: Option<u64>,
    listed: Option<Instant>,
    listing_took: Duration,
    flows: Vec<Flow>,
}

impl Flows {
    /// Of the namespace of a process; of a part with a `pid`, only its connections.
    pub(super) fn open(process: &Path, part: &Part) -> Self {
        let diag = File::open(process.join("ns/net"))
            .and_then(|namespace| netns::run_in(&namespace, SockDiag::open)?)
            .map_err(|error| format!("no flows, as connections cannot be listed: {error}"));
        let listing_took = Duration::ZERO;
        let ends = |(a, b): &(SocketAddr, SocketAddr)| {
            let (a, b) = (canonical(*a), canonical(*b));
            [(a, b), (b, a)]
        };
        let control = part.control.iter().flat_map(ends).collect();
        let (pid, flows) = (part.pid, Vec::new());
        Self { diag, pid, control, open: None, listed: None, listing_took, flows }
    }

    pub(super) fn refused(&self) -> Option<&str> {
        self.diag.as_ref().err().map(String::as_str)
    }

    /// Chooses the busiest, beside those that are looked at already and are still there.
    pub(super) fn choose(&mut self) {
        let Ok(diag) = &mut self.diag else { return };
        let begin = Instant::now();
        let mut all: Vec<(u64, TcpSocket)> = Vec::new();
        let listed = diag.tcp(OPEN, |socket| {
            let moved = socket.info.basic.bytes_acked.unwrap_or(0)
                + socket.info.basic.bytes_received.unwrap_or(0);
            all.push((moved, socket));
        });
        if let Err(error) = listed {
            self.diag = Err(format!("no flows, as connections cannot be listed: {error}"));
            return;
        }
        if let Some(pid) = self.pid {
            let own = sockets_of(pid);
            all.retain(|(_, socket)| own.contains(&socket.inode));
        }
        all.retain(|(_, socket)| !self.control.contains(&(socket.id.local(), socket.id.remote())));
        self.open = Some(all.len() as u64);
        let known: BTreeSet<SocketId> = self.flows.iter().map(|flow| flow.id).collect();
        all.retain(|(_, socket)| !known.contains(&socket.id));
        all.sort_unstable_by_key(|(moved, socket)| (std::cmp::Reverse(*moved), socket.id));
        // What is gone keeps its place: what it was is told too.
        let room = MOST.saturating_sub(self.flows.len());
        self.flows.extend(all.into_iter().take(room).map(|(_, socket)| Flow {
            id: socket.id,
            congestion: socket.congestion,
            gone: false,
            first: None,
            last: None,
            samples: Series::default(),
        }));
        self.listing_took = begin.elapsed();
        self.listed = Some(begin);
    }

    /// Looks at the flows, if it is time to.
    pub(super) fn sample(&mut self, at: Nanos) {
        let alive = self.flows.iter().filter(|flow| !flow.gone).count();
        let rested = self.listed.is_none_or(|listed| {
            listed.elapsed() >= self.listing_took.saturating_mul(LISTING_SHARE)
        });
        if alive == 0 && rested && self.flows.len() < MOST {
            self.choose();
        }
        self.look(at, false);
    }

    /// Looks at the flows at the end, whenever they were looked at before.
    pub(super) fn sample_last(&mut self, at: Nanos) {
        self.look(at, true);
    }

    fn look(&mut self, at: Nanos, now: bool) {
        let Ok(diag) = &mut self.diag else { return };
        for flow in self.flows.iter_mut().filter(|flow| !flow.gone) {
            if !now && !flow.samples.wants(at) {
                continue;
            }
            // A socket without a file is closed, and only waits for the other end.
            match diag.one(&flow.id) {
                Ok(Some(socket)) if socket.inode != 0 => {
                    flow.first.get_or_insert(socket.info);
                    flow.last = Some(socket.info);
                    flow.samples.push(at, socket.info);
                }
                _ => flow.gone = true,
            }
        }
    }

    pub(super) fn open_connections(&self) -> Option<u64> {
        self.open
    }

    /// None without a flow that was looked at twice.
    pub(super) fn totals(&self) -> Option<Totals> {
        let mut totals = Totals::default();
        let mut any = false;
        for flow in self.flows.iter().filter(|flow| flow.samples.iter().count() > 1) {
            let Some((first, last)) = flow.first.zip(flow.last) else { continue };
            let grown = |of: fn(&TcpDetail) -> Option<u32>| {
                Some(u64::from(of(&last)?.wrapping_sub(of(&first)?)))
            };
            let (Some(all_out), Some(all_in), Some(data_out), Some(data_in)) = (
                grown(|detail| detail.segments_out),
                grown(|detail| detail.segments_in),
                grown(|detail| detail.basic.data_segments_out),
                grown(|detail| detail.data_segments_in),
            ) else {
                continue;
            };
            any = true;
            totals.data_out += data_out;
            totals.data_in += data_in.max(segments_of_bytes(&first, &last, data_in));
            totals.acks_out += all_out.saturating_sub(data_out);
            totals.acks_in += all_in.saturating_sub(data_in);
            let time = |of: fn(&TcpDetail) -> Option<u64>| {
                let passed =
                    of(&last).zip(of(&first)).map(|(last, first)| last.saturating_sub(first));
                passed.unwrap_or(0) as f64 / 1e6
            };
            totals.busy += time(|detail| detail.busy_us);
            totals.receive_window_limited += time(|detail| detail.receive_window_limited_us);
            totals.send_buffer_limited += time(|detail| detail.send_buffer_limited_us);
        }
        any.then_some(totals)
    }

    /// Round-trip times of all samples of flows that had one measured.
    pub(super) fn rtt(&self) -> Option<Spread> {
        spread(self.details().map(|detail| detail.basic.rtt_us).filter(|&rtt| rtt > 0))
    }

    /// Congestion windows of all samples of flows that sent something.
    pub(super) fn cwnd(&self) -> Option<Spread> {
        let senders =
            self.details().filter(|detail| detail.basic.data_segments_out.unwrap_or(1) > 0);
        spread(senders.map(|detail| detail.basic.cwnd))
    }

    fn details(&self) -> impl Iterator<Item = &TcpDetail> {
        self.flows.iter().flat_map(|flow| flow.samples.iter().map(|(_, detail)| detail))
    }

    pub(super) fn described(&self, begin: Nanos) -> Vec<TcpFlow> {
        self.flows.iter().filter_map(|flow| described(flow, begin)).collect()
    }
}

/// How many segments the bytes received between two looks at a flow make, where they do not fit into as
/// many as the kernel counted. It counts a packet of several segments as one where whoever made the packet
/// did not say how many they are, as the host of a virtual machine does not
/// (<https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp.h>, `tcp_segs_in`;
/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/virtio_net.h>,
/// `virtio_net_hdr_to_skb`).
fn segments_of_bytes(first: &TcpDetail, last: &TcpDetail, counted: u64) -> u64 {
    let received = |detail: &TcpDetail| detail.basic.bytes_received.unwrap_or(0);
    let bytes = received(last).saturating_sub(received(first));
    // The kernel's estimate: small segments lower it, and it never is above what this end takes.
    let segment = u64::from(first.receive_mss.max(last.receive_mss));
    if bytes <= counted * u64::from(last.advertised_mss) || segment == 0 {
        return 0;
    }
    bytes.div_ceil(segment)
}

/// An address of IPv4 that an IPv6 socket has is one of IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn described(flow: &Flow, begin: Nanos) -> Option<TcpFlow> {
    let (first, last) = flow.first.zip(flow.last)?;
    let grown = |of: fn(&TcpDetail) -> Option<u64>| {
        of(&last).unwrap_or(0).saturating_sub(of(&first).unwrap_or(0))
    };
    Some(TcpFlow {
        local: flow.id.local().to_string(),
        remote: flow.id.remote().to_string(),
        congestion_control: flow.congestion.clone(),
        bytes_acked: grown(|detail| detail.basic.bytes_acked),
        bytes_received: grown(|detail| detail.basic.bytes_received),
        retransmitted_segments: grown(|detail| Some(detail.basic.retransmits.into())),
        samples: flow.samples.iter().map(|(at, detail)| sample(*at, begin, detail)).collect(),
    })
}

fn sample(at: Nanos, begin: Nanos, detail: &TcpDetail) -> TcpSample {
    let bits = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 * 8.0);
    let milliseconds = |us: Option<u64>| us.map(|us| us as f64 / 1e3);
    // TCP_INFINITE_SSTHRESH: https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp.h#L1321
    const INFINITE: u32 = 0x7fff_ffff;
    TcpSample {
        seconds: seconds(at.saturating_sub(begin)),
        cwnd_segments: detail.basic.cwnd,
        slow_start_threshold_segments: Some(detail.slow_start_threshold)
            .filter(|&threshold| threshold < INFINITE),
        in_flight_segments: detail.unacked,
        rtt_us: detail.basic.rtt_us,
        min_rtt_us: detail.basic.min_rtt_us,
        pacing_bits_per_second: bits(detail.pacing_rate),
        delivery_bits_per_second: bits(detail.delivery_rate.filter(|&rate| rate > 0)),
        send_window_bytes: detail.send_window,
        retransmitted_segments: detail.basic.retransmits,
        congestion_state: CongestionState::of_kernel(detail.congestion_state),
        busy_ms: milliseconds(detail.busy_us),
        receive_window_limited_ms: milliseconds(detail.receive_window_limited_us),
        send_buffer_limited_ms: milliseconds(detail.send_buffer_limited_us),
    }
}

fn spread(values: impl Iterator<Item = u32>) -> Option<Spread> {
    let (mut min, mut max, mut sum, mut samples) = (u32::MAX, 0, 0.0, 0u64);
    for value in values {
        min = min.min(value);
        max = max.max(value);
        sum += f64::from(value);
        samples += 1;
    }
    (samples > 0).then(|| Spread {
        min: min.into(),
        mean: sum / samples as f64,
        max: max.into(),
        samples,
    })
}

/// Inodes of the sockets that a process holds. Its threads may have tables of descriptors of their
/// own.
fn sockets_of(pid: u32) -> BTreeSet<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeSet::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_dir(thread.path().join("fd")).ok())
        .flat_map(|descriptors| descriptors.flatten())
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .filter_map(|to| to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}
