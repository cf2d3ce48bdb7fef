//! `http-get`: how a server scales with its clients, in the columns of uperf's first presentation. How
//! far it scales is a finding.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_model::document::{Block, Cell, Column, Number, Section};
use wirecost_model::metric::Unit;

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
        "connections, window, CPU of the server, Mbps"
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
