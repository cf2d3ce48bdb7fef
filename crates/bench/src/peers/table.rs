//! The result as Markdown: for the terminal, and to keep.

use std::collections::BTreeMap;
use std::fmt::Write;

use wirecost_model::units::{decimal, three_digits};

use super::agreement::{Agreement, Figure, Pair};
use super::contender::{Part, Plan};
use super::point::{Kind, Point};
use super::session::Sample;
use super::verdict::{Claim, Series, claims};
use crate::paired::{Median, center, median};
use crate::rounds::{failures, is_given_up};

/// CPU use of other processes from which a row has a remark.
const OTHERS: f64 = 0.05;
/// A window whose halves differ by more was not steady.
const STEADY: f64 = 0.8;

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Results {
    /// Properties of the machine: name and value.
    pub(crate) machine: Vec<(String, String)>,
    /// Versions of the programs, and which are not installed.
    pub(crate) programs: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
    pub(crate) points: Vec<PointResult>,
    pub(crate) pairs: Vec<PairResult>,
}

#[derive(Debug)]
pub(crate) struct PointResult {
    pub(crate) point: Point,
    pub(crate) rows: Vec<Row>,
    /// Contenders that do not take part, with the reason.
    pub(crate) absent: Vec<(String, String)>,
}

/// One contender at one point.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) series: Series,
    /// Message of the last failed run.
    pub(crate) failed: Option<String>,
    /// Its command line in the first round.
    pub(crate) plan: Option<Plan>,
}

#[derive(Debug)]
pub(crate) struct PairResult {
    pub(crate) pair: &'static Pair,
    pub(crate) installed: bool,
    /// Port and original, by round.
    pub(crate) rounds: Vec<(Option<f64>, Option<f64>)>,
    pub(crate) failed: Option<String>,
    pub(crate) lines: Option<(String, Plan)>,
}

impl Results {
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        for (name, value) in &self.machine {
            writeln!(out, "- {name}: {value}")?;
        }
        for (name, version) in &self.programs {
            writeln!(out, "- {name}: {version}")?;
        }
        for note in &self.notes {
            writeln!(out, "\nNote: {note}.")?;
        }
        let claims = self.verdicts();
        if !claims.is_empty() {
            writeln!(out, "\n## Verdict\n")?;
            writeln!(out, "| point | of | measure | against | ratio | 95% interval | target | |")?;
            writeln!(out, "|---|---|---|---|--:|--:|---|---|")?;
            for (point, claim) in &claims {
                write_claim(out, point, claim)?;
            }
        }
        for result in &self.points {
            result.write(out)?;
        }
        if !self.pairs.is_empty() {
            self.write_agreement(out)?;
        }
        writeln!(out, "\n## Command lines\n")?;
        let mut lines = BTreeMap::new();
        for result in &self.points {
            for row in &result.rows {
                let name = format!("{}, {}", result.point.name(), row.series.name);
                lines.extend(row.plan.as_ref().map(|plan| (name, text_of(plan))));
            }
        }
        for result in &self.pairs {
            if let Some((ours, original)) = &result.lines {
                lines.insert(result.pair.name(), format!("`{ours}`; {}", text_of(original)));
            }
        }
        for (name, line) in lines {
            writeln!(out, "- {name}: {line}")?;
        }
        Ok(())
    }

    fn verdicts(&self) -> Vec<(Point, Claim)> {
        let of = |result: &PointResult| {
            let all: Vec<Series> = result.rows.iter().map(|row| row.series.clone()).collect();
            let point = result.point;
            claims(&point, &all).into_iter().map(move |claim| (point, claim)).collect::<Vec<_>>()
        };
        self.points.iter().flat_map(of).collect()
    }

    fn write_agreement(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Agreement of the ports with their originals\n")?;
        writeln!(
            out,
            "| port | original | figure | rounds | ours | original | its lowest to highest | ours / \
             original | 95% interval | |"
        )?;
        writeln!(out, "|---|---|---|--:|--:|--:|--:|--:|--:|---|")?;
        for result in &self.pairs {
            let Pair { port, of, figure, .. } = result.pair;
            let head = format!("| @{port} | {of} | {} ", figure.name());
            let agreement = Agreement::of(&result.rounds);
            match (result.installed, agreement) {
                (false, _) => writeln!(out, "{head}| | | | | | | not installed |")?,
                (true, None) => {
                    let why = result.failed.as_deref().unwrap_or("no run");
                    writeln!(out, "{head}| 0 | | | | | | failed: {} |", cell(why))?;
                }
                (true, Some(agreement)) => {
                    let shown = |value: f64| figure_text(*figure, value);
                    let (ratio, interval) = ratio_text(agreement.ratio.as_ref());
                    let both = |(a, b): &&(Option<f64>, Option<f64>)| a.is_some() && b.is_some();
                    writeln!(
                        out,
                        "{head}| {} | {} | {} | {} to {} | {ratio} | {interval} | {} |",
                        result.rounds.iter().filter(both).count(),
                        shown(agreement.ours),
                        shown(agreement.theirs),
                        shown(agreement.lowest),
                        shown(agreement.highest),
                        agreement.verdict(),
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl PointResult {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let point = &self.point;
        writeln!(out, "\n## {}: {}\n", point.name(), point.title())?;
        let cost = if point.is_bulk() { "cycles/KByte" } else { "cycles each" };
        writeln!(
            out,
            "| | runs | {} | 95% interval | {cost} | by clocks | p50 | p99 | set up | its own figure | |",
            if point.is_bulk() { "throughput" } else { "rate" }
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")?;
        for row in &self.rows {
            row.write(out, point)?;
        }
        for (name, why) in &self.absent {
            writeln!(out, "| {name} | | | | | | | | | | {} |", cell(why))?;
        }
        let peers = self.rows.iter().any(|row| {
            row.series.part == Part::Peer && row.series.samples.iter().any(Option::is_some)
        });
        if !peers && point.kind != Kind::Http {
            writeln!(out, "\nNo peer runs this point: the reference is `threads`.")?;
        }
        Ok(())
    }
}

impl Row {
    pub(crate) fn is_given_up(&self) -> bool {
        is_given_up(&self.series.samples)
    }

    fn write(&self, out: &mut String, point: &Point) -> std::fmt::Result {
        let series = &self.series;
        let merits = series.values(|sample| Some(sample.seen.work_rate));
        let spread = median(&merits);
        let middle = |of: fn(&Sample) -> Option<f64>| center(&series.values(of));
        let number = |value: Option<f64>| value.map_or("-".to_owned(), three_digits);
        let micro = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.1} us"));
        // Of each run against the kernel's count of it.
        let own = middle(|sample| Some(sample.own.rate? / sample.seen.work_rate));
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            series.name,
            merits.len(),
            center(&merits).map_or("-".to_owned(), |work_rate| work_rate_text(point, work_rate)),
            spread.map_or("-".to_owned(), |of| {
                format!("{} to {}", work_rate_text(point, of.low), work_rate_text(point, of.high))
            }),
            number(middle(|sample| sample.seen.cost)),
            number(middle(|sample| sample.seen.cost_by_clocks)),
            micro(middle(|sample| sample.own.p50)),
            micro(middle(|sample| sample.own.p99)),
            middle(|sample| sample.set_up).map_or("-".to_owned(), |s| format!("{s:.2} s")),
            own.map_or("-".to_owned(), |ratio| format!("{:+.1}%", (ratio - 1.0) * 100.0)),
            self.remarks(),
        )
    }

    fn remarks(&self) -> String {
        let mut said = Vec::new();
        let count = |of: fn(&Sample) -> bool| {
            self.series.samples.iter().flatten().filter(|s| of(s)).count()
        };
        match self.series.part {
            Part::OtherServer => said.push("other server".to_owned()),
            Part::Reference => said.push("a thread for each connection".to_owned()),
            Part::Joined => said.push("joined writes".to_owned()),
            Part::Ours | Part::Peer => {}
        }
        said.extend(failures(&self.series.samples, self.failed.as_deref()));
        match count(|sample| sample.seen.others > OTHERS) {
            0 => {}
            runs => said.push(format!("others used CPUs in {runs} runs")),
        }
        match count(|sample| sample.seen.steady < STEADY) {
            0 => {}
            runs => said.push(format!("not steady in {runs} runs")),
        }
        cell(&said.join("; "))
    }
}

fn write_claim(out: &mut String, point: &Point, claim: &Claim) -> std::fmt::Result {
    let (ratio, interval) = ratio_text(claim.ratio.as_ref());
    writeln!(
        out,
        "| {} | {} | {} | {} | {ratio} | {interval} | {} | {} |",
        point.name(),
        claim.who,
        claim.measure.name(),
        claim.against,
        claim.target.text(),
        claim.verdict().text(),
    )
}

fn ratio_text(ratio: Option<&Median>) -> (String, String) {
    ratio.map_or_else(
        || ("-".to_owned(), "fewer than 6 rounds".to_owned()),
        |of| (format!("{:.3}", of.value), interval_text(of)),
    )
}

pub(crate) fn interval_text(of: &Median) -> String {
    format!("{:.3} to {:.3}", of.low, of.high)
}

fn work_rate_text(point: &Point, work_rate: f64) -> String {
    if point.is_bulk() { decimal(work_rate * 8.0, "b/s") } else { decimal(work_rate, "/s") }
}

fn figure_text(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Throughput => decimal(value * 8.0, "b/s"),
        Figure::RoundTrip => format!("{value:.2} us"),
        Figure::Transactions => decimal(value, "/s"),
    }
}

fn text_of(plan: &Plan) -> String {
    match &plan.server {
        Some((server, _)) => format!("`{server}`; `{}`", plan.client),
        None => format!("`{}`", plan.client),
    }
}

/// Escapes the text of a table cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "/").replace(['\n', '\r'], " ")
}
