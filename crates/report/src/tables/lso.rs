//! How large the segments are that TCP hands to the device at once, over time and by size, and who
//! hands them over: the tables of "Examining Large Segment Offload (LSO) in the Solaris Networking
//! Stack" (Sun, 2008), for TSO and GSO. All is of the host that sends.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_model::document::{
    Align::{Left, Right},
    Block, Cell, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{Bucket, DeviceSegments, SegmentInterval};
use wirecost_model::run::Run;

use super::cells::{
    count, estimate, estimated, figure, first, grouped, known, label, name, number, of, scaled,
    sentence, table, text,
};

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
    for point in &measured.points {
        let name = name(measured, point);
        blocks.push(Block::Table(over_time(&name, point)));
        blocks.push(Block::Table(sizes(&name, point)));
    }
    blocks.push(Block::Table(averages(measured)));
    blocks.push(sentence(
        "The mean segment by packets counts a small rest as much as a full segment: 64 KiB that leave as \
         65160 + 376 bytes have a mean of 32768. By bytes, each segment counts with its length (64788): \
         it is the segment that the average byte travels in, and the one to compare with the article.",
    ));
    blocks.push(Block::Table(transmit_contexts(measured)));
    blocks.push(sentence(
        "Share of the packets with data that the sender passed to its device, by context: (i) a thread \
         in its own system call; (ii) threads and timers of the stack (full queues, pacing, \
         ksoftirqd); (iii) the NET_RX softirq, in which received ACKs release data (the ACK clock).",
    ));
    blocks.push(Block::Table(order(measured)));
    blocks.push(Block::Table(summary(measured)));
    Section { blocks, ..Section::new("Large segments") }
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
    let columns = [("to, s", Right), ("packets", Right), ("average, B", Right)];
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
        ("Example", Left),
        ("segment, B", Right),
        ("by bytes, B", Right),
        ("at the cap, %", Right),
        ("Throughput", Right),
        ("cycles/KByte", Right),
    ];
    let mut table = table("Average segment size", &columns);
    table.rows.extend(measured.points.iter().map(|point| {
        vec![
            text(label(point)),
            scaled(point, "hosts.sender.segments.sent_bytes", 1.0, grouped),
            scaled(point, "hosts.sender.segments.sent_bytes_by_bytes", 1.0, grouped),
            scaled(point, "hosts.sender.segments.at_cap", 1.0, |v| format!("{v:.1}")),
            figure(point, "throughput"),
            scaled(point, "cycles_per_kbyte", 1.0, grouped),
        ]
    }));
    table
}

fn transmit_contexts(measured: &Measurements) -> Table {
    let columns = [
        ("Example", Left),
        ("(i) writing thread", Right),
        ("(ii) stack's worker", Right),
        ("(iii) interrupt", Right),
    ];
    let mut table = table("Transmit context", &columns);
    table.rows.extend(measured.points.iter().map(|point| {
        let share =
            |by: &str| scaled(point, &format!("hosts.sender.transmit_context.{by}"), 1.0, percent);
        vec![text(label(point)), share("writer"), share("worker"), share("ack")]
    }));
    table
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
        ("Example", Left),
        ("dup ACKs in", Right),
        ("out of order", Right),
        ("ACK ratio", Right),
        ("retransmits", Right),
    ];
    let mut table = table("Acknowledgements and order", &columns);
    table.rows.extend(measured.points.iter().map(|point| {
        vec![
            text(label(point)),
            scaled(point, "hosts.sender.duplicate_acks", 1.0, grouped),
            estimated(estimate(point, out_of_order), Unit::Count, grouped),
            scaled(point, "hosts.sender.segments_per_ack", 1.0, |ratio| format!("{ratio:.1}:1")),
            scaled(point, "retransmits", 1.0, grouped),
        ]
    }));
    table
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
    for (what, larger, smaller) in [
        ("(2) request and response: example 2 beside 1", "2", "1"),
        ("(3) larger writes: example 1 beside 4", "1", "4"),
        ("(4) fewer connections: example 1 beside 5", "1", "5"),
    ] {
        let of = |example: &str| -> Result<Estimate, String> {
            let point = measured.points.iter().find(|point| label(point) == example);
            let point = point.ok_or_else(|| format!("there is no example {example}"))?;
            estimate(point, segment)
        };
        let (larger, smaller) = (of(larger), of(smaller));
        let holds = match (&larger, &smaller) {
            (Ok(larger), Ok(smaller)) => text(compare(larger, smaller)),
            (Err(reason), _) | (_, Err(reason)) => Cell::Missing(reason.clone()),
        };
        let cell = |estimate| estimated(estimate, Unit::Bytes, grouped);
        table.rows.push(vec![text(what), cell(larger), cell(smaller), holds]);
    }
    table
}

/// The mean segment by bytes; of older records by packets.
fn segment(run: &Run) -> Result<f64, String> {
    of(run, "hosts.sender.segments.sent_bytes_by_bytes")
        .or_else(|_| of(run, "hosts.sender.segments.sent_bytes"))
}

/// What was run once has no interval that could overlap, and it is said so.
fn compare(larger: &Estimate, smaller: &Estimate) -> &'static str {
    match (larger.interval, smaller.interval) {
        (Some(a), Some(b)) if a.0 <= b.1 && b.0 <= a.1 => "not distinguishable",
        (Some(_), Some(_)) if larger.mean > smaller.mean => "yes",
        (Some(_), Some(_)) => "no",
        _ if larger.mean > smaller.mean => "yes (run once)",
        _ => "no (run once)",
    }
}

/// In how many pairs of examples the one with the larger segments costs fewer cycles.
fn cheaper(measured: &Measurements) -> Vec<Cell> {
    let both = |point: &MeasuredPoint| -> Result<(f64, f64), String> {
        let size = estimate(point, segment)?.mean;
        Ok((size, estimate(point, |run| of(run, "cycles_per_kbyte"))?.mean))
    };
    let all: Result<Vec<(f64, f64)>, String> = measured.points.iter().map(both).collect();
    let holds = all.and_then(|all| {
        let pairs = || {
            let with = |(n, a): (usize, &(f64, f64))| {
                all[..n].iter().map(move |b| (a.0 - b.0, a.1 - b.1)).collect::<Vec<_>>()
            };
            all.iter().enumerate().flat_map(with)
        };
        let number = pairs().count();
        let cheaper = pairs().filter(|(size, cost)| size * cost < 0.0).count();
        match number {
            0 => Err("there is only one example".to_owned()),
            _ => Ok(text(format!("in {cheaper} of {number} pairs"))),
        }
    });
    let none = || text("");
    let what = text("(1) fewer cycles for each KByte");
    vec![what, none(), none(), holds.unwrap_or_else(Cell::Missing)]
}

#[cfg(test)]
mod tests {
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
        assert_eq!(holds("(2)"), text("no (run once)"));
        assert_eq!(holds("(3)"), text("yes (run once)"));
        let estimate = |values: &[f64]| Estimate::of(values).unwrap();
        let (large, small) = (estimate(&[99.0, 100.0, 101.0]), estimate(&[49.0, 50.0, 51.0]));
        assert_eq!(compare(&large, &small), "yes");
        assert_eq!(compare(&small, &large), "no");
        assert_eq!(compare(&large, &estimate(&[50.0, 100.0, 140.0])), "not distinguishable");
    }

    #[test]
    fn a_little_is_not_nothing() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.2), "<1%");
        assert_eq!(percent(0.6), "1%");
    }
}
