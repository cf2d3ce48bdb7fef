//! The result of `variants` as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use wirecost_model::units::{decimal, three_digits};

use super::{Sample, Series};
use crate::paired::{center, median, ratios};
use crate::peers::table::{cell, interval_text};
use crate::rounds::failures;

/// All that was measured.
pub(super) struct Table {
    /// Properties of the machine: name and value.
    pub(super) facts: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    /// The base first.
    pub(super) series: Vec<Series>,
}

/// The unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    KByte,
    Transaction,
}

impl Unit {
    /// Bulk data goes one way; requests and responses go both ways.
    fn of(series: &[Series]) -> Self {
        let samples = series.iter().flat_map(|series| series.samples.iter().flatten());
        match samples.into_iter().all(|sample| sample.one_way) {
            true => Unit::KByte,
            false => Unit::Transaction,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::KByte => "KByte",
            Unit::Transaction => "transaction",
        }
    }

    /// Units per second; none if nothing was done.
    fn rate(self, sample: &Sample) -> Option<f64> {
        let rate = match self {
            Unit::KByte => sample.payload / 1024.0,
            Unit::Transaction => sample.transactions,
        };
        (rate > 0.0).then_some(rate)
    }

    fn rate_text(self, rate: f64) -> String {
        match self {
            Unit::KByte => decimal(rate * 1024.0 * 8.0, "b/s"),
            Unit::Transaction => decimal(rate, "/s"),
        }
    }

    /// CPU seconds per unit.
    fn cpu_time(self, sample: &Sample) -> Option<f64> {
        Some(sample.busy? / self.rate(sample)?)
    }

    fn cycles(self, sample: &Sample) -> Option<f64> {
        Some(self.cpu_time(sample)? * sample.hertz?)
    }
}

impl Series {
    fn of(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| figure(sample.as_ref()?)).collect()
    }

    fn remarks(&self) -> String {
        let mut said = Vec::new();
        said.extend(failures(&self.samples, self.failed.as_deref()));
        if self.samples.iter().flatten().any(|sample| sample.busy.is_none()) {
            said.push("CPU time was not traced".to_owned());
        }
        let mut warned: BTreeMap<&str, usize> = BTreeMap::new();
        for warning in self.samples.iter().flatten().flat_map(|sample| &sample.warnings) {
            *warned.entry(warning).or_default() += 1;
        }
        said.extend(warned.iter().map(|(code, count)| format!("{code} {count} times")));
        cell(&said.join("; "))
    }
}

impl Table {
    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        for (name, value) in &self.facts {
            writeln!(out, "- {name}: {value}")?;
        }
        for note in &self.notes {
            writeln!(out, "\nNote: {note}.")?;
        }
        let unit = Unit::of(&self.series);
        let each = unit.name();
        let rate = if unit == Unit::KByte { "throughput" } else { "transactions" };
        writeln!(
            out,
            "\n| | runs | {rate} | 95% interval | CPU time/{each} | cycles/{each} | p50 | p99 | |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|---|")?;
        for series in &self.series {
            write_figures(out, unit, series)?;
        }
        let Some((base, others)) = self.series.split_first() else { return Ok(()) };
        writeln!(out, "\n## Over {}, with 95% intervals\n", base.name)?;
        writeln!(out, "| | rounds | {rate} | cost of a {each} | p50 | p99 |")?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|")?;
        for series in others {
            let rate = |sample: &Sample| unit.rate(sample);
            let over = |figure: &dyn Fn(&Sample) -> Option<f64>| {
                ratio_text(&ratios(&series.of(figure), &base.of(figure)))
            };
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                cell(&series.name),
                ratios(&series.of(rate), &base.of(rate)).len(),
                over(&rate),
                over(&|sample| unit.cpu_time(sample)),
                over(&|sample| sample.p50),
                over(&|sample| sample.p99),
            )?;
        }
        writeln!(out, "\n## Command lines\n")?;
        self.series
            .iter()
            .try_for_each(|series| writeln!(out, "- {}: `{}`", series.name, series.line))
    }
}

fn write_figures(out: &mut String, unit: Unit, series: &Series) -> std::fmt::Result {
    let values = |figure: &dyn Fn(&Sample) -> Option<f64>| -> Vec<f64> {
        series.of(figure).into_iter().flatten().collect()
    };
    let shown = |figure: &dyn Fn(&Sample) -> Option<f64>, text: &dyn Fn(f64) -> String| {
        center(&values(figure)).map_or("-".to_owned(), text)
    };
    let rates = values(&|sample| unit.rate(sample));
    let micro = |value: f64| format!("{value:.1} us");
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        cell(&series.name),
        series.samples.iter().flatten().count(),
        center(&rates).map_or("-".to_owned(), |rate| unit.rate_text(rate)),
        median(&rates).map_or("-".to_owned(), |of| {
            format!("{} to {}", unit.rate_text(of.low), unit.rate_text(of.high))
        }),
        shown(&|sample| unit.cpu_time(sample), &|time| format!("{} ns", three_digits(time * 1e9))),
        shown(&|sample| unit.cycles(sample), &three_digits),
        shown(&|sample| sample.p50, &micro),
        shown(&|sample| sample.p99, &micro),
        series.remarks(),
    )
}

/// Their median, with its interval if there are enough values.
fn ratio_text(ratios: &[f64]) -> String {
    match (center(ratios), median(ratios)) {
        (None, _) => "-".to_owned(),
        (Some(value), None) => format!("{value:.3}"),
        (_, Some(of)) => format!("{:.3} ({})", of.value, interval_text(&of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, payloads: &[f64], one_way: bool) -> Series {
        let sample = |payload: &f64| {
            Some(Sample {
                payload: *payload,
                transactions: payload / 128.0,
                one_way,
                busy: Some(2.0),
                hertz: Some(1e9),
                p50: Some(10.0),
                ..Sample::default()
            })
        };
        let samples = payloads.iter().map(sample).collect();
        Series { name: name.to_owned(), line: name.to_owned(), samples, failed: None }
    }

    fn table(series: Vec<Series>) -> String {
        Table { facts: Vec::new(), notes: Vec::new(), series }.markdown()
    }

    fn row<'a>(text: &'a str, start: &str) -> &'a str {
        text.lines().rfind(|line| line.starts_with(start)).unwrap()
    }

    #[test]
    fn bulk_is_counted_in_kbytes_and_compared_round_by_round() {
        let base = [1024e6, 2048e6, 1024e6, 2048e6, 1024e6, 2048e6];
        let twice = base.map(|payload| payload * 2.0);
        let text = table(vec![series("base", &base, true), series("twice", &twice, true)]);
        // 2 CPUs for 1.5 million KBytes a second in the middle.
        assert!(
            row(&text, "| base")
                .contains("| 12.3 Gb/s | 8.19 Gb/s to 16.4 Gb/s | 1500 ns | 1500 | 10.0 us | - |"),
            "{text}"
        );
        assert_eq!(
            row(&text, "| twice"),
            "| twice | 6 | 2.000 (2.000 to 2.000) | 0.500 (0.500 to 0.500) | 1.000 (1.000 to 1.000) | - |"
        );
    }

    #[test]
    fn traffic_in_both_directions_is_counted_in_transactions() {
        let text = table(vec![series("a", &[128e3; 2], false), series("b", &[64e3; 2], false)]);
        assert!(text.contains("| CPU time/transaction |"), "{text}");
        // Of two rounds there is a ratio and no interval.
        assert_eq!(row(&text, "| b"), "| b | 2 | 0.500 | 2.000 | 1.000 | - |");
    }

    #[test]
    fn a_failed_round_has_no_ratio() {
        let mut base = series("base", &[1024e6; 7], true);
        base.samples[2] = None;
        base.failed = Some("no luck".to_owned());
        let text = table(vec![base, series("b", &[1024e6; 7], true)]);
        assert!(text.contains("failed 1 times: no luck"), "{text}");
        assert!(row(&text, "| b |").starts_with("| b | 6 | 1.000 (1.000"), "{text}");
    }
}
