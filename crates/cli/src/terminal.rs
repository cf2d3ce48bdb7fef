//! The only place that writes lines of text to standard output and standard error. Names in them come
//! from files, agents and records, so control characters are escaped here. (Documents are written by
//! `wirecost_report::outputs`, which does the same.)

use std::fmt::Display;
use std::io::{self, Write};

use wirecost_model::visible::visible_lines;

/// Writes text to standard output.
pub(crate) fn print(text: &str) {
    // A reader that stops early (`| head`) is not a failure.
    let _ = io::stdout().lock().write_all(visible_lines(text).as_bytes());
}

/// Writes a line to standard error.
pub(crate) fn warn(line: impl Display) {
    let line = line.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", visible_lines(&line));
}

/// Writes a report about a place in a file to standard error. `diagnostics` has escaped what it shows.
pub(crate) fn draw(report: &miette::Report) {
    let _ = writeln!(io::stderr().lock(), "{report:?}");
}
