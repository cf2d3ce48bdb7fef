//! Rows of cells below heads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Cell;
use crate::study::Value;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Above it; empty for the only one of a section.
    pub title: String,
    /// What is the same for all its rows and no column has: whose figures they are, or what was set.
    pub common: Vec<Value>,
    pub columns: Vec<Column>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// The point of each row, as the list of runs names it; empty where rows are not points.
    pub points: Vec<String>,
}

impl Table {
    #[must_use]
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), ..Self::default() }
    }

    /// Adds a row; cells that it has too few of are empty.
    pub fn row(&mut self, mut cells: Vec<Cell>) {
        cells.resize(self.columns.len(), Cell::empty());
        self.rows.push(cells);
    }

    /// How many of the first columns tell the rows apart: they hold what was set, or names, and no
    /// figure. Where a table is cut into parts, each part has them.
    #[must_use]
    pub fn keys(&self) -> usize {
        let names = |place: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*place));
            cells.all(|cell| matches!(cell, Cell::Set(_) | Cell::Text(_)))
        };
        (0..self.columns.len()).take_while(names).count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    pub title: String,
    pub align: Align,
    /// Where the width does not hold a table, the columns with the highest number are left out first; those
    /// with 0 never are.
    #[serde(skip)]
    #[schemars(skip)]
    pub drop_order: u8,
}

impl Column {
    /// Of texts.
    #[must_use]
    pub fn text(title: &str) -> Self {
        Self { title: title.to_owned(), align: Align::Left, drop_order: 0 }
    }

    /// Of numbers.
    #[must_use]
    pub fn number(title: &str) -> Self {
        Self { title: title.to_owned(), align: Align::Right, drop_order: 0 }
    }

    /// The same, left out where the width is short, after those with a higher number.
    #[must_use]
    pub fn drop_order(self, order: u8) -> Self {
        Self { drop_order: order, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    Left,
    Right,
}
