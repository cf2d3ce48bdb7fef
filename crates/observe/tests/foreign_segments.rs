//! Packets of several segments that say how long a segment is, but not how many there are: those that
//! the host of a virtual machine hands over, as a TUN device does.
#![cfg(test)]

#[path = "../../../tests/attempts.rs"]
mod attempts;
mod two_hosts;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};

use attempts::undisturbed_machine;
use two_hosts::World;
use wirecost_linux::link::Links;
use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};
use wirecost_linux::tun::{PREFIX, Tun};
use wirecost_model::observe::{HostObservation, ObserveRequest, Part};
use wirecost_observe::Observer;

const DEVICE: &str = "tun0";
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const OTHER_PORT: u16 = 40_000;

const SEGMENT: usize = 1_000;
const SEGMENTS: usize = 20;
const PACKETS: usize = 10;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The other end of a connection, made of packets.
struct Peer {
    tun: Tun,
    port: u16,
    sequence: u32,
    acknowledged: u32,
}

impl Peer {
    /// Sends a packet, of several segments where the payload is longer than one.
    fn send(&mut self, flags: u8, payload: &[u8]) {
        let length = 40 + payload.len();
        let mut packet = vec![0u8; PREFIX];
        // The checksum is left to the device: from octet 20 on, to octet 16 of what follows.
        packet[0] = 1;
        packet[6..8].copy_from_slice(&20u16.to_ne_bytes());
        packet[8..10].copy_from_slice(&16u16.to_ne_bytes());
        if payload.len() > SEGMENT {
            packet[1] = 1; // TCP over IPv4
            packet[2..4].copy_from_slice(&40u16.to_ne_bytes());
            packet[4..6].copy_from_slice(&(SEGMENT as u16).to_ne_bytes());
        }
        let mut ip = [0u8; 20];
        (ip[0], ip[8], ip[9]) = (0x45, 64, 6);
        ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        ip[12..16].copy_from_slice(&OTHER.octets());
        ip[16..20].copy_from_slice(&KERNEL.octets());
        let sum: u32 =
            ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        let mut tcp = [0u8; 20];
        tcp[0..2].copy_from_slice(&OTHER_PORT.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.port.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledged.to_be_bytes());
        (tcp[12], tcp[13]) = (5 << 4, flags);
        tcp[14..16].copy_from_slice(&60_000u16.to_be_bytes());
        packet.extend(ip);
        packet.extend(tcp);
        packet.extend(payload);
        self.tun.send(&packet).expect("the device takes it");
        self.sequence =
            self.sequence.wrapping_add(payload.len() as u32 + u32::from(flags & SYN != 0));
    }

    /// Waits until everything is acknowledged.
    fn is_acknowledged(&mut self) {
        let mut packet = [0; 70_000];
        loop {
            let length = self.tun.receive(&mut packet).expect("a packet");
            let packet = &packet[PREFIX..length];
            // IPv6 looks for neighbours.
            if packet[0] >> 4 != 4 || packet[9] != 6 {
                continue;
            }
            let tcp = &packet[usize::from(packet[0] & 15) * 4..];
            let number =
                |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
            if tcp[13] & SYN != 0 {
                self.acknowledged = number(4).wrapping_add(1);
            }
            if number(8) == self.sequence {
                return;
            }
        }
    }
}

/// What a host sees that receives packets of several segments, by these probes.
fn observe(probes: &[&str]) -> HostObservation {
    let world = World::new();
    let (tun, listener) = world.b.run(|| {
        let tun = Tun::create(DEVICE).unwrap();
        let links = Links::here().unwrap();
        links.add_address(DEVICE, KERNEL.into(), 24).unwrap();
        links.up(DEVICE).unwrap();
        (tun, TcpListener::bind((KERNEL, 0)).unwrap())
    });
    let port = listener.local_addr().unwrap().port();
    let mut peer = Peer { tun, port, sequence: 1, acknowledged: 0 };
    peer.send(SYN, &[]);
    peer.is_acknowledged();
    peer.send(ACK, &[]);
    let (mut server, _) = listener.accept().unwrap();
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
