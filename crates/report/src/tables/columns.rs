//! Tables of the columns that a study names.

use std::collections::BTreeSet;

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::document::{Cell, Section};

use super::rows::{ColumnOf, Rows};
use super::{cells, did_you_mean, nearest};

/// A column is neither set in the study nor measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no column {name}: it is no axis, no setting and no metric{}",
    did_you_mean(.nearest.as_deref())
)]
pub struct UnknownColumn {
    pub name: String,
    pub nearest: Option<String>,
}

pub(super) fn build(
    title: &str,
    columns: &[String],
    measured: &Measurements,
) -> Result<Section, UnknownColumn> {
    let mut section = Section::new(title);
    section.name = "columns".to_owned();
    section.table(rows(columns, measured)?.table("", &measured.points));
    Ok(section)
}

/// A name that is both is the setting where that is set, as `connections`.
pub(super) fn rows(columns: &[String], measured: &Measurements) -> Result<Rows, UnknownColumn> {
    let columns = columns.iter().map(|name| {
        let set = !measured.values(name).is_empty();
        match metrics::find(name) {
            Err(_) if set => Ok(ColumnOf::setting(name, measured)),
            Ok(_) if !set => Ok(ColumnOf::metric(name, name)),
            Ok(selector) => {
                let head = ColumnOf::setting(name, measured).column;
                let name = name.clone();
                Ok(ColumnOf::new(head, move |point| match point.point.get(&name) {
                    Some(value) => Cell::set(value),
                    None => cells::measured_at(point, &selector),
                }))
            }
            Err(unknown) => {
                let values = measured.points.iter().flat_map(|p| {
                    p.point.axes.iter().chain(&p.point.settings).map(|value| value.name.as_str())
                });
                let settings: BTreeSet<&str> = values.collect();
                let near = nearest(name, settings.into_iter()).or(unknown.nearest);
                Err(UnknownColumn { name: name.clone(), nearest: near.map(str::to_owned) })
            }
        }
    });
    Ok(Rows { columns: columns.collect::<Result<_, _>>()? })
}
