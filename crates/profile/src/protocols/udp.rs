use super::{Delivery, Protocol};

/// Datagrams. An accepted "connection" is a socket of its own, bound to the port of its listener
/// and connected to the one peer: the kernel hands a datagram to the socket that matches it best.
#[derive(Debug)]
pub struct Udp;

impl Protocol for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn help(&self) -> &'static str {
        "UDP; lost datagrams are counted, not retransmitted"
    }

    fn delivery(&self) -> Delivery {
        Delivery::Datagrams
    }

    fn longest_message(&self) -> Option<u64> {
        // What an IPv4 packet of 65,535 bytes has room for after both headers.
        Some(65_507)
    }
}
