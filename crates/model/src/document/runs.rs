//! The runs that figures rest on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cell, Column};
use crate::status::Status;

/// All runs of a document. What else stands in the document names them, and their points.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunList {
    /// Figures of each run.
    pub columns: Vec<Column>,
    pub runs: Vec<ListedRun>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedRun {
    /// Of one study each run has its own.
    pub name: String,
    /// The point that it is of: `connections=8 size=64k`.
    pub point: String,
    /// Where its record is; null where it was not saved.
    pub record: Option<String>,
    pub status: Status,
    /// Wall-clock start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// In the order of the columns.
    pub cells: Vec<Cell>,
}
