//! `http-get`: how a server scales with its clients, in the columns of uperf's first presentation,
//! and how far.

use wirecost_analyze::Estimate;
use wirecost_analyze::knee::{self, After, Knee};
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_model::document::{Block, Cell, Column, Number, Section};
use wirecost_model::metric::Unit;
use wirecost_model::units;

use super::Table;
use super::cells::of_estimate;
use super::rows::{ColumnOf, Rows, other_axes};
use super::tcp_transmit::{WINDOW, connections, effective, window};
use super::whose::{self, CpuScope};

pub(super) struct HttpGet;

impl Table for HttpGet {
    fn name(&self) -> &'static str {
        "http-get"
    }

    fn help(&self) -> &'static str {
        "connections, window, CPU of the server, Mbps; how far it scales"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }
}

const CONNECTIONS: &str = "connections";

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("HTTP GET");
    let title = "wirecost tests using the HTTP GET network profile";
    let mut table = rows(measured).table(title, &measured.points);
    table.common.push(server(measured).value());
    section.table(table);
    for sentence in scaling(measured) {
        section.text(sentence);
    }
    let whose = whose::note(measured).unwrap_or("CPU time is that of the server.");
    section.text(format!("{whose} cpu(sys) includes interrupts."));
    section.blocks.extend(effective(measured).into_iter().map(Block::Text));
    section
}

fn rows(measured: &Measurements) -> Rows {
    let whose = server(measured);
    let mut columns = other_axes(measured, &[CONNECTIONS, WINDOW]);
    columns.push(connections("#Conn"));
    columns.push(window("Wnd"));
    columns.push(percent("cpu(usr)", &whose, &["cpu.usr"]));
    columns.push(percent("cpu(sys)", &whose, &["cpu.sys", "cpu.intr"]));
    columns.push(percent("cpu(idle)", &whose, &["cpu.idle"]));
    columns.push(ColumnOf::new(Column::number("Throughput (Mbps)"), |point| {
        match sum(point, &["throughput".to_owned()]) {
            Ok(of) => {
                let text = format!("{:.2}", of.mean / 1e6);
                Cell::Number(Number::with_text(Unit::BitsPerSecond, of.mean, of.interval, &text))
            }
            Err(reason) => Cell::Missing(reason),
        }
    }));
    Rows { columns }
}

/// Who serves sends more than it is asked for.
fn server(measured: &Measurements) -> CpuScope {
    match whose::own_cpus(measured) {
        true => CpuScope::Host("sender".to_owned()),
        false => CpuScope::All,
    }
}

/// The sum of metrics, in whole percent.
fn percent(title: &str, whose: &CpuScope, names: &[&str]) -> ColumnOf {
    let names: Vec<String> = names.iter().map(|name| whose.metric(name)).collect();
    ColumnOf::new(Column::number(title), move |point| match sum(point, &names) {
        Ok(of) => {
            let text = format!("{:.0}", of.mean.abs());
            // An interval would be wider than the column; documents have it.
            let number = of_estimate(Unit::Percent, &of);
            Cell::Number(Number { text, ..number })
        }
        Err(reason) => Cell::Missing(reason),
    })
}

/// Of each run the sum of these metrics, and of the runs the mean.
fn sum(point: &MeasuredPoint, names: &[String]) -> Result<Estimate, String> {
    let selector: Vec<metrics::Selector> = names
        .iter()
        .map(|name| metrics::find(name).map_err(|unknown| unknown.to_string()))
        .collect::<Result<_, _>>()?;
    for selector in &selector {
        point.estimate(selector)?;
    }
    let of = |run| selector.iter().map(|selector| selector.of(run)).sum::<Result<f64, String>>();
    let sums: Vec<f64> = point.runs.iter().filter_map(|run| of(run).ok()).collect();
    Estimate::of(&sums).ok_or_else(|| "no run has all its parts".to_owned())
}

/// A sentence for each value of the other axes.
fn scaling(measured: &Measurements) -> Vec<String> {
    let Ok(throughput) = metrics::find("throughput") else { return Vec::new() };
    let mut groups: Vec<(String, Vec<(f64, Estimate)>)> = Vec::new();
    for point in &measured.points {
        let at = (point.point.number(CONNECTIONS), point.estimate(&throughput));
        let (Some(connections), Ok(done)) = at else { continue };
        let other = point
            .point
            .axes
            .iter()
            .filter(|axis| axis.name != CONNECTIONS && measured.values(&axis.name).len() > 1);
        let other: Vec<String> =
            other.map(|axis| format!("{}={}", axis.name, axis.value)).collect();
        let other = other.join(" ");
        match groups.iter_mut().find(|(known, _)| *known == other) {
            Some((_, points)) => points.push((connections, done)),
            None => groups.push((other, vec![(connections, done)])),
        }
    }
    let sentence = |(other, points): &(String, Vec<(f64, Estimate)>)| {
        let of = if other.is_empty() { String::new() } else { format!("{other}: ") };
        match knee::knee(points) {
            Ok(knee) => format!("{of}{}", words(&knee, points)),
            Err(reason) => format!("{of}Scalability is unknown: {reason}."),
        }
    };
    groups.iter().map(sentence).collect()
}

fn words(knee: &Knee, points: &[(f64, Estimate)]) -> String {
    let count = |load: f64| units::counted(load.round() as u64, "connection", "connections");
    let rate = units::bit_rate;
    let least = points.iter().map(|(load, _)| *load).fold(f64::INFINITY, f64::min);
    let (load, there) = (count(knee.load), rate(knee.there));
    match knee.after {
        After::Nothing => format!("Throughput still grows at {load}, the largest load: {there}."),
        After::Level if knee.load <= least => {
            format!("Throughput does not grow beyond {load}: {there}, within 5% of the best.")
        }
        After::Level => format!(
            "It scales to about {load}, {there}; from there on throughput is not distinguishable from the \
             best, {}.",
            rate(knee.best)
        ),
        After::Falls { load: from, least } => format!(
            "It scales to about {load}, {there}, which is not distinguishable from the best, {}. From {} \
             on it falls, down to {}.",
            rate(knee.best),
            count(from),
            rate(least)
        ),
    }
}
