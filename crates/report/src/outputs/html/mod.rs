//! `html`: one page that needs nothing but itself. It opens offline, and a browser lets it load nothing.
//!
//! Every text goes through maud, which escapes it. A content security policy allows the page's own style
//! and script by their hashes and nothing else, so the markup has no style attributes and no handlers.

mod blocks;
mod colours;
mod data;
mod figures;
mod replay;
mod svg;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest::{SHA256, digest};
use wirecost_model::document::{Block, ChartKind, Document, Section};
use wirecost_model::status::Status;
use wirecost_model::visible::visible_lines;

use self::colours::Colours;
use self::data::Data;
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
    /// Anchors of the page: points and runs.
    anchors: HashSet<String>,
    /// Charts so far, which have a number each.
    charts: usize,
    document: &'a Document,
}

/// The anchor of a run or of a point.
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
        let mut anchors = HashSet::new();
        let mut values = 0;
        for block in document.sections.iter().flat_map(|section| &section.blocks) {
            match block {
                Block::Runs(list) => anchors.extend(
                    list.runs
                        .iter()
                        .flat_map(|run| [anchor("run", &run.name), anchor("point", &run.point)]),
                ),
                Block::Chart(chart) if chart.kind == ChartKind::Lines => {
                    values += chart.series.iter().map(|series| series.samples.len()).sum::<usize>();
                }
                _ => {}
            }
        }
        let (colours, data) = (Colours::default(), Data::new(values));
        Self { colours, data, anchors, charts: 0, document }
    }

    /// A link to a run or a point, if the page has it.
    fn link(&self, kind: &str, name: &str) -> Option<String> {
        let anchor = anchor(kind, name);
        self.anchors.contains(&anchor).then(|| format!("#{anchor}"))
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
    let sections = page.sections();
    let has_series = !page.data.is_empty();
    let style = style(has_series);
    let script = script(has_series);
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
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
                }
                @if let Some(replay) = &document.replay {
                    (replay::element(replay)?)
                }
                script { (PreEscaped(&script)) }
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

fn script(has_series: bool) -> String {
    match has_series {
        // Its licence must be in copies of it.
        true => format!("/* uPlot:\n{}\n*/\n{UPLOT}\n{SCRIPT}", UPLOT_LICENCE.trim_end()),
        false => SCRIPT.to_owned(),
    }
}

/// As a content security policy has it.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests;
