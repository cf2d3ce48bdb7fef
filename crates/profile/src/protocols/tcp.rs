use super::{Delivery, Protocol};

#[derive(Debug)]
pub struct Tcp;

impl Protocol for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn help(&self) -> &'static str {
        "TCP"
    }

    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }

    fn has_tcp_info(&self) -> bool {
        true
    }
}
