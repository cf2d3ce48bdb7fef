//! The tables of interrupts and softirqs: traced, or counted by /proc between two readings.

use std::collections::BTreeMap;

use wirecost_linux::interrupts::{Line, since};
use wirecost_model::clock::seconds;
use wirecost_model::observe::{Handled, InterruptRow, SOFTIRQS};

use crate::tracker::{Source, SourceKind, VECTORS};

/// Lines of /proc/interrupts that no interrupt of their own is behind: part of `CAL`, polls by a
/// timer, retries of a read.
const NO_INTERRUPTS: [&str; 3] = ["TLB", "MCP", "RTR"];

/// How /proc/interrupts and /proc/softirqs went on in the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) before: &'a [Line],
    pub(super) after: &'a [Line],
}

impl Counted<'_> {
    /// Lines of the sources that had any on these CPUs, with what they had by CPU.
    fn rows(&self, wanted: &impl Fn(u32) -> bool) -> Vec<(&Line, BTreeMap<u32, u64>)> {
        let rows = self.after.iter().map(|after| {
            let before = self.before.iter().find(|before| before.source == after.source);
            let before = |cpu: &u32| before.and_then(|line| line.counts.get(cpu)).unwrap_or(&0);
            let counts = after.counts.iter().filter(|(cpu, _)| wanted(**cpu));
            let counts = counts.map(|(cpu, count)| (*cpu, since(*before(cpu), *count)));
            (after, counts.filter(|(_, count)| *count > 0).collect())
        });
        rows.filter(|(_, counts): &(_, BTreeMap<u32, u64>)| !counts.is_empty()).collect()
    }

    fn name(&self, source: &str) -> String {
        let line = self.after.iter().find(|line| line.source == source);
        line.map(|line| line.name.clone()).unwrap_or_default()
    }
}

/// Hard interrupts of the window on these CPUs.
pub(super) fn interrupts(
    traced: Option<&BTreeMap<SourceKind, Vec<Source>>>,
    counted: Counted<'_>,
    drivers: &BTreeMap<u32, String>,
    window: f64,
    wanted: &impl Fn(u32) -> bool,
) -> Vec<InterruptRow> {
    let mut rows: Vec<InterruptRow> = Vec::new();
    // Two vectors may be one line of /proc/interrupts.
    let mut by_source: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for (kind, values) in traced.into_iter().flatten() {
        let source = match kind {
            SourceKind::Softirq(_) => continue,
            SourceKind::Vector(vector) => match VECTORS.get(*vector as usize) {
                Some(name) => (*name).to_owned(),
                None => continue,
            },
            SourceKind::Device(number) => number.to_string(),
        };
        let sums = by_source.entry(source).or_default();
        sums.resize(values.len(), Source::default());
        sums.iter_mut().zip(values).for_each(|(sum, value)| sum.add(value));
    }
    for (source, values) in by_source {
        let name = counted.name(&source);
        rows.extend(timed(source, name, &values, window, wanted));
    }
    for (line, counts) in counted.rows(wanted) {
        let seen = rows.iter().any(|row| row.source == line.source);
        // What is traced but had none while it was: it came while /proc was read.
        let is_traced = traced.is_some()
            && (line.number().is_some() || VECTORS.contains(&line.source.as_str()));
        if !seen && !is_traced && !NO_INTERRUPTS.contains(&line.source.as_str()) {
            rows.push(untimed(line.source.clone(), line.name.clone(), &counts, window));
        }
    }
    for row in &mut rows {
        row.module = row.source.parse().ok().and_then(|number: u32| drivers.get(&number).cloned());
    }
    most_first(&mut rows);
    rows
}

/// Softirqs of the window on these CPUs.
pub(super) fn softirqs(
    traced: Option<&BTreeMap<SourceKind, Vec<Source>>>,
    counted: Counted<'_>,
    window: f64,
    wanted: &impl Fn(u32) -> bool,
) -> Vec<InterruptRow> {
    let mut rows: Vec<InterruptRow> = match traced {
        Some(traced) => traced
            .iter()
            .filter_map(|(kind, values)| match kind {
                SourceKind::Softirq(vector) => {
                    let name = SOFTIRQS.get(*vector as usize)?;
                    timed((*name).to_owned(), (*name).to_owned(), values, window, wanted)
                }
                _ => None,
            })
            .collect(),
        None => counted
            .rows(wanted)
            .into_iter()
            .map(|(line, counts)| {
                let name = line.source.to_ascii_lowercase();
                untimed(name.clone(), name, &counts, window)
            })
            .collect(),
    };
    most_first(&mut rows);
    rows
}

fn most_first(rows: &mut [InterruptRow]) {
    let time = |row: &InterruptRow| row.total.seconds.unwrap_or(0.0);
    rows.sort_by(|a, b| {
        time(b)
            .total_cmp(&time(a))
            .then(b.total.count.cmp(&a.total.count))
            .then(a.source.cmp(&b.source))
    });
}

/// None where none came on these CPUs.
fn timed(
    source: String,
    name: String,
    values: &[Source],
    window: f64,
    wanted: &impl Fn(u32) -> bool,
) -> Option<InterruptRow> {
    let mut sum = Source::default();
    let mut per_cpu = Vec::new();
    let cpus = (0..).zip(values).filter(|(cpu, value)| wanted(*cpu) && value.count > 0);
    for (cpu, value) in cpus {
        sum.add(value);
        per_cpu.push(Handled { histogram_ns: None, ..handled(Some(cpu), value) });
    }
    let total = handled(None, &sum);
    let per_second = sum.count as f64 / window.max(f64::MIN_POSITIVE);
    (sum.count > 0).then_some(InterruptRow {
        source,
        name,
        module: None,
        per_second,
        total,
        per_cpu,
    })
}

fn handled(cpu: Option<u32>, value: &Source) -> Handled {
    Handled {
        cpu,
        count: value.count,
        seconds: Some(seconds(value.ns)),
        average_us: (value.count > 0).then(|| value.ns as f64 / value.count as f64 / 1e3),
        max_us: Some(value.max as f64 / 1e3),
        in_idle: Some(seconds(value.in_idle)),
        in_ksoftirqd: Some(seconds(value.in_ksoftirqd)),
        histogram_ns: Some(crate::probes::without_trailing_zeros(&value.histogram)),
    }
}

fn untimed(source: String, name: String, counts: &BTreeMap<u32, u64>, window: f64) -> InterruptRow {
    let count: u64 = counts.values().sum();
    InterruptRow {
        source,
        name,
        module: None,
        per_second: count as f64 / window.max(f64::MIN_POSITIVE),
        total: Handled { count, ..Handled::default() },
        per_cpu: counts
            .iter()
            .map(|(&cpu, &count)| Handled { cpu: Some(cpu), count, ..Handled::default() })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use wirecost_linux::interrupts::parse;

    use super::*;

    const BEFORE: &str = "CPU0 CPU1
 38: 10 20 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0
LOC: 100 100 Local timer interrupts
NMI: 1 0 Non-maskable interrupts
TLB: 5 5 TLB shootdowns
";
    const AFTER: &str = "CPU0 CPU1
 38: 17 20 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0
LOC: 111 113 Local timer interrupts
NMI: 4 0 Non-maskable interrupts
TLB: 9 9 TLB shootdowns
";

    fn source(count: u64, ns: u64, max: u64) -> Source {
        Source { count, ns, max, ..Source::default() }
    }

    #[test]
    fn what_is_not_traced_is_counted_by_proc() {
        let (before, after) = (parse(BEFORE), parse(AFTER));
        let counted = Counted { before: &before, after: &after };
        let drivers = BTreeMap::from([(38, "virtio_net".to_owned())]);
        let traced = BTreeMap::from([
            (SourceKind::Device(38), vec![source(7, 14_000, 3_000), source(0, 0, 0)]),
            (SourceKind::Vector(2), vec![source(2, 100, 60), source(1, 50, 50)]),
            (SourceKind::Vector(3), vec![source(3, 900, 800), source(0, 0, 0)]),
            (SourceKind::Softirq(3), vec![source(5, 5_000, 1_000), source(6, 7_000, 2_000)]),
        ]);
        let rows = interrupts(Some(&traced), counted, &drivers, 2.0, &|_| true);
        let names: Vec<&str> = rows.iter().map(|row| row.source.as_str()).collect();
        // The timer is traced and had none in the window; shootdowns are calls.
        assert_eq!(names, ["38", "CAL", "NMI"]);
        assert_eq!(rows[0].module.as_deref(), Some("virtio_net"));
        assert_eq!(rows[0].name, "virtio2-input.0");
        assert_eq!(rows[0].total.average_us, Some(2.0));
        assert_eq!(rows[0].per_second, 3.5);
        // Two vectors, one line.
        assert_eq!((rows[1].total.count, rows[1].total.max_us), (6, Some(0.8)));
        assert_eq!(rows[1].per_cpu.len(), 2);
        assert_eq!((rows[2].total.count, rows[2].total.seconds), (3, None));

        let softirqs = softirqs(Some(&traced), counted, 2.0, &|cpu| cpu == 1);
        assert_eq!((softirqs[0].source.as_str(), softirqs[0].total.count), ("net_rx", 6));
        assert_eq!(softirqs[0].total.seconds, Some(0.000_007));
    }

    #[test]
    fn without_tracing_there_are_counts_only() {
        let (before, after) = (parse(BEFORE), parse(AFTER));
        let counted = Counted { before: &before, after: &after };
        let rows = interrupts(None, counted, &BTreeMap::new(), 1.0, &|cpu| cpu == 0);
        let counts: Vec<(&str, u64)> =
            rows.iter().map(|row| (row.source.as_str(), row.total.count)).collect();
        assert_eq!(counts, [("LOC", 11), ("38", 7), ("NMI", 3)]);
        assert!(rows.iter().all(|row| row.total.seconds.is_none()));
        let text = "CPU0\nNET_RX: 7\n";
        let (before, after) = (parse("CPU0\nNET_RX: 2\n"), parse(text));
        let rows = softirqs(None, Counted { before: &before, after: &after }, 1.0, &|_| true);
        assert_eq!((rows[0].name.as_str(), rows[0].total.count), ("net_rx", 5));
    }
}
