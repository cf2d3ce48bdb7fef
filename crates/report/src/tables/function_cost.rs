//! Functions of the kernel at two points, and how much more CPU time each takes for the same bandwidth at
//! the second: the tables of "CPU Utilization in networking - the TCP transmit path" (Sun, 2008).

use wirecost_analyze::Estimate;
use wirecost_analyze::function_counts::{Found, FunctionCounts};
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_model::document::{
    Align::{Left, Right},
    Block, Cell, Number, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::proportion::{Proportion, Z_95};
use wirecost_model::units::three_digits;

use super::cells::{at, ends, estimate, figure, first, label, of, sentence, table, text};

const TITLE: &str = "What functions cost";
/// Rows of a table.
const SHOWN: usize = 40;
/// What explains functions that grow, of the sender: smaller segments and more ACKs.
const PACKETS: [(&str, &str); 2] =
    [("segment", "segments.sent_bytes"), ("segments/ACK", "segments_per_ack")];
/// A ratio is told where the upper end of its interval is at most so many times the lower,
const WIDEST: f64 = 4.0;
/// and where one case has none, if the other has so many samples.
const SEEN: u64 = 10;

pub(super) struct FunctionCost;

impl super::Table for FunctionCost {
    fn name(&self) -> &'static str {
        "function-cost"
    }

    fn help(&self) -> &'static str {
        "functions at two points, and the ratio of their CPU time per bit"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn needs_stacks(&self) -> bool {
        true
    }
}

fn build(measured: &Measurements) -> Section {
    let [a, b] = measured.points.as_slice() else {
        let text = format!(
            "Functions are compared at two points, and this study has {}.",
            measured.points.len()
        );
        return Section { blocks: vec![sentence(text)], ..Section::new(TITLE) };
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
    Section { blocks, ..Section::new(TITLE) }
}

fn points(measured: &Measurements) -> Table {
    let ends = ends(measured, ["sender", "receiver"]);
    let packets: Vec<(&str, String)> = PACKETS
        .iter()
        .map(|(title, metric)| (*title, at(ends.first().copied().flatten(), metric)))
        .filter(|(_, metric)| {
            measured.points.iter().any(|p| matches!(figure(p, metric), Cell::Number(_)))
        })
        .collect();
    let mut columns = vec![("Case".to_owned(), Left), ("Throughput".to_owned(), Right)];
    columns.extend(ends.iter().map(|end| {
        (end.map_or_else(|| "CPU busy".to_owned(), |end| format!("CPU busy, {end}")), Right)
    }));
    columns.extend(packets.iter().map(|(title, _)| ((*title).to_owned(), Right)));
    let columns: Vec<_> = columns.iter().map(|(title, align)| (title.as_str(), *align)).collect();
    let mut table = table("Cases", &columns);
    table.rows.extend(measured.points.iter().map(|point| {
        let mut row = vec![text(label(point)), figure(point, "throughput")];
        row.extend(ends.iter().map(|end| figure(point, &at(*end, "cpu.busy"))));
        row.extend(packets.iter().map(|(_, metric)| figure(point, metric)));
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
}

/// CPU time for the same bandwidth, the second case over the first, as findings have it.
struct Growth {
    ratio: f64,
    /// 95%; open where no sample of one case found the function.
    low: Option<f64>,
    high: Option<f64>,
    /// How far the logarithm of the ratio is from that of no change, in standard errors.
    evidence: f64,
}

impl Growth {
    /// `None` where too few samples tell.
    fn of(sides: [&Side; 2], first: u64, second: u64) -> Option<Self> {
        let [a, b] = sides;
        let scale = (b.busy / b.bits_per_second) / (a.busy / a.bits_per_second);
        let of = |side: &Side, found| Proportion::of(found, side.counts.samples);
        let (in_a, in_b) = (of(a, first), of(b, second));
        match (first, second) {
            (0, 0) => None,
            // How far at least: from what is known of both.
            (0, SEEN..) => {
                let low = scale * in_b.interval.0 / in_a.interval.1;
                Some(Self {
                    ratio: low,
                    low: Some(low),
                    high: None,
                    evidence: Z_95 * low.ln().signum(),
                })
            }
            (SEEN.., 0) => {
                let high = scale * in_b.interval.1 / in_a.interval.0;
                Some(Self {
                    ratio: high,
                    low: None,
                    high: Some(high),
                    evidence: Z_95 * high.ln().signum(),
                })
            }
            (0, _) | (_, 0) => None,
            _ => {
                // Logarithms of ratios of proportions are close to normal: Katz, Baptista, Azen and
                // Pike, Biometrics 34 (1978), p. 469, <https://doi.org/10.2307/2530610>.
                let part = |share: f64, found: u64| (1.0 - share) / found as f64;
                let variance = part(in_a.share, first) + part(in_b.share, second);
                let reach = (Z_95 * variance.sqrt()).exp();
                let ratio = scale * in_b.share / in_a.share;
                let (low, high) = (ratio / reach, ratio * reach);
                let known = high <= WIDEST * low;
                let evidence = ratio.ln() / variance.sqrt();
                known.then_some(Self { ratio, low: Some(low), high: Some(high), evidence })
            }
        }
    }

    fn cell(&self) -> Cell {
        let (low, high) = match (self.low, self.high) {
            (Some(low), Some(high)) => (low, high),
            (Some(low), None) => return text(format!(">{}", three_digits(low))),
            _ => return text(format!("<{}", three_digits(self.ratio))),
        };
        let estimate = Estimate { mean: self.ratio, interval: Some((low, high)), times: 1 };
        Cell::Number(Number::with_text(
            Unit::Ratio,
            estimate.mean,
            estimate.interval,
            &three_digits(self.ratio),
        ))
    }
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
        match Growth::of(sides, in_a.inclusive, in_b.inclusive) {
            Some(growth) => rows.push((name, in_a, in_b, growth)),
            None => rare += 1,
        }
    }
    // What takes most time in either case is shown, whether it changed or not.
    let most = |in_a: &Found, in_b: &Found| {
        let share = |side: &Side, found: u64| side.busy * found as f64 / side.counts.samples as f64;
        share(a, in_a.inclusive).max(share(b, in_b.inclusive))
    };
    rows.sort_by(|x, y| most(&y.1, &y.2).total_cmp(&most(&x.1, &x.2)));
    let hidden = rows.len().saturating_sub(SHOWN);
    rows.truncate(SHOWN);
    rows.sort_by(|(_, _, _, a), (_, _, _, b)| b.evidence.total_cmp(&a.evidence));
    let mut table = empty(host, points);
    for (name, in_a, in_b, growth) in rows {
        table.rows.push(vec![
            text(format!("{name}()")),
            a.percent(in_a.inclusive),
            b.percent(in_b.inclusive),
            a.percent(in_a.exclusive),
            b.percent(in_b.exclusive),
            growth.cell(),
        ]);
    }
    if a.counts.foreign + b.counts.foreign > 0 {
        let [in_a, in_b] = [a, b].map(|side| side.percent(side.counts.foreign));
        table.rows.push(vec![
            text("[other programs]"),
            in_a,
            in_b,
            Cell::empty(),
            Cell::empty(),
            Cell::empty(),
        ]);
    }
    let smaller = match hidden {
        0 => String::new(),
        _ => format!(", and {hidden} that take less time"),
    };
    let note = format!(
        "Kernel functions; incl: with the functions that they call, excl: without them. Ratio: \
         inclusive CPU time at the same bandwidth, case 2 over case 1, with its 95% \
         interval from {} and {} busy samples; > and < if one case has no sample of the function. \
         Rows are in order of evidence: what costs more in case 2, \
         what did not change, what costs less. Left out: \
         {rare} functions with too few samples{smaller}.",
        a.counts.samples, b.counts.samples
    );
    vec![Block::Table(table), sentence(note)]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at as cell, fixture, near, section, value};
    use super::*;

    const SENDER: &str = "Functions, sender";

    fn ratios(section: &Section) -> Vec<(String, f64)> {
        let tables = section.blocks.iter().filter_map(|block| match block {
            Block::Table(table) if table.title.starts_with(SENDER) => Some(table),
            _ => None,
        });
        let row = |row: &Vec<Cell>| match (&row[0], &row[5]) {
            (Cell::Text(name), Cell::Number(number)) => Some((name.clone(), number.value)),
            _ => None,
        };
        tables.flat_map(|table| &table.rows).filter_map(row).collect()
    }

    /// Figures by other arithmetic, of the same samples.
    #[test]
    fn functions_have_their_shares_and_their_growth() {
        let section = section("function-cost", &fixture("function-cost"));
        near(value(&section, SENDER, "do_syscall_64()", "incl 1"), 100.0 * 261.0 / 990.0);
        near(value(&section, SENDER, "_copy_from_iter()", "excl 1"), 100.0 * 9.0 / 990.0);
        near(value(&section, SENDER, "do_syscall_64()", "ratio"), 1.0 / 5.618_364_691_1);
        near(value(&section, SENDER, "_copy_from_iter()", "ratio"), 1.0 / 0.857_976_874_0);
        // Seen in none of the samples: less than their interval, and not nothing.
        let Cell::Number(none) = cell(&section, SENDER, "tcp_sendmsg()", "excl 1") else {
            panic!("it was measured");
        };
        assert_eq!((none.value, none.text.as_str()), (0.0, "<0.39"));
        assert!(none.interval.unwrap().1 > 0.3);
    }

    #[test]
    fn what_surely_grew_comes_first_and_the_other_way_round_last() {
        let mut measured = fixture("function-cost");
        // Of more connections over few.
        measured.points.reverse();
        let there = ratios(&section("function-cost", &measured));
        let grown = there.iter().take_while(|(_, ratio)| *ratio > 1.0).count();
        assert!(grown > 5 && grown < there.len());
        assert!(there[grown..].iter().all(|(_, ratio)| *ratio <= 1.0), "{there:?}");
        measured.points.reverse();
        let back = ratios(&section("function-cost", &measured));
        assert_eq!(there.len(), back.len());
        let of = |name: &str| back.iter().find(|(other, _)| other == name).unwrap().1;
        for (name, ratio) in &there {
            assert!((ratio * of(name) - 1.0).abs() < 1e-9, "{name} {ratio}");
        }
    }

    /// What takes most of the time is in the table although it hardly changed.
    #[test]
    fn what_did_not_change_is_shown() {
        let there = ratios(&section("function-cost", &fixture("function-cost")));
        let unchanged = there.iter().filter(|(_, ratio)| (0.8..1.25).contains(ratio)).count();
        assert!(unchanged >= 1, "{there:?}");
    }

    #[test]
    fn a_ratio_of_few_samples_is_not_told() {
        let of = |samples, busy| Side {
            counts: FunctionCounts { samples, ..FunctionCounts::default() },
            busy,
            bits_per_second: 1e9,
        };
        let (a, b) = (of(1000, 0.5), of(1000, 1.0));
        let growth = |first, second| Growth::of([&a, &b], first, second);
        assert!(growth(1, 1).is_none() && growth(0, 0).is_none() && growth(9, 0).is_none());
        let same = growth(200, 200).unwrap();
        assert!((same.ratio - 2.0).abs() < 1e-12);
        assert!(same.low.unwrap() < 2.0 && same.high.unwrap() > 2.0 && same.high.unwrap() < 2.5);
        // At least 14.9% of 1.0 over at most 0.38% of 0.5.
        let only = growth(0, 180).unwrap();
        assert!(only.high.is_none() && (70.0..90.0).contains(&only.ratio), "{}", only.ratio);
        assert!(growth(180, 0).unwrap().low.is_none());
    }

    #[test]
    fn other_than_two_points_are_not_compared() {
        let mut measured = fixture("function-cost");
        measured.points.truncate(1);
        let section = section("function-cost", &measured);
        assert!(matches!(&section.blocks[..], [Block::Text(text)] if text.contains("has 1")));
    }
}
