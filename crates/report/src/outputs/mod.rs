//! What a document can be written as. Each is a file.

mod csv;
mod html;
mod json;
mod markdown;
mod notes;
mod summary;
mod terminal;

use std::fmt::Debug;
use std::io::{self, Write};

use wirecost_model::document::Document;

pub use html::{NoReplay, read_replay};
pub use terminal::{Lines, Terminal, TerminalStyle};
pub(crate) use terminal::{cut, understands_escapes, width};

/// One way to write a document.
pub trait Output: Debug + Sync {
    /// As `--format` names it.
    fn name(&self) -> &'static str;

    /// One line for a person.
    fn help(&self) -> &'static str;

    /// Writes the document. Only what is for a terminal uses the style.
    ///
    /// # Errors
    /// Those of `out`.
    fn write(
        &self,
        out: &mut dyn Write,
        document: &Document,
        style: &TerminalStyle,
    ) -> io::Result<()>;
}

/// All of them.
pub static ALL: &[&dyn Output] =
    &[&Terminal, &json::Json, &csv::Csv, &markdown::Markdown, &html::Html];

/// The output of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Output> {
    ALL.iter().copied().find(|output| output.name() == name)
}
