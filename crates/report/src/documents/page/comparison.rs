//! The page of a comparison.

use wirecost_analyze::compare::Hosts;
use wirecost_analyze::function_counts;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_model::comparison::{ComparedFigure, Comparison, Verdict};
use wirecost_model::document::{
    Block, Cell, Column, Document, FlameDifference, ListedRun, Message, RunList, Section, show,
};
use wirecost_model::observe::{FoldedStack, FoldedStacks, HostObservation};
use wirecost_model::run::{MachineRow, Run};
use wirecost_model::study::{Point, Value};
use wirecost_model::units::{counted, whole};

use super::charts::by_axis::words;
use super::charts::forest::differs;
use super::charts::points::run_name;
use super::charts::{self, Gathered};
use super::{hosts, method, not_measured, runs};
use crate::documents::comparison::{change, change_cell, report, shown_interval, shown_ratio};
use crate::flame::{self, FunctionChange};
use crate::tables;

/// Functions that a sentence names.
const NAMED: usize = 3;
const FLAME: &str = "Differential flame graph";

/// Where the runs of a side are.
pub trait SavedRuns: std::fmt::Debug {
    /// The record of a run, by its name; `None` where it was not saved.
    fn record(&self, run: &str) -> Option<String>;
    /// A run with its stacks; `None` where it cannot be read.
    fn with_stacks(&self, run: &str) -> Option<Run>;
}

/// One side of a comparison.
#[derive(Debug)]
pub struct Side<'a> {
    pub measured: &'a Measurements,
    /// Environments of the hosts of its first run; empty where no record has them.
    pub hosts: &'a Hosts,
    pub records: &'a dyn SavedRuns,
}

/// The page of a comparison of A with B: what `wirecost compare` prints, with charts.
#[must_use]
pub fn comparison(comparison: &Comparison, sides: [Side<'_>; 2]) -> Document {
    let mut gathered = Gathered::default();
    let Document { title, status, error, sections, .. } = report(comparison);
    let mut document = Document::new(&title);
    (document.status, document.error) = (status, error);
    let (mut verdict, mut sensitivity, mut differences) = (None, None, None);
    let mut figures = Vec::new();
    for section in sections {
        match section.name.as_str() {
            "verdict" => verdict = Some(section),
            "sensitivity" => sensitivity = Some(section),
            "differences" => differences = Some(section),
            _ => figures.push(section),
        }
    }
    document.sections.push(headline(comparison, &sides));
    document.sections.extend(ratios(comparison, &mut gathered));
    document.sections.extend(verdict);
    document.sections.extend(figures);
    document.sections.extend(
        sensitivity
            .map(|section| Section { title: "What could have been found".to_owned(), ..section }),
    );
    document.sections.extend(differences);
    document.sections.extend(flames(comparison, &sides, &mut gathered));
    let all: Vec<&Run> = sides.iter().flat_map(|side| valid(side.measured)).collect();
    for (letter, side) in ["A", "B"].iter().zip(&sides) {
        let section = valid(side.measured).next().and_then(|run| hosts::section(run, side.hosts));
        document.sections.extend(section.map(|section| Section {
            title: format!("Hosts of {letter}, and how they differ"),
            ..section.folded()
        }));
    }
    document.sections.push(method::section(&all, &[]));
    document.sections.extend(not_measured(gathered.missing));
    document.sections.extend(method::observing(&all));
    for (letter, side) in ["A", "B"].iter().zip(&sides) {
        document.sections.push(Section {
            name: "about".to_owned(),
            title: format!("About the runs of {letter}, and warnings"),
            ..tables::about(side.measured, &[])
        });
    }
    document.sections.extend(listed(&sides));
    document
}

fn valid(measured: &Measurements) -> impl Iterator<Item = &Run> {
    measured.points.iter().flat_map(|point| &point.runs)
}

/// How many points differ and the largest difference; where none does, what would have been found.
fn headline(comparison: &Comparison, sides: &[Side<'_>; 2]) -> Section {
    let mut section = Section::named("headline", "");
    section.text(sentences(comparison).join(" "));
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        section.figure(letter, Cell::text(&side.name));
    }
    for (letter, side) in ["A", "B"].iter().zip(sides) {
        for caution in tables::cautions(side.measured, &[]) {
            section.message(Message { text: format!("{letter}: {}", caution.text), ..caution });
        }
    }
    section
}

fn sentences(comparison: &Comparison) -> Vec<String> {
    let points = comparison.points.len() as u64;
    let differing = comparison
        .points
        .iter()
        .filter(|at| at.figures.iter().any(|figure| differs(figure.verdict)))
        .count();
    let most = |is: &dyn Fn(&ComparedFigure) -> bool| {
        let all = comparison.figures().filter(|(_, figure)| is(figure));
        all.max_by(|(_, a), (_, b)| change(a).total_cmp(&change(b)))
    };
    let mut sentences = Vec::new();
    if differing > 0 {
        let found = [(Verdict::Worse, "worse"), (Verdict::Better, "better")].into_iter();
        let found = found.map(|(verdict, word)| (comparison.count(verdict) as u64, word));
        let counts: Vec<String> = found
            .filter(|(number, _)| *number > 0)
            .map(|(number, word)| format!("{} {word}", counted(number, "figure is", "figures are")))
            .collect();
        let counts = match counts.is_empty() {
            true => {
                "by no more than the threshold, or in figures of which neither direction is better"
                    .to_owned()
            }
            false => counts.join(", "),
        };
        sentences.push(format!(
            "B differs from A at {differing} of {}: {counts}.",
            counted(points, "point", "points")
        ));
        let largest = most(&|figure| differs(figure.verdict));
        sentences.extend(largest.map(|(point, figure)| {
            format!("The largest difference: {}, {}.", told(point, figure), figure.verdict.word())
        }));
        return sentences;
    }
    let overall = comparison.overall.iter().filter(|figure| differs(figure.verdict));
    sentences.extend(overall.map(|figure| {
        format!(
            "No single point differs, but over all points {} of B is {} times that of A ({}): {}.",
            words(&figure.metric),
            shown_ratio(figure.ratio),
            shown_interval(figure.interval),
            figure.verdict.word()
        )
    }));
    if !sentences.is_empty() {
        return sentences;
    }
    if comparison.tests == 0 {
        sentences.push(
            "Nothing was tested, as that needs two runs or more on each side: any difference may be chance."
                .to_owned(),
        );
        let largest = most(&|figure| figure.ratio.is_some());
        sentences.extend(
            largest.map(|(point, figure)| format!("The largest: {}.", told(point, figure))),
        );
        return sentences;
    }
    let tests = counted(comparison.tests, "comparison", "comparisons");
    sentences.push(format!("No significant difference of B from A in {tests}."));
    let detectable: Vec<String> = comparison
        .sensitivity
        .iter()
        .map(|of| format!("{} by {}", words(&of.metric), change_cell(of.at_points.0).shown()))
        .collect();
    if !detectable.is_empty() {
        sentences.push(format!(
            "The smallest change that would have been found at the least noisy point: {}.",
            detectable.join(", ")
        ));
    }
    sentences
}

/// ` at connections=8`, or nothing of the only point.
fn place(point: &Point) -> String {
    if point.axes.is_empty() { String::new() } else { format!(" at {point}") }
}

/// `throughput at connections=8 is 0.712 times that of A (0.650 to 0.780)`.
fn told(point: &Point, figure: &ComparedFigure) -> String {
    let at = place(point);
    let ratio = match figure.ratio {
        Some(ratio) => format!("{} times that of A", shown_ratio(ratio)),
        None => "no longer 0".to_owned(),
    };
    let interval = figure.interval.map(|of| format!(" ({})", shown_interval(of)));
    format!("{}{at} is {ratio}{}", words(&figure.metric), interval.unwrap_or_default())
}

fn ratios(comparison: &Comparison, gathered: &mut Gathered) -> Option<Section> {
    let mut section = Section::named("ratios", "B over A");
    gathered.add(&mut section, "Ratios of B over A", charts::forest::ratios(comparison));
    if !section.blocks.is_empty() {
        section.note(
            "Lines are intervals at the level of the corrected tests: one crosses 1 unless its difference is \
             significant. Triangles: better (up) and worse (down); rhombs: different; squares: not significant or \
             not tested.",
        );
    }
    section.filled()
}

/// What changed in the functions, at the point whose figures changed most of those with samples on both sides.
fn flames(
    comparison: &Comparison,
    sides: &[Side<'_>; 2],
    gathered: &mut Gathered,
) -> Option<Section> {
    let mut section = Section::named("flame", "What changed in the functions");
    match sampled(comparison, sides) {
        Ok((point, runs)) => {
            let hosts = differences(point, &runs);
            if hosts.is_empty() {
                gathered.lacks(FLAME, "A and B have no sampled host in common");
            }
            for difference in hosts {
                for text in function_sentences(&difference) {
                    section.text(text);
                }
                section.blocks.push(Block::FlameDifference(difference));
            }
        }
        Err(reason) => gathered.lacks(FLAME, &reason),
    }
    section.filled()
}

/// A point, and its runs with stacks on each side.
type Sampled<'a> = (&'a Point, [Vec<Run>; 2]);

fn sampled<'a>(comparison: &'a Comparison, sides: &[Side<'_>; 2]) -> Result<Sampled<'a>, String> {
    let with_samples = |at: &Point| {
        let of = |side: &Side<'_>| {
            let point = measured_at(side.measured, at)?;
            let runs = point.runs.iter().filter(|run| has_samples(run));
            let names: Vec<String> = runs.map(|run| run_name(point, run)).collect();
            (!names.is_empty()).then_some(names)
        };
        sides.each_ref().map(of)
    };
    let all: Vec<_> = comparison.points.iter().map(|at| (at, with_samples(&at.point))).collect();
    for (place, letter) in ["A", "B"].iter().enumerate() {
        if all.iter().all(|(_, names)| names[place].is_none()) {
            return Err(format!("{letter} has no sampled functions (--observe functions)"));
        }
    }
    let both = all.into_iter().filter_map(|(at, names)| match names {
        [Some(a), Some(b)] => Some((at, [a, b])),
        _ => None,
    });
    let largest = |figures: &[ComparedFigure]| {
        let known = figures.iter().filter(|figure| figure.ratio.is_some());
        known.map(change).fold(0.0, f64::max)
    };
    let (at, names) = both
        .max_by(|(a, _), (b, _)| largest(&a.figures).total_cmp(&largest(&b.figures)))
        .ok_or("functions were sampled on both sides, but at no point of both")?;
    let read = |(side, names): (&Side<'_>, &Vec<String>)| -> Vec<Run> {
        names.iter().filter_map(|name| side.records.with_stacks(name)).collect()
    };
    let [a, b] = [0, 1].map(|place| read((&sides[place], &names[place])));
    match a.iter().all(lacks_stacks) || b.iter().all(lacks_stacks) {
        true => Err("the records of a side have no stacks".to_owned()),
        false => Ok((&at.point, [a, b])),
    }
}

/// The point of a side: the only one, or that with these values.
fn measured_at<'a>(measured: &'a Measurements, at: &Point) -> Option<&'a MeasuredPoint> {
    let values = |point: &Point| {
        let mut values: Vec<Value> = point.axes.clone();
        values.sort();
        values
    };
    let found = measured.points.iter().find(|point| values(&point.point) == values(at));
    match measured.points.as_slice() {
        [only] => Some(only),
        _ => found,
    }
}

fn has_samples(run: &Run) -> bool {
    observed(run).any(|host| host.functions.as_ref().is_some_and(|of| of.samples > 0))
}

fn lacks_stacks(run: &Run) -> bool {
    observed(run).all(|host| host.functions.as_ref().is_none_or(|of| of.stacks.stacks.is_empty()))
}

fn observed(run: &Run) -> impl Iterator<Item = &HostObservation> {
    run.observe.iter().flat_map(|observe| &observe.hosts)
}

/// A graph for each host that was sampled on both sides.
fn differences(point: &Point, runs: &[Vec<Run>; 2]) -> Vec<FlameDifference> {
    let [a, b] = runs;
    let (Some(first_a), Some(first_b)) = (a.first(), b.first()) else { return Vec::new() };
    let count = |run: &Run| observed(run).count();
    let mut all = Vec::new();
    for (place, host) in observed(first_a).enumerate() {
        let same_name = observed(first_b).position(|other| other.covers == host.covers);
        // Hosts of other names are compared in their order, if there are as many.
        let same_place = (count(first_a) == count(first_b)).then_some(place);
        let Some(other) = same_name.or(same_place) else { continue };
        let (in_a, in_b) = (summed(a, place), summed(b, other));
        if in_a.0.stacks.is_empty() || in_b.0.stacks.is_empty() {
            continue;
        }
        let (whose, at) = (host.covers.join(", "), self::place(point));
        all.push(FlameDifference {
            title: format!("Sampled functions of {whose}{at}: B, and what changed"),
            a: in_a.0,
            b: in_b.0,
            cycles_per_kbyte: in_a.1.zip(in_b.1),
        });
    }
    all
}

/// Stacks of one observed host of all runs together without those of other programs, and what they cost: mean
/// cycles/KByte.
fn summed(runs: &[Run], place: usize) -> (FoldedStacks, Option<f64>) {
    let mut stacks = FoldedStacks::default();
    let mut costs = Vec::new();
    for run in runs {
        let Some(host) = observed(run).nth(place) else { continue };
        let functions = host.functions.as_ref();
        let Some(of) = functions.filter(|of| !of.stacks.stacks.is_empty()) else { continue };
        let own: Vec<FoldedStack> = function_counts::own(&of.stacks).cloned().collect();
        let count = |all: &[FoldedStack]| all.iter().map(|folded| folded.count).sum::<u64>();
        let share = count(&own) as f64 / count(&of.stacks.stacks).max(1) as f64;
        stacks.stacks.extend(own);
        costs.push(cycles_per_kbyte(run, host).map(|cost| cost * share));
    }
    let known: Option<Vec<f64>> = costs.into_iter().collect();
    let known = known.filter(|costs| !costs.is_empty());
    let mean = known.map(|costs| costs.iter().sum::<f64>() / costs.len() as f64);
    (stacks, mean.filter(|mean| *mean > 0.0))
}

/// Of the hosts that were observed together: of the one host, or of their machine.
fn cycles_per_kbyte(run: &Run, host: &HostObservation) -> Option<f64> {
    let alone = match host.covers.as_slice() {
        [name] => run.hosts.iter().find(|row| row.name == *name),
        _ => None,
    };
    let cost = alone.and_then(|row| row.cycles_per_kbyte);
    let is_whole = |machine: &&MachineRow| {
        machine.hosts.contains(&host.host)
            && machine.hosts.iter().all(|name| host.covers.contains(name))
    };
    cost.or_else(|| run.machines.iter().find(is_whole)?.cycles_per_kbyte)
}

/// The functions that grew and shrank most, and those that only one side has.
fn function_sentences(of: &FlameDifference) -> Vec<String> {
    let all = flame::changes(of);
    let unit = flame::unit(of);
    let shown = |function: &FunctionChange| {
        let name = function.name.trim_end_matches(flame::KERNEL);
        let (sign, size) = match function.change() {
            change if change < 0.0 => ("\u{2212}", -change),
            change => ("+", change),
        };
        format!("{name} ({sign}{})", show(unit, size))
    };
    let list = |is: &dyn Fn(&FunctionChange) -> bool| -> Vec<String> {
        all.iter().filter(|function| is(function)).take(NAMED).map(shown).collect()
    };
    let mut sentences = Vec::new();
    if let Some((a, b)) = of.cycles_per_kbyte {
        sentences.push(format!(
            "A KByte costs {} cycles in A and {} in B ({:+.1}%), without those of other programs.",
            whole(a),
            whole(b),
            100.0 * (b / a - 1.0)
        ));
    }
    for (what, functions) in [
        ("Costs more in B", list(&|of| of.change() > 0.0)),
        ("Costs less in B", list(&|of| of.change() < 0.0)),
        ("Only in A", list(&|of| of.total.1 == 0.0 && of.own.0 > 0.0)),
        ("Only in B", list(&|of| of.total.0 == 0.0 && of.own.1 > 0.0)),
    ] {
        if !functions.is_empty() {
            sentences.push(format!("{what}: {}.", functions.join(", ")));
        }
    }
    sentences
}

/// The runs of both sides, those of one point below one another.
fn listed(sides: &[Side<'_>; 2]) -> Option<Section> {
    let [a, b] =
        sides.each_ref().map(|side| runs::list(side.measured, |run| side.records.record(run)));
    let mut list = RunList { runs: Vec::new(), ..a.clone() };
    list.columns.insert(0, Column::text("side"));
    let named = |letter: &str, run: &ListedRun| {
        let mut run = run.clone();
        run.name = format!("{letter} {}", run.name);
        run.cells.insert(0, Cell::text(letter));
        run
    };
    let mut points: Vec<&str> = Vec::new();
    for run in a.runs.iter().chain(&b.runs) {
        if !points.contains(&run.point.as_str()) {
            points.push(&run.point);
        }
    }
    for point in points {
        for (letter, side) in [("A", &a), ("B", &b)] {
            let of_point = side.runs.iter().filter(|run| run.point == *point);
            list.runs.extend(of_point.map(|run| named(letter, run)));
        }
    }
    runs::listed(list)
}
