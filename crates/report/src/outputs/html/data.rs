//! The values of time series: once in the page, as columns of numbers, compressed.
//!
//! A column is 32-bit or 64-bit floating point numbers, the first bytes of all values, then the second
//! ones, and so on: neighbours are alike, so that they compress well. All columns together are deflated
//! and written in base64. What they are of is JSON beside them.

use std::collections::HashMap;
use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::metric::Unit;

use super::colours::{Colours, Look};

/// Values of all series together that are kept one by one.
pub(super) const ALL: usize = 1_000_000;
/// Parts of a series where there are more; of each its least, mean and most are kept.
const BUCKETS: usize = 2_000;

/// All time series of a page.
#[derive(Debug, Default)]
pub(super) struct Data {
    charts: Vec<Drawn>,
    columns: Vec<Column>,
    bytes: Vec<u8>,
    /// Columns by their bytes: many series share one column of times.
    known: HashMap<Vec<u8>, usize>,
    thinned: bool,
}

#[derive(Debug, Serialize)]
struct Column {
    /// Bytes of a value.
    width: usize,
    length: usize,
}

#[derive(Debug, Serialize)]
struct Drawn {
    /// The label of the x axis.
    time: String,
    x: Unit,
    y: Unit,
    group: Option<String>,
    /// Whether it is a low one of several that stand close together.
    panel: bool,
    /// Where the y axis ends, if not at the greatest value.
    end: Option<f64>,
    series: Vec<Line>,
}

/// A series, by numbers of columns.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    colour: usize,
    dashed: bool,
    x: usize,
    y: usize,
    /// Least and most of each bucket; null where values are kept one by one.
    low: Option<usize>,
    high: Option<usize>,
}

impl Data {
    /// For series of so many values in all.
    pub(super) fn new(values: usize) -> Self {
        Self { thinned: values > ALL, ..Self::default() }
    }

    /// Whether series are thinned.
    pub(super) fn is_thinned(&self) -> bool {
        self.thinned
    }

    pub(super) fn is_empty(&self) -> bool {
        self.charts.is_empty()
    }

    /// Adds a chart; returns its number.
    pub(super) fn add(&mut self, chart: &Chart, colours: &mut Colours) -> usize {
        let lines = chart.series.iter().map(|series| self.line(series, colours.of(&series.name)));
        let series = lines.collect();
        let group = chart.group.clone();
        self.charts.push(Drawn {
            // A page has room to say since when.
            time: match chart.x.title == Axis::time().title {
                true => "time since the window began".to_owned(),
                false => chart.x.title.clone(),
            },
            x: chart.x.unit,
            y: chart.y.unit,
            group,
            panel: chart.kind == ChartKind::Panel,
            end: chart.y.end,
            series,
        });
        self.charts.len() - 1
    }

    fn line(&mut self, series: &Series, look: Look) -> Line {
        let Look { colour, dashed } = look;
        let samples = &series.samples;
        let name = series.name.clone();
        if !self.thinned || samples.len() <= BUCKETS {
            let x = self.wide(samples.iter().map(|sample| sample.x));
            let y = self.narrow(samples.iter().map(|sample| sample.y));
            return Line { name, colour, dashed, x, y, low: None, high: None };
        }
        let buckets = buckets(samples);
        let x = self.wide(buckets.iter().map(|bucket| bucket.x));
        let y = self.narrow(buckets.iter().map(|bucket| bucket.mean));
        let low = Some(self.narrow(buckets.iter().map(|bucket| bucket.least)));
        let high = Some(self.narrow(buckets.iter().map(|bucket| bucket.most)));
        Line { name, colour, dashed, x, y, low, high }
    }

    fn wide(&mut self, values: impl Iterator<Item = f64>) -> usize {
        self.column(&values.map(f64::to_le_bytes).collect::<Vec<_>>())
    }

    /// Seven digits are more than a screen shows.
    fn narrow(&mut self, values: impl Iterator<Item = f64>) -> usize {
        self.column(&values.map(|value| (value as f32).to_le_bytes()).collect::<Vec<_>>())
    }

    fn column<const WIDTH: usize>(&mut self, values: &[[u8; WIDTH]]) -> usize {
        let plane = |byte: usize| values.iter().map(move |value| value[byte]);
        let bytes: Vec<u8> = (0..WIDTH).flat_map(plane).collect();
        if let Some(known) = self.known.get(&bytes) {
            return *known;
        }
        self.bytes.extend(&bytes);
        self.columns.push(Column { width: WIDTH, length: values.len() });
        self.known.insert(bytes, self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// What the columns are of. It can stand in a script element: it has no `<`.
    pub(super) fn described(&self) -> io::Result<String> {
        let described = serde_json::json!({ "columns": self.columns, "charts": self.charts });
        Ok(serde_json::to_string(&described)?.replace('<', "\\u003c"))
    }

    /// The columns.
    pub(super) fn packed(&self) -> io::Result<String> {
        deflated(&self.bytes)
    }
}

/// Bytes as the script of a page inflates them.
pub(super) fn deflated(bytes: &[u8]) -> io::Result<String> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(STANDARD.encode(packed.finish()?))
}

/// A part of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    x: f64,
    least: f64,
    mean: f64,
    most: f64,
}

/// Parts with as many samples each, so that none is left out.
fn buckets(samples: &[Sample]) -> Vec<Bucket> {
    let bucket = |part: &[Sample]| {
        let values = || part.iter().map(|sample| sample.y);
        Bucket {
            x: part[part.len() / 2].x,
            least: values().fold(f64::INFINITY, f64::min),
            mean: values().sum::<f64>() / part.len() as f64,
            most: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    samples.chunks(samples.len().div_ceil(BUCKETS)).map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::DeflateDecoder;
    use wirecost_model::document::Axis;

    use super::*;

    fn chart(samples: Vec<Sample>) -> Chart {
        let series = vec![Series::new("</script>", samples)];
        Chart::over_time("", Axis::new("throughput", Unit::BitsPerSecond), series)
    }

    fn samples(number: usize) -> Vec<Sample> {
        (0..number).map(|at| Sample { x: at as f64, y: (at % 7) as f64 }).collect()
    }

    /// The bytes of a column, value by value.
    fn unpacked(data: &Data) -> Vec<Vec<f64>> {
        let packed = STANDARD.decode(data.packed().unwrap()).unwrap();
        let mut bytes = Vec::new();
        DeflateDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        let mut columns = Vec::new();
        let mut from = 0;
        for &Column { width, length } in &data.columns {
            let byte = |value: usize, place: usize| bytes[from + place * length + value];
            let value = |number: usize| match width {
                8 => f64::from_le_bytes(std::array::from_fn(|place| byte(number, place))),
                _ => {
                    f64::from(f32::from_le_bytes(std::array::from_fn(|place| byte(number, place))))
                }
            };
            columns.push((0..length).map(value).collect());
            from += width * length;
        }
        columns
    }

    #[test]
    fn columns_come_back_and_shared_ones_are_there_once() {
        let mut data = Data::new(300);
        let mut colours = Colours::default();
        data.add(&chart(samples(100)), &mut colours);
        let twice = samples(100).into_iter().map(|of| Sample { y: 2.0 * of.y, ..of }).collect();
        data.add(&chart(twice), &mut colours);
        let columns = unpacked(&data);
        assert_eq!(columns.len(), 3, "the times are the same");
        assert_eq!(columns[0], (0..100).map(f64::from).collect::<Vec<_>>());
        assert_eq!(columns[2][6], 12.0);
        assert!(!data.described().unwrap().contains('<'));
    }

    #[test]
    fn a_spike_among_a_million_values_is_kept() {
        let mut many = samples(ALL + 1);
        many[777_777].y = 1e9;
        many[3].y = -5.0;
        let mut data = Data::new(many.len());
        data.add(&chart(many), &mut Colours::default());
        let columns = unpacked(&data);
        assert!(data.is_thinned() && columns[0].len() <= BUCKETS);
        let line = &data.charts[0].series[0];
        let [low, high] = [line.low, line.high].map(|column| &columns[column.unwrap()]);
        assert_eq!(high.iter().copied().fold(0.0, f64::max), 1e9);
        assert_eq!(low.iter().copied().fold(0.0, f64::min), -5.0);
    }

    #[test]
    fn a_million_values_are_below_ten_megabytes() {
        let mut random = 1u64;
        let noise = (0..ALL).map(|at| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            Sample { x: at as f64 * 1e5, y: random as f64 / 1e9 }
        });
        let mut data = Data::new(ALL);
        data.add(&chart(noise.collect()), &mut Colours::default());
        assert!(!data.is_thinned());
        let size = data.packed().unwrap().len();
        assert!(size < 10_000_000, "{size} bytes");
    }
}
