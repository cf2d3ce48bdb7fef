//! `json`: the document, `wirecost.report/1`.

use std::io::{self, Write};

use wirecost_model::document::Document;

use super::{Output, TerminalStyle};

#[derive(Debug)]
pub(super) struct Json;

impl Output for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn help(&self) -> &'static str {
        "the report as a document (wirecost.report/1)"
    }

    fn write(&self, out: &mut dyn Write, document: &Document, _: &TerminalStyle) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, document)?;
        out.write_all(b"\n")
    }
}
