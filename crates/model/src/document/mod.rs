//! Everything that a person reads, as data: a document is sections of figures, tables, charts, findings,
//! notes and messages. Outputs (terminal, markdown, csv, json) decide what it looks like.
//!
//! As JSON it is `wirecost.report/1`: a key is never absent, and what was not measured is a cell of its own
//! kind with the reason, never 0. The JSON Schema is docs/schema/wirecost.report-1.json.

mod cell;
mod chart;
mod finding;
mod message;
mod replay;
mod runs;
mod table;
mod texts;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cell::{Cell, Marked, Number, Part, Parts, Set, show};
pub use chart::{
    Axis, AxisLabel, AxisScale, Chart, ChartKind, Mark, RunSample, Sample, Series, SeriesRole,
};
pub use finding::{Effect, Finding, Strength};
pub use message::{Command, Emphasis, Message};
pub use replay::{REPLAY_VERSION, Replay};
pub use runs::{ListedRun, RunList};
pub use table::{Align, Column, Table};

use crate::observe::FoldedStacks;
use crate::status::Status;

pub const SCHEMA: &str = "wirecost.report/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// Version of wirecost that made it.
    pub version: String,
    pub title: String,
    pub sections: Vec<Section>,
    /// What a page holds so that its study can be run again. Other outputs are without it.
    #[serde(skip)]
    pub replay: Option<Replay>,
}

impl Document {
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            status: Status::Ok,
            error: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            title: title.to_owned(),
            sections: Vec::new(),
            replay: None,
        }
    }
}

/// Blocks that belong together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Section {
    /// For programs: what it was made by, as a study names a table or `--observe` a probe.
    pub name: String,
    /// For people; empty where its blocks need no heading.
    pub title: String,
    /// Details: where an output can fold, a reader opens it to read it.
    pub folded: bool,
    pub blocks: Vec<Block>,
}

impl Section {
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    #[must_use]
    pub fn named(name: &str, title: &str) -> Self {
        Self { name: name.to_owned(), ..Self::new(title) }
    }

    /// The section, where there is anything in it.
    #[must_use]
    pub fn filled(self) -> Option<Self> {
        (!self.blocks.is_empty()).then_some(self)
    }

    /// One figure below the other. Those that follow one another are one block.
    pub fn figure(&mut self, label: impl Into<String>, value: impl Into<Cell>) {
        let figure = Figure { label: label.into(), value: value.into() };
        match self.blocks.last_mut() {
            Some(Block::Figures(figures)) => figures.push(figure),
            _ => self.blocks.push(Block::Figures(vec![figure])),
        }
    }

    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::Chart(chart));
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Note(text.into()));
    }

    pub fn finding(&mut self, finding: Finding) {
        self.blocks.push(Block::Finding(finding));
    }

    pub fn message(&mut self, message: Message) {
        self.blocks.push(Block::Message(message));
    }

    /// The same section as details.
    #[must_use]
    pub fn folded(self) -> Self {
        Self { folded: true, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    Table(Table),
    /// A sentence or several.
    Text(String),
    /// Figures that have a line each.
    Figures(Vec<Figure>),
    Chart(Chart),
    /// What to know of the block before it: sources, conditions.
    Note(String),
    Message(Message),
    /// What the runs of a study show.
    Finding(Finding),
    Flame(Flame),
    FlameDifference(FlameDifference),
    Runs(RunList),
}

/// Sampled stacks, which pages draw as a flame graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flame {
    pub title: String,
    pub stacks: FoldedStacks,
}

/// What changed between the sampled stacks of two sides, which pages draw as a flame graph of B, coloured by the
/// change since A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlameDifference {
    pub title: String,
    pub a: FoldedStacks,
    pub b: FoldedStacks,
    /// What all samples of A and all of B cost, cycles/KByte: frames are compared by their part of it. Null where that
    /// is not known of both: frames are then compared by their shares of all samples.
    pub cycles_per_kbyte: Option<(f64, f64)>,
}

/// A figure that stands alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    pub label: String,
    pub value: Cell,
}
