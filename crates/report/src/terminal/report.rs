//! A report on a terminal: its tables whole, in parts where they are too wide, and under them why
//! something was not measured.

use std::borrow::Cow;
use std::io::{self, Write};

use super::columns::{Table, column, width};
use super::labelled;
use super::look::Look;
use crate::document::{self, Align, Block, Cell, Column, Report};
use crate::outputs::notes::Notes;

/// Writes a report.
pub fn write(out: &mut dyn Write, report: &Report, look: &Look) -> io::Result<()> {
    for line in look.wrap(0, &clean(&report.title)) {
        writeln!(out, "{}", look.title(&line))?;
    }
    for section in &report.sections {
        writeln!(out)?;
        for line in look.wrap(0, &clean(&section.title)) {
            writeln!(out, "{}", look.title(&line))?;
        }
        let mut notes = Notes::default();
        let mut after = None;
        for block in &section.blocks {
            match (block, after) {
                (Block::Table(_), Some(_)) | (Block::Text(_), Some(true)) => writeln!(out)?,
                _ => {}
            }
            match block {
                Block::Table(table) => self::table(out, table, &mut notes, look)?,
                Block::Text(text) => {
                    for line in look.wrap(2, &clean(text)) {
                        writeln!(out, "  {line}")?;
                    }
                }
            }
            after = Some(matches!(block, Block::Table(_)));
        }
        if !notes.is_empty() && after == Some(true) {
            writeln!(out)?;
        }
        for (number, reason) in notes.iter() {
            let label = format!("  [{number}]");
            let width = label.len() + 1;
            labelled(out, look, &label, width, &format!("not measured: {}", clean(reason)))?;
        }
    }
    Ok(())
}

fn table(
    out: &mut dyn Write,
    table: &document::Table,
    notes: &mut Notes,
    look: &Look,
) -> io::Result<()> {
    for line in look.wrap(2, &clean(&table.title)) {
        writeln!(out, "  {line}")?;
    }
    let columns: Vec<_> =
        table.columns.iter().map(|of| column(&clean(&of.title), of.align == Align::Left)).collect();
    let mut lines = Table::new(&columns);
    for row in &table.rows {
        lines.whole_row(
            row.iter().map(|cell| notes.cell(cell, |text| clean(text).into())).collect(),
        );
    }
    lines.write_whole(out, look, table.keys())
}

/// What would move the cursor or change colours is not for a terminal, whoever named a host so.
fn clean(text: &str) -> Cow<'_, str> {
    match text.contains(|c: char| c.is_control() && c != '\n') {
        false => Cow::Borrowed(text),
        true => text.replace(|c: char| c.is_control(), "\u{fffd}").into(),
    }
}

/// Rows that are written one by one, before it is known how wide they become.
#[derive(Debug)]
pub struct Lines {
    columns: Vec<(Column, usize)>,
}

/// Room for what was set, and for a figure with its interval.
const SET: usize = 6;
const FIGURE: usize = 14;

impl Lines {
    /// Of these columns, as many of the first as the width holds; the table at the end has them all.
    #[must_use]
    pub fn new(head: &[Column], keys: usize, look: &Look) -> Self {
        let mut left = look.width;
        let mut columns = Vec::new();
        for (place, of) in head.iter().enumerate() {
            let wide = width(&of.title).max(if place < keys { SET } else { FIGURE });
            let Some(rest) = left.checked_sub(wide + 2) else { break };
            left = rest;
            columns.push((of.clone(), wide));
        }
        Self { columns }
    }

    #[must_use]
    pub fn head(&self) -> String {
        self.line(self.columns.iter().map(|(of, _)| of.title.as_str()))
    }

    #[must_use]
    pub fn row(&self, cells: &[Cell]) -> String {
        self.line(cells.iter().map(Cell::shown))
    }

    fn line<'a>(&self, texts: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for ((of, wide), text) in self.columns.iter().zip(texts) {
            let text = clean(text);
            let blank = " ".repeat(wide.saturating_sub(width(&text)));
            match of.align {
                Align::Left => line.extend(["  ", &text, &blank]),
                Align::Right => line.extend(["  ", &blank, &text]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}
