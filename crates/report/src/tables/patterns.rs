//! Traffic patterns between CPUs, and the CPU time by layer of the stack in each, grouped as in
//! "Understanding Host Network Stack Overheads" (Cai et al., SIGCOMM 2021),
//! <https://doi.org/10.1145/3452296.3472888>.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::Scope;
use wirecost_model::document::{
    Align::{self, Left, Right},
    Block, Cell, Number, Part, Parts, Section, Table,
};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{FunctionsSection, LayerShare};
use wirecost_model::proportion::Proportion;
use wirecost_model::run::Run;
use wirecost_model::study::Value;

use super::cells::{
    at, ends, estimate, figure, first, grouped, label, of, of_estimate, scaled, sentence,
    share_of_runs, table, text,
};

/// The paper's names and our layers. What is in none of them is `other`.
const GROUPS: [(&str, &[&str]); 8] = [
    ("copy", &["copy"]),
    ("TCP/IP", &["socket", "TCP/UDP", "IP"]),
    ("netdev", &["qdisc", "driver", "NAPI/GRO"]),
    ("skb", &["skb memory"]),
    ("memory", &["memory", "address space", "DMA"]),
    ("lock", &["locks"]),
    ("sched", &["scheduler"]),
    ("app", &["application"]),
];

pub(super) struct Patterns;

impl super::Table for Patterns {
    fn name(&self) -> &'static str {
        "patterns"
    }

    fn help(&self) -> &'static str {
        "patterns of traffic, and the CPU time by layer of the stack"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }
}

fn build(measured: &Measurements) -> Section {
    let ends = ends(measured, ["master", "peer"]);
    let mut blocks = vec![Block::Table(traffic(measured, &ends))];
    blocks.extend(cpus(measured).map(sentence));
    for end in &ends {
        blocks.push(Block::Table(layers(measured, *end)));
    }
    blocks.push(sentence(explain(measured, &ends)));
    Section { blocks, ..Section::new("Traffic patterns") }
}

fn explain(measured: &Measurements, ends: &[Option<&'static str>]) -> String {
    let of = |(group, layers): &(&str, &[&str])| format!("{group}: {}", layers.join(", "));
    let all: Vec<String> = GROUPS.iter().map(of).collect();
    let each = measured.points.iter().flat_map(|point| ends.iter().map(move |end| (point, *end)));
    let rows: Vec<Pooled> = each.filter_map(|(point, end)| pooled(point, end).ok()).collect();
    let parts = rows.iter().flat_map(|row| &row.parts);
    let reach = parts.map(|part| 50.0 * (part.interval.1 - part.interval.0)).reduce(f64::max);
    let least = rows.iter().map(|row| row.samples).min();
    let samples = least.zip(reach).map_or_else(String::new, |(least, reach)| {
        format!(
            " Each row has {least} samples or more: 95% intervals of its parts are at most \u{b1}{reach:.1} \
             points, by how much blocks of time or runs differ."
        )
    });
    format!(
        "CPU: percent busy, {}. Layers: percent of that busy time, of all programs (docs/layers.md). \
         {}; other: everything else, such as \
         system call entry, interrupts, the observer, and functions without a layer.{samples}",
        match ends {
            [None] => "of all CPUs",
            _ => "of the sender's and the receiver's CPUs",
        },
        all.join("; ")
    )
}

/// What a column of an end is called.
fn called(end: Option<&str>, what: &str) -> String {
    match end {
        Some("master") => format!("{what}, sender"),
        Some(_) => format!("{what}, receiver"),
        None => what.to_owned(),
    }
}

fn traffic(measured: &Measurements, ends: &[Option<&'static str>]) -> Table {
    let mut columns: Vec<(String, Align)> = vec![
        ("Pattern".to_owned(), Left),
        ("flows".to_owned(), Right),
        ("workers".to_owned(), Right),
        ("Throughput".to_owned(), Right),
    ];
    columns.extend(ends.iter().map(|end| (called(*end, "cycles/KByte"), Right)));
    columns.push(("CPU, %".to_owned(), Right));
    let columns: Vec<(&str, Align)> =
        columns.iter().map(|(title, align)| (title.as_str(), *align)).collect();
    let mut table = table("Patterns", &columns);
    table.rows.extend(measured.points.iter().map(|point| {
        let mut row = vec![
            text(label(point)),
            scaled(point, "connections", 1.0, grouped),
            first(point).and_then(workers).map_or_else(Cell::Missing, text),
            figure(point, "throughput"),
        ];
        let cycles =
            |end: &Option<&str>| scaled(point, &at(*end, "cycles_per_kbyte"), 1.0, grouped);
        row.extend(ends.iter().map(cycles));
        row.push(busy(point, ends));
        row
    }));
    table
}

/// Of each end, in percent: `100/98`.
fn busy(point: &MeasuredPoint, ends: &[Option<&'static str>]) -> Cell {
    let part = |end: &Option<&'static str>| {
        let estimate = estimate(point, |run| of(run, &at(*end, "cpu.busy")))?;
        let text = format!("{:.0}", estimate.mean);
        let number = Number { text, ..of_estimate(Unit::Percent, &estimate) };
        Ok(Part { name: end.unwrap_or("all").to_owned(), number })
    };
    let parts: Result<Vec<Part>, String> = ends.iter().map(part).collect();
    match parts {
        Ok(parts) => {
            let texts: Vec<&str> = parts.iter().map(|part| part.number.text.as_str()).collect();
            Cell::Parts(Parts { text: texts.join("/"), parts })
        }
        Err(reason) => Cell::Missing(reason),
    }
}

/// `4 to 1`: of the master and of a peer.
fn workers(run: &Run) -> Result<String, String> {
    let of = |role: &str| Ok::<_, String>(Scope::find(run, Some(role))?.hosts());
    let all = of("master")?.into_iter().chain(of("peer")?);
    let numbers: Vec<String> = all.map(|host| host.workers.to_string()).collect();
    Ok(numbers.join(" to "))
}

/// Where a host has more workers than CPUs a pattern is not what it is called.
fn cpus(measured: &Measurements) -> Option<String> {
    let hosts = || measured.points.iter().flat_map(|p| p.runs.iter().flat_map(|run| &run.hosts));
    let mut crowded: Vec<(&str, usize)> = Vec::new();
    for host in hosts().filter(|host| host.workers as usize > host.cpus.len()) {
        if !crowded.iter().any(|(name, _)| *name == host.name) {
            crowded.push((&host.name, host.cpus.len()));
        }
    }
    let names: Vec<String> = crowded
        .iter()
        .map(|(name, cpus)| format!("{name} {cpus} CPU{}", if *cpus == 1 { "" } else { "s" }))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "Fewer CPUs than workers: {}. Workers shared CPUs there, so patterns between CPUs are only \
             patterns between threads. Use hosts with a CPU for each worker.",
            names.join(", ")
        )
    })
}

fn layers(measured: &Measurements, end: Option<&str>) -> Table {
    let mut columns: Vec<(&str, Align)> = vec![("Pattern", Left)];
    columns.extend(GROUPS.iter().map(|(group, _)| (*group, Right)));
    columns.push(("other", Right));
    let mut table = table(called(end, "CPU time by layer, %"), &columns);
    table.common.push(Value::new("host", end.unwrap_or("all")));
    table.rows.extend(measured.points.iter().map(|point| {
        let mut row = vec![text(label(point))];
        match pooled(point, end) {
            Ok(pooled) => row.extend(pooled.parts.iter().map(percent)),
            Err(reason) => row.extend(vec![Cell::Missing(reason); GROUPS.len() + 1]),
        }
        row
    }));
    table
}

/// Shares of the groups, then of the rest, over all runs. They add up to 1.
struct Pooled {
    parts: Vec<Proportion>,
    samples: u64,
}

fn pooled(point: &MeasuredPoint, end: Option<&str>) -> Result<Pooled, String> {
    let section = |run| -> Result<&FunctionsSection, String> {
        let section = Scope::find(run, end)?.functions()?;
        (section.samples > 0)
            .then_some(section)
            .ok_or_else(|| "the sampler has no samples".to_owned())
    };
    section(first(point)?)?;
    let sections: Vec<_> = point.runs.iter().filter_map(|run| section(run).ok()).collect();
    let parts = (0..=GROUPS.len()).map(|group| match sections.as_slice() {
        [only] => Proportion::worth(share(only, group), independent(only, group)),
        _ => {
            let of_runs = sections.iter().map(|section| (share(section, group), section.samples));
            share_of_runs(&of_runs.collect::<Vec<_>>())
        }
    });
    let samples = sections.iter().map(|section| section.samples).sum();
    Ok(Pooled { parts: parts.collect(), samples })
}

/// The group of a layer; that of the rest comes after them.
fn group_of(layer: &LayerShare) -> usize {
    let group = GROUPS.iter().position(|(_, of)| of.contains(&layer.layer.as_str()));
    group.unwrap_or(GROUPS.len())
}

fn share(section: &FunctionsSection, group: usize) -> f64 {
    let unmapped = section.unmapped.unwrap_or(0.0);
    let rest = if group == GROUPS.len() { unmapped } else { 0.0 };
    let layers = section.layers.iter().filter(|layer| group_of(layer) == group);
    layers.fold(rest, |sum, layer| sum + layer.share)
}

/// How many independent samples a part of one run is worth: those of its least certain layer, whose
/// intervals are as wide as blocks of time differ.
fn independent(section: &FunctionsSection, group: usize) -> f64 {
    let worth = |layer: &LayerShare| {
        Proportion { share: layer.share, interval: layer.interval }.independent()
    };
    let here = section.layers.iter().filter(|layer| group_of(layer) == group).map(worth);
    // Of no layer of its own no more is known than of others.
    let all = || section.layers.iter().map(worth).reduce(f64::min);
    let samples = section.samples as f64;
    here.reduce(f64::min).or_else(all).map_or(samples, |worth| worth.min(samples))
}

fn percent(part: &Proportion) -> Cell {
    let (low, high) = part.interval;
    Cell::Number(Number {
        value: 100.0 * part.share,
        interval: Some((100.0 * low, 100.0 * high)),
        text: format!("{:.1}", 100.0 * part.share),
        unit: Unit::Percent,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, fixture, section, value};
    use super::*;

    const COLUMNS: [&str; 9] =
        ["copy", "TCP/IP", "netdev", "skb", "memory", "lock", "sched", "app", "other"];

    #[test]
    fn no_layer_is_lost() {
        let measured = fixture("patterns");
        let section = section("patterns", &measured);
        for title in ["CPU time by layer, %, sender", "CPU time by layer, %, receiver"] {
            for point in &measured.points {
                let of = |column: &&str| value(&section, title, &label(point), column);
                let all: f64 = COLUMNS.iter().map(of).sum();
                assert!((all - 100.0).abs() < 1e-9, "{title} {}: {all}", label(point));
            }
        }
        let tcp = value(&section, "CPU time by layer, %, sender", "all-to-all", "TCP/IP");
        assert!((tcp - 9.427_609_427_6).abs() < 1e-9, "{tcp}");
        let copy = value(&section, "CPU time by layer, %, receiver", "incast", "copy");
        assert!((copy - 15.254_237_288_1).abs() < 1e-9, "{copy}");
    }

    /// The document lists every layer that there is.
    #[test]
    fn the_groups_are_made_of_layers() {
        let document = include_str!("../../../../docs/layers.md");
        let lines = document.lines().filter_map(|line| line.strip_prefix("| "));
        let layers: Vec<&str> = lines.filter_map(|line| Some(line.split_once(" |")?.0)).collect();
        let mut seen = Vec::new();
        for layer in GROUPS.iter().flat_map(|(_, layers)| *layers) {
            assert!(layers.contains(layer), "{layer} is none of {layers:?}");
            assert!(!seen.contains(layer), "{layer} is there twice");
            seen.push(*layer);
        }
    }

    #[test]
    fn workers_are_told_and_where_they_share_a_cpu_it_is_said() {
        let measured = fixture("patterns");
        let section = section("patterns", &measured);
        assert_eq!(*at(&section, "Patterns", "incast", "workers"), text("4 to 1"));
        assert_eq!(*at(&section, "Patterns", "outcast", "workers"), text("1 to 4"));
        assert_eq!(value(&section, "Patterns", "all-to-all", "flows"), 16.0);
        assert_eq!(value(&section, "Patterns", "mixed", "flows"), 17.0);
        assert!(
            cpus(&measured).unwrap().starts_with("Fewer CPUs than workers: h1 1 CPU, h2 1 CPU.")
        );
        let mut one = measured;
        one.points.truncate(1);
        assert_eq!(cpus(&one), None);
    }

    #[test]
    fn samples_of_several_runs_count_by_their_number() {
        let mut measured = fixture("patterns");
        let point = &mut measured.points[0];
        let mut second = point.runs[0].clone();
        for observed in second.observe.iter_mut().flat_map(|observe| &mut observe.hosts) {
            // Twice as many, all in the copy.
            let functions = observed.functions.as_mut().unwrap();
            functions.samples *= 2;
            functions.unmapped = Some(0.0);
            for layer in &mut functions.layers {
                layer.share = if layer.layer == "copy" { 1.0 } else { 0.0 };
            }
        }
        let once = pooled(point, Some("master")).unwrap();
        point.runs.push(second);
        let twice = pooled(point, Some("master")).unwrap();
        assert_eq!(twice.samples, 3 * once.samples);
        let (once, twice) = (once.parts[0], twice.parts[0]);
        assert!((twice.share - (once.share + 2.0) / 3.0).abs() < 1e-12);
        // Runs that differ so much leave the share open, however many samples they have.
        assert_eq!(twice.interval, (0.0, 1.0));
    }

    /// A layer that runs in bursts is known no better than its blocks of time say.
    #[test]
    fn bursts_widen_the_interval_of_a_group() {
        let mut measured = fixture("patterns");
        let width = |measured: &Measurements| {
            let (low, high) =
                pooled(&measured.points[0], Some("master")).unwrap().parts[0].interval;
            high - low
        };
        let steady = width(&measured);
        let runs = measured.points[0].runs.iter_mut();
        for observed in runs.flat_map(|run| &mut run.observe.as_mut().unwrap().hosts) {
            let functions = observed.functions.as_mut().unwrap();
            let few = functions.samples as f64 / 16.0;
            for layer in functions.layers.iter_mut().filter(|layer| layer.layer == "copy") {
                layer.interval = Proportion::worth(layer.share, few).interval;
            }
        }
        let bursts = width(&measured);
        assert!((3.0..6.0).contains(&(bursts / steady)), "{bursts} {steady}");
        let text = explain(&measured, &[Some("master"), Some("peer")]);
        assert!(text.contains(&format!("at most \u{b1}{:.1} points", 50.0 * bursts)), "{text}");
    }
}
