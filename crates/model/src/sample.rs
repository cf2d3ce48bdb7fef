//! Samples: what a document holds over time, and by parts, one figure a row. A figure that was not
//! measured has no row.

/// One figure of one stretch of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Seconds since the window began.
    pub start: f64,
    /// Length of the stretch in seconds; 0 for an instant.
    pub seconds: f64,
    /// Whose figure it is; `None` for what is of all hosts.
    pub host: Option<String>,
    /// What it is of: [`SampleName::kind`].
    pub kind: String,
    /// Which one of these; `None` where there is only one.
    pub name: Option<String>,
    pub metric: String,
    pub unit: String,
    pub value: f64,
}

/// What a sample can be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleName {
    pub kind: &'static str,
    pub metric: &'static str,
    pub unit: &'static str,
}

/// Figures of one kind of thing, at an instant or of a stretch.
#[derive(Debug)]
pub struct Series<T: 'static> {
    pub kind: &'static str,
    pub figures: &'static [Figure<T>],
}

/// A figure of something: its name, its unit, and where it is found.
#[derive(Debug)]
pub struct Figure<T> {
    metric: &'static str,
    unit: &'static str,
    of: fn(&T) -> Option<f64>,
}

pub const fn figure<T>(
    metric: &'static str,
    unit: &'static str,
    of: fn(&T) -> Option<f64>,
) -> Figure<T> {
    Figure { metric, unit, of }
}

impl<T> Series<T> {
    #[must_use]
    pub fn names(&self) -> Vec<SampleName> {
        let name = |figure: &Figure<T>| SampleName {
            kind: self.kind,
            metric: figure.metric,
            unit: figure.unit,
        };
        self.figures.iter().map(name).collect()
    }
}

/// The rows of one host, or of all together.
#[derive(Debug)]
pub struct Rows<'a> {
    host: Option<&'a str>,
    into: &'a mut Vec<Sample>,
}

impl<'a> Rows<'a> {
    pub fn of(host: Option<&'a str>, into: &'a mut Vec<Sample>) -> Self {
        Self { host, into }
    }

    /// Adds what is known of one thing, by its name where there are several, from `start` on for
    /// `seconds`.
    pub fn add<T>(
        &mut self,
        series: &Series<T>,
        name: Option<&str>,
        (start, seconds): (f64, f64),
        of: &T,
    ) {
        for figure in series.figures {
            let Some(value) = (figure.of)(of) else { continue };
            self.into.push(Sample {
                start,
                seconds,
                host: self.host.map(str::to_owned),
                kind: series.kind.to_owned(),
                name: name.map(str::to_owned),
                metric: figure.metric.to_owned(),
                unit: figure.unit.to_owned(),
                value,
            });
        }
    }
}
