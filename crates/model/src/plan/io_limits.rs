//! What checking a plan takes to know of I/O options and protocols, whose names mean nothing to this crate.

use super::LimitError;
use crate::profile::{IoValues, Options};

/// Where received bytes are written. Each is a file of every worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sink {
    pub directory: String,
    /// Of its files.
    pub bytes: u64,
    /// By what sinks in a directory differ.
    pub flags: u8,
    /// Bytes of memory of each worker.
    pub memory: u64,
}

/// Knows the I/O options.
pub trait IoLimits: std::fmt::Debug {
    /// # Errors
    /// An unknown option, or a value out of range.
    fn check(&self, io: &IoValues) -> Result<(), LimitError>;

    /// Datagrams of one execution of a flowop.
    fn datagrams(&self, io: &IoValues) -> u64;

    /// Where a receiver with these options writes what it receives.
    fn sink(&self, options: &Options) -> Option<Sink>;

    /// Bytes that each strand keeps for a flowop with these options.
    fn kept(&self, options: &Options) -> u64;
}

/// An option with a limit, and a directory.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct TwoOptions;

#[cfg(test)]
impl IoLimits for TwoOptions {
    fn check(&self, io: &IoValues) -> Result<(), LimitError> {
        match io.get("batch") {
            Some(crate::profile::IoValue::Number(messages)) => {
                super::at_most("batch", *messages, 1000u32)
            }
            _ => Ok(()),
        }
    }

    fn datagrams(&self, io: &IoValues) -> u64 {
        match io.get("batch") {
            Some(crate::profile::IoValue::Number(messages)) => *messages,
            _ => 1,
        }
    }

    fn sink(&self, options: &Options) -> Option<Sink> {
        match options.io.get("sink") {
            Some(crate::profile::IoValue::Text(directory)) => Some(Sink {
                directory: directory.clone(),
                bytes: 1 << 20,
                flags: 0,
                memory: super::limits::SINK_BLOCK,
            }),
            _ => None,
        }
    }

    fn kept(&self, options: &Options) -> u64 {
        match options.protocol.as_deref() {
            Some("heavy") => 1 << 20,
            _ => 0,
        }
    }
}
