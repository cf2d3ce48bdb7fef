//! Congestion control as BPF programs, in this kernel.
#![cfg(test)]

mod flow;
mod objects;
