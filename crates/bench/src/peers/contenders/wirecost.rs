//! wirecost itself, called as a user would.

use wirecost_model::plan::EngineKind;
use wirecost_model::run::Run;
use wirecost_model::status::Status;

use crate::peers::contender::{Ask, Contender, Line, Own, Part, Plan, Port, Refusal};
use crate::peers::point::{Kind, Placement, Point};

/// One of its engines.
#[derive(Debug)]
pub(crate) struct Wirecost {
    engine: EngineKind,
    name: String,
}

impl Wirecost {
    pub(crate) fn new(engine: EngineKind) -> Self {
        Self { engine, name: format!("wirecost {}", engine.name()) }
    }
}

impl Contender for Wirecost {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> Part {
        match self.engine {
            EngineKind::Threads => Part::Reference,
            _ => Part::Ours,
        }
    }

    /// Its place is known.
    fn programs(&self) -> &'static [&'static str] {
        &[]
    }

    fn version(&self) -> Line {
        Line::of("wirecost --version")
    }

    fn plan(&self, ask: &Ask) -> Result<Plan, Refusal> {
        let Point { kind, connections, size, .. } = ask.point;
        let profile = match kind {
            Kind::Stream => format!("@stream --var size={size}"),
            Kind::Rr => format!("@rr --var request={size} --var response={size}"),
            Kind::Crr => format!("@crr --var request={size} --var response={size}"),
            Kind::Udp => format!("@udp-stream --var size={size}"),
            Kind::Http => format!("@http-get --var response={size}"),
        };
        let words = format!(
            "run {profile} --connections {connections} --engine {} --ramp 200ms --duration {}s \
             --observe none --quiet --json -",
            self.engine.name(),
            ask.seconds
        );
        if ask.point.placement == Placement::Shared {
            return Ok(Plan { server: None, client: line(ask.wirecost, &words) });
        }
        // With an agent for the other end each can be given its CPU, whatever the engine does with
        // those that it has.
        let port = ask.port;
        let agent = line(ask.wirecost, &format!("agent --listen 127.0.0.1:{port}"));
        let words = format!("{words} --host peer=127.0.0.1:{port}");
        Ok(Plan { server: Some((agent, Port::Tcp(port))), client: line(ask.wirecost, &words) })
    }

    fn own(&self, point: &Point, written: &str) -> Result<Own, String> {
        let run = read(written)?;
        let throughput = run.throughput.as_ref().map(|rates| rates.bits_per_second / 8.0);
        let rate = match point.kind {
            Kind::Stream | Kind::Udp | Kind::Http => throughput,
            Kind::Rr | Kind::Crr => run.transactions.map(|done| done.per_second),
        };
        let latency = match point.kind {
            Kind::Rr | Kind::Crr => run.latency_us,
            _ => None,
        };
        let (p50, p99) = (latency.as_ref().map(|l| l.p50), latency.as_ref().map(|l| l.p99));
        Ok(Own { rate, p50, p99 })
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
