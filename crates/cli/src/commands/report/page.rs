//! Pages of records (`--format html`, `--html FILE`), and the files that they go to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use wirecost_analyze::compare::Hosts;
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Block, Cell, Document, Finding, REPLAY_VERSION, Replay};
use wirecost_model::observe::FoldedStacks;
use wirecost_model::run::{Run, RunPlan};
use wirecost_model::status::Status;
use wirecost_report::atomic_file;
use wirecost_report::documents::findings;
use wirecost_report::documents::page::{self, Redaction, Source};
use wirecost_report::outputs::{self, TerminalStyle};
use wirecost_report::tables::{self, TableRequest};
use wirecost_store::input::{PROFILE, read_text};
use wirecost_store::study::{PROFILES, Study};
use wirecost_store::{HOSTS, RUN};
use wirecost_study::{Definition, Matrix, Order};

use super::read::RunSet;
use super::{WIDTH, of_search, planned, sections};
use crate::Failure;
use crate::commands::study::check_replay;

/// The label of the line that says how a page is run again.
const RUN_AGAIN: &str = "run again";

/// As `--format` names it.
pub(super) const FORMAT: &str = "html";

/// How a page is written.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct PageOptions {
    /// Replace an HTML file that exists.
    #[arg(long)]
    force: bool,

    /// Replace names of hosts and devices, addresses and paths in HTML by `host-1`, `address-1` and so on.
    #[arg(long)]
    redact: bool,
}

impl PageOptions {
    /// Refuses options of pages where none is written.
    pub(super) fn refuse_without(self, page: &str) -> Result<(), Failure> {
        for (name, is_set) in [("--force", self.force), ("--redact", self.redact)] {
            if is_set {
                return Err(Failure::usage(format!("{name} needs {page}")));
            }
        }
        Ok(())
    }
}

/// A file that a page will be written to; it was possible when this was made.
#[derive(Debug)]
pub(crate) struct HtmlFile {
    path: PathBuf,
    options: PageOptions,
}

impl HtmlFile {
    /// # Errors
    /// The file exists, and nobody allows to replace it; or it cannot be written.
    pub(crate) fn new(path: &Path, options: PageOptions) -> Result<Self, Failure> {
        if path.is_file() && !options.force {
            let message = format!("{} exists", path.display());
            return Err(Failure::usage(message).help("replace it with --force"));
        }
        let failed = |error| Failure::usage(format!("cannot write {}: {error}", path.display()));
        atomic_file::check(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), options })
    }

    /// The file of `--html FILE`, where a page is wanted.
    ///
    /// # Errors
    /// Those of [`HtmlFile::new`], or an option of pages where none is wanted.
    pub(crate) fn wanted(
        path: Option<&Path>,
        options: PageOptions,
    ) -> Result<Option<Self>, Failure> {
        match path {
            Some(path) => Self::new(path, options).map(Some),
            None => options.refuse_without("--html FILE").map(|()| None),
        }
    }

    /// Writes a page. `names` are what a redacted page must not have.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, document: Document, names: &Redaction) -> Result<(), Failure> {
        let text = written(document, self.options, names)?;
        let failed = |error| {
            Failure::new(Status::Failed, format!("cannot write {}: {error}", self.path.display()))
        };
        atomic_file::write(&self.path, &text).map_err(failed)
    }
}

/// The text of a page.
pub(super) fn written(
    mut document: Document,
    options: PageOptions,
    names: &Redaction,
) -> Result<Vec<u8>, Failure> {
    if options.redact {
        page::redact(&mut document, names);
    }
    // Without the names that were replaced, too.
    if let Some(Err(reason)) = document.replay.as_ref().map(check_replay) {
        document.replay = None;
        let sections = document.sections.iter_mut().filter(|section| section.name == page::METHOD);
        for block in sections.flat_map(|section| &mut section.blocks) {
            let Block::Figures(figures) = block else { continue };
            for figure in figures.iter_mut().filter(|figure| figure.label == RUN_AGAIN) {
                figure.value = Cell::text(format!("not from this page: {reason}"));
            }
        }
    }
    let output =
        outputs::find(FORMAT).ok_or_else(|| Failure::usage(format!("unknown format {FORMAT}")))?;
    let mut text = Vec::new();
    output
        .write(&mut text, &document, &TerminalStyle::plain(WIDTH))
        .map_err(|error| Failure::new(Status::Failed, error))?;
    Ok(text)
}

/// What a redacted page of these records must not have.
pub(super) fn names(sets: &[RunSet]) -> Redaction {
    let runs = sets.iter().flat_map(|set| &set.runs);
    let paths = sets.iter().map(|set| set.source.clone());
    let paths =
        paths.chain(runs.clone().map(|(name, _)| name.clone()).filter(|name| name.contains('/')));
    let first = sets.iter().filter_map(|set| Some((set, set.runs.first()?)));
    let hosts: Hosts = first.flat_map(|(set, (id, _))| hosts(&record(set, id))).collect();
    Redaction::of(runs.map(|(_, run)| run), &hosts, paths)
}

/// The page of a study, of a run, or of runs side by side.
pub(super) fn of(set: &RunSet, wanted: &[TableRequest]) -> Result<Document, Failure> {
    match (&set.definition, set.runs.as_slice()) {
        (None, [(name, run)]) => Ok(of_run(name, run)),
        _ => of_study(set, wanted),
    }
}

fn of_run(name: &str, run: &Run) -> Document {
    let hosts = hosts(Path::new(name));
    with_plan(name, run, Source { record: Some(name), hosts: &hosts })
}

/// The page of a run, with what is needed to run it again.
fn with_plan(name: &str, run: &Run, source: Source<'_>) -> Document {
    let replay = match (&run.plan, &run.study) {
        (Some(plan), _) => replay_of_run(plan),
        (None, Some(_)) => Err("the run is of a study, whose page can be run again".to_owned()),
        (None, None) => {
            Err("its record has no plan, as of a lab with a name or a profile from standard input"
                .to_owned())
        }
    };
    let mut document = page::run(name, run, source, &[run_again(&replay)]);
    document.replay = replay.ok();
    document
}

fn replay_of_run(plan: &RunPlan) -> Result<Replay, String> {
    let definition = Definition::parse(&plan.study).map_err(|error| error.to_string())?;
    let text = |name: &str| {
        plan.profiles
            .get(name)
            .cloned()
            .ok_or_else(|| format!("its profile {name} is not in the record"))
    };
    replay(&definition, &text, Vec::new())
}

/// Of the method: how a page is run again, or why it cannot be.
fn run_again(replay: &Result<Replay, String>) -> (String, String) {
    let how = match replay {
        Ok(_) => "on other hosts, from this page: wirecost replay PAGE".to_owned(),
        Err(reason) => format!("not from this page: {reason}"),
    };
    (RUN_AGAIN.to_owned(), how)
}

fn of_study(set: &RunSet, wanted: &[TableRequest]) -> Result<Document, Failure> {
    let definition = set.definition.as_ref();
    let measured = Measurements::of(set.runs.iter().cloned());
    let first = set.runs.iter().find(|(_, run)| run.status == Status::Ok);
    let hosts = first.map(|(id, _)| hosts(&record(set, id))).unwrap_or_default();
    let sections = sections(definition, wanted, &measured)?;
    let profile = |name: &str| {
        let file = file_name(name);
        read_text(&Path::new(&set.source).join(PROFILES).join(&file), PROFILE)
            .map_err(|error| format!("its profile {file} cannot be read: {error}"))
    };
    let replay = definition.map(|definition| replay(definition, &profile, findings::of(&sections)));
    let mut planned_runs = definition.map(method).unwrap_or_default();
    planned_runs.extend(replay.as_ref().map(run_again));
    let mut document = page::study(page::Study {
        title: &set.title,
        sections,
        measured: &measured,
        method: planned_runs,
        source: Source { record: definition.map(|_| set.source.as_str()), hosts: &hosts },
        stacks: stacks(set),
        cpus: fastest_traced(set),
        congestion_controls: by_congestion_control(set),
        cautions: tables::cautions(&measured, &planned(definition).points),
        searched: match definition.filter(|of| of.tune.is_some()) {
            Some(definition) => Some(of_search(definition, &set.runs)?),
            None => None,
        },
    });
    document.replay = replay.and_then(Result::ok);
    Ok(document)
}

/// What a page holds so that its study can be run again, or why it cannot. `profile` gives the text of a profile that is no
/// built-in.
fn replay(
    definition: &Definition,
    profile: &dyn Fn(&str) -> Result<String, String>,
    findings: Vec<Finding>,
) -> Result<Replay, String> {
    let place = match definition.hosts.is_empty() {
        true => definition.place.to_string(),
        false => "hosts".to_owned(),
    };
    let (mut portable, left_out) =
        definition.clone().portable().map_err(|error| error.to_string())?;
    let matrix = Matrix::of(&portable).map_err(|error| error.to_string())?;
    let mut profiles = BTreeMap::new();
    let names = matrix.points.iter().filter_map(|point| point.get("profile"));
    for name in names.filter(|name| !name.starts_with('@')).collect::<BTreeSet<_>>() {
        let file = file_name(name);
        profiles.insert(file.clone(), profile(name)?);
        portable.rename_profile(name, &file);
    }
    let findings = findings.into_iter();
    Ok(Replay {
        version: REPLAY_VERSION,
        study: portable.to_text(),
        profiles,
        place,
        left_out,
        findings: findings
            .map(|finding| Finding { evidence: Vec::new(), points: Vec::new(), ..finding })
            .collect(),
    })
}

/// A profile as a study keeps it, and a page.
fn file_name(profile: &str) -> String {
    Path::new(profile).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The directory of a run's record.
fn record(set: &RunSet, id: &str) -> PathBuf {
    match set.definition {
        Some(_) => Path::new(&set.source).join(wirecost_store::study::RUNS).join(id),
        None => PathBuf::from(id),
    }
}

/// Environments of a record's hosts; none where it has none that can be read.
fn hosts(record: &Path) -> Hosts {
    match record.join(RUN).is_file() && record.join(HOSTS).is_file() {
        true => wirecost_store::hosts(record).unwrap_or_default(),
        false => Hosts::new(),
    }
}

/// Stacks of the fastest run that has some, of its first host.
fn stacks(set: &RunSet) -> Option<(String, FoldedStacks)> {
    set.definition.as_ref()?;
    let sampled = |run: &Run| {
        run.observe
            .iter()
            .flat_map(|of| &of.hosts)
            .any(|of| of.functions.as_ref().is_some_and(|of| of.samples > 0))
    };
    let runs = set.runs.iter().filter(|(_, run)| run.status == Status::Ok && sampled(run));
    let (id, run) = runs.max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))?;
    let record = Study::open(Path::new(&set.source)).ok()?.read(id).ok()?;
    let host = record.run.observe?.hosts.into_iter().find(|host| host.functions.is_some())?;
    let point = run.study.as_ref().map(|study| study.point.to_string()).unwrap_or_default();
    let title = format!("Sampled functions of {} in run {id} ({point})", host.covers.join(", "));
    Some((title, host.functions?.stacks))
}

/// The fastest run whose CPU time was traced, with all that its record has.
fn fastest_traced(set: &RunSet) -> Option<(String, Run)> {
    let traced = |run: &Run| {
        let mut hosts = run.observe.iter().flat_map(|of| &of.hosts);
        hosts.any(|of| of.cpu.as_ref().is_some_and(|cpu| cpu.source == "bpf"))
    };
    let runs = set.runs.iter().filter(|(_, run)| run.status == Status::Ok && traced(run));
    let mut runs: Vec<&(String, Run)> = runs.collect();
    runs.sort_by(|(_, a), (_, b)| rate(b).total_cmp(&rate(a)));
    // A record of an earlier version has whole windows only.
    let sampled = |run: &Run| {
        let mut hosts = run.observe.iter().flat_map(|of| &of.hosts);
        hosts.any(|of| of.cpu.as_ref().is_some_and(|cpu| cpu.samples.is_some()))
    };
    runs.into_iter().find_map(|(id, _)| {
        let run = wirecost_store::read(&record(set, id)).ok()?.run;
        sampled(&run).then(|| (id.clone(), run))
    })
}

/// How studies call the axis of congestion control.
const CONGESTION_CONTROL: [&str; 2] = ["option.cc", "cc"];

/// The fastest run of each congestion control, with all that its record has, of the points that differ in nothing else and
/// have most of them; of several such, the fastest. With what these points have in common.
fn by_congestion_control(set: &RunSet) -> (String, Vec<(String, Run)>) {
    type Fastest<'a> = BTreeMap<&'a str, &'a (String, Run)>;
    let mut groups: Vec<(String, Fastest<'_>)> = Vec::new();
    for of in set.runs.iter().filter(|(_, run)| run.status == Status::Ok && has_flows(run)) {
        let Some(study) = &of.1.study else { continue };
        let (own, others): (Vec<_>, Vec<_>) = study
            .point
            .axes
            .iter()
            .partition(|axis| CONGESTION_CONTROL.contains(&axis.name.as_str()));
        let [cc] = own[..] else { continue };
        let point: Vec<String> =
            others.iter().map(|axis| format!("{}={}", axis.name, axis.value)).collect();
        let point = point.join(" ");
        let place = groups.iter().position(|(known, _)| *known == point).unwrap_or(groups.len());
        if place == groups.len() {
            groups.push((point, Fastest::new()));
        }
        let known = groups[place].1.entry(&cc.value).or_insert(of);
        if rate(&of.1) > rate(&known.1) {
            *known = of;
        }
    }
    let fastest = |of: &Fastest<'_>| of.values().map(|(_, run)| rate(run)).fold(0.0, f64::max);
    let most = groups
        .into_iter()
        .max_by(|(_, a), (_, b)| a.len().cmp(&b.len()).then(fastest(a).total_cmp(&fastest(b))));
    let Some((point, runs)) = most else { return (String::new(), Vec::new()) };
    let whole = |(cc, (id, _)): (&str, &(String, Run))| {
        Some((cc.to_owned(), wirecost_store::read(&record(set, id)).ok()?.run))
    };
    (point, runs.into_iter().filter_map(whole).collect())
}

fn has_flows(run: &Run) -> bool {
    let mut hosts = run.observe.iter().flat_map(|of| &of.hosts);
    hosts.any(|of| of.tcp.as_ref().is_some_and(|tcp| !tcp.flows.is_empty()))
}

fn rate(run: &Run) -> f64 {
    run.throughput.as_ref().map_or(0.0, |of| of.bits_per_second)
}

/// What a definition says of how runs were made.
fn method(definition: &Definition) -> Vec<(String, String)> {
    let order = match definition.order {
        Order::Shuffled => "shuffled: each repeat visits the points in another order",
        Order::Blocks => "shuffled, with points that are compared next to each other",
        Order::Written => "as the points are listed",
    };
    let repeat = &definition.repeat;
    let mut repeats = format!("{} of each point", repeat.times);
    if let Some(most) = repeat.most {
        repeats += &format!(", at most {most}, until intervals are narrow enough");
    }
    if definition.warm_up > 0 {
        repeats +=
            &format!("; before them {} to warm up, excluded from results", definition.warm_up);
    }
    let lines = [
        ("place", definition.place.to_string()),
        ("repeats", repeats),
        ("order", order.to_owned()),
        ("seed of the order", definition.seed.to_string()),
    ];
    lines.map(|(label, value)| (label.to_owned(), value)).into()
}

/// The page of a run that has just been made.
pub(crate) fn of_new_run(run: &Run, record: Option<&Path>, hosts: &Hosts) -> (Document, Redaction) {
    let record = record.map(|path| path.display().to_string());
    let name = record.clone().unwrap_or_else(|| "run".to_owned());
    let names = Redaction::of([run], hosts, record.clone());
    (with_plan(&name, run, Source { record: record.as_deref(), hosts }), names)
}
