//! `long-haul`: whether traffic was steady over hours: outages, dips, drift, and the memory of the hosts.

use std::time::{Duration, UNIX_EPOCH};

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::stability;
use wirecost_model::document::{Axis, Cell, Chart, Column, Sample, Section, Series, Table as Rows};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Interval, Run};
use wirecost_model::units::span;

use super::Table;

/// Maximum number of outages and dips in the table of a run: the longest.
const LISTED: usize = 20;
/// Parts of a run that its chart draws, each with its lowest and highest interval.
const PARTS: usize = 200;

pub(super) struct LongHaul;

impl Table for LongHaul {
    fn name(&self) -> &'static str {
        "long-haul"
    }

    fn help(&self) -> &'static str {
        "outages, dips and drift of throughput over hours, and the hosts' memory"
    }

    fn build(&self, measured: &Measurements) -> Section {
        let mut section = Section::new("Stability over time");
        let runs: Vec<(String, &Run)> = measured.points.iter().flat_map(runs).collect();
        for (name, run) in &runs {
            let of = if runs.len() > 1 { format!("{name}: ") } else { String::new() };
            for sentence in stability::sentences(run) {
                section.text(format!("{of}{sentence}"));
            }
        }
        section.table(figures(&runs));
        for (name, run) in &runs {
            if let Some(table) = events(name, run) {
                section.table(table);
            }
            if let Some(chart) = chart(name, run) {
                section.chart(chart);
            }
        }
        section.text(
            "outage: no byte moved for a second or more although operations were under way; longest and total: lengths of outages. dip: \
             intervals with less than half of the median interval's throughput. drift: change over the whole window relative \
             to the mean, without dips, significant or not. lost: intervals that a host did not record in time. memory: growth of the \
             resident memory over the window, of the host process that grew most.",
        );
        section
    }
}

/// The valid runs of a point, each with a name.
fn runs(point: &MeasuredPoint) -> impl Iterator<Item = (String, &Run)> {
    let axes: Vec<&str> = point.point.axes.iter().map(|axis| axis.value.as_str()).collect();
    let point_name = axes.join(", ");
    let several = point.runs.len() > 1;
    (1..).zip(&point.runs).map(move |(number, run)| {
        let name = match (several, point_name.is_empty()) {
            (false, _) => point_name.clone(),
            (true, true) => format!("run {number}"),
            (true, false) => format!("{point_name}, run {number}"),
        };
        (name, run)
    })
}

fn figures(runs: &[(String, &Run)]) -> Rows {
    let mut table = Rows::new([
        Column::text("run"),
        Column::number("length"),
        Column::number("throughput"),
        Column::number("drift"),
        Column::number("dips"),
        Column::number("outages"),
        Column::number("longest"),
        Column::number("total"),
        Column::number("lost"),
        Column::number("memory"),
    ]);
    const OLDER: &str = "the record is of an older version, which did not measure it";
    for (name, run) in runs {
        let of = run.stability.as_ref();
        let length = run.window.as_ref().map(|window| window.seconds);
        let throughput = run.throughput.as_ref().map(|of| of.bits_per_second);
        let drift = of.and_then(|of| of.drift);
        let no_drift = of.and_then(|of| of.drift_reason.as_deref()).unwrap_or(OLDER);
        let dips = of.and_then(|of| of.dip_count);
        let no_dips = of.and_then(|of| of.dip_reason.as_deref()).unwrap_or(OLDER);
        let outages = of.map(|of| &of.outages);
        let longest = outages.map(|of| of.iter().map(|outage| outage.seconds).fold(0.0, f64::max));
        let all = run.window.as_ref().and_then(|window| window.dead_seconds);
        table.row(vec![
            Cell::text(if name.is_empty() { run.profile.as_str() } else { name }),
            Cell::or_missing(length, "the run has no complete window", length_of),
            Cell::or_missing(throughput, "no bytes moved", |of| {
                Cell::number(Unit::BitsPerSecond, of)
            }),
            Cell::or_missing(drift, no_drift, |drift| {
                let of = 100.0 * drift.per_hour * length.unwrap_or(0.0) / 3600.0;
                Cell::written(Unit::Percent, of, stability::signed_percent(of))
            }),
            Cell::or_missing(dips, no_dips, Cell::count),
            Cell::or_missing(of.map(|of| of.outage_count), OLDER, Cell::count),
            Cell::or_missing(longest, OLDER, length_of),
            Cell::or_missing(all, OLDER, length_of),
            Cell::or_missing(of.map(|of| of.lost_intervals), OLDER, Cell::count),
            Cell::or_missing(stability::memory_growth(run), OLDER, |of| {
                Cell::number(Unit::Bytes, of as f64)
            }),
        ]);
    }
    table
}

fn length_of(seconds: f64) -> Cell {
    let text = if seconds == 0.0 { "0 s".to_owned() } else { span(seconds) };
    Cell::written(Unit::Seconds, seconds, text)
}

/// Outages and dips of a run, the longest, in order of time.
fn events(name: &str, run: &Run) -> Option<Rows> {
    let stability = run.stability.as_ref()?;
    let outages = stability.outages.iter().map(|of| (of.start, of.seconds, "outage", 0.0));
    let dips = stability.dips.iter().map(|of| (of.start, of.seconds, "dip", of.share));
    let mut events: Vec<(f64, f64, &str, f64)> = outages.chain(dips).collect();
    if events.is_empty() {
        return None;
    }
    let all = stability.outage_count + stability.dip_count.unwrap_or(0);
    events.sort_by(|a, b| b.1.total_cmp(&a.1));
    events.truncate(LISTED);
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut table = Rows::new([
        Column::text("time (UTC)"),
        Column::number("since start"),
        Column::text("event"),
        Column::number("length"),
        Column::number("throughput"),
    ]);
    table.title = match all > events.len() as u64 {
        true => format!("outages and dips, the longest {} of {all}", events.len()),
        false => "outages and dips".to_owned(),
    };
    if !name.is_empty() {
        table.title += &format!(": {name}");
    }
    for (start, length, what, share) in events {
        table.row(vec![
            Cell::or_missing(
                wall_clock(run, start),
                "the record is of an older version, which did not save it",
                Cell::text,
            ),
            length_of(start.max(0.0)),
            Cell::text(what),
            length_of(length),
            Cell::written(Unit::Percent, 100.0 * share, format!("{:.0}%", 100.0 * share)),
        ]);
    }
    Some(table)
}

fn wall_clock(run: &Run, start: f64) -> Option<String> {
    let window = run.window.as_ref()?.started_unix_ms?;
    let since = Duration::from_millis(window as u64).as_secs_f64() + start;
    let at = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(since).ok()?)?;
    Some(humantime::format_rfc3339_seconds(at).to_string())
}

/// Throughput over time: lowest, mean and highest interval of each part, so that no dip is hidden.
fn chart(name: &str, run: &Run) -> Option<Chart> {
    let intervals = &run.intervals;
    if intervals.len() < 2 || intervals.iter().all(|of| of.bits_per_second <= 0.0) {
        return None;
    }
    let parts: Vec<&[Interval]> = intervals.chunks(intervals.len().div_ceil(PARTS)).collect();
    let series = |name: &str, of: fn(&[Interval]) -> f64| {
        let sample = |part: &&[Interval]| Sample {
            x: (part[0].start + part.iter().map(|of| of.seconds).sum::<f64>() / 2.0) * 1e6,
            y: of(part),
        };
        Series::new(name, parts.iter().map(sample).collect())
    };
    let mean = |part: &[Interval]| {
        let moved: f64 = part.iter().map(|of| of.bits_per_second * of.seconds).sum();
        moved / part.iter().map(|of| of.seconds).sum::<f64>()
    };
    let mut all = vec![series("mean", mean)];
    if parts.iter().any(|part| part.len() > 1) {
        all.insert(
            0,
            series("lowest", |part| {
                part.iter().map(|of| of.bits_per_second).fold(f64::INFINITY, f64::min)
            }),
        );
        all.push(series("highest", |part| {
            part.iter().map(|of| of.bits_per_second).fold(0.0, f64::max)
        }));
    }
    let title = match name.is_empty() {
        true => "throughput over time".to_owned(),
        false => format!("throughput over time: {name}"),
    };
    Some(Chart::over_time(&title, Axis::new("throughput", Unit::BitsPerSecond), all))
}
