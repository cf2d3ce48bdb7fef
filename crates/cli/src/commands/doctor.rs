use clap::Args;
use wirecost_analyze::doctor;
use wirecost_fleet::{ask, environment};
use wirecost_linux::clock::unix_ms;
use wirecost_linux::facts;
use wirecost_model::doctor::Examination;
use wirecost_model::observe::ObserveRequest;
use wirecost_model::status::Status;
use wirecost_observe::Observer;
use wirecost_report::documents;
use wirecost_report::json::{self, Target};

use super::agent::with_port;
use super::output;
use crate::Failure;
use crate::terminal;

/// Show what can be measured on a host, and which settings can invalidate a benchmark there.
///
/// Each finding lists the commands that fix and undo it, to be run as root on that host; wirecost
/// itself changes nothing. Exit codes: 0 whatever was found, 2 usage error, 3 the agent does not
/// answer.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Examine the host of this agent (`wirecost agent --listen ADDR`) [default: this host].
    #[arg(long, value_name = "ADDR")]
    host: Option<String>,

    /// Also show what this number of open connections needs from the host, and what it has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    connections: Option<u64>,

    /// Write the findings as JSON (wirecost.doctor/1) to a file, or `-` for standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        if let Some(target) = &self.json {
            json::check(&Target::from(target.as_str())).map_err(Failure::usage)?;
        }
        let mut examination = empty();
        examination.address = self.host.as_deref().map(with_port);
        match self.examine(&mut examination) {
            Ok(()) => self.write_json(&examination)?,
            Err(failure) => {
                examination.status = failure.status;
                examination.error = Some(failure.message.clone());
                // Where the document cannot be written either, the first failure is the one to tell.
                let _ = self.write_json(&examination);
                return Err(failure);
            }
        }
        if self.json.as_deref() != Some("-") {
            output::show(&documents::doctor::document(&examination));
        }
        Ok(Status::Ok)
    }

    fn examine(&self, examination: &mut Examination) -> Result<(), Failure> {
        let (name, environment, probes) = match &examination.address {
            Some(address) => {
                let answer =
                    ask::about(address).map_err(|error| Failure::new(Status::Peer, error))?;
                (Some(answer.facts.hostname), answer.environment, answer.probes)
            }
            None => {
                let request = ObserveRequest {
                    probes: wirecost_observe::names().map(str::to_owned).collect(),
                    parts: Vec::new(),
                };
                let probes = Observer::open(request).reports();
                (facts::read().ok().map(|facts| facts.hostname), environment::read(), probes)
            }
        };
        doctor::examine(&environment, examination);
        examination.capacity = self.connections.map(|n| doctor::capacity(&environment, n));
        if let Some(host) = &mut examination.host {
            host.name = name;
        }
        examination.probes = doctor::probes(&environment, &probes);
        Ok(())
    }

    fn write_json(&self, examination: &Examination) -> Result<(), Failure> {
        let Some(target) = &self.json else { return Ok(()) };
        write_json(examination, target)
    }
}

fn empty() -> Examination {
    Examination::empty(env!("CARGO_PKG_VERSION"), unix_ms() as u64)
}

fn write_json(examination: &Examination, target: &str) -> Result<(), Failure> {
    json::write(examination, &Target::from(target), &mut terminal::stdout())
        .map_err(|error| Failure::new(Status::Failed, error))
}

/// Writes the document of an examination with an invalid command line.
pub(super) fn refuse(target: &str, message: &str) -> Result<(), Failure> {
    let mut examination = empty();
    examination.status = Status::Usage;
    examination.error = Some(message.to_owned());
    write_json(&examination, target)
}
