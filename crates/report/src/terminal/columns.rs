//! Tables of aligned columns without rules. Where the width does not hold one, either the least important
//! columns are left out, or it is cut into parts that stand one below the other.

use std::borrow::Cow;
use std::io::{self, Write};

use super::look::{Look, fold, words};

const INDENT: usize = 2;
const GAP: usize = 2;
/// Names longer than this are cut; their tail tells hosts of one domain apart less than their head.
const LONGEST: usize = 24;
/// Cells wider than this are folded, where a table is too wide.
const WIDEST: usize = 32;
/// The head of a column that is narrower is not folded further.
const HEAD: usize = 12;
/// A key folded to less than this is hard to read.
const KEY: usize = 8;
/// What is narrower is written as if it were so wide.
const LEAST: usize = 40;

/// One column and how much it matters: 0 is never left out.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    title: Cow<'static, str>,
    left: bool,
    rank: u8,
}

pub(super) const fn text(title: &'static str, rank: u8) -> Column {
    Column { title: Cow::Borrowed(title), left: true, rank }
}

pub(super) const fn number(title: &'static str, rank: u8) -> Column {
    Column { title: Cow::Borrowed(title), left: false, rank }
}

/// One that is never left out.
pub(super) fn column(title: &str, left: bool) -> Column {
    Column { title: Cow::Owned(title.to_owned()), left, rank: 0 }
}

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    place: usize,
    width: usize,
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

    /// A row of which nothing is cut.
    pub(super) fn whole_row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Leaves columns out where it is too wide.
    pub(super) fn write(&self, out: &mut dyn Write, look: &Look) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|place| self.natural(place)).collect();
        let shown: Vec<Shown> = self
            .shown(&widths, look.width)
            .into_iter()
            .map(|place| Shown { place, width: widths[place] })
            .collect();
        self.write_part(out, look, &shown)
    }

    /// Leaves nothing out: what is too wide is folded, then cut into parts that have the first `keys`
    /// columns each.
    pub(super) fn write_whole(
        &self,
        out: &mut dyn Write,
        look: &Look,
        keys: usize,
    ) -> io::Result<()> {
        let room = look.width.max(LEAST) - INDENT;
        let all = 0..self.columns.len();
        let natural: Vec<Shown> =
            all.clone().map(|place| Shown { place, width: self.natural(place) }).collect();
        if total(&natural) <= room {
            return self.write_part(out, look, &natural);
        }
        let folded: Vec<Shown> = all.map(|place| self.folded(place, room)).collect();
        if total(&folded) <= room {
            return self.write_part(out, look, &folded);
        }
        let keys = keys.clamp(1, self.columns.len().max(2) - 1);
        match self.narrowed(&folded[..keys], room) {
            Some(narrow) => self.write_parts(out, look, &narrow, &folded[keys..], room),
            // Rows of too many keys have a number instead.
            None => self.numbered().write_whole(out, look, 1),
        }
    }

    fn write_parts(
        &self,
        out: &mut dyn Write,
        look: &Look,
        keys: &[Shown],
        others: &[Shown],
        room: usize,
    ) -> io::Result<()> {
        let mut part = keys.to_vec();
        let mut first = true;
        for (place, column) in others.iter().enumerate() {
            part.push(*column);
            let next = others.get(place + 1);
            if next.is_some_and(|next| total(&part) + GAP + next.width <= room) {
                continue;
            }
            if !first {
                let below = format!("{:INDENT$}further columns of the same rows:", "");
                writeln!(out, "\n{}", look.heading(&below))?;
            }
            self.write_part(out, look, &part)?;
            first = false;
            part.truncate(keys.len());
        }
        Ok(())
    }

    /// Keys that take up half of the room at most, if they can.
    fn narrowed(&self, keys: &[Shown], room: usize) -> Option<Vec<Shown>> {
        let half = room / 2;
        if total(keys) <= half {
            return Some(keys.to_vec());
        }
        let each = (half / keys.len()).saturating_sub(GAP);
        let fold = |key: &Shown| Shown { width: key.width.min(each), ..*key };
        (each >= KEY).then(|| keys.iter().map(fold).collect())
    }

    /// The same with a number before each row.
    fn numbered(&self) -> Self {
        let columns = [column("row", false)].into_iter().chain(self.columns.iter().cloned());
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let number = (number + 1).to_string();
            [number].into_iter().chain(row.iter().cloned()).collect()
        });
        Self { columns: columns.collect(), rows: rows.collect() }
    }

    fn widest_cell(&self, place: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(place));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    }

    /// Width with nothing folded.
    fn natural(&self, place: usize) -> usize {
        self.widest_cell(place).max(width(&self.columns[place].title))
    }

    fn folded(&self, place: usize, room: usize) -> Shown {
        let most = WIDEST.min(room / 2 - GAP);
        let cells = self.widest_cell(place).clamp(1, most);
        let title = &self.columns[place].title;
        // A word is only broken where it is too long for any column.
        let longest = words(title).map(|word| width(&word)).max().unwrap_or(0).min(most);
        let head = fold(title, cells.max(HEAD).max(longest));
        let head = head.iter().map(|line| width(line)).max().unwrap_or(0);
        Shown { place, width: cells.max(head) }
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

    fn write_part(&self, out: &mut dyn Write, look: &Look, shown: &[Shown]) -> io::Result<()> {
        let titles = |place: usize| self.columns[place].title.as_ref();
        for line in self.lines(titles, shown, true) {
            writeln!(out, "{}", look.heading(&line))?;
        }
        for row in &self.rows {
            let cell = |place: usize| row.get(place).map_or("", String::as_str);
            for line in self.lines(cell, shown, false) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// The lines of a row, as many as its tallest cell has; heads stand at the bottom.
    fn lines<'a>(
        &self,
        cell: impl Fn(usize) -> &'a str,
        shown: &[Shown],
        head: bool,
    ) -> Vec<String> {
        let cells: Vec<Vec<Cow<'a, str>>> = shown
            .iter()
            .map(|column| match cell(column.place) {
                fits if width(fits) <= column.width => vec![Cow::Borrowed(fits)],
                wide => fold(wide, column.width).into_iter().map(Cow::Owned).collect(),
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |number: usize| {
            let mut line = " ".repeat(INDENT);
            for (column, lines) in shown.iter().zip(&cells) {
                let above = if head { height - lines.len() } else { 0 };
                let text = number.checked_sub(above).and_then(|number| lines.get(number));
                let text = text.map_or("", Cow::as_ref);
                let blank = " ".repeat(column.width.saturating_sub(width(text)));
                match self.columns[column.place].left {
                    true => line.extend([text, &blank]),
                    false => line.extend([blank.as_str(), text]),
                }
                line.push_str("  ");
            }
            line.truncate(line.trim_end().len());
            line
        };
        (0..height).map(line).collect()
    }
}

fn total(shown: &[Shown]) -> usize {
    shown.iter().map(|column| column.width + GAP).sum::<usize>().saturating_sub(GAP)
}

/// As many columns of a terminal as a text takes.
pub(super) fn width(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => unicode_width::UnicodeWidthStr::width(text),
    }
}
