//! The nouns of wirecost, shared by every other crate: what a profile means, the program that each
//! side of it runs, what a host counted, and the document of a finished run. Nothing here does I/O,
//! reads a clock or knows a socket.

pub mod clock;
pub mod comparison;
pub mod congestion;
pub mod convergence;
pub mod cost;
pub mod doctor;
pub mod document;
pub mod environment;
pub mod event;
pub mod frames;
pub mod histogram;
pub mod holder;
pub mod host;
pub mod link;
pub mod measure;
pub mod metric;
pub mod observe;
pub mod order;
pub mod outcome;
pub mod packets;
pub mod placement;
pub mod plan;
pub mod probe;
pub mod profile;
pub mod program;
pub mod proportion;
pub mod quantity;
pub mod receive_stamps;
mod renamed;
pub mod rss;
pub mod run;
pub mod sample;
pub mod search;
pub mod server_sockets;
pub mod stability;
pub mod status;
pub mod study;
pub mod tuning;
pub mod units;
pub mod visible;
pub mod warning;
pub mod watched;
