//! Tables with a row for each point.

use std::fmt;

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_model::document::{Align, Cell, Column, Table};

use super::cells;

/// A column, and what stands in it of a point.
pub struct ColumnOf {
    pub column: Column,
    cell: Box<dyn Fn(&MeasuredPoint) -> Cell + Send + Sync>,
}

impl fmt::Debug for ColumnOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ColumnOf").field(&self.column).finish()
    }
}

impl ColumnOf {
    pub fn new(
        column: Column,
        cell: impl Fn(&MeasuredPoint) -> Cell + Send + Sync + 'static,
    ) -> Self {
        Self { column, cell: Box::new(cell) }
    }

    /// What an axis or a setting is. Its values are right-aligned where they are numbers.
    #[must_use]
    pub fn setting(name: &str, measured: &Measurements) -> Self {
        let values = measured.values(name);
        let numbers = !values.is_empty()
            && values.iter().all(|value| wirecost_model::study::number(value).is_some());
        let align = if numbers { Align::Right } else { Align::Left };
        let selector = name.to_owned();
        Self::new(Column { align, ..Column::text(name) }, move |point| {
            match point.point.get(&selector) {
                Some(value) => Cell::set(value),
                None => Cell::Missing(format!("{selector} is not set here")),
            }
        })
    }

    /// What was measured of a metric; of one that does not exist, that it does not.
    #[must_use]
    pub fn metric(title: &str, name: &str) -> Self {
        let selector = metrics::find(name);
        Self::new(Column::number(title), move |point| match &selector {
            Ok(selector) => cells::measured_at(point, selector),
            Err(unknown) => Cell::Missing(unknown.to_string()),
        })
    }
}

/// The columns of a table that has a row for each point.
#[derive(Debug, Default)]
pub struct Rows {
    pub columns: Vec<ColumnOf>,
}

impl Rows {
    /// The values of all axes, then these columns.
    pub(super) fn by_axes(
        measured: &Measurements,
        columns: impl IntoIterator<Item = ColumnOf>,
    ) -> Self {
        let axes = measured.axes().into_iter().map(|axis| ColumnOf::setting(axis, measured));
        Self { columns: axes.chain(columns).collect() }
    }

    /// The heads.
    #[must_use]
    pub fn head(&self) -> Vec<Column> {
        self.columns.iter().map(|column| column.column.clone()).collect()
    }

    /// The row of a point.
    #[must_use]
    pub fn row(&self, point: &MeasuredPoint) -> Vec<Cell> {
        self.columns.iter().map(|column| (column.cell)(point)).collect()
    }

    #[must_use]
    pub fn table<'a>(
        &self,
        title: &str,
        points: impl IntoIterator<Item = &'a MeasuredPoint>,
    ) -> Table {
        let rows = points.into_iter().map(|point| (self.row(point), point.point.to_string()));
        let (rows, points) = rows.unzip();
        Table { title: title.to_owned(), columns: self.head(), rows, points, ..Table::default() }
    }
}

/// Columns for the axes that a table has no columns for and that are not the same everywhere, so
/// that no two rows look alike.
pub(super) fn other_axes(measured: &Measurements, shown: &[&str]) -> Vec<ColumnOf> {
    let varies = |axis: &&str| measured.values(axis).len() > 1;
    let other = measured.axes().into_iter().filter(|axis| !shown.contains(axis)).filter(varies);
    other.map(|axis| ColumnOf::setting(axis, measured)).collect()
}
