//! qperf: one process at each end, one connection.

use super::number;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Qperf;

impl Contender for Qperf {
    fn name(&self) -> &str {
        "qperf"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["qperf"]
    }

    fn version(&self) -> Line {
        Line::of("qperf --version")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        let test = match kind {
            Kind::Stream => "tcp_bw",
            Kind::Udp => "udp_bw",
            Kind::Rr => "tcp_lat",
            Kind::UdpRr => "udp_lat",
            Kind::Crr | Kind::Http => return Err(PlanError::NoSuchTest),
        };
        if connections > 1 {
            return Err(PlanError::Limit("one connection"));
        }
        Ok(plan(ask.port, test, &format!("-m {size} -t {}", ask.seconds)))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        let rate = match point.kind {
            Kind::Stream => number(written, "bw"),
            Kind::Udp => number(written, "recv_bw"),
            _ => round_trip(written).map(|microseconds| 1e6 / microseconds),
        };
        rate.map(ToolFigures::rate)
    }
}

/// Units are bytes and nanoseconds (-uu), with six digits (-e 6).
pub(crate) fn plan(port: u16, test: &str, options: &str) -> Plan {
    Plan {
        server: Some((Line::of(&format!("qperf -lp {port}")), Port::Tcp(port))),
        client: Line::of(&format!(
            "qperf 127.0.0.1 -lp {port} -ip {} {options} -uu -e 6 {test}",
            port + 1
        )),
    }
}

/// Received bytes per second.
pub(crate) fn received(written: &str) -> Result<f64, String> {
    number(written, "recv_bw").or_else(|_| number(written, "bw"))
}

/// Mean round trip, microseconds; what it writes is half of it.
pub(crate) fn round_trip(written: &str) -> Result<f64, String> {
    Ok(number(written, "latency")? / 500.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_is_parsed() {
        let of = |text: &str| received(text).unwrap();
        assert_eq!(of(include_str!("fixtures/qperf-tcp_bw.txt")), 2_648_244_224.0);
        assert_eq!(of(include_str!("fixtures/qperf-udp_bw.txt")), 223_628_864.0);
        let of = |text: &str| round_trip(text).unwrap();
        assert_eq!(of(include_str!("fixtures/qperf-tcp_lat.txt")), 1819.27 / 500.0);
        assert_eq!(of(include_str!("fixtures/qperf-udp_lat.txt")), 1547.17 / 500.0);
        assert!(round_trip("failed to connect").is_err());
    }
}
