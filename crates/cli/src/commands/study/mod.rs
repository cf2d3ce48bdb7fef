//! `wirecost study`: a matrix of points, each run, kept and shown.

mod available;
mod derived;
mod missing;
mod plan;
mod point_runner;
mod search;
mod settings;
mod show;
mod source;
mod tuning;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use wirecost_analyze::measured::Measurements;
use wirecost_lab::Lab;
use wirecost_model::document::Document;
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::OfferedLoad;
use wirecost_report::tables::TableRequest;
use wirecost_store::study::{Study as RecordedStudy, Writer};
use wirecost_study::{Baseline, Definition, Expectation, StopReason, Summary, Verdict, builtins};

use crate::Failure;
use crate::commands::report::{HtmlFile, PageOptions};
use crate::commands::run::{ConflictOptions, Machines, interruptible};
use crate::commands::{output, report};
use crate::terminal;
use plan::Step;
use point_runner::Hosts;
use show::{Show, show_time};
use source::{Loaded, Source, draw, failure};

pub(crate) use available::Available;
pub(crate) use derived::{
    Compared, PageStudy, Repeated, check_replay, compare_runs, plan_of_run, replay_study,
};
pub(crate) use settings::{arguments, of_run};
pub(crate) use source::parse_axis;
pub(crate) use tuning::{Searched, TuneRequest, search};

/// Run a profile at every point of a matrix, save each run, and make tables of the runs.
///
/// Exit codes: 0 ok, 1 an expectation failed, 2 usage error or invalid study, 3 a host or the
/// network failed or another run measures on the same CPUs, 4 a run is invalid, 130 interrupted.
/// Finished runs are saved; `resume` runs the rest.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Study {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunStudy),
    Resume(Resume),
    Check(Check),
    /// List the built-in studies.
    List {
        /// Print the source of this built-in study.
        #[arg(value_name = "@BUILTIN")]
        show: Option<String>,
    },
}

/// Run all runs of a study.
#[derive(Debug, Args)]
struct RunStudy {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    conflict: ConflictOptions,

    /// Save the study to this new directory [default: the study's name and the time].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

/// Run the missing runs of an interrupted study, and repeat those that failed.
#[derive(Debug, Args)]
struct Resume {
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    #[command(flatten)]
    conflict: ConflictOptions,

    #[command(flatten)]
    output: Output,
}

/// Show what a study would do: its points, the estimated time, and skipped points with the reason.
#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    source: Source,
}

#[derive(Debug, Default, Args)]
struct Output {
    /// Do not show progress.
    #[arg(long, short)]
    quiet: bool,

    /// Write each event as one line of JSON to standard output, in place of the tables.
    #[arg(long)]
    json_lines: bool,

    /// Write the results as one page of HTML, which opens offline, to this new file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    page: PageOptions,

    /// When to stop, whatever is under way.
    #[arg(skip)]
    longest: Option<Duration>,

    /// Whether the last event was written.
    #[arg(skip)]
    ended: Cell<bool>,
}

impl Output {
    /// The file of the page, if one is wanted and can be written.
    fn html_file(&self) -> Result<Option<HtmlFile>, Failure> {
        HtmlFile::wanted(self.html.as_deref(), self.page)
    }

    /// A failure, as an event too if nothing has ended the events yet.
    fn tell<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &result
            && self.json_lines
            && !self.ended.get()
        {
            // A reader that stops early (`| head`) is not a failure.
            let _ = show::refuse(failure.status, &failure.message);
        }
        result
    }
}

/// Writes the event of a study with an invalid command line.
pub(super) fn refuse(message: &str) -> Result<(), Failure> {
    // A reader that stops early (`| head`) is not a failure.
    let _ = show::refuse(Status::Usage, message);
    Ok(())
}

impl Study {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        match self.command {
            Command::Run(command) => command.output.tell(command.run()),
            Command::Resume(command) => command.output.tell(command.run()),
            Command::Check(command) => command.run(),
            Command::List { show } => list(show.as_deref()),
        }
    }
}

/// The machines of a study, claimed from its first run to its last, and what ends it early.
struct Claimed {
    machines: Machines,
    stop: Arc<AtomicBool>,
}

impl Claimed {
    fn of(loaded: &Loaded, conflict: ConflictOptions, output: &Output) -> Result<Self, Failure> {
        let stop = interruptible();
        if let Some(longest) = output.longest {
            stop_after(longest, &stop);
        }
        let machines = Machines::of(&loaded.hosts, conflict, &stop, output.quiet)?;
        Ok(Self { machines, stop })
    }
}

/// Stops the runs of a study after so long, if they have not ended: the time of iterations is not known in advance.
fn stop_after(longest: Duration, stop: &Arc<AtomicBool>) {
    let stop = Arc::downgrade(stop);
    std::thread::spawn(move || {
        std::thread::sleep(longest);
        if let Some(stop) = stop.upgrade() {
            terminal::warn(format_args!("wirecost: stopped after {}", show_time(longest)));
            stop.store(true, Ordering::Relaxed);
        }
    });
}

impl RunStudy {
    fn run(&self) -> Result<Status, Failure> {
        let loaded = self.source.load()?;
        let page = self.output.html_file()?;
        let path = self.out.as_deref();
        let finished = make_runs(&loaded, path, self.conflict, &self.output)?;
        conclude(&loaded, &finished, &self.output, page.as_ref())
    }
}

/// A study whose runs were made, or broken off.
struct Finished {
    writer: Writer,
    summary: Summary,
}

/// Makes the runs of a study, and saves them in a new directory. A study that could not begin leaves
/// none.
fn make_runs(
    loaded: &Loaded,
    path: Option<&Path>,
    conflict: ConflictOptions,
    output: &Output,
) -> Result<Finished, Failure> {
    let beside = |name: &str| beside(loaded, name);
    let steps = plan::steps(loaded, &beside)?;
    for impossible in impossible(loaded, &steps) {
        terminal::warn(format_args!("wirecost: at {impossible}"));
    }
    let profiles = loaded.profiles()?;
    let hosts = Claimed::of(loaded, conflict, output)?;
    let lab = lab(&steps)?;
    let path = match path {
        Some(path) => path.to_owned(),
        None => own_directory(&default_name(&loaded.definition))?,
    };
    let profiles = profiles.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let writer =
        Writer::create(&path, &loaded.definition.to_text(), profiles).map_err(Failure::usage)?;
    let driven = drive(loaded, &steps, &writer, Vec::new(), hosts, lab, output);
    let refused = match &driven {
        Ok(summary) => matches!(summary.ended, StopReason::Refused(_)),
        Err(_) => true,
    };
    if refused && writer.study().ids().is_ok_and(|ids| ids.is_empty()) {
        // It has not begun: nothing is there to continue.
        let _ = writer.discard();
        return match driven?.ended {
            StopReason::Refused(refusal) => Err(Failure::new(refusal.status, refusal.message)),
            _ => Err(Failure::new(Status::Failed, "the study could not begin")),
        };
    }
    Ok(Finished { writer, summary: driven? })
}

/// A lab for the first run, where the study needs one.
fn lab(steps: &[Step]) -> Result<Option<Rc<Lab>>, Failure> {
    match steps.first() {
        Some(step) => Ok(step.options.place(&step.ready, &step.hosts, None)?.lab()),
        None => Ok(None),
    }
}

/// A new directory of this name, or with a number behind it where another study has that.
fn own_directory(name: &str) -> Result<PathBuf, Failure> {
    let mut path = PathBuf::from(name);
    let mut number = 2;
    loop {
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                path = PathBuf::from(format!("{name}-{number}"));
                number += 1;
            }
            Err(error) => {
                let message = format!("cannot create {}: {error}", path.display());
                return Err(Failure::usage(message).help("choose a directory with --out DIR"));
            }
        }
    }
}

impl Resume {
    fn run(&self) -> Result<Status, Failure> {
        let page = self.output.html_file()?;
        let writer = Writer::open(&self.directory).map_err(Failure::usage)?;
        let text = writer.study().definition().map_err(Failure::usage)?;
        let name = self.directory.join("study.toml").display().to_string();
        let definition = Definition::parse(&text).map_err(|error| draw(&name, &text, error))?;
        if definition.tune.is_some() {
            let searched = tuning::resume(writer, definition, self.conflict, self.output.quiet)?;
            if let Some(page) = &page {
                report::write_page_of_study(&self.directory, page)?;
            }
            return crate::commands::tune::conclude(&searched, "terminal");
        }
        let loaded = Loaded::of(definition, PathBuf::new(), None)?;
        let kept = |name: &str| match name.starts_with('@') {
            true => name.to_owned(),
            false => {
                let profiles = writer.study().profiles();
                profiles.join(source::file_name(name)).display().to_string()
            }
        };
        let steps = plan::steps(&loaded, &kept)?;
        let runs = writer.study().runs().map_err(Failure::usage)?;
        // Those that failed are made again.
        let done =
            runs.into_iter().map(|(_, run)| run).filter(|run| run.status == Status::Ok).collect();
        let hosts = Claimed::of(&loaded, self.conflict, &self.output)?;
        let summary = drive(&loaded, &steps, &writer, done, hosts, None, &self.output)?;
        conclude(&loaded, &Finished { writer, summary }, &self.output, page.as_ref())
    }
}

impl Check {
    fn run(self) -> Result<Status, Failure> {
        let loaded = self.source.load()?;
        let beside = |name: &str| beside(&loaded, name);
        let steps = plan::steps(&loaded, &beside)?;
        let mut text = String::new();
        describe(&loaded, &steps, &mut text);
        for impossible in impossible(&loaded, &steps) {
            let _ = writeln!(text, "impossible: {impossible}");
        }
        for missing in plan::not_measured(&loaded, &steps)? {
            let _ = writeln!(text, "not measured: {missing}");
        }
        terminal::print(&text);
        Ok(Status::Ok)
    }
}

/// Loads of points that their links cannot carry.
fn impossible<'a>(loaded: &'a Loaded, steps: &'a [Step]) -> impl Iterator<Item = String> + 'a {
    let points = loaded.matrix.points.iter().zip(steps);
    // What a share comes to is known when its whole was measured.
    let known = points.filter(|(point, _)| !matches!(point.load(), OfferedLoad::Share(_)));
    known.filter_map(|(point, step)| Some(format!("{point}: {}", step.impossible()?)))
}

/// A built-in profile, or a file beside the study.
fn beside(loaded: &Loaded, name: &str) -> String {
    match name.starts_with('@') {
        true => name.to_owned(),
        false => loaded.beside.join(name).display().to_string(),
    }
}

fn default_name(definition: &Definition) -> String {
    let mut name: String = definition
        .title
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "study" } else { name };
    format!("{name}-{:.0}", wirecost_linux::clock::unix_ms() / 1000.0)
}

fn describe(loaded: &Loaded, steps: &[Step], text: &mut String) {
    describe_points(loaded, steps, text);
    if let Some(search) = &loaded.search {
        return search::describe(search, steps, text);
    }
    let Definition { repeat, .. } = &loaded.definition;
    let points = loaded.matrix.points.len();
    let _ = writeln!(
        text,
        "{}, {}{}, about {}",
        counted(points, "point"),
        counted(points * repeat.times as usize, "run"),
        if repeat.until.is_empty() { "" } else { " or more" },
        show_time(whole_time(loaded, steps)),
    );
}

fn describe_points(loaded: &Loaded, steps: &[Step], text: &mut String) {
    let Definition { title, .. } = &loaded.definition;
    let points = &loaded.matrix.points;
    let _ = writeln!(text, "{}", if title.is_empty() { "a study" } else { title });
    if let Some(base) = loaded.definition.base_text() {
        let _ = writeln!(text, "  base: {base}");
    }
    for (place, (point, step)) in points.iter().zip(steps).enumerate() {
        let engine = step.options.settings().engine;
        let name = loaded.definition.name_of(point);
        // Those of a page are in a directory of their own for as long as it runs.
        let profile = match loaded.sealed {
            true => source::file_name(&step.options.profile),
            false => step.options.profile.clone(),
        };
        let _ = writeln!(text, "  {:>4}  {name}  ({profile}, {engine})", place + 1);
    }
    for skipped in &loaded.matrix.skipped {
        let why = if skipped.why.is_empty() { "skipped" } else { &skipped.why };
        let name = loaded.definition.name_of(&skipped.point);
        let _ = writeln!(text, "     -  {name}  skipped: {why}");
    }
}

/// `1 run`, `2 runs`.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Estimated time of all runs.
fn whole_time(loaded: &Loaded, steps: &[Step]) -> Duration {
    if let Some(search) = &loaded.search {
        return search::typical(search, steps).1;
    }
    // Studies of others may have any numbers.
    let sum = |steps: &[Step]| {
        steps.iter().fold(Duration::ZERO, |sum, step| sum.saturating_add(step.time))
    };
    let warm_up = &steps[..steps.len().min(loaded.definition.warm_up as usize)];
    sum(steps).saturating_mul(loaded.definition.repeat.times).saturating_add(sum(warm_up))
}

fn drive(
    loaded: &Loaded,
    steps: &[Step],
    writer: &Writer,
    done: Vec<Run>,
    claimed: Claimed,
    lab: Option<Rc<Lab>>,
    output: &Output,
) -> Result<Summary, Failure> {
    let started = Instant::now();
    let time_of = |run: &Run| {
        let of = run.study.as_ref()?;
        let trial = of.search.as_ref().map_or(0.0, |trial| trial.seconds);
        Some(steps.get(of.place as usize - 1)?.time + Duration::from_secs_f64(trial))
    };
    let there: Duration = done.iter().filter_map(time_of).sum();
    let shown = show::Output { progress: !output.quiet, json_lines: output.json_lines };
    let left = whole_time(loaded, steps).saturating_sub(there);
    let tables = report::wanted(Some(&loaded.definition))?;
    let show = RefCell::new(Show::new(
        shown,
        steps,
        &tables[0],
        &loaded.matrix,
        left,
        loaded.search.is_some(),
    ));
    let mut runner = Hosts {
        title: &loaded.definition.title,
        steps,
        writer,
        show: &show,
        stop: claimed.stop,
        machines: &claimed.machines,
        started,
        lab,
    };
    let mut listener = |event: &wirecost_study::Event<'_>| {
        wirecost_study::Listener::event(&mut *show.borrow_mut(), event);
    };
    let summary =
        wirecost_study::run(&loaded.definition, &loaded.matrix, done, &mut runner, &mut listener)
            .map_err(failure)?;
    output.ended.set(true);
    Ok(summary)
}

/// Prints how the study ended: its tables, its expectations, and where it is saved.
fn conclude(
    loaded: &Loaded,
    finished: &Finished,
    output: &Output,
    page: Option<&HtmlFile>,
) -> Result<Status, Failure> {
    let (study, summary) = (finished.writer.study(), &finished.summary);
    let path = study.directory().display();
    let mut status = summary.status();
    say_end(summary, Some(study))?;
    let tables = report::wanted(Some(&loaded.definition))?;
    let runs = match tables.iter().any(TableRequest::needs_stacks) {
        true => study.runs_with_stacks(),
        false => study.runs(),
    };
    let measured = Measurements::of(runs.map_err(Failure::usage)?);
    if !output.json_lines {
        let mut document = Document::new(&loaded.definition.title);
        document.sections = report::sections(Some(&loaded.definition), &tables, &measured)?;
        output::show(&document);
    }
    if let Some(page) = page {
        report::write_page_of_study(study.directory(), page)?;
    }
    let verdicts = judge(loaded, &measured)?;
    for verdict in &verdicts {
        terminal::warn(format_args!("wirecost: {}", say(verdict)));
    }
    if status == Status::Ok && verdicts.iter().any(|verdict| !verdict.holds) {
        status = Status::Failed;
    }
    if summary.invalid > 0 {
        terminal::warn(format_args!(
            "wirecost: {} invalid; see status and warnings in run.json; repeat with: wirecost study \
             resume {path}",
            counted(summary.invalid, "run")
        ));
    }
    if !output.quiet {
        terminal::warn(format_args!("saved to {path}"));
    }
    Ok(status)
}

/// Says why a study ended before all its runs were made; `saved` is where it can be continued.
fn say_end(summary: &Summary, saved: Option<&RecordedStudy>) -> Result<(), Failure> {
    let resume =
        |study: &RecordedStudy| format!("wirecost study resume {}", study.directory().display());
    match &summary.ended {
        StopReason::Complete => {}
        StopReason::BudgetSpent => {
            terminal::warn(format_args!(
                "wirecost: time budget exhausted; some intervals are wider than requested"
            ));
        }
        StopReason::Interrupted => match saved {
            Some(study) => terminal::warn(format_args!(
                "wirecost: interrupted; continue with: {}",
                resume(study)
            )),
            None => terminal::warn(format_args!("wirecost: interrupted")),
        },
        StopReason::Refused(refusal) => {
            let failure = Failure::new(refusal.status, &refusal.message);
            return Err(match saved {
                Some(study) if study.ids().is_ok_and(|ids| !ids.is_empty()) => failure
                    .help(format!("finished runs are saved; continue with: {}", resume(study))),
                _ => failure,
            });
        }
    }
    Ok(())
}

fn judge(loaded: &Loaded, measured: &Measurements) -> Result<Vec<Verdict>, Failure> {
    let Definition { baseline, .. } = &loaded.definition;
    let other = match baseline {
        Some(Baseline::Study { study }) => {
            let other = RecordedStudy::open(&loaded.beside.join(study)).map_err(Failure::usage)?;
            Some(Measurements::of(other.runs().map_err(Failure::usage)?))
        }
        _ => None,
    };
    let all = Expectation::all(&loaded.definition).map_err(failure)?;
    let judged = all.iter().flat_map(|e| e.judge(baseline.as_ref(), measured, other.as_ref()));
    Ok(judged.collect())
}

fn say(verdict: &Verdict) -> String {
    let how = if verdict.holds { "holds" } else { "does not hold" };
    let what = match &verdict.measured {
        Ok((estimate, bound)) => {
            let unit = verdict.unit;
            format!("{} compared with {}", unit.show(estimate.mean), unit.show(*bound))
        }
        Err(reason) => format!("not measured: {reason}"),
    };
    format!("at {}: {} {how}: {what}", verdict.point, verdict.text)
}

fn list(show: Option<&str>) -> Result<Status, Failure> {
    let mut text = String::new();
    match show {
        Some(name) => {
            let builtin = builtins::find(name.trim_start_matches('@')).map_err(failure)?;
            text.push_str(builtin.source);
        }
        None => {
            text.push_str("Built-in studies (wirecost study run @NAME [--quick])\n");
            let width = builtins::ALL.iter().map(|b| b.name.len()).max().unwrap_or(0);
            for builtin in builtins::ALL {
                let title = builtin.definition().map(|study| study.title).unwrap_or_default();
                let _ = writeln!(text, "  @{:<width$}  {title}", builtin.name);
            }
        }
    }
    terminal::print(&text);
    Ok(Status::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn studies_of_the_same_second_have_directories_of_their_own() {
        let home = tempfile::tempdir().unwrap();
        let name = home.path().join("study-1");
        let made = [(); 3].map(|()| own_directory(name.to_str().unwrap()).unwrap());
        assert_eq!(
            made.each_ref().map(|path| path.file_name().unwrap().to_str().unwrap()),
            ["study-1", "study-1-2", "study-1-3"]
        );
        assert!(made.iter().all(|path| path.is_dir()));
    }
}
