//! wirecost itself, called as a user would.

use wirecost_linux::datagrams::MAX_SEGMENTS;
use wirecost_load::engines::Engine;
use wirecost_model::run::Run;
use wirecost_model::status::Status;

use crate::peers::contender::{
    Contender, Line, Part, Plan, PlanError, Port, RunRequest, ToolFigures,
};
use crate::peers::point::{Kind, Placement, Point};

/// One of its engines.
#[derive(Debug)]
pub(crate) struct Wirecost {
    engine: &'static dyn Engine,
    joins: Option<Joins>,
    name: String,
}

/// How several datagrams go in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joins {
    /// One message that the kernel cuts apart as late as it can, and hands to the receiver uncut.
    Gso,
    /// Messages of their own.
    Batch,
}

impl Joins {
    fn options(self, size: u32) -> String {
        match self {
            // As many as the kernel cuts, and as fit into a message over IPv4.
            Joins::Gso => {
                let datagrams = (65_507 / u64::from(size.max(1))).clamp(1, MAX_SEGMENTS);
                format!("options=gso={datagrams} gro")
            }
            Joins::Batch => format!("options=batch={MAX_SEGMENTS}"),
        }
    }
}

impl Wirecost {
    pub(crate) fn new(engine: &'static dyn Engine) -> Self {
        Self { engine, joins: None, name: format!("wirecost {}", engine.name()) }
    }

    /// The default engine with calls that send and receive more than one datagram.
    pub(crate) fn joined(joins: Joins) -> Self {
        let how = match joins {
            Joins::Gso => "gso",
            Joins::Batch => "batch",
        };
        let name = format!("wirecost epoll, {how}");
        Self { joins: Some(joins), name, ..Self::new(wirecost_load::engines::ALL[0]) }
    }
}

impl Contender for Wirecost {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> Part {
        match self.joins {
            Some(_) => Part::Joined,
            None if self.engine.shares_threads() => Part::Ours,
            None => Part::Reference,
        }
    }

    /// Its place is known.
    fn programs(&self) -> &'static [&'static str] {
        &[]
    }

    fn version(&self) -> Line {
        Line::of("wirecost --version")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let Point { kind, connections, size, placement, .. } = ask.point;
        if self.joins.is_some() && kind != Kind::Udp {
            return Err(PlanError::NoSuchTest);
        }
        let profile = match kind {
            Kind::Stream => format!("@stream --var size={size}"),
            Kind::Rr => format!("@rr --var request={size} --var response={size}"),
            Kind::Crr => format!("@crr --var request={size} --var response={size}"),
            Kind::Udp => format!("@udp-stream --var size={size}"),
            Kind::UdpRr => format!("@udp-rr --var request={size} --var response={size}"),
            Kind::Http => format!("@http-get --var response={size}"),
        };
        let words = format!(
            "run {profile} --connections {connections} --engine {} --ramp 200ms --duration {}s \
             --observe none --quiet --json -",
            self.engine.name(),
            ask.seconds
        );
        let mut client = line(ask.wirecost, &words);
        if let Some(joins) = self.joins {
            client.args.extend(["--var".to_owned(), joins.options(size)]);
        }
        if placement == Placement::Shared {
            return Ok(Plan { server: None, client });
        }
        // With an agent for the other end each can be given its CPU, whatever the engine does with
        // those that it has.
        let port = ask.port;
        let agent = line(ask.wirecost, &format!("agent --listen 127.0.0.1:{port}"));
        client.args.extend(["--host".to_owned(), format!("peer=127.0.0.1:{port}")]);
        Ok(Plan { server: Some((agent, Port::Tcp(port))), client })
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        let run = read(written)?;
        let throughput = run.throughput.as_ref().map(|rates| rates.bits_per_second / 8.0);
        let rate = match point.kind {
            Kind::Stream | Kind::Udp | Kind::Http => throughput,
            Kind::Rr | Kind::Crr | Kind::UdpRr => run.transactions.map(|done| done.per_second),
        };
        let latency = match point.kind {
            Kind::Rr | Kind::Crr | Kind::UdpRr => run.latency_us,
            _ => None,
        };
        let (p50, p99) = (latency.as_ref().map(|l| l.p50), latency.as_ref().map(|l| l.p99));
        Ok(ToolFigures { rate, p50, p99 })
    }
}

/// `wirecost` with these words.
pub(crate) fn line(wirecost: &std::path::Path, words: &str) -> Line {
    Line { program: wirecost.display().to_string(), ..Line::of(&format!("- {words}")) }
}

/// The document of a run that went well.
pub(crate) fn read(written: &str) -> Result<Run, String> {
    let run: Run =
        serde_json::from_str(written).map_err(|error| format!("no document: {error}"))?;
    match run.status {
        Status::Ok => Ok(run),
        other => Err(run.error.unwrap_or_else(|| format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::peers::point;

    fn options(joins: Joins, size: u32) -> Option<String> {
        let mut points = point::ALL.iter().filter(|point| point.kind == Kind::Udp);
        let point = points.find(|point| point.size == size).unwrap();
        let wirecost = Path::new("wirecost");
        let (port, seconds, open_ends, scratch) = (10_000, 2, 0, Path::new("."));
        let ask = RunRequest { point: *point, port, seconds, open_ends, scratch, wirecost };
        let args = Wirecost::joined(joins).plan(&ask).unwrap().client.args;
        args.into_iter().find(|arg| arg.starts_with("options="))
    }

    #[test]
    fn a_message_is_no_larger_than_ipv4_and_the_kernel_allow() {
        assert_eq!(options(Joins::Gso, 1400).unwrap(), "options=gso=46 gro");
        assert_eq!(options(Joins::Gso, 64).unwrap(), "options=gso=64 gro");
        assert_eq!(options(Joins::Batch, 1400).unwrap(), "options=batch=64");
    }

    #[test]
    fn only_datagrams_are_joined() {
        let directory = Path::new(".");
        for point in point::ALL.iter().filter(|point| point.kind != Kind::Udp) {
            let (port, seconds, open_ends) = (10_000, 2, 0);
            let (scratch, wirecost) = (directory, Path::new("wirecost"));
            let ask = RunRequest { point: *point, port, seconds, open_ends, scratch, wirecost };
            let plan = Wirecost::joined(Joins::Gso).plan(&ask);
            assert_eq!(plan, Err(PlanError::NoSuchTest), "{}", point.name());
        }
    }
}
