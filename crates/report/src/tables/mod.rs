//! Tables of studies, by name. Each is a file.

use wirecost_analyze::measured::Measured;

use crate::document::Section;

/// A kind of table.
#[derive(Debug)]
pub struct TableKind {
    /// As a study names it.
    pub name: &'static str,
    /// One line for a person.
    pub help: &'static str,
    /// What it is made of runs. It says what it could not be made of.
    pub build: fn(&Measured) -> Section,
}

/// All of them.
pub static ALL: &[TableKind] = &[];

/// The kind of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static TableKind> {
    ALL.iter().find(|kind| kind.name == name)
}
