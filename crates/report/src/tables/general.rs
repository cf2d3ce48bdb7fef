//! `axes`: a row for each point, with what every profile has.

use wirecost_analyze::measured::Measurements;
use wirecost_model::document::Section;

use super::Table;
use super::rows::{ColumnOf, Rows};
use super::whose::{self, CpuScope};

pub(super) struct General;

impl Table for General {
    fn name(&self) -> &'static str {
        "axes"
    }

    fn help(&self) -> &'static str {
        "all axes, throughput, cycles/KByte; latency where there are requests"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }
}

/// More hosts than these have one column together.
const MANY: usize = 4;

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("All points");
    section.table(rows(measured).table("", &measured.points));
    if measured.points.is_empty() {
        section.text("There is no run yet.");
    }
    section
}

pub(super) fn rows(measured: &Measurements) -> Rows {
    let mut columns = vec![ColumnOf::metric("throughput", "throughput")];
    if answers(measured) {
        columns.push(ColumnOf::metric("transactions", "transactions"));
        columns.push(ColumnOf::metric("p99", "latency.p99"));
    }
    for whose in hosts(measured) {
        let title = match &whose {
            CpuScope::Host(host) => format!("cycles/KByte {host}"),
            CpuScope::All => "cycles/KByte".to_owned(),
        };
        columns.push(ColumnOf::metric(&title, &whose.metric("cycles_per_kbyte")));
    }
    Rows::by_axes(measured, columns)
}

/// Whether there are requests and responses, so that the latency of a transaction means something.
pub(crate) fn answers(measured: &Measurements) -> bool {
    let runs = measured.points.iter().flat_map(|point| &point.runs);
    let mut moved = runs.filter_map(|run| run.throughput.as_ref());
    moved.any(|moved| moved.tx_bytes > 0 && moved.rx_bytes > 0)
}

pub(crate) fn hosts(measured: &Measurements) -> Vec<CpuScope> {
    let own = whose::own_cpus(measured);
    let names = whose::hosts(measured);
    match own {
        true if whose::one_way(measured) => {
            ["sender", "receiver"].map(|host| CpuScope::Host(host.to_owned())).into()
        }
        true if (1..=MANY).contains(&names.len()) => {
            names.into_iter().map(|name| CpuScope::Host(name.to_owned())).collect()
        }
        _ => vec![CpuScope::All],
    }
}
