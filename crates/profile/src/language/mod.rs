//! The profile languages: uperf's, in its own dialect and in well-formed XML (one lexer reads both),
//! and the native one in TOML ([`native`]). Options of flowops are the same in all.
//!
//! The way of a text in uperf's language: `lexer` cuts it, `typed` finds what belongs to what by uperf's rules, [`parse()`]
//! looks up variables and reads values into a [`wirecost_model::profile::Profile`], `quirks` and
//! `runnable` look at the whole. Nothing here reads the environment or a file.

mod convert;
mod error;
mod escape;
mod flowop;
mod io;
mod lexer;
mod names;
pub mod native;
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
mod trace;
mod typed;
mod variables;

pub use convert::unrepresentable;
pub use error::{LanguageError, LanguageErrorKind};
pub use flowop::code_point;
pub use note::{Note, NoteKind};
pub use number::{Nonsense, NumberError, duration, number};
pub use options::{
    Form, OptionDef, ValueKind, all as options, find as find_option, requested, time,
};
pub use parse::{Parsed, parse};
pub use print::print;
pub use runnable::{runnable, unsupported};
pub use source::Span;
pub use trace::{LONGEST_TRACE, read_traces};
pub use variables::{VariableUse, Variables};

/// How deep loops can be nested.
pub const DEEPEST_LOOP: usize = 4;

/// A language that profiles are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// uperf's, as dialect or as XML.
    Xml,
    /// The native one.
    Toml,
}

impl Language {
    pub const ALL: [Language; 2] = [Language::Xml, Language::Toml];

    /// As in the names of files.
    pub fn name(self) -> &'static str {
        match self {
            Language::Xml => "xml",
            Language::Toml => "toml",
        }
    }

    /// The language of a file: its name says so, or else its first character does.
    pub fn of(file: &str, source: &str) -> Self {
        let ends = |language: Language| {
            let (_, end) = file.rsplit_once('.')?;
            end.eq_ignore_ascii_case(language.name()).then_some(language)
        };
        let named = Self::ALL.into_iter().find_map(ends);
        let text = source.trim_start_matches(['\u{feff}', ' ', '\t', '\n', '\r']);
        let begins = if text.is_empty() || text.starts_with('<') { Self::Xml } else { Self::Toml };
        named.unwrap_or(begins)
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// See [`parse()`].
    pub fn parse(
        self,
        source: &str,
        variables: &dyn Variables,
    ) -> Result<Parsed, Vec<LanguageError>> {
        match self {
            Language::Xml => parse(source, variables),
            Language::Toml => native::parse(source, variables),
        }
    }

    /// Writes a profile; [`unrepresentable`] tells what is lost.
    pub fn print(self, profile: &wirecost_model::profile::Profile) -> String {
        match self {
            Language::Xml => print(profile),
            Language::Toml => native::print(profile),
        }
    }

    /// Every use of a variable that `source` itself holds, in its order; those inside of a variable's
    /// own value (`options="$opts"`) are not known before it is looked up.
    pub fn variables(self, source: &str) -> Vec<VariableUse> {
        match self {
            Language::Xml => variables::variables(source),
            Language::Toml => native::variables(source),
        }
    }
}
