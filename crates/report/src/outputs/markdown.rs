//! `markdown`: tables as GitHub shows them.

use std::io::{self, Write};

use super::Output;
use super::notes::Notes;
use crate::document::{Align, Block, Report, Table};

pub(super) const OUTPUT: Output =
    Output { name: "markdown", help: "tables as GitHub shows them", write };

fn write(out: &mut dyn Write, report: &Report, _: &crate::terminal::Look) -> io::Result<()> {
    writeln!(out, "# {}", escape(&report.title))?;
    for section in &report.sections {
        writeln!(out, "\n## {}", escape(&section.title))?;
        let mut notes = Notes::default();
        for block in &section.blocks {
            writeln!(out)?;
            match block {
                Block::Table(table) => self::table(out, table, &mut notes)?,
                Block::Text(text) => writeln!(out, "{}", escape(text))?,
            }
        }
        if !notes.is_empty() {
            writeln!(out)?;
        }
        for (number, reason) in notes.iter() {
            writeln!(out, "- [{number}] not measured: {}", escape(reason))?;
        }
    }
    Ok(())
}

fn table(out: &mut dyn Write, table: &Table, notes: &mut Notes) -> io::Result<()> {
    if !table.title.is_empty() {
        writeln!(out, "**{}**\n", escape(&table.title))?;
    }
    let titles = table.columns.iter().map(|column| escape(&column.title));
    writeln!(out, "| {} |", titles.collect::<Vec<_>>().join(" | "))?;
    let rules = table.columns.iter().map(|column| match column.align {
        Align::Left => ":---",
        Align::Right => "---:",
    });
    writeln!(out, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
    for row in &table.rows {
        let cells = row.iter().map(|cell| notes.cell(cell, escape));
        writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
    }
    Ok(())
}

/// What would end a cell or mean something; a line stays one.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '[' | ']' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
