//! Charts and flame graphs with their titles, keys and tables.

use maud::{Markup, PreEscaped, html};
use wirecost_model::document::{Chart, ChartKind, Flame, FlameDifference, SeriesRole, Table};

use super::super::notes::Notes;
use super::super::summary;
use super::colours::Look;
use super::{Page, svg};
use crate::flame::{write_difference_frames, write_frames};

impl Page<'_> {
    pub(super) fn chart(&mut self, chart: &Chart) -> Markup {
        if chart.is_empty() {
            return html! {};
        }
        self.charts += 1;
        let title = format!("chart-{}", self.charts);
        let table = summary::of(chart);
        let drawing = match chart.kind {
            ChartKind::Lines | ChartKind::Panel => {
                let number = self.data.add(chart, &mut self.colours);
                html! { div.plot data-series-chart=(number) role="img" aria-labelledby=(title) {} }
            }
            _ => {
                let anchors = &self.anchors;
                let link = |name: &str| {
                    anchors.get(&("run", name.to_owned())).map(|anchor| format!("#{anchor}"))
                };
                let drawn = svg::draw(chart, &mut self.colours, &link);
                self.drawings.add(drawn)
            }
        };
        let is_lines = chart.is_over_time();
        let above = self.panels.take();
        self.panels = chart.group.clone().filter(|_| chart.kind == ChartKind::Panel);
        let class = match self.panels {
            Some(_) if self.panels == above => "chart panel joined",
            Some(_) => "chart panel",
            None => "chart",
        };
        html! {
            figure class=(class) tabindex="0" aria-labelledby=(title) {
                figcaption id=(title) { (capital(&chart.title)) }
                (self.key(chart, is_lines))
                (drawing)
                details.table {
                    summary { "Table" }
                    (self.table(&Table { title: String::new(), ..table }, &mut Notes::default()))
                }
            }
        }
    }

    /// Names of the series, each of which can be hidden.
    fn key(&mut self, chart: &Chart, has_readout: bool) -> Markup {
        // Their names stand beside their rows, and need no colour.
        if matches!(chart.kind, ChartKind::HeatMap | ChartKind::Forest) {
            return html! {};
        }
        let looks = svg::looks(chart, &mut self.colours);
        let named: Vec<(&str, Look)> = chart
            .series
            .iter()
            .zip(looks)
            .filter(|(series, _)| series.role == SeriesRole::Measured)
            .map(|(series, look)| (series.name.as_str(), look))
            .collect();
        let has_fit = chart.series.iter().any(|series| series.role == SeriesRole::Fit);
        let is_named = has_readout
            || named.len() > 1
            || named.first().is_some_and(|(name, _)| !name.is_empty());
        let class = match chart.kind {
            ChartKind::Stack | ChartKind::Histogram => svg::colour_class,
            _ => svg::class,
        };
        html! {
            @if is_named {
                div.key {
                    @for (name, look) in named {
                        button type="button" aria-pressed="true" data-toggle=(name) {
                            span class=(format!("swatch {}", class(look))) {}
                            (name)
                        }
                    }
                    @if has_readout { output.readout {} }
                    @if has_fit { span.fitted { "dotted: fitted law" } }
                }
            }
        }
    }

    pub(super) fn flame(&mut self, flame: &Flame) -> Markup {
        let mut frames = Vec::new();
        // A vector takes everything.
        let _ = write_frames(&mut frames, &flame.stacks);
        let frames = String::from_utf8_lossy(&frames).into_owned();
        let note = "Kernel orange, user space blue, processes grey. A click shows a frame at full width, and so does Enter where the arrow keys lead.";
        self.frames(&flame.title, note, &frames, summary::of_flame(flame))
    }

    pub(super) fn flame_difference(&mut self, of: &FlameDifference) -> Markup {
        let mut frames = Vec::new();
        // As above.
        let _ = write_difference_frames(&mut frames, of);
        let frames = String::from_utf8_lossy(&frames).into_owned();
        let compared = match of.cycles_per_kbyte {
            Some(_) => {
                "A frame is compared by its cycles/KByte: its share of the samples times those of its side."
            }
            None => {
                "A frame is compared by its share of all samples of its side, as cycles/KByte of both are not known."
            }
        };
        let note = format!(
            "Frames are as wide as their share in B. Orange costs more in B than in A, blue less, the paler the less \
             it has changed. {compared} What B lacks has no width: the table has it. A click shows a frame at full width, and so does Enter where the arrow keys lead."
        );
        self.frames(&of.title, &note, &frames, summary::of_difference(of))
    }

    /// A flame graph with what is around it. The frames escape their names themselves.
    fn frames(&mut self, caption: &str, note: &str, frames: &str, table: Table) -> Markup {
        self.charts += 1;
        let title = format!("chart-{}", self.charts);
        html! {
            figure.chart.flame tabindex="0" aria-labelledby=(title) {
                figcaption id=(title) { (caption) }
                p.note { (note) }
                (self.drawings.add(PreEscaped(frames.to_owned())))
                details.table {
                    summary { "Table" }
                    (self.table(&Table { title: String::new(), ..table }, &mut Notes::default()))
                }
            }
        }
    }
}

fn capital(text: &str) -> String {
    // `p99` is a name.
    if text.chars().nth(1).is_some_and(|letter| letter.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}
