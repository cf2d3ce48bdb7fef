//! Studies: all runs of a matrix of points. docs/studies.md describes the format. [`Definition`] is a
//! study file, [`Matrix`] its points, and [`run()`] makes the runs.
//!
//! A [`PointRunner`] makes single runs. Nothing in this crate reads a clock, a file or a socket.

mod condition;
mod definition;
mod error;
mod expect;
mod matrix;
mod order;
mod place;
mod portable;
mod runner;
mod scalar;
mod search;
mod search_runner;
mod stop;
pub mod tuning;
mod variation;

pub mod builtins;

use std::collections::BTreeMap;

pub use condition::Condition;
pub use definition::{Baseline, Definition, LabDefinition, Order, Repeat, TableChoice};
pub use error::StudyError;
pub use expect::{Expectation, Verdict};
pub use matrix::{Matrix, Skipped};
pub use order::Task;
pub use place::{PLACE, Place};
pub use runner::{Event, Listener, PointError, PointRunner, StopReason, Summary, run};
pub use scalar::Scalar;
pub use search::{GoalDefinition, SearchDefinition, search};
pub use variation::Vary;

/// Checks the repeats, the search and the expectations of a study.
///
/// # Errors
/// The first invalid one.
pub fn check(study: &Definition) -> Result<(), StudyError> {
    stop::StopRule::of(&study.repeat)?;
    search(study)?;
    Expectation::all(study).map(|_| ())
}

/// Every key of a study file with its value as TOML, by its dotted path: `set.option.wndsz` is `"256k"`.
/// `None` if the text is no TOML.
#[must_use]
pub fn keys(text: &str) -> Option<BTreeMap<String, String>> {
    fn add(path: &str, value: &toml::Value, keys: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) => {
                for (name, value) in table {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    add(&path, value, keys);
                }
            }
            value => {
                keys.insert(path.to_owned(), value.to_string());
            }
        }
    }
    let table: toml::Table = toml::from_str(text).ok()?;
    let mut keys = BTreeMap::new();
    add("", &toml::Value::Table(table), &mut keys);
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_dotted_paths() {
        let text =
            "profile = \"@stream\"\n[set]\n\"option.wndsz\" = \"256k\"\n[axes]\nsize = [1, 2]\n";
        let keys: Vec<(String, String)> = keys(text).unwrap().into_iter().collect();
        let expected =
            [("axes.size", "[1, 2]"), ("profile", "\"@stream\""), ("set.option.wndsz", "\"256k\"")];
        assert_eq!(keys, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(super::keys("= no"), None);
    }
}
