//! Records and studies on disk.
#![cfg(test)]

mod bad_input;
mod crashes;
mod data_frames;
mod old_versions;
mod recorded;
mod records;
#[path = "../../../../tests/seed.rs"]
mod seed;
mod studies;
