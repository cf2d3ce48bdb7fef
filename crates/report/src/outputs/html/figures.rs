//! Charts and flame graphs with their titles, keys and tables.

use maud::{Markup, PreEscaped, html};
use wirecost_model::document::{Chart, ChartKind, Flame, SeriesRole};

use super::super::notes::Notes;
use super::super::summary;
use super::{Page, svg};
use crate::flame::write_frames;

impl Page<'_> {
    pub(super) fn chart(&mut self, chart: &Chart) -> Markup {
        if chart.is_empty() {
            return html! {};
        }
        self.charts += 1;
        let title = format!("chart-{}", self.charts);
        let table = summary::of(chart);
        let drawing = match chart.kind {
            ChartKind::Lines => {
                let number = self.data.add(chart, &mut self.colours);
                html! { div.plot data-series-chart=(number) role="img" aria-labelledby=(title) {} }
            }
            _ => {
                let anchors = &self.anchors;
                let link = |name: &str| {
                    let anchor = super::anchor("run", name);
                    anchors.contains(&anchor).then(|| format!("#{anchor}"))
                };
                let drawn = svg::draw(chart, &mut self.colours, &link);
                html! { div.plot.scroll { (drawn) } }
            }
        };
        let is_lines = chart.kind == ChartKind::Lines;
        html! {
            figure.chart tabindex="0" aria-labelledby=(title) {
                figcaption id=(title) { (capital(&chart.title)) }
                (self.key(chart, is_lines))
                (drawing)
                details.table {
                    summary { "Table" }
                    (self.table(&wirecost_model::document::Table { title: String::new(), ..table }, &mut Notes::default()))
                }
            }
        }
    }

    /// Names of the series, each of which can be hidden.
    fn key(&mut self, chart: &Chart, has_readout: bool) -> Markup {
        let series = chart.series.iter().filter(|series| series.role == SeriesRole::Measured);
        let names: Vec<&str> = series.map(|series| series.name.as_str()).collect();
        let has_fit = chart.series.iter().any(|series| series.role == SeriesRole::Fit);
        let is_named =
            has_readout || names.len() > 1 || names.first().is_some_and(|name| !name.is_empty());
        let class = match chart.kind {
            ChartKind::Stack | ChartKind::Histogram => svg::colour_class,
            _ => svg::class,
        };
        html! {
            @if is_named && !matches!(chart.kind, ChartKind::HeatMap) {
                div.key {
                    @for name in names {
                        button type="button" aria-pressed="true" data-toggle=(name) {
                            span class=(format!("swatch {}", class(self.colours.of(name)))) {}
                            (name)
                        }
                    }
                    @if has_readout { output.readout {} }
                    @if has_fit { span.fitted { "dashed: fitted law" } }
                }
            }
        }
    }

    pub(super) fn flame(&mut self, flame: &Flame) -> Markup {
        let mut frames = Vec::new();
        // A vector takes everything.
        let _ = write_frames(&mut frames, &flame.stacks);
        let frames = String::from_utf8_lossy(&frames).into_owned();
        self.charts += 1;
        let title = format!("chart-{}", self.charts);
        let table = summary::of_flame(flame);
        html! {
            figure.chart.flame tabindex="0" aria-labelledby=(title) {
                figcaption id=(title) { (&flame.title) }
                p.note { "Kernel orange, user space blue, processes grey. A click shows a frame at full width." }
                // The frames escape their names themselves.
                div.plot.scroll { (PreEscaped(frames)) }
                details.table {
                    summary { "Table" }
                    (self.table(&wirecost_model::document::Table { title: String::new(), ..table }, &mut Notes::default()))
                }
            }
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}
