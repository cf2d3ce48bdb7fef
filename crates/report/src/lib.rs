//! What a person or a program reads of a run: the table in the terminal, progress while it runs, uperf's
//! own lines, flame graphs, and JSON. Everything is written to a writer that the caller hands in.

pub mod document;
pub mod flame;
pub mod json;
pub mod outputs;
pub mod progress;
pub mod tables;
pub mod terminal;
pub mod uperf;
pub mod whole_file;
