//! How what was computed of records is written: as a text for a person, or as its document.

use std::io;

use clap::ValueEnum;
use serde::Serialize;
use wirecost_model::document::Document;
use wirecost_model::status::Status;
use wirecost_report::json::{self, Target};
use wirecost_report::outputs::{self, Output, Terminal, TerminalStyle};

use crate::Failure;
use crate::terminal;

/// Shows a document to a person, on the standard output.
pub(crate) fn show(document: &Document) {
    // A reader that has seen enough (`| head`) is no failure.
    let _ = Terminal.write(&mut terminal::stdout(), document, &TerminalStyle::of(&io::stdout()));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for the terminal.
    Terminal,
    /// The document as JSON.
    Json,
    /// Tables in Markdown.
    Markdown,
}

impl Format {
    /// Writes the document, or its report.
    pub(crate) fn write<T: Serialize>(
        self,
        document: &T,
        report: impl FnOnce(&T) -> Document,
    ) -> Result<(), Failure> {
        let mut out = terminal::stdout();
        let name = match self {
            Format::Json => {
                return json::write(document, &Target::Stream, &mut out)
                    .map_err(|error| Failure::new(Status::Failed, error));
            }
            Format::Terminal => "terminal",
            Format::Markdown => "markdown",
        };
        if let Some(output) = outputs::find(name) {
            // A reader that has seen enough (`| head`) is no failure.
            let _ = output.write(&mut out, &report(document), &TerminalStyle::of(&io::stdout()));
        }
        Ok(())
    }
}
