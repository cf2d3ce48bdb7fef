//! Makes the traffic: profile languages, programs, strands, engines and protocols.

pub mod builtins;
pub mod flowops;
pub mod language;
