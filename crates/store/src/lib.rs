//! Records of runs, and studies made of them, on disk.
//!
//! A record is a directory with `run.json`, the document of the run (or `observe.json`, of a host that
//! was only observed), `hosts.json`, the environment of each host by its name, `samples.parquet`,
//! what the document holds over time, and where functions were sampled `stacks.folded`.
//! docs/records.md describes them.
//!
//! A [`Recorder`] makes the record of one run. It is made before the run, so that a directory that
//! cannot take it is refused before anything moves. A [`study::Writer`] keeps those of a study. What is
//! there is whole, also after a crash at any instant (ADR 0018).

mod document;
mod draft;
mod error;
mod parquet_file;
mod record;
mod stacks;
mod version;

pub mod samples;
pub mod schema;
pub mod study;

pub use document::{Document, document, run};
pub use error::StoreError;
pub use record::{Record, Recorder, hosts, read};

pub const RUN: &str = "run.json";
pub const OBSERVATION: &str = "observe.json";
pub const HOSTS: &str = "hosts.json";
pub const SAMPLES: &str = "samples.parquet";
pub const STACKS: &str = "stacks.folded";
