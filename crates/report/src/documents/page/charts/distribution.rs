//! Latency in full: by percentile with the far tail, and as a histogram; of a run, and of the points of a study.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::histogram::{Histogram, PackedHistogram};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;
use wirecost_model::units;

use super::Built;
use super::points::{Names, varying};

const TITLE: &str = "Latency by percentile";
/// Samples of a curve for each nine.
const STEPS: u32 = 16;
/// Curves of one chart; more of them cannot be told apart.
const CURVES: usize = 8;
/// Rows of a heat map.
const ROWS: usize = 40;
/// Columns of a heat map that have room for a figure.
const COLUMNS: usize = 16;
/// Where bars of a histogram begin between two powers of two, in parts of 128. Histograms have 128 buckets there, so
/// that each bar has whole ones.
const QUARTERS: [u64; 4] = [128, 152, 181, 215];
/// Records of earlier versions.
const OLD: &str = "the record has percentiles of latency, not its histogram";

/// Of a run: curves of its transactions and each of its flowops, and a histogram of its transactions.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_run(run: &Run) -> Built {
    if run.latency_us.is_none() {
        return Err("no transaction ended in the window".to_owned());
    }
    let transactions = unpacked(run.latency_histogram.as_ref())?;
    let mut all = vec![("transactions".to_owned(), transactions.clone())];
    let rows = || run.flowops.iter().filter(|row| row.latency_histogram.is_some());
    if rows().count() > 1 {
        for row in rows() {
            let name = format!("{} ({:?})", row.kind, row.side).to_lowercase();
            all.push((name, unpacked(row.latency_histogram.as_ref())?));
        }
    }
    let mut charts = vec![curves(TITLE, &all)];
    let bars = bars(&transactions);
    if bars.len() > 2 {
        let x = Axis::new("latency", Unit::Microseconds).logarithmic();
        let y = Axis::new("share of transactions", Unit::Percent);
        let mut chart = Chart::new("Histogram of latency", ChartKind::Histogram, x, y);
        chart.series.push(Series::new("transactions", bars));
        charts.push(chart);
    }
    Ok(charts)
}

/// Of a study: a curve of each point, of its runs together, and how often latencies of each range were.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_points(measured: &Measurements) -> Built {
    let axes = varying(measured);
    let names = Names::of(measured.points.iter().map(|point| &point.point), &axes);
    let mut all: Vec<(String, Histogram)> = Vec::new();
    let mut reason = "no transaction ended in the window".to_owned();
    for point in &measured.points {
        match merged(point) {
            Ok(histogram) => all.push((names.name(&point.point), histogram)),
            Err(why) => reason = why,
        }
    }
    all.retain(|(_, histogram)| !histogram.is_empty());
    if all.is_empty() {
        return Err(reason);
    }
    let ranges = ranges(&all);
    let shown = spread(&mut all.clone());
    let title = match all.len() > shown.len() {
        true => format!(
            "{TITLE}, {} of {} points from the fastest to the slowest",
            shown.len(),
            all.len()
        ),
        false => TITLE.to_owned(),
    };
    Ok([Some(curves(&title, &shown)), ranges].into_iter().flatten().collect())
}

fn unpacked(packed: Option<&PackedHistogram>) -> Result<Histogram, String> {
    packed.ok_or(OLD)?.unpack()
}

/// All runs of a point together.
fn merged(point: &MeasuredPoint) -> Result<Histogram, String> {
    let mut all = Histogram::new();
    for run in point.runs.iter().filter(|run| run.latency_us.is_some()) {
        all.merge(&unpacked(run.latency_histogram.as_ref())?);
    }
    Ok(all)
}

/// Some of many, from the smallest to the largest p99.
fn spread(all: &mut [(String, Histogram)]) -> Vec<(String, Histogram)> {
    if all.len() <= CURVES {
        return all.to_vec();
    }
    all.sort_by_key(|(_, histogram)| histogram.quantile(0.99));
    let place = |number: usize| number * (all.len() - 1) / (CURVES - 1);
    (0..CURVES).map(|number| all[place(number)].clone()).collect()
}

fn curves(title: &str, all: &[(String, Histogram)]) -> Chart {
    let y = Axis::new("latency", Unit::Microseconds).logarithmic();
    let mut chart = Chart::new(title, ChartKind::Curve, Axis::percentiles(), y);
    chart.series = all.iter().map(|(name, of)| Series::new(name, curve(of))).collect();
    chart.series.retain(|series| !series.samples.is_empty());
    chart
}

/// Latency at percentiles, the nearer to one another the closer they are to 100, up to the longest latency of all.
fn curve(of: &Histogram) -> Vec<Sample> {
    let count = of.count() as f64;
    let steps = (0..).map(|step| 10f64.powf(-f64::from(step) / f64::from(STEPS)));
    let lefts = steps.take_while(|left| left * count > 1.0);
    let mut lefts: Vec<f64> = lefts.chain([1.0 / count]).collect();
    // The median is no step of tenths.
    let median = lefts.iter().position(|left| *left < 0.5).filter(|_| count > 2.0);
    if let Some(place) = median {
        lefts.insert(place, 0.5);
    }
    let sample = |left: f64| {
        let y = of.quantile(1.0 - left)? as f64 / 1e3;
        Some(Sample { x: 100.0 * (1.0 - left), y })
    };
    let mut samples: Vec<Sample> = lefts.into_iter().filter_map(sample).collect();
    // Of all that are left the longest.
    if let (Some(last), Some(longest)) = (samples.last_mut(), of.max()) {
        last.y = longest as f64 / 1e3;
    }
    // A logarithm has no place for 0.
    samples.retain(|sample| sample.y > 0.0);
    samples
}

/// Percent of all values from the beginning of each range to that of the next, without empty ranges at both ends.
fn bars(of: &Histogram) -> Vec<Sample> {
    let mut places: Vec<u64> = (0..42_u32)
        .flat_map(|octave| QUARTERS.map(|part| u128::from(part) << octave >> 7))
        .filter_map(|place| u64::try_from(place).ok())
        .collect();
    // Of few nanoseconds several are the same.
    places.dedup();
    let all = of.count().max(1) as f64;
    let shares: Vec<Sample> = places
        .windows(2)
        .map(|ends| Sample {
            x: ends[0] as f64 / 1e3,
            y: 100.0 * of.count_between(ends[0], ends[1]) as f64 / all,
        })
        .collect();
    let is_full = |bar: &Sample| bar.y > 0.0;
    let (Some(first), Some(last)) =
        (shares.iter().position(is_full), shares.iter().rposition(is_full))
    else {
        return Vec::new();
    };
    // An empty one at the end says where the last ends.
    shares[first..(last + 2).min(shares.len())].to_vec()
}

/// A row for each point, a column for each range: how many percent of its transactions took as long.
fn ranges(all: &[(String, Histogram)]) -> Option<Chart> {
    if all.len() < 2 || all.len() > ROWS {
        return None;
    }
    let octave = |nanos: Option<u64>| nanos.map(|nanos| nanos.max(1).ilog2());
    let first = all.iter().filter_map(|(_, of)| octave(of.min())).min()?;
    let last = all.iter().filter_map(|(_, of)| octave(of.max())).max()?;
    // Each column twice as long as the one before, or four times, and so on.
    let width = ((last - first + 1) as usize).div_ceil(COLUMNS) as u32;
    let begins: Vec<u32> = (first..=last).step_by(width as usize).collect();
    let from = |octave: u32| units::latency((1_u64 << octave.min(63)) as f64 / 1e3);
    let x = Axis::of_names("latency from", begins.iter().map(|octave| from(*octave)));
    let y = Axis::new("share of the point's transactions", Unit::Percent);
    let mut chart = Chart::new("How often transactions took how long", ChartKind::HeatMap, x, y);
    for (name, of) in all {
        let share = |(place, begin): (usize, &u32)| {
            let ends = [*begin, begin + width].map(|octave| 1_u64 << octave.min(63));
            let share = of.count_between(ends[0], ends[1]) as f64 / of.count().max(1) as f64;
            (share > 0.0).then_some(Sample { x: place as f64, y: 100.0 * share })
        };
        chart.series.push(Series::new(name, begins.iter().enumerate().filter_map(share).collect()));
    }
    (begins.len() > 1).then_some(chart)
}

#[cfg(test)]
mod tests {
    use wirecost_model::run::Latency;

    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn a_curve_ends_at_the_longest_latency() {
        let samples = curve(&of((1..=10_000).map(|rank| rank * 1000)));
        let last = samples.last().unwrap();
        assert!((last.y - 10_000.0).abs() < 100.0 && (last.x - 99.99).abs() < 1e-9, "{last:?}");
        let median = samples.iter().min_by_key(|of| ((of.x - 50.0).abs() * 1e6) as u64).unwrap();
        assert!((median.y / (100.0 * median.x) - 1.0).abs() < 0.02, "{median:?}");
        assert!(samples.windows(2).all(|pair| pair[0].x < pair[1].x && pair[0].y <= pair[1].y));
        // Four nines, each with its steps.
        assert!((4 * STEPS as usize..=4 * STEPS as usize + 3).contains(&samples.len()));
        assert_eq!(curve(&of([7_000])).len(), 1);
        assert!(curve(&of([])).is_empty());
    }

    #[test]
    fn bars_have_everything_once() {
        for values in [vec![3, 5, 900, 1000, 70_000_000_000], vec![1], (1..5000).collect()] {
            let bars = bars(&of(values.clone()));
            let sum: f64 = bars.iter().map(|bar| bar.y).sum();
            assert!((sum - 100.0).abs() < 1e-6, "{sum} of {values:?}");
            assert!(bars.windows(2).all(|pair| pair[0].x < pair[1].x));
        }
        assert!(bars(&of([])).is_empty());
    }

    #[test]
    fn rows_of_the_heat_map_have_everything_once() {
        let all = [("a", of(1..5000)), ("b", of([70, 8_000_000_000]))];
        let chart = ranges(&all.map(|(name, of)| (name.to_owned(), of))).unwrap();
        assert!(chart.x.labels.len() <= COLUMNS, "{}", chart.x.labels.len());
        for series in &chart.series {
            let sum: f64 = series.samples.iter().map(|sample| sample.y).sum();
            assert!((sum - 100.0).abs() < 1e-6, "{sum} of {}", series.name);
        }
    }

    #[test]
    fn an_older_record_says_what_it_lacks() {
        let mut run = Run::empty("@rr", "epoll", "0.1.0", 0);
        assert!(of_run(&run).unwrap_err().contains("no transaction"));
        run.latency_us = Some(Latency {
            p50: 1.0,
            p90: 1.0,
            p99: 1.0,
            p999: 1.0,
            max: 1.0,
            mean: 1.0,
            trimmed_mean: None,
            count: 1,
        });
        assert_eq!(of_run(&run).unwrap_err(), OLD);
        run.latency_histogram = Some(PackedHistogram::from(&of([1000, 2000, 50_000])));
        assert_eq!(of_run(&run).unwrap().len(), 2);
        // A record may hold anything.
        run.latency_histogram = Some(serde_json::from_str("\"HISTFAAA\"").unwrap());
        assert!(of_run(&run).unwrap_err().contains("bad histogram"));
    }

    #[test]
    fn of_many_points_the_fastest_and_the_slowest_are_shown() {
        let mut all: Vec<(String, Histogram)> =
            (1..=30_u64).map(|place| (place.to_string(), of([1000 * place]))).collect();
        let shown = spread(&mut all);
        assert_eq!((shown.len(), shown[0].0.as_str(), shown[7].0.as_str()), (8, "1", "30"));
    }
}
