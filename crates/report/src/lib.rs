//! What a person or a program reads of a run. What is measured becomes a document, and a document is written
//! by an output; beside that progress while it runs, uperf's own lines, flame graphs, and JSON. Everything is
//! written to a writer that the caller hands in.

pub mod atomic_file;
pub mod documents;
pub mod flame;
pub mod json;
pub mod outputs;
pub mod progress;
pub mod run_lines;
pub mod tables;
pub mod uperf;
