//! Charts of pages, one file for each kind. Each returns what it draws, or the reason why it cannot.

pub(super) mod by_axis;
pub(super) mod cost_model;
pub(super) mod cpu;
pub(super) mod cpu_parts;
pub(super) mod distribution;
pub(super) mod flows;
pub(super) mod forest;
pub(super) mod heat_map;
pub(super) mod latency;
pub(super) mod layers;
pub(super) mod over_time;
pub(super) mod points;
pub(super) mod waits;

use wirecost_model::document::{Chart, Section};

/// What a chart is built of, or why it cannot be.
pub(super) type Built = Result<Vec<Chart>, String>;

/// Charts that were drawn, and what could not be.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub missing: Vec<(String, String)>,
}

impl Gathered {
    /// Adds charts to a section, or notes why there are none.
    pub(super) fn add(&mut self, section: &mut Section, what: &str, built: Built) {
        match built {
            Ok(charts) if charts.iter().any(|chart| !chart.is_empty()) => {
                charts.into_iter().filter(|chart| !chart.is_empty()).for_each(|c| section.chart(c));
            }
            Ok(_) => self.lacks(what, "no run has figures of it"),
            Err(reason) => self.lacks(what, &reason),
        }
    }

    pub(super) fn lacks(&mut self, what: &str, reason: &str) {
        self.missing.push((what.to_owned(), reason.to_owned()));
    }
}
