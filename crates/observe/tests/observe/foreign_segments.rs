//! Packets of several segments that say how long a segment is, but not how many there are: those that
//! the host of a virtual machine hands over, as a TUN device does.

use std::io::Read;

use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};
use wirecost_model::observe::{HostObservation, ObserveRequest, Part};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;
use crate::packet_peer::{ACK, DEVICE, Peer, RST, SEGMENT};
use crate::two_hosts::World;

const SEGMENTS: usize = 20;
const PACKETS: usize = 10;

/// What a host sees that receives packets of several segments, by these probes.
fn observe(probes: &[&str]) -> HostObservation {
    let world = World::new();
    let (mut peer, mut server) = Peer::connect(&world.b);
    let part = Part { device: Some(DEVICE.to_owned()), ..world.b.part("b") };
    let probes = probes.iter().map(|&name| name.to_owned()).collect();
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![part] });
    observer.attach();
    observer.begin();
    let mut buffer = [0; SEGMENT * SEGMENTS];
    for _ in 0..PACKETS {
        peer.send(ACK, &[7; SEGMENT * SEGMENTS]);
        server.read_exact(&mut buffer).unwrap();
        peer.is_acknowledged();
    }
    observer.end();
    observer.detach();
    peer.send(RST, &[]);
    observer.take().parts.remove(0)
}

#[test]
fn segments_are_counted_by_their_size_where_their_number_is_unknown() {
    const NAME: &str = "segments_are_counted_by_their_size_where_their_number_is_unknown";
    if skip_without_namespaces(NAME) || skip_without_tracing(NAME) {
        return;
    }
    undisturbed_machine(|| {
        let seen = observe(&["segments", "tcp"]);
        let received = seen.segments.as_ref().unwrap().devices[0].received.as_ref().unwrap();
        assert_eq!(received.packets, PACKETS as u64, "{received:?}");
        assert_eq!(received.segments, (PACKETS * SEGMENTS) as u64, "{received:?}");
        let data = seen.tcp.as_ref().unwrap().acks_sent.data_segments;
        assert_eq!(data, Some((PACKETS * SEGMENTS) as u64));
    });
}

/// TCP_INFO counts such a packet as one segment.
#[test]
fn segments_are_counted_by_their_size_without_bpf_too() {
    const NAME: &str = "segments_are_counted_by_their_size_without_bpf_too";
    if skip_without_namespaces(NAME) {
        return;
    }
    undisturbed_machine(|| {
        let acks = observe(&["tcp:basic"]).tcp.unwrap().acks_sent;
        assert_eq!(acks.source.as_deref(), Some("tcp-info"));
        assert_eq!(acks.data_segments, Some((PACKETS * SEGMENTS) as u64), "{acks:?}");
        assert!(acks.pure_acks.is_some_and(|acks| acks > 0), "{acks:?}");
    });
}
