//! Tables of aligned columns without rules. Where the width does not hold one, dispensable columns are left
//! out first; then cells are folded; then it is cut into parts that stand one below the other.

use std::borrow::Cow;
use std::io::{self, Write};

use wirecost_model::document::Emphasis;

use super::style::{TerminalStyle, fold, words};

const INDENT: usize = 2;
const GAP: usize = 2;
/// Names longer than this are folded where columns are dispensable: one long name is not to cost them.
const LONGEST: usize = 24;
/// Lines of such a name; the document has all of it.
const TALLEST: usize = 3;
/// Cells wider than this are folded, where a table is too wide.
const WIDEST: usize = 32;
/// The head of a column that is narrower is not folded further.
const HEAD: usize = 12;
/// A key folded to less than this is hard to read.
const KEY: usize = 8;
/// Sentences folded to less than this are hard to read.
const SENTENCE: usize = 24;
/// What is narrower is written as if it were so wide.
const LEAST: usize = 40;

#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) title: String,
    pub(super) left: bool,
    /// As [`wirecost_model::document::Column::drop_order`].
    pub(super) drop_order: u8,
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) text: String,
    pub(super) emphasis: Emphasis,
}

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) columns: Vec<Head>,
    pub(super) rows: Vec<Vec<Field>>,
}

/// A column as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    place: usize,
    width: usize,
}

impl Layout {
    /// The first `keys` columns are repeated in each part.
    pub(super) fn write(
        &self,
        out: &mut dyn Write,
        style: &TerminalStyle,
        keys: usize,
    ) -> io::Result<()> {
        let room = room(style);
        let places = self.kept(room);
        let natural: Vec<Shown> = places.iter().map(|&place| self.natural(place)).collect();
        if total(&natural) <= room {
            return self.write_part(out, style, &natural);
        }
        if let Some(with_sentences) = self.with_sentences(&natural, room) {
            return self.write_part(out, style, &with_sentences);
        }
        let folded: Vec<Shown> = places.iter().map(|&place| self.folded(place, room)).collect();
        if total(&folded) <= room {
            return self.write_part(out, style, &folded);
        }
        let keys = places.iter().filter(|&&place| place < keys).count();
        let keys = keys.clamp(1, places.len().max(2) - 1);
        match self.narrowed(&folded[..keys], room) {
            Some(narrow) => self.write_parts(out, style, &narrow, &folded[keys..], room),
            // Rows of too many keys have a number instead.
            None => self.numbered().write(out, style, 1),
        }
    }

    /// Titles of the columns for which there is no room.
    pub(super) fn left_out(&self, style: &TerminalStyle) -> Vec<&str> {
        let kept = self.kept(room(style));
        let left_out = self.filled().filter(|place| !kept.contains(place));
        left_out.map(|place| self.columns[place].title.as_str()).collect()
    }

    /// A column in which no row has anything is not shown.
    fn filled(&self) -> impl Iterator<Item = usize> {
        let filled = |&place: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(place));
            self.rows.is_empty() || cells.any(|cell| !cell.text.is_empty())
        };
        (0..self.columns.len()).filter(filled)
    }

    /// As many columns as there is room for, and those that are not dispensable.
    fn kept(&self, room: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = self.filled().collect();
        loop {
            let shown: Vec<Shown> = kept.iter().map(|&place| self.natural(place)).collect();
            let drop_order = |place: &usize| self.columns[*place].drop_order;
            let least = kept.iter().copied().filter(|p| drop_order(p) > 0).max_by_key(drop_order);
            match least {
                Some(least) if total(&shown) > room => kept.retain(|&place| place != least),
                _ => return kept,
            }
        }
    }

    /// Whatever is left of the room for the last column, where it has sentences.
    fn with_sentences(&self, natural: &[Shown], room: usize) -> Option<Vec<Shown>> {
        let (last, others) = natural.split_last()?;
        let rest = room.checked_sub(total(others) + GAP)?;
        let sentences = self.columns[last.place].left && last.width > WIDEST;
        (sentences && rest >= SENTENCE).then(|| {
            others.iter().copied().chain([Shown { place: last.place, width: rest }]).collect()
        })
    }

    fn write_parts(
        &self,
        out: &mut dyn Write,
        style: &TerminalStyle,
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
                writeln!(out, "\n{}", style.emphasize(Emphasis::Muted, &below))?;
            }
            self.write_part(out, style, &part)?;
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
        let number = Head { title: "row".to_owned(), left: false, drop_order: 0 };
        let columns = [number].into_iter().chain(self.columns.iter().cloned());
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let number = Field { text: (number + 1).to_string(), emphasis: Emphasis::Plain };
            [number].into_iter().chain(row.iter().cloned()).collect()
        });
        Self { columns: columns.collect(), rows: rows.collect() }
    }

    fn widest_cell(&self, place: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(place));
        cells.map(|cell| width(&cell.text)).max().unwrap_or(0)
    }

    fn is_compact(&self) -> bool {
        self.columns.iter().any(|column| column.drop_order > 0)
    }

    /// Width with nothing folded but long names beside dispensable columns.
    fn natural(&self, place: usize) -> Shown {
        let cell = match self.columns[place].left && self.is_compact() {
            true => self.widest_cell(place).min(LONGEST),
            false => self.widest_cell(place),
        };
        Shown { place, width: cell.max(width(&self.columns[place].title)) }
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

    fn write_part(
        &self,
        out: &mut dyn Write,
        style: &TerminalStyle,
        shown: &[Shown],
    ) -> io::Result<()> {
        let titles = |place: usize| (self.columns[place].title.as_str(), Emphasis::Plain);
        for line in self.lines(titles, shown, true, style) {
            writeln!(out, "{}", style.emphasize(Emphasis::Muted, &line))?;
        }
        for row in &self.rows {
            let cell = |place: usize| {
                row.get(place).map_or(("", Emphasis::Plain), |f| (f.text.as_str(), f.emphasis))
            };
            for line in self.lines(cell, shown, false, style) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// The lines of a row, as many as its tallest cell has; heads stand at the bottom.
    fn lines<'a>(
        &self,
        cell: impl Fn(usize) -> (&'a str, Emphasis),
        shown: &[Shown],
        head: bool,
        style: &TerminalStyle,
    ) -> Vec<String> {
        let cells: Vec<(Vec<Cow<'a, str>>, Emphasis)> = shown
            .iter()
            .map(|column| match cell(column.place) {
                (fits, emphasis) if width(fits) <= column.width => {
                    (vec![Cow::Borrowed(fits)], emphasis)
                }
                (wide, emphasis) => {
                    let mut lines = fold(wide, column.width);
                    if self.is_compact() && lines.len() > TALLEST {
                        lines.truncate(TALLEST);
                        shorten(&mut lines[TALLEST - 1], column.width);
                    }
                    (lines.into_iter().map(Cow::Owned).collect(), emphasis)
                }
            })
            .collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
        let line = |number: usize| {
            let mut line = " ".repeat(INDENT);
            for (column, (lines, emphasis)) in shown.iter().zip(&cells) {
                let above = if head { height - lines.len() } else { 0 };
                let text = number.checked_sub(above).and_then(|number| lines.get(number));
                let text = text.map_or("", Cow::as_ref);
                let blank = " ".repeat(column.width.saturating_sub(width(text)));
                let text = match text {
                    "" => String::new(),
                    text => style.emphasize(*emphasis, text),
                };
                match self.columns[column.place].left {
                    true => line.extend([text, blank]),
                    false => line.extend([blank, text]),
                }
                line.push_str("  ");
            }
            line.truncate(line.trim_end().len());
            line
        };
        (0..height).map(line).collect()
    }
}

/// Ends a line by a mark that there is more.
fn shorten(line: &mut String, room: usize) {
    while width(line) + 2 > room && line.pop().is_some() {}
    line.push_str("..");
}

fn room(style: &TerminalStyle) -> usize {
    style.width.max(LEAST) - INDENT
}

fn total(shown: &[Shown]) -> usize {
    shown.iter().map(|column| column.width + GAP).sum::<usize>().saturating_sub(GAP)
}

/// The text, or as much of its beginning as the room holds, with a mark that there is more.
pub(crate) fn cut(text: &str, room: usize) -> Cow<'_, str> {
    if width(text) <= room {
        return Cow::Borrowed(text);
    }
    let mut line = text.to_owned();
    shorten(&mut line, room);
    Cow::Owned(line)
}

/// As many columns of a terminal as a text takes.
pub(crate) fn width(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => unicode_width::UnicodeWidthStr::width(text),
    }
}
