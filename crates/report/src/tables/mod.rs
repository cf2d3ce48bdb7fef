//! Tables of studies, by name. Each is a file.
//!
//! A table is made of what was measured, and says of what was not why. Those that have a row for each
//! point are made of [`Rows`], which give the row of a point alone too, as soon as it is measured.

mod cells;
mod columns;
mod disk_limits;
mod function_cost;
pub(crate) mod general;
mod http_get;
mod interrupt_cost;
mod interrupt_polling;
mod io_engines;
mod knee;
mod long_haul;
mod lso;
mod option_payoff;
mod patterns;
mod rate_search;
mod repeats;
mod responsiveness;
mod rows;
mod rtt_fairness;
mod runs;
mod tcp_transmit;
#[cfg(test)]
mod tests;
mod udp_scaling;
mod wan_tuning;
pub(crate) mod whose;

use wirecost_analyze::measured::Measurements;

use wirecost_model::document::Section;

pub use columns::UnknownColumn;
pub use rows::{ColumnOf, Rows};
pub use runs::{about, cautions, left_out};

/// A table of studies.
pub trait Table: Sync {
    /// As a study names it.
    fn name(&self) -> &'static str;

    /// One line for a person.
    fn help(&self) -> &'static str;

    /// What it is made of runs. It says what it could not be made of.
    fn build(&self, measured: &Measurements) -> Section;

    /// The columns of its rows, where each is of one point: they are shown while a study goes on. `None`
    /// where a row is of several points or a point of several rows.
    fn rows(&self, _: &Measurements) -> Option<Rows> {
        None
    }

    /// Whether its sentences stand in place of the findings of the study, which would test the same again.
    fn concludes(&self) -> bool {
        false
    }

    /// Whether it is made of stacks, which are kept by themselves and take time to read.
    fn needs_stacks(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// All of them. The first is the one of a study that names none.
pub static ALL: &[&dyn Table] = &[
    &general::General,
    &tcp_transmit::TcpTransmit,
    &http_get::HttpGet,
    &io_engines::IoEngines,
    &disk_limits::DiskLimits,
    &lso::Lso,
    &function_cost::FunctionCost,
    &interrupt_cost::InterruptCost,
    &interrupt_polling::InterruptPolling,
    &patterns::Patterns,
    &rate_search::RateSearch,
    &udp_scaling::UdpScaling,
    &wan_tuning::WanTuning,
    &rtt_fairness::RttFairness,
    &long_haul::LongHaul,
    &responsiveness::Latencies,
    &knee::Knee,
    &option_payoff::OptionPayoff,
    &repeats::Repeats,
];

/// The table of this name.
///
/// # Errors
/// There is none; the error names the nearest.
pub fn find(name: &str) -> Result<&'static dyn Table, UnknownTable> {
    ALL.iter().copied().find(|table| table.name() == name).ok_or_else(|| {
        let names = ALL.iter().map(|table| table.name());
        UnknownTable { name: name.to_owned(), nearest: nearest(name, names).map(str::to_owned) }
    })
}

/// There is no table of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no table {name}{}", did_you_mean(.nearest.as_deref()))]
pub struct UnknownTable {
    pub name: String,
    pub nearest: Option<String>,
}

/// A table that is asked for.
#[derive(Debug, Clone)]
pub enum TableRequest {
    /// One that has a name.
    Named(&'static dyn Table),
    /// One of these columns, each an axis, a setting or a metric, with a row for each point.
    Columns { title: String, columns: Vec<String> },
}

impl TableRequest {
    /// The table of all axes, for who asks for none.
    #[must_use]
    pub fn general() -> Self {
        TableRequest::Named(ALL[0])
    }

    /// Whether it is made of stacks too.
    #[must_use]
    pub fn needs_stacks(&self) -> bool {
        matches!(self, TableRequest::Named(table) if table.needs_stacks())
    }

    /// Whether its sentences stand in place of the findings of the study.
    #[must_use]
    pub fn concludes(&self) -> bool {
        matches!(self, TableRequest::Named(table) if table.concludes())
    }

    /// The table.
    ///
    /// # Errors
    /// A column that nothing is called by.
    pub fn build(&self, measured: &Measurements) -> Result<Section, UnknownColumn> {
        match self {
            TableRequest::Named(table) => {
                let name = table.name().to_owned();
                Ok(Section { name, ..table.build(measured) })
            }
            TableRequest::Columns { title, columns } => columns::build(title, columns, measured),
        }
    }

    /// The columns in which points are shown one by one, before all are measured. Which there are depends
    /// on the axes and on the hosts, so `measured` is all points of the study, the first of which have
    /// runs. A table whose rows are not points has the columns of the general one here.
    ///
    /// # Errors
    /// A column that nothing is called by.
    pub fn rows(&self, measured: &Measurements) -> Result<Rows, UnknownColumn> {
        match self {
            TableRequest::Named(table) => {
                Ok(table.rows(measured).unwrap_or_else(|| general::rows(measured)))
            }
            TableRequest::Columns { columns, .. } => columns::rows(columns, measured),
        }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default()
}

/// The name that was meant, if one is near.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.map(|known| (strsim::damerau_levenshtein(name, known), known));
    let near = distances.filter(|(distance, known)| *distance <= known.len().div_ceil(3)).min();
    near.map(|(_, known)| known)
}
