//! `wirecost replay`: the study of a page, run again on other hosts.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use wirecost_analyze::replay;
use wirecost_model::document::Document;
use wirecost_model::status::Status;
use wirecost_report::documents::{findings, replay as report};
use wirecost_report::outputs::read_replay;
use wirecost_store::input::{PAGE, read_text};

use super::output::Format;
use super::parse_time_not_zero;
use super::report::refuse;
use super::run::{ConflictOptions, HostOptions};
use super::study::{PageStudy, replay_study};
use crate::Failure;

/// Run the study of an HTML page again, on these hosts, and tell which of its findings hold here.
///
/// The page is one that `wirecost report --format html` or `--html` wrote of a study. Of it are taken: the
/// study without hosts, settings of machines and files, its profiles, its seed and its findings. Where it
/// runs is for you to say. See docs/replay.md. Exit codes: 0 ok, 1 a finding is contradicted or not shown, or none was
/// tested, 2 usage error or a page that cannot be run again, 3 a host or the network failed, 4 a run is invalid, 130 interrupted.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// HTML page of a study.
    #[arg(value_name = "PAGE")]
    page: PathBuf,

    /// Show what would be run, and run nothing.
    #[arg(long)]
    check: bool,

    /// Run each point N times, in place of as often as the page's study did.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// Refuse a study that takes longer than this, by its estimated time.
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = parse_time_not_zero)]
    longest: Duration,

    /// Run on loopback, even if the page's study used a lab.
    #[arg(long, conflicts_with_all = ["lab", "hosts", "vm"])]
    loopback: bool,

    #[command(flatten)]
    hosts: HostOptions,

    #[command(flatten)]
    conflict: ConflictOptions,

    /// Save the study to this new directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Do not show progress.
    #[arg(long, short)]
    quiet: bool,

    /// Format of the standard output.
    #[arg(long, value_enum, default_value = "terminal")]
    format: Format,
}

impl Replay {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let made = self.replayed();
        if let (Err(failure), Format::Json) = (&made, self.format) {
            // If the document cannot be written either, the first failure is reported.
            let _ = refuse(failure.status, &failure.message);
        }
        made
    }

    fn replayed(&self) -> Result<Status, Failure> {
        let name = self.page.display();
        let text = read_text(&self.page, PAGE)
            .map_err(|error| Failure::usage(format!("cannot read the page {name}: {error}")))?;
        let plan =
            read_replay(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        drop(text);
        let study = PageStudy {
            plan: &plan,
            hosts: &self.hosts,
            loopback: self.loopback,
            repeat: self.repeat,
            longest: self.longest,
            conflict: self.conflict,
            out: self.out.as_deref(),
            quiet: self.quiet,
            check: self.check,
        };
        let Some(made) = replay_study(&study)? else { return Ok(Status::Ok) };
        let found = findings::of(&made.sections);
        let replayed = replay::replayed(&plan.findings, &found, &made.measured);
        let new = replay::new(&plan.findings, &found);
        let mut document = Document::new(&made.title);
        document.status = made.status;
        document.error = made.incomplete;
        document.sections = report::sections(&replayed, &new);
        let is_told = |section: &&wirecost_model::document::Section| section.name != "findings";
        document.sections.extend(made.sections.iter().filter(is_told).cloned());
        self.format.write(&document, Clone::clone)?;
        let fails = |of: &replay::Replayed| {
            matches!(of.verdict, replay::Verdict::Contradicted | replay::Verdict::NotShown)
        };
        let is_untested = |of: &replay::Replayed| of.verdict == replay::Verdict::NotTested;
        let none_tested = !replayed.is_empty() && replayed.iter().all(is_untested);
        Ok(match document.status {
            Status::Ok if none_tested || replayed.iter().any(fails) => Status::Failed,
            status => status,
        })
    }
}
