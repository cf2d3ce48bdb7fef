//! Studies that are part of the program.
#![cfg(test)]

mod builtins;
