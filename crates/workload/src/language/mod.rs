//! The profile language: uperf's dialect and well-formed XML, by one lexer.
//!
//! The way of a text: `lexer` cuts it, `typed` finds what belongs to what by uperf's rules, [`parse()`]
//! looks up variables and reads values into a [`wirecost_model::profile::Profile`], `quirks` and
//! `runnable` look at the whole. Nothing here reads the environment or a file.

mod error;
mod escape;
mod flowop;
mod io;
mod lexer;
mod names;
mod note;
mod number;
mod options;
mod parse;
mod print;
mod quirks;
mod runnable;
mod source;
#[cfg(test)]
mod tests;
mod typed;
mod variables;

pub use error::{LanguageError, LanguageErrorKind};
pub use note::{Note, NoteKind};
pub use number::{Nonsense, NumberError};
pub use options::{ALL as OPTIONS, Form, OptionDef, ValueKind, find as find_option};
pub use parse::{Parsed, parse};
pub use print::print;
pub use runnable::{runnable, unbuilt};
pub use source::Span;
pub use variables::{VariableUse, Variables, variables};
