//! How large the segments are that TCP hands to the device at once, over time and by size, and who
//! hands them over: the tables of "Examining Large Segment Offload (LSO) in the Solaris Networking
//! Stack" (Sun, 2008), for TSO and GSO. All is of the host that sends.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_analyze::statistics::holm;
use wirecost_analyze::statistics::moderated::{self, Effect};
use wirecost_model::document::{
    Align::{self, Left, Right},
    Block, Cell, Column, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{Bucket, DeviceSegments, SegmentInterval};
use wirecost_model::run::Run;

use super::cells::{
    count, estimate, estimated, figure, first, grouped, known, label, name, number, of, scaled,
    sentence, table, text,
};
use super::rows::{ColumnOf, Rows, other_axes};

const EXAMPLE: &str = "example";
const SEGMENTATION: &str = "segmentation";
const DEVICE: &str = "device";

/// Of tests, of all of a table together.
const LEVEL: f64 = 0.05;

/// Cells of the longest bar.
const BAR: f64 = 30.0;

pub(super) struct Lso;

impl super::Table for Lso {
    fn name(&self) -> &'static str {
        "lso"
    }

    fn help(&self) -> &'static str {
        "sizes of segments passed to the device, and the context that transmits them"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }
}

fn build(measured: &Measurements) -> Section {
    let mut blocks = Vec::new();
    for point in as_in_the_article(measured) {
        let name = name(measured, point);
        blocks.push(Block::Table(over_time(&name, point)));
        blocks.push(Block::Table(sizes(&name, point)));
    }
    blocks.push(Block::Table(averages(measured)));
    blocks.push(sentence(
        "The mean segment by packets counts a small remainder as much as a full segment: 64 KiB sent as \
         65160 + 376 bytes have a mean of 32768. By bytes, each segment counts with its length (64788): \
         it is the segment that the average byte travels in, and the one to compare with \
         \"Examining Large Segment Offload (LSO) in the Solaris Networking Stack\" (Sun, 2008).",
    ));
    blocks.push(Block::Table(transmit_contexts(measured)));
    blocks.push(sentence(
        "Share of the packets with data that the sender passed to its device, by context: (i) a thread \
         in its own system call; (ii) threads and timers of the stack (full queues, pacing, \
         ksoftirqd); (iii) the NET_RX softirq, in which received ACKs release data (the ACK clock).",
    ));
    blocks.push(Block::Table(order(measured)));
    blocks.push(Block::Table(summary(measured)));
    blocks.push(sentence(format!(
        "(1) counts pairs of examples, the others count pairs of runs. `yes` and `no` are significant (adjusted p \
         below 0.05), `unclear` is not; without repeats there is no test.{}",
        significant_pairs(measured).unwrap_or_default()
    )));
    Section { blocks, ..Section::new("Large segments") }
}

/// Points with the first device and the first way to segment: the article's. The others are compared with
/// these.
fn as_in_the_article(measured: &Measurements) -> Vec<&MeasuredPoint> {
    let is_first = |point: &&MeasuredPoint, axis: &str| {
        let value = point.point.axes.iter().find(|value| value.name == axis);
        let first = measured.points.first().and_then(|first| first.point.get(axis));
        value.is_none_or(|value| Some(value.value.as_str()) == first)
    };
    let points = measured.points.iter();
    points.filter(|point| [DEVICE, SEGMENTATION].iter().all(|axis| is_first(point, axis))).collect()
}

/// The example that a point is of; in a study without examples, the point.
fn example_of(point: &MeasuredPoint) -> String {
    point.point.get(EXAMPLE).map_or_else(|| label(point), str::to_owned)
}

/// A table with a row for each point, which says first what point it is.
fn of_points(
    title: &str,
    measured: &Measurements,
    columns: &[(&str, Align)],
    cells: impl Fn(&MeasuredPoint) -> Vec<Cell>,
) -> Table {
    let example = ColumnOf::new(Column::text("Example"), |point| text(example_of(point)));
    let mut first = Rows { columns: vec![example] };
    if measured.points.iter().any(|point| point.point.get(EXAMPLE).is_some()) {
        first.columns.extend(other_axes(measured, &[EXAMPLE]));
    }
    let mut table = table(title, columns);
    table.columns.splice(0..0, first.head());
    let points = measured.points.iter();
    table.rows.extend(points.map(|point| [first.row(point), cells(point)].concat()));
    table
}

/// Devices of the sender.
fn devices(run: &Run) -> Result<&[DeviceSegments], String> {
    Ok(&Scope::find(run, Some("sender"))?.segments()?.devices)
}

/// The device that sent most.
fn busiest(run: &Run) -> Result<&DeviceSegments, String> {
    let busiest = devices(run)?.iter().max_by_key(|device| device.sent.bytes);
    busiest.ok_or_else(|| "no packet passed a device".to_owned())
}

/// As the script of the article prints it: the average of each interval, of the first run.
fn over_time(name: &str, point: &MeasuredPoint) -> Table {
    let columns = [("end, s", Right), ("packets", Right), ("average, B", Right)];
    let mut table = table(format!("Segment size over time, {name}"), &columns);
    match first(point).and_then(busiest) {
        Ok(device) => table.rows.extend(device.sent.intervals.iter().map(interval)),
        Err(reason) => table.rows.push(vec![Cell::Missing(reason); columns.len()]),
    }
    table
}

fn interval(interval: &SegmentInterval) -> Vec<Cell> {
    let average = interval.average_bytes.ok_or_else(|| "no packet was sent".to_owned());
    let end = interval.end_seconds;
    vec![
        number(end, Unit::Ratio, format!("{end:.1}")),
        count(interval.packets),
        known(average, Unit::Bytes, grouped),
    ]
}

/// Packets by length, of all runs.
fn sizes(name: &str, point: &MeasuredPoint) -> Table {
    let columns = [("bytes from", Right), ("packets", Right), ("%", Right), ("bar", Left)];
    let mut table = table(format!("Segments by size, {name}"), &columns);
    match buckets(point) {
        Ok(buckets) => {
            let all: u64 = buckets.iter().map(|bucket| bucket.packets).sum();
            let most = buckets.iter().map(|bucket| bucket.packets).max().unwrap_or(0);
            table.rows.extend(buckets.iter().map(|bucket| {
                let percent = 100.0 * bucket.packets as f64 / all as f64;
                let bar = (BAR * bucket.packets as f64 / most as f64).ceil() as usize;
                vec![
                    count(bucket.from),
                    count(bucket.packets),
                    number(percent, Unit::Percent, format!("{percent:.1}")),
                    text("#".repeat(bar)),
                ]
            }));
        }
        Err(reason) => table.rows.push(vec![Cell::Missing(reason); columns.len()]),
    }
    table
}

/// From the first to the last that has any.
fn buckets(point: &MeasuredPoint) -> Result<Vec<Bucket>, String> {
    first(point).and_then(devices)?;
    let mut sums: Vec<Bucket> = Vec::new();
    let devices = point.runs.iter().filter_map(|run| devices(run).ok()).flatten();
    for bucket in devices.flat_map(|device| &device.sent.lengths) {
        match sums.iter_mut().find(|sum| sum.from == bucket.from) {
            Some(sum) => sum.packets += bucket.packets,
            None => sums.push(*bucket),
        }
    }
    sums.sort_by_key(|bucket| bucket.from);
    let filled = |bucket: &Bucket| bucket.packets > 0;
    let begin = sums.iter().position(filled).ok_or("no packet was sent")?;
    let end = sums.iter().rposition(filled).unwrap_or(begin);
    Ok(sums[begin..=end].to_vec())
}

fn averages(measured: &Measurements) -> Table {
    let columns = [
        ("segment, B", Right),
        ("by bytes, B", Right),
        ("at the cap, %", Right),
        ("Throughput", Right),
        ("cycles/KByte", Right),
    ];
    of_points("Average segment size", measured, &columns, |point| {
        vec![
            scaled(point, "hosts.sender.segments.sent_bytes", 1.0, grouped),
            scaled(point, "hosts.sender.segments.sent_bytes_by_bytes", 1.0, grouped),
            scaled(point, "hosts.sender.segments.at_cap", 1.0, |v| format!("{v:.1}")),
            figure(point, "throughput"),
            scaled(point, "cycles_per_kbyte", 1.0, grouped),
        ]
    })
}

fn transmit_contexts(measured: &Measurements) -> Table {
    let columns =
        [("(i) writing thread", Right), ("(ii) stack's worker", Right), ("(iii) interrupt", Right)];
    of_points("Transmit context", measured, &columns, |point| {
        let share =
            |by: &str| scaled(point, &format!("hosts.sender.transmit_context.{by}"), 1.0, percent);
        vec![share("writer"), share("worker"), share("ack")]
    })
}

/// In whole percent, as the article; a little is not nothing.
fn percent(percent: f64) -> String {
    match percent {
        p if p > 0.0 && p < 0.5 => "<1%".to_owned(),
        p => format!("{p:.0}%"),
    }
}

fn order(measured: &Measurements) -> Table {
    let columns = [
        ("dup ACKs in", Right),
        ("out of order", Right),
        ("ACK ratio", Right),
        ("retransmits", Right),
    ];
    of_points("Acknowledgements and order", measured, &columns, |point| {
        vec![
            scaled(point, "hosts.sender.duplicate_acks", 1.0, grouped),
            estimated(estimate(point, out_of_order), Unit::Count, grouped),
            scaled(point, "hosts.sender.segments_per_ack", 1.0, |ratio| format!("{ratio:.1}:1")),
            scaled(point, "retransmits", 1.0, grouped),
        ]
    })
}

/// Of the run's own connections; in older records, of all hosts that receive.
fn out_of_order(run: &Run) -> Result<f64, String> {
    if let Some(packets) = run.tcp.as_ref().and_then(|tcp| tcp.out_of_order) {
        return Ok(packets as f64);
    }
    let receives = |bytes: &wirecost_model::measure::Bytes| bytes.received() > bytes.sent();
    let receivers: Vec<_> =
        run.hosts.iter().filter(|host| host.bytes.as_ref().is_some_and(receives)).collect();
    if receivers.is_empty() {
        return Err("no host receives more than it sends".to_owned());
    }
    receivers.iter().map(|host| of(run, &format!("hosts.{}.out_of_order", host.name))).sum()
}

/// Two examples, and whether the segments of the first are larger.
const CLAIMS: [(&str, &str, &str); 3] = [
    ("(2) request and response: example 2 vs. 1", "2", "1"),
    ("(3) larger writes: example 1 vs. 4", "1", "4"),
    ("(4) fewer connections: example 1 vs. 5", "1", "5"),
];

/// A pair of points, and what makes the segments of the first larger.
struct Claim<'a> {
    what: String,
    larger: Result<&'a MeasuredPoint, String>,
    smaller: Result<&'a MeasuredPoint, String>,
}

/// The article's, then whether segments are larger where the device segments.
fn claims(measured: &Measurements) -> Vec<Claim<'_>> {
    let points = as_in_the_article(measured);
    let example = |name: &str| {
        let point = points.iter().copied().find(|point| example_of(point) == name);
        point.ok_or_else(|| format!("there is no example {name}"))
    };
    let of_article = CLAIMS.iter().map(|(what, larger, smaller)| Claim {
        what: (*what).to_owned(),
        larger: example(larger),
        smaller: example(smaller),
    });
    let usual = |point: &MeasuredPoint, axis| {
        points.first().is_some_and(|first| first.point.get(axis) == point.point.get(axis))
    };
    let segmented = points.first().and_then(|first| first.point.get(SEGMENTATION)).unwrap_or("");
    let others = measured.points.iter().filter(|point| {
        example_of(point) == "1" && usual(point, DEVICE) && !usual(point, SEGMENTATION)
    });
    let others = others.zip(CLAIMS.len() + 2..).map(|(point, number)| {
        let other = point.point.get(SEGMENTATION).unwrap_or_default();
        Claim {
            what: format!("({number}) segmentation {segmented}: example 1 vs. {other}"),
            larger: example("1"),
            smaller: Ok(point),
        }
    });
    of_article.chain(others).collect()
}

/// What the article sums up, and whether these runs say so.
fn summary(measured: &Measurements) -> Table {
    let columns = [
        ("A larger segment comes with", Left),
        ("segment, B", Right),
        ("compared with, B", Right),
        ("holds", Left),
    ];
    let mut table = table("Compared with the article's summary", &columns);
    table.rows.push(cheaper(measured));
    let claims = claims(measured);
    let sizes = |point: &Result<&MeasuredPoint, String>| -> Result<_, String> {
        let point = point.clone()?;
        Ok((estimate(point, segment)?, figures(point, segment)))
    };
    let pairs: Vec<Result<_, String>> =
        claims.iter().map(|claim| Ok((sizes(&claim.larger)?, sizes(&claim.smaller)?))).collect();
    let known = || pairs.iter().flatten();
    let tests = tests(&known().map(|((_, a), (_, b))| (b, a)).collect::<Vec<_>>());
    let mut tests = tests.into_iter();
    for (Claim { what, larger, smaller }, pair) in claims.iter().zip(&pairs) {
        let holds = match pair {
            Ok(((_, these), (_, those))) => text(verdict(tests.next().flatten(), these, those)),
            Err(reason) => Cell::Missing(reason.clone()),
        };
        let cell = |point| estimated(sizes(point).map(|(mean, _)| mean), Unit::Bytes, grouped);
        table.rows.push(vec![text(what), cell(larger), cell(smaller), holds]);
    }
    table
}

/// The mean segment by bytes; of older records by packets.
fn segment(run: &Run) -> Result<f64, String> {
    of(run, "hosts.sender.segments.sent_bytes_by_bytes")
        .or_else(|_| of(run, "hosts.sender.segments.sent_bytes"))
}

fn cost(run: &Run) -> Result<f64, String> {
    of(run, "cycles_per_kbyte")
}

/// Of each run that has it.
fn figures(point: &MeasuredPoint, of: fn(&Run) -> Result<f64, String>) -> Vec<f64> {
    point.runs.iter().filter_map(|run| of(run).ok()).collect()
}

/// Significant differences of pairs, the second over the first, as comparisons of studies test them, corrected
/// for all pairs: whether the second is larger. `None` where a side was run once.
fn tests(pairs: &[(&Vec<f64>, &Vec<f64>)]) -> Vec<Option<Verdict>> {
    let testable = |values: &&Vec<f64>| values.len() > 1 && values.iter().all(|value| *value > 0.0);
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let is_tested = |(a, b): &(&Vec<f64>, &Vec<f64>)| testable(a) && testable(b);
    let cells: Vec<moderated::Cell> = pairs
        .iter()
        .filter(|pair| is_tested(pair))
        .map(|(a, b)| moderated::Cell { metric: 0, a: logs(a), b: logs(b) })
        .collect();
    let effects = moderated::effects(&cells);
    let p_values = holm(&effects.iter().map(Effect::p_value).collect::<Vec<_>>());
    let mut verdicts = effects.iter().zip(p_values).map(|(effect, p_value)| match p_value {
        p_value if p_value >= LEVEL => Verdict::Unclear,
        _ if effect.log_ratio > 0.0 => Verdict::Larger,
        _ => Verdict::Smaller,
    });
    pairs.iter().map(|pair| if is_tested(pair) { verdicts.next() } else { None }).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Larger,
    Smaller,
    Unclear,
}

/// Whether segments are larger, and in how many pairs of runs.
fn verdict(test: Option<Verdict>, these: &[f64], those: &[f64]) -> String {
    let pairs = these.iter().flat_map(|a| those.iter().map(move |b| a > b));
    let (number, larger) = (pairs.clone().count(), pairs.filter(|larger| *larger).count());
    let verdict = match test {
        Some(Verdict::Larger) => "yes",
        Some(Verdict::Smaller) => "no",
        Some(Verdict::Unclear) => "unclear",
        None => "run once",
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{verdict}: {larger} of {number} pair{plural}")
}

/// In how many pairs of examples the one with the larger segments costs fewer cycles.
fn cheaper(measured: &Measurements) -> Vec<Cell> {
    let both = |point: &MeasuredPoint| -> Result<(f64, f64), String> {
        Ok((estimate(point, segment)?.mean, estimate(point, cost)?.mean))
    };
    let all: Result<Vec<(f64, f64)>, String> =
        as_in_the_article(measured).into_iter().map(both).collect();
    let holds = all.and_then(|all| {
        let pairs = pairs(&all);
        let cheaper = pairs.iter().filter(|(a, b)| (a.0 - b.0) * (a.1 - b.1) < 0.0).count();
        match pairs.len() {
            0 => Err("there is only one example".to_owned()),
            number => Ok(text(format!("in {cheaper} of {number} pairs"))),
        }
    });
    let none = || text("");
    let what = text("(1) fewer cycles for each KByte");
    vec![what, none(), none(), holds.unwrap_or_else(Cell::Missing)]
}

/// In how many pairs of examples both differences of (1) are significant; `None` without a test.
fn significant_pairs(measured: &Measurements) -> Option<String> {
    let test = |of: fn(&Run) -> Result<f64, String>| {
        let all: Vec<Vec<f64>> =
            as_in_the_article(measured).into_iter().map(|point| figures(point, of)).collect();
        tests(&pairs(&all)).into_iter().collect::<Option<Vec<Verdict>>>()
    };
    let both = test(segment)?.into_iter().zip(test(cost)?);
    let is_cheaper = |pair: &(Verdict, Verdict)| {
        matches!(pair, (Verdict::Larger, Verdict::Smaller) | (Verdict::Smaller, Verdict::Larger))
    };
    let number = both.filter(is_cheaper).count();
    Some(format!(" In {number} of the pairs of (1), size and cost differ significantly."))
}

fn pairs<T>(all: &[T]) -> Vec<(&T, &T)> {
    let with = |(place, b): (usize, _)| all[..place].iter().map(move |a| (a, b));
    all.iter().enumerate().flat_map(with).collect()
}

#[cfg(test)]
mod tests {
    use wirecost_model::study::Value;

    use super::super::tests::{at, fixture, near, section, value};
    use super::*;

    /// Figures by other arithmetic, of the same runs.
    #[test]
    fn each_example_has_its_sizes_and_transmit_contexts() {
        let section = section("lso", &fixture("lso"));
        near(value(&section, "Segment size over time, 1", "1.0", "average, B"), 53_401.237_697_24);
        near(value(&section, "Segment size over time, 5", "2.0", "average, B"), 25_637.949_224_26);
        near(value(&section, "Average segment size", "4", "segment, B"), 1_259.579_944_16);
        near(value(&section, "Transmit context", "1", "(i) writing thread"), 53.437_142_630_1);
        near(value(&section, "Transmit context", "1", "(ii) stack's worker"), 42.063_840_299_1);
        near(value(&section, "Transmit context", "5", "(iii) interrupt"), 17.746_754_713_9);
        near(value(&section, "Acknowledgements", "1", "ACK ratio"), 147.322_473_413_4);
        assert_eq!(value(&section, "Acknowledgements", "1", "dup ACKs in"), 420.0);
        assert_eq!(value(&section, "Acknowledgements", "3", "out of order"), 0.0);
        assert_eq!(value(&section, "Segments by size, 1", "256", "packets"), 34_544.0);
        // Several clients share CPUs: their order was not watched.
        let missing = at(&section, "Acknowledgements", "1", "out of order");
        assert!(matches!(missing, Cell::Missing(why) if why.contains("h2 shares its CPUs")));
    }

    /// Older records have no count of the run's own connections.
    #[test]
    fn packets_out_of_order_are_those_of_the_run_where_it_counted_them() {
        let measured = fixture("lso");
        let point = |example: &str| measured.points.iter().find(|p| label(p) == example).unwrap();
        let mut run = point("3").runs[0].clone();
        assert_eq!(out_of_order(&run), Ok(0.0), "that of the hosts that receive");
        run.tcp.as_mut().unwrap().out_of_order = Some(17);
        assert_eq!(out_of_order(&run), Ok(17.0));
        // Whatever probes could watch.
        let mut run = point("1").runs[0].clone();
        assert!(out_of_order(&run).unwrap_err().contains("h2 shares its CPUs"));
        run.tcp.as_mut().unwrap().out_of_order = Some(0);
        assert_eq!(out_of_order(&run), Ok(0.0));
    }

    #[test]
    fn percentages_are_of_all_that_was_sent() {
        let measured = fixture("lso");
        let section = section("lso", &measured);
        for point in &measured.points {
            let example = label(point);
            let of = |column| value(&section, "Transmit context", &example, column);
            let all = of("(i) writing thread") + of("(ii) stack's worker") + of("(iii) interrupt");
            near(all, 100.0);
            let sizes = buckets(point).unwrap();
            let sent = busiest(&point.runs[0]).unwrap().sent.packets;
            assert_eq!(sizes.iter().map(|bucket| bucket.packets).sum::<u64>(), sent);
        }
    }

    #[test]
    fn the_summary_holds_only_where_the_runs_say_so() {
        let measured = fixture("lso");
        let section = section("lso", &measured);
        let holds = |row| at(&section, "Compared with", row, "holds").clone();
        assert_eq!(holds("(1)"), text("in 9 of 10 pairs"));
        assert_eq!(holds("(2)"), text("run once: 0 of 1 pair"));
        assert_eq!(holds("(3)"), text("run once: 1 of 1 pair"));
        assert_eq!(significant_pairs(&measured), None);
    }

    /// Repeats that differ by so many percent.
    fn repeated(noise: f64) -> Measurements {
        let mut measured = fixture("lso");
        for point in &mut measured.points {
            let run = point.runs[0].clone();
            point.runs = [-1.0, 0.0, 1.0].map(|step| scaled_by(&run, 1.0 + step * noise)).to_vec();
        }
        measured
    }

    fn scaled_by(run: &Run, factor: f64) -> Run {
        let mut run = run.clone();
        for machine in &mut run.machines {
            machine.cycles_per_kbyte = machine.cycles_per_kbyte.map(|cost| cost * factor);
        }
        let observed = run.observe.iter_mut().flat_map(|observe| &mut observe.hosts);
        let segments = observed.filter_map(|host| host.segments.as_mut());
        for device in segments.flat_map(|segments| &mut segments.devices) {
            device.sent.bytes = (device.sent.bytes as f64 * factor) as u64;
        }
        run
    }

    #[test]
    fn repeats_decide_the_summary() {
        let holds = |noise| {
            let section = section("lso", &repeated(noise));
            ["(1)", "(2)", "(3)"].map(|row| at(&section, "Compared with", row, "holds").clone())
        };
        let [all, response, writes] = holds(0.01);
        assert_eq!(all, text("in 9 of 10 pairs"));
        assert_eq!(response, text("no: 0 of 9 pairs"));
        assert_eq!(writes, text("yes: 9 of 9 pairs"));
        let told = significant_pairs(&repeated(0.001)).unwrap();
        assert_eq!(told, " In 8 of the pairs of (1), size and cost differ significantly.");
        let [_, response, writes] = holds(0.6);
        assert!(matches!(&response, Cell::Text(text) if text.starts_with("unclear: ")));
        assert_eq!(writes, text("yes: 9 of 9 pairs"));
    }

    /// The same examples, and two more points: the first example segmented by the kernel, and on another device.
    fn with_other_points() -> Measurements {
        let mut measured = repeated(0.01);
        let set = |point: &mut MeasuredPoint, device, segmentation| {
            for (name, value) in [(DEVICE, device), (SEGMENTATION, segmentation)] {
                point.point.axes.insert(0, Value::new(name, value));
                point.point.settings.push(Value::new("tune.offload.tso", segmentation));
            }
        };
        let mut other = measured.points[0].clone();
        for run in &mut other.runs {
            *run = scaled_by(run, 0.1);
        }
        let others = [("veth", "gso"), ("tun", "tso")].map(|(device, segmentation)| {
            let mut point = other.clone();
            set(&mut point, device, segmentation);
            point
        });
        for point in &mut measured.points {
            set(point, "veth", "tso");
        }
        measured.points.extend(others);
        measured
    }

    #[test]
    fn other_devices_and_segmentation_are_compared_with_the_examples_of_the_article() {
        let measured = with_other_points();
        let shown = section("lso", &measured);
        // What is said of the examples is as without the others.
        let alone = section("lso", &repeated(0.01));
        let row = |section: &Section, row: &str| {
            ["segment, B", "compared with, B", "holds"]
                .map(|column| at(section, "Compared with", row, column).clone())
        };
        for claim in ["(1)", "(2)", "(3)", "(4)"] {
            assert_eq!(row(&shown, claim), row(&alone, claim));
        }
        let [_, _, holds] = row(&shown, "(5) segmentation tso: example 1 vs. gso");
        assert_eq!(holds, text("yes: 9 of 9 pairs"));
        let tables = |section: &Section| {
            let tables = section.blocks.iter().filter(|block| matches!(block, Block::Table(_)));
            tables.count()
        };
        assert_eq!(tables(&shown), tables(&alone));
        let Some(averages) = shown.blocks.iter().find_map(|block| match block {
            Block::Table(table) if table.title == "Average segment size" => Some(table),
            _ => None,
        }) else {
            panic!("{shown:?}")
        };
        let first: Vec<String> = averages
            .rows
            .iter()
            .map(|row| row[..3].iter().map(Cell::shown).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(first[..2], ["1 tso veth", "2 tso veth"]);
        assert_eq!(first[5..], ["1 gso veth", "1 tso tun"]);
    }

    #[test]
    fn a_little_is_not_nothing() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.2), "<1%");
        assert_eq!(percent(0.6), "1%");
    }
}
