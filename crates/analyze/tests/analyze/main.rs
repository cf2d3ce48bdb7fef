//! Figures, warnings and findings of runs and studies whose answer is known.
#![cfg(test)]

mod conservation;
mod figures;
mod findings;
mod observed;
#[path = "../../../../tests/seed.rs"]
mod seed;
mod steadiness;
mod two_hosts;
