//! Where a frame goes.

use std::collections::HashMap;
use std::net::IpAddr;

use wirecost_model::link::LinkSpec;

use crate::frame;

/// Where frames of a device go, by their destination.
#[derive(Debug, Default)]
pub(crate) struct Router {
    devices: HashMap<IpAddr, usize>,
    /// The line between two devices.
    lines: HashMap<(usize, usize), usize>,
    /// How long frames from and to each device take beside the line, nanoseconds.
    approaches: Vec<u64>,
}

/// The way of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) line: usize,
    /// The device at the end of the line.
    pub(crate) output: usize,
    /// Nanoseconds until it arrives at the line.
    pub(crate) approach: u64,
}

impl Router {
    /// `addresses` are those of each device.
    pub(crate) fn new(
        addresses: &[Vec<IpAddr>],
        lines: HashMap<(usize, usize), usize>,
        link: &LinkSpec,
    ) -> Self {
        let of_device = |(device, addresses): (usize, &Vec<IpAddr>)| {
            addresses.iter().map(|address| (*address, device)).collect::<Vec<_>>()
        };
        let approach = |host: usize| link.approach_nanoseconds(host as u16);
        Self {
            devices: addresses.iter().enumerate().flat_map(of_device).collect(),
            lines,
            approaches: (1..=addresses.len()).map(approach).collect(),
        }
    }

    /// The way of a frame; none for a destination that no host has, such as multicast.
    pub(crate) fn route(&self, input: usize, bytes: &[u8]) -> Option<Route> {
        let destination = match *frame::destination(bytes)? {
            [a, b, c, d] => IpAddr::from([a, b, c, d]),
            ref long => IpAddr::from(<[u8; 16]>::try_from(long).ok()?),
        };
        let output = *self.devices.get(&destination)?;
        let line = *self.lines.get(&(input, output))?;
        Some(Route { line, output, approach: self.approaches[input] + self.approaches[output] })
    }
}
