//! Tests of shares of samples, which other programs on the CPUs would change.

mod functions;
mod netfilter;
mod shares;
