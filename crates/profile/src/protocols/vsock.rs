use super::{Delivery, Family, Protocol};

/// Streams between a virtual machine and its host, or within a machine by the kernel's loopback.
/// Hosts find each other's numbers by themselves; only the data goes this way.
#[derive(Debug)]
pub struct Vsock;

impl Protocol for Vsock {
    fn name(&self) -> &'static str {
        "vsock"
    }

    fn help(&self) -> &'static str {
        "between a virtual machine and its host (needs modules vsock, vhost_vsock), or on one \
         machine (needs module vsock_loopback)"
    }

    fn family(&self) -> Family {
        Family::Vsock
    }

    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }
}
