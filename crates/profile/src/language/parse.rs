//! A profile as meant: variables looked up, numbers read, everything checked once.

use std::collections::BTreeMap;

use wirecost_model::profile::{Arrivals, Group, Position, Profile, Transaction, Until};

use super::error::{LanguageError, LanguageErrorKind};
use super::flowop::read_flowop;
use super::lexer::{Value, lex};
use super::note::{Note, NoteKind};
use super::number::{self, NumberError};
use super::quirks;
use super::runnable;
use super::source::{Lines, Span};
use super::typed::{RawGroup, RawProfile, RawTransaction, arrange};
use super::variables::Variables;
use super::{escape, options};

/// A profile that was read, and what there is to say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub profile: Profile,
    /// In the order of the file.
    pub notes: Vec<Note>,
    /// Why the profile cannot be run, though it is a profile: what is not supported yet, and what uperf
    /// accepts as well and then fails on. Empty where it can be run.
    pub refusals: Vec<LanguageError>,
}

/// Reads a profile in uperf's dialect or in well-formed XML. (A file that is not UTF-8 is to be made
/// so first, as by `String::from_utf8_lossy`.)
///
/// # Errors
/// Everything that uperf refuses when it reads a file, all of it at once, in the order of the file.
pub fn parse(source: &str, variables: &dyn Variables) -> Result<Parsed, Vec<LanguageError>> {
    let mut reader = Reader::new(source, variables);
    if source.is_empty() {
        reader.error(LanguageErrorKind::EmptyFile, Span::default());
    }
    let lexed = lex(source);
    let typed = arrange(lexed.tokens);
    for (kind, span) in lexed.notes.into_iter().chain(typed.notes) {
        reader.note(kind, span);
    }
    for (kind, span) in typed.errors {
        reader.error(kind, span);
    }
    let mut spans = FlowopSpans::default();
    let profile = reader.profile(&typed.profile, &mut spans);
    quirks::note(&profile, &spans, &mut reader);
    reader.finish(profile, &spans)
}

/// Where the flowops and their options stand, by the flowop's position.
#[derive(Debug, Default)]
pub(super) struct FlowopSpans {
    flowops: BTreeMap<Position, TagSpans>,
}

#[derive(Debug)]
struct TagSpans {
    tag: Span,
    options: Vec<(&'static str, Span)>,
}

impl FlowopSpans {
    pub(super) fn insert(
        &mut self,
        flowop: Position,
        tag: Span,
        options: Vec<(&'static str, Span)>,
    ) {
        self.flowops.insert(flowop, TagSpans { tag, options });
    }

    /// The place of the option that counts (the last of its name), else that of the tag.
    pub(super) fn option(&self, flowop: Position, option: &str) -> Span {
        let Some(spans) = self.flowops.get(&flowop) else {
            return Span::default();
        };
        let same = |(name, _): &&(&str, Span)| *name == option;
        spans.options.iter().rfind(same).map_or(spans.tag, |(_, span)| *span)
    }

    pub(super) fn tag(&self, flowop: Position) -> Span {
        self.option(flowop, "")
    }
}

/// What is learnt while reading, with the means to say where.
pub(super) struct Reader<'a> {
    variables: &'a dyn Variables,
    lines: Lines<'a>,
    notes: Vec<Note>,
    errors: Vec<LanguageError>,
    refusals: Vec<LanguageError>,
}

/// A value with its variable looked up, its entities decoded.
pub(super) struct Resolved {
    pub(super) text: String,
    pub(super) span: Span,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a str, variables: &'a dyn Variables) -> Self {
        let lines = Lines::new(source);
        Self { variables, lines, notes: Vec::new(), errors: Vec::new(), refusals: Vec::new() }
    }

    /// Whether no mistake has been found so far.
    pub(super) fn is_good(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn note(&mut self, kind: NoteKind, span: Span) {
        let at = self.position(span);
        self.notes.push(Note { kind, at, span });
    }

    pub(super) fn error(&mut self, kind: LanguageErrorKind, span: Span) {
        let error = self.located(kind, span);
        self.errors.push(error);
    }

    pub(super) fn refuse(&mut self, kind: LanguageErrorKind, span: Span) {
        let error = self.located(kind, span);
        self.refusals.push(error);
    }

    fn located(&self, kind: LanguageErrorKind, span: Span) -> LanguageError {
        let at = if span.length == 0 { Position::default() } else { self.position(span) };
        LanguageError { kind, at, span }
    }

    pub(super) fn position(&self, span: Span) -> Position {
        self.lines.position(span.offset)
    }

    /// The exact name first: uperf's lower-cased files can only name lower-case variables.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).or_else(|| self.variables.get(&name.to_ascii_lowercase()))
    }

    /// An attribute's value before entities are read, and whether a variable gave it.
    pub(super) fn looked_up(&mut self, value: &Value) -> Option<(String, bool)> {
        let Some(name) = value.text.strip_prefix('$') else {
            return Some((value.text.clone(), false));
        };
        let name = name.to_owned();
        let span = value.span;
        match self.variable(&name) {
            Some(text) if !text.is_empty() => Some((text, true)),
            Some(_) => {
                self.error(LanguageErrorKind::EmptyVariable { name }, span);
                None
            }
            None => {
                let remotehost = false;
                self.error(LanguageErrorKind::UnsetVariable { name, remotehost }, span);
                None
            }
        }
    }

    pub(super) fn attribute(&mut self, value: &Value) -> Option<Resolved> {
        let (text, from_variable) = self.looked_up(value)?;
        let span = value.span;
        if from_variable {
            return Some(Resolved { text, span });
        }
        if text.contains('$') {
            let value = text.clone();
            self.note(NoteKind::EmbeddedDollar { value }, span);
        }
        let text = escape::decode(&text);
        Some(Resolved { text, span })
    }

    /// An integer with suffix; `counts` says that it is no number of bytes.
    pub(super) fn integer(
        &mut self,
        what: &'static str,
        written: &Resolved,
        counts: bool,
    ) -> Result<u64, NumberError> {
        let read = number::integer(&written.text)?;
        let value = written.text.clone();
        let meant = read.value;
        let kind = if read.wrapped {
            Some(NoteKind::Wrapped { value, meant })
        } else if counts && read.scaled {
            Some(NoteKind::BinaryCount { what, value, meant })
        } else if read.long_suffix {
            Some(NoteKind::LongSuffix { value, meant })
        } else {
            None
        };
        if let Some(kind) = kind {
            self.note(kind, written.span);
        }
        Ok(meant)
    }

    fn count(&mut self, what: &'static str, value: &Value) -> Option<u64> {
        let written = self.attribute(value)?;
        match self.integer(what, &written, true) {
            Ok(count) => Some(count),
            Err(reason) => {
                let value = written.text;
                let kind = LanguageErrorKind::BadNumber { what, value, reason };
                self.error(kind, written.span);
                None
            }
        }
    }

    pub(super) fn time(
        &mut self,
        what: &'static str,
        written: Resolved,
    ) -> Option<std::time::Duration> {
        let value = written.text;
        match number::time(&value) {
            Ok(time) => {
                if let Some(reason) = time.nonsense {
                    let kind = LanguageErrorKind::UnusableTime { what, value, reason };
                    self.refuse(kind, written.span);
                } else if time.looks_like_minutes {
                    let milliseconds = (time.duration.as_secs_f64() * 1e3).to_string();
                    self.note(NoteKind::Milliseconds { value, milliseconds }, written.span);
                }
                Some(time.duration)
            }
            Err(reason) => {
                let kind = LanguageErrorKind::BadTime { what, value, reason };
                self.error(kind, written.span);
                None
            }
        }
    }

    fn profile(&mut self, typed: &RawProfile, spans: &mut FlowopSpans) -> Profile {
        let name = typed.name.as_ref().and_then(|name| self.attribute(name));
        let groups = typed.groups.iter().enumerate();
        Profile {
            name: name.map_or_else(String::new, |name| name.text),
            groups: groups.map(|(index, group)| self.group(index, group, spans)).collect(),
        }
    }

    fn group(&mut self, index: usize, typed: &RawGroup, spans: &mut FlowopSpans) -> Group {
        let name = typed.name.as_ref().and_then(|name| self.attribute(name));
        let strands = match &typed.strands {
            Some((key, value)) => self.count(key, value).unwrap_or(1),
            None => {
                self.note(NoteKind::NoStrands, typed.at);
                0
            }
        };
        Group {
            name: name.map_or_else(|| format!("Group{index}"), |name| name.text),
            strands: u32::try_from(strands).unwrap_or(u32::MAX),
            processes: typed.strands.as_ref().is_some_and(|(key, _)| *key == "nprocs"),
            transactions: typed
                .transactions
                .iter()
                .map(|transaction| self.transaction(transaction, spans))
                .collect(),
            at: self.position(typed.at),
        }
    }

    fn transaction(&mut self, typed: &RawTransaction, spans: &mut FlowopSpans) -> Transaction {
        let iterations = typed
            .iterations
            .as_ref()
            .and_then(|value| Some((self.count("iterations", value)?, value.span)));
        let duration = typed.duration.as_ref().and_then(|value| {
            let written = self.attribute(value)?;
            self.time("duration", written)
        });
        let rate =
            typed.rate.as_ref().and_then(|value| Some((self.count("rate", value)?, value.span)));
        if let Some((_, span)) = iterations
            && duration.is_some()
        {
            self.note(NoteKind::IterationsIgnored, span);
        }
        let mut meant_rate = None;
        match rate {
            Some((rate, span)) if duration.is_some() && rate > 0 => {
                self.note(NoteKind::RateEven { rate }, span);
                meant_rate = Some(rate as f64);
            }
            Some((_, span)) if duration.is_none() => self.note(NoteKind::RateIgnored, span),
            _ => {}
        }
        let mut flowops = Vec::with_capacity(typed.flowops.len());
        for flowop in &typed.flowops {
            let at = self.position(flowop.at);
            let (meant, options) = read_flowop(self, flowop, at);
            spans.insert(at, flowop.at, options);
            flowops.push(meant);
        }
        Transaction {
            until: match duration {
                Some(duration) => Until::Duration(duration),
                None => Until::Iterations(iterations.map_or(1, |(count, _)| count)),
            },
            arrivals: meant_rate.map(Arrivals::Even),
            flowops,
            order: Vec::new(),
            at: self.position(typed.at),
        }
    }

    /// Something that is not closed is no error by itself, but explains others.
    fn add_cause(&mut self) {
        let cause = self.notes.iter().find_map(|note| match note.kind {
            NoteKind::UnclosedQuote => Some(("quote", note.span)),
            NoteKind::UnclosedComment => Some(("comment", note.span)),
            _ => None,
        });
        if let Some((what, span)) = cause {
            self.error(LanguageErrorKind::Unclosed { what }, span);
        }
    }

    pub(super) fn finish(
        mut self,
        profile: Profile,
        spans: &FlowopSpans,
    ) -> Result<Parsed, Vec<LanguageError>> {
        if !self.errors.is_empty() {
            self.add_cause();
            self.errors.sort_by_key(|error| error.span);
            return Err(self.errors);
        }
        for refusal in runnable::refusals(&profile) {
            let span = spans.option(refusal.at, refusal.kind.option());
            self.refuse(refusal.kind, span);
        }
        self.refusals.sort_by_key(|refusal| refusal.span);
        self.notes.sort_by_key(|note| note.span);
        Ok(Parsed { profile, notes: self.notes, refusals: self.refusals })
    }
}

pub(super) fn unknown_option(name: &str) -> LanguageErrorKind {
    LanguageErrorKind::UnknownOption {
        name: name.to_owned(),
        nearest: super::names::nearest(name, options::all().iter().map(|option| option.name)),
    }
}
