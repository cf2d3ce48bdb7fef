//! Rows that are written one by one, before the later ones are known.

use wirecost_model::document::{Align, Cell, Column};
use wirecost_model::visible::visible;

use super::layout::width;
use super::style::TerminalStyle;

/// Least width of a column of figures: a figure with its interval.
const FIGURE: usize = 12;
const GAP: usize = 2;

#[derive(Debug)]
pub struct Lines {
    columns: Vec<(Align, String, usize)>,
}

impl Lines {
    /// Columns that fit the width, the first ones first. They are as wide as their heads and the cells of
    /// `known`: rows that hold at least what tells rows apart.
    #[must_use]
    pub fn new(head: &[Column], known: &[Vec<Cell>], style: &TerminalStyle) -> Self {
        let mut left = style.width;
        let mut columns = Vec::new();
        for (place, of) in head.iter().enumerate() {
            let cells = || known.iter().filter_map(|row| row.get(place));
            let widest = cells().map(|cell| width(&visible(cell.shown()))).max().unwrap_or(0);
            let is_key = cells().all(|cell| matches!(cell, Cell::Set(_) | Cell::Text(_)));
            let title = visible(&of.title).into_owned();
            let wide = widest.max(width(&title)).max(if is_key { 0 } else { FIGURE });
            // The table at the end has all columns.
            let Some(rest) = left.checked_sub(GAP + wide) else { break };
            left = rest;
            columns.push((of.align, title, wide));
        }
        Self { columns }
    }

    #[must_use]
    pub fn head(&self) -> String {
        self.line(self.columns.iter().map(|(_, title, _)| title.as_str()))
    }

    #[must_use]
    pub fn row(&self, cells: &[Cell]) -> String {
        self.line(cells.iter().map(Cell::shown))
    }

    /// A text that is too wide moves those behind it no farther than it must.
    fn line<'a>(&self, texts: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        let mut end = 0;
        for ((align, _, wide), text) in self.columns.iter().zip(texts) {
            let text = visible(text);
            let start = end + GAP;
            end = start + wide;
            let begin = match align {
                Align::Left => start,
                Align::Right => end.saturating_sub(width(&text)),
            };
            let now = width(&line);
            line.extend(std::iter::repeat_n(' ', begin.saturating_sub(now).max(GAP)));
            line += &text;
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::metric::Unit;

    use super::*;

    fn lines(width: usize) -> Lines {
        let head = [
            Column::text("run"),
            Column::text("profile"),
            Column::number("throughput"),
            Column::number("cycles/KByte"),
        ];
        let keys = |profile| vec![Cell::text("10/10"), Cell::text(profile)];
        Lines::new(&head, &[keys("@rr"), keys("@tcp-transmit")], &TerminalStyle::plain(width))
    }

    #[test]
    fn cells_end_where_their_heads_end() {
        let lines = lines(80);
        let row = |run, profile, bits| {
            let figures = [(Unit::BitsPerSecond, bits), (Unit::CyclesPerKByte, 712.0)];
            let figures = figures.map(|(unit, value)| Cell::number(unit, value));
            let keys = [Cell::text(run), Cell::text(profile)];
            lines.row(&keys.into_iter().chain(figures).collect::<Vec<_>>())
        };
        let rows = [row("1/10", "@rr", 9.24e9), row("10/10", "@tcp-transmit", 1e3)];
        for line in [&lines.head(), &rows[0], &rows[1]] {
            assert_eq!(line.len(), lines.head().len(), "{line}");
        }
        let wide = [Cell::text("1/10"), Cell::text("a profile with a long name")];
        let figure = |text: &str| Cell::written(Unit::Ratio, 1.0, text.to_owned());
        let wide = wide.into_iter().chain([figure("1"), figure("2")]).collect::<Vec<_>>();
        assert_eq!(lines.row(&wide).len(), lines.head().len(), "{}", lines.row(&wide));
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out() {
        assert!(lines(40).head().ends_with("throughput"));
        for width in [20, 40, 60] {
            assert!(lines(width).head().len() <= width);
        }
    }
}
