//! What `samples.parquet` is made of: the only list of its columns. docs/records.md describes them; a
//! test finds drift.

/// Version of the columns, in the file's key-value metadata. Adding a column keeps it, changing or
/// removing one makes a new one.
pub const FORMAT: &str = "wirecost.samples/1";
pub const FORMAT_KEY: &str = "wirecost.format";

/// One figure of one stretch of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Seconds since the window began.
    pub start: f64,
    /// Length of the stretch in seconds; 0 for an instant.
    pub seconds: f64,
    /// Whose figure it is; `None` for what is of all hosts.
    pub host: Option<String>,
    /// What it is of: a kind of [`crate::samples::figures`].
    pub kind: String,
    /// Which one of these; `None` where there is only one.
    pub name: Option<String>,
    pub metric: String,
    pub unit: String,
    pub value: f64,
}

/// A column, and where in a [`Sample`] its values are.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    pub(crate) field: Field,
}

#[derive(Debug)]
pub(crate) enum Field {
    Number(fn(&Sample) -> f64),
    Text(fn(&Sample) -> &str),
    Optional(fn(&Sample) -> Option<&str>),
}

const fn column(name: &'static str, field: Field) -> Column {
    Column { name, field }
}

/// In the order of the file.
pub const COLUMNS: [Column; 8] = [
    column("start", Field::Number(|sample| sample.start)),
    column("seconds", Field::Number(|sample| sample.seconds)),
    column("host", Field::Optional(|sample| sample.host.as_deref())),
    column("kind", Field::Text(|sample| &sample.kind)),
    column("name", Field::Optional(|sample| sample.name.as_deref())),
    column("metric", Field::Text(|sample| &sample.metric)),
    column("unit", Field::Text(|sample| &sample.unit)),
    column("value", Field::Number(|sample| sample.value)),
];
