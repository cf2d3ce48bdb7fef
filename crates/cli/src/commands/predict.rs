//! `wirecost predict`: how many CPUs a load would take, by what a study's cycles were spent on.

use clap::Args;
use wirecost_analyze::cost_model::{self, Load};
use wirecost_model::status::Status;
use wirecost_report::documents::cost_model as report;

use super::explain::Of;
use super::lab::parse_rate;
use super::output::Format;
use crate::Failure;

/// Say how many CPUs a load would take, by the cost model of a study (`wirecost explain`).
///
/// Operations, packets and interrupts for each byte are taken from the points around the load. What
/// the study did not cover is refused: see --extrapolate. Exit codes: 0 ok, 2 there is no model, or
/// the load is outside of it.
#[derive(Debug, Args)]
pub(crate) struct Predict {
    #[command(flatten)]
    of: Of,

    /// Payload to move, as `100gbit` or `500mbit` a second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: u64,

    /// Open connections.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,

    /// Bytes of each operation, as `8k`; needed where the study has several sizes.
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,

    /// Predict also what lies outside of what the study covered.
    #[arg(long)]
    extrapolate: bool,

    /// What is written to standard output.
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
