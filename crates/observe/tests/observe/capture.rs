//! A small packet capture on the device of a host, that counts what it sees of TCP.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// What passed, from the host's side. A packet is taken for one segment.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub data_segments_sent: u64,
    pub data_segments_received: u64,
    pub pure_acks_sent: u64,
    pub pure_acks_received: u64,
    /// By the definition of RFC 5681, 2.
    pub duplicate_acks_received: u64,
    /// Sent with nothing that was not sent before.
    pub segments_resent: u64,
    /// Highest number sent, highest acknowledged, and the window that came with it.
    sent: Option<u32>,
    acked: Option<u32>,
    window: u16,
}

pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Capture {
    /// Of all devices of the caller's namespace.
    pub fn open(own: IpAddr) -> Self {
        let IpAddr::V4(own) = own else { panic!("IPv4 only") };
        const ETH_P_ALL: u16 = 3;
        let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).expect("a capture");
        // Nothing may be lost while the thread is not on a CPU.
        sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20).expect("room");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a limit");
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            let mut packet = vec![0; 2048];
            loop {
                // Read before the packets: what came before the order to stop is in the queue.
                let last = stopping.load(Ordering::Acquire);
                match socket.read(&mut packet) {
                    Ok(length) => seen.note(&packet[..length], own),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if last {
                            return seen;
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Self { stop, thread }
    }

    pub fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the capture ends")
    }
}

impl Seen {
    fn note(&mut self, packet: &[u8], own: Ipv4Addr) {
        const LINK: usize = 14;
        const FIN_SYN_RST: u8 = 7;
        let u16_at = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
        };
        if packet.len() < 54 || u16_at(12) != 0x0800 || packet[LINK + 9] != 6 {
            return;
        }
        let ours = Ipv4Addr::from(u32_at(LINK + 12)) == own;
        let tcp = LINK + usize::from(packet[LINK] & 15) * 4;
        let header = usize::from(packet[tcp + 12] >> 4) * 4;
        let payload = usize::from(u16_at(LINK + 2)) + LINK - tcp - header;
        let (seq, ack, flags) = (u32_at(tcp + 4), u32_at(tcp + 8), packet[tcp + 13]);
        let window = u16_at(tcp + 14);
        let bare = payload == 0 && flags & FIN_SYN_RST == 0;
        let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        match (ours, bare) {
            (true, true) => self.pure_acks_sent += 1,
            (false, true) => self.pure_acks_received += 1,
            (true, false) if payload > 0 => self.data_segments_sent += 1,
            (false, false) if payload > 0 => self.data_segments_received += 1,
            _ => {}
        }
        if ours {
            let end = seq.wrapping_add(payload as u32);
            if self.sent.is_none_or(|sent| after(end, sent)) {
                self.sent = Some(end);
            } else if payload > 0 {
                self.segments_resent += 1;
            }
        } else {
            let outstanding = self.sent.zip(self.acked).is_some_and(|(s, a)| after(s, a));
            if bare && outstanding && self.acked == Some(ack) && window == self.window {
                self.duplicate_acks_received += 1;
            }
            if self.acked.is_none_or(|acked| !after(acked, ack)) {
                self.acked = Some(ack);
                self.window = window;
            }
        }
    }
}

/// Makes a socket lose one of so many packets that come, at random, before TCP sees them.
pub fn lose_one_of(socket: &Socket, number: u32) {
    // Classic BPF: https://docs.kernel.org/networking/filter.html
    const LOAD: u16 = 0x20;
    const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RANDOM: u32 = 0xffff_f000 + 56;
    socket
        .attach_filter(&[
            SockFilter::new(LOAD, 0, 0, RANDOM),
            SockFilter::new(JUMP_IF_GREATER_OR_EQUAL, 0, 1, u32::MAX / number),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
            SockFilter::new(RETURN, 0, 0, 0),
        ])
        .expect("a filter");
}
