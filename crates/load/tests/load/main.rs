//! The load of hosts that are all in one process.
#![cfg(test)]

mod allocations;
#[path = "../../../../tests/attempts.rs"]
mod attempts;
