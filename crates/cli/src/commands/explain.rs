//! `wirecost explain`: what the cycles of a study were spent on.

use std::path::PathBuf;

use clap::Args;
use wirecost_analyze::cost_model::{self, FittedModel, Options};
use wirecost_analyze::measured::Measurements;
use wirecost_model::cost::CostModel;
use wirecost_model::status::Status;
use wirecost_model::study::Value;
use wirecost_report::documents::cost_model as report;

use super::output::Format;
use crate::Failure;
use crate::profile::parse_variable;
use crate::records;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Show what the CPU cycles of a study were spent on: bytes, operations, packets, connections, interrupts.
///
/// All points together determine the cost of each. Inputs that the study does not vary are left out
/// and named. The model is checked at held-out points. Exit codes: 0 ok, 2 the study is too small, or
/// no cycles were measured.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    of: StudySelection,

    /// Format of the standard output.
    #[arg(long, value_enum, default_value = "terminal")]
    format: Format,
}

/// The study, and the points of it that are explained.
#[derive(Debug, Args)]
pub(super) struct StudySelection {
    /// Directory of a study (`study run --out DIR`).
    #[arg(value_name = "DIR")]
    study: PathBuf,

    /// Use only points where this axis or setting has this value; can be repeated.
    #[arg(long = "at", value_name = "NAME=VALUE", value_parser = parse_variable)]
    at: Vec<(String, String)>,

    /// Explain the cycles of one host, by its name or as `sender` or `receiver`; the host must not share
    /// CPUs [default: all machines together].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

impl Explain {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        self.of.write(self.format, self.of.explain(), report::explanation)
    }
}

impl StudySelection {
    fn options(&self) -> Options {
        let at = self.at.iter().map(|(name, value)| Value::new(name, value)).collect();
        Options { host: self.host.clone(), at }
    }

    /// The definition that is saved with the study.
    pub(super) fn study_file(&self) -> String {
        self.study.join("study.toml").display().to_string()
    }

    pub(super) fn explain(&self) -> Result<FittedModel, Failure> {
        let records = records::read(&self.study)?;
        let measured = Measurements::of(records.runs);
        cost_model::explain(&records.name, &measured, &self.options(), VERSION)
            .map_err(Failure::usage)
    }

    /// Writes the model, or the document of a refusal if JSON was requested.
    pub(super) fn write(
        &self,
        format: Format,
        explained: Result<FittedModel, Failure>,
        report: fn(&CostModel) -> wirecost_model::document::Document,
    ) -> Result<Status, Failure> {
        match explained {
            Ok(explained) => {
                format.write(&explained.document, report)?;
                Ok(Status::Ok)
            }
            Err(failure) => {
                if format == Format::Json {
                    let name = self.study.display().to_string();
                    let mut document = cost_model::empty(&name, &self.options(), VERSION);
                    document.status = failure.status;
                    document.error = Some(failure.message.clone());
                    format.write(&document, report)?;
                }
                Err(failure)
            }
        }
    }
}

/// Writes the document of a cost model with an invalid command line.
pub(super) fn refuse(message: &str) -> Result<(), Failure> {
    let mut document = cost_model::empty("", &Options::default(), VERSION);
    document.status = Status::Usage;
    document.error = Some(message.to_owned());
    Format::Json.write(&document, report::explanation)
}
