//! Studies: all runs of a matrix of points. docs/studies.md is the language; [`Definition`] is a file
//! of it, [`Matrix`] what it means, [`run()`] makes the runs.
//!
//! How one run is made is not known here: [`Bench`] is the line. Nothing here reads a clock, a file or a
//! socket.

mod condition;
mod definition;
mod error;
mod expect;
mod matrix;
mod order;
mod runner;
mod scalar;
mod stop;

pub mod builtins;

pub use condition::Condition;
pub use definition::{Baseline, Definition, LabDefinition, Order, Place, Repeat, TableWanted};
pub use error::StudyError;
pub use expect::{Expectation, Verdict};
pub use matrix::{Matrix, Skipped};
pub use order::Task;
pub use runner::{Bench, Ended, Event, Listener, Refusal, Summary, run};

/// That what a study says of repeats and expectations can be meant.
///
/// # Errors
/// What cannot.
pub fn check(study: &Definition) -> Result<(), StudyError> {
    stop::StopRule::of(&study.repeat)?;
    Expectation::all(study).map(|_| ())
}
