//! Drives the traffic of a host: sockets of every protocol, TLS, files, engines and workers, from the
//! plan to the end of the last phase.

mod broker;
mod clients;
pub mod congestion;
mod consent;
mod disk_space;
pub mod engines;
pub mod files;
mod frames;
pub mod fuzzing;
mod inet;
pub mod load;
pub mod permissions;
pub mod preparation;
mod ring_net;
mod socket_options;
mod sockets;
mod strand_series;
mod stream_files;
mod tls;
mod transports;
mod worker;

pub use crate::sockets::flows_by_cpu;
