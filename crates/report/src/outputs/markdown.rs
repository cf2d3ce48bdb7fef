//! `markdown`: tables as GitHub shows them.

use std::io::{self, Write};

use wirecost_model::document::{Align, Block, Document, Figure, Finding, Message, Section, Table};
use wirecost_model::visible::{visible, visible_lines};

use super::notes::Notes;
use super::{Output, TerminalStyle, summary};

#[derive(Debug)]
pub(super) struct Markdown;

impl Output for Markdown {
    fn name(&self) -> &'static str {
        "markdown"
    }

    fn help(&self) -> &'static str {
        "tables as GitHub shows them"
    }

    fn write(&self, out: &mut dyn Write, document: &Document, _: &TerminalStyle) -> io::Result<()> {
        writeln!(out, "# {}", escape(&document.title))?;
        for section in &document.sections {
            if !section.title.is_empty() {
                writeln!(out, "\n## {}", escape(&section.title))?;
            }
            self::section(out, section)?;
        }
        Ok(())
    }
}

fn section(out: &mut dyn Write, section: &Section) -> io::Result<()> {
    let mut notes = Notes::default();
    for block in &section.blocks {
        writeln!(out)?;
        match block {
            Block::Table(table) => self::table(out, table, &mut notes)?,
            Block::Text(text) => writeln!(out, "{}", escape(text))?,
            Block::Figures(figures) => self::figures(out, figures, &mut notes)?,
            Block::Chart(chart) => table(out, &summary::of(chart), &mut notes)?,
            Block::Flame(flame) => table(out, &summary::of_flame(flame), &mut notes)?,
            Block::FlameDifference(of) => table(out, &summary::of_difference(of), &mut notes)?,
            Block::Runs(list) => table(out, &summary::of_runs(list), &mut notes)?,
            Block::Note(text) => writeln!(out, "_{}_", escape(text))?,
            Block::Message(message) => self::message(out, message)?,
            Block::Finding(finding) => {
                let Finding { sentence, .. } = finding;
                writeln!(out, "- {}\n  _{}_", escape(sentence), escape(&finding.support()))?;
            }
        }
    }
    if !notes.is_empty() {
        writeln!(out)?;
    }
    for (number, reason) in notes.iter() {
        writeln!(out, "- [{number}] not measured: {}", escape(reason))?;
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
        writeln!(out, "| {} |", notes.row(row, escape).join(" | "))?;
    }
    Ok(())
}

fn figures(out: &mut dyn Write, figures: &[Figure], notes: &mut Notes) -> io::Result<()> {
    for figure in figures {
        let value = notes.cell(&figure.value, escape);
        writeln!(out, "- **{}**: {value}", escape(&figure.label))?;
    }
    Ok(())
}

fn message(out: &mut dyn Write, message: &Message) -> io::Result<()> {
    match message.label.as_str() {
        "" => writeln!(out, "> **{}**", escape(&message.text))?,
        label => writeln!(out, "> **{}:** {}", escape(label), escape(&message.text))?,
    }
    for detail in &message.details {
        writeln!(out, ">\n> {}", escape(detail))?;
    }
    for of in &message.commands {
        let command = visible(&of.command);
        writeln!(out, ">\n> {}:\n>\n>     {command}", escape(&of.label))?;
    }
    Ok(())
}

/// What would end a cell or mean something; a line stays one.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible_lines(text).chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '[' | ']' => escaped.extend(['\\', c]),
            '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
