use super::{Delivery, Family, Protocol};

/// Stream sockets of the Unix domain, between hosts on one machine.
#[derive(Debug)]
pub struct Unix;

impl Protocol for Unix {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn help(&self) -> &'static str {
        "Unix domain stream sockets; all hosts on one machine"
    }

    fn family(&self) -> Family {
        Family::Unix
    }

    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }
}
