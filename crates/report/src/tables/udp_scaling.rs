//! `udp-scaling`: how many datagrams come how far with more pairs of CPUs, in the line of counts of "Receive side
//! scaling: testing UDP throughput" (Chadd, 2014).

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::udp_scaling::{self, Added, Group, PAIRS, READ, groups};
use wirecost_model::document::{Cell, Column, Number, Section};
use wirecost_model::metric::Unit;

use super::Table;
use super::cells::{ends, estimate, estimated, grouped, of, unanswered};
use super::rows::{ColumnOf, Rows};

pub(super) struct UdpScaling;

impl Table for UdpScaling {
    fn name(&self) -> &'static str {
        "udp-scaling"
    }

    fn help(&self) -> &'static str {
        "datagrams per second at each stage, and efficiency, by pairs of CPUs"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(Rows::by_axes(measured, stages()))
    }
}

const STAGES: [(&str, &str); 6] = [
    ("generated", "frames.generated"),
    ("received", "frames.received"),
    ("seen by server", READ),
    ("responses", "answers.generated"),
    ("sent by device", "answers.sent"),
    ("read by client", "answers.read"),
];

fn stages() -> impl Iterator<Item = ColumnOf> {
    STAGES.into_iter().map(|(title, metric)| {
        ColumnOf::new(Column::number(title), move |point| {
            estimated(estimate(point, |run| of(run, metric)), Unit::PerSecond, grouped)
        })
    })
}

/// Busy cycles of the server, or of all hosts, by datagrams that it read.
fn cost(of_server: bool) -> ColumnOf {
    ColumnOf::new(Column::number("cycles/datagram"), move |point| {
        let each = estimate(point, |run| udp_scaling::cycles_per_datagram(run, of_server));
        estimated(each, Unit::Count, grouped)
    })
}

/// What each pair adds, and what each of all pairs does, as cells of the rows of a group.
fn efficiencies(group: &Group<'_>) -> Vec<[Cell; 2]> {
    let read: Result<Vec<(f64, Estimate)>, String> = group
        .points
        .iter()
        .map(|(pairs, point)| Ok((*pairs, estimate(point, |run| of(run, READ))?)))
        .collect();
    let none = |reason: String| [Cell::Missing(reason.clone()), Cell::Missing(reason)];
    match read {
        Err(reason) => group.points.iter().map(|_| none(reason.clone())).collect(),
        Ok(read) => udp_scaling::efficiency(&read)
            .into_iter()
            .map(|each| match each {
                Some(step) => {
                    let Added { ratio, interval } = step.added;
                    let added = Number::estimate(Unit::Ratio, ratio, interval);
                    [Cell::Number(added), Cell::number(Unit::Ratio, step.per_pair)]
                }
                None => none("the others are relative to it".to_owned()),
            })
            .collect(),
    }
}

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("UDP by pairs of CPUs");
    let server = ends(measured, ["master", "peer"]).last().copied().flatten();
    for group in groups(measured) {
        let title: Vec<&str> = group.common.iter().map(|axis| axis.value.as_str()).collect();
        let mut columns = vec![ColumnOf::setting(PAIRS, measured)];
        columns.extend(stages());
        columns.push(cost(server.is_some()));
        let points = group.points.iter().map(|(_, point)| *point);
        let mut table = Rows { columns }.table(&title.join(", "), points);
        table.columns.extend(["per added pair", "per pair"].map(Column::number));
        for (row, cells) in table.rows.iter_mut().zip(efficiencies(&group)) {
            row.extend(cells);
        }
        table.common = group.common;
        section.table(table);
    }
    section.text(format!(
        "datagrams per second in the window, at the stages of docs/udp.md; cycles/datagram: busy cycles {} per \
         datagram that the server read; per added pair, per pair: what the server read by each pair beyond the row \
         above, and by each of all pairs, relative to a pair of the first row.",
        if server.is_some() { "of the server" } else { "of all hosts" }
    ));
    let conclusions = udp_scaling::conclusions(measured);
    for finding in conclusions.findings {
        section.finding(finding);
    }
    unanswered(&mut section, conclusions.unanswered);
    section
}
