//! Studies that come with wirecost.

use crate::definition::Definition;
use crate::error::{StudyError, nearest};

/// One of them.
#[derive(Debug)]
pub struct Builtin {
    /// Without the `@`.
    pub name: &'static str,
    /// The file.
    pub source: &'static str,
}

/// All of them.
pub static ALL: &[Builtin] = &[
    Builtin { name: "lso", source: include_str!("lso.toml") },
    Builtin { name: "function-cost", source: include_str!("function-cost.toml") },
    Builtin { name: "interrupt-cost", source: include_str!("interrupt-cost.toml") },
    Builtin { name: "patterns", source: include_str!("patterns.toml") },
];

/// The built-in study of this name, without the `@`.
///
/// # Errors
/// There is none; the error names the nearest.
pub fn find(name: &str) -> Result<&'static Builtin, StudyError> {
    ALL.iter().find(|builtin| builtin.name == name).ok_or_else(|| StudyError::NoBuiltin {
        name: name.to_owned(),
        nearest: nearest(name, ALL.iter().map(|builtin| builtin.name)),
    })
}

impl Builtin {
    /// What it says.
    ///
    /// # Errors
    /// It is no study.
    pub fn definition(&self) -> Result<Definition, StudyError> {
        Definition::parse(self.source)
    }
}
