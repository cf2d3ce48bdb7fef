//! `option-payoff`: each option off and on, by size: cost, throughput and latency, with the ratios of paired runs.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_analyze::option_payoff::{self, Comparison, Figure, Payoff, payoffs};
use wirecost_model::document::{Cell, Column, Number, Section};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use super::cells::unanswered;
use super::rows::{ColumnOf, Rows};
use super::{Table, whose};

pub(super) struct OptionPayoff;

impl Table for OptionPayoff {
    fn name(&self) -> &'static str {
        "option-payoff"
    }

    fn help(&self) -> &'static str {
        "each option off and on, by size: cost, latency, and the break-even point"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn concludes(&self) -> bool {
        true
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }
}

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("What options save");
    let payoffs = payoffs(measured);
    if payoffs.is_empty() {
        section.text("There are no two points yet that differ in exactly one option.");
        return section;
    }
    let conclusions = option_payoff::conclusions(measured);
    for finding in conclusions.findings {
        section.finding(finding);
    }
    let mut groups: Vec<(&[Value], Vec<&Payoff<'_>>)> = Vec::new();
    for payoff in &payoffs {
        let common = payoff.curve.common.as_slice();
        match groups.iter_mut().find(|(known, _)| *known == common) {
            Some((_, group)) => group.push(payoff),
            None => groups.push((common, vec![payoff])),
        }
    }
    for (common, group) in groups {
        section.table(table(common, &group));
    }
    section.text(
        "off, on: without and with the option, all else equal. on/off: the ratio of paired runs, which follow each \
         other, with its 95% interval; below 1, the option lowers the figure. A sentence reports a difference if its adjusted p is \
         below 0.05. break-even: where cycles/KByte with and without the option are equal, interpolated over the logarithm of \
         the size.",
    );
    if payoffs.iter().any(|payoff| payoff.curve.traffic() == Some(option_payoff::BURSTS)) {
        section.text(
            "bursts: several datagrams there, and as many back; p50 and p99 are of the time until the last one is back. \
             Without the option each has a call of its own.",
        );
    }
    if let Some(note) = whose::note(measured) {
        section.note(note);
    }
    unanswered(&mut section, conclusions.unanswered);
    section
}

/// A figure with its name, and whether both of its values are shown beside their ratio.
const OF_STREAMS: [(Figure, &str, bool); 2] =
    [(Figure::Cost, "cycles/KByte", true), (Figure::Throughput, "throughput", false)];
const OF_ROUND_TRIPS: [(Figure, &str, bool); 3] =
    [(Figure::P50, "p50", true), (Figure::P99, "p99", true), (Figure::Cost, "cycles/KByte", false)];

/// A row for each option and size.
fn table(common: &[Value], group: &[&Payoff<'_>]) -> wirecost_model::document::Table {
    let round_trips = group.iter().any(|payoff| payoff.curve.has_round_trips());
    let figures: &[(Figure, &str, bool)] = if round_trips { &OF_ROUND_TRIPS } else { &OF_STREAMS };
    let mut head = vec![Column::text("option"), Column::number("size")];
    for (_, name, both) in figures {
        let values = ["off", "on"].into_iter().filter(|_| *both);
        let columns = values.chain(["on/off"]).map(|of| Column::number(&format!("{name} {of}")));
        head.extend(columns);
    }
    let mut table = wirecost_model::document::Table::new(head);
    let title: Vec<String> = common.iter().map(title).collect();
    table.title = title.join(", ");
    table.common = common.to_vec();
    for payoff in group {
        for (place, at) in payoff.curve.sizes.iter().enumerate() {
            let mut row = vec![Cell::text(payoff.curve.option.clone()), Cell::set(at.label)];
            for (figure, _, both) in figures {
                if *both {
                    row.extend([at.off, at.on].map(|point| mean(point, *figure)));
                }
                row.push(ratio(&payoff.of(*figure)[place]));
            }
            table.row(row);
        }
    }
    table
}

/// The mean alone as a person reads it: the ratio beside it has the interval that counts.
fn mean(point: &MeasuredPoint, figure: Figure) -> Cell {
    let selector = match metrics::find(figure.metric()) {
        Ok(selector) => selector,
        Err(unknown) => return Cell::Missing(unknown.to_string()),
    };
    match point.estimate(&selector) {
        Ok(estimate) => Cell::Number(Number {
            interval: estimate.interval,
            ..Number::once(selector.metric().unit, estimate.mean)
        }),
        Err(reason) => Cell::Missing(reason),
    }
}

/// `1 connection`, `tcp`.
fn title(value: &Value) -> String {
    match (value.name.as_str(), value.value.as_str()) {
        ("connections", "1") => "1 connection".to_owned(),
        ("connections", number) => format!("{number} connections"),
        (_, value) => value.to_owned(),
    }
}

fn ratio(of: &Result<Comparison, String>) -> Cell {
    match of {
        Ok(of) => Cell::Number(Number::estimate(Unit::Ratio, of.ratio, of.interval())),
        Err(reason) => Cell::Missing(reason.clone()),
    }
}

/// While a study goes on.
fn rows(measured: &Measurements) -> Rows {
    let columns = [
        ColumnOf::metric("throughput", Figure::Throughput.metric()),
        ColumnOf::metric("cycles/KByte", Figure::Cost.metric()),
        ColumnOf::metric("p50", Figure::P50.metric()),
        ColumnOf::metric("p99", Figure::P99.metric()),
    ];
    Rows::by_axes(measured, columns)
}
