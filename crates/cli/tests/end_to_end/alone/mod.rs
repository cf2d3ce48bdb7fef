//! What must have the machine to itself, as it counts what all programs do: these run one at a time after all others
//! (scripts/test).

mod idle;
mod short_connections;
