//! `wan-tuning`: what a path achieves with each value of each factor, as "TCP performance optimization for 10 Gb/s LHCOPN
//! connections" (Ferrari and others, HEPiX 2006) reports it: throughput, convergence time, CPU of both ends.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::wan_tuning::{self, Block, CC, blocks, datagram_blocks};
use wirecost_model::document::{Axis, Cell, Chart, Column, Sample, Section, Series};
use wirecost_model::metric::Unit;

use super::Table;
use super::cells::{estimate, of, unanswered};
use super::rows::{ColumnOf, Rows};
use super::whose::{self, CpuScope};

pub(super) struct WanTuning;

impl Table for WanTuning {
    fn name(&self) -> &'static str {
        "wan-tuning"
    }

    fn help(&self) -> &'static str {
        "throughput, convergence and CPU of both ends, by factor, and the best setting"
    }

    fn concludes(&self) -> bool {
        true
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(Rows::by_axes(measured, figures(measured)))
    }
}

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("Tuning of a path");
    let (blocks, of_datagrams) = (blocks(measured), datagram_blocks(measured));
    if blocks.is_empty() && of_datagrams.is_empty() {
        section.text("There is no run at the base yet.");
        return section;
    }
    let conclusions = wan_tuning::conclusions(measured);
    for finding in conclusions.findings {
        section.finding(finding);
    }
    for block in &blocks {
        let mut table = table(block, figures(measured), true);
        table.title = block.title().unwrap_or_default();
        section.table(table);
    }
    for block in &of_datagrams {
        let mut table = table(block, figures_of_datagrams(measured), false);
        table.title = block.title().map_or("UDP".to_owned(), |title| format!("{title} of UDP"));
        section.table(table);
    }
    for chart in blocks.iter().filter_map(chart) {
        section.chart(chart);
    }
    section.text(
        "vs base: throughput relative to the base, which is the first row. offered: payload of UDP that is sent at a set rate; lost: \
         share of the datagrams. convergence: time from the start of traffic until \
         90% of windows of max(1 s, 20 RTT) lie within 10% of the mean of the last half. transfer time ratio, efficiency, buffer delay: RFC 6349. \
         busy: CPU time used at that end.",
    );
    if let Some(note) = whose::note(measured) {
        section.note(note);
    }
    unanswered(&mut section, conclusions.unanswered);
    section
}

/// A row for each value of each factor, the base first.
fn table(
    block: &Block<'_>,
    columns: Vec<ColumnOf>,
    compares: bool,
) -> wirecost_model::document::Table {
    let mut head = vec![Column::text("factor"), Column::text("value")];
    head.extend(columns.iter().map(|column| column.column.clone()));
    head.extend(compares.then(|| Column::number("vs base")));
    let rows = Rows { columns };
    let mut table = wirecost_model::document::Table::new(head);
    let mut row = |factor: &str, value: &str, point: &MeasuredPoint| {
        let mut cells = vec![Cell::text(factor), Cell::text(value)];
        cells.extend(rows.row(point));
        cells.extend(compares.then(|| relative(point, block.base)));
        table.row(cells);
    };
    row("base", "", block.base);
    for factor in &block.factors {
        for (value, point) in factor.levels.iter().filter(|(value, _)| *value != factor.base) {
            row(factor.axis, value, point);
        }
    }
    for point in &block.combined {
        row("together", &block.name(point), point);
    }
    table
}

fn relative(point: &MeasuredPoint, base: &MeasuredPoint) -> Cell {
    let throughput = |point| estimate(point, |run| of(run, "throughput"));
    match (throughput(point), throughput(base)) {
        (Ok(of), Ok(base)) if base.mean > 0.0 => Cell::number(Unit::Ratio, of.mean / base.mean),
        (Ok(_), Ok(_)) => Cell::Missing("the base moved nothing".to_owned()),
        (Err(reason), _) | (_, Err(reason)) => Cell::Missing(reason),
    }
}

fn figures(measured: &Measurements) -> Vec<ColumnOf> {
    let mut columns = vec![
        ColumnOf::metric("throughput", "throughput"),
        ColumnOf::metric("convergence", "convergence"),
        ColumnOf::metric("retransmits", "retransmits"),
        ColumnOf::metric("transfer time ratio", "rfc6349.transfer_time_ratio"),
        ColumnOf::metric("efficiency", "rfc6349.efficiency"),
        ColumnOf::metric("buffer delay", "rfc6349.buffer_delay"),
        ColumnOf::metric("fairness", "fairness"),
    ];
    columns.extend(of_ends(measured));
    columns
}

fn figures_of_datagrams(measured: &Measurements) -> Vec<ColumnOf> {
    let mut columns = vec![
        ColumnOf::metric("offered", "offered"),
        ColumnOf::metric("throughput", "throughput"),
        ColumnOf::metric("lost", "loss"),
    ];
    columns.extend(of_ends(measured));
    columns
}

/// What the traffic costs each end, or both together.
fn of_ends(measured: &Measurements) -> Vec<ColumnOf> {
    let mut columns = Vec::new();
    let scopes = match whose::own_cpus(measured) && whose::one_way(measured) {
        true => ["sender", "receiver"].map(|host| CpuScope::Host(host.to_owned())).to_vec(),
        false => vec![CpuScope::All],
    };
    for scope in scopes {
        let whose = match &scope {
            CpuScope::Host(host) => format!(" {host}"),
            CpuScope::All => String::new(),
        };
        columns.push(ColumnOf::metric(&format!("busy{whose}"), &scope.metric("cpu.busy")));
        let cost = scope.metric("cycles_per_kbyte");
        columns.push(ColumnOf::metric(&format!("cycles/KByte{whose}"), &cost));
    }
    columns
}

/// Throughput over time, from the start of traffic, by congestion control: of the first run of each.
fn chart(block: &Block<'_>) -> Option<Chart> {
    let factor = block.factor(CC)?;
    let series = factor.levels.iter().filter_map(|(name, point)| {
        let of = point.runs.first()?.convergence.as_ref()?;
        let sample = |(place, rate): (usize, &f64)| Sample {
            x: (place as f64 + 0.5) * of.window_seconds * 1e6,
            y: *rate,
        };
        let samples = of.windows.iter().enumerate().map(sample).collect();
        Some(Series::new(name, samples))
    });
    let title = match block.title() {
        Some(title) => format!("throughput since the start of traffic, {title}"),
        None => "throughput since the start of traffic".to_owned(),
    };
    let y = Axis::new("throughput", Unit::BitsPerSecond);
    let mut chart = Chart::over_time(&title, y, series.collect());
    chart.x.title = "time since the start of traffic".to_owned();
    Some(chart).filter(|chart| !chart.series.is_empty())
}
