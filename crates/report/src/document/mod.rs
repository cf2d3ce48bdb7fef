//! A report as data: sections of tables and sentences. Outputs decide what it looks like.

use serde::Serialize;
use wirecost_model::metric::Unit;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Report {
    pub title: String,
    pub sections: Vec<Section>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Section {
    pub title: String,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    Table(Table),
    /// A sentence or several.
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Table {
    /// Above it; empty for the only one of a section.
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    pub title: String,
    pub align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Text(String),
    Number(Number),
    /// Not measured, and why.
    Missing(String),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    pub value: f64,
    /// 95% interval; null for what was measured once.
    pub interval: Option<(f64, f64)>,
    /// As a person reads it.
    pub text: String,
    #[serde(skip)]
    pub unit: Unit,
}
