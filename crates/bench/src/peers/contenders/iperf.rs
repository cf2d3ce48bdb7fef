//! iperf 2: a thread for each stream, at both ends.

use super::number_before;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Iperf;

impl Contender for Iperf {
    fn name(&self) -> &str {
        "iperf"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["iperf"]
    }

    fn version(&self) -> Line {
        Line::of("iperf -v")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        // Sizes without a suffix: its -l 64k is 64,000 bytes.
        let options = match kind {
            Kind::Stream => format!("-l {size}"),
            Kind::Rr => {
                format!("--bounceback --bounceback-no-quickack --bounceback-period 0 -l {size}")
            }
            Kind::Udp => format!("-u -b 100g -l {size}"),
            Kind::UdpRr | Kind::Crr | Kind::Http => return Err(PlanError::NoSuchTest),
        };
        let seconds = ask.seconds_from_start();
        Ok(plan(ask.port, kind == Kind::Udp, &format!("{options} -P {connections} -t {seconds}")))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        let rate = match point.kind {
            Kind::Rr => exchanged(written),
            Kind::Udp => received(written),
            _ => sent(written),
        };
        rate.map(ToolFigures::rate)
    }
}

pub(crate) fn plan(port: u16, datagrams: bool, options: &str) -> Plan {
    let (protocol, listens) = match datagrams {
        true => ("-u ", Port::Udp(port)),
        false => ("", Port::Tcp(port)),
    };
    Plan {
        server: Some((Line::of(&format!("iperf -s {protocol}-p {port}")), listens)),
        client: Line::of(&format!("iperf -c 127.0.0.1 -p {port} {options} -f b")),
    }
}

/// Bytes a second of all streams, as their senders counted them.
pub(crate) fn sent(written: &str) -> Result<f64, String> {
    let rate = |line: &str| number_before(line, "bits/sec");
    let mut lines = written.lines().rev();
    let sum = lines.clone().filter(|line| line.starts_with("[SUM]")).find_map(rate);
    let bits = sum.or_else(|| lines.find_map(rate)).ok_or("it wrote no rate")?;
    Ok(bits / 8.0)
}

/// Bytes a second of all streams, as the server reported them.
pub(crate) fn received(written: &str) -> Result<f64, String> {
    let mut bits = None;
    let mut of_server = false;
    for line in written.lines() {
        of_server |= line.contains("Server Report");
        if let Some(rate) = number_before(line, "bits/sec").filter(|_| of_server) {
            bits = Some(bits.unwrap_or(0.0) + rate);
            of_server = false;
        }
    }
    Ok(bits.ok_or("it wrote no report of the server")? / 8.0)
}

/// Round trips a second of all streams.
fn exchanged(written: &str) -> Result<f64, String> {
    let rates: Vec<f64> = written.lines().filter_map(|line| number_before(line, "rps")).collect();
    if rates.is_empty() { Err("it wrote no rate".to_owned()) } else { Ok(rates.iter().sum()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_streams_have_a_sum() {
        assert_eq!(sent(include_str!("fixtures/iperf.txt")).unwrap(), 168_505_269_317.0 / 8.0);
        assert_eq!(sent(include_str!("fixtures/iperf-1.txt")).unwrap(), 95_580_226_745.0 / 8.0);
        assert!(sent("connect failed: Connection refused").is_err());
    }

    #[test]
    fn only_received_datagrams_count() {
        let rate = received(include_str!("fixtures/iperf-udp.txt")).unwrap();
        assert_eq!(rate, (1_261_135_576.0 + 1_062_874_329.0) / 8.0);
        assert!(received(include_str!("fixtures/iperf.txt")).is_err());
    }

    #[test]
    fn round_trips_of_all_streams_are_added() {
        let rate = exchanged(include_str!("fixtures/iperf-bb.txt")).unwrap();
        assert_eq!(rate, 230_288.0 + 225_969.0);
    }
}
