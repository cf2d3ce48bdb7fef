//! What a report can be written as. Each is a file.

mod csv;
mod json;
mod markdown;
pub(crate) mod notes;
mod terminal;

use std::io::{self, Write};

use crate::document::Report;
use crate::terminal::Look;

/// One way to write a report.
#[derive(Debug)]
pub struct Output {
    /// As `--format` names it.
    pub name: &'static str,
    /// One line for a person.
    pub help: &'static str,
    /// Where the look says nothing, it is not used.
    pub write: fn(&mut dyn Write, &Report, &Look) -> io::Result<()>,
}

/// All of them.
pub static ALL: &[Output] = &[terminal::OUTPUT, json::OUTPUT, csv::OUTPUT, markdown::OUTPUT];

/// The output of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Output> {
    ALL.iter().find(|output| output.name == name)
}
