//! Documents and their outputs, as people and programs read them.
#![cfg(test)]

mod comparison;
mod doctor;
mod fixtures;
mod older_records;
mod pages;
mod reports;
mod schema;
mod terminal;
mod uperf;
