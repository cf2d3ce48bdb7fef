//! How many queues a device has.

use std::io;

use crate::ethtool::Ethtool;

/// Queues in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    pub receive: u32,
    pub transmit: u32,
}

impl Queues {
    /// Queues that both send and receive: what is sent by an AF_XDP socket of another one vanishes.
    pub fn both(self) -> u32 {
        self.receive.min(self.transmit)
    }
}

/// Queues of a device of the calling thread's network namespace; `None` where its driver does not tell them.
///
/// # Errors
/// Those of the ioctl.
pub fn queues(device: &str) -> io::Result<Option<Queues>> {
    let channels = match Ethtool::open()?.channels(device) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
        channels => channels?,
    };
    Ok(Some(Queues {
        receive: channels.rx + channels.combined,
        transmit: channels.tx + channels.combined,
    }))
}
