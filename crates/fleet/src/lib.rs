//! One host or many, the same way: a [`host::Host`] takes orders and gives notices, whether it is a
//! process on this machine or an agent elsewhere. The controller decides, hosts do.

mod acceptor;
pub mod agent;
pub mod ask;
mod clock_offset;
pub mod controller;
pub mod environment;
pub mod guest;
pub mod host;
pub mod listener;
pub mod machine;
pub mod memory;
mod observing;
pub mod remote_claim;
pub mod runtime_dir;
pub mod serial;
mod tuning;
mod unauthenticated;
mod watchdog;
pub mod wire;
