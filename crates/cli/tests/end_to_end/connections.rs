//! TCP_INFO of all connections of the caller's network namespace, from the kernel's own list
//! (sock_diag(7)), for counters that owe nothing to the program under test.

use std::io::Read;

use socket2::{Domain, Protocol, Socket, Type};

const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const ESTABLISHED: u32 = 1 << 1;
/// `struct inet_diag_msg`.
const DIAG_LENGTH: usize = 72;
/// In `struct tcp_info`.
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;

/// Sums over all established connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    pub(crate) acked: u64,
    pub(crate) received: u64,
}

/// Of IPv4.
pub(crate) fn established() -> Totals {
    let netlink = Domain::from(AF_NETLINK);
    let socket =
        Socket::new(netlink, Type::DGRAM, Some(Protocol::from(NETLINK_SOCK_DIAG))).unwrap();
    let mut request = Vec::new();
    request.extend(72u32.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    // AF_INET, IPPROTO_TCP, which attributes, padding.
    request.extend([2, 6, 1 << (INET_DIAG_INFO - 1), 0]);
    request.extend(ESTABLISHED.to_ne_bytes());
    // Any addresses and ports.
    request.extend([0; 48]);
    socket.send(&request).unwrap();
    let mut totals = Totals::default();
    let mut answer = vec![0; 1 << 16];
    loop {
        let got = (&socket).read(&mut answer).unwrap();
        if read(&answer[..got], &mut totals) {
            return totals;
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Adds up the messages of one answer. Returns whether that was the last.
fn read(mut answer: &[u8], totals: &mut Totals) -> bool {
    while answer.len() >= 16 {
        let length = u32::from_ne_bytes(answer[..4].try_into().unwrap()) as usize;
        match u16_at(answer, 4) {
            NLMSG_DONE => return true,
            NLMSG_ERROR => panic!("the kernel refuses sock_diag"),
            _ => totals.add(&answer[16..length]),
        }
        answer = &answer[length.next_multiple_of(4).min(answer.len())..];
    }
    false
}

impl Totals {
    fn add(&mut self, message: &[u8]) {
        let mut attributes = &message[DIAG_LENGTH..];
        while attributes.len() >= 4 {
            let length = usize::from(u16_at(attributes, 0));
            if u16_at(attributes, 2) == INET_DIAG_INFO {
                let info = &attributes[4..length];
                self.connections += 1;
                self.acked += u64_at(info, BYTES_ACKED);
                self.received += u64_at(info, BYTES_RECEIVED);
            }
            attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
        }
    }
}
