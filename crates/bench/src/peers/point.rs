//! What is compared: the points of the matrix.

use wirecost_model::units::binary;

/// The shape of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Bulk data over TCP, one write call per write of `size`.
    Stream,
    /// Request and response of `size` each over open TCP connections.
    Rr,
    /// The same with a new connection for each.
    Crr,
    /// Datagrams of `size`, one call each.
    Udp,
    /// Files of `size` for a small request each, with keep-alive.
    Http,
}

/// One set of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) kind: Kind,
    pub(crate) connections: u32,
    /// Bytes of one write, request, response, datagram or file.
    pub(crate) size: u32,
    /// Whether `make bench` takes it, which has a quarter of an hour.
    pub(crate) quick: bool,
}

const fn quick(kind: Kind, connections: u32, size: u32) -> Point {
    Point { kind, connections, size, quick: true }
}

const fn full(kind: Kind, connections: u32, size: u32) -> Point {
    Point { kind, connections, size, quick: false }
}

/// Requests and responses, bytes.
const SMALL: u32 = 64;

pub(crate) static ALL: &[Point] = &[
    full(Kind::Stream, 1, 1024),
    full(Kind::Stream, 1, 8192),
    quick(Kind::Stream, 1, 65536),
    quick(Kind::Stream, 32, 1024),
    full(Kind::Stream, 32, 8192),
    full(Kind::Stream, 32, 65536),
    full(Kind::Stream, 1000, 1024),
    quick(Kind::Stream, 1000, 8192),
    full(Kind::Stream, 1000, 65536),
    quick(Kind::Stream, 6000, 1024),
    full(Kind::Stream, 6000, 8192),
    full(Kind::Stream, 6000, 65536),
    quick(Kind::Rr, 1, SMALL),
    quick(Kind::Rr, 32, SMALL),
    full(Kind::Rr, 1000, SMALL),
    full(Kind::Crr, 1, SMALL),
    quick(Kind::Crr, 32, SMALL),
    full(Kind::Crr, 1000, SMALL),
    full(Kind::Udp, 1, 64),
    quick(Kind::Udp, 1, 1400),
    full(Kind::Udp, 32, 1400),
    quick(Kind::Http, 32, 65536),
    full(Kind::Http, 1000, 65536),
];

impl Point {
    /// As `--points` matches it: `stream-32x1k`, `rr-1000`.
    pub(crate) fn name(&self) -> String {
        let connections = self.connections;
        let size = binary(u64::from(self.size));
        match self.kind {
            Kind::Stream => format!("stream-{connections}x{size}"),
            Kind::Rr => format!("rr-{connections}"),
            Kind::Crr => format!("crr-{connections}"),
            Kind::Udp => format!("udp-{connections}x{size}"),
            Kind::Http => format!("http-{connections}"),
        }
    }

    /// One line for a person.
    pub(crate) fn title(&self) -> String {
        let size = binary(u64::from(self.size));
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            many => format!("{many} connections"),
        };
        match self.kind {
            Kind::Stream => format!("stream, {connections}, writes of {size}"),
            Kind::Rr => format!("request and response of {size}, {connections}"),
            Kind::Crr => {
                format!("a connection for each request and response, {connections} at a time")
            }
            Kind::Udp => format!("datagrams of {size}, {connections}, one call each"),
            Kind::Http => format!("files of {size} with keep-alive, {connections}"),
        }
    }

    /// Whether its merit is bytes a second; otherwise it is transactions or connections a second.
    pub(crate) fn is_bulk(&self) -> bool {
        matches!(self.kind, Kind::Stream | Kind::Udp | Kind::Http)
    }

    /// Connections that are there while it runs; none where they come and go.
    pub(crate) fn stays_open(&self) -> Option<u32> {
        match self.kind {
            Kind::Stream | Kind::Rr | Kind::Http => Some(self.connections),
            Kind::Crr | Kind::Udp => None,
        }
    }

    /// Seconds that a client whose clock runs from its first connection needs for the others.
    pub(crate) fn seconds_to_connect(&self) -> u32 {
        self.connections / 1000
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_tell_points_apart() {
        let names: BTreeSet<String> = ALL.iter().map(Point::name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.contains("stream-6000x8k") && names.contains("udp-1x1400"));
    }

    #[test]
    fn the_quick_matrix_has_each_kind() {
        let kinds = |quick: bool| -> BTreeSet<Kind> {
            ALL.iter().filter(|point| point.quick || !quick).map(|point| point.kind).collect()
        };
        assert_eq!(kinds(true), kinds(false));
    }
}
