//! A profile compiled for each host: its program, what a strand does next, random draws, payloads
//! and counters. Pure: a strand reaches sockets and the clock only through [`net::Net`], and a
//! simulated network stands in for both in tests.

mod arrivals;
pub mod calls;
pub mod clients;
pub mod congestion;
pub mod departures;
pub mod draw;
pub mod files;
pub mod headline;
pub mod hello;
pub mod limits;
pub mod net;
pub mod offered;
mod openers;
pub mod operation_log;
mod outstanding;
pub mod payload;
pub mod program;
mod quantiles;
pub mod record;
mod route;
pub mod served;
#[cfg(test)]
mod sim;
pub mod socket_setup;
pub mod step;
pub mod strand;
