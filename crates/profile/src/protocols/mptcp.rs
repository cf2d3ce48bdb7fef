use super::{Delivery, Protocol};

/// Multipath TCP (RFC 8684). How many paths there are is for the kernel's path manager to say
/// (`ip mptcp endpoint`); without one there is a single subflow.
#[derive(Debug)]
pub struct Mptcp;

impl Protocol for Mptcp {
    fn name(&self) -> &'static str {
        "mptcp"
    }

    fn help(&self) -> &'static str {
        "Multipath TCP; needs kernel 5.6 with CONFIG_MPTCP, and net.mptcp.enabled=1"
    }

    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }

    fn has_tcp_info(&self) -> bool {
        true
    }
}
