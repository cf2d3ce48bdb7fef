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
mod runner;
mod scalar;
mod stop;

pub mod builtins;

pub use condition::Condition;
pub use definition::{Baseline, Definition, LabDefinition, Order, Place, Repeat, TableChoice};
pub use error::StudyError;
pub use expect::{Expectation, Verdict};
pub use matrix::{Matrix, Skipped};
pub use order::Task;
pub use runner::{Event, Listener, PointError, PointRunner, StopReason, Summary, run};

/// Checks the repeats and expectations of a study.
///
/// # Errors
/// The first invalid one.
pub fn check(study: &Definition) -> Result<(), StudyError> {
    stop::StopRule::of(&study.repeat)?;
    Expectation::all(study).map(|_| ())
}
