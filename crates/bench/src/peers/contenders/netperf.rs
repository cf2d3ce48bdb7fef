//! netperf, where it is installed (Debian's main does not have it): one connection a process. Its
//! lines are as its manual has them, and have not been run.

use super::number;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Netperf;

pub(crate) const PROGRAMS: &[&str] = &["netperf", "netserver"];

impl Contender for Netperf {
    fn name(&self) -> &str {
        "netperf"
    }

    fn programs(&self) -> &'static [&'static str] {
        PROGRAMS
    }

    fn version(&self) -> Line {
        Line::of("netperf -V")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        let (test, options) = match kind {
            Kind::Stream => ("TCP_STREAM", format!("-m {size}")),
            Kind::Udp => ("UDP_STREAM", format!("-m {size}")),
            Kind::Rr => ("TCP_RR", format!("-D -r {size},{size}")),
            Kind::Crr => ("TCP_CRR", format!("-D -r {size},{size}")),
            Kind::Http => return Err(PlanError::NoSuchTest),
        };
        if connections > 1 {
            return Err(PlanError::Limit("one connection a process"));
        }
        Ok(plan(ask.port, test, ask.seconds, &options))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        rate(written, point.is_bulk()).map(ToolFigures::rate)
    }
}

pub(crate) fn plan(port: u16, test: &str, seconds: u32, options: &str) -> Plan {
    let figure = if test == "UDP_STREAM" { "REMOTE_RECV_THROUGHPUT" } else { "THROUGHPUT" };
    Plan {
        server: Some((Line::of(&format!("netserver -D -4 -p {port}")), Port::Tcp(port))),
        client: Line::of(&format!(
            "netperf -4 -H 127.0.0.1 -p {port} -t {test} -l {seconds} -P 0 -- {options} -k {figure}"
        )),
    }
}

/// Bytes a second (its unit is 10^6 bits), or transactions a second.
pub(crate) fn rate(written: &str, bulk: bool) -> Result<f64, String> {
    let figure =
        number(written, "REMOTE_RECV_THROUGHPUT").or_else(|_| number(written, "THROUGHPUT"))?;
    Ok(if bulk { figure * 1e6 / 8.0 } else { figure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_keys_are_parsed() {
        assert_eq!(rate("THROUGHPUT=8000.00\n", true).unwrap(), 1e9);
        assert_eq!(rate("THROUGHPUT=51234.56\n", false).unwrap(), 51_234.56);
        assert_eq!(rate("REMOTE_RECV_THROUGHPUT=80\n", true).unwrap(), 1e7);
        assert!(rate("establish control: are you sure there is a netserver", true).is_err());
    }
}
