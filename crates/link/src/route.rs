//! Where a frame goes.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::frame;

/// Where frames of a device go, by their destination: a line, and the device at its end.
#[derive(Debug, Default)]
pub(crate) struct Router {
    devices: HashMap<IpAddr, usize>,
    /// The line between two devices.
    lines: HashMap<(usize, usize), usize>,
}

impl Router {
    /// `addresses` are those of each device.
    pub(crate) fn new(addresses: &[Vec<IpAddr>], lines: HashMap<(usize, usize), usize>) -> Self {
        let of_device = |(device, addresses): (usize, &Vec<IpAddr>)| {
            addresses.iter().map(|address| (*address, device)).collect::<Vec<_>>()
        };
        Self { devices: addresses.iter().enumerate().flat_map(of_device).collect(), lines }
    }

    /// Line and device of a frame; none for a destination that no host has, such as multicast.
    pub(crate) fn route(&self, input: usize, bytes: &[u8]) -> Option<(usize, usize)> {
        let destination = match *frame::destination(bytes)? {
            [a, b, c, d] => IpAddr::from([a, b, c, d]),
            ref long => IpAddr::from(<[u8; 16]>::try_from(long).ok()?),
        };
        let output = *self.devices.get(&destination)?;
        Some((*self.lines.get(&(input, output))?, output))
    }
}
