//! The bench as its user calls it.
#![cfg(test)]

mod built;
mod interrupt;
mod peers;
mod variants;
