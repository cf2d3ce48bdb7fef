//! Figures that are drawn: over time, by what was set, or as shares.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::Verdict;
use crate::metric::{Better, Unit};

/// Series over a common axis. Every output has its figures as a table; only pages draw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chart {
    pub title: String,
    /// How it is drawn.
    pub kind: ChartKind,
    pub x: Axis,
    /// Of a heat map, what its colours mean; its rows are the series.
    pub y: Axis,
    pub series: Vec<Series>,
    /// Places on the x axis that matter, such as a knee.
    pub marks: Vec<Mark>,
    /// Charts of one group have the same x axis and are read together; null for a chart alone.
    pub group: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// Lines over time; there can be very many samples.
    #[default]
    Lines,
    /// The same, low: charts of one group stand close below one another, and what is at one time is in one column.
    Panel,
    /// Means with intervals, and each run as a dot, over what was set.
    Curve,
    /// A level that holds until the next sample: cumulative distributions.
    Steps,
    /// Bars of shares that lie on one another, one for each name of the x axis.
    Stack,
    /// Bars that touch one another: how often a value was in a range. A sample is where its range begins.
    Histogram,
    /// A grid of two axes whose cells have colours: each series is a row, named by its value.
    HeatMap,
    /// Forest plot: a row with an interval for each name of the x axis, grouped by series. Ratios are drawn beside a
    /// line at 1, all else beside a line at 0.
    Forest,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    pub title: String,
    pub unit: Unit,
    pub scale: AxisScale,
    /// Values that have names, such as what was set as it is written: `64k` at 65536.
    pub labels: Vec<AxisLabel>,
    /// Where it ends, of lines over time; null where the greatest value says it.
    pub end: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AxisLabel {
    pub at: f64,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AxisScale {
    /// Begins at 0.
    #[default]
    Linear,
    /// For values that span orders of magnitude; all are greater than 0.
    Logarithmic,
    /// Of things that have no order: those with labels, at 0, 1, 2...
    Names,
    /// Of percentiles close to 100: each decade of what is left of 100 has the same width, as in plots of
    /// HdrHistogram. All are less than 100.
    Tail,
}

impl Axis {
    #[must_use]
    pub fn new(title: &str, unit: Unit) -> Self {
        let (scale, labels) = (AxisScale::Linear, Vec::new());
        Self { title: title.to_owned(), unit, scale, labels, end: None }
    }

    /// Of time since the window began. Values are in microseconds, as those of [`Unit::Microseconds`] are.
    #[must_use]
    pub fn time() -> Self {
        Self::new("time", Unit::Microseconds)
    }

    /// Of things that have names.
    #[must_use]
    pub fn of_names(title: &str, names: impl IntoIterator<Item = String>) -> Self {
        let labels = names.into_iter().enumerate();
        let labels = labels.map(|(place, text)| AxisLabel { at: place as f64, text }).collect();
        Self { scale: AxisScale::Names, labels, ..Self::new(title, Unit::Count) }
    }

    #[must_use]
    pub fn until(self, end: f64) -> Self {
        Self { end: Some(end), ..self }
    }

    #[must_use]
    pub fn logarithmic(self) -> Self {
        Self { scale: AxisScale::Logarithmic, ..self }
    }

    /// Of percentiles up to those close to 100.
    #[must_use]
    pub fn percentiles() -> Self {
        Self { scale: AxisScale::Tail, ..Self::new("percentile", Unit::Percent) }
    }

    /// A value as a person reads it: its name, or the number with its unit.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        match self.labels.iter().find(|label| label.at == value) {
            Some(label) => label.text.clone(),
            None if self.scale == AxisScale::Tail => percentile(value),
            None => super::show(self.unit, value),
        }
    }
}

/// `99.9`, with the digits that tell it from 100.
fn percentile(value: f64) -> String {
    // What is left of 100 has two significant digits: 99.9, 99.95, 99.998.
    let left = (100.0 - value).max(1e-9);
    let digits = (1.0 - left.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// One line of a chart, one part of each bar, or one row of a heat map.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    pub name: String,
    pub role: SeriesRole,
    /// In the order of `x`. Where nothing was measured there is none.
    pub samples: Vec<Sample>,
    /// 95% intervals of the samples, in their order; empty where none has one.
    pub intervals: Vec<Option<(f64, f64)>>,
    /// The runs that the samples are means of.
    pub runs: Vec<RunSample>,
    /// Of a forest plot: which direction is better; null where that is not known.
    pub better: Option<Better>,
    /// Of a forest plot: what each sample says of B, in their order; empty where nothing is compared.
    pub verdicts: Vec<Verdict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesRole {
    #[default]
    Measured,
    /// A law that was fitted to what was measured.
    Fit,
    /// Of all samples of the series before it together.
    Summary,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    pub x: f64,
    pub y: f64,
}

/// The figure of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSample {
    /// Its name, as the list of runs has it.
    pub run: String,
    pub x: f64,
    pub y: f64,
}

/// A place on the x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    pub label: String,
    pub x: f64,
    /// 95% interval; null where there is none.
    pub interval: Option<(f64, f64)>,
}

impl Chart {
    /// Without anything in it.
    #[must_use]
    pub fn new(title: &str, kind: ChartKind, x: Axis, y: Axis) -> Self {
        let (series, marks, group) = (Vec::new(), Vec::new(), None);
        Self { title: title.to_owned(), kind, x, y, series, marks, group }
    }

    /// Lines over time.
    #[must_use]
    pub fn over_time(title: &str, y: Axis, series: Vec<Series>) -> Self {
        Self { series, ..Self::new(title, ChartKind::Lines, Axis::time(), y) }
    }

    /// Whether the page's script draws it, of which there can be very many samples.
    #[must_use]
    pub fn is_over_time(&self) -> bool {
        matches!(self.kind, ChartKind::Lines | ChartKind::Panel)
    }

    /// Whether there is anything to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.samples.is_empty())
    }
}

impl Series {
    #[must_use]
    pub fn new(name: &str, samples: Vec<Sample>) -> Self {
        Self { name: name.to_owned(), samples, ..Self::default() }
    }
}
