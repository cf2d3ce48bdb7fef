//! `terminal`: for a person, in aligned columns.

use super::Output;
use crate::terminal::report;

pub(super) const OUTPUT: Output = Output {
    name: "terminal",
    help: "aligned tables that fit the terminal, or 80 columns",
    write: report::write,
};
