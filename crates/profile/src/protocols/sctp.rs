use super::{Delivery, Protocol};

/// SCTP in one-to-one style (RFC 6458, section 4): all goes over stream 0, in order. One write is one
/// message or several, and a read takes what has come of one, so messages of the profile and of SCTP
/// need not be the same.
#[derive(Debug)]
pub struct Sctp;

impl Protocol for Sctp {
    fn name(&self) -> &'static str {
        "sctp"
    }

    fn help(&self) -> &'static str {
        "SCTP, one-to-one style; needs kernel module sctp"
    }

    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }
}
