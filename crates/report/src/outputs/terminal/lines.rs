//! Rows that are written one by one, before it is known how wide they become.

use wirecost_model::document::{Align, Cell, Column};
use wirecost_model::visible::visible;

use super::layout::width;
use super::style::TerminalStyle;

/// Room for what was set, and for a figure with its interval.
const SET: usize = 6;
const FIGURE: usize = 14;

#[derive(Debug)]
pub struct Lines {
    columns: Vec<(Column, usize)>,
}

impl Lines {
    /// Of these columns, as many of the first as the width holds; the table at the end has them all.
    #[must_use]
    pub fn new(head: &[Column], keys: usize, style: &TerminalStyle) -> Self {
        let mut left = style.width;
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
            let text = visible(text);
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
