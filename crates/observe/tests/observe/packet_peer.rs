//! The other end of TCP connections, made of packets that a TUN device hands to a host: those of several
//! segments say how long a segment is, but not how many there are.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};
use wirecost_linux::link::Links;
use wirecost_linux::tun::{PREFIX, Tun};

use crate::two_hosts::Host;

pub const DEVICE: &str = "tun0";
pub const SEGMENT: usize = 1_000;

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const OTHER_PORT: u16 = 40_000;

pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The other end of a connection, made of packets.
pub struct Peer {
    tun: Tun,
    port: u16,
    /// Its own port.
    pub from: u16,
    pub sequence: u32,
    acknowledged: u32,
}

impl Peer {
    /// Behind a device of the host, without a connection to this port of it.
    pub fn behind(host: &Host, port: u16) -> Self {
        let tun = host.run(|| {
            let tun = Tun::create(DEVICE).expect("a device");
            let links = Links::here().expect("a socket");
            links.add_address(DEVICE, KERNEL.into(), 24).expect("an address");
            links.up(DEVICE).expect("it goes up");
            tun
        });
        Self { tun, port, from: OTHER_PORT, sequence: 1, acknowledged: 0 }
    }

    /// Connected to the host, and the host's end.
    pub fn connect(host: &Host) -> (Self, TcpStream) {
        let (peer, listener) = Self::queued(host, 128);
        let (server, _) = listener.accept().expect("the connection");
        (peer, server)
    }

    /// Connected to the host, where the connection waits to be accepted in a queue with room for so many more.
    pub fn queued(host: &Host, backlog: i32) -> (Self, TcpListener) {
        let mut peer = Self::behind(host, 0);
        let listener: TcpListener = host.run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.bind(&SocketAddr::from((KERNEL, 0)).into()).expect("a port");
            socket.listen(backlog).expect("listens");
            socket.into()
        });
        peer.port = listener.local_addr().expect("an address").port();
        peer.send(SYN, &[]);
        peer.is_acknowledged();
        peer.send(ACK, &[]);
        (peer, listener)
    }

    /// Sends a packet, of several segments where the payload is longer than one.
    pub fn send(&mut self, flags: u8, payload: &[u8]) {
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
        tcp[0..2].copy_from_slice(&self.from.to_be_bytes());
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
    pub fn is_acknowledged(&mut self) {
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
