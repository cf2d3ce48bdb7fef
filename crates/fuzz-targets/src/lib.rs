//! What the fuzz targets of `fuzz/` call: a module for each target, whose function `run` takes an input and panics
//! if the input shows a fault. libFuzzer calls it in `make fuzz`. `tests/replay` calls it with the seeds and
//! with mutations of them, without libFuzzer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a target reports a fault by panicking")]

pub mod hello;
pub mod kernel;
pub mod order;
pub mod proc;
pub mod profile;
pub mod record;
pub mod samples;
pub mod study;
pub mod tls;
pub mod trace;
