use wirecost_model::document::{
    Axis, Cell, Chart, ChartKind, Column, Effect, Finding, Flame, FlameDifference, ListedRun,
    RunList, RunSample, Sample, Series, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::observe::FoldedStacks;
use wirecost_model::study::Value;

use super::*;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&\u{202e}";

fn written(document: &Document) -> String {
    let mut text = Vec::new();
    Html.write(&mut text, document, &TerminalStyle::plain(80)).unwrap();
    String::from_utf8(text).unwrap()
}

/// Everything in it has a hostile name.
fn hostile() -> Document {
    let mut section = Section::new(HOSTILE);
    section.text(HOSTILE);
    section.note(HOSTILE);
    section.figure(HOSTILE, Cell::text(HOSTILE));
    let mut table = Table::new([Column::text(HOSTILE), Column::number(HOSTILE)]);
    table.title = HOSTILE.to_owned();
    table.row(vec![Cell::set(HOSTILE), Cell::Missing(HOSTILE.to_owned())]);
    table.points.push(HOSTILE.to_owned());
    section.table(table);
    let samples = [1.0, 2.0, 3.0].map(|x| Sample { x: x - 1.0, y: x }).to_vec();
    let run = RunSample { run: HOSTILE.to_owned(), x: 1.0, y: 2.0 };
    for kind in [
        ChartKind::Lines,
        ChartKind::Panel,
        ChartKind::Curve,
        ChartKind::Steps,
        ChartKind::Stack,
        ChartKind::Histogram,
        ChartKind::HeatMap,
        ChartKind::Forest,
    ] {
        let names = [HOSTILE, "b", "c"].map(str::to_owned);
        let x = if matches!(kind, ChartKind::Lines | ChartKind::Panel) {
            Axis::time()
        } else {
            Axis::of_names(HOSTILE, names)
        };
        let mut chart = Chart::new(HOSTILE, kind, x, Axis::new(HOSTILE, Unit::Percent));
        chart
            .series
            .push(Series { runs: vec![run.clone()], ..Series::new(HOSTILE, samples.clone()) });
        chart.group = (kind == ChartKind::Panel).then(|| HOSTILE.to_owned());
        section.chart(chart);
    }
    let stacks = FoldedStacks::parse(&format!("a;{HOSTILE} 3\n")).unwrap();
    let title = HOSTILE.to_owned();
    section.blocks.push(Block::Flame(Flame { title: title.clone(), stacks: stacks.clone() }));
    section.blocks.push(Block::FlameDifference(FlameDifference {
        title,
        a: stacks.clone(),
        b: stacks,
        cycles_per_kbyte: Some((1.0, 2.0)),
    }));
    let run = ListedRun {
        name: HOSTILE.to_owned(),
        point: HOSTILE.to_owned(),
        record: Some(HOSTILE.to_owned()),
        status: Status::Ok,
        started_unix_ms: 0,
        cells: Vec::new(),
    };
    section.blocks.push(Block::Runs(RunList { columns: Vec::new(), runs: vec![run] }));
    let mut document = Document::new(HOSTILE);
    document.sections.push(section);
    document
}

#[test]
fn names_cannot_become_markup() {
    let page = written(&hostile());
    assert!(!page.contains("<img"), "a name became an element");
    assert!(!page.contains('\u{202e}'), "a name hides what is after it");
    // Those of the page: three of data, one that runs.
    assert_eq!(page.matches("</script>").count(), 4);
    // Attributes of all elements, without their values.
    let body = page.split("</style>").nth(1).unwrap().split("<script").next().unwrap();
    for element in body.split('<').skip(1) {
        let element = element.split('>').next().unwrap();
        let names: String = element.split('"').step_by(2).collect();
        for attribute in [" style=", " on", " src="] {
            assert!(!names.contains(attribute), "{attribute} in <{element}>");
        }
    }
}

#[test]
fn the_policy_has_the_hashes_of_what_the_page_holds() {
    let page = written(&hostile());
    let between = |begin: &str, end: &str| {
        let from = page.find(begin).unwrap() + begin.len();
        page[from..].split(end).next().unwrap().to_owned()
    };
    let policy = between("Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(policy.contains(&hash(&between("<style>", "</style>"))), "{policy}");
    assert!(policy.contains(&hash(&between("<script>", "</script>"))), "{policy}");
    assert!(policy.contains(&hash(UPLOT)), "{policy}");
}

#[test]
fn links_lead_to_what_is_there() {
    let page = written(&hostile());
    let mut found = 0;
    for link in page.split("href=#").skip(1) {
        let target = link.split([' ', '>']).next().unwrap();
        assert!(page.contains(&format!("id={target}>")), "{target}");
        found += 1;
    }
    assert!(found >= 1, "{found} links");
    // Those of runs in charts are made by the script: each names its target.
    let links: Vec<&str> = page.split("data-runs=\"").skip(1).collect();
    assert!(!links.is_empty());
    for link in links {
        let target = link.split('"').next().unwrap().rsplit('\t').next().unwrap();
        let target = target.strip_prefix('#').expect("no link of its own");
        assert!(page.contains(&format!("id={target}>")), "{target}");
    }
}

#[test]
fn each_chart_has_its_table() {
    let page = written(&hostile());
    assert_eq!(page.matches("<figure class=chart ").count(), 7);
    assert_eq!(page.matches("<figure class=\"chart panel\"").count(), 1);
    assert_eq!(page.matches("<figure class=\"chart flame\"").count(), 2);
    assert_eq!(page.matches("<details class=table>").count(), 10);
}

#[test]
fn findings_that_differ_by_their_points_alone_are_folded() {
    type Of<T> = fn(usize) -> T;
    let page = |metrics: &[&str], place: Of<String>, value: Of<f64>| {
        let mut document = Document::new("title");
        let mut section = Section::named("findings", "Findings");
        for (number, metric) in metrics.iter().enumerate() {
            section.finding(Finding {
                kind: "packets".to_owned(),
                metric: Some((*metric).to_owned()),
                axis: Some("size".to_owned()),
                at: vec![Value::new("connections", &place(number))],
                sentence: format!("Sentence {number}."),
                effect: Some(Effect {
                    name: "ratio".to_owned(),
                    unit: Unit::Ratio,
                    value: value(number),
                    interval: None,
                    between: None,
                }),
                p_value: None,
                strength: None,
                evidence: Vec::new(),
                points: Vec::new(),
            });
        }
        document.sections.push(section);
        written(&document)
    };
    let (places, rises): (Of<String>, Of<f64>) = (|of| of.to_string(), |_| 2.0);
    let folded = page(&["a", "a", "a", "b", "b"], places, rises);
    assert_eq!(folded.matches("2 more such findings, at other points").count(), 1);
    let (shown, rest) = folded.split_once("more such findings").unwrap();
    assert!(shown.contains("Sentence 0") && !shown.contains("Sentence 1"), "{shown}");
    assert!(rest.contains("Sentence 2") && rest.contains("Sentence 4"), "{rest}");
    let all = ["a", "a", "a"];
    for page in [
        page(&["a", "b", "a"], places, rises),
        // Of the same point, and in the other direction.
        page(&all, |_| "8".to_owned(), rises),
        page(&all, places, |of| if of == 1 { 0.5 } else { 2.0 }),
    ] {
        assert!(!page.contains("more such findings"));
    }
}

#[test]
fn a_page_without_series_has_no_library() {
    let mut document = Document::new("title");
    let mut section = Section::new("one");
    section.text("nothing over time");
    document.sections.push(section);
    let page = written(&document);
    assert!(!page.contains("uPlot:") && page.len() < 40_000, "{} bytes", page.len());
}

#[test]
fn uplot_is_what_its_notes_say() {
    let notes = include_str!("uplot/README.md");
    for file in [UPLOT, UPLOT_STYLE] {
        let digits: String = digest(&SHA256, file.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(notes.contains(&digits), "{digits} is in no line of uplot/README.md");
    }
    assert!(UPLOT.contains("v1.6.32") && notes.contains("1.6.32"));
}
