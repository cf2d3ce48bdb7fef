//! Finding and reading a profile: a file or a built-in, with its variables.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

use miette::{Report, Severity};
use wirecost_model::profile::Profile;
use wirecost_model::warning::Warning;
use wirecost_profile::builtins::{self, Builtin, Default};
use wirecost_profile::language::{
    Language, LanguageError, LanguageErrorKind, Note, Span, read_traces,
};

use wirecost_store::input::{PROFILE, TRACES, read_text};

use crate::commands::run::link_rate::LinkRate;
use crate::diagnostics;
use crate::failure::Failure;
use crate::input;
use crate::terminal;

/// A profile that was read, with the name from the command line.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// As on the command line.
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) language: Language,
    pub(crate) profile: Profile,
    pub(crate) notes: Vec<Note>,
    /// Reasons why it cannot be run, if any.
    pub(crate) refusals: Vec<LanguageError>,
    /// Unset variables for hosts, with the names that they got.
    pub(crate) assigned: Vec<(String, String)>,
    /// Of the link that its traffic takes, once the hosts are known and if the link's is.
    pub(crate) link: Option<LinkRate>,
}

impl Loaded {
    /// Why the load that it offers is impossible, if its link cannot carry it.
    pub(crate) fn impossible(&self) -> Option<Warning> {
        self.link.and_then(|link| link.refuses(&self.profile))
    }
}

/// `--var k=v`, parsed.
pub(crate) fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        }
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

/// Reads a profile. An unset variable for a host gets the next name of `hosts`.
pub(crate) fn load(
    name: &str,
    variables: &[(String, String)],
    hosts: &mut dyn FnMut(usize) -> Option<String>,
) -> Result<Loaded, Failure> {
    load_with(name, variables, hosts, false)
}

/// Reads a profile that comes from somebody else: nothing of it is taken from other files or from the environment.
pub(crate) fn load_sealed(
    name: &str,
    variables: &[(String, String)],
    hosts: &mut dyn FnMut(usize) -> Option<String>,
) -> Result<Loaded, Failure> {
    load_with(name, variables, hosts, true)
}

fn load_with(
    name: &str,
    variables: &[(String, String)],
    hosts: &mut dyn FnMut(usize) -> Option<String>,
    sealed: bool,
) -> Result<Loaded, Failure> {
    let (builtin, source) = read(name)?;
    check_names(builtin, variables)?;
    let given: BTreeMap<&str, &str> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let language = Language::of(name, &source);
    let host_variables = host_variables(&source, builtin, language);
    let assigned: RefCell<Vec<(String, String)>> = RefCell::default();
    let next = RefCell::new(hosts);
    let look_up = |wanted: &str| -> Option<String> {
        // The reader asks for the name as written first, then in lower case: --var beats the
        // environment in either.
        if let Some(value) = given.get(wanted).or_else(|| given.get(wanted.to_lowercase().as_str()))
        {
            return Some((*value).to_owned());
        }
        // A built-in's variables are its own: one of the environment that happens to have the name
        // is not meant.
        let of_builtin = builtin.and_then(|b| b.variables.iter().find(|v| v.name == wanted));
        if let Some(variable) = of_builtin {
            match variable.default {
                Default::Text(text) => return Some(text.to_owned()),
                Default::Executable => {
                    let path = std::env::current_exe().ok()?;
                    return Some(path.display().to_string());
                }
                Default::Host => {}
            }
        } else if let Some(value) = std::env::var(wanted).ok().filter(|_| !sealed) {
            return Some(value);
        }
        let lower = wanted.to_lowercase();
        if !host_variables.iter().any(|name| name.to_lowercase() == lower) {
            return None;
        }
        if wanted != lower {
            return None;
        }
        let mut assigned = assigned.borrow_mut();
        if let Some((_, value)) = assigned.iter().find(|(name, _)| *name == lower) {
            return Some(value.clone());
        }
        let value = (next.borrow_mut())(assigned.len())?;
        assigned.push((lower, value.clone()));
        Some(value)
    };
    let read_trace = trace_reader();
    let parsed = language.parse(&source, &look_up).and_then(|mut parsed| {
        read_traces(&mut parsed.profile, &source, &|file| match sealed {
            true => Err(std::io::Error::other("a profile of a page may read no file")),
            false => read_trace(file),
        })
        .map(|()| parsed)
    });
    let assigned = assigned.into_inner();
    match parsed {
        Ok(parsed) => Ok(Loaded {
            name: name.to_owned(),
            source,
            language,
            profile: parsed.profile,
            notes: parsed.notes,
            refusals: parsed.refusals,
            assigned,
            link: None,
        }),
        Err(errors) => Err(describe(name, &source, &errors)),
    }
}

/// The text of a profile, and its built-in, if it is one.
fn read(name: &str) -> Result<(Option<&'static Builtin>, String), Failure> {
    if let Some(short) = name.strip_prefix('@') {
        let builtin = find_builtin(short)?;
        return Ok((Some(builtin), builtin.source.to_owned()));
    }
    let source = input::text(name, PROFILE).map_err(|error| {
        let failure = Failure::usage(format!("cannot read the profile {name}: {error}"));
        if builtins::find(name).is_some() {
            failure.help(format!("the built-in profile is named @{name}"))
        } else {
            failure.help("give a file, or a built-in profile from `wirecost list`")
        }
    })?;
    Ok((None, source))
}

/// Reads one trace after the other, all of them within one limit.
fn trace_reader() -> impl Fn(&str) -> std::io::Result<String> {
    let read = Cell::new(0);
    move |file| {
        let text = read_text(Path::new(file), TRACES.after(read.get()))?;
        read.set(read.get() + text.len() as u64);
        Ok(text)
    }
}

/// Names of the variables that a profile has.
pub(crate) fn variables(name: &str) -> Result<Vec<String>, Failure> {
    let (builtin, source) = read(name)?;
    let mut names: Vec<String> = match builtin {
        Some(builtin) => builtin.variables.iter().map(|v| v.name.to_owned()).collect(),
        None => {
            let used = Language::of(name, &source).variables(&source);
            used.into_iter().map(|used| used.name).collect()
        }
    };
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// The built-in with this name, or the failure if none has it.
pub(crate) fn find_builtin(short: &str) -> Result<&'static Builtin, Failure> {
    builtins::find(short).ok_or_else(|| {
        let names = builtins::ALL.iter().map(|builtin| builtin.name);
        let failure = Failure::usage(format!("no built-in profile is named @{short}"));
        if wirecost_study::builtins::find(short).is_ok() {
            let help = format!("it is a built-in study: wirecost study run @{short}");
            return failure.help(help);
        }
        match nearest(short, names) {
            Some(near) => failure.help(format!("did you mean @{near}?")),
            None => failure.help("`wirecost list` lists them"),
        }
    })
}

pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3))
        .min()
        .map(|(_, name)| name)
}

/// Refuses variables that the built-in does not have: they are typing errors.
fn check_names(builtin: Option<&Builtin>, variables: &[(String, String)]) -> Result<(), Failure> {
    let Some(builtin) = builtin else { return Ok(()) };
    for (name, _) in variables {
        if !builtin.variables.iter().any(|v| v.name == *name) {
            let known: Vec<&str> = builtin.variables.iter().map(|v| v.name).collect();
            let failure = Failure::usage(format!("@{} has no variable {name}", builtin.name));
            return Err(match nearest(name, known.iter().copied()) {
                Some(near) => failure.help(format!("did you mean {near}?")),
                None => failure.help(format!("it has {}", known.join(", "))),
            });
        }
    }
    Ok(())
}

/// Variables whose value is the name of a host.
fn host_variables(source: &str, builtin: Option<&Builtin>, language: Language) -> Vec<String> {
    match builtin {
        Some(builtin) => builtin
            .variables
            .iter()
            .filter(|variable| variable.default == Default::Host)
            .map(|variable| variable.name.to_owned())
            .collect(),
        None => language
            .variables(source)
            .into_iter()
            .filter(|used| used.option == "remotehost" && !used.has_default)
            .map(|used| used.name)
            .collect(),
    }
}

/// The mistakes of a profile, rendered: the first of them, and the number of the others.
pub(crate) fn describe(name: &str, source: &str, errors: &[LanguageError]) -> Failure {
    let mut messages = Vec::new();
    let mut reports = Vec::new();
    let (shown, left) = diagnostics::first(errors);
    for error in shown {
        messages.push(diagnostics::message_text(&match (error.at.line, &error.kind) {
            (0, kind) => format!("{name}: {kind}"),
            (_, kind) => format!("{name}:{}: {kind}", error.at),
        }));
        // Unset variables of remotehost= have one more remedy here.
        let help = match &error.kind {
            LanguageErrorKind::UnsetVariable { name, remotehost: true } => Some(format!(
                "set it (--var {name}=ADDRESS), or let wirecost create hosts: remove --host"
            )),
            _ => error.help(),
        };
        reports.push(report(name, source, &error.to_string(), help, error.span, Severity::Error));
    }
    messages.extend(left.map(|left| left.to_string()));
    Failure::reports(messages.join("\n"), reports).and_more(left)
}

/// The notes of a profile, rendered: the first of them, and the number of the others.
pub(crate) fn draw_notes(loaded: &Loaded) {
    let (shown, left) = diagnostics::first(&loaded.notes);
    for note in shown {
        let text = note.to_string();
        terminal::draw(&report(
            &loaded.name,
            &loaded.source,
            &text,
            None,
            note.span,
            Severity::Advice,
        ));
    }
    if let Some(left) = left {
        terminal::warn(format_args!("  {left}\n"));
    }
}

fn report(
    name: &str,
    text: &str,
    message: &str,
    help: Option<String>,
    span: Span,
    severity: Severity,
) -> Report {
    let place = span.offset..span.offset + span.length;
    diagnostics::File { name, text }.report(severity, message, help, place)
}
