//! `wirecost predict`: how many CPUs a load would take, by what a study's cycles were spent on.

use clap::Args;
use wirecost_analyze::cost_model::{self, Load};
use wirecost_model::status::Status;
use wirecost_report::documents::cost_model as report;

use super::explain::StudySelection;
use super::lab::parse_rate;
use super::output::Format;
use crate::Failure;

/// Predict the number of CPUs that a load needs, from the cost model of a study (`wirecost explain`).
///
/// Operations, packets and interrupts per byte are interpolated from the points around the load. A load
/// outside the studied range is refused unless --extrapolate is given. Exit codes: 0 ok, 2 no model,
/// or the load is outside its range.
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

impl Predict {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let load = Load {
            bits_per_second: self.rate as f64,
            connections: self.connections,
            size: self.size.clone(),
            extrapolate: self.extrapolate,
        };
        let predicted = self.of.explain().and_then(|mut explained| {
            cost_model::predict(&mut explained, &load).map_err(Failure::usage)?;
            Ok(explained)
        });
        self.of.write(self.format, predicted, report::prediction)
    }
}
