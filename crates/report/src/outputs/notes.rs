//! Why something was not measured: each reason once, with a number that its cells have.

use wirecost_model::document::Cell;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    reasons: Vec<String>,
}

impl Notes {
    /// The cells of a row as text, with the number of its reason where one is missing. Of neighbours that
    /// are missing for the same reason the last has it. `written` makes a text fit the output.
    pub(crate) fn row(&mut self, row: &[Cell], written: impl Fn(&str) -> String) -> Vec<String> {
        let texts = row.iter().enumerate().map(|(place, cell)| match (cell, row.get(place + 1)) {
            (Cell::Missing(_), Some(next)) if cell == next => cell.shown().to_owned(),
            _ => self.cell(cell, &written),
        });
        texts.collect()
    }

    /// One cell as text.
    pub(crate) fn cell(&mut self, cell: &Cell, written: impl Fn(&str) -> String) -> String {
        match cell {
            Cell::Missing(reason) if !reason.is_empty() => {
                format!("{}[{}]", cell.shown(), self.number_of(reason))
            }
            _ => written(cell.shown()),
        }
    }

    /// The number of a reason.
    pub(crate) fn number_of(&mut self, reason: &str) -> usize {
        let known = self.reasons.iter().position(|known| known == reason);
        known.unwrap_or_else(|| {
            self.reasons.push(reason.to_owned());
            self.reasons.len() - 1
        }) + 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.reasons.iter().enumerate().map(|(place, reason)| (place + 1, reason.as_str()))
    }
}
