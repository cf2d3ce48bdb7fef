//! Why something was not measured: each reason once, with a number that its cells have.

use crate::document::Cell;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    reasons: Vec<String>,
}

impl Notes {
    /// A cell as text, with the number of its reason where it is missing; `written` makes it fit the
    /// output.
    pub(crate) fn cell(&mut self, cell: &Cell, written: impl FnOnce(&str) -> String) -> String {
        match cell {
            Cell::Missing(reason) => format!("{}[{}]", cell.shown(), self.number_of(reason)),
            _ => written(cell.shown()),
        }
    }

    fn number_of(&mut self, reason: &str) -> usize {
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
