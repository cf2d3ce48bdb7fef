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
    /// Request and response of `size` each, one datagram each way.
    UdpRr,
    /// Files of `size` for a small request each, with keep-alive.
    Http,
}

/// Placement of the two ends on CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Both ends on all CPUs, placed by scheduler and programs.
    Shared,
    /// Each end on its own CPU, so that data passes between CPUs, as between hosts.
    Apart,
    /// Both ends on one CPU, where data is still in the cache when it is read.
    OneCpu,
}

/// A CPU for each end; none for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cpus {
    pub(crate) client: Option<u32>,
    pub(crate) server: Option<u32>,
}

impl Placement {
    /// Allowed CPUs, as `wirecost run` assigns them to two hosts of a machine; none if there are too
    /// few.
    pub(crate) fn cpus(self, allowed: &[u32]) -> Option<Cpus> {
        let first = allowed.first().copied();
        match self {
            Placement::Shared => Some(Cpus::default()),
            Placement::OneCpu => first.map(|_| Cpus { client: first, server: first }),
            Placement::Apart if allowed.len() < 2 => None,
            Placement::Apart => {
                Some(Cpus { client: first, server: allowed.get(allowed.len() / 2).copied() })
            }
        }
    }
}

/// One set of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) kind: Kind,
    pub(crate) connections: u32,
    /// Bytes of one write, request, response, datagram or file.
    pub(crate) size: u32,
    pub(crate) placement: Placement,
    /// Whether `make bench` includes it, which takes a quarter of an hour.
    pub(crate) quick: bool,
}

const fn quick(kind: Kind, connections: u32, size: u32) -> Point {
    Point { kind, connections, size, placement: Placement::Shared, quick: true }
}

const fn full(kind: Kind, connections: u32, size: u32) -> Point {
    Point { quick: false, ..quick(kind, connections, size) }
}

/// Placement of a point with one connection: the scheduler would place contenders differently.
const fn apart(point: Point) -> Point {
    Point { placement: Placement::Apart, ..point }
}

const fn one_cpu(point: Point) -> Point {
    Point { placement: Placement::OneCpu, ..point }
}

/// Requests and responses, bytes.
const SMALL: u32 = 64;

pub(crate) static ALL: &[Point] = &[
    apart(full(Kind::Stream, 1, 1024)),
    one_cpu(full(Kind::Stream, 1, 1024)),
    apart(full(Kind::Stream, 1, 8192)),
    one_cpu(full(Kind::Stream, 1, 8192)),
    apart(quick(Kind::Stream, 1, 65536)),
    one_cpu(full(Kind::Stream, 1, 65536)),
    quick(Kind::Stream, 32, 1024),
    full(Kind::Stream, 32, 8192),
    full(Kind::Stream, 32, 65536),
    full(Kind::Stream, 1000, 1024),
    quick(Kind::Stream, 1000, 8192),
    full(Kind::Stream, 1000, 65536),
    quick(Kind::Stream, 6000, 1024),
    full(Kind::Stream, 6000, 8192),
    full(Kind::Stream, 6000, 65536),
    apart(quick(Kind::Rr, 1, SMALL)),
    one_cpu(full(Kind::Rr, 1, SMALL)),
    quick(Kind::Rr, 32, SMALL),
    full(Kind::Rr, 1000, SMALL),
    apart(full(Kind::Crr, 1, SMALL)),
    one_cpu(full(Kind::Crr, 1, SMALL)),
    quick(Kind::Crr, 32, SMALL),
    full(Kind::Crr, 1000, SMALL),
    apart(full(Kind::Udp, 1, 64)),
    one_cpu(full(Kind::Udp, 1, 64)),
    apart(quick(Kind::Udp, 1, 1400)),
    one_cpu(full(Kind::Udp, 1, 1400)),
    full(Kind::Udp, 32, 1400),
    apart(full(Kind::UdpRr, 1, SMALL)),
    one_cpu(full(Kind::UdpRr, 1, SMALL)),
    quick(Kind::UdpRr, 32, SMALL),
    full(Kind::Http, 32, 65536),
    full(Kind::Http, 1000, 65536),
];

impl Point {
    /// Name for `--points`: `stream-32x1k`, `rr-1000`, `rr-1-one-cpu`.
    pub(crate) fn name(&self) -> String {
        let connections = self.connections;
        let size = binary(u64::from(self.size));
        let name = match self.kind {
            Kind::Stream => format!("stream-{connections}x{size}"),
            Kind::Rr => format!("rr-{connections}"),
            Kind::Crr => format!("crr-{connections}"),
            Kind::Udp => format!("udp-{connections}x{size}"),
            Kind::UdpRr => format!("udp-rr-{connections}"),
            Kind::Http => format!("http-{connections}"),
        };
        match self.placement {
            Placement::Shared | Placement::Apart => name,
            Placement::OneCpu => format!("{name}-one-cpu"),
        }
    }

    /// One-line description.
    pub(crate) fn title(&self) -> String {
        let size = binary(u64::from(self.size));
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            many => format!("{many} connections"),
        };
        let title = match self.kind {
            Kind::Stream => format!("stream, {connections}, writes of {size}"),
            Kind::Rr => format!("request and response of {size}, {connections}"),
            Kind::Crr => {
                format!("a connection for each request and response, {connections} at a time")
            }
            Kind::Udp => format!("datagrams of {size}, {connections}, one call each"),
            Kind::UdpRr => format!("request and response datagrams of {size}, {connections}"),
            Kind::Http => format!("files of {size} with keep-alive, {connections}"),
        };
        match self.placement {
            Placement::Shared => title,
            Placement::Apart => format!("{title}, a CPU for each end"),
            Placement::OneCpu => format!("{title}, both ends on one CPU"),
        }
    }

    /// Whether its work is bytes per second; otherwise transactions or connections per second.
    pub(crate) fn is_bulk(&self) -> bool {
        matches!(self.kind, Kind::Stream | Kind::Udp | Kind::Http)
    }

    /// Whether its messages are datagrams.
    pub(crate) fn is_datagrams(&self) -> bool {
        matches!(self.kind, Kind::Udp | Kind::UdpRr)
    }

    /// Number of connections during the run; none if they open and close.
    pub(crate) fn stays_open(&self) -> Option<u32> {
        match self.kind {
            Kind::Stream | Kind::Rr | Kind::Http => Some(self.connections),
            Kind::Crr | Kind::Udp | Kind::UdpRr => None,
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
    fn names_of_points_are_unique() {
        let names: BTreeSet<String> = ALL.iter().map(Point::name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.contains("stream-6000x8k") && names.contains("udp-1x1400"));
        assert!(names.contains("rr-1-one-cpu"));
    }

    #[test]
    fn a_single_connection_is_placed_in_both_ways() {
        for point in ALL.iter().filter(|point| point.connections == 1) {
            let other = match point.placement {
                Placement::Apart => Placement::OneCpu,
                Placement::OneCpu => Placement::Apart,
                Placement::Shared => panic!("{} is placed by nobody", point.name()),
            };
            let is_other =
                |of: &&Point| Point { placement: other, quick: of.quick, ..*point } == **of;
            assert_eq!(ALL.iter().filter(is_other).count(), 1, "{}", point.name());
        }
    }

    #[test]
    fn the_ends_are_apart_where_there_are_two_cpus() {
        let of = |placement: Placement, allowed: &[u32]| {
            placement.cpus(allowed).map(|cpus| (cpus.client, cpus.server))
        };
        assert_eq!(of(Placement::Apart, &[0, 1]), Some((Some(0), Some(1))));
        assert_eq!(of(Placement::Apart, &[2, 3, 6, 7]), Some((Some(2), Some(6))));
        assert_eq!(of(Placement::Apart, &[5]), None);
        assert_eq!(of(Placement::OneCpu, &[5, 6]), Some((Some(5), Some(5))));
        assert_eq!(of(Placement::Shared, &[5]), Some((None, None)));
    }

    #[test]
    fn the_quick_matrix_has_every_compared_kind() {
        let kinds = |quick: bool| -> BTreeSet<Kind> {
            ALL.iter().filter(|point| point.quick || !quick).map(|point| point.kind).collect()
        };
        let shown_only = BTreeSet::from([Kind::Http]);
        assert_eq!(kinds(true), &kinds(false) - &shown_only);
    }
}
