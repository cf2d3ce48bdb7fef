//! nuttcp: one process at each end that goes round its streams.

use super::number;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Nuttcp;

/// MAXSTREAM of nuttcp.c.
const MAX_STREAMS: u32 = 128;

impl Contender for Nuttcp {
    fn name(&self) -> &str {
        "nuttcp"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["nuttcp"]
    }

    fn version(&self) -> Line {
        Line::of("nuttcp -V")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, .. } = ask.point;
        let protocol = match kind {
            Kind::Stream if connections > MAX_STREAMS => {
                return Err(PlanError::Limit("at most 128 streams"));
            }
            Kind::Stream => "",
            Kind::Udp if connections > 1 => {
                return Err(PlanError::Limit("one stream of datagrams"));
            }
            Kind::Udp => "-u -Ru ",
            Kind::Rr | Kind::UdpRr | Kind::Crr | Kind::Http => return Err(PlanError::NoSuchTest),
        };
        // Data goes to ports from the next on.
        let (control, data) = (ask.port, ask.port + 1);
        let ports = format!("-P {control} -p {data}");
        let seconds = ask.seconds_from_start();
        Ok(Plan {
            server: Some((
                Line::of(&format!("nuttcp -S --nofork -1 -P {control}")),
                Port::Tcp(control),
            )),
            client: Line::of(&format!(
                "nuttcp -t {ports} {protocol}-N {connections} -l {size} -T {seconds} -fparse 127.0.0.1"
            )),
        })
    }

    fn parse_figures(&self, _: &Point, written: &str) -> Result<ToolFigures, String> {
        received(written).map(ToolFigures::rate)
    }
}

/// Bytes a second as the receiver counted them.
fn received(written: &str) -> Result<f64, String> {
    Ok(number(written, "rate_Mbps")? * 1e6 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_counts() {
        let tcp = received(include_str!("fixtures/nuttcp.txt")).unwrap();
        assert_eq!(tcp.round(), (40_483_897_300.0f64 / 8.0).round());
        // 248 MiB of 796 MiB that were sent.
        let udp = received(include_str!("fixtures/nuttcp-udp.txt")).unwrap();
        assert_eq!(udp.round(), (2_082_000_700.0f64 / 8.0).round());
        assert!(received("nuttcp-t: Error").is_err());
    }
}
