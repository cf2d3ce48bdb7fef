//! iperf3 (Debian 12 has 3.12, which serves all streams from one thread).

use serde_json::Value;

use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Iperf3;

/// MAX_STREAMS of iperf.h.
const MAX_STREAMS: u32 = 128;

impl Contender for Iperf3 {
    fn name(&self) -> &str {
        "iperf3"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["iperf3"]
    }

    fn version(&self) -> Line {
        Line::of("iperf3 --version")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        let protocol = match kind {
            Kind::Stream => "",
            Kind::Udp => "-u -b 0",
            Kind::Rr | Kind::UdpRr | Kind::Crr | Kind::Http => return Err(PlanError::NoSuchTest),
        };
        if connections > MAX_STREAMS {
            return Err(PlanError::Limit("at most 128 streams"));
        }
        Ok(plan(
            ask.port,
            &format!("{protocol} -P {connections} -l {size} -t {}", ask.seconds_from_start()),
        ))
    }

    fn parse_figures(&self, _: &Point, written: &str) -> Result<ToolFigures, String> {
        received(written).map(ToolFigures::rate)
    }
}

pub(crate) fn plan(port: u16, options: &str) -> Plan {
    Plan {
        server: Some((Line::of(&format!("iperf3 -s -1 -p {port}")), Port::Tcp(port))),
        client: Line::of(&format!("iperf3 -c 127.0.0.1 -p {port} {options} -J")),
    }
}

/// Bytes a second as the receivers counted them, both directions.
pub(crate) fn received(written: &str) -> Result<f64, String> {
    let document: Value =
        serde_json::from_str(written).map_err(|error| format!("no document: {error}"))?;
    if let Some(error) = document["error"].as_str() {
        return Err(error.to_owned());
    }
    let rate = |sum: &str| document["end"][sum]["bits_per_second"].as_f64();
    let there = rate("sum_received").ok_or("it wrote no `sum_received`")?;
    Ok((there + rate("sum_received_bidir_reverse").unwrap_or(0.0)) / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_count() {
        let tcp = received(include_str!("fixtures/iperf3.json")).unwrap();
        assert_eq!(tcp.round(), 6_232_530_821.0);
        // Of 5.5 Gb/s that were sent.
        let udp = received(include_str!("fixtures/iperf3-udp.json")).unwrap();
        assert_eq!(udp.round(), 152_767_790.0);
    }

    #[test]
    fn both_directions_count() {
        let text = include_str!("fixtures/iperf3-bidir.json");
        let document: Value = serde_json::from_str(text).unwrap();
        let there = document["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
        assert!(received(text).unwrap() > there / 8.0);
    }

    #[test]
    fn an_error_is_reported() {
        assert_eq!(
            received(r#"{"error": "the server is busy"}"#).unwrap_err(),
            "the server is busy"
        );
        assert!(received("").is_err());
    }
}
