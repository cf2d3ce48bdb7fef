use super::{Delivery, Family, Protocol};

/// Sequenced packets of the Unix domain: messages whole, in order and without loss. How long one may be
/// depends on the buffer of the socket that sends it.
#[derive(Debug)]
pub struct UnixSeqpacket;

impl Protocol for UnixSeqpacket {
    fn name(&self) -> &'static str {
        "unix-seqpacket"
    }

    fn help(&self) -> &'static str {
        "Unix domain sequenced packets: whole messages, in order; all hosts on one machine"
    }

    fn family(&self) -> Family {
        Family::Unix
    }

    fn delivery(&self) -> Delivery {
        Delivery::Messages
    }
}
