//! `wirecost explain`: what the cycles of a study were spent on.

use std::path::PathBuf;

use clap::Args;
use wirecost_analyze::compare::Hosts;
use wirecost_analyze::cost_model::{self, FittedModel, Options};
use wirecost_analyze::measured::Measurements;
use wirecost_model::cost::CostModel;
use wirecost_model::status::Status;
use wirecost_model::study::Value;
use wirecost_report::documents::cost_model as report;
use wirecost_report::documents::page::{self, Redaction};

use super::output::Format;
use super::report::{HtmlFile, PageOptions};
use crate::Failure;
use crate::profile::parse_variable;
use crate::records::{self, Records};

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

    /// Write a page with charts that opens offline to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    page: PageOptions,
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

/// What a model was made of.
struct Explained {
    measured: Measurements,
    /// Of each run.
    hosts: Vec<Hosts>,
    source: records::Source,
}

impl Explain {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let file = HtmlFile::wanted(self.html.as_deref(), self.page)?;
        let read = self.of.read();
        let (explained, records) = match read {
            Ok((fitted, records)) => (Ok(fitted), Some(records)),
            Err(failure) => (Err(failure), None),
        };
        let page = match (&explained, file, records) {
            (Ok(fitted), Some(file), Some(records)) => {
                Some((fitted.document.clone(), file, records))
            }
            _ => None,
        };
        let status = self.of.write(self.format, explained, report::explanation)?;
        if let Some((model, file, records)) = page {
            write_page(&file, &model, records)?;
        }
        Ok(status)
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
        self.read().map(|(fitted, _)| fitted)
    }

    fn read(&self) -> Result<(FittedModel, Explained), Failure> {
        let records = records::read(&self.study)?;
        let Records { name, runs, hosts, source, .. } = records;
        let measured = Measurements::of(runs);
        let fitted = cost_model::explain(&name, &measured, &self.options(), VERSION);
        Ok((fitted.map_err(Failure::usage)?, Explained { measured, hosts, source }))
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

fn write_page(file: &HtmlFile, model: &CostModel, of: Explained) -> Result<(), Failure> {
    let Explained { measured, hosts, source } = of;
    let nothing = Hosts::new();
    let document = page::cost_model(model, &measured, hosts.first().unwrap_or(&nothing), &source);
    let runs = measured.points.iter().flat_map(|point| point.runs.iter().chain(&point.failed));
    let mut names = Redaction::of(runs, &nothing, [model.name.clone()]);
    hosts.iter().for_each(|environments| names.add_environments(environments));
    names.add_label(&model.name);
    file.write(document, &names)
}

/// Writes the document of a cost model with an invalid command line.
pub(super) fn refuse(message: &str) -> Result<(), Failure> {
    let mut document = cost_model::empty("", &Options::default(), VERSION);
    document.status = Status::Usage;
    document.error = Some(message.to_owned());
    Format::Json.write(&document, report::explanation)
}
