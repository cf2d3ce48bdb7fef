//! `responsiveness`: round trips of probes while the path is idle and loaded, with grades and RPM.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::responsiveness::{
    self, GRADES, Grade, Group, Load, LoadedPoint, PROFILE, Responsiveness, groups, request,
};
use wirecost_model::document::{Cell, Column, Number, Section, Table as DocumentTable};
use wirecost_model::metric::Unit;
use wirecost_model::run::Latency;

use super::Table;
use super::cells::{estimate, mean, unanswered};
use super::rows::{ColumnOf, Rows};

pub(super) struct Latencies;

impl Table for Latencies {
    fn name(&self) -> &'static str {
        "responsiveness"
    }

    fn help(&self) -> &'static str {
        "latency while the path is idle and loaded, with grades and RPM"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(Rows::by_axes(measured, rates().into_iter().chain(percentiles())))
    }
}

fn rates() -> [ColumnOf; 2] {
    [ColumnOf::metric("upload", "throughput.tx"), ColumnOf::metric("download", "throughput.rx")]
}

/// Of the round trips of requests.
fn percentiles() -> [ColumnOf; 3] {
    let column = |title, of: fn(&Latency) -> f64| {
        ColumnOf::new(Column::number(title), move |point: &MeasuredPoint| {
            let each = estimate(point, |run| Ok(of(request(run)?)));
            mean(Unit::Microseconds, each)
        })
    };
    [column("p50", |of| of.p50), column("p90", |of| of.p90), column("p99", |of| of.p99)]
}

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("Round trips, grades and RPM");
    let groups = groups(measured);
    if groups.is_empty() {
        section.text(format!("There is no valid run of the profile {PROFILE} yet."));
        return section;
    }
    let conclusions = responsiveness::conclusions(measured);
    for finding in conclusions.findings {
        section.finding(finding);
    }
    for group in &groups {
        section.table(latencies(group));
    }
    for group in &groups {
        section.table(parts(group));
    }
    let grades: Vec<String> =
        GRADES.iter().map(|grade| format!("{} {}", grade.name, grade.range())).collect();
    section.text(format!(
        "p50 to p99: round trips of small requests on their own connections. vs idle: increase of p50. Grades: thresholds of \
         dslreports.com for this increase: {}.",
        grades.join(", ")
    ));
    section.text(
        "RPM: round trips per minute as in draft-ietf-ippm-responsiveness-09, but with wirecost's requests over TCP or TLS, not \
         HTTP/2, and with a fixed number of streams. Its parts are means of the shortest 95%: TCP and TLS \
         handshakes, requests on new connections, and, in place of requests on the loaded connections, the kernel's \
         smoothed RTT of the streams.",
    );
    unanswered(&mut section, conclusions.unanswered);
    section
}

/// Puts the load of each point before its row.
fn with_load(mut table: DocumentTable, points: &[&LoadedPoint<'_>]) -> DocumentTable {
    table.columns.insert(0, Column::text("load"));
    for (row, loaded) in table.rows.iter_mut().zip(points) {
        row.insert(0, Cell::text(loaded.streams()));
    }
    table
}

fn title(group: &Group<'_>, what: &str) -> String {
    let values: Vec<String> =
        group.common.iter().map(|axis| format!("{}={}", axis.name, axis.value)).collect();
    match values.is_empty() {
        true => what.to_owned(),
        false => format!("{what}, {}", values.join(" ")),
    }
}

fn latencies(group: &Group<'_>) -> DocumentTable {
    let columns = rates().into_iter().chain(percentiles()).collect();
    let points = group.points.iter().map(|of| of.point);
    let mut table = Rows { columns }.table(&title(group, "round trips of requests"), points);
    table.columns.extend([Column::number("vs idle"), Column::text("grade")]);
    for (row, loaded) in table.rows.iter_mut().zip(&group.points) {
        if loaded.load == Load::Idle {
            row.extend([Cell::empty(), Cell::empty()]);
            continue;
        }
        match group.increase(loaded.point) {
            Ok(Estimate { mean, interval, .. }) => {
                row.push(Cell::Number(Number::estimate(Unit::Microseconds, mean, interval)));
                row.push(Cell::text(Grade::of(mean).name));
            }
            Err(reason) => row.extend([Cell::Missing(reason.clone()), Cell::Missing(reason)]),
        }
    }
    with_load(table, &group.points.iter().collect::<Vec<_>>())
}

fn parts(group: &Group<'_>) -> DocumentTable {
    type Part = fn(&Responsiveness) -> Result<f64, String>;
    let column = |title: &str, unit, of: Part| {
        ColumnOf::new(Column::number(title), move |point: &MeasuredPoint| {
            mean(unit, estimate(point, |run| of(&responsiveness::responsiveness(run)?)))
        })
    };
    let mut columns = vec![column("TCP handshake", Unit::Microseconds, |of| Ok(of.tcp))];
    let encrypts =
        group.points.iter().any(|of| of.point.runs.iter().any(|run| run.crypto.is_some()));
    if encrypts {
        columns.push(column("TLS handshake", Unit::Microseconds, |of| {
            of.tls.ok_or_else(|| "TLS is not used".to_owned())
        }));
    }
    columns.push(column("request", Unit::Microseconds, |of| Ok(of.request)));
    columns.push(column("RTT of streams", Unit::Microseconds, |of| Ok(of.own)));
    columns.push(column("RPM (not HTTP/2)", Unit::Count, |of| Ok(of.rpm().round())));
    let loaded: Vec<&LoadedPoint<'_>> =
        group.points.iter().filter(|of| of.load != Load::Idle).collect();
    let points = loaded.iter().map(|of| of.point);
    let table = Rows { columns }.table(&title(group, "RPM and its parts"), points);
    with_load(table, &loaded)
}
