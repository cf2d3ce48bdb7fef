use super::{Delivery, Protocol};

/// TLS 1.3 over TCP. The handshake is part of opening a connection; how a connection ends is TCP's
/// affair (no close_notify), as both ends know what is to come.
#[derive(Debug)]
pub struct Tls;

impl Protocol for Tls {
    fn name(&self) -> &'static str {
        "tls"
    }

    fn help(&self) -> &'static str {
        "TLS 1.3 over TCP, with a certificate per run; ktls needs kernel module tls"
    }

    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }

    fn is_secure(&self) -> bool {
        true
    }

    fn has_tcp_info(&self) -> bool {
        true
    }
}
