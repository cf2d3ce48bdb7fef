//! Runs whose hosts answer as a test decides.
#![cfg(test)]

mod clock;
mod runs;
