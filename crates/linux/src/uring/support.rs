//! Whether this process may use rings, and if not, why.

use std::io;

use rustix::io::Errno;

use super::{Buffers, Ring, Setup};

/// Why there are no rings, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The system call is not there.
    #[error("the kernel is built without io_uring; use one that has CONFIG_IO_URING")]
    NotBuilt,
    /// Sysctl `kernel.io_uring_disabled`, and what it says.
    #[error(
        "kernel.io_uring_disabled is {0}; allow it by sysctl -w kernel.io_uring_disabled=0 \
         (1 allows it to root and to the group of kernel.io_uring_group)"
    )]
    Disabled(u8),
    #[error(
        "a policy forbids it (often the seccomp filter of a container; docker and podman take \
         --security-opt seccomp=FILE with one that allows io_uring_setup, io_uring_enter and \
         io_uring_register)"
    )]
    Forbidden,
    #[error("the kernel lacks {0}; Linux 6.1 has it")]
    Missing(&'static str),
    #[error("no memory for it; raise the limit of locked memory (ulimit -l)")]
    Memory,
    #[error("{0}")]
    Other(String),
}

impl Unavailable {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSYS) => Self::NotBuilt,
            Some(Errno::PERM | Errno::ACCESS) => match disabled() {
                Some(by) if by > 0 => Self::Disabled(by),
                _ => Self::Forbidden,
            },
            Some(Errno::INVAL) => Self::Missing("its flags SINGLE_ISSUER and DEFER_TASKRUN"),
            Some(Errno::NOMEM) => Self::Memory,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// 0: everybody may, 1: only some, 2: nobody; `None` before Linux 6.6.
fn disabled() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

/// Makes a small ring and lets go of it.
///
/// # Errors
/// Why a [`Ring`] cannot be made by this thread.
pub fn available() -> Result<(), Unavailable> {
    let buffers = Buffers { count: 1, bytes: 4096 };
    let setup = Setup { entries: 8, buffers, files: 1, poller: None };
    Ring::<std::os::fd::OwnedFd>::new(&setup).map(drop)
}
