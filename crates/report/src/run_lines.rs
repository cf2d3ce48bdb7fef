//! The finished runs of a study that is under way, a line each, in the columns of one of its tables.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_model::document::{Cell, Column};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::Point;

use crate::outputs::{Lines, TerminalStyle, cut, width};
use crate::tables::{Rows, TableRequest};

#[derive(Debug)]
pub struct RunLines<'a> {
    table: &'a TableRequest,
    style: TerminalStyle,
    /// All points of the study. None keeps its runs: a study may have more than memory.
    measured: Measurements,
    /// Chosen by the first run that counts: which columns suit depends on what was measured, and a line
    /// must not have others than the head above it.
    columns: Option<(Rows, Lines)>,
}

impl<'a> RunLines<'a> {
    pub fn new(table: &'a TableRequest, points: &[Point], style: TerminalStyle) -> Self {
        let points = points.iter().map(MeasuredPoint::not_measured).collect();
        Self { table, style, measured: Measurements { points }, columns: None }
    }

    /// The line of a finished run. The first that has figures comes with the heads of the columns.
    /// `number` is `3/12`, `place` that of its point, `remark` what stands behind it. The reason of one
    /// that failed is as long as it is.
    pub fn of(&mut self, number: &str, place: usize, run: &Run, remark: &str) -> Vec<String> {
        let Some(point) = self.measured.points.get_mut(place) else { return Vec::new() };
        if run.status != Status::Ok {
            let reason = run.error.as_deref().unwrap_or("without figures");
            return vec![format!("  {number}  {}{remark}: {reason}", point.point)];
        }
        point.runs.push(run.clone());
        let row = |rows: &Rows, number: &str, point: &MeasuredPoint| {
            let mut cells = vec![Cell::text(number)];
            cells.extend(rows.row(point));
            cells
        };
        let mut shown = Vec::new();
        if self.columns.is_none() {
            let rows = self.table.rows(&self.measured).unwrap_or_default();
            let mut head = vec![Column::text("run")];
            head.extend(rows.head());
            let number = last_number(number);
            let points = self.measured.points.iter();
            let known: Vec<_> = points.map(|point| row(&rows, &number, point)).collect();
            let lines = Lines::new(&head, &known, &self.style);
            shown.push(lines.head());
            self.columns = Some((rows, lines));
        }
        let point = &mut self.measured.points[place];
        if let Some((rows, lines)) = &self.columns {
            let row = lines.row(&row(rows, number, point));
            // The remark says what the figures are worth.
            let room = self.style.width.saturating_sub(width(remark));
            shown.push(cut(&row, room).into_owned() + remark);
        }
        point.runs.clear();
        shown
    }
}

/// `12/12` for `3/12`.
fn last_number(number: &str) -> String {
    match number.split_once('/') {
        Some((_, of)) => format!("{of}/{of}"),
        None => number.to_owned(),
    }
}
