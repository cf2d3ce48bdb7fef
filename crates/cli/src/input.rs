//! The text of a profile or a study, as named on the command line.

use std::io;
use std::path::Path;

use wirecost_store::input::{self, Limit};

/// What names the standard input in place of a file.
pub(crate) const STANDARD_INPUT: &str = "-";

/// Reads a file, or the standard input. What is not UTF-8 is replaced, as uperf's files need not be.
pub(crate) fn text(name: &str, limit: Limit) -> io::Result<String> {
    let bytes = match name {
        STANDARD_INPUT => limit.read(io::stdin().lock())?,
        file => input::read(Path::new(file), limit)?,
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
