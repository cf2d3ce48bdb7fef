//! What `samples.parquet` is made of: the only list of its columns. docs/records.md describes them; a
//! test finds drift.

use wirecost_model::sample::Sample;

/// Version of the columns, in the file's key-value metadata. Adding a column keeps it, changing or
/// removing one makes a new one.
pub const FORMAT: &str = "wirecost.samples/1";
pub const FORMAT_KEY: &str = "wirecost.format";

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
