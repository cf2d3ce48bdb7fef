//! The native language: profiles in TOML, for what uperf's language cannot say.
//!
//! The flowops and their options are those of `language::options`. Everything else that a profile can
//! say is in `keys`; what is not known is an error.

mod keys;
mod print;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use wirecost_model::profile::{
    Arrivals, Choice, Flowop, Group, Options, Part, Position, Profile, Trace, Transaction, Until,
};

use super::DEEPEST_LOOP;
use super::error::{LanguageError, LanguageErrorKind};
use super::flowop::set;
use super::names;
use super::note::NoteKind;
use super::options::{self, OptionDef, ValueKind};
use super::parse::{FlowopSpans, Parsed, Reader, Resolved};
use super::source::{Lines, Span};
use super::variables::{VariableUse, Variables};
use crate::io_options::ValueType;

pub use keys::{ALL as KEYS, KeyDef, Table};
pub(super) use print::print;
pub(super) use values::time as trace_time;
use values::{INT_MAX, Unit};

/// Passes per second and strand are at most this many, as in the other language.
const FASTEST: f64 = i32::MAX as f64;

pub(super) fn parse(source: &str, variables: &dyn Variables) -> Result<Parsed, Vec<LanguageError>> {
    let mut native = Native {
        reader: Reader::new(source, variables),
        defaults: BTreeMap::new(),
        used: BTreeSet::new(),
        spans: FlowopSpans::default(),
    };
    let (root, errors) = DeTable::parse_recoverable(source);
    for error in errors {
        let at = error.span().unwrap_or_default();
        let message = error.message().to_owned();
        let span = visible(source, Span::between(at.start, at.end));
        native.reader.error(LanguageErrorKind::NotToml { message }, span);
    }
    // What is left of a text that is no TOML would only add mistakes that are none.
    let profile =
        if native.reader.is_good() { native.profile(root.get_ref()) } else { Profile::default() };
    native.reader.finish(profile, &native.spans)
}

/// A span that has something to underline, where there is anything.
fn visible(source: &str, span: Span) -> Span {
    let character = |at: usize| source.get(at..).and_then(|rest| rest.chars().next());
    match (span.length, character(span.offset)) {
        (0, Some(character)) => Span { length: character.len_utf8(), ..span },
        (0, None) => {
            let last = source.char_indices().next_back();
            last.map_or(span, |(at, last)| Span { offset: at, length: last.len_utf8() })
        }
        _ => span,
    }
}

/// Every use of a variable; see [`super::variables()`].
pub(super) fn variables(source: &str) -> Vec<VariableUse> {
    let (root, errors) = DeTable::parse_recoverable(source);
    if !errors.is_empty() {
        return Vec::new();
    }
    let declared = root.get_ref().get("variables");
    let has_default = |name: &str| {
        let declared = declared.and_then(|v| v.get_ref().as_table()?.get(name));
        declared.is_some_and(|v| match v.get_ref() {
            DeValue::Table(table) => table.contains_key("default"),
            _ => true,
        })
    };
    let lines = Lines::new(source);
    let mut found = Vec::new();
    for (key, value) in root.get_ref().iter().filter(|(key, _)| key.get_ref() != "variables") {
        texts(key.get_ref(), value, &mut |option, text, at| {
            for name in names_in(text) {
                found.push(VariableUse {
                    name: name.to_owned(),
                    position: lines.position(at.offset),
                    option: option.to_owned(),
                    has_default: has_default(name),
                });
            }
        });
    }
    found.sort_by_key(|used| used.position);
    found
}

/// All texts in a value, each with its key.
fn texts(key: &str, value: &Spanned<DeValue<'_>>, found: &mut dyn FnMut(&str, &str, Span)) {
    match value.get_ref() {
        DeValue::String(text) => found(key, text, span(value)),
        DeValue::Array(values) => values.iter().for_each(|value| texts(key, value, found)),
        DeValue::Table(table) => {
            for (inner, value) in table {
                found(inner.get_ref(), inner.get_ref(), span(inner));
                texts(inner.get_ref(), value, found);
            }
        }
        _ => {}
    }
}

fn names_in(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Variable(Some(name)) => Some(name),
        _ => None,
    })
}

enum Piece<'a> {
    Text(&'a str),
    /// None where it is not closed.
    Variable(Option<&'a str>),
}

/// Cuts a text at its variables; `$${` stands for `${`.
fn pieces(mut text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut literal = false;
    std::iter::from_fn(move || {
        if std::mem::take(&mut literal) {
            let (begin, rest) = text.split_at(2);
            text = rest;
            return Some(Piece::Text(begin));
        }
        match text.find("${") {
            None if text.is_empty() => None,
            None => Some(Piece::Text(std::mem::take(&mut text))),
            Some(at) if text[..at].ends_with('$') => {
                let before = &text[..at - 1];
                text = &text[at..];
                literal = true;
                Some(Piece::Text(before))
            }
            Some(0) => {
                let (name, rest) = match text[2..].split_once('}') {
                    Some((name, rest)) => (Some(name), rest),
                    None => (None, ""),
                };
                text = rest;
                Some(Piece::Variable(name))
            }
            Some(at) => {
                let (before, rest) = text.split_at(at);
                text = rest;
                Some(Piece::Text(before))
            }
        }
    })
}

fn span<T>(spanned: &Spanned<T>) -> Span {
    let range = spanned.span();
    Span::between(range.start, range.end)
}

struct Native<'a> {
    reader: Reader<'a>,
    defaults: BTreeMap<String, String>,
    used: BTreeSet<String>,
    spans: FlowopSpans,
}

impl Native<'_> {
    // Means.

    /// Says which keys are not known; `more` are known besides those of the kind of table.
    fn known_keys(&mut self, table: &DeTable<'_>, kind: Table, more: &[&'static str]) {
        let known = || keys::names(kind).chain(more.iter().copied());
        for (key, _) in table {
            let name = key.get_ref().as_ref();
            if !known().any(|known| known == name) {
                let kind = LanguageErrorKind::UnknownKey {
                    key: name.to_owned(),
                    table: kind.name(),
                    nearest: names::nearest(name, known()),
                    known: known().collect::<Vec<_>>().join(", "),
                };
                self.reader.error(kind, span(key));
            }
        }
    }

    fn needs(&mut self, table: &DeTable<'_>, key: &'static str, of: Table, at: Span) -> bool {
        let there = table.contains_key(key);
        if !there {
            self.reader.error(LanguageErrorKind::MissingKey { key, table: of.name() }, at);
        }
        there
    }

    fn wrong_type(
        &mut self,
        key: &'static str,
        wanted: &'static str,
        value: &Spanned<DeValue<'_>>,
    ) {
        let found = value.get_ref().type_str();
        self.reader.error(LanguageErrorKind::WrongType { key, wanted, found }, span(value));
    }

    /// A text or a number, with its variables filled in.
    fn scalar(&mut self, what: &'static str, value: &Spanned<DeValue<'_>>) -> Option<Resolved> {
        let at = span(value);
        let text = match value.get_ref() {
            DeValue::String(text) => self.filled_in(what, text, at)?,
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => number.to_string(),
                    Err(_) => number.as_str().to_owned(),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) => number.to_string(),
                Err(_) => number.as_str().to_owned(),
            },
            _ => {
                self.wrong_type(what, "a text or a number", value);
                return None;
            }
        };
        Some(Resolved { text, span: at })
    }

    fn filled_in(&mut self, what: &'static str, text: &str, at: Span) -> Option<String> {
        let mut out = String::new();
        let mut good = true;
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Variable(None) => {
                    self.reader.error(LanguageErrorKind::Unclosed { what: "variable" }, at);
                    good = false;
                }
                Piece::Variable(Some(name)) => match self.variable(name) {
                    Some(value) => out.push_str(&value),
                    None => {
                        let name = name.to_owned();
                        let remotehost = what == "remotehost";
                        let kind = LanguageErrorKind::UnsetVariable { name, remotehost };
                        self.reader.error(kind, at);
                        good = false;
                    }
                },
            }
        }
        if out.contains('\0') {
            self.reader.error(LanguageErrorKind::Nul, at);
            good = false;
        }
        good.then_some(out)
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        self.used.insert(name.to_owned());
        self.reader.variable(name).or_else(|| self.defaults.get(name).cloned())
    }

    fn text(&mut self, what: &'static str, value: &Spanned<DeValue<'_>>) -> Option<Resolved> {
        if !value.get_ref().is_str() {
            self.wrong_type(what, "a text", value);
            return None;
        }
        self.scalar(what, value)
    }

    fn tables<'t, 'i>(
        &mut self,
        key: &'static str,
        table: &'t DeTable<'i>,
    ) -> Vec<(&'t DeTable<'i>, Span)> {
        let Some(value) = table.get(key) else { return Vec::new() };
        let DeValue::Array(values) = value.get_ref() else {
            self.wrong_type(key, "a list of tables", value);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for value in values {
            match value.get_ref() {
                DeValue::Table(table) => tables.push((table, span(value))),
                _ => self.wrong_type(key, "a list of tables", value),
            }
        }
        tables
    }

    // The profile from the outside to the inside.

    fn profile(&mut self, root: &DeTable<'_>) -> Profile {
        self.known_keys(root, Table::Profile, &[]);
        if let Some(variables) = root.get("variables") {
            match variables.get_ref() {
                DeValue::Table(table) => self.declare(table),
                _ => self.wrong_type("variables", "a table", variables),
            }
        }
        let name = root.get("name").and_then(|name| self.text("name", name));
        let groups = self.tables("group", root);
        let groups = groups
            .into_iter()
            .enumerate()
            .map(|(index, (table, at))| self.group(index, table, at))
            .collect();
        if let Some(DeValue::Table(declared)) = root.get("variables").map(Spanned::get_ref) {
            for (name, _) in declared {
                if !self.used.contains(name.get_ref().as_ref()) {
                    let unused = NoteKind::UnusedVariable { name: name.get_ref().to_string() };
                    self.reader.note(unused, span(name));
                }
            }
        }
        Profile { name: name.map_or_else(String::new, |name| name.text), groups }
    }

    fn declare(&mut self, variables: &DeTable<'_>) {
        for (name, value) in variables {
            let default = match value.get_ref() {
                DeValue::Table(table) => {
                    self.known_keys(table, Table::Variable, &[]);
                    if let Some(help) = table.get("help") {
                        self.text("help", help);
                    }
                    let Some(default) = table.get("default") else { continue };
                    default
                }
                _ => value,
            };
            if let Some(default) = self.scalar("default", default) {
                self.defaults.insert(name.get_ref().to_string(), default.text);
            }
        }
    }

    fn group(&mut self, index: usize, table: &DeTable<'_>, at: Span) -> Group {
        self.known_keys(table, Table::Group, &[]);
        let name = table.get("name").and_then(|name| self.text("name", name));
        let name = name.map(|name| name.text).filter(|name| !name.is_empty());
        let strands = match table.get("strands") {
            Some(strands) => self.count("strands", strands, (0, INT_MAX)).unwrap_or(1),
            None => 1,
        };
        let transactions = self.tables("transaction", table);
        Group {
            name: name.unwrap_or_else(|| format!("Group{index}")),
            strands: u32::try_from(strands).unwrap_or(u32::MAX),
            processes: false,
            transactions: transactions.into_iter().map(|(t, at)| self.transaction(t, at)).collect(),
            at: self.reader.position(at),
        }
    }

    fn transaction(&mut self, table: &DeTable<'_>, at: Span) -> Transaction {
        self.known_keys(table, Table::Transaction, &[]);
        let iterations = table.get("iterations");
        let duration = table.get("duration");
        if let (Some(_), Some(duration)) = (iterations, duration) {
            let kind = LanguageErrorKind::Together { a: "duration", b: "iterations" };
            self.reader.error(kind, span(duration));
        }
        let iterations = iterations.and_then(|value| self.count("iterations", value, (0, INT_MAX)));
        let until = match duration.and_then(|value| self.time("duration", value)) {
            Some(duration) => Until::Duration(std::time::Duration::from_nanos(duration)),
            None => Until::Iterations(iterations.unwrap_or(1)),
        };
        let arrivals = self.arrivals(table, duration.is_some());
        let mut flowops = Vec::new();
        let order = match table.get("flowops") {
            Some(list) => self.parts(list, &mut flowops, 0),
            None => Vec::new(),
        };
        let plain = order.iter().all(|part| matches!(part, Part::Flowop(_)));
        Transaction {
            until,
            arrivals,
            flowops,
            order: if plain { Vec::new() } else { order },
            at: self.reader.position(at),
        }
    }

    fn arrivals(&mut self, table: &DeTable<'_>, timed: bool) -> Option<Arrivals> {
        let rate = table.get("rate");
        let arrivals = table.get("arrivals");
        for (key, value) in [("rate", rate), ("arrivals", arrivals)] {
            if let Some(value) = value
                && !timed
            {
                let kind = LanguageErrorKind::NeedsKey { key, needs: "duration" };
                self.reader.error(kind, span(value));
                return None;
            }
        }
        let number = rate.and_then(|rate| self.number("rate", rate, FASTEST));
        match arrivals.map(|value| (value, value.get_ref())) {
            None => number.map(Arrivals::Even),
            Some((value, DeValue::Table(table))) => {
                if let Some(rate) = rate {
                    let kind = LanguageErrorKind::Together { a: "rate", b: "a trace" };
                    self.reader.error(kind, span(rate));
                }
                self.trace(table, span(value))
            }
            Some((value, _)) => {
                let written = self.text("arrivals", value)?;
                let process = match written.text.as_str() {
                    "constant" => Arrivals::Even,
                    "poisson" => Arrivals::Poisson,
                    _ => {
                        let no = values::NoValue {
                            wanted: "an arrival process",
                            help: "write \"constant\", \"poisson\", { trace = \"FILE\" } or \
                                   { intervals = \"FILE\" }",
                        };
                        self.no_value("arrivals", &written, &no);
                        return None;
                    }
                };
                if rate.is_none() {
                    let kind = LanguageErrorKind::NeedsKey { key: "arrivals", needs: "rate" };
                    self.reader.error(kind, written.span);
                }
                number.map(process)
            }
        }
    }

    fn trace(&mut self, table: &DeTable<'_>, at: Span) -> Option<Arrivals> {
        self.known_keys(table, Table::Arrivals, &[]);
        let (starts, intervals) = (table.get("trace"), table.get("intervals"));
        let (file, intervals) = match (starts, intervals) {
            (Some(file), None) => (self.text("trace", file)?, false),
            (None, Some(file)) => (self.text("intervals", file)?, true),
            (Some(file), Some(_)) => {
                let kind = LanguageErrorKind::Together { a: "trace", b: "intervals" };
                self.reader.error(kind, span(file));
                return None;
            }
            (None, None) => {
                self.needs(table, "trace", Table::Arrivals, at);
                return None;
            }
        };
        Some(Arrivals::Trace(Trace { file: file.text, intervals, starts: Vec::new() }))
    }

    /// Flowops, loops and mixes. What is no list has no parts.
    fn parts(
        &mut self,
        list: &Spanned<DeValue<'_>>,
        flowops: &mut Vec<Flowop>,
        depth: usize,
    ) -> Vec<Part> {
        let Some(list) = self.list("flowops", list) else { return Vec::new() };
        list.iter().filter_map(|value| self.part(value, flowops, depth)).collect()
    }

    fn list<'t, 'i>(
        &mut self,
        key: &'static str,
        value: &'t Spanned<DeValue<'i>>,
    ) -> Option<&'t DeArray<'i>> {
        let list = value.get_ref().as_array();
        if list.is_none() {
            self.wrong_type(key, "a list", value);
        }
        list
    }

    fn part(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        flowops: &mut Vec<Flowop>,
        depth: usize,
    ) -> Option<Part> {
        let table = match value.get_ref() {
            // A flowop that needs no options may stand there by its name alone.
            DeValue::String(_) => {
                let flowop = self.flowop(value, None, span(value));
                flowops.push(flowop);
                return Some(Part::Flowop(flowops.len() as u32 - 1));
            }
            DeValue::Table(table) => table,
            _ => {
                self.wrong_type("a flowop", "a table or a name", value);
                return None;
            }
        };
        if let Some(times) = table.get("loop") {
            self.known_keys(table, Table::Loop, &[]);
            let count = self.count("loop", times, (1, INT_MAX));
            if depth == DEEPEST_LOOP {
                self.reader
                    .error(LanguageErrorKind::TooDeep { deepest: DEEPEST_LOOP }, span(times));
                return None;
            }
            let parts = self.inner(table, Table::Loop, span(value), flowops, depth + 1);
            return Some(Part::Loop { times: u32::try_from(count?).ok()?, parts });
        }
        if let Some(mix) = table.get("mix") {
            self.known_keys(table, Table::Mix, &[]);
            let choices = self.tables("mix", table);
            if choices.is_empty() {
                self.reader.error(LanguageErrorKind::NothingInside { what: "mix" }, span(mix));
            }
            let choices = choices.into_iter().map(|(choice, at)| {
                self.known_keys(choice, Table::Choice, &[]);
                let weight = match choice.get("weight") {
                    Some(weight) => self.count("weight", weight, (1, u32::MAX.into())),
                    None => Some(1),
                };
                let parts = self.inner(choice, Table::Choice, at, flowops, depth);
                Choice { weight: weight.and_then(|w| u32::try_from(w).ok()).unwrap_or(1), parts }
            });
            return Some(Part::Mix(choices.collect()));
        }
        let options: Vec<&'static str> = options::all().iter().map(|option| option.name).collect();
        let more = [&options[..], &["loop", "mix"]].concat();
        self.known_keys(table, Table::Flowop, &more);
        if !self.needs(table, "type", Table::Flowop, span(value)) {
            return None;
        }
        let flowop = self.flowop(table.get("type")?, Some(table), span(value));
        flowops.push(flowop);
        Some(Part::Flowop(flowops.len() as u32 - 1))
    }

    /// The flowops of a loop or of a choice.
    fn inner(
        &mut self,
        table: &DeTable<'_>,
        of: Table,
        at: Span,
        flowops: &mut Vec<Flowop>,
        depth: usize,
    ) -> Vec<Part> {
        if !self.needs(table, "flowops", of, at) {
            return Vec::new();
        }
        let Some(list) = table.get("flowops") else { return Vec::new() };
        let good = self.reader.is_good();
        let parts = self.parts(list, flowops, depth);
        if parts.is_empty() && good && self.reader.is_good() {
            let what = if of == Table::Loop { "loop" } else { "choice" };
            self.reader.error(LanguageErrorKind::NothingInside { what }, span(list));
        }
        parts
    }

    fn flowop(
        &mut self,
        kind: &Spanned<DeValue<'_>>,
        table: Option<&DeTable<'_>>,
        at: Span,
    ) -> Flowop {
        let mut options = Options::default();
        let mut spans = Vec::new();
        let kind = self.text("type", kind).and_then(|written| self.kind(written));
        let kind = kind.unwrap_or_default();
        for option in options::all() {
            let Some(value) = table.and_then(|table| table.get(option.name)) else { continue };
            if self.option(option, value, &mut options).is_none() {
                continue;
            }
            if !kind.is_empty() && !option.applies_to(&kind) {
                let (option, flowop) = (option.name, kind.clone());
                self.reader.note(NoteKind::OptionIgnored { option, flowop }, span(value));
            }
            spans.push((option.name, span(value)));
        }
        let position: Position = self.reader.position(at);
        self.spans.insert(position, at, spans);
        Flowop { kind, options, at: position }
    }

    fn kind(&mut self, written: Resolved) -> Option<String> {
        let known = names::flowop_names().find(|name| *name == written.text);
        if known.is_none() {
            let nearest = names::nearest(&written.text, names::flowop_names());
            let name = written.text;
            self.reader.error(LanguageErrorKind::UnknownFlowop { name, nearest }, written.span);
        }
        known.map(str::to_owned)
    }

    /// One option. What is read strictly here goes the way of uperf's texts from then on.
    fn option(
        &mut self,
        option: &'static OptionDef,
        value: &Spanned<DeValue<'_>>,
        options: &mut Options,
    ) -> Option<()> {
        let name = option.name;
        let at = span(value);
        match &option.value {
            _ if option.is_flag() => {
                let Some(wanted) = value.get_ref().as_bool() else {
                    self.wrong_type(name, "true or false", value);
                    return None;
                };
                if !wanted {
                    return Some(());
                }
                set(&mut self.reader, option, Resolved { text: String::new(), span: at }, options)
            }
            ValueKind::Size => {
                options.size = Some(self.quantity(name, value, Unit::Bytes)?);
                Some(())
            }
            ValueKind::Pause => {
                options.duration = Some(self.quantity(name, value, Unit::Time)?);
                Some(())
            }
            kind => {
                let mut written = self.scalar(name, value)?;
                written.text = match kind {
                    ValueKind::Integer { .. } | ValueKind::Io(_) if is_integer(kind) => {
                        let amount = self.amount(name, &written, Unit::Bytes)?;
                        self.in_range(name, &written, amount, (0, INT_MAX))?.to_string()
                    }
                    ValueKind::Plain { .. } => self.whole(name, &written, (0, INT_MAX))?,
                    ValueKind::Port => self.whole(name, &written, (1, u16::MAX.into()))?,
                    ValueKind::Conns if !written.text.contains("..") => {
                        self.whole(name, &written, (1, INT_MAX))?
                    }
                    ValueKind::Time { .. } | ValueKind::Io(_) if is_time(kind) => {
                        let time = self.amount(name, &written, Unit::Time)?;
                        format!("{time}ns")
                    }
                    _ => written.text,
                };
                set(&mut self.reader, option, written, options)
            }
        }
    }

    fn whole(
        &mut self,
        what: &'static str,
        written: &Resolved,
        range: (u64, u64),
    ) -> Option<String> {
        let Some(number) = values::whole(&written.text) else {
            self.no_value(what, written, &values::NO_COUNT);
            return None;
        };
        self.in_range(what, written, number, range).map(|number| number.to_string())
    }
}

fn is_integer(kind: &ValueKind) -> bool {
    match kind {
        ValueKind::Io(option) => matches!(option.value(), ValueType::Number { .. }),
        kind => matches!(kind, ValueKind::Integer { .. }),
    }
}

fn is_time(kind: &ValueKind) -> bool {
    match kind {
        ValueKind::Io(option) => matches!(option.value(), ValueType::Time { .. }),
        kind => matches!(kind, ValueKind::Time { .. }),
    }
}
