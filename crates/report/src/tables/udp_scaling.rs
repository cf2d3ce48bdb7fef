//! `udp-scaling`: how many datagrams come how far with more pairs of CPUs, in the line of counts of "Receive side
//! scaling: testing UDP throughput" (Chadd, 2014).

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_model::document::{Cell, Column, Section};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use super::Table;
use super::cells::{at, ends, estimate, estimated, grouped, of};
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
        let axes = measured.axes().into_iter();
        let mut columns: Vec<ColumnOf> =
            axes.map(|axis| ColumnOf::setting(axis, measured)).collect();
        columns.extend(stages());
        Some(Rows { columns })
    }
}

/// The axis of the number of pairs.
const PAIRS: &str = "pairs";

/// What the server read is what scales.
const READ: &str = "frames.read";
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

/// The points that differ in the number of pairs only.
struct Group<'a> {
    common: Vec<Value>,
    /// With the number of pairs, ascending.
    points: Vec<(f64, &'a MeasuredPoint)>,
}

fn groups(measured: &Measurements) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for point in &measured.points {
        let Some(pairs) = point.point.get(PAIRS).and_then(|value| value.parse().ok()) else {
            continue;
        };
        let other = |axis: &&Value| axis.name != PAIRS && measured.values(&axis.name).len() > 1;
        let common: Vec<Value> = point.point.axes.iter().filter(other).cloned().collect();
        match groups.iter_mut().find(|group| group.common == common) {
            Some(group) => group.points.push((pairs, point)),
            None => groups.push(Group { common, points: vec![(pairs, point)] }),
        }
    }
    groups.iter_mut().for_each(|group| group.points.sort_by(|(a, _), (b, _)| a.total_cmp(b)));
    groups
}

/// Busy cycles of a host, or of all, by datagrams that the server read.
fn cost(end: Option<&str>) -> ColumnOf {
    let cycles = at(end, "cycles_per_operation");
    ColumnOf::new(Column::number("cycles/datagram"), move |point| {
        let each = estimate(point, |run| {
            let (cycles, read) = (of(run, &cycles)? * of(run, "operations")?, of(run, READ)?);
            if read > 0.0 { Ok(cycles / read) } else { Err("no datagram was read".to_owned()) }
        });
        estimated(each, Unit::Count, grouped)
    })
}

/// What each pair adds, and what each of all pairs does, as cells of the rows of a group.
fn efficiencies(group: &Group<'_>) -> Vec<[Cell; 2]> {
    let read: Result<Vec<(f64, f64)>, String> = group
        .points
        .iter()
        .map(|(pairs, point)| Ok((*pairs, estimate(point, |run| of(run, READ))?.mean)))
        .collect();
    let none = |reason: String| [Cell::Missing(reason.clone()), Cell::Missing(reason)];
    match read {
        Err(reason) => group.points.iter().map(|_| none(reason.clone())).collect(),
        Ok(read) => efficiency(&read)
            .into_iter()
            .map(|each| match each {
                Some((added, all)) => [added, all].map(|value| Cell::number(Unit::Ratio, value)),
                None => none("the others are relative to it".to_owned()),
            })
            .collect(),
    }
}

/// What each pair adds, relative to a pair of the first row: of the row and of all beside the first.
fn efficiency(points: &[(f64, f64)]) -> Vec<Option<(f64, f64)>> {
    let Some(&(first_pairs, first)) = points.first() else { return Vec::new() };
    let of_pair = first / first_pairs;
    let each = points.windows(2).map(|two| {
        let [(before, rate_before), (pairs, rate)] = *two else { return None };
        let added = (rate - rate_before) / (pairs - before) / of_pair;
        (of_pair > 0.0).then_some((added, rate / pairs / of_pair))
    });
    std::iter::once(None).chain(each).collect()
}

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("UDP by pairs of CPUs");
    let server = ends(measured, ["master", "peer"]).last().copied().flatten();
    for group in groups(measured) {
        let title: Vec<&str> = group.common.iter().map(|axis| axis.value.as_str()).collect();
        let mut columns = vec![ColumnOf::setting(PAIRS, measured)];
        columns.extend(stages());
        columns.push(cost(server));
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
    section.text(
        "On Linux, softirqs are off while a worker holds the lock of a socket's receive queue, so receiving on its own \
         CPU cannot interrupt it and then wait for it. Only other CPUs wait: workers that share a socket, and CPUs \
         that receive for it.",
    );
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efficiency_is_relative_to_a_pair_of_the_first_row() {
        // The seed's counts: nearly linear, then turbo boost and flow control.
        let good = [(1.0, 266e3), (2.0, 512e3), (3.0, 810e3), (4.0, 1.12e6)];
        let round = |each: Option<(f64, f64)>| {
            each.map(|(added, all)| ((added * 100.0).round(), (all * 100.0).round()))
        };
        let rounded =
            |points: &[(f64, f64)]| efficiency(points).into_iter().map(round).collect::<Vec<_>>();
        assert_eq!(
            rounded(&good),
            [None, Some((92.0, 96.0)), Some((112.0, 102.0)), Some((117.0, 105.0))]
        );
        let bad = [(1.0, 296e3), (2.0, 592e3), (3.0, 636e3), (4.0, 255e3)];
        assert_eq!(
            rounded(&bad),
            [None, Some((100.0, 100.0)), Some((15.0, 72.0)), Some((-129.0, 22.0))]
        );
        assert_eq!(rounded(&[(2.0, 10.0), (6.0, 20.0)]), [None, Some((50.0, 67.0))]);
        assert_eq!(rounded(&[(1.0, 0.0), (2.0, 20.0)]), [None, None]);
        assert_eq!(rounded(&[]), []);
    }
}
