//! Records of runs, and studies of records, on disk.
//!
//! A record is a directory with these files: `run.json`, the document of the run (or `observe.json`, of an
//! observation); `hosts.json`, the environment of each host by name; `samples.parquet`, the document's
//! values over time; `stacks.folded`, if functions were sampled; `cpu_parts.json`, if CPUs were traced; `trace.json`, if a trace was requested; and `files.json`, hashes of the others.
//! docs/records.md describes them.
//!
//! A [`Recorder`] writes the record of one run. It is created before the run, so that an unsuitable
//! directory is refused early. A [`study::Writer`] writes the records of a study. An existing record is
//! complete, also after a crash at any instant (ADR 0018).

mod cpu_parts;
mod document;
mod error;
mod parquet_file;
mod record;
mod stacks;
mod staged_dir;
mod sums;
mod trace;
mod version;

pub mod input;
pub mod samples;
pub mod schema;
pub mod study;

pub use document::{Document, document, run};
pub use error::StoreError;
pub use record::{Record, Recorder, hosts, read};
pub use study::runs;

pub const RUN: &str = "run.json";
pub const OBSERVATION: &str = "observe.json";
pub const HOSTS: &str = "hosts.json";
pub const SAMPLES: &str = "samples.parquet";
pub const STACKS: &str = "stacks.folded";
/// What CPUs did over time, as the document of a run that was not saved has it.
pub const CPU_PARTS: &str = "cpu_parts.json";
/// For trace viewers; nothing here reads it.
pub const TRACE: &str = "trace.json";
/// Hashes of the others.
pub const SUMS: &str = "files.json";
