//! A report as data, `wirecost.report/1`: sections of tables and sentences. Outputs decide what it
//! looks like.
//!
//! A key is never absent. What was not measured is a cell of its own kind with the reason, never 0.
//! The JSON Schema is docs/schema/wirecost.report-1.json.

mod cell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wirecost_model::status::Status;
use wirecost_model::study::Value;

pub use cell::{Cell, Number, Part, Parts, Set, show};

pub const SCHEMA: &str = "wirecost.report/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// Version of wirecost that made it.
    pub version: String,
    pub title: String,
    pub sections: Vec<Section>,
}

impl Report {
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            status: Status::Ok,
            error: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            title: title.to_owned(),
            sections: Vec::new(),
        }
    }

    /// The tables with the sections that they stand in.
    pub fn tables(&self) -> impl Iterator<Item = (&Section, &Table)> {
        self.sections.iter().flat_map(|section| {
            section.blocks.iter().filter_map(move |block| match block {
                Block::Table(table) => Some((section, table)),
                Block::Text(_) => None,
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Section {
    /// The table it was made by, as a study names it.
    pub name: String,
    pub title: String,
    pub blocks: Vec<Block>,
}

impl Section {
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    Table(Table),
    /// A sentence or several.
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Above it; empty for the only one of a section.
    pub title: String,
    /// What is the same for all its rows and no column has: whose figures they are, or what was set.
    pub common: Vec<Value>,
    pub columns: Vec<Column>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
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
}

impl Column {
    /// Of texts.
    #[must_use]
    pub fn text(title: &str) -> Self {
        Self { title: title.to_owned(), align: Align::Left }
    }

    /// Of numbers.
    #[must_use]
    pub fn number(title: &str) -> Self {
        Self { title: title.to_owned(), align: Align::Right }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    Left,
    Right,
}
