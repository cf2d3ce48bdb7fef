//! `rtt-fairness`: how streams of a near and a far path share a link.

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::rtt_fairness::{self, exponent, far_share, paths, round_trips};
use wirecost_model::document::{Cell, Column, Section, show};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

use super::Table;
use super::cells::{estimate, estimated, unanswered};
use super::rows::{ColumnOf, Rows};

pub(super) struct RttFairness;

impl Table for RttFairness {
    fn name(&self) -> &'static str {
        "rtt-fairness"
    }

    fn help(&self) -> &'static str {
        "how streams with different round-trip times share a link"
    }

    fn build(&self, measured: &Measurements) -> Section {
        let mut section = Section::new("Fairness between round-trip times");
        let conclusions = rtt_fairness::conclusions(measured);
        for finding in conclusions.findings {
            section.finding(finding);
        }
        section.table(rows(measured).table("", &measured.points));
        section.text(
            "near, far: throughput of a stream of the first and of the second group of the profile; far/near: the second relative \
             to the first, 1 if they share fairly. RTT: smoothed, under load. RTT exponent: the a of throughput proportional to RTT^-a. fairness: Jain's index \
             between the two groups; fair after: time from the start of traffic to the first window in which it is at least 0.95, if it is in 90% of those from there on.",
        );
        unanswered(&mut section, conclusions.unanswered);
        section
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }

    fn concludes(&self) -> bool {
        true
    }
}

fn rows(measured: &Measurements) -> Rows {
    let rtt = |title: &str, path: usize| {
        own(title, Unit::Microseconds, move |run| Ok(round_trips(run)?[path]))
    };
    let rate = |title: &str, path: usize| {
        own(title, Unit::BitsPerSecond, move |run| Ok(paths(run)?[path].bits_per_second))
    };
    let columns = [
        ColumnOf::metric("throughput", "throughput"),
        rtt("RTT near", 0),
        rtt("RTT far", 1),
        rate("near", 0),
        rate("far", 1),
        own("far/near", Unit::Ratio, far_share),
        own("RTT exponent", Unit::Ratio, exponent),
        ColumnOf::metric("fairness", "fairness.groups"),
        ColumnOf::metric("fair after", "fairness.groups.time"),
        ColumnOf::metric("retransmits", "retransmits"),
    ];
    Rows::by_axes(measured, columns)
}

fn own(
    title: &str,
    unit: Unit,
    of: impl Fn(&Run) -> Result<f64, String> + Copy + Send + Sync + 'static,
) -> ColumnOf {
    ColumnOf::new(Column::number(title), move |point| -> Cell {
        estimated(estimate(point, of), unit, |value| show(unit, value))
    })
}
