//! `wirecost compare`: what became of B, seen from A.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use wirecost_analyze::compare::{self, Hosts, Options, Subject};
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics::{self, Selector};
use wirecost_model::comparison::Comparison;
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_report::documents::comparison;
use wirecost_report::documents::page::{self, Redaction, SavedRuns, Side};

use super::output::Format;
use super::report::{HtmlFile, PageOptions};
use super::run::{ConflictOptions, HostOptions};
use super::study::{Compared, compare_runs, parse_axis};
use crate::Failure;
use crate::records::{self, Records, Source};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compare two studies, two runs, or two settings, point by point: B with A.
///
/// `compare A B` reads what was measured. `compare STUDY --by AXIS` compares two values of an axis of one
/// study. `compare --run ARGS ARGS` interleaves runs of both, so that a change of the machine affects both
/// alike, and compares them.
///
/// Host differences are listed first, then each figure with its ratio, then the verdict. A
/// difference counts if it is significant after correction for the number of comparisons, and
/// larger than the threshold. Exit codes: 0 nothing is worse, 1 something is worse, 2 A and B
/// cannot be compared. With --run, failed runs give the exit codes of `wirecost run`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("sides").required(true).args(["a", "run"]))]
pub(crate) struct Compare {
    /// Baseline: a study, a record of `run --out`, or JSON of a run.
    #[arg(value_name = "A")]
    a: Option<PathBuf>,

    /// What to compare with the baseline: the same kinds as A.
    #[arg(value_name = "B", conflicts_with = "by", required_unless_present_any = ["by", "run"])]
    b: Option<PathBuf>,

    /// Compare two values of an axis of the study A, the first as the baseline; without values, those
    /// that it has, if they are two.
    #[arg(long, value_name = "AXIS[=A,B]", requires = "a", value_parser = parse_by)]
    by: Option<(String, Option<[String; 2]>)>,

    /// Interleave runs of both, and compare them: the arguments of `wirecost run`, such as '@stream' and
    /// '@stream --engine io_uring'.
    #[arg(long, value_names = ["A", "B"], num_args = 2, allow_hyphen_values = true)]
    run: Option<Vec<String>>,

    #[command(flatten)]
    runs: RunsOfCompare,

    /// Threshold in percent: smaller differences do not count.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent)]
    threshold: f64,

    /// Compare only this metric, such as throughput, latency.p99, hosts.sender.cycles_per_kbyte;
    /// can be repeated [default: throughput, or transactions where no bytes move, latency.p99, and
    /// cycles/KByte of sender and receiver, or of the machine]
    #[arg(long = "metric", value_name = "NAME", value_parser = parse_metric)]
    metrics: Vec<Selector>,

    /// Format of the standard output.
    #[arg(long, value_enum, default_value = "terminal")]
    format: Format,

    /// Write a page with charts that opens offline to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    page: PageOptions,
}

/// How `--run` runs.
#[derive(Debug, Args)]
struct RunsOfCompare {
    /// With --run: runs of each side at each point.
    #[arg(
        long,
        value_name = "N",
        requires = "run",
        default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    repeat: u32,

    /// With --run: compare at each of these values.
    #[arg(long = "axis", value_name = "NAME=A,B,C", requires = "run", value_parser = parse_axis)]
    axes: Vec<(String, Vec<String>)>,

    /// With --run: save the runs as a study to this new directory.
    #[arg(long, value_name = "DIR", requires = "run")]
    out: Option<PathBuf>,

    #[command(flatten)]
    hosts: HostOptions,

    #[command(flatten)]
    conflict: ConflictOptions,

    /// With --run: do not show progress.
    #[arg(long, short, requires = "run")]
    quiet: bool,
}

fn parse_by(text: &str) -> Result<(String, Option<[String; 2]>), String> {
    let (axis, values) = match text.split_once('=') {
        Some((axis, values)) => {
            (axis, Some(values.split(',').map(str::to_owned).collect::<Vec<_>>()))
        }
        None => (text, None),
    };
    match (axis, values.map(<[String; 2]>::try_from)) {
        ("", _) | (_, Some(Err(_))) => {
            Err("must be AXIS or AXIS=A,B, such as engine=epoll,io_uring".to_owned())
        }
        (axis, None) => Ok((axis.to_owned(), None)),
        (axis, Some(Ok(values))) => Ok((axis.to_owned(), Some(values))),
    }
}

fn parse_metric(name: &str) -> Result<Selector, String> {
    metrics::find(name).map_err(|error| match error.nearest {
        Some(_) => error.to_string(),
        None => {
            let containing = metrics::all().map(|metric| metric.name);
            let containing = containing.filter(|known| !name.is_empty() && known.contains(name));
            let containing: Vec<&str> = containing.take(3).collect();
            match containing.is_empty() {
                true => format!("{error}; `wirecost report --list` lists them"),
                false => format!("{error}; did you mean {}?", containing.join(" or ")),
            }
        }
    })
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
    match number {
        Some(percent) if percent >= 0.0 && percent.is_finite() => Ok(percent / 100.0),
        _ => Err("must be a percentage, such as 5%".to_owned()),
    }
}

impl Compare {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let options = Options { threshold: self.threshold, metrics: self.metrics.clone() };
        let format = self.format;
        let file = HtmlFile::wanted(self.html.as_deref(), self.page)?;
        let is_saved = self.run.is_none() || self.runs.out.is_some();
        let mut sources = None;
        // What was named, until it is known what that is.
        let [mut a, mut b] = self.names().map(|name| Subject { name, ..Subject::default() });
        let compared = self.sides().and_then(|(sides, status)| {
            sources = Some(sides.each_ref().map(|records| records.source.clone()));
            [a, b] = sides.map(subject);
            let compared = compare::compare(&a, &b, &options, VERSION);
            compared.map(|comparison| of_runs(comparison, status)).map_err(|error| {
                let status = if status == Status::Ok { Status::Usage } else { status };
                Failure::new(status, error)
            })
        });
        let comparison = match &compared {
            Ok(comparison) => comparison.clone(),
            Err(failure) => {
                let refused = compare::refused(&a, &b, &options, VERSION, &failure.message);
                Comparison { status: failure.status, ..refused }
            }
        };
        if compared.is_ok() || format == Format::Json {
            format.write(&comparison, comparison::report)?;
        }
        if let (Some(file), Some(sources), true) = (file, sources, compared.is_ok()) {
            let sources = sources.map(|source| Saved { source, is_saved });
            write_page(&file, &comparison, [&a, &b], &sources)?;
        }
        compared.map(|comparison| comparison.status)
    }

    /// Names of A and B, as the command line has them.
    fn names(&self) -> [String; 2] {
        if let Some([a, b]) = self.run.as_deref() {
            return [a.clone(), b.clone()];
        }
        let name = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
        };
        [name(&self.a), name(&self.b)]
    }

    /// Reads or makes the runs of A and B, with the status of those that were made.
    fn sides(self) -> Result<([Records; 2], Status), Failure> {
        if let Some([a, b]) = self.run.as_deref() {
            let RunsOfCompare { repeat, axes, out, hosts, conflict, quiet } = self.runs;
            return compare_runs(&Compared {
                sides: [a, b],
                axes: &axes,
                times: repeat,
                hosts: &hosts,
                conflict,
                out,
                quiet,
            });
        }
        let a = records::read(&self.a.unwrap_or_default())?;
        match (self.by, self.b) {
            (Some((axis, values)), _) => Ok((by_axis(&a, &axis, values)?, Status::Ok)),
            (None, b) => Ok(([a, records::read(&b.unwrap_or_default())?], Status::Ok)),
        }
    }
}

/// The runs of a side, of which records may be gone with the directory of the command.
#[derive(Debug)]
struct Saved {
    source: Source,
    is_saved: bool,
}

impl SavedRuns for Saved {
    fn record(&self, run: &str) -> Option<String> {
        self.source.record(run).filter(|_| self.is_saved)
    }

    fn with_stacks(&self, run: &str) -> Option<Run> {
        self.source.with_stacks(run)
    }
}

fn write_page(
    file: &HtmlFile,
    comparison: &Comparison,
    subjects: [&Subject; 2],
    sources: &[Saved; 2],
) -> Result<(), Failure> {
    let nothing = Hosts::new();
    let [a, b] = [0, 1].map(|place| Side {
        measured: &subjects[place].measured,
        hosts: subjects[place].hosts.first().unwrap_or(&nothing),
        records: &sources[place],
    });
    let document = page::comparison(comparison, [a, b]);
    let points = subjects.iter().flat_map(|subject| &subject.measured.points);
    let runs = points.flat_map(|point| point.runs.iter().chain(&point.failed));
    let mut names = Redaction::of(runs, &nothing, Vec::new());
    for environments in subjects.iter().flat_map(|subject| &subject.hosts) {
        names.add_environments(environments);
    }
    for (saved, side) in sources.iter().zip([&comparison.a, &comparison.b]) {
        let (Source::Study(path) | Source::Single(path)) = &saved.source;
        names.add_source(&path.display().to_string());
        names.add_label(&side.name);
    }
    file.write(document, &names)
}

/// A comparison of runs that were made for it. Where some of them do not count it is not a whole one.
fn of_runs(mut comparison: Comparison, status: Status) -> Comparison {
    if comparison.status == Status::Ok && status != Status::Ok {
        comparison.status = status;
        comparison.error = Some("runs without a valid result were left out".to_owned());
    }
    comparison
}

/// The runs of a study at two values of an axis.
fn by_axis(
    study: &Records,
    axis: &str,
    values: Option<[String; 2]>,
) -> Result<[Records; 2], Failure> {
    let axes = study.axes();
    let Some((_, known)) = axes.iter().find(|(name, _)| name == axis) else {
        let names: Vec<&str> = axes.iter().map(|(name, _)| name.as_str()).collect();
        let failure = Failure::usage(format!("{} has no axis {axis}", study.name));
        return Err(match names.as_slice() {
            [] => failure.help("give a study that has axes"),
            names => failure.help(format!("it has {}", names.join(", "))),
        });
    };
    let all = || known.join(", ");
    let values = match (values, known.as_slice()) {
        (Some(values), _) => values,
        (None, [a, b]) => [a.clone(), b.clone()],
        (None, known) => {
            let message =
                format!("axis {axis} of {} has {} values: {}", study.name, known.len(), all());
            return Err(match known {
                [a, b, ..] => Failure::usage(message)
                    .help(format!("name the two to compare: --by {axis}={a},{b}")),
                _ => Failure::usage(message),
            });
        }
    };
    if let Some(unknown) = values.iter().find(|value| !known.contains(value)) {
        let message = format!("axis {axis} of {} has no value {unknown}", study.name);
        return Err(Failure::usage(message).help(format!("it has {}", all())));
    }
    let [a, b] = values.each_ref().map(|value| study.at(axis, value));
    Ok([a?, b?])
}

fn subject(records: Records) -> Subject {
    Subject {
        name: records.name,
        single: records.single,
        measured: Measurements::of(records.runs),
        hosts: records.hosts,
        study_keys: records.study_keys,
        profiles: records.profiles,
    }
}

/// Writes the document of a comparison with an invalid command line.
pub(super) fn refuse(message: &str) -> Result<(), Failure> {
    let nothing = Subject::default();
    let options = Options { threshold: 0.0, metrics: Vec::new() };
    let refused = compare::refused(&nothing, &nothing, &options, VERSION, message);
    Format::Json.write(&refused, comparison::report)
}
