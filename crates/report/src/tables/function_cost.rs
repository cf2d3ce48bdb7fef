//! Functions of the kernel at two points, and how much more CPU time each takes for the same bandwidth at
//! the first: the tables of "CPU Utilization in networking - the TCP transmit path" (Sun, 2008).

use wirecost_analyze::function_counts::{Found, FunctionCounts};
use wirecost_analyze::measured::{Measured, MeasuredPoint};
use wirecost_analyze::metrics::Scope;
use wirecost_model::metric::Unit;
use wirecost_model::proportion::{Proportion, Z_95};
use wirecost_model::units::three_digits;

use super::cells::{at, ends, estimate, figure, first, label, of, sentence, table, text};
use crate::document::{
    Align::{Left, Right},
    Block, Cell, Number, Section, Table,
};

/// Rows of a table.
const SHOWN: usize = 40;
/// A ratio is told where the upper end of its interval is at most so many times the lower.
const KNOWN_WITHIN: f64 = 4.0;

pub(super) fn build(measured: &Measured) -> Section {
    let title = "What functions cost".to_owned();
    let [a, b] = measured.points.as_slice() else {
        let text = format!(
            "Functions are compared at two points, and this study has {}.",
            measured.points.len()
        );
        return Section { title, blocks: vec![sentence(text)] };
    };
    let mut blocks = vec![Block::Table(points(measured))];
    for end in ends(measured, ["sender", "receiver"]) {
        let ends = (Side::of(a, end), Side::of(b, end));
        let host = end.map_or_else(String::new, |end| format!(", {end}"));
        match ends {
            (Ok(first), Ok(second)) => blocks.extend(functions(&host, [a, b], [&first, &second])),
            (first, second) => {
                let why = |side: Result<Side, String>| side.err();
                let reason = why(first).or(why(second)).unwrap_or_default();
                let mut table = empty(&host, [a, b]);
                table.rows.push(vec![Cell::Missing(reason); table.columns.len()]);
                blocks.push(Block::Table(table));
            }
        }
    }
    Section { title, blocks }
}

fn points(measured: &Measured) -> Table {
    let ends = ends(measured, ["sender", "receiver"]);
    let mut columns = vec![("Case".to_owned(), Left), ("Throughput".to_owned(), Right)];
    columns.extend(ends.iter().map(|end| {
        (end.map_or_else(|| "CPU busy".to_owned(), |end| format!("CPU busy, {end}")), Right)
    }));
    let columns: Vec<_> = columns.iter().map(|(title, align)| (title.as_str(), *align)).collect();
    let mut table = table("Cases", &columns);
    table.rows.extend(measured.points.iter().map(|point| {
        let mut row = vec![text(label(point)), figure(point, "throughput")];
        row.extend(ends.iter().map(|end| figure(point, &at(*end, "cpu.busy"))));
        row
    }));
    table
}

/// One end at one point.
struct Side {
    counts: FunctionCounts,
    /// Of the time of its CPUs, 0 to 1.
    busy: f64,
    bits_per_second: f64,
}

impl Side {
    fn of(point: &MeasuredPoint, end: Option<&str>) -> Result<Self, String> {
        let section = |run| Scope::find(run, end)?.functions();
        if section(first(point)?)?.stacks.stacks.is_empty() {
            return Err("the sampler has no samples".to_owned());
        }
        let mut counts = FunctionCounts::default();
        for section in point.runs.iter().filter_map(|run| section(run).ok()) {
            counts.add(section);
        }
        let busy = estimate(point, |run| of(run, &at(end, "cpu.busy")))?.mean / 100.0;
        let bits_per_second = estimate(point, |run| of(run, "throughput"))?.mean;
        if bits_per_second <= 0.0 {
            return Err("nothing was transferred".to_owned());
        }
        Ok(Self { counts, busy, bits_per_second })
    }

    fn found(&self, function: &str) -> Found {
        self.counts.functions.get(function).copied().unwrap_or_default()
    }

    /// Percent of the time of the CPUs.
    fn percent(&self, found: u64) -> Cell {
        let Proportion { share, interval } = Proportion::of(found, self.counts.samples);
        let percent = |share: f64| 100.0 * self.busy * share;
        // Of what no sample found it is known that there is no more than that.
        let text = match found {
            0 => format!("<{:.2}", percent(interval.1)),
            _ => format!("{:.2}", percent(share)),
        };
        Cell::Number(Number {
            value: percent(share),
            interval: Some((percent(interval.0), percent(interval.1))),
            text,
            unit: Unit::Percent,
        })
    }

    /// CPU time for each bit, in units that cancel out, and the relative variance that sampling
    /// gives it.
    fn cost(&self, found: u64) -> (f64, f64) {
        let share = found as f64 / self.counts.samples as f64;
        (self.busy * share / self.bits_per_second, (1.0 - share) / found as f64)
    }
}

/// The first over the second, with its interval: logarithms of proportions are close to normal (Katz,
/// Baptista, Azen, Pike, Biometrics 34, 1978).
fn ratio(first: (f64, f64), second: (f64, f64)) -> (f64, (f64, f64)) {
    let ratio = first.0 / second.0;
    let reach = (Z_95 * (first.1 + second.1).sqrt()).exp();
    (ratio, (ratio / reach, ratio * reach))
}

fn empty(host: &str, points: [&MeasuredPoint; 2]) -> Table {
    let [a, b] = points.map(label);
    let columns = [
        ("Function", Left),
        ("incl 1", Right),
        ("incl 2", Right),
        ("excl 1", Right),
        ("excl 2", Right),
        ("ratio", Right),
        ("its interval", Right),
    ];
    table(format!("Functions{host}, % of CPU time; 1: {a}; 2: {b}"), &columns)
}

fn functions(host: &str, points: [&MeasuredPoint; 2], sides: [&Side; 2]) -> Vec<Block> {
    let [a, b] = sides;
    let names = a.counts.functions.iter().chain(&b.counts.functions).map(|(name, _)| name);
    let names: std::collections::BTreeSet<&String> = names.collect();
    let mut rows = Vec::new();
    let mut rare = 0;
    for name in names {
        let (in_a, in_b) = (a.found(name), b.found(name));
        let known = in_a.inclusive > 0 && in_b.inclusive > 0;
        let (value, interval) = ratio(a.cost(in_a.inclusive), b.cost(in_b.inclusive));
        if !known || interval.1 > KNOWN_WITHIN * interval.0 {
            rare += 1;
            continue;
        }
        rows.push((name, in_a, in_b, value, interval));
    }
    rows.sort_by(|a, b| b.3.total_cmp(&a.3));
    let hidden = rows.len().saturating_sub(SHOWN);
    // What grew most, and what grew least: the middle is what is left out.
    if hidden > 0 {
        rows.drain(SHOWN / 2..SHOWN / 2 + hidden);
    }
    let mut table = empty(host, points);
    for (name, in_a, in_b, value, interval) in rows {
        table.rows.push(vec![
            text(format!("{name}()")),
            a.percent(in_a.inclusive),
            b.percent(in_b.inclusive),
            a.percent(in_a.exclusive),
            b.percent(in_b.exclusive),
            Cell::Number(Number {
                value,
                interval: Some(interval),
                text: three_digits(value),
                unit: Unit::Ratio,
            }),
            text(format!("{} to {}", three_digits(interval.0), three_digits(interval.1))),
        ]);
    }
    let note = format!(
        "Functions of the kernel; incl: with what they call, excl: themselves. Ratio: inclusive CPU time for the same bandwidth, the first case \
         over the second, with its 95% interval as {} and {} busy samples give it. Left out: {rare} functions \
         whose ratio is not known within a factor of {KNOWN_WITHIN}{}.",
        a.counts.samples,
        b.counts.samples,
        match hidden {
            0 => String::new(),
            _ => format!(", and {hidden} in the middle of the order"),
        }
    );
    vec![Block::Table(table), sentence(note)]
}
