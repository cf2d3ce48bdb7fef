//! Pages of comparisons and cost models.

use wirecost_analyze::compare::{self, Hosts, Options, Subject};
use wirecost_analyze::cost_model;
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{
    Block, Chart, ChartKind, Document, Finding, FlameDifference, Section,
};
use wirecost_model::observe::{FoldedStacks, FunctionsSection, HostObservation};
use wirecost_model::run::{Observe, Run};
use wirecost_report::documents::page::{self, Redaction, SavedRuns, Side};
use wirecost_report::outputs::{self, TerminalStyle};

use crate::fixtures;
use crate::fixtures::study::{at, point, sample, with};

/// What a name may be.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&";

/// Runs with their stacks, by name.
#[derive(Debug)]
struct Kept(Vec<(String, Run)>);

impl SavedRuns for Kept {
    fn record(&self, run: &str) -> Option<String> {
        Some(format!("studies/secret/runs/{run}"))
    }

    fn with_stacks(&self, run: &str) -> Option<Run> {
        self.0.iter().find(|(name, _)| name == run).map(|(_, run)| run.clone())
    }
}

/// A run whose machine was sampled.
fn sampled(run: Run, stacks: &str) -> Run {
    let stacks = FoldedStacks::parse(stacks).unwrap();
    let samples = stacks.stacks.iter().map(|folded| folded.count).sum();
    let functions = FunctionsSection { samples, stacks, ..FunctionsSection::default() };
    let host = HostObservation {
        host: "client".to_owned(),
        covers: vec!["client".to_owned(), "server".to_owned()],
        functions: Some(functions),
        ..HostObservation::default()
    };
    Run { observe: Some(Observe { hosts: vec![host], ..Observe::default() }), ..run }
}

/// Three runs at each of two points; `factor` is of throughput at the second, `cycles` the cost of a KByte.
fn side(factor: f64, cycles: f64, stacks: Option<&str>) -> (Subject, Kept) {
    let mut runs = Vec::new();
    for (place, connections) in [(1, "1"), (2, "8")] {
        let point = point(&[("connections", connections)], &[]);
        for repeat in 1..=3 {
            let faster = if place == 2 { factor } else { 1.0 };
            let bits = 1e9 * faster * (1.0 + 0.001 * f64::from(repeat));
            let run = with(fixtures::tcp_stream(), bits, [cycles; 3]);
            let run = match stacks {
                Some(stacks) => sampled(run, stacks),
                None => run,
            };
            runs.push(at(run, &point, place, repeat));
        }
    }
    let measured = Measurements::of(runs.clone());
    (Subject { name: "studies/secret".to_owned(), measured, ..Subject::default() }, Kept(runs))
}

fn page((a, of_a): &(Subject, Kept), (b, of_b): &(Subject, Kept)) -> Document {
    let options = Options { threshold: 0.05, metrics: Vec::new() };
    let comparison = compare::compare(a, b, &options, "0.1.0").unwrap();
    let hosts = Hosts::new();
    let side = |subject, records| {
        let subject: &Subject = subject;
        Side { measured: &subject.measured, hosts: &hosts, records }
    };
    page::comparison(&comparison, [side(a, of_a), side(b, of_b)])
}

fn named<'a>(document: &'a Document, name: &str) -> &'a Section {
    let found = document.sections.iter().find(|section| section.name == name);
    found.unwrap_or_else(|| panic!("no section {name}"))
}

fn texts(section: &Section) -> String {
    let of = |block: &Block| match block {
        Block::Text(text) | Block::Note(text) => Some(text.clone()),
        _ => None,
    };
    section.blocks.iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

fn charts(section: &Section) -> Vec<&Chart> {
    let blocks = section.blocks.iter();
    let charts = blocks.filter_map(|block| match block {
        Block::Chart(chart) => Some(chart),
        _ => None,
    });
    charts.collect()
}

fn difference(document: &Document) -> &FlameDifference {
    let mut blocks = named(document, "flame").blocks.iter();
    let found = blocks.find_map(|block| match block {
        Block::FlameDifference(of) => Some(of),
        _ => None,
    });
    found.unwrap()
}

fn written(document: &Document, format: &str) -> String {
    let mut text = Vec::new();
    let output = outputs::find(format).unwrap();
    output.write(&mut text, document, &TerminalStyle::plain(80)).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn the_headline_tells_how_many_points_differ_and_the_largest_difference() {
    let document = page(&side(1.0, 2000.0, None), &side(0.8, 2000.0, None));
    let told = texts(named(&document, "headline"));
    assert!(told.contains("B differs from A at 1 of 2 points: 1 figure is worse."), "{told}");
    assert!(told.contains("throughput at connections=8 is 0.800 times that of A ("), "{told}");
    // Without a difference, what would have been found.
    let document = page(&side(1.0, 2000.0, None), &side(1.0, 2000.0, None));
    let told = texts(named(&document, "headline"));
    assert!(told.contains("No significant difference"), "{told}");
    assert!(told.contains("The smallest change that would have been found"), "{told}");
}

#[test]
fn every_point_and_figure_has_its_row_in_the_forest_plot() {
    let document = page(&side(1.0, 2000.0, None), &side(0.8, 1500.0, None));
    let [chart] = charts(named(&document, "ratios"))[..] else { panic!("one chart") };
    assert_eq!(chart.kind, ChartKind::Forest);
    let throughput = &chart.series[0];
    assert_eq!(throughput.samples.len(), 2);
    assert!((throughput.samples[1].y - 0.8).abs() < 1e-9, "{:?}", throughput.samples);
    assert!(throughput.intervals.iter().all(Option::is_some));
    let words: Vec<&str> = throughput.verdicts.iter().map(|verdict| verdict.word()).collect();
    assert_eq!(words, ["not significant", "worse"]);
    let table = written(&document, "markdown");
    for wanted in ["connections 8", "all points", "cycles/KByte", "worse", "better"] {
        assert!(table.contains(wanted), "no {wanted}: {table}");
    }
}

#[test]
fn functions_are_compared_by_cycles_per_kbyte() {
    let a = "wirecost;main;copy_[k] 60\nwirecost;main;gone_[k] 40\n";
    let b = "wirecost;main;copy_[k] 30\nwirecost;main;new_[k] 10\n";
    let document = page(&side(1.0, 2000.0, Some(a)), &side(0.8, 3000.0, Some(b)));
    assert_eq!(difference(&document).cycles_per_kbyte, Some((2000.0, 3000.0)));
    // Three quarters of 3000 against six tenths of 2000.
    let told = texts(named(&document, "flame"));
    for wanted in [
        "A KByte costs 2,000 cycles in A and 3,000 in B (+50.0%)",
        "Costs more in B: copy (+1,050), new (+750).",
        "Only in A: gone (\u{2212}800).",
        "Only in B: new (+750).",
    ] {
        assert!(told.contains(wanted), "no {wanted}: {told}");
    }
    let html = written(&document, "html");
    // What B lacks has no width, and is in the table.
    assert!(!html.contains("<title>gone_[k]") && html.contains("<title>copy_[k]"));
    assert!(html.contains("<td>gone<") && html.contains("only in A"));
    assert!(html.contains("copy_[k]: A 1,200, B 2,250: +1,050 cycles/KByte"), "{html}");
}

#[test]
fn without_costs_functions_are_compared_by_shares() {
    let a = "wirecost;main;copy_[k] 60\nwirecost;main;other_[k] 40\n";
    let (subject, mut kept) = side(0.8, 3000.0, Some("wirecost;main;copy_[k] 5\n"));
    kept.0.iter_mut().for_each(|(_, run)| run.machines[0].cycles_per_kbyte = None);
    let document = page(&side(1.0, 2000.0, Some(a)), &(subject, kept));
    assert_eq!(difference(&document).cycles_per_kbyte, None);
    let html = written(&document, "html");
    assert!(html.contains("copy_[k]: A 60.00%, B 100.00%: +40.00 points"), "{html}");
}

#[test]
fn what_cannot_be_compared_by_functions_says_why() {
    let stacks = Some("wirecost;main;copy_[k] 60\n");
    for (a, b, letter) in [(stacks, None, "B"), (None, stacks, "A")] {
        let document = page(&side(1.0, 2000.0, a), &side(0.8, 2000.0, b));
        let told = texts(named(&document, "not-measured"));
        let wanted = format!("{letter} has no sampled functions (--observe functions)");
        assert!(told.contains(&wanted), "{told}");
    }
    // A record whose stacks cannot be read.
    let (subject, _) = side(0.8, 2000.0, stacks);
    let document = page(&side(1.0, 2000.0, stacks), &(subject, Kept(Vec::new())));
    let told = texts(named(&document, "not-measured"));
    assert!(told.contains("the records of a side have no stacks"), "{told}");
}

#[test]
fn names_of_both_sides_cannot_become_markup_and_are_hidden() {
    let stacks = format!("wirecost;{HOSTILE} 60\n");
    let (mut a, of_a) = side(1.0, 2000.0, Some(&stacks));
    let (mut b, of_b) = side(0.8, 2000.0, Some(&stacks));
    (a.name, b.name) = (HOSTILE.to_owned(), "studies/secret".to_owned());
    let mut document = page(&(a, of_a), &(b, of_b));
    let html = written(&document, "html");
    assert!(!html.contains("<img"), "a name became an element");
    assert!(html.contains("studies/secret/runs/0001-01"));
    let mut names = Redaction::of(&[], &Hosts::new(), ["studies/secret".to_owned()]);
    names.add_label("studies/secret");
    page::redact(&mut document, &names);
    let html = written(&document, "html");
    assert!(!html.contains("secret") && html.contains("path-1/runs/0001-01"), "{html}");
}

/// A record in the working directory has the name of a word.
#[test]
fn a_record_without_a_path_is_hidden_where_it_is_named() {
    let (mut a, of_a) = side(1.0, 2000.0, None);
    a.name = "point".to_owned();
    let mut document = page(&(a, of_a), &side(0.8, 2000.0, None));
    let mut names = Redaction::of(&[], &Hosts::new(), ["point".to_owned()]);
    names.add_label("point");
    page::redact(&mut document, &names);
    assert!(document.title.contains("compared with path-1 (A)"), "{}", document.title);
    let html = written(&document, "html");
    assert!(!html.contains(">point<") || html.contains("<th scope=col>point<"));
    assert!(html.contains("1 of 2 points"), "a word was taken for the record");
}

#[test]
fn the_runs_of_both_sides_are_listed_by_point() {
    let document = page(&side(1.0, 2000.0, None), &side(0.8, 2000.0, None));
    let Block::Runs(list) = &named(&document, "runs").blocks[0] else { panic!("no list") };
    let names: Vec<&str> = list.runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names[..4], ["A 0001-01", "A 0001-02", "A 0001-03", "B 0001-01"]);
    assert_eq!(names.len(), 12);
    assert!(list.runs.iter().all(|run| run.cells.len() == list.columns.len()));
    // Rows of tables lead to them.
    let html = written(&document, "html");
    assert!(html.contains("<a href=#point-"), "{html}");
}

#[test]
fn a_cost_model_is_shown_with_its_evidence() {
    let measured = sample();
    let options = cost_model::Options::default();
    let model = cost_model::explain("studies/secret", &measured, &options, "0.1.0").unwrap();
    let kept = Kept(Vec::new());
    let document = page::cost_model(&model.document, &measured, &Hosts::new(), &kept);
    let told = texts(named(&document, "headline"));
    assert!(told.contains("all busy cycles go to: "), "{told}");
    let by_axis = charts(named(&document, "by-connections"));
    for chart in &by_axis {
        // What was measured, and the model of it.
        let fits = chart.series.iter().filter(|series| format!("{:?}", series.role) == "Fit");
        assert_eq!(2 * fits.count(), chart.series.len(), "{chart:?}");
    }
    assert!(!by_axis.is_empty());
    // The model's value of each point is what the document says.
    let (fit, point) = (by_axis[0].series.last().unwrap(), model.document.points.last().unwrap());
    let wanted =
        point.cycles_per_kbyte * point.modelled_cycles_per_second / point.cycles_per_second;
    assert!(fit.samples.iter().any(|sample| (sample.y / wanted - 1.0).abs() < 1e-9), "{fit:?}");
    let html = written(&document, "html");
    assert!(html.contains("0001-01") && html.contains("By connections"));
}

#[test]
fn the_page_of_a_study_begins_with_what_its_table_concludes() {
    let (subject, _) = side(2.0, 2000.0, None);
    let concluding = |name: &str, sentence: &str| {
        let mut section = Section::named(name, name);
        section.finding(Finding {
            kind: name.to_owned(),
            metric: None,
            axis: None,
            at: Vec::new(),
            sentence: sentence.to_owned(),
            effect: None,
            p_value: None,
            strength: None,
            evidence: Vec::new(),
            points: Vec::new(),
        });
        section
    };
    let hosts = Hosts::new();
    let document = page::study(page::Study {
        title: "Latency under load",
        measured: &subject.measured,
        sections: vec![
            concluding("findings", "Throughput rises."),
            concluding("grades", "The grade is B; more of it."),
        ],
        method: Vec::new(),
        source: page::Source { record: None, hosts: &hosts },
        stacks: None,
        cpus: None,
        congestion_controls: (String::new(), Vec::new()),
        cautions: Vec::new(),
        searched: None,
    });
    let told = texts(named(&document, "headline"));
    assert!(told.starts_with("The grade is B. Throughput is 1.00 Gb/s to 2.00 Gb/s, "), "{told}");
    let place = |name: &str| document.sections.iter().position(|of| of.name == name).unwrap();
    assert!(place("grades") < place("findings"));
}
