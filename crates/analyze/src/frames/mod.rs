//! Where the datagrams of a run went, from counters that no packet pays for: those of the programs, and those
//! that the kernel keeps of devices, queueing disciplines, IP, UDP and sockets.

mod observed;

use std::collections::BTreeSet;

use wirecost_model::clock;
use wirecost_model::frames::{
    Frames, FramesDirection, FramesInterval, FramesPlace, FramesStage, Place, Stage,
};
use wirecost_model::measure::{Edge, Snapshot};
use wirecost_model::packets::{PacketCounters, ProtocolPackets};
use wirecost_model::program::Side;

use crate::intervals;
use crate::window::{HostWindow, Span};

pub(crate) use observed::add_observed;

/// Bytes of a UDP header and of an IP header without options: RFC 768, RFC 791, RFC 8200.
const UDP_HEADER: f64 = 8.0;
const IPV4_HEADER: f64 = 20.0;
const IPV6_HEADER: f64 = 40.0;

/// With more payload than this in a packet of the mean datagram, packets are of several datagrams.
const JOINED: f64 = 1.2;

/// The headline phase of these windows. `native`: drivers hand frames to AF_XDP sockets.
pub(crate) fn of(windows: &[HostWindow<'_>], native: bool) -> Frames {
    let reason = why_no_devices(windows);
    let kernel = reason.is_none();
    let directions = [Side::Master, Side::Peer]
        .into_iter()
        .filter_map(|from| direction(windows, from, kernel, native))
        .collect();
    Frames { directions, queues: Vec::new(), cpus: Vec::new(), uncounted: Vec::new(), reason }
}

/// Why the counters of devices and namespaces cannot be told apart by host.
fn why_no_devices(windows: &[HostWindow<'_>]) -> Option<String> {
    for window in windows {
        let (host, phase) = (window.host, window.phase);
        let first = phase.snapshot(Edge::PhaseStart).and_then(|start| start.packets.as_ref());
        let Some(last) = first.and(phase.drained.as_ref()) else {
            return Some(format!("{} does not tell the counters of its kernel", host.name));
        };
        if last.devices.is_empty() {
            return Some(format!("{} has no device that leads to the others", host.name));
        }
        let of_others = windows.iter().map(|window| window.host);
        let mut others = of_others.filter(|other| other.side != host.side);
        if let Some(other) = others.find(|other| {
            other.facts.boot_id == host.facts.boot_id
                && other.network_namespace == host.network_namespace
        }) {
            return Some(format!(
                "{} and {} share their devices: use a lab, or two machines",
                host.name, other.name
            ));
        }
    }
    None
}

/// The hosts of a side, each network namespace once: hosts that share one share its counters.
struct Namespaces<'a>(Vec<&'a HostWindow<'a>>);

impl<'a> Namespaces<'a> {
    fn of(windows: &'a [HostWindow<'a>], side: Side) -> Self {
        let mut seen = BTreeSet::new();
        let of_side = windows.iter().filter(|window| window.host.side == side);
        let of_side = of_side.filter(|window| {
            let host = window.host;
            let namespace = host.network_namespace.map(|number| (&host.facts.boot_id, number));
            namespace.is_none_or(|namespace| seen.insert(namespace))
        });
        Self(of_side.collect())
    }

    /// What was counted from the beginning of the phase until nothing moved any more.
    fn phase(&self) -> Counted {
        let of = |window: &&HostWindow<'_>| {
            let start = window.phase.snapshot(Edge::PhaseStart)?.packets.as_ref()?;
            Some(window.phase.drained.as_ref()?.since(start))
        };
        Counted::sum(self.0.iter().filter_map(of))
    }

    /// Between snapshots of each host; `None` where one of them has none.
    fn between(
        &self,
        span: impl Fn(&HostWindow<'_>) -> Option<(PacketCounters, f64)>,
    ) -> Option<(Counted, f64)> {
        let each: Option<Vec<_>> = self.0.iter().map(|window| span(window)).collect();
        let each = each?;
        let seconds =
            each.iter().map(|(_, seconds)| seconds).sum::<f64>() / each.len().max(1) as f64;
        Some((Counted::sum(each.into_iter().map(|(counters, _)| counters)), seconds))
    }
}

/// Counters of the namespaces of one side.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// Devices of all.
    devices: PacketCounters,
    protocols: ProtocolPackets,
}

impl Counted {
    fn sum(all: impl Iterator<Item = PacketCounters>) -> Self {
        let mut sum = Self::default();
        for counters in all {
            sum.protocols.combine(&counters.protocols, u64::saturating_add);
            sum.devices.rx_elsewhere =
                sum.devices.rx_elsewhere.saturating_add(counters.rx_elsewhere);
            sum.devices.devices.extend(counters.devices);
        }
        sum
    }

    /// Packets that the devices sent, as datagrams.
    fn sent(&self, datagram: &Datagram) -> u64 {
        let extra = self.protocols.fragments_sent.saturating_sub(self.protocols.fragmented);
        let each = |(packets, bytes, header)| datagram.in_packets(packets, bytes, header);
        let devices = self.devices.devices.iter();
        let all = devices.map(|d| each((d.tx_packets, d.tx_bytes, d.link_header))).sum::<u64>();
        all.saturating_sub(extra)
    }

    /// Packets that they received, as datagrams: of fragments only those that became one.
    fn received(&self, datagram: &Datagram) -> u64 {
        let extra = self.protocols.fragments_received.saturating_sub(self.protocols.reassembled);
        let each = |(packets, bytes, header)| datagram.in_packets(packets, bytes, header);
        let devices = self.devices.devices.iter();
        let all = devices.map(|d| each((d.rx_packets, d.rx_bytes, d.link_header))).sum::<u64>();
        all.saturating_sub(extra)
    }

    /// Where packets were lost before the wire. What IP discards is no place of its own: it counts there what the
    /// queueing discipline or the device has told it that they dropped (`ip_send_skb` in
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/ip_output.c>).
    fn output(&self) -> Vec<FramesPlace> {
        let devices = self.devices.device_total();
        places([
            (Place::Qdisc, devices.qdisc_drops.into()),
            (Place::QdiscWaiting, devices.qdisc_waiting),
            (Place::DeviceOutput, devices.tx_dropped + devices.tx_errors),
        ])
    }

    /// Between the wire and what the device counts as received.
    fn missed(&self) -> Vec<FramesPlace> {
        let devices = self.devices.device_total();
        places([(Place::DeviceMissed, devices.rx_missed + devices.rx_errors)])
    }

    /// Between the device and the socket. A driver may count as its own what an AF_XDP socket dropped (`veth_xdp_rcv_one`
    /// in <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c>).
    fn input(&self, of_sockets: &[FramesPlace], native: bool) -> Vec<FramesPlace> {
        let protocols = &self.protocols;
        let twice = if native { at(of_sockets, Place::FrameSocket) } else { 0 };
        places([
            (Place::DeviceInput, self.devices.device_total().rx_dropped.saturating_sub(twice)),
            (Place::IpInput, protocols.ip_in_discarded),
            (Place::Reassembly, protocols.not_reassembled),
            (Place::NoPort, protocols.no_port),
            (Place::Checksum, protocols.checksum.saturating_sub(at(of_sockets, Place::Checksum))),
        ])
    }

    /// Where sockets dropped so many packets. A socket counts alike that its buffer or UDP's memory had no room, that a
    /// checksum was wrong, and that its filter refused (`udp_queue_rcv_one_skb` in
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/udp.c>).
    /// Sockets of frames count what they drop themselves.
    fn at_sockets(&self, drops: u64, frames: u64, kernel: bool) -> Vec<FramesPlace> {
        let mut rest = drops.saturating_sub(frames);
        if !kernel {
            return places([(Place::SocketBuffer, rest), (Place::FrameSocket, frames)]);
        }
        let mut take = |counted: u64| {
            let taken = counted.min(rest);
            rest -= taken;
            taken
        };
        let protocols = &self.protocols;
        let [buffer, memory, checksum] =
            [protocols.receive_buffer, protocols.memory, protocols.checksum].map(&mut take);
        places([
            (Place::SocketBuffer, buffer),
            (Place::Memory, memory),
            (Place::Checksum, checksum),
            (Place::FrameSocket, frames),
            (Place::Unexplained, rest),
        ])
    }
}

/// The datagrams that one side sends.
#[derive(Debug)]
struct Datagram {
    /// Mean payload, bytes.
    mean: f64,
    /// Of IP and UDP, bytes.
    headers: f64,
    /// Calls send several, so that the kernel may have several in a packet.
    joins: bool,
}

impl Datagram {
    fn of<'a>(
        senders: impl Iterator<Item = &'a HostWindow<'a>>,
        protocols: &ProtocolPackets,
    ) -> Self {
        let (mut bytes, mut datagrams, mut joins) = (0, 0, false);
        for window in senders {
            joins |= window.phase.io.sent_datagrams > window.phase.io.send_calls;
            let Some(Snapshot { counters, .. }) = last(window) else { continue };
            // A host connects or accepts.
            bytes += counters.bytes.tx_sent + counters.bytes.rx_sent;
            datagrams += counters.datagrams.sent;
        }
        let ipv6 = 2 * protocols.udp6_sent > protocols.udp_sent;
        Self {
            mean: bytes as f64 / datagrams.max(1) as f64,
            headers: UDP_HEADER + if ipv6 { IPV6_HEADER } else { IPV4_HEADER },
            joins,
        }
    }

    /// How many there are in packets that a device counted. With segmentation offload a packet of the kernel
    /// is several datagrams, behind one header or one each, which some devices count as one.
    fn in_packets(&self, packets: u64, bytes: u64, link_header: u32) -> u64 {
        let headers = packets as f64 * (self.headers + f64::from(link_header));
        let payload = (bytes as f64 - headers).max(0.0);
        if self.joins && self.mean >= 1.0 && payload > JOINED * self.mean * packets as f64 {
            (payload / self.mean).round() as u64
        } else {
            packets
        }
    }
}

fn places<const N: usize>(all: [(Place, u64); N]) -> Vec<FramesPlace> {
    let some = all.into_iter().filter(|(_, packets)| *packets > 0);
    some.map(|(place, packets)| FramesPlace { place, packets }).collect()
}

fn total(places: &[FramesPlace]) -> u64 {
    places.iter().fold(0, |sum, place| sum.saturating_add(place.packets))
}

fn at(places: &[FramesPlace], wanted: Place) -> u64 {
    places.iter().find(|of| of.place == wanted).map_or(0, |of| of.packets)
}

/// The snapshot with everything of the phase.
fn last<'a>(window: &HostWindow<'a>) -> Option<&'a Snapshot> {
    window.phase.snapshot(Edge::PhaseEnd).or(window.phase.snapshots.last())
}

/// `None` where nothing was sent that way.
fn direction(
    windows: &[HostWindow<'_>],
    from: Side,
    kernel: bool,
    native: bool,
) -> Option<FramesDirection> {
    let of_side = |side: Side| windows.iter().filter(move |window| window.host.side == side);
    let to = from.other();
    let in_all = |side, what: fn(&Snapshot) -> u64| -> u64 {
        of_side(side).filter_map(last).map(what).sum()
    };
    let generated = in_all(from, |end| end.counters.datagrams.sent);
    if generated == 0 {
        return None;
    }
    let read = in_all(to, |end| end.counters.datagrams.received);
    let drops: u64 = of_side(to).map(|window| window.phase.receive_buffer_drops).sum();
    let frames: u64 = of_side(to).map(|window| window.phase.io.frames_dropped).sum();
    let (senders, receivers) = (Namespaces::of(windows, from), Namespaces::of(windows, to));
    let (out, into) = (senders.phase(), receivers.phase());
    let datagram = Datagram::of(of_side(from), &out.protocols);

    let window = |span: &Span<'_>| -> Option<(PacketCounters, f64)> {
        let (start, end) = (span.start.packets.as_ref()?, span.end.packets.as_ref()?);
        let seconds = clock::seconds(end.at.saturating_sub(start.at));
        (seconds > 0.0).then(|| (end.since(start), seconds))
    };
    let rates = |spans: &[Span<'_>]| {
        let of = |side: Side| {
            windows.iter().zip(spans).filter(move |(window, _)| window.host.side == side)
        };
        let rate = |side, what: fn(&Span<'_>) -> u64| -> f64 {
            of(side).map(|(_, span)| what(span) as f64 / span.seconds().max(1e-9)).sum()
        };
        let of_window = |wanted: &HostWindow<'_>| {
            let mut both = windows.iter().zip(spans);
            both.find(|(window, _)| std::ptr::eq(window.host, wanted.host))
                .and_then(|(_, span)| window(span))
        };
        let counted = |of: &Namespaces<'_>| kernel.then(|| of.between(of_window)).flatten();
        let sent =
            counted(&senders).map(|(counted, seconds)| counted.sent(&datagram) as f64 / seconds);
        let received = counted(&receivers);
        let read = rate(to, |span| span.datagrams().received);
        Rates {
            generated: rate(from, |span| span.datagrams().sent),
            sent,
            // When AF_XDP sockets dropped frames is not known.
            reached_socket: received
                .as_ref()
                .filter(|_| frames == 0)
                .map(|(counted, seconds)| read + counted.protocols.receive_buffer as f64 / seconds),
            received: received
                .map(|(counted, seconds)| counted.received(&datagram) as f64 / seconds),
            read,
        }
    };
    let whole: Vec<Span<'_>> = windows.iter().map(|window| window.span).collect();
    let overall = rates(&whole);

    let stage = |stage, datagrams, per_second| FramesStage {
        stage,
        datagrams,
        packets: None,
        foreign: None,
        per_second,
        missing: None,
        places: Vec::new(),
        traced: None,
    };
    let mut stages = vec![stage(Stage::Generated, Some(generated), Some(overall.generated))];
    let of_sockets = into.at_sockets(drops, frames, kernel);
    let mut reached = read + drops;
    // A socket that joins datagrams drops several at a time, and counts them once.
    let joined =
        of_side(to).any(|host| host.phase.io.received_datagrams > host.phase.io.received_messages);
    if kernel {
        // More than came to it a device can only have sent for others, and what was lost for others is not missing
        // here. Of fragments and of joined datagrams drops are not datagrams.
        let in_lumps = out.protocols.fragments_sent > 0 || datagram.joins;
        let expected = match in_lumps {
            true => generated,
            false => generated.saturating_sub(total(&out.output())),
        };
        let counted = out.sent(&datagram);
        let sent = counted.min(expected).max(reached.min(generated).min(counted));
        let missing = generated - sent;
        stages.push(FramesStage {
            packets: Some(out.devices.device_total().tx_packets),
            foreign: Some(counted - sent),
            missing: Some(missing as i64),
            places: explained(out.output(), missing, in_lumps),
            ..stage(Stage::Sent, Some(sent), overall.sent)
        });

        // So much of what the device received is known to be of others, as far as it did not come by other
        // devices. More than was sent is of others too, unless it came to the sockets.
        let counted = into.received(&datagram);
        let others = (into.protocols.other_received
            + into.protocols.udp_received.saturating_sub(read))
        .saturating_sub(into.devices.rx_elsewhere);
        let input = into.input(&of_sockets, native);
        let further = reached + total(&input);
        let own = counted.saturating_sub(others).max(further).min(sent);
        let received = own.max(reached).min(counted);
        stages.push(FramesStage {
            packets: Some(into.devices.device_total().rx_packets),
            foreign: Some(counted - received),
            missing: Some(sent as i64 - received as i64),
            places: into.missed(),
            ..stage(Stage::Received, Some(received), overall.received)
        });

        if joined {
            reached = reached.max(received.saturating_sub(total(&input)));
        }
        let missing = received as i64 - reached as i64;
        let in_lumps = into.protocols.fragments_received > 0;
        stages.push(FramesStage {
            missing: Some(missing),
            places: explained(input, u64::try_from(missing).unwrap_or(0), in_lumps),
            ..stage(Stage::ReachedSocket, Some(reached), overall.reached_socket)
        });
    }
    // What sockets dropped is known of each of them, also where nothing tells devices and namespaces apart.
    let of_sockets_only = !kernel && !joined;
    if of_sockets_only {
        let missing = generated as i64 - reached as i64;
        stages.push(FramesStage {
            missing: Some(missing),
            places: explained(Vec::new(), u64::try_from(missing).unwrap_or(0), false),
            ..stage(Stage::ReachedSocket, Some(reached), None)
        });
    }
    stages.push(FramesStage {
        missing: (kernel || of_sockets_only).then(|| reached as i64 - read as i64),
        places: of_sockets,
        ..stage(Stage::Read, Some(read), Some(overall.read))
    });

    let mut intervals = Vec::new();
    for spans in intervals::spans(windows) {
        let rates = rates(&spans);
        let (mut start, mut seconds) = (0.0, 0.0);
        for (span, window) in spans.iter().zip(windows) {
            start += clock::seconds(span.start.at.saturating_sub(window.span.start.at));
            seconds += span.seconds();
        }
        let hosts = spans.len().max(1) as f64;
        intervals.push(FramesInterval {
            start: start / hosts,
            seconds: seconds / hosts,
            generated: rates.generated,
            sent: rates.sent,
            received: rates.received,
            reached_socket: rates.reached_socket,
            read: rates.read,
            in_flight: in_flight(windows, &spans, from, kernel.then_some((&senders, &receivers))),
        });
    }
    Some(FramesDirection { from, stages, intervals })
}

/// Datagrams per second.
struct Rates {
    generated: f64,
    sent: Option<f64>,
    received: Option<f64>,
    reached_socket: Option<f64>,
    read: f64,
}

/// At the end of these spans.
fn in_flight(
    windows: &[HostWindow<'_>],
    spans: &[Span<'_>],
    from: Side,
    namespaces: Option<(&Namespaces<'_>, &Namespaces<'_>)>,
) -> i64 {
    let mut balance = 0i64;
    for (window, span) in windows.iter().zip(spans) {
        let datagrams = &span.end.counters.datagrams;
        match window.host.side == from {
            true => balance += datagrams.sent as i64,
            false => balance -= datagrams.received as i64,
        }
        let Some((senders, receivers)) = namespaces else { continue };
        let Some(counted) = window
            .phase
            .snapshot(Edge::PhaseStart)
            .and_then(|start| Some(span.end.packets.as_ref()?.since(start.packets.as_ref()?)))
        else {
            continue;
        };
        let counted = Counted::sum(std::iter::once(counted));
        let is_in =
            |of: &Namespaces<'_>| of.0.iter().any(|own| std::ptr::eq(own.host, window.host));
        if is_in(senders) {
            let waiting = counted.devices.device_total().qdisc_waiting;
            balance -= total(&counted.output()).saturating_sub(waiting) as i64;
        } else if is_in(receivers) {
            let missed = total(&counted.missed()) + counted.protocols.receive_buffer;
            balance -=
                (total(&counted.input(&[], false)) + missed + counted.protocols.memory) as i64;
        }
    }
    balance
}

/// Where missing datagrams were lost, and what no counter has of them. Counters have losses of others too, so they explain
/// no more than is missing. Of fragments and of joined datagrams nobody knows how many datagrams they are.
fn explained(places: Vec<FramesPlace>, missing: u64, in_lumps: bool) -> Vec<FramesPlace> {
    if in_lumps && missing > 0 && !places.is_empty() {
        return places;
    }
    let mut rest = missing;
    let mut explained = Vec::new();
    for FramesPlace { place, packets } in places {
        let packets = packets.min(rest);
        rest -= packets;
        explained.push(FramesPlace { place, packets });
    }
    explained.push(FramesPlace { place: Place::Unexplained, packets: rest });
    explained.retain(|place| place.packets > 0);
    explained
}

#[cfg(test)]
mod tests;
