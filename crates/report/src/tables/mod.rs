//! Tables of studies, by name. Each is a file.

mod cells;
mod function_cost;
mod interrupt_cost;
mod lso;
mod patterns;
#[cfg(test)]
mod tests;

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
pub static ALL: &[TableKind] = &[
    TableKind {
        name: "lso",
        help: "how large the segments are that go to the device, and who sends them",
        build: lso::build,
    },
    TableKind {
        name: "function-cost",
        help: "functions at two points, and how much more CPU time each takes for a bit",
        build: function_cost::build,
    },
    TableKind {
        name: "interrupt-cost",
        help: "interrupts and softirqs, and what a line rate would ask of them",
        build: interrupt_cost::build,
    },
    TableKind {
        name: "patterns",
        help: "patterns of traffic, and the CPU time by layer of the stack",
        build: patterns::build,
    },
];

/// The kind of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static TableKind> {
    ALL.iter().find(|kind| kind.name == name)
}
