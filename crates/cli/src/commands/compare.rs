//! `wirecost compare`: what became of B, seen from A.

use std::path::PathBuf;

use clap::Args;
use wirecost_analyze::compare::{self, Options, Subject};
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics::{self, Selector};
use wirecost_model::status::Status;
use wirecost_report::documents::comparison;

use super::output::Format;
use crate::Failure;
use crate::records;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compare two studies, or two runs, point by point: B with A.
///
/// Host differences are listed first, then each figure with its ratio, then the verdict. A
/// difference counts if it is significant after correction for the number of comparisons, and
/// larger than the threshold. Exit codes: 0 nothing is worse, 1 something is worse, 2 cannot be
/// compared.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Baseline: a study, a record of `run --out`, or JSON of a run.
    #[arg(value_name = "A")]
    a: PathBuf,

    /// What to compare with the baseline: the same kinds as A.
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Threshold in percent: smaller differences do not count.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent)]
    threshold: f64,

    /// Compare only this metric, such as throughput, latency.p99, hosts.sender.cycles_per_kbyte;
    /// can be repeated [default: throughput, or transactions where no bytes move, latency.p99, and
    /// cycles/KByte of sender and receiver, or of the machine]
    #[arg(long = "metric", value_name = "NAME", value_parser = parse_metric)]
    metrics: Vec<Selector>,

    /// Format of the standard output.
    #[arg(long, value_enum, default_value = "terminal")]
    format: Format,
}

fn parse_metric(name: &str) -> Result<Selector, String> {
    metrics::find(name).map_err(|error| match error.nearest {
        Some(_) => error.to_string(),
        None => {
            let containing = metrics::all().map(|metric| metric.name);
            let containing = containing.filter(|known| !name.is_empty() && known.contains(name));
            let containing: Vec<&str> = containing.take(3).collect();
            match containing.is_empty() {
                true => format!("{error}; `wirecost report --list` lists them"),
                false => format!("{error}; did you mean {}?", containing.join(" or ")),
            }
        }
    })
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
    match number {
        Some(percent) if percent >= 0.0 && percent.is_finite() => Ok(percent / 100.0),
        _ => Err("must be a percentage, such as 5%".to_owned()),
    }
}

impl Compare {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let options = Options { threshold: self.threshold, metrics: self.metrics.clone() };
        let named = |path: &PathBuf| {
            let name = path.display().to_string();
            Subject { name, ..Subject::default() }
        };
        let (mut a, mut b) = (named(&self.a), named(&self.b));
        let compared = self.compare(&mut a, &mut b, &options);
        let comparison = match &compared {
            Ok(comparison) => comparison.clone(),
            Err(failure) => compare::refused(&a, &b, &options, VERSION, &failure.message),
        };
        if compared.is_ok() || self.format == Format::Json {
            self.format.write(&comparison, comparison::report)?;
        }
        compared.map(|comparison| comparison.status)
    }

    fn compare(
        &self,
        a: &mut Subject,
        b: &mut Subject,
        options: &Options,
    ) -> Result<wirecost_model::comparison::Comparison, Failure> {
        *a = subject(&self.a)?;
        *b = subject(&self.b)?;
        compare::compare(a, b, options, VERSION).map_err(Failure::usage)
    }
}

fn subject(path: &std::path::Path) -> Result<Subject, Failure> {
    let records = records::read(path)?;
    Ok(Subject {
        name: records.name,
        single: records.single,
        measured: Measurements::of(records.runs),
        hosts: records.hosts,
        study_keys: records.study_keys,
        profiles: records.profiles,
    })
}

/// Writes the document of a comparison with an invalid command line.
pub(super) fn refuse(message: &str) -> Result<(), Failure> {
    let nothing = Subject::default();
    let options = Options { threshold: 0.0, metrics: Vec::new() };
    let refused = compare::refused(&nothing, &nothing, &options, VERSION, message);
    Format::Json.write(&refused, comparison::report)
}
