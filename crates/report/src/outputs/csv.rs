//! `csv`: all tables below one another under one head, for spreadsheets and data frames.
//!
//! A row says in its first three fields which table it is of; what all rows of a table have in common is a
//! column too. A column is there once, however many tables
//! have it, named with its unit; numbers are in that unit, without prefixes. Where one of its figures has
//! an interval, two columns beside it have its ends. A field is empty where nothing was measured, which
//! the last field gives the reason of, and where its table has no such column. A finding is a row. Other
//! sentences are left out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use wirecost_model::document::{
    AxisScale, Block, Cell, Chart, Column, Document, Figure, Finding, Number, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::visible::visible_lines;

use super::{Output, TerminalStyle, summary};

#[derive(Debug)]
pub(super) struct Csv;

impl Output for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn help(&self) -> &'static str {
        "all tables under one head; a column has its unit, an interval has columns of its own"
    }

    fn write(&self, out: &mut dyn Write, document: &Document, _: &TerminalStyle) -> io::Result<()> {
        write(out, document)
    }
}

const FIRST: [&str; 3] = ["name", "section", "table"];
const LAST: &str = "not measured";

/// The fields of all rows, in the order in which they first come.
#[derive(Debug, Default)]
struct Fields {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Fields {
    fn place(&mut self, name: String) -> usize {
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        self.names.push(name.clone());
        self.places.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }
}

fn write(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    let mut fields = Fields::default();
    for name in FIRST {
        fields.place(name.to_owned());
    }
    // Which columns there are is known after the last row.
    let mut rows: Vec<(Vec<(usize, String)>, String)> = Vec::new();
    for (section, table) in &tables(document) {
        for of in &table.common {
            fields.place(of.name.clone());
        }
        for (place, column) in table.columns.iter().enumerate() {
            let cells = table.rows.iter().filter_map(|row| row.get(place));
            announce(&mut fields, &column.title, cells);
        }
        for row in &table.rows {
            let of = [&section.name, &section.title, &table.title];
            let mut written: Vec<(usize, String)> = of.into_iter().cloned().enumerate().collect();
            for of in &table.common {
                written.push((fields.place(of.name.clone()), of.value.clone()));
            }
            let mut missing = Vec::new();
            for (column, cell) in table.columns.iter().zip(row) {
                if let Cell::Missing(reason) = cell
                    && !reason.is_empty()
                {
                    missing.push(format!("{}: {reason}", column.title));
                }
                for (name, value) in values(&column.title, cell) {
                    written.push((fields.place(name), value));
                }
            }
            rows.push((written, missing.join("; ")));
        }
    }
    let mut writer = csv::Writer::from_writer(out);
    let width = fields.names.len();
    let names = fields.names.iter().map(|name| visible_lines(name));
    writer.write_record(names.chain([Cow::Borrowed(LAST)]).map(Cow::into_owned))?;
    for (written, missing) in rows {
        let mut record = vec![String::new(); width];
        for (place, value) in written {
            record[place] = value;
        }
        record.push(missing);
        writer.write_record(record.iter().map(|field| visible_lines(field).into_owned()))?;
    }
    writer.flush()
}

/// All that has numbers, as tables.
fn tables(document: &Document) -> Vec<(&Section, Cow<'_, Table>)> {
    let mut tables = Vec::new();
    for section in &document.sections {
        tables.extend(section.blocks.iter().filter_map(|block| {
            let table = match block {
                Block::Table(table) => Cow::Borrowed(table),
                Block::Figures(figures) => Cow::Owned(of_figures(figures)),
                Block::Chart(chart) => Cow::Owned(of_chart(chart)),
                Block::Finding(finding) => Cow::Owned(of_finding(finding)),
                Block::Flame(flame) => Cow::Owned(summary::of_flame(flame)),
                Block::FlameDifference(of) => Cow::Owned(summary::of_difference(of)),
                Block::Runs(list) => Cow::Owned(summary::of_runs(list)),
                Block::Text(_) | Block::Note(_) | Block::Message(_) => return None,
            };
            Some((section, table))
        }));
    }
    tables
}

/// One row, with a column for each figure.
fn of_figures(figures: &[Figure]) -> Table {
    let columns: Vec<Column> = figures.iter().map(|of| Column::text(&of.label)).collect();
    let mut table = Table::new(columns);
    table.row(figures.iter().map(|of| of.value.clone()).collect());
    // A part alone does not tell which figure it is of.
    for (figure, cell) in figures.iter().zip(table.rows.iter_mut().flatten()) {
        if let Cell::Parts(parts) = cell {
            for part in &mut parts.parts {
                part.name = format!("{} {}", figure.label, part.name);
            }
        }
    }
    table
}

/// One row. The columns are the same for all findings; what one lacks is empty.
fn of_finding(finding: &Finding) -> Table {
    let Finding { kind, metric, axis, at, sentence, effect, p_value, strength, evidence, .. } =
        finding;
    let text = |text: &Option<String>| Cell::text(text.as_deref().unwrap_or_default());
    let number = |value: Option<f64>| {
        value.map_or_else(Cell::empty, |value| Cell::written(Unit::Count, value, value.to_string()))
    };
    let effect = effect.as_ref();
    let interval = effect.and_then(|effect| effect.interval);
    let at: Vec<String> = at.iter().map(|of| format!("{}={}", of.name, of.value)).collect();
    let fields = [
        ("kind", Cell::text(kind.as_str())),
        ("axis", text(axis)),
        ("at", Cell::text(at.join(" "))),
        ("metric", text(metric)),
        ("effect", Cell::text(effect.map(|effect| effect.name.as_str()).unwrap_or_default())),
        ("value", number(effect.map(|effect| effect.value))),
        ("value low", number(interval.map(|(low, _)| low))),
        ("value high", number(interval.map(|(_, high)| high))),
        ("unit", Cell::text(effect.map(|effect| effect.unit.symbol()).unwrap_or_default())),
        ("p", number(*p_value)),
        ("strength", Cell::text(strength.map(|strength| strength.word()).unwrap_or_default())),
        ("sentence", Cell::text(sentence.as_str())),
        ("evidence", Cell::text(evidence.join("; "))),
    ];
    let (titles, cells): (Vec<&str>, Vec<Cell>) = fields.into_iter().unzip();
    let columns: Vec<Column> = titles.into_iter().map(Column::text).collect();
    let mut table = Table::new(columns);
    table.row(cells);
    table
}

/// A row for each sample.
fn of_chart(chart: &Chart) -> Table {
    let titles = [chart.x.title.as_str(), chart.y.title.as_str()];
    let mut table = Table::new([Column::text("series")]);
    table.columns.extend(titles.map(Column::number));
    table.title.clone_from(&chart.title);
    for series in &chart.series {
        for sample in &series.samples {
            let name = Cell::text(series.name.as_str());
            let (x, y) = (chart.x.unit, chart.y.unit);
            let x = match chart.x.scale {
                AxisScale::Names => Cell::text(chart.x.show(sample.x)),
                _ => Cell::number(x, sample.x),
            };
            table.row(vec![name, x, Cell::number(y, sample.y)]);
        }
    }
    table
}

/// So that the columns of a table stand in its order, whichever of its rows has which.
fn announce<'a>(fields: &mut Fields, title: &str, cells: impl Iterator<Item = &'a Cell>) {
    let mut any = false;
    for cell in cells {
        for (name, _) in values(title, cell) {
            fields.place(name);
            any = true;
        }
    }
    if !any {
        fields.place(title.to_owned());
    }
}

/// The fields that a cell fills.
fn values(title: &str, cell: &Cell) -> Vec<(String, String)> {
    match cell {
        Cell::Text(text) if text.is_empty() => Vec::new(),
        Cell::Text(text) => vec![(title.to_owned(), text.clone())],
        Cell::Marked(marked) => vec![(title.to_owned(), marked.text.clone())],
        Cell::Set(set) => vec![(title.to_owned(), set.text.clone())],
        Cell::Number(number) => figure(title, number),
        Cell::Parts(parts) if parts.parts.is_empty() => {
            vec![(title.to_owned(), parts.text.clone())]
        }
        Cell::Parts(parts) => {
            parts.parts.iter().flat_map(|part| figure(&part.name, &part.number)).collect()
        }
        Cell::Missing(_) => Vec::new(),
    }
}

fn figure(title: &str, number: &Number) -> Vec<(String, String)> {
    let unit = match number.unit {
        // It stands in the title already, or there is none.
        Unit::CyclesPerKByte | Unit::Count | Unit::Ratio => String::new(),
        unit if title.ends_with(unit.symbol()) => String::new(),
        unit => format!(" ({})", unit.symbol()),
    };
    // The unit of a title is that of the text.
    let title = match title.rsplit_once(" (") {
        Some((name, _)) if !unit.is_empty() => name,
        _ => title,
    };
    let mut fields = vec![(format!("{title}{unit}"), number.value.to_string())];
    if let Some((low, high)) = number.interval {
        fields.push((format!("{title} low{unit}"), low.to_string()));
        fields.push((format!("{title} high{unit}"), high.to_string()));
    }
    fields
}
