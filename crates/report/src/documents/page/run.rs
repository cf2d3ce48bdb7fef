//! The page of one run.

use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Block, Document, Flame, Section};
use wirecost_model::run::Run;

use super::charts::over_time::capital;
use super::charts::{self, Gathered};
use super::{Source, hosts, method, not_measured, runs};
use crate::documents::run as of_run;

/// Sections of the full text that the page has elsewhere.
const ELSEWHERE: [&str; 3] = ["warnings", "error", "observer"];

/// The page of a run, which `name` tells from others. `planned` are labels and values of how it was to be made.
#[must_use]
pub fn run(name: &str, run: &Run, source: Source<'_>, planned: &[(String, String)]) -> Document {
    let summary = of_run::summary(run);
    let mut gathered = Gathered::default();
    let mut document = Document::new(&run.profile);
    document.status = run.status;
    document.error.clone_from(&run.error);

    let mut headline = Section::named("headline", "");
    // The title of the page is the profile.
    let figures = summary.title.strip_prefix(&format!("{}: ", run.profile));
    headline.text(figures.unwrap_or(&summary.title));
    document.sections.push(headline);
    document.sections.extend(summary.sections.into_iter().filter(|section| section.name != "more"));
    document.sections.extend(over_time(run, &mut gathered));
    document.sections.extend(cpu_time(run, &mut gathered));
    document.sections.extend(cpus_over_time(run, &mut gathered));
    document.sections.extend(latency(run, &mut gathered));
    document.sections.extend(flames(run, &mut gathered));
    document.sections.extend(hosts::section(run, source.hosts));
    document.sections.push(method::section(&[run], planned));
    document.sections.extend(not_measured(gathered.missing));
    document.sections.extend(
        of_run::observer(run)
            .into_iter()
            .map(|section| Section { title: "What observing cost".to_owned(), ..section }),
    );
    let full = of_run::document(run).sections.into_iter();
    let full = full.filter(|section| !ELSEWHERE.contains(&section.name.as_str()));
    document.sections.extend(details(full));
    document.sections.extend(of_run::warnings(&run.warnings).into_iter().map(|section| Section {
        name: "all-warnings".to_owned(),
        title: "What to do about warnings".to_owned(),
        ..section
    }));
    let measured = Measurements::of([(name.to_owned(), run.clone())]);
    document.sections.extend(runs::section(&measured, |_| source.record.map(str::to_owned)));
    document
}

fn over_time(run: &Run, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("over-time", "Over time");
    gathered.add(&mut section, "Throughput over time", charts::over_time::intervals(run));
    gathered.add(&mut section, "Samples of probes over time", charts::over_time::sampled(run));
    gathered.add(&mut section, "Queue of the link over time", charts::over_time::link(run));
    section.filled()
}

fn cpus_over_time(run: &Run, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("cpu-parts", "What each CPU did over time");
    gathered.add(&mut section, charts::cpu_parts::WHAT, charts::cpu_parts::of_run(run));
    charts::cpu_parts::notes(run).into_iter().for_each(|note| section.note(note));
    section.filled()
}

fn cpu_time(run: &Run, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("cpu-time", "Where CPU time went");
    gathered.add(&mut section, "CPU time by kind", charts::cpu::of_run(run));
    gathered.add(&mut section, "CPU time by layer", charts::layers::of_run(run));
    gathered.add(&mut section, "Waits for a CPU", charts::waits::charts(run));
    section.filled()
}

fn latency(run: &Run, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("latency", "Latency");
    match charts::distribution::of_run(run) {
        Ok(charts) => gathered.add(&mut section, "Distribution of latency", Ok(charts)),
        Err(reason) => {
            gathered.add(&mut section, "Latency by percentile", charts::latency::percentiles(run));
            gathered.lacks("Distribution of latency", &reason);
        }
    }
    section.filled()
}

/// A graph for each host.
fn flames(run: &Run, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("flame", "Functions");
    for host in run.observe.iter().flat_map(|observe| &observe.hosts) {
        let functions = host.functions.as_ref();
        let Some(of) = functions.filter(|of| !of.stacks.stacks.is_empty()) else { continue };
        let title = format!("Sampled functions of {}", host.covers.join(", "));
        section.blocks.push(Block::Flame(Flame { title, stacks: of.stacks.clone() }));
    }
    if section.blocks.is_empty() {
        gathered.lacks("Flame graph", "no stacks were sampled (--observe functions)");
    }
    section.filled()
}

/// Everything that was measured, each part folded.
fn details(sections: impl Iterator<Item = Section>) -> impl Iterator<Item = Section> {
    sections.enumerate().map(|(place, section)| Section {
        title: if section.title.is_empty() {
            capital(&section.name)
        } else {
            section.title.clone()
        },
        name: format!("details-{place}"),
        ..section.folded()
    })
}
