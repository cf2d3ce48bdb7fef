//! `tcp-transmit`: what TCP costs by connections and write size, as the network characterization
//! suite of Solaris tabled it: a table for each write size, and each MTU, with the columns of old.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::{self, Selector};
use wirecost_model::document::{Block, Cell, Column, Part, Parts, Section};
use wirecost_model::metric::Unit;
use wirecost_model::study::{LOAD, Value};
use wirecost_model::{study, units};

use super::Table;
use super::cells::of_estimate;
use super::rows::{ColumnOf, Rows, other_axes};
use super::whose::{self, CpuScope};

pub(super) struct TcpTransmit;

impl Table for TcpTransmit {
    fn name(&self) -> &'static str {
        "tcp-transmit"
    }

    fn help(&self) -> &'static str {
        "connections, window, CPU split, cycles/Kbyte, throughput, by write size and MTU"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(live(measured))
    }
}

const SIZE: &str = "size";
const MTU: &str = "tune.mtu";
const CONNECTIONS: &str = "connections";
pub(super) const WINDOW: &str = "option.wndsz";
const PACED: &str = "TCP Transmit tests at a part of the throughput that saturates";

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("TCP transmit");
    let whose = match whose::own_cpus(measured) {
        true => ["sender", "receiver"].map(|host| CpuScope::Host(host.to_owned())).to_vec(),
        false => vec![CpuScope::All],
    };
    for (size, mtu) in tabled(measured) {
        let points = || saturated(measured).filter(|point| of_table(point) == (size, mtu));
        for whose in &whose {
            let mut title = "TCP Transmit tests using wirecost".to_owned();
            let size_text =
                size.map(|size| format!("write size = {}", written(size).to_uppercase()));
            let mtu_text =
                mtu.filter(|_| has_several_mtus(measured)).map(|mtu| format!("MTU = {mtu}"));
            let texts: Vec<String> = size_text.into_iter().chain(mtu_text).collect();
            if !texts.is_empty() {
                title += &format!(" with {}", texts.join(" and "));
            }
            if let CpuScope::Host(host) = whose {
                title += &format!(": {host}");
            }
            let mut table = rows(measured, whose).table(&title, points());
            table.common.extend(size.map(|size| Value::new(SIZE, size)));
            table.common.extend(mtu.map(|mtu| Value::new(MTU, mtu)));
            table.common.push(whose.value());
            section.table(table);
        }
    }
    if measured.points.iter().any(|point| point.point.is_paced()) {
        for whose in &whose {
            let title = match whose {
                CpuScope::Host(host) => format!("{PACED}: {host}"),
                CpuScope::All => PACED.to_owned(),
            };
            let paced = measured.points.iter().filter(|point| point.point.is_paced());
            let mut table = rows_of_all(measured, whose).table(&title, paced);
            table.common.push(whose.value());
            section.table(table);
        }
    }
    let notes = whose::note(measured).map(str::to_owned).into_iter().chain(effective(measured));
    section.blocks.extend(notes.map(Block::Text));
    section
}

/// Points whose load is as fast as it can be.
fn saturated(measured: &Measurements) -> impl Iterator<Item = &MeasuredPoint> {
    measured.points.iter().filter(|point| !point.point.is_paced())
}

/// Write size and MTU, each `None` at points that set none.
type OfTable<'a> = (Option<&'a str>, Option<&'a str>);

fn of_table(point: &MeasuredPoint) -> OfTable<'_> {
    (point.point.get(SIZE), point.point.get(MTU))
}

/// Of saturated points, in the order in which they come.
fn tabled(measured: &Measurements) -> Vec<OfTable<'_>> {
    let mut all = Vec::new();
    for of_table in saturated(measured).map(of_table) {
        if !all.contains(&of_table) {
            all.push(of_table);
        }
    }
    all
}

fn has_several_mtus(measured: &Measurements) -> bool {
    measured.values(MTU).len() > 1
}

fn rows(measured: &Measurements, whose: &CpuScope) -> Rows {
    let mut columns = other_axes(measured, &[SIZE, MTU, CONNECTIONS, WINDOW, LOAD]);
    columns.push(connections("#conn"));
    columns.push(window("Wnd"));
    columns.push(split(whose));
    columns.push(ColumnOf::metric("cycles/Kbyte", &whose.metric("cycles_per_kbyte")));
    columns.push(ColumnOf::metric("Throughput", "throughput"));
    Rows { columns }
}

/// With the size, the MTU and the load in each row.
fn rows_of_all(measured: &Measurements, whose: &CpuScope) -> Rows {
    let mut rows = rows(measured, whose);
    if has_several_mtus(measured) {
        let mut mtu = ColumnOf::setting(MTU, measured);
        mtu.column.title = "MTU".to_owned();
        rows.columns.insert(0, mtu);
    }
    rows.columns.insert(0, size_column());
    if measured.points.iter().any(|point| point.point.is_paced()) {
        rows.columns.insert(1, load_column());
    }
    rows
}

fn size_column() -> ColumnOf {
    ColumnOf::new(Column::number(SIZE), |point| match point.point.get(SIZE) {
        Some(size) => Cell::set(&written(size)),
        None => Cell::set("-"),
    })
}

fn load_column() -> ColumnOf {
    ColumnOf::new(Column::number(LOAD), |point| Cell::set(point.point.get(LOAD).unwrap_or("max")))
}

/// As points come in any order, each row has its write size; of the sender, where that can be told.
fn live(measured: &Measurements) -> Rows {
    let whose = match whose::own_cpus(measured) {
        true => CpuScope::Host("sender".to_owned()),
        false => CpuScope::All,
    };
    rows_of_all(measured, &whose)
}

/// Connections as they were asked for, or else as they were open.
pub(super) fn connections(title: &str) -> ColumnOf {
    ColumnOf::new(Column::number(title), |point| match point.point.get(CONNECTIONS) {
        Some(connections) => Cell::set(connections),
        None => match metrics::find("connections").map(|selector| point.estimate(&selector)) {
            Ok(Ok(open)) => Cell::set(&format!("{:.0}", open.mean)),
            Ok(Err(reason)) => Cell::Missing(reason),
            Err(unknown) => Cell::Missing(unknown.to_string()),
        },
    })
}

/// The window that was asked for; `auto` where the kernel chooses it.
pub(super) fn window(title: &str) -> ColumnOf {
    ColumnOf::new(Column::number(title), |point| {
        let set = point.point.get(WINDOW).filter(|window| *window != "false");
        let selector = || {
            let settings = point.runs.iter().flat_map(|run| &run.settings);
            let mut windows = settings.filter(|setting| setting.name.starts_with("wndsz"));
            windows.next().map(|setting| setting.requested.as_str())
        };
        match set.or_else(selector) {
            Some(window) => Cell::set(&written(window)),
            None => Cell::set("auto"),
        }
    })
}

/// A size as one writes it: 65536 is `64k`.
fn written(size: &str) -> String {
    match study::number(size) {
        Some(bytes) if bytes >= 0.0 && bytes.fract() == 0.0 => units::binary(bytes as u64),
        _ => size.to_owned(),
    }
}

/// `(usr/sys/intr/idle)` in whole percent.
fn split(whose: &CpuScope) -> ColumnOf {
    let selector = ["usr", "sys", "intr", "idle"].map(|name| {
        let selector = metrics::find(&whose.metric(&format!("cpu.{name}")));
        (name, selector.map_err(|unknown| unknown.to_string()))
    });
    ColumnOf::new(Column::number("(usr/sys/intr/idle)"), move |point| {
        let part = |(name, selector): &(&'static str, Result<Selector, String>)| {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            Ok((*name, point.estimate(selector)?))
        };
        let parts: Result<Vec<(&str, Estimate)>, String> = selector.iter().map(part).collect();
        match parts {
            Err(reason) => Cell::Missing(reason),
            Ok(parts) => Cell::Parts(Parts {
                text: {
                    let whole: Vec<String> =
                        parts.iter().map(|(_, of)| format!("{:.0}", of.mean.abs())).collect();
                    format!("({})", whole.join("/"))
                },
                parts: parts
                    .iter()
                    .map(|(name, of)| Part {
                        name: (*name).to_owned(),
                        number: of_estimate(Unit::Percent, of),
                    })
                    .collect(),
            }),
        }
    })
}

/// Where the effective window is not the requested one.
pub(super) fn effective(measured: &Measurements) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let settings = measured.points.iter().flat_map(|point: &MeasuredPoint| &point.runs);
    for setting in settings.flat_map(|run| &run.settings) {
        if setting.name.starts_with("wndsz") && setting.requested != setting.effective {
            let note = format!(
                "Wnd {}: effective buffer on {}: {} ({}).",
                written(&setting.requested),
                setting.host,
                written(&setting.effective),
                setting.name
            );
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}
