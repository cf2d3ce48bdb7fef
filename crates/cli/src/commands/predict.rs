//! `wirecost predict`: how many CPUs a load would take, by what a study's cycles were spent on.

use clap::Args;
use wirecost_analyze::cost_model::{self, FittedModel, Load, PredictError, Remedy};
use wirecost_model::status::Status;
use wirecost_report::documents::cost_model as report;
use wirecost_study::builtins::{self, Builtin};

use super::explain::StudySelection;
use super::output::Format;
use super::parse_rate;
use crate::Failure;

/// Predict the number of CPUs that a load needs, from the cost model of a study (`wirecost explain`).
///
/// Operations, packets and interrupts per byte are interpolated from the points around the load. A load
/// outside the studied range is refused unless --extrapolate is given. If the 95% interval is wider than a
/// factor of 2, there is no prediction. For loads below saturation the study needs
/// paced points, such as those of @tcp-transmit. Each refusal names a study that would make the prediction
/// possible. Exit codes: 0 ok, 2 no model, the load is outside its range, or the interval is too wide.
#[derive(Debug, Args)]
pub(crate) struct Predict {
    #[command(flatten)]
    of: StudySelection,

    /// Payload rate, such as `100gbit` or `500mbit`.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: u64,

    /// Number of open connections.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,

    /// Bytes per operation, such as `8k`; required if the study has several sizes.
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,

    /// Also predict loads outside the studied range.
    #[arg(long)]
    extrapolate: bool,

    /// Format of the standard output.
    #[arg(long, value_enum, default_value = "terminal")]
    format: Format,
}

/// A built-in study without axes that the prediction does not go along: it would be refused for several
/// points of the same size and connections.
fn of_builtin(name: &str, remedy: &Remedy) -> String {
    let definition = builtins::find(name).and_then(Builtin::definition).unwrap_or_default();
    let is_needed = |axis: &&String| remedy.axes.iter().any(|(name, _)| name == *axis);
    let others = definition.axes.keys().filter(|axis| !is_needed(axis));
    others.fold(format!("@{name}"), |text, axis| format!("{text} --axis {axis}="))
}

impl Predict {
    /// With a study that would make the prediction possible.
    fn refused(&self, explained: &FittedModel, error: &PredictError) -> Failure {
        let failure = Failure::usage(error);
        let Some(remedy) = error.remedy() else { return failure };
        let title = explained.document.study.as_deref();
        let is_same = |builtin: &&Builtin| {
            builtin.definition().is_ok_and(|study| title == Some(study.title.as_str()))
        };
        let study = match builtins::ALL.iter().find(is_same) {
            Some(builtin) => of_builtin(builtin.name, remedy),
            None if title.is_some() => self.of.study_file(),
            None => of_builtin("tcp-transmit", remedy),
        };
        failure.help(format!(
            "on hosts that reach the rate, this could tell: wirecost study run {study} {} --set \
             observe=full --out DIR",
            remedy.arguments()
        ))
    }

    pub(crate) fn run(self) -> Result<Status, Failure> {
        let load = Load {
            bits_per_second: self.rate as f64,
            connections: self.connections,
            size: self.size.clone(),
            extrapolate: self.extrapolate,
        };
        let predicted = self.of.explain().and_then(|mut explained| {
            match cost_model::predict(&mut explained, &load) {
                Ok(()) => Ok(explained),
                Err(error) => Err(self.refused(&explained, &error)),
            }
        });
        self.of.write(self.format, predicted, report::prediction)
    }
}
