//! neper, where it is installed (Debian does not package it): an epoll loop on each CPU, a program
//! for each test.

use super::number;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Neper;

pub(crate) const PROGRAMS: &[&str] = &["tcp_stream", "tcp_rr", "tcp_crr", "udp_stream", "udp_rr"];

impl Contender for Neper {
    fn name(&self) -> &str {
        "neper"
    }

    fn programs(&self) -> &'static [&'static str] {
        PROGRAMS
    }

    fn version(&self) -> Line {
        Line::of("tcp_stream --nolog --version")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        let (test, options) = match kind {
            Kind::Stream => ("tcp_stream", format!("-B {size}")),
            Kind::Udp => ("udp_stream", format!("-B {size}")),
            Kind::Rr => ("tcp_rr", format!("-Q {size} -R {size} -p 50,99")),
            Kind::UdpRr => ("udp_rr", format!("-Q {size} -R {size} -p 50,99")),
            Kind::Crr => ("tcp_crr", format!("-Q {size} -R {size} -p 50,99")),
            Kind::Http => return Err(PlanError::NoSuchTest),
        };
        Ok(plan(ask.port, test, connections, ask.seconds, &options))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        let quantile = |key: &str| number(written, key).ok().map(|seconds| seconds * 1e6);
        Ok(ToolFigures {
            rate: Some(rate(written, point.is_bulk())?),
            p50: quantile("latency_p50"),
            p99: quantile("latency_p99"),
        })
    }
}

pub(crate) fn plan(port: u16, test: &str, flows: u32, seconds: u32, options: &str) -> Plan {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let threads = flows.min(cpus);
    let common =
        format!("--nolog -F {flows} -T {threads} -C {port} -P {} -l {seconds} {options}", port + 1);
    Plan {
        server: Some((Line::of(&format!("{test} {common}")), Port::Tcp(port))),
        client: Line::of(&format!("{test} -c -H 127.0.0.1 {common}")),
    }
}

/// Bytes a second at the reader (its unit is 10^6 bits), or transactions a second.
pub(crate) fn rate(written: &str, bulk: bool) -> Result<f64, String> {
    match bulk {
        true => {
            let remote = number(written, "remote_throughput").map(|bits| bits / 8.0);
            remote.or_else(|_| Ok(number(written, "throughput")? * 1e6 / 8.0))
        }
        false => number(written, "throughput"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_keys_are_parsed() {
        let stream = "throughput=22460.23\nthroughput_units=Mbit/s\n";
        assert_eq!(rate(stream, true).unwrap(), 22_460.23e6 / 8.0);
        assert_eq!(rate("remote_throughput=8e9\n", true).unwrap(), 1e9);
        assert_eq!(rate("throughput=14359.10\n", false).unwrap(), 14_359.1);
        assert!(rate("connect: Connection refused", false).is_err());
    }
}
