//! Documents of what was measured: of a run, of a host that was observed or examined, of a comparison, of a
//! cost model. Those of studies have the sections of [`crate::tables`] and [`findings`].

pub mod comparison;
pub mod cost_model;
pub mod doctor;
pub mod findings;
mod observed;
pub mod page;
pub mod replay;
pub mod run;
pub mod tuning;
pub mod watched;
