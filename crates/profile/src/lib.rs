//! What a profile may say: the profile languages and built-in profiles, and the facts of flowops,
//! protocols and I/O options that other crates act on.

pub mod builtins;
pub mod flowops;
pub mod io_options;
pub mod language;
pub mod open_connections;
pub mod protocols;
pub mod socket_option;
