//! Studies that a command makes: of runs that a person describes (`run --repeat`, `compare --run`), and of the plan of a
//! page (`replay`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Document, Replay, Section};
use wirecost_model::run::RunPlan;
use wirecost_model::status::Status;
use wirecost_model::study::Value;
use wirecost_report::tables::TableRequest;
use wirecost_study::{Definition, PLACE, Repeat, TableChoice};

use super::show::show_time;
use super::source::{Loaded, Source, failure};
use super::{
    Finished, Output, counted, describe, describe_points, impossible, make_runs, plan, say_end,
    settings, whole_time,
};
use crate::Failure;
use crate::commands::report;
use crate::commands::run::{ConflictOptions, HostOptions, RunOptions, new_seed};
use crate::records::{self, Records};
use crate::terminal;

/// The axis of the two sides of `compare --run`.
const SIDE: &str = "side";
/// Its values.
const SIDES: [&str; 2] = ["A", "B"];

/// A study, saved where the user wants it or for as long as the command needs it.
struct Saved {
    finished: Finished,
    /// Removed with what is in it.
    temporary: Option<tempfile::TempDir>,
}

impl Saved {
    fn run(
        loaded: &Loaded,
        out: Option<&Path>,
        conflict: ConflictOptions,
        quiet: bool,
        longest: Option<Duration>,
    ) -> Result<Self, Failure> {
        let temporary = match out {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(|error| {
                let message = format!("cannot create a temporary directory: {error}");
                Failure::new(Status::Failed, message).help("save the runs with --out DIR")
            })?),
        };
        let path = match (out, &temporary) {
            (None, Some(temporary)) => temporary.path().join("study"),
            (out, _) => out.unwrap_or(Path::new("")).to_owned(),
        };
        let output = Output { quiet, longest, ..Output::default() };
        let finished = make_runs(loaded, Some(&path), conflict, &output)?;
        Ok(Self { finished, temporary })
    }

    fn directory(&self) -> &Path {
        self.finished.writer.study().directory()
    }

    /// Why not all runs count.
    fn incomplete(&self) -> Option<String> {
        let summary = &self.finished.summary;
        match summary.status() {
            Status::Ok => None,
            Status::Interrupted => Some("interrupted before all runs were made".to_owned()),
            _ => {
                let without = counted(summary.invalid + summary.not_measured, "run");
                Some(format!("{without} without a valid result"))
            }
        }
    }

    /// Says how the runs ended and where they are.
    ///
    /// # Errors
    /// A run could not be made.
    fn say_end(&self, quiet: bool) -> Result<(), Failure> {
        let Self { finished: Finished { writer, summary }, temporary } = self;
        let kept = temporary.is_none().then(|| writer.study());
        say_end(summary, kept)?;
        if let (Status::Invalid, Some(reason)) = (summary.status(), self.incomplete()) {
            terminal::warn(format_args!("wirecost: {reason}"));
        }
        if temporary.is_none() && !quiet {
            terminal::warn(format_args!("saved to {}", self.directory().display()));
        }
        Ok(())
    }
}

/// `wirecost run --repeat N`.
pub(crate) struct Repeated<'a> {
    pub(crate) options: &'a RunOptions,
    pub(crate) hosts: &'a HostOptions,
    pub(crate) conflict: ConflictOptions,
    pub(crate) times: u32,
    /// Where the study is saved; nowhere without.
    pub(crate) out: Option<&'a Path>,
    pub(crate) quiet: bool,
}

/// A run of a profile with this text as a study of one point; none where no study can have it, or it would be another: the
/// links of a lab with a name are not known here.
pub(crate) fn plan_of_run(
    options: &RunOptions,
    hosts: &HostOptions,
    source: &str,
) -> Option<RunPlan> {
    let is_named_lab = hosts.lab.as_ref().is_some_and(|name| !name.is_empty());
    if is_named_lab || options.profile == "-" {
        return None;
    }
    let study = repeated(options, 1).and_then(|definition| Loaded::on(definition, hosts)).ok()?;
    let mut profiles = BTreeMap::new();
    if !options.profile.starts_with('@') {
        profiles.insert(options.profile.clone(), source.to_owned());
    }
    Some(RunPlan { study: study.definition.to_text(), profiles })
}

/// A study of runs with these options.
fn repeated(options: &RunOptions, times: u32) -> Result<Definition, Failure> {
    let mut definition = definition(&options.profile, options.seed(), times);
    definition.tables = vec![TableChoice::Named("repeats".to_owned())];
    for Value { name, value } in settings::of_run(options)? {
        definition.set(&name, &value);
    }
    Ok(definition)
}

impl Repeated<'_> {
    /// Makes the runs: what they measured as a document.
    ///
    /// # Errors
    /// They cannot be made.
    pub(crate) fn run(&self) -> Result<Document, Failure> {
        let loaded = Loaded::on(repeated(self.options, self.times)?, self.hosts)?;
        let saved = Saved::run(&loaded, self.out, self.conflict, self.quiet, None)?;
        saved.say_end(self.quiet)?;
        let runs = saved.finished.writer.study().runs().map_err(Failure::usage)?;
        let measured = Measurements::of(runs);
        let mut document = Document::new(&loaded.definition.title);
        let tables: Vec<TableRequest> = report::wanted(Some(&loaded.definition))?;
        document.sections = report::sections(Some(&loaded.definition), &tables, &measured)?;
        document.status = saved.finished.summary.status();
        document.error = saved.incomplete();
        Ok(document)
    }
}

/// `wirecost compare --run A B`.
pub(crate) struct Compared<'a> {
    /// The arguments of `wirecost run` of each side.
    pub(crate) sides: [&'a str; 2],
    pub(crate) axes: &'a [(String, Vec<String>)],
    pub(crate) times: u32,
    pub(crate) hosts: &'a HostOptions,
    pub(crate) conflict: ConflictOptions,
    pub(crate) out: Option<PathBuf>,
    pub(crate) quiet: bool,
}

/// Makes the runs of both sides by turns, as one study, and reads them: A's and B's, with the status of
/// all.
///
/// # Errors
/// The runs cannot be made, or are not runs of one profile.
pub(crate) fn compare_runs(compared: &Compared<'_>) -> Result<([Records; 2], Status), Failure> {
    let mut sides = Vec::new();
    for (side, text) in SIDES.iter().zip(compared.sides) {
        let options = settings::parse(text).map_err(|message| {
            Failure::usage(format!("--run: {side} ({text:?}): {message}"))
                .help("give the arguments of `wirecost run`, such as '@stream --engine io_uring'")
        })?;
        sides.push(options);
    }
    if sides[0].profile != sides[1].profile {
        let message = format!(
            "--run compares settings of one profile, and A is of {}, B of {}",
            sides[0].profile, sides[1].profile
        );
        return Err(Failure::usage(message)
            .help("put what differs into a variable of one profile, and set it with --var"));
    }
    let seed = sides.iter().find_map(RunOptions::seed);
    let mut definition = definition(&sides[0].profile, seed, compared.times);
    // The first run of a command finds the machine colder than the others do.
    definition.warm_up = 1;
    let mut tables = Vec::new();
    for (side, options) in SIDES.iter().zip(&sides) {
        let settings = settings::of_run(options)?;
        tables.push((
            *side,
            settings.into_iter().map(|Value { name, value }| (name, value)).collect(),
        ));
    }
    definition.set_tables(SIDE, tables);
    for (name, values) in compared.axes {
        if name == SIDE {
            return Err(Failure::usage(format!("--axis {SIDE}: the two sides are that axis")));
        }
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        definition.set_axis(name, &values).map_err(failure)?;
    }
    let loaded = Loaded::on(definition, compared.hosts)?;
    let out = compared.out.as_deref();
    let saved = Saved::run(&loaded, out, compared.conflict, compared.quiet, None)?;
    saved.say_end(compared.quiet)?;
    let status = saved.finished.summary.status();
    if let (Status::Interrupted, Some(reason)) = (status, saved.incomplete()) {
        // Half of the runs may be of one side.
        return Err(Failure::new(status, reason));
    }
    let records = records::read(saved.directory())?;
    let [a, b] = SIDES.map(|side| records.at(SIDE, side));
    let [name_a, name_b] = compared.sides.map(str::to_owned);
    Ok(([Records { name: name_a, ..a? }, Records { name: name_b, ..b? }], status))
}

/// A study of these many repeats, of no point yet.
fn definition(title: &str, seed: Option<u64>, times: u32) -> Definition {
    Definition {
        title: title.to_owned(),
        seed: seed.unwrap_or_else(new_seed),
        repeat: Repeat { times, ..Repeat::default() },
        ..Definition::default()
    }
}

/// The study of a page, to be run on hosts of the user.
pub(crate) struct PageStudy<'a> {
    pub(crate) plan: &'a Replay,
    pub(crate) hosts: &'a HostOptions,
    pub(crate) loopback: bool,
    /// Runs of each point, in place of what the page's study has.
    pub(crate) repeat: Option<u32>,
    pub(crate) longest: Duration,
    pub(crate) conflict: ConflictOptions,
    pub(crate) out: Option<&'a Path>,
    pub(crate) quiet: bool,
    /// Only describe it.
    pub(crate) check: bool,
}

/// What a study of a page measured here.
pub(crate) struct MadeAgain {
    pub(crate) title: String,
    pub(crate) measured: Measurements,
    /// Its report.
    pub(crate) sections: Vec<Section>,
    pub(crate) status: Status,
    /// Why not all runs count.
    pub(crate) incomplete: Option<String>,
}

/// Shows the plan of a page, and makes its runs; `None` where that is all that is wanted.
///
/// Everything in the page may be written by anybody. Nothing of it names a host, a setting of one, a file or a command.
///
/// # Errors
/// The plan is none, asks for more than a page may, or cannot be run.
pub(crate) fn replay_study(page: &PageStudy<'_>) -> Result<Option<MadeAgain>, Failure> {
    let beside = tempfile::tempdir().map_err(|error| {
        Failure::new(Status::Failed, format!("cannot create a temporary directory: {error}"))
    })?;
    let (loaded, left_out) = loaded_of_page(page, beside.path())?;
    let find = |name: &str| super::beside(&loaded, name);
    let steps = plan::steps(&loaded, &find)?;
    let mut text = String::new();
    match page.check {
        true => describe(&loaded, &steps, &mut text),
        // The number of runs and their time are told when they begin.
        false => describe_points(&loaded, &steps, &mut text),
    }
    for of in left_out {
        let _ = writeln!(text, "left out: {of}");
    }
    for impossible in impossible(&loaded, &steps) {
        let _ = writeln!(text, "impossible: {impossible}");
    }
    if page.check {
        terminal::print(&text);
        return Ok(None);
    }
    if !page.quiet {
        terminal::warn(format_args!("{}", text.trim_end()));
    }
    let time = whole_time(&loaded, &steps);
    if time > page.longest {
        let (time, longest) = (show_time(time), show_time(page.longest));
        return Err(Failure::usage(format!(
            "the page's study takes about {time}, and the limit is {longest}"
        ))
        .help("run fewer repeats (--repeat), or raise the limit (--longest)"));
    }
    let saved = Saved::run(&loaded, page.out, page.conflict, page.quiet, Some(page.longest))?;
    saved.say_end(page.quiet)?;
    let study = saved.finished.writer.study();
    let tables = report::wanted(Some(&loaded.definition))?;
    let runs = match tables.iter().any(TableRequest::needs_stacks) {
        true => study.runs_with_stacks(),
        false => study.runs(),
    };
    let measured = Measurements::of(runs.map_err(Failure::usage)?);
    let sections = report::sections(Some(&loaded.definition), &tables, &measured)?;
    Ok(Some(MadeAgain {
        title: loaded.definition.title.clone(),
        measured,
        sections,
        status: saved.finished.summary.status(),
        incomplete: saved.incomplete(),
    }))
}

/// Whether the plan of a page can be run anywhere: `replay` loads it in the same way.
///
/// # Errors
/// Why not.
pub(crate) fn check_replay(plan: &Replay) -> Result<(), String> {
    let beside = tempfile::tempdir()
        .map_err(|error| format!("cannot create a temporary directory: {error}"))?;
    let hosts = HostOptions::default();
    let page = PageStudy {
        plan,
        hosts: &hosts,
        loopback: !is_here(plan),
        repeat: None,
        longest: Duration::MAX,
        conflict: ConflictOptions::default(),
        out: None,
        quiet: true,
        check: true,
    };
    let check = || -> Result<(), Failure> {
        let (loaded, _) = loaded_of_page(&page, beside.path())?;
        plan::steps(&loaded, &|name: &str| super::beside(&loaded, name)).map(drop)
    };
    // Nobody else knows the directory.
    let directory = format!("{}/", beside.path().display());
    check().map_err(|failure| failure.message.replace(&directory, ""))
}

/// Whether it names no other hosts.
fn is_here(plan: &Replay) -> bool {
    matches!(plan.place.as_str(), "loopback" | "lab" | "lab:direct")
}

/// The study of a page with its profiles in a directory, and what it is without.
fn loaded_of_page(page: &PageStudy<'_>, beside: &Path) -> Result<(Loaded, Vec<String>), Failure> {
    let plan = page.plan;
    let damaged = |what: &str| Failure::usage(format!("the plan of the page is damaged: {what}"));
    let definition = Definition::parse(&plan.study).map_err(failure)?;
    // Whoever wrote the page may have left in what this wirecost leaves out.
    let (definition, more) = definition.portable().map_err(failure)?;
    let is_placed = page.loopback || page.hosts.lab.is_some() || !page.hosts.is_loopback();
    if !is_here(plan) && !is_placed && !definition.axes.contains_key(PLACE) {
        return Err(Failure::usage(format!(
            "the page's study ran on other hosts ({}), and a page names none",
            plan.place
        ))
        .help("name yours with --host, or use --lab or --loopback"));
    }
    for (name, text) in &plan.profiles {
        if !is_plain(name) {
            return Err(damaged("a profile has a path for a name"));
        }
        let path = beside.join(name);
        std::fs::write(&path, text).map_err(|error| {
            Failure::new(Status::Failed, format!("cannot write {}: {error}", path.display()))
        })?;
    }
    let study = beside.join(STUDY_FILE);
    std::fs::write(&study, definition.to_text()).map_err(|error| {
        Failure::new(Status::Failed, format!("cannot write {}: {error}", study.display()))
    })?;
    let source = Source::of_page(&study, page.hosts, page.loopback, page.repeat);
    let loaded = source.load()?;
    let profiles = loaded.matrix.points.iter().filter_map(|point| point.get("profile"));
    for name in profiles.filter(|name| !name.starts_with('@')) {
        if !plan.profiles.contains_key(name) {
            return Err(damaged(&format!("it has no profile {name}")));
        }
    }
    let mut left_out = plan.left_out.clone();
    left_out.extend(more.into_iter().filter(|of| !plan.left_out.contains(of)));
    Ok((loaded, left_out))
}

/// The definition beside its profiles, by a name that none of them has: see [`is_plain`].
const STUDY_FILE: &str = ".study.toml";

/// Whether a name is that of a file in a directory, and no more.
fn is_plain(name: &str) -> bool {
    let is_fine = |letter: char| letter.is_alphanumeric() || "-_. +".contains(letter);
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with(['.', '-', ' '])
        && name.chars().all(is_fine)
}
