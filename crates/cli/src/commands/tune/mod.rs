//! `wirecost tune`: the best setting of tunables and options, with a confirmed gain.

mod apply;
mod factors;
mod keep;

use std::io;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Document, Section};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::Value;
use wirecost_report::documents::tuning as report;
use wirecost_report::outputs::{self, TerminalStyle};
use wirecost_report::tables;
use wirecost_study::Definition;
use wirecost_study::tuning::{self, TuneDefinition};

use super::run::{ConflictOptions, HostOptions, RunOptions, new_seed};
use super::study::{Available, Searched, TuneRequest, of_run, search};
use crate::Failure;
use crate::terminal;

/// Search for the setting of tunables and options with the highest throughput, the lowest cost or the
/// lowest latency.
///
/// The search screens all factors at two levels, races the most promising settings, and confirms the
/// winner against the base on fresh runs: about 40 runs in total. It prints the setting, its gain
/// with a 95% interval, the effect of each factor alone, and the commands that make the setting
/// permanent and undo it. Every setting is restored after each run; only --apply keeps the result.
///
/// Exit codes: 0 ok, also if nothing helps, 2 usage error, 3 a host refused or failed, 4 too many runs
/// are invalid, 130 interrupted.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("objective").required(true).args(["maximize", "minimize"]))]
pub(crate) struct Tune {
    #[command(flatten)]
    options: RunOptions,

    /// Metric to maximize, such as throughput (see `wirecost report --list`).
    #[arg(long, value_name = "METRIC")]
    maximize: Option<String>,

    /// Metric to minimize, such as cycles_per_kbyte or p99.
    #[arg(long, value_name = "METRIC")]
    minimize: Option<String>,

    /// Bound that the setting must keep: METRIC >= LIMIT or METRIC <= LIMIT, where LIMIT is a number or a multiple of
    /// `best` or `base`, such as 'throughput >= 0.95*best' or 'loss <= 1%';
    /// can be repeated.
    #[arg(long, value_name = "BOUND")]
    subject_to: Vec<String>,

    /// Factor and its levels, named as axes of a study: tune.mtu=keep,9000 or option.wndsz=keep,1m,8m or
    /// engine=epoll,io_uring. The first level is the base; `keep` changes nothing. Can be repeated
    /// [default: a set for the profile and the place].
    #[arg(long = "factor", value_name = "NAME=LOW,HIGH[,...]", value_parser = super::study::parse_axis)]
    factors: Vec<(String, Vec<String>)>,

    /// Maximum number of runs [default: 40 or more, by the number of factors].
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    budget: Option<u32>,

    /// Run on loopback, which is the default.
    #[arg(long, conflicts_with_all = ["lab", "hosts", "vm"])]
    loopback: bool,

    #[command(flatten)]
    hosts: HostOptions,

    #[command(flatten)]
    conflict: ConflictOptions,

    /// Keep the tunables of the best setting on this machine (--loopback) or in the lab NAME (--lab=NAME), if
    /// it is better.
    #[arg(long)]
    apply: bool,

    /// Save the runs as a study to this new directory [default: the profile's name and the time].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Format of the standard output: terminal, json, csv or markdown.
    #[arg(long, value_name = "FORMAT", default_value = "terminal", value_parser = super::report::format())]
    format: String,

    /// Do not show progress.
    #[arg(long, short)]
    quiet: bool,
}

impl Tune {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let found = self.find();
        if let Err(failure) = &found
            && self.format == "json"
        {
            super::report::refuse(failure.status, &failure.message)?;
        }
        found
    }

    fn find(&self) -> Result<Status, Failure> {
        if self.apply {
            apply::check(&self.hosts)?;
        }
        let searched = search(TuneRequest {
            definition: self.definition()?,
            hosts: &self.hosts,
            factors_by_default: self.factors.is_empty(),
            conflict: self.conflict,
            out: self.out.as_deref(),
            quiet: self.quiet,
        })?;
        let status = conclude(&searched, &self.format)?;
        // After the result, which is shown also where a host refuses it.
        if let Some(Ok(outcome)) = &searched.tuned.outcome
            && self.apply
        {
            apply::apply(&searched.definition, &self.hosts, &outcome.recommended())?;
        }
        Ok(status)
    }

    /// The study of the search, with the factors that do not fit the profile or the place.
    fn definition(&self) -> Result<Definition, Failure> {
        let name = self.options.profile.trim_start_matches('@');
        let mut definition = Definition {
            title: format!("tune {name}"),
            seed: self.options.seed().unwrap_or_else(new_seed),
            // The machine is colder in the first run of a command than in later ones.
            warm_up: 1,
            tune: Some(TuneDefinition {
                maximize: self.maximize.clone(),
                minimize: self.minimize.clone(),
                subject_to: self.subject_to.clone(),
                budget: self.budget,
                ..TuneDefinition::default()
            }),
            ..Definition::default()
        };
        for Value { name, value } in of_run(&self.options)? {
            definition.set(&name, &value);
        }
        let unfit = match self.factors.is_empty() {
            true => factors::add_default(&mut definition, &self.options, &self.hosts)?,
            false => {
                let available = Available::of(&definition, &self.hosts, false);
                let with_values = |(name, levels): &(String, Vec<String>)| {
                    Ok((name.clone(), available.values(name, levels)?))
                };
                let factors = self.factors.iter().map(with_values);
                let factors: Vec<_> = factors.collect::<Result<_, Failure>>()?;
                factors::add(&mut definition, &factors, &self.hosts)?;
                Vec::new()
            }
        };
        if let Some(tune) = &mut definition.tune {
            tune.left_out.extend(unfit);
        }
        Ok(definition)
    }
}

/// Shows the outcome of a search, and says where it is saved.
pub(crate) fn conclude(searched: &Searched, format: &str) -> Result<Status, Failure> {
    searched.say_end()?;
    let status = searched.tuned.summary.status();
    match &searched.tuned.outcome {
        None => {}
        Some(Err(error)) => {
            searched.say_saved();
            return Err(Failure::new(Status::Invalid, error)
                .help("see status and warnings of the runs: wirecost report DIR"));
        }
        Some(Ok(_)) => {
            let mut document = Document::new(&searched.definition.title);
            let runs = searched.runs()?;
            document.sections = sections(&searched.definition, &runs)?.unwrap_or_default();
            let runs = runs.into_iter().map(|run| (String::new(), run));
            document.sections.push(tables::about(&Measurements::of(runs), &[]));
            let style = TerminalStyle::of(&io::stdout());
            if let Some(output) = outputs::find(format) {
                // A reader that has seen enough (`| head`) is no failure.
                let _ = output.write(&mut terminal::stdout(), &document, &style);
            }
        }
    }
    searched.say_saved();
    match (status, &searched.tuned.outcome) {
        // Runs without a result were made again, or left out.
        (Status::Invalid, Some(Ok(_))) => Ok(Status::Ok),
        (status, _) => Ok(status),
    }
}

/// What the runs of a search show; `None` where it is not at its end.
pub(crate) fn sections(
    definition: &Definition,
    runs: &[Run],
) -> Result<Option<Vec<Section>>, Failure> {
    let failed = |error: wirecost_study::StudyError| Failure::usage(error);
    let Some(goal) = tuning::goal(definition).map_err(failed)? else { return Ok(None) };
    let replayed = tuning::replay(definition, runs.iter().cloned()).map_err(failed)?;
    let Some(Ok(outcome)) = replayed else { return Ok(None) };
    let bounds: Vec<_> = goal
        .bounds
        .iter()
        .map(|bound| (bound.text.clone(), bound.selector.metric().unit))
        .collect();
    let kept = keep::commands(definition, &outcome.recommended(), runs);
    let left_out = definition.tune.iter().flat_map(|tune| tune.left_out.clone());
    let left_out: Vec<(String, String)> = left_out.collect();
    Ok(Some(report::sections(&report::Searched {
        objective: &goal.objective.selector,
        maximize: goal.objective.maximize,
        bounds: &bounds,
        factors: &goal.factors,
        levels: &goal.levels,
        outcome: &outcome,
        left_out: &left_out,
        keep: kept.keep,
        undo: kept.undo,
        notes: kept.notes,
    })))
}
