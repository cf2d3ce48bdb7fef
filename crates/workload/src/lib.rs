//! Makes the traffic: profile languages, programs, strands, engines and protocols.

pub mod flowops;
mod inet;
pub mod program;
pub mod protocols;
