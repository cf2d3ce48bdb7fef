//! sockperf: one client thread. Of its feed files, which let that thread go round many sockets,
//! nothing is used: they keep one message under way.

use super::number;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Sockperf;

/// MAX_PAYLOAD_SIZE of defs.h.
const MAX_SIZE: u32 = 65507;

impl Contender for Sockperf {
    fn name(&self) -> &str {
        "sockperf"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["sockperf"]
    }

    fn version(&self) -> Line {
        Line::of("sockperf --version")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        let (test, tcp) = match kind {
            Kind::Stream => ("throughput", true),
            Kind::Udp => ("throughput", false),
            Kind::Rr => ("ping-pong", true),
            Kind::UdpRr => ("ping-pong", false),
            Kind::Crr | Kind::Http => return Err(PlanError::NoSuchTest),
        };
        if connections > 1 {
            return Err(PlanError::Limit("one connection at a time"));
        }
        if size > MAX_SIZE {
            return Err(PlanError::Limit("messages of at most 65,507 bytes"));
        }
        Ok(plan(ask.port, tcp, test, &format!("-m {size} -t {}", ask.seconds)))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        match point.kind {
            Kind::Rr | Kind::UdpRr => Ok(ToolFigures {
                rate: Some(exchanged(written)?),
                p50: Some(percentile(written, "50.000")?),
                p99: Some(percentile(written, "99.000")?),
            }),
            Kind::Stream => Ok(ToolFigures::rate(sent(written)? * f64::from(point.size))),
            // It tells what it sent, and not what arrived.
            _ => Ok(ToolFigures::default()),
        }
    }
}

pub(crate) fn plan(port: u16, tcp: bool, test: &str, options: &str) -> Plan {
    let (protocol, listens) = if tcp { ("--tcp ", Port::Tcp(port)) } else { ("", Port::Udp(port)) };
    let place = format!("{protocol}-i 127.0.0.1 -p {port}");
    let latency = if test == "throughput" { "" } else { "--full-rtt" };
    Plan {
        server: Some((Line::of(&format!("sockperf server {place}")), listens)),
        client: Line::of(&format!("sockperf {test} {place} {options} {latency}")),
    }
}

/// Messages a second.
pub(crate) fn sent(written: &str) -> Result<f64, String> {
    let line = written.lines().find_map(|line| line.split_once("Message Rate is "));
    let word = line.and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.parse().ok());
    word.ok_or_else(|| "it wrote no message rate".to_owned())
}

/// Round trips a second in the part that it counts.
fn exchanged(written: &str) -> Result<f64, String> {
    let line = written.lines().find(|line| line.contains("[Valid Duration]"));
    let line = line.ok_or("it wrote no `[Valid Duration]`")?;
    Ok(number(line, "ReceivedMessages")? / number(line, "RunTime")?)
}

/// Mean round trip, microseconds.
pub(crate) fn round_trip(written: &str) -> Result<f64, String> {
    number(written, "avg-rtt")
}

fn percentile(written: &str, which: &str) -> Result<f64, String> {
    number(written, &format!("percentile {which}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_coloured_output_is_parsed() {
        let text = include_str!("fixtures/sockperf-pp.txt");
        assert_eq!(exchanged(text).unwrap(), 102_090.0 / 0.546);
        assert_eq!(round_trip(text).unwrap(), 5.329);
        assert_eq!(percentile(text, "50.000").unwrap(), 3.539);
        assert_eq!(percentile(text, "99.000").unwrap(), 18.419);
        assert_eq!(round_trip(include_str!("fixtures/sockperf-ul.txt")).unwrap(), 142.672);
        assert_eq!(sent(include_str!("fixtures/sockperf-tp.txt")).unwrap(), 65_453.0);
    }

    #[test]
    fn a_missing_figure_is_an_error() {
        let text = "sockperf: ERROR: A connection was forcibly closed by a peer";
        assert!(exchanged(text).is_err() && sent(text).is_err());
        assert!(round_trip(text).unwrap_err().contains("avg-rtt"));
    }
}
