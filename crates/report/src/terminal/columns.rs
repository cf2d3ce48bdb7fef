//! A table of aligned columns without rules. Where the width does not hold it, the least important
//! columns are left out.

use std::io::{self, Write};

use super::look::Look;

const INDENT: usize = 2;
const GAP: usize = 2;
/// Names longer than this are cut; their tail tells hosts of one domain apart less than their head.
const LONGEST: usize = 24;

/// One column and how much it matters: 0 is never left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    left: bool,
    rank: u8,
}

pub(super) const fn text(title: &'static str, rank: u8) -> Column {
    Column { title, left: true, rank }
}

pub(super) const fn number(title: &'static str, rank: u8) -> Column {
    Column { title, left: false, rank }
}

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        let cut = |cell: String| match cell.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}..", &cell[..end.saturating_sub(2)]),
            None => cell,
        };
        self.rows.push(cells.into_iter().map(cut).collect());
    }

    pub(super) fn write(&self, out: &mut dyn Write, look: &Look) -> io::Result<()> {
        let widths: Vec<usize> =
            (0..self.columns.len()).map(|place| self.width_of(place)).collect();
        let shown = self.shown(&widths, look.width);
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        writeln!(out, "{}", look.heading(&self.line(&titles, &widths, &shown)))?;
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            writeln!(out, "{}", self.line(&cells, &widths, &shown))?;
        }
        Ok(())
    }

    fn width_of(&self, place: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(place));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(self.columns[place].title.len())
    }

    /// A column in which no row has anything is not shown at all.
    fn shown(&self, widths: &[usize], room: usize) -> Vec<usize> {
        let filled = |place: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(place));
            cells.any(|cell| !cell.is_empty())
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).filter(|&p| filled(p)).collect();
        loop {
            let needed: usize = shown.iter().map(|&place| widths[place] + GAP).sum();
            let least = shown
                .iter()
                .copied()
                .filter(|&place| self.columns[place].rank > 0)
                .max_by_key(|&place| self.columns[place].rank);
            match least {
                Some(least) if INDENT + needed - GAP > room => shown.retain(|&p| p != least),
                _ => return shown,
            }
        }
    }

    fn line(&self, cells: &[&str], widths: &[usize], shown: &[usize]) -> String {
        let cells: Vec<String> = shown
            .iter()
            .map(|&place| {
                let (cell, width) = (cells.get(place).copied().unwrap_or(""), widths[place]);
                if self.columns[place].left {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        let line = format!("{:INDENT$}{}", "", cells.join("  "));
        line.trim_end().to_owned()
    }
}
