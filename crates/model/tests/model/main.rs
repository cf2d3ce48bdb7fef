//! What holds of the nouns for all values.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in what it calls")]

mod clock;
mod events;
mod histogram;
mod proportion;
mod quantity;
mod status;
mod units;
