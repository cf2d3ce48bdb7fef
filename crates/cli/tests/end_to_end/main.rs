//! The program as its user meets it: every test runs the real binary, with real traffic, on loopback
//! or in namespaces that it makes. Each has its own, so they run side by side (but see `alone`).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in what it calls"
)]

// Its macro is for the modules below it.
#[macro_use]
mod engines;

mod af_xdp;
mod agents;
mod alone;
#[path = "../../../../tests/attempts.rs"]
mod attempts;
mod builtin_studies;
mod builtins;
mod compare;
mod congestion;
mod congestion_truth;
mod connections;
mod crypto;
mod datagrams;
mod dead_time;
mod departures;
mod doctor;
mod document;
mod exact;
mod files;
mod findings;
mod frames;
mod honesty;
mod hostile;
mod html;
mod interruption;
mod io;
mod io_uring;
mod lab;
mod links;
mod long_haul;
mod machines;
mod native;
mod netem;
mod observe;
mod option_payoff;
mod output;
mod packets;
mod phases;
mod program;
mod protocols;
mod rate_search;
mod receive_stamps;
mod refusals;
mod replay;
mod report;
mod responsiveness;
mod rights;
mod rss;
mod scale;
#[path = "../../../../tests/seed.rs"]
mod seed;
mod server_listeners;
mod server_sockets;
mod soak;
mod stacks;
mod studies;
mod threads;
mod timed_datagrams;
mod timing;
mod tune;
mod tuning;
mod udp_scaling;
mod uperf_mode;
mod uperf_parsers;
mod wan;
