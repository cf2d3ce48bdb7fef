//! TCP congestion control as BPF programs (struct_ops): BIC with its model, and objects of the user's. A program is
//! registered under a name that is unique to the process, for as long as the process has its link: the kernel removes it
//! however the process ends. It is chosen by setsockopt(2) only.

pub mod bic;
mod kernel;
mod maps;
pub mod names;
mod object;

pub use kernel::{Obstacle, obstacle};
pub use object::{Loaded, UserObject};

use wirecost_bpf_log::excerpt;

/// Why a program is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// It is no object that has congestion control.
    #[error("{0}")]
    Object(String),
    #[error(
        "this kernel has a congestion control named {0} already; rename that of the object (its .name)"
    )]
    Exists(String),
    /// The log is what libbpf and the verifier said.
    #[error("the kernel refuses it: {reason}{}", excerpt(log))]
    Refused { reason: String, log: String },
}

impl Error {
    pub(crate) fn logged((error, log): (libbpf_rs::Error, String)) -> Self {
        // With its causes.
        Self::Refused { reason: format!("{error:#}"), log }
    }

    pub(crate) fn of_libbpf(error: libbpf_rs::Error) -> Self {
        Self::logged((error, String::new()))
    }
}
