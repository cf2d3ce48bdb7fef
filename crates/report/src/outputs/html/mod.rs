//! `html`: one page that needs nothing but itself. It opens offline, and a browser lets it load nothing.
//!
//! Every text goes through maud, which escapes it. A content security policy allows the page's own style
//! and script by their hashes and nothing else, so the markup has no style attributes and no handlers.

mod blocks;
mod colours;
mod compact;
mod data;
mod drawings;
mod figures;
mod replay;
mod svg;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest::{SHA256, digest};
use wirecost_model::document::{Block, Document, Section};
use wirecost_model::status::Status;
use wirecost_model::visible::visible_lines;

use self::colours::Colours;
use self::data::Data;
use self::drawings::Drawings;
use super::{Output, TerminalStyle};

pub use replay::{NoReplay, read_replay};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
/// uPlot 1.6.32: see uplot/README.md.
const UPLOT: &str = include_str!("uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("uplot/LICENSE");

#[derive(Debug)]
pub(super) struct Html;

impl Output for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn help(&self) -> &'static str {
        "one page with charts that opens offline, to read and to send"
    }

    fn write(&self, out: &mut dyn Write, document: &Document, _: &TerminalStyle) -> io::Result<()> {
        // Without characters that hide others.
        let mut document = document.clone();
        document.change_texts(&mut |text| {
            if let Cow::Owned(visible) = visible_lines(text) {
                *text = visible;
            }
        });
        out.write_all(page(&document)?.into_string().as_bytes())
    }
}

/// What all blocks of a page share.
struct Page<'a> {
    colours: Colours,
    data: Data,
    drawings: Drawings,
    /// Anchors of the page's points and runs, by kind and name.
    anchors: HashMap<(&'static str, String), String>,
    /// The group of the panels above.
    panels: Option<String>,
    /// Charts so far, which have a number each.
    charts: usize,
    document: &'a Document,
}

/// The anchor of a run.
fn anchor(kind: &str, name: &str) -> String {
    let mut anchor = format!("{kind}-");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => anchor.push(byte as char),
            _ => drop(write!(anchor, "_{byte:02x}")),
        }
    }
    anchor
}

impl<'a> Page<'a> {
    fn new(document: &'a Document) -> Self {
        let mut anchors = HashMap::new();
        let mut values = 0;
        for block in document.sections.iter().flat_map(|section| &section.blocks) {
            match block {
                Block::Runs(list) => {
                    for run in &list.runs {
                        // Points have long names, and many links lead to each.
                        let point = format!("point-{}", anchors.len() + 1);
                        anchors.entry(("point", run.point.clone())).or_insert(point);
                        anchors.insert(("run", run.name.clone()), anchor("run", &run.name));
                    }
                }
                Block::Chart(chart) if chart.is_over_time() => {
                    values += chart.series.iter().map(|series| series.samples.len()).sum::<usize>();
                }
                _ => {}
            }
        }
        let (colours, data) = (Colours::default(), Data::new(values));
        let drawings = Drawings::default();
        Self { colours, data, drawings, anchors, panels: None, charts: 0, document }
    }

    /// A link to a run or a point, if the page has it.
    fn link(&self, kind: &'static str, name: &str) -> Option<String> {
        self.anchors.get(&(kind, name.to_owned())).map(|anchor| format!("#{anchor}"))
    }

    fn sections(&mut self) -> Markup {
        let document = self.document;
        html! {
            @for (number, section) in document.sections.iter().enumerate() {
                (self.section(number, section))
            }
        }
    }

    fn section(&mut self, number: usize, section: &Section) -> Markup {
        let class = section.name.as_str();
        let content = self.blocks(section);
        html! {
            @if section.title.is_empty() {
                section class=(class) { (content) }
            } @else if section.folded {
                section class=(class) id=(section_anchor(number)) {
                    details { summary { h2 { (&section.title) } } (content) }
                }
            } @else {
                section class=(class) id=(section_anchor(number)) {
                    h2 { (&section.title) }
                    (content)
                }
            }
        }
    }
}

fn section_anchor(number: usize) -> String {
    format!("section-{}", number + 1)
}

/// Sections that the head of the page leads to.
fn contents(document: &Document) -> Markup {
    let titled = document.sections.iter().enumerate();
    let listed = titled
        .filter(|(_, section)| !section.title.is_empty() && !section.name.starts_with("details-"));
    html! {
        nav aria-label="Contents" {
            @for (number, section) in listed {
                a href=(format!("#{}", section_anchor(number))) { (&section.title) }
                " "
            }
        }
    }
}

fn page(document: &Document) -> io::Result<Markup> {
    let mut page = Page::new(document);
    let sections = PreEscaped(compact::compact(&page.sections().into_string()));
    let has_series = !page.data.is_empty();
    let style = without_comments(&style(has_series));
    let script = without_comments(SCRIPT);
    let uplot = if has_series { format!(" '{}'", hash(UPLOT)) } else { String::new() };
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'{uplot}; img-src data:; \
         base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(&script)
    );
    let (described, packed) = match has_series {
        true => (page.data.described()?, page.data.packed()?),
        false => (String::new(), String::new()),
    };
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="generator" content=(format!("wirecost {}", document.version));
                title { (&document.title) }
                style { (PreEscaped(&style)) }
            }
            body {
                main data-charts=(page.charts) {
                    (head(document))
                    (sections)
                    @if page.data.is_thinned() {
                        p.note { "Series over time show minimum, mean and maximum of each of 2,000 parts; raw data in the record." }
                    }
                    footer { "Made by wirecost " (document.version) " from records alone. The page loads nothing." }
                }
                @if has_series {
                    script type="application/json" id="series" { (PreEscaped(described)) }
                    script type="application/octet-stream;base64" id="columns" { (packed) }
                    // Its licence must be in copies of it.
                    (PreEscaped(format!("<!-- uPlot:\n{}\n-->", UPLOT_LICENCE.trim_end())))
                    script type="application/octet-stream;base64" id="uplot" { (data::deflated(UPLOT.as_bytes())?) }
                }
                @if page.drawings.is_packed() {
                    script type="application/octet-stream;base64" id="drawings" { (page.drawings.packed()?) }
                }
                @if let Some(replay) = &document.replay {
                    (replay::element(replay)?)
                }
                script { (PreEscaped(script)) }
            }
        }
    })
}

fn head(document: &Document) -> Markup {
    html! {
        header {
            p.kicker { "wirecost report" }
            h1 { (&document.title) }
            @if document.status != Status::Ok {
                p.message.error { strong { (format!("{:?}", document.status).to_lowercase()) } " " (document.error.as_deref().unwrap_or_default()) }
            }
            (contents(document))
        }
    }
}

/// The style sheet: colours, those of uPlot where it draws, and the page's own.
fn style(has_series: bool) -> String {
    let uplot = if has_series { UPLOT_STYLE } else { "" };
    format!("{}{uplot}\n{STYLE}", colours::style())
}

/// Lines without what is before their text, and none that is a comment.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with("//") && !line.is_empty());
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// As a content security policy has it.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests;
