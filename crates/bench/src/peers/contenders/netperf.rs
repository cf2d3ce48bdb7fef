//! netperf, where it is installed (Debian's main does not have it): one connection a process, so as many
//! processes as connections.

use super::number;
use crate::peers::child::file;
use crate::peers::contender::{Contender, Line, Plan, PlanError, Port, RunRequest, ToolFigures};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Netperf;

/// More of them would measure the scheduler.
const PROCESSES: u32 = 64;

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
            Kind::UdpRr => ("UDP_RR", format!("-r {size},{size}")),
            Kind::Crr => ("TCP_CRR", format!("-D -r {size},{size}")),
            Kind::Http => return Err(PlanError::NoSuchTest),
        };
        if connections > PROCESSES {
            return Err(PlanError::Limit("one connection a process"));
        }
        let mut plan = plan(ask.port, test, ask.seconds, &options);
        if connections > 1 {
            plan.client = at_once(&plan.client, connections);
        }
        Ok(plan)
    }

    fn control_connections(&self, point: &Point) -> u32 {
        point.connections
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

/// As many of a client as there are to be, started together; it fails if any of them does.
fn at_once(client: &Line, processes: u32) -> Line {
    let program = file(&client.program).display().to_string();
    let command = Line { program, ..client.clone() };
    let script = format!(
        "for i in $(seq {processes}); do {command} & all=\"$all $!\"; done; \
         for each in $all; do wait $each || exit; done"
    );
    Line { program: "sh".to_owned(), args: vec!["-c".to_owned(), script], cpu: None }
}

/// Bytes a second (its unit is 10^6 bits), or transactions a second, of all processes.
pub(crate) fn rate(written: &str, bulk: bool) -> Result<f64, String> {
    let figure =
        |line| number(line, "REMOTE_RECV_THROUGHPUT").or_else(|_| number(line, "THROUGHPUT")).ok();
    let figures: Vec<f64> = written.lines().filter_map(figure).collect();
    if figures.is_empty() {
        let said = written.trim().lines().next_back().unwrap_or("nothing");
        return Err(format!("it wrote no `THROUGHPUT`, but {said}"));
    }
    let sum: f64 = figures.iter().sum();
    Ok(if bulk { sum * 1e6 / 8.0 } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_keys_are_parsed() {
        assert_eq!(rate("THROUGHPUT=8000.00\n", true).unwrap(), 1e9);
        assert_eq!(rate("THROUGHPUT=51234.56\n", false).unwrap(), 51_234.56);
        assert_eq!(rate("REMOTE_RECV_THROUGHPUT=80\n", true).unwrap(), 1e7);
        assert_eq!(rate("THROUGHPUT=3\nTHROUGHPUT=4\n", false).unwrap(), 7.0);
        assert!(rate("establish control: are you sure there is a netserver", true).is_err());
    }
}
