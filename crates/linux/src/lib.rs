//! Typed access to the kernel interfaces that wirecost needs. Mechanism only: what to do with them
//! is decided elsewhere.

pub mod clock;
pub mod descriptors;
pub mod sockopt;
pub mod tcp_info;
pub mod thread;
