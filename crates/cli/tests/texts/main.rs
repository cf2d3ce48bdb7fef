//! What the program, its documents and its records of old say.
#![cfg(test)]

mod documents;
mod old_records;
mod readme;
mod transcripts;
