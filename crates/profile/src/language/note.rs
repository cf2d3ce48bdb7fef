//! What a reader of a profile should know: quirks of the language and deviations from uperf that
//! change a number. A note never keeps a profile from running.

use wirecost_model::profile::Position;

use super::source::Span;

/// One note and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub kind: NoteKind,
    /// Line and column; (0, 0) where the note is about the whole file.
    pub at: Position,
    pub span: Span,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind)
    }
}

/// What a note says; `Display` is the sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteKind {
    // How the text was cut into words.
    #[error("this comment is not closed, so nothing after it is read")]
    UnclosedComment,
    #[error("this <? is not closed, so nothing after it is read")]
    UnclosedInstruction,
    #[error("this quote is not closed, so the rest of the file is its value")]
    UnclosedQuote,
    #[error("a NUL byte ends the profile; what follows it is not read")]
    NulByte,
    #[error("uperf never sees the last byte of a file, so this word is dropped")]
    LastByte,
    #[error("'{text}' is glued to the tag before it and is dropped, as in uperf")]
    Glued { text: String },
    #[error("uperf drops <{tag} because it is glued to the tag before it; here it counts")]
    UperfLosesTag { tag: String },
    #[error("<{written} is read as <{tag}: a tag is known by its first letters")]
    TagTail { tag: &'static str, written: String },

    // How tags and attributes belong together.
    #[error("<{tag}> is not closed")]
    Unclosed { tag: &'static str },
    #[error("</{tag}> closes nothing")]
    StrayClose { tag: &'static str },
    #[error("there is no <profile> around the groups")]
    NoProfileTag,
    #[error("name= on a {on} names the group, as in uperf")]
    InnerName { on: &'static str },
    #[error("{key}= on a {on} applies to the {to}, as in uperf")]
    Misplaced { key: &'static str, on: &'static str, to: &'static str },
    #[error("this {key}= replaces the one before it")]
    Replaced { key: &'static str },
    #[error("a second options= resets count, size, duration and conn and adds to the rest")]
    SecondOptions,

    // What values mean.
    #[error("the group has neither nthreads= nor nprocs=, which makes 0 strands: it does nothing")]
    NoStrands,
    #[error("'{word}' is dropped: an option begins with a letter")]
    DroppedWord { word: String },
    #[error("'{word}' is dropped, as in uperf: no such variable is set")]
    DroppedVariable { word: String },
    #[error("'{value}' is used literally: $ begins a variable only at the start of a value")]
    EmbeddedDollar { value: String },
    #[error("'{value}' is {milliseconds} milliseconds: m is not minutes in this language")]
    Milliseconds { value: String, milliseconds: String },
    #[error("{option}={value} is {meant}: {option} takes no suffix and reads digits only")]
    NoSuffix { option: &'static str, value: String, meant: String },
    #[error("{what}={value} is {meant}: suffixes multiply by 1024, also where nothing is a size")]
    BinaryCount { what: &'static str, value: String, meant: u64 },
    #[error("'{value}' is {meant}: only the first letter of a suffix is read, and k is 1024")]
    LongSuffix { value: String, meant: u64 },
    #[error("'{value}' is {meant}: only 32 bits of a number are kept, as in uperf")]
    Wrapped { value: String, meant: u64 },
    #[error("port={value} is port {meant}: only 16 bits of it are kept, as in uperf")]
    PortWraps { value: String, meant: u16 },
    #[error(
        "'{value}' has no upper end, which makes it 4294967295 as in uperf: a blank inside rand() \
         ends the word, write rand(min,max)"
    )]
    OpenRandom { value: String },
    #[error("variable {name} is declared and never used")]
    UnusedVariable { name: String },
    #[error("count=0: the flowop is never executed")]
    CountZero,

    // What wirecost does otherwise than uperf, or uperf otherwise than a reader may think.
    #[error("iterations= has no effect beside duration=")]
    IterationsIgnored,
    #[error("rate= has no effect without duration=")]
    RateIgnored,
    #[error(
        "rate={rate}: transactions are spaced evenly and late ones are made up for (open loop); uperf \
         fires {} at a time, twice a second", .rate / 2
    )]
    RateEven { rate: u64 },
    #[error(
        "as in uperf, each {flowop} adds a connection and the phase lasts for a time, so their number \
         is not known beforehand: at {most} a strand ends with an error; close them by disconnect, or \
         connect a known number of times (iterations=)"
    )]
    OpenEnded { flowop: String, most: u32 },
    #[error("a failure counts as failed and the strand goes on; uperf counts it as done")]
    CanFail,
    #[error(
        "rsize={rsize} is smaller than size={size}: the peer moves {rsize} bytes at a time; uperf \
         ignores such an rsize"
    )]
    RsizeSmaller { rsize: u64, size: u64 },
    #[error(
        "rsize={rsize} is larger than size={size}: the peer moves {rsize} bytes at a time, in all \
         as many as this side; uperf's count of them may be off"
    )]
    RsizeLarger { rsize: u64, size: u64 },
    #[error(
        "rsize={rsize} is more than size times count, so the peer moves {clipped} bytes at a time; \
         uperf's peer would wait for bytes that never come"
    )]
    RsizeClipped { rsize: u64, clipped: u64 },
    #[error("rsize has no effect beside a random size")]
    RsizeRandom,
    #[error(
        "whole messages are read, each of its own random size; uperf takes what the first read returns"
    )]
    RandomRead,
    #[error(
        "without timeout= a datagram is waited for 1 s; then it counts as lost and the strand goes \
         on, where uperf would wait forever"
    )]
    DatagramTimeout,
    #[error(
        "ssl is tls here: TLS 1.3 with a certificate made for the run, where uperf takes server.pem"
    )]
    SslIsTls,
    #[error("TLS here does not use OpenSSL, so {option}= has no effect")]
    OfOpenSsl { option: &'static str },
    #[error(
        "uperf keeps 32 bits of a UDP timeout in ns, so that {value} would be another time there"
    )]
    UperfTimeoutWraps { value: String },
    #[error("uperf takes a UDP timeout below 1 ms for none")]
    UperfTimeoutShort,
    #[error("{option} has no effect without {other}")]
    Without { option: &'static str, other: &'static str },
    #[error("{option} has no effect on {protocol}: it is for {}", .only.join(" and "))]
    NotOfProtocol { option: &'static str, protocol: String, only: &'static [&'static str] },
    #[error("{option} has no effect on {flowop}")]
    OptionIgnored { option: &'static str, flowop: String },
    #[error(
        "the group has several remote hosts: a flowop without remotehost= goes to the one that its \
         connection leads to, where uperf has every host execute it"
    )]
    FollowsConnection,
}
