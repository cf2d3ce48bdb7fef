//! Makes the traffic: profile languages, programs, strands, engines and protocols.

pub mod builtins;
pub mod calls;
mod doorman;
mod draw;
mod engines;
pub mod flowops;
mod hello;
mod inet;
pub mod language;
pub mod limits;
pub mod load;
pub mod net;
mod payload;
pub mod program;
pub mod protocols;
mod quantiles;
pub mod record;
mod ring_net;
mod route;
#[cfg(test)]
mod sim;
mod sockets;
pub mod step;
pub mod strand;
mod tls;
mod worker;
