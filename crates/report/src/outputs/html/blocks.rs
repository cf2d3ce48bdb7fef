//! Blocks of documents as markup: texts, tables, findings, messages, runs.

use std::time::{Duration, UNIX_EPOCH};

use maud::{Markup, html};
use wirecost_model::document::{
    Align, Block, Cell, Column, Effect, Emphasis, Figure, Finding, ListedRun, Message, RunList,
    Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::status::Status;
use wirecost_model::units::counted;

use super::super::notes::Notes;
use super::{Page, anchor};

/// Of more findings that differ by their points alone, the first is shown and the others are folded.
const ALIKE: usize = 2;
/// Points of a finding that are listed.
const POINTS: usize = 8;

impl Page<'_> {
    pub(super) fn blocks(&mut self, section: &Section) -> Markup {
        let mut notes = Notes::default();
        html! {
            @for group in section.blocks.chunk_by(are_alike) {
                @let (shown, folded) = group.split_at(if group.len() > ALIKE { 1 } else { group.len() });
                @for block in shown { (self.block(block, &mut notes)) }
                @if !folded.is_empty() {
                    div.alike {
                        details {
                            summary { (folded.len()) " more such findings, at other points" }
                            @for block in folded { (self.block(block, &mut notes)) }
                        }
                    }
                }
            }
            (reasons(&notes))
        }
    }

    fn block(&mut self, block: &Block, notes: &mut Notes) -> Markup {
        match block {
            Block::Table(table) => self.table(table, notes),
            Block::Text(text) => html! { p { (text) } },
            Block::Figures(figures) => self::figures(figures, notes),
            Block::Chart(chart) => self.chart(chart),
            Block::Note(text) => html! { p.note { (text) } },
            Block::Message(message) => self::message(message),
            Block::Finding(finding) => self.finding(finding),
            Block::Flame(flame) => self.flame(flame),
            Block::FlameDifference(of) => self.flame_difference(of),
            Block::Runs(list) => self.runs(list, notes),
        }
    }

    pub(super) fn table(&self, table: &Table, notes: &mut Notes) -> Markup {
        let common: Vec<String> =
            table.common.iter().map(|of| format!("{} {}", of.name, of.value)).collect();
        let caption = [table.title.clone(), common.join(", ")];
        let caption: Vec<String> = caption.into_iter().filter(|of| !of.is_empty()).collect();
        let caption = caption.join(": ");
        html! {
            div.scroll tabindex="0" role="region" aria-label=(if caption.is_empty() { "Table" } else { &caption }) {
                table {
                    @if !caption.is_empty() { caption { (caption) } }
                    thead { tr { @for column in &table.columns { (head(column)) } } }
                    tbody {
                        @for (number, row) in table.rows.iter().enumerate() {
                            @let link = table.points.get(number).and_then(|point| self.link("point", point));
                            tr { (cells(&table.columns, row, link.as_deref(), notes)) }
                        }
                    }
                }
            }
        }
    }

    fn finding(&self, finding: &Finding) -> Markup {
        let linked =
            finding.points.iter().filter_map(|point| Some((point, self.link("point", point)?)));
        let linked: Vec<(&String, String)> = linked.collect();
        html! {
            div.finding {
                p.sentence { (sentence(&finding.sentence)) }
                @if let Some(support) = support(finding) { p.support { (support) } }
                @if !finding.evidence.is_empty() || !linked.is_empty() {
                    details {
                        summary { "Details" @if !linked.is_empty() { ", " (counted(linked.len() as u64, "point", "points")) } }
                        @if !finding.evidence.is_empty() {
                            ul { @for evidence in &finding.evidence { li { (evidence) } } }
                        }
                        p.points {
                            @for (point, link) in linked.iter().take(POINTS) { a href=(link) { (point) } " " }
                            @if linked.len() > POINTS { a href="#runs" { "and " (linked.len() - POINTS) " more" } }
                        }
                    }
                }
            }
        }
    }

    /// A table of all runs, which figures lead to.
    fn runs(&self, list: &RunList, notes: &mut Notes) -> Markup {
        let mut columns = vec![Column::text("run"), Column::text("point")];
        columns.extend(list.columns.iter().cloned());
        columns.extend([Column::text("started"), Column::text("record")]);
        let is_first =
            |number: usize| number == 0 || list.runs[number - 1].point != list.runs[number].point;
        html! {
            div.scroll id="runs" tabindex="0" role="region" aria-label="Runs" {
                table {
                    thead { tr { @for column in &columns { (head(column)) } } }
                    @for (number, run) in list.runs.iter().enumerate() {
                        tr id=(anchor("run", &run.name)) {
                            td { (&run.name) (status(run)) }
                            // The runs of a point stand below one another.
                            @if is_first(number) { td id=[self.anchors.get(&("point", run.point.clone()))] { (&run.point) } } @else { td {} }
                            (cells(&list.columns, &run.cells, None, notes))
                            td { (started(run)) }
                            td.path { (run.record.as_deref().unwrap_or("not saved")) }
                        }
                    }
                }
            }
        }
    }
}

fn status(run: &ListedRun) -> Markup {
    html! {
        @if run.status != Status::Ok {
            " " strong.error { (format!("{:?}", run.status).to_lowercase()) }
        }
    }
}

fn started(run: &ListedRun) -> String {
    // Later times cannot be written.
    const YEAR_10000_MS: u64 = 253_402_300_800_000;
    if run.started_unix_ms >= YEAR_10000_MS {
        return String::new();
    }
    let at = UNIX_EPOCH + Duration::from_millis(run.started_unix_ms);
    humantime::format_rfc3339_seconds(at).to_string()
}

fn head(column: &Column) -> Markup {
    html! {
        th scope="col" class=[(column.align == Align::Right).then_some("n")] { (&column.title) }
    }
}

fn cells(columns: &[Column], row: &[Cell], link: Option<&str>, notes: &mut Notes) -> Markup {
    html! {
        @for (number, cell) in row.iter().enumerate() {
            @let right = columns.get(number).is_some_and(|column| column.align == Align::Right);
            @let link = link.filter(|_| number == 0);
            td class=[right.then_some("n")] {
                @match link {
                    Some(link) => a href=(link) { (self::cell(cell, notes)) },
                    None => (self::cell(cell, notes)),
                }
            }
        }
    }
}

fn cell(cell: &Cell, notes: &mut Notes) -> Markup {
    match cell {
        Cell::Missing(reason) if !reason.is_empty() => {
            html! { "\u{2013}" sup { (notes.number_of(reason)) } }
        }
        Cell::Missing(_) => html! { "\u{2013}" },
        Cell::Marked(marked) => {
            html! { span class=[class(marked.emphasis)] { (&marked.text) } }
        }
        Cell::Number(number) => match number.text.split_once(" \u{b1}") {
            Some((value, width)) => html! { (value) span.interval { " \u{b1}" (width) } },
            None => html! { (&number.text) },
        },
        cell => html! { (cell.shown()) },
    }
}

/// Why cells are empty.
fn reasons(notes: &Notes) -> Markup {
    html! {
        @if !notes.is_empty() {
            ol.reasons { @for (_, reason) in notes.iter() { li { "not measured: " (reason) } } }
        }
    }
}

fn figures(figures: &[Figure], notes: &mut Notes) -> Markup {
    html! {
        dl.figures {
            @for figure in figures {
                dt { (&figure.label) }
                dd { (cell(&figure.value, notes)) }
            }
        }
    }
}

fn message(message: &Message) -> Markup {
    let Message { emphasis, label, text, details, commands } = message;
    html! {
        div class=(format!("message {}", class(*emphasis).unwrap_or_default())) {
            @if !label.is_empty() || !text.is_empty() {
                p { @if !label.is_empty() { strong { (label) } " " } (text) }
            }
            @for detail in details { p { (detail) } }
            @for of in commands { p { (&of.label) " " code { (&of.command) } } }
        }
    }
}

fn class(emphasis: Emphasis) -> Option<&'static str> {
    match emphasis {
        Emphasis::Plain => None,
        Emphasis::Muted => Some("muted"),
        Emphasis::Strong => Some("strong"),
        Emphasis::Warning => Some("warning"),
        Emphasis::Error => Some("error"),
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let begin: String =
        letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{begin}{}{end}", letters.as_str())
}

/// Whether two findings say the same of other points: the same ratio of a metric, along the same axis, in the same
/// direction.
fn are_alike(a: &Block, b: &Block) -> bool {
    let (Block::Finding(a), Block::Finding(b)) = (a, b) else { return false };
    let (Some(of_a), Some(of_b)) = (&a.effect, &b.effect) else { return false };
    let rises =
        |effect: &Effect| effect.value >= if effect.unit == Unit::Ratio { 1.0 } else { 0.0 };
    (&a.kind, &a.metric, &a.axis) == (&b.kind, &b.metric, &b.axis)
        && a.at != b.at
        && (&of_a.name, &of_a.between) == (&of_b.name, &of_b.between)
        && rises(of_a) == rises(of_b)
}

/// Strength, p and interval of a finding, without its evidence.
fn support(finding: &Finding) -> Option<String> {
    let alone = Finding { evidence: Vec::new(), ..finding.clone() };
    let support = alone.support();
    (!support.is_empty()).then(|| format!("Evidence: {support}"))
}
