//! The page of a study, or of runs side by side.

use wirecost_analyze::cost_model::{self, Options};
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::{self, Selector};
use wirecost_model::document::{Block, Document, Finding, Flame, Message, Section};
use wirecost_model::metric::Unit;
use wirecost_model::observe::FoldedStacks;
use wirecost_model::run::Run;
use wirecost_model::study::LOAD;
use wirecost_model::units::counted;

use super::charts::points::{Names, varying};
use super::charts::{self, Gathered};
use super::{Source, hosts, method, not_measured, runs};
use crate::documents;
use crate::tables::general;

/// With more points a cost model takes long, and its bars cannot be told apart.
const MODELLED: usize = 60;

/// What the page of a study is made of.
#[derive(Debug)]
pub struct Study<'a> {
    pub title: &'a str,
    pub measured: &'a Measurements,
    /// Tables, findings, and what to know of the runs, as the other outputs have them.
    pub sections: Vec<Section>,
    /// What its definition says of the method, by label.
    pub method: Vec<(String, String)>,
    /// Of its first run; `record` is the directory of the study.
    pub source: Source<'a>,
    /// Stacks of one host, with whose they are.
    pub stacks: Option<(String, FoldedStacks)>,
    /// One run with what its CPUs did over time, by its name: of all runs it would be too much to look at.
    pub cpus: Option<(String, Run)>,
    /// One run for each congestion control, by its value, of points that differ in nothing else; with the point without it.
    pub congestion_controls: (String, Vec<(String, Run)>),
    /// What must be known before any figure is read.
    pub cautions: Vec<Message>,
    /// The result of a search for the best setting. Its runs were chosen by results, so they are no sample: nothing
    /// is told of them by axis.
    pub searched: Option<Vec<Section>>,
}

/// The page of a study.
#[must_use]
pub fn study(of: Study<'_>) -> Document {
    let Study {
        title,
        measured,
        mut sections,
        method: planned,
        source,
        stacks,
        cpus,
        congestion_controls,
        cautions,
        searched,
    } = of;
    let mut gathered = Gathered::default();
    runs::cite(&mut sections, measured);
    let (findings, rest): (Vec<Section>, Vec<Section>) =
        sections.into_iter().partition(|section| section.name == "findings");
    let (about, tables): (Vec<Section>, Vec<Section>) =
        rest.into_iter().partition(|section| section.name == "runs");
    // What a table concludes by itself is what the study is for.
    let concludes =
        |section: &Section| section.blocks.iter().any(|of| matches!(of, Block::Finding(_)));
    let (concluding, tables): (Vec<Section>, Vec<Section>) =
        tables.into_iter().partition(concludes);
    let all: Vec<&Run> = measured.points.iter().flat_map(|point| &point.runs).collect();

    let mut document = Document::new(title);
    let mut headline = match searched {
        Some(_) => Section::named("headline", ""),
        None => headline(measured, conclusion(&concluding)),
    };
    cautions.into_iter().for_each(|caution| headline.message(caution));
    document.sections.extend(headline.filled());
    let is_sample = searched.is_none();
    document.sections.extend(searched.into_iter().flatten());
    document.sections.extend(concluding);
    document.sections.extend(findings);
    if is_sample {
        document.sections.extend(by_axes(measured, &mut gathered));
    }
    document.sections.extend(tables);
    document.sections.extend(flows(&congestion_controls, &mut gathered));
    document.sections.extend(cpu_time(measured, &mut gathered));
    document.sections.extend(cpus_over_time(cpus, &mut gathered));
    if is_sample {
        document.sections.extend(latency(measured, &mut gathered));
        document.sections.extend(spent(title, measured, &mut gathered));
    }
    document.sections.extend(flame(stacks, &mut gathered));
    if let Some(run) = all.first() {
        document.sections.extend(hosts::section(run, source.hosts));
        if source.hosts.is_empty() {
            gathered.lacks("Surroundings of the hosts", "the record has no hosts.json");
        }
    }
    document.sections.push(method::section(&all, &planned));
    document.sections.extend(not_measured(gathered.missing));
    document.sections.extend(method::observing(&all));
    document.sections.extend(about.into_iter().map(|section| Section {
        name: "about".to_owned(),
        title: "About the runs, and warnings".to_owned(),
        ..section
    }));
    let record = |name: &str| Some(format!("{}/runs/{name}", source.record?));
    document.sections.extend(runs::section(measured, record));
    document
}

/// The first of what tables conclude by themselves, without what follows a semicolon.
fn conclusion(sections: &[Section]) -> Option<String> {
    let mut blocks = sections.iter().flat_map(|section| &section.blocks);
    blocks.find_map(|block| match block {
        Block::Finding(Finding { sentence, .. }) => {
            let first = sentence.split(';').next().unwrap_or_default();
            Some(format!("{}.", first.trim_end_matches('.')))
        }
        _ => None,
    })
}

/// The result in a few sentences.
fn headline(measured: &Measurements, conclusion: Option<String>) -> Section {
    let mut section = Section::named("headline", "");
    let runs: usize = measured.points.iter().map(|point| point.runs.len()).sum();
    let mut sentences: Vec<String> = conclusion.into_iter().collect();
    if let Some(text) = extremes(measured, "throughput") {
        sentences.push(format!("Throughput is {text}."));
    } else if let Some(text) = extremes(measured, "transactions") {
        sentences.push(format!("Transactions are {text}."));
    }
    let costs = general::hosts(measured).into_iter().find_map(|scope| {
        let name = scope.metric("cycles_per_kbyte");
        let whose = charts::by_axis::words(&name).replace("cycles/KByte", "A KByte");
        Some(format!("{whose} costs {}.", extremes(measured, &name)?))
    });
    sentences.extend(costs);
    if sentences.is_empty() {
        let failed = measured.points.iter().any(|point| !point.failed.is_empty());
        let text = if failed { "Every run failed." } else { "Nothing has been measured yet." };
        sentences.push(text.to_owned());
    }
    section.text(sentences.join(" "));
    let points = counted(measured.points.len() as u64, "point", "points");
    let axes = varying(measured).join(", ");
    let over = if axes.is_empty() { String::new() } else { format!(" over {axes}") };
    section.note(format!("{} at {points}{over}.", counted(runs as u64, "run", "runs")));
    section
}

/// `0.41 to 13.2 Gb/s, the most at connections=8`.
fn extremes(measured: &Measurements, name: &str) -> Option<String> {
    let selector: Selector = metrics::find(name).ok()?;
    let of = |point: &MeasuredPoint| point.estimate(&selector).ok().map(|estimate| estimate.mean);
    let known: Vec<(&MeasuredPoint, f64)> =
        measured.points.iter().filter_map(|point| Some((point, of(point)?))).collect();
    let least = known.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = known.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let unit = selector.metric().unit;
    let shown = |value: f64| wirecost_model::document::show(unit, value);
    // Tables have the unit in the head.
    let suffix = if unit == Unit::CyclesPerKByte { " cycles" } else { "" };
    if known.len() == 1 {
        return Some(format!("{}{suffix}", shown(most.1)));
    }
    let axes = varying(measured);
    let names = Names::of(measured.points.iter().map(|point| &point.point), &axes);
    let at = |point: &MeasuredPoint| match names.differences(&point.point) {
        Some(none) if none.is_empty() => "the base".to_owned(),
        Some(differences) => differences,
        None => {
            let value = |axis: &&str| Some(format!("{axis} {}", point.point.get(axis)?));
            axes.iter().filter_map(value).collect::<Vec<_>>().join(", ")
        }
    };
    Some(format!("{} to {}{suffix}, the most at {}", shown(least.1), shown(most.1), at(most.0)))
}

/// Throughput and cost against each axis, and over two axes.
fn by_axes(measured: &Measurements, gathered: &mut Gathered) -> Vec<Section> {
    let axes = varying(measured);
    let mut figures = vec!["throughput".to_owned()];
    if general::answers(measured) {
        figures.push("transactions".to_owned());
    }
    figures.extend(general::hosts(measured).iter().map(|scope| scope.metric("cycles_per_kbyte")));
    let mut sections = Vec::new();
    if axes.is_empty() {
        gathered.lacks("Charts by axis", "no axis has several values");
    }
    for (place, axis) in axes.iter().enumerate() {
        let mut section = Section::named(&format!("by-{axis}"), &format!("By {axis}"));
        for figure in &figures {
            let what = format!("{} by {axis}", charts::by_axis::words(figure));
            gathered.add(&mut section, &what, charts::by_axis::charts(measured, axis, figure));
        }
        // The axis with the most values is what the study is about.
        section.folded = place > 0;
        sections.extend(section.filled());
    }
    if axes.len() > 1 {
        let mut section = Section::named("heat-map", "Over two axes").folded();
        for figure in &figures {
            let what = format!("{} over two axes", charts::by_axis::words(figure));
            gathered.add(&mut section, &what, charts::heat_map::chart(measured, figure));
        }
        sections.extend(section.filled());
    }
    sections
}

fn cpu_time(measured: &Measurements, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("cpu", "Where CPU time went");
    gathered.add(&mut section, "CPU time by kind", charts::cpu::of_points(measured));
    gathered.add(&mut section, "CPU time by layer", charts::layers::of_points(measured));
    section.filled()
}

/// Nothing where the study has one congestion control: nobody expects it there.
fn flows(of: &(String, Vec<(String, Run)>), gathered: &mut Gathered) -> Option<Section> {
    let (point, runs) = of;
    if runs.len() < 2 {
        return None;
    }
    let mut section = Section::named("flows", charts::flows::WHAT);
    gathered.add(&mut section, charts::flows::WHAT, charts::flows::beside(runs));
    let at = if point.is_empty() { String::new() } else { format!(" at {point}") };
    section.note(format!(
        "Of each congestion control the run with the highest throughput{at}, and of that the flow that sent most."
    ));
    section.filled()
}

fn cpus_over_time(of: Option<(String, Run)>, gathered: &mut Gathered) -> Option<Section> {
    let Some((name, run)) = of else {
        gathered.lacks(charts::cpu_parts::WHAT, "no run has traced CPU time (--observe cpu)");
        return None;
    };
    let title = format!("What each CPU did over time, in run {name}");
    let mut section = Section::named("cpu-parts", &title).folded();
    gathered.add(&mut section, charts::cpu_parts::WHAT, charts::cpu_parts::of_run(&run));
    charts::cpu_parts::notes(&run).into_iter().for_each(|note| section.note(note));
    section.filled()
}

fn latency(measured: &Measurements, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("latency", "Latency");
    let against_load = charts::latency::against_load(measured);
    let drawn: Vec<String> =
        against_load.iter().flatten().map(|chart| chart.x.title.clone()).collect();
    gathered.add(&mut section, "p99 latency against load", against_load);
    let is_new = |axis: &&str| *axis != LOAD && !drawn.iter().any(|drawn| drawn == axis);
    if let Some(axis) = varying(measured).into_iter().find(is_new) {
        let built = charts::by_axis::charts(measured, axis, "latency.p99");
        gathered.add(&mut section, &format!("p99 latency by {axis}"), built);
    }
    let built = charts::distribution::of_points(measured);
    gathered.add(&mut section, "Distribution of latency", built);
    section.filled()
}

/// The cost model, where the study supports one.
fn spent(title: &str, measured: &Measurements, gathered: &mut Gathered) -> Option<Section> {
    let what = "What cycles were spent on (cost model)";
    if measured.points.len() > MODELLED {
        gathered.lacks(what, "the study has many points: see `wirecost explain`");
        return None;
    }
    let version = env!("CARGO_PKG_VERSION");
    let model = match cost_model::explain(title, measured, &Options::default(), version) {
        Ok(model) => model.document,
        Err(reason) => {
            gathered.lacks(what, &reason.to_string());
            return None;
        }
    };
    let mut section = Section::named("cost-model", "What cycles were spent on");
    gathered.add(&mut section, what, charts::cost_model::shares(&model));
    if model.terms.iter().any(|term| term.interval.is_some_and(|(low, _)| low <= 0.0)) {
        section.note("95% intervals of some costs include 0: the shares are rough estimates.");
    }
    // The terms, the cycles of each point, and how well the model fits.
    let details = documents::cost_model::explanation(&model).sections;
    section.blocks.extend(details.into_iter().flat_map(|section| section.blocks));
    section.filled()
}

fn flame(stacks: Option<(String, FoldedStacks)>, gathered: &mut Gathered) -> Option<Section> {
    let Some((title, stacks)) = stacks.filter(|(_, stacks)| !stacks.stacks.is_empty()) else {
        gathered.lacks("Flame graph", "no stacks were sampled (--observe functions)");
        return None;
    };
    let mut section = Section::named("flame", "Functions").folded();
    section.blocks.push(Block::Flame(Flame { title, stacks }));
    Some(section)
}
