//! What is wrong with a profile: one message, its place and the remedy.

use wirecost_model::profile::Position;

use super::number::{Nonsense, NumberError};
use super::source::Span;

/// One mistake in a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct LanguageError {
    pub kind: LanguageErrorKind,
    /// Line and column; (0, 0) where the error is about the whole file.
    pub at: Position,
    /// What to underline; of length 0 where there is nothing.
    pub span: Span,
}

impl LanguageError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        self.kind.help()
    }
}

/// What a mistake is; `Display` is the message for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LanguageErrorKind {
    // Mistakes of form.
    #[error("the file is empty")]
    EmptyFile,
    #[error("'{text}' is neither a tag nor an attribute")]
    UnexpectedText { text: String },
    #[error("this {what} is not closed")]
    Unclosed { what: &'static str },
    #[error("unknown tag <{tag}>")]
    UnknownTag { tag: String, nearest: Option<&'static str> },
    #[error("unknown attribute '{name}'")]
    UnknownAttribute { name: String, nearest: Option<&'static str> },
    #[error("{what} is outside a group")]
    OutsideGroup { what: String },
    #[error("{what} is outside a transaction")]
    OutsideTransaction { what: String },
    #[error("{what} is outside a flowop")]
    OutsideFlowop { what: String },

    // Mistakes of form in TOML.
    #[error("this is not TOML: {message}")]
    NotToml { message: String },
    #[error("unknown key '{key}' in {table}")]
    UnknownKey { key: String, table: &'static str, nearest: Option<&'static str>, known: String },
    #[error("{table} needs {key}")]
    MissingKey { key: &'static str, table: &'static str },
    #[error("{key} must be {wanted}, not a TOML {found}")]
    WrongType { key: &'static str, wanted: &'static str, found: &'static str },
    #[error("{a} and {b} exclude each other")]
    Together { a: &'static str, b: &'static str },
    #[error("{key} has no meaning without {needs}")]
    NeedsKey { key: &'static str, needs: &'static str },
    #[error("this {what} is empty")]
    NothingInside { what: &'static str },
    #[error("loops are nested deeper than {deepest}")]
    TooDeep { deepest: usize },
    #[error("names and values cannot contain a NUL character")]
    Nul,

    // Mistakes in values.
    #[error("{what}='{value}' is not {wanted}")]
    BadValue { what: &'static str, value: String, wanted: &'static str, help: &'static str },
    #[error("this is not a distribution of {what}")]
    OneDistribution { what: &'static str },
    #[error("min is greater than max")]
    MinAboveMax,
    #[error("{file}, line {line}: {reason}")]
    BadTrace { file: String, line: usize, reason: &'static str },
    #[error("cannot read the trace {file}: {reason}")]
    NoTrace { file: String, reason: String },
    #[error("{what} cannot be expressed in {language}: {why}")]
    NotRepresentable { what: String, language: &'static str, why: &'static str },
    #[error("variable '{name}' is not set")]
    UnsetVariable {
        name: String,
        /// It stands for the name of a host, which a caller may be able to supply.
        remotehost: bool,
    },
    #[error("variable '{name}' is empty")]
    EmptyVariable { name: String },
    #[error("unknown flowop '{name}'")]
    UnknownFlowop { name: String, nearest: Option<&'static str> },
    #[error("unknown protocol '{name}'")]
    UnknownProtocol { name: String, nearest: Option<&'static str> },
    #[error("unknown option '{name}'")]
    UnknownOption { name: String, nearest: Option<&'static str> },
    #[error("option {option} needs a value")]
    NeedsValue { option: &'static str },
    #[error("option {option} takes no value")]
    TakesNoValue { option: &'static str },
    #[error("{what}='{value}' is not a number: {reason}")]
    BadNumber { what: &'static str, value: String, reason: NumberError },
    #[error("{what}='{value}' is not a time: {reason}")]
    BadTime { what: &'static str, value: String, reason: NumberError },
    #[error("{what}={value} is out of range: {min} to {max} can be used")]
    OutOfRange { what: &'static str, value: String, min: u64, max: u64 },
    #[error("size='{value}' is not a size: {reason}")]
    BadSize { value: String, reason: NumberError },
    #[error("conn='{value}' is not a connection id")]
    BadConn { value: String },
    #[error("{what}={value} is out of range")]
    TimeOutOfRange { what: &'static str, value: String, min: String, max: String },
    #[error("{what}='{value}' is not a code point")]
    BadCodePoint { what: &'static str, value: String, max: u64 },
    #[error("{what}='{value}' is unknown")]
    BadChoice { what: &'static str, value: String, words: &'static [&'static str] },
    #[error("cipher='{value}' is not a cipher of TLS 1.3")]
    BadCipher { value: String },
    #[error("payload='{value}' is unknown")]
    BadPayload { value: String },

    // What uperf accepts and fails on later: reasons not to run, not to refuse the file.
    #[error("the profile has nothing to run")]
    NothingToRun,
    #[error("the flowop has no type")]
    NoType,
    #[error("{flowop} needs {option}")]
    MissingOption { flowop: String, option: &'static str },
    #[error("size=rand({min},{max}): the smallest size is larger than the largest")]
    RandomBackwards { min: u64, max: u64 },
    #[error("size={size} is more than the {longest} bytes that one {protocol} message can have")]
    MessageTooLong { size: u64, longest: u64, protocol: String },
    #[error("{option} does not go with {protocol}: a read takes one whole message")]
    CutsMessages { option: &'static str, protocol: String },
    #[error("{flowop} needs a stream that one end can end by itself, which {protocol} is not")]
    NoHalfClose { flowop: String, protocol: String },
    #[error("{option} and {other} exclude each other: {why}")]
    Contradiction { option: &'static str, other: &'static str, why: &'static str },
    #[error(
        "gso={segments} of size={size} is a message of {} bytes; the longest has {longest}",
        .size * .segments
    )]
    TooManySegments { size: u64, segments: u64, longest: u64 },
    #[error("{what}={value} cannot be used: {reason}")]
    UnusableTime { what: &'static str, value: String, reason: Nonsense },
    #[error("count={value} is negative")]
    NegativeCount { value: String },
    #[error("{flowop} uses {}, which is not open at that point", connection(*.conn))]
    NotConnected { flowop: String, conn: u32 },
    #[error("disconnect closes {} more often than it is opened", connection(*.conn))]
    ClosedTooOften { conn: u32 },
    #[error("flowop {name} is not supported yet")]
    FlowopNotSupported { name: String },
    #[error("protocol {name} is not supported yet; supported: {}", super::names::built_protocols().join(", "))]
    ProtocolNotSupported { name: String },
    #[error("option {name} is not supported yet")]
    OptionNotSupported { name: String },
}

fn connection(conn: u32) -> String {
    match conn {
        0 => "the connection without id".to_owned(),
        id => format!("connection {id}"),
    }
}

impl LanguageErrorKind {
    /// The option of a flowop that the error is about; empty where it is about the whole.
    pub(super) fn option(&self) -> &str {
        match self {
            LanguageErrorKind::RandomBackwards { .. }
            | LanguageErrorKind::MessageTooLong { .. } => "size",
            LanguageErrorKind::Contradiction { option, .. }
            | LanguageErrorKind::CutsMessages { option, .. } => option,
            LanguageErrorKind::TooManySegments { .. } => "gso",
            LanguageErrorKind::NotConnected { .. } | LanguageErrorKind::ClosedTooOften { .. } => {
                "conn"
            }
            LanguageErrorKind::ProtocolNotSupported { .. } => "protocol",
            LanguageErrorKind::OptionNotSupported { name } => name,
            _ => "",
        }
    }

    fn help(&self) -> Option<String> {
        use LanguageErrorKind as Kind;
        let text = match self {
            Kind::NothingToRun => {
                "a profile needs a group of strands that has a transaction of flowops; \
                 `wirecost list` lists profiles to start from"
                    .to_owned()
            }
            Kind::NotToml { .. } => {
                "docs/profiles.md describes the language; `wirecost list @rpc-mix` is an example"
                    .to_owned()
            }
            Kind::UnknownKey { nearest, known, .. } => {
                nearest.map_or_else(|| format!("known keys: {known}"), |name| format!("did you mean {name}?"))
            }
            Kind::MissingKey { key, .. } => format!("add {key} = ..."),
            Kind::WrongType { wanted, .. } => format!("write {wanted}"),
            Kind::Together { a, b } => format!("remove one of {a} and {b}"),
            Kind::NeedsKey { needs, .. } => format!("add {needs} = ..., or leave it out"),
            Kind::NothingInside { .. } => {
                "add a flowop; \"nop\" does nothing".to_owned()
            }
            Kind::TooDeep { .. } => "multiply the numbers of two of them".to_owned(),
            Kind::Nul => "leave it out".to_owned(),
            Kind::BadValue { help, .. } => (*help).to_owned(),
            Kind::OneDistribution { .. } => {
                "write one of uniform, lognormal, exponential, table, by_strand (and imix for bytes), \
                 as in { uniform = { min = 1, max = 9 } }"
                    .to_owned()
            }
            Kind::MinAboveMax => "swap them".to_owned(),
            Kind::BadTrace { .. } => {
                "a trace has one time per line, in seconds (0.25) or with a unit (250us), and comments \
                 after #"
                    .to_owned()
            }
            Kind::NoTrace { .. } => {
                "a path is relative to the directory where wirecost starts; only that host reads the file"
                    .to_owned()
            }
            Kind::NotRepresentable { .. } => "change the profile, or keep it in its language".to_owned(),
            Kind::EmptyFile => {
                "write a <profile> with a <group nthreads=\"1\"> that has a <transaction> of flowops; \
                 `wirecost list` lists profiles to start from"
                    .to_owned()
            }
            Kind::UnexpectedText { .. } => {
                "put values with spaces in double quotes, and comments between <!-- and -->"
                    .to_owned()
            }
            Kind::Unclosed { .. } => {
                "close it, or look for a missing quote before it".to_owned()
            }
            Kind::UnknownTag { nearest, .. } => suggestion(
                *nearest,
                "known tags: profile, group, transaction, flowop",
            ),
            Kind::UnknownAttribute { nearest, .. } => suggestion(
                *nearest,
                "known attributes: name, nthreads, nprocs, iterations, duration, rate, type, options",
            ),
            Kind::OutsideGroup { .. } => "put it between <group ...> and </group>".to_owned(),
            Kind::OutsideTransaction { .. } => {
                "put it between <transaction ...> and </transaction>".to_owned()
            }
            Kind::OutsideFlowop { .. } => "put it inside <flowop ... />".to_owned(),
            Kind::UnsetVariable { name, .. } => {
                format!("give it with --var {name}=... or in the environment: {name}=... wirecost ...")
            }
            Kind::EmptyVariable { name } => format!("give it a value, as in --var {name}=1"),
            Kind::UnknownFlowop { nearest, .. }
            | Kind::UnknownProtocol { nearest, .. }
            | Kind::UnknownOption { nearest, .. } => {
                suggestion(*nearest, "`wirecost list` names all that are known")
            }
            Kind::NeedsValue { option } => format!("write {option}=value, without spaces"),
            Kind::TakesNoValue { option } => format!("write only {option}"),
            Kind::BadNumber {
                reason: NumberError::TooLarge,
                ..
            }
            | Kind::BadSize {
                reason: NumberError::TooLarge,
                ..
            } => "choose a smaller number, such as 64k, with no suffix but k, m or g; count=... \
                  repeats a flowop to move more"
                .to_owned(),
            Kind::BadSize {
                reason: NumberError::Zero,
                ..
            }
            | Kind::BadTime {
                reason: NumberError::Zero,
                ..
            } => "choose more than 0, or leave it out".to_owned(),
            Kind::BadNumber { .. } => "write digits and at most one suffix, as in 64k".to_owned(),
            Kind::BadTime { .. } => {
                "write digits and a unit: s for seconds, ms, us or ns".to_owned()
            }
            Kind::OutOfRange { min, max, .. } => format!("choose a number from {min} to {max}"),
            Kind::BadSize { .. } => {
                "write bytes as in size=64k, or size=rand(64,8k) without spaces".to_owned()
            }
            Kind::BadConn { .. } => {
                "write a number from 1, or a range of them as in conn=1..100".to_owned()
            }
            Kind::TimeOutOfRange { min, max, .. } => format!("choose a time from {min} to {max}"),
            Kind::BadCodePoint { max, .. } => format!(
                "write a number from 0 to {max}, or be, le, ef, va, cs0 to cs7, af11 to af43"
            ),
            Kind::BadChoice { words, .. } => format!("write {}", words.join(", ")),
            Kind::BadCipher { .. } => "write aes128, aes256 or chacha20".to_owned(),
            Kind::BadPayload { .. } => "write zero, random or file:PATH".to_owned(),
            Kind::NoType => "add type=\"...\", as in <flowop type=\"write\" .../>".to_owned(),
            Kind::MissingOption { option, .. } => {
                format!("add {option}=... to its options")
            }
            Kind::RandomBackwards { min, max } => format!("write size=rand({max},{min})"),
            Kind::MessageTooLong { .. } => {
                "choose a smaller one; count=... repeats a flowop to move more".to_owned()
            }
            Kind::CutsMessages { option, .. } => {
                format!("leave out {option}, or use a protocol that carries a stream of bytes")
            }
            Kind::NoHalfClose { .. } => "use disconnect, or protocol=tcp".to_owned(),
            Kind::Contradiction { option: "gso", .. } => {
                "write one size, or use batch=... for several messages of different sizes".to_owned()
            }
            Kind::Contradiction { option, other, .. } => {
                format!("leave out {option} or {other}")
            }
            Kind::TooManySegments { size, longest, .. } => {
                format!("write gso={} or less", longest / size)
            }
            Kind::UnusableTime { reason: Nonsense::Unit('h'), .. } => {
                "hours are not supported: write seconds, as in 3600s".to_owned()
            }
            Kind::UnusableTime { .. } => {
                "write digits and a unit: s for seconds, ms, us or ns".to_owned()
            }
            Kind::NegativeCount { .. } => "write how often the flowop is to be executed".to_owned(),
            Kind::NotConnected { conn: 0, .. } => {
                "put a connect without conn= before it, or name its connection with conn=".to_owned()
            }
            Kind::NotConnected { conn, .. } => {
                format!("put a connect with conn={conn} before it, in the same group")
            }
            Kind::ClosedTooOften { .. } => {
                "give its transaction as many iterations as connections are open, or put a connect into it"
                    .to_owned()
            }
            Kind::FlowopNotSupported { .. }
            | Kind::ProtocolNotSupported { .. }
            | Kind::OptionNotSupported { .. } => {
                "uperf has it, this version of wirecost does not: remove it".to_owned()
            }
        };
        Some(text)
    }
}

fn suggestion(nearest: Option<&'static str>, otherwise: &str) -> String {
    nearest.map_or_else(|| otherwise.to_owned(), |name| format!("did you mean {name}?"))
}
