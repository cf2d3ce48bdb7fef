//! The engines: how a worker's thread waits for I/O. What happens in between is the same for all.

pub(crate) mod epoll;
pub(crate) mod io_uring;
mod seats;
pub(crate) mod threads;
