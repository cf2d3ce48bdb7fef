//! Functions of the kernel at two points, and how much more CPU time each takes for the same bandwidth at
//! the second: the tables of "CPU Utilization in networking - the TCP transmit path" (Sun, 2008).

use std::collections::{BTreeMap, BTreeSet};

use wirecost_analyze::Estimate;
use wirecost_analyze::function_counts::{Found, FunctionCounts};
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_analyze::statistics::moderated::{self, Effect};
use wirecost_model::document::{
    Align::{Left, Right},
    Block, Cell, Number, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::proportion::{Proportion, Z_95};
use wirecost_model::units::three_digits;

use super::cells::{
    at, ends, estimate, figure, first, label, of, sentence, share_of_runs, table, text,
};

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
/// Of intervals.
const LEVEL: f64 = 0.05;

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
    runs: Vec<OfRun>,
    /// Of all runs.
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
        let (mut counts, mut runs) = (FunctionCounts::default(), Vec::new());
        for (run, section) in point.runs.iter().filter_map(|run| Some((run, section(run).ok()?))) {
            counts.add(section);
            let mut own = FunctionCounts::default();
            own.add(section);
            let figures = of(run, &at(end, "cpu.busy")).ok().zip(of(run, "throughput").ok());
            let cost = figures.map(|(busy, rate)| busy / rate);
            runs.push(OfRun { counts: own, cost: cost.filter(|cost| cost.is_normal()) });
        }
        let busy = estimate(point, |run| of(run, &at(end, "cpu.busy")))?.mean / 100.0;
        let bits_per_second = estimate(point, |run| of(run, "throughput"))?.mean;
        if bits_per_second <= 0.0 {
            return Err("nothing was transferred".to_owned());
        }
        Ok(Self { runs, counts, busy, bits_per_second })
    }

    fn found(&self, function: &str) -> Found {
        self.counts.functions.get(function).copied().unwrap_or_default()
    }

    /// Logarithms of the CPU time of a function for a bit, of each run.
    fn logs(&self, function: &str) -> Vec<f64> {
        let log = |run: &OfRun| {
            let found = run.counts.functions.get(function).map_or(0, |found| found.inclusive);
            // A half more, as a run may have no sample of it.
            Some((run.cost? * (found as f64 + 0.5) / (run.counts.samples as f64 + 1.0)).ln())
        };
        self.runs.iter().filter_map(log).collect()
    }

    /// Percent of the time of the CPUs, of what has so many samples in the counts of a run.
    fn percent(&self, of: impl Fn(&FunctionCounts) -> u64) -> Cell {
        let share = |run: &OfRun| {
            let samples = run.counts.samples;
            (of(&run.counts) as f64 / samples.max(1) as f64, samples)
        };
        let Proportion { share, interval } =
            share_of_runs(&self.runs.iter().map(share).collect::<Vec<_>>());
        let found = of(&self.counts);
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

struct OfRun {
    counts: FunctionCounts,
    /// Busy time for a bit.
    cost: Option<f64>,
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
    /// `None` where too few samples tell. `runs` is the effect by the spread of runs, where there are
    /// several of both cases: samples of one run are alike.
    fn of(sides: [&Side; 2], first: u64, second: u64, runs: Option<Effect>) -> Option<Self> {
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
                let (ratio, (low, high), evidence) = match runs {
                    Some(effect) => {
                        // Runs may by chance be more alike than independent samples are.
                        let error = effect.error.max(variance.sqrt());
                        let effect = Effect { error, ..effect };
                        (effect.ratio(), effect.interval(LEVEL), effect.log_ratio / error)
                    }
                    None => {
                        let reach = (Z_95 * variance.sqrt()).exp();
                        let ratio = scale * in_b.share / in_a.share;
                        (ratio, (ratio / reach, ratio * reach), ratio.ln() / variance.sqrt())
                    }
                };
                let known = high <= WIDEST * low;
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
    let names: BTreeSet<&String> = names.collect();
    let in_both = |name: &&&String| a.found(name).inclusive.min(b.found(name).inclusive) > 0;
    let is_repeated = |side: &&Side| side.runs.iter().filter(|run| run.cost.is_some()).count() > 1;
    let several = sides.iter().all(is_repeated);
    let compared: Vec<&String> =
        names.iter().filter(in_both).copied().filter(|_| several).collect();
    let runs: Vec<moderated::Cell> = compared
        .iter()
        .map(|name| moderated::Cell { metric: 0, a: a.logs(name), b: b.logs(name) })
        .collect();
    let effects: BTreeMap<&String, Effect> =
        compared.into_iter().zip(moderated::effects(&runs)).collect();
    let mut rows = Vec::new();
    let mut rare = 0;
    for name in names {
        let (in_a, in_b) = (a.found(name), b.found(name));
        let effect = effects.get(name).copied();
        match Growth::of(sides, in_a.inclusive, in_b.inclusive, effect) {
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
    for (name, _, _, growth) in rows {
        let of = |side: &Side, count: fn(&Found) -> u64| {
            side.percent(|counts| counts.functions.get(name).map_or(0, count))
        };
        table.rows.push(vec![
            text(format!("{name}()")),
            of(a, |found| found.inclusive),
            of(b, |found| found.inclusive),
            of(a, |found| found.exclusive),
            of(b, |found| found.exclusive),
            growth.cell(),
        ]);
    }
    if a.counts.foreign + b.counts.foreign > 0 {
        let [in_a, in_b] = [a, b].map(|side| side.percent(|counts| counts.foreign));
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
    let spread = match several {
        true => ", from the variation between runs",
        false => ", treated as independent because a case was run only once",
    };
    let note = format!(
        "Kernel functions; incl: with the functions that they call, excl: without them. Ratio: \
         inclusive CPU time at the same bandwidth, case 2 over case 1, with its 95% \
         interval from {} and {} busy samples{spread}; > and < if one case has no sample of the function. \
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
            runs: Vec::new(),
            counts: FunctionCounts { samples, ..FunctionCounts::default() },
            busy,
            bits_per_second: 1e9,
        };
        let (a, b) = (of(1000, 0.5), of(1000, 1.0));
        let growth = |first, second| Growth::of([&a, &b], first, second, None);
        assert!(growth(1, 1).is_none() && growth(0, 0).is_none() && growth(9, 0).is_none());
        let same = growth(200, 200).unwrap();
        assert!((same.ratio - 2.0).abs() < 1e-12);
        assert!(same.low.unwrap() < 2.0 && same.high.unwrap() > 2.0 && same.high.unwrap() < 2.5);
        // At least 14.9% of 1.0 over at most 0.38% of 0.5.
        let only = growth(0, 180).unwrap();
        assert!(only.high.is_none() && (70.0..90.0).contains(&only.ratio), "{}", only.ratio);
        assert!(growth(180, 0).unwrap().low.is_none());
    }

    /// Of each case three runs with so many samples of `f` among 1000 that are busy alike.
    fn three_runs(found: [[u64; 3]; 2]) -> [Side; 2] {
        found.map(|found| {
            let counts = |found: u64, samples| FunctionCounts {
                samples,
                functions: [("f".to_owned(), Found { inclusive: found, exclusive: found })].into(),
                ..FunctionCounts::default()
            };
            let run = |found: &u64| OfRun { counts: counts(*found, 1000), cost: Some(1e-9) };
            Side {
                runs: found.iter().map(run).collect(),
                counts: counts(found.iter().sum(), 3000),
                busy: 1.0,
                bits_per_second: 1e9,
            }
        })
    }

    #[test]
    fn runs_that_differ_widen_the_interval_of_a_ratio() {
        let width = |found: [[u64; 3]; 2]| {
            let [a, b] = three_runs(found);
            let blocks =
                functions("", [&MeasuredPoint::not_measured(&Default::default()); 2], [&a, &b]);
            let Block::Table(table) = &blocks[0] else { panic!("{blocks:?}") };
            let cell = |column: usize| match &table.rows[0][column] {
                Cell::Number(number) => number.interval.unwrap(),
                other => panic!("{other:?}"),
            };
            [cell(1), cell(5)].map(|(low, high)| high / low)
        };
        let alike = width([[200, 200, 200], [400, 400, 400]]);
        let apart = width([[150, 200, 250], [300, 400, 500]]);
        // Of 600 and 1200 independent samples.
        assert!((1.0..1.3).contains(&alike[1]), "{alike:?}");
        assert!(apart[0] > 2.0 * alike[0] && apart[1] > 1.5, "{apart:?}");
    }

    #[test]
    fn other_than_two_points_are_not_compared() {
        let mut measured = fixture("function-cost");
        measured.points.truncate(1);
        let section = section("function-cost", &measured);
        assert!(matches!(&section.blocks[..], [Block::Text(text)] if text.contains("has 1")));
    }
}
