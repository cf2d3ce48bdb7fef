//! `terminal`: for a person, in aligned columns; under them why something was not measured.

mod layout;
mod lines;
mod style;

use std::io::{self, Write};

use wirecost_model::document::{
    Align, Block, Cell, Document, Emphasis, Figure, Finding, Message, Section, Table,
};
use wirecost_model::visible::{visible, visible_lines};

use super::notes::Notes;
use super::{Output, summary};
use layout::{Field, Head, Layout};
pub(crate) use layout::{cut, width};
pub use lines::Lines;
pub use style::TerminalStyle;
pub(crate) use style::understands_escapes;

/// Least width of the labels of figures.
const LABEL: usize = 14;

#[derive(Debug)]
pub struct Terminal;

impl Output for Terminal {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn help(&self) -> &'static str {
        "aligned tables that fit the terminal, or 80 columns"
    }

    fn write(
        &self,
        out: &mut dyn Write,
        document: &Document,
        style: &TerminalStyle,
    ) -> io::Result<()> {
        heading(out, &document.title, style)?;
        for (place, section) in document.sections.iter().enumerate() {
            // The headline figures, and why they are so, stand right below the title that they are of.
            let of_title = matches!(
                section.blocks.first(),
                Some(Block::Figures(_) | Block::Text(_) | Block::Message(_) | Block::Note(_))
            );
            if place > 0 || !section.title.is_empty() || !of_title {
                writeln!(out)?;
            }
            heading(out, &section.title, style)?;
            self::section(out, section, style)?;
        }
        Ok(())
    }
}

fn heading(out: &mut dyn Write, title: &str, style: &TerminalStyle) -> io::Result<()> {
    for line in style.wrap(0, &visible_lines(title)) {
        writeln!(out, "{}", style.emphasize(Emphasis::Strong, &line))?;
    }
    Ok(())
}

fn section(out: &mut dyn Write, section: &Section, style: &TerminalStyle) -> io::Result<()> {
    let mut notes = Notes::default();
    let mut above = None;
    for block in &section.blocks {
        if above.is_some_and(|above| apart(above, block)) {
            writeln!(out)?;
        }
        match block {
            Block::Table(table) => self::table(out, table, &mut notes, style)?,
            Block::Text(text) => paragraph(out, text, Emphasis::Plain, style)?,
            Block::Figures(figures) => self::figures(out, figures, &mut notes, style)?,
            Block::Chart(chart) => table(out, &summary::of(chart), &mut notes, style)?,
            Block::Flame(flame) => table(out, &summary::of_flame(flame), &mut notes, style)?,
            Block::FlameDifference(of) => {
                table(out, &summary::of_difference(of), &mut notes, style)?;
            }
            Block::Runs(list) => table(out, &summary::of_runs(list), &mut notes, style)?,
            Block::Note(text) => paragraph(out, text, Emphasis::Muted, style)?,
            Block::Finding(finding) => self::finding(out, finding, style)?,
            // Below a heading it belongs to that.
            Block::Message(message) => {
                let indent = if section.title.is_empty() { 0 } else { 2 };
                self::message(out, message, indent, style)?;
            }
        }
        above = Some(block);
    }
    if !notes.is_empty() && matches!(above, Some(Block::Table(_))) && !section.title.is_empty() {
        writeln!(out)?;
    }
    for (number, reason) in notes.iter() {
        let text = format!("not measured: {}", visible_lines(reason));
        labelled(out, &format!("[{number}]"), Emphasis::Plain, &text, 2, style)?;
    }
    Ok(())
}

/// Whether a line is left blank between two blocks.
fn apart(above: &Block, below: &Block) -> bool {
    let long = |message: &Message| !message.details.is_empty() || !message.commands.is_empty();
    match (above, below) {
        // Commands alone are about what is above them.
        (_, Block::Message(below)) if below.label.is_empty() && below.text.is_empty() => false,
        (_, Block::Note(_)) | (Block::Text(_), Block::Text(_)) => false,
        (Block::Message(above), Block::Message(below)) => long(above) || long(below),
        _ => true,
    }
}

fn paragraph(
    out: &mut dyn Write,
    text: &str,
    emphasis: Emphasis,
    style: &TerminalStyle,
) -> io::Result<()> {
    for line in style.wrap(2, &visible_lines(text)) {
        writeln!(out, "  {}", style.emphasize(emphasis, &line))?;
    }
    Ok(())
}

/// The sentence, and what supports it below.
fn finding(out: &mut dyn Write, finding: &Finding, style: &TerminalStyle) -> io::Result<()> {
    for line in style.wrap(2, &visible_lines(&finding.sentence)) {
        writeln!(out, "  {line}")?;
    }
    for line in style.wrap(4, &visible_lines(&finding.support())) {
        writeln!(out, "    {}", style.emphasize(Emphasis::Muted, &line))?;
    }
    Ok(())
}

fn table(
    out: &mut dyn Write,
    table: &Table,
    notes: &mut Notes,
    style: &TerminalStyle,
) -> io::Result<()> {
    paragraph(out, &table.title, Emphasis::Plain, style)?;
    let columns = table.columns.iter().map(|of| Head {
        title: visible(&of.title).into(),
        left: of.align == Align::Left,
        drop_order: of.drop_order,
    });
    let rows = table.rows.iter().map(|row| {
        let texts = notes.row(row, |text| visible(text).into());
        let fields = row.iter().zip(texts).map(|(cell, text)| Field {
            text,
            emphasis: match cell {
                Cell::Marked(marked) => marked.emphasis,
                _ => Emphasis::Plain,
            },
        });
        fields.collect()
    });
    let layout = Layout { columns: columns.collect(), rows: rows.collect() };
    layout.write(out, style, table.keys())?;
    let left_out = layout.left_out(style);
    if left_out.is_empty() {
        return Ok(());
    }
    let text = format!("left out at this width: {}", left_out.join(", "));
    paragraph(out, &text, Emphasis::Muted, style)
}

/// Label and text, the text wrapped beside the label where it is too long for a line.
fn figures(
    out: &mut dyn Write,
    figures: &[Figure],
    notes: &mut Notes,
    style: &TerminalStyle,
) -> io::Result<()> {
    let longest = figures.iter().map(|figure| width(&figure.label)).max().unwrap_or(0);
    let beside = LABEL.max(longest + 2) + 2;
    for figure in figures {
        let text = notes.cell(&figure.value, |text| visible(text).into());
        let mut label = format!("  {}", visible(&figure.label));
        let lines = match beside + width(&text) <= style.width {
            true => vec![text],
            false => style.wrap(beside, &text),
        };
        for line in lines {
            let blank = beside.saturating_sub(width(&label));
            writeln!(out, "{label}{:blank$}{line}", "")?;
            label.clear();
        }
    }
    Ok(())
}

fn message(
    out: &mut dyn Write,
    message: &Message,
    indent: usize,
    style: &TerminalStyle,
) -> io::Result<()> {
    let Message { emphasis, label, text, details, commands } = message;
    let below = indent + 2;
    if label.is_empty() {
        for line in style.wrap(indent, &visible_lines(text)) {
            writeln!(out, "{:indent$}{}", "", style.emphasize(*emphasis, &line))?;
        }
    } else {
        let label = format!("{}:", visible_lines(label));
        labelled(out, &label, *emphasis, &visible_lines(text), indent, style)?;
    }
    for detail in details {
        for line in style.wrap(below, &visible_lines(detail)) {
            writeln!(out, "{:below$}{line}", "")?;
        }
    }
    // To be copied, so it is never broken, however long.
    for of in commands {
        let label = style.emphasize(Emphasis::Muted, &visible(&of.label));
        writeln!(out, "{:below$}  {label}  {}", "", visible(&of.command))?;
    }
    Ok(())
}

/// A label and text that is wrapped beside it.
fn labelled(
    out: &mut dyn Write,
    label: &str,
    emphasis: Emphasis,
    text: &str,
    indent: usize,
    style: &TerminalStyle,
) -> io::Result<()> {
    let beside = indent + width(label) + 1;
    let mut lines = style.wrap(beside, text).into_iter();
    let first = lines.next().unwrap_or_default();
    writeln!(out, "{:indent$}{} {first}", "", style.emphasize(emphasis, label))?;
    for line in lines {
        writeln!(out, "{:beside$}{line}", "")?;
    }
    Ok(())
}
