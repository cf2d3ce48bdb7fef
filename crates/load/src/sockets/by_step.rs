//! What was found for each step before the run, so that no step looks anything up by name.

use wirecost_program::step::{Group, Step};

/// A value for some of the steps of a host's program. Rows of counters number the steps of a phase
/// through all groups, so a row names a step of the phase under way.
#[derive(Debug)]
pub(super) struct ByStep<T> {
    phases: Vec<Vec<Option<T>>>,
    phase: usize,
}

impl<T> Default for ByStep<T> {
    fn default() -> Self {
        Self { phases: Vec::new(), phase: 0 }
    }
}

impl<T> ByStep<T> {
    pub(super) fn resolve(groups: &[Group], mut find: impl FnMut(&Step) -> Option<T>) -> Self {
        let mut phases: Vec<Vec<Option<T>>> = Vec::new();
        for group in groups {
            for (number, phase) in group.phases.iter().enumerate() {
                for step in phase.iter().flat_map(|phase| &phase.steps) {
                    let row = step.row as usize;
                    if phases.len() <= number {
                        phases.resize_with(number + 1, Vec::new);
                    }
                    let rows = &mut phases[number];
                    if rows.len() <= row {
                        rows.resize_with(row + 1, || None);
                    }
                    rows[row] = find(step);
                }
            }
        }
        Self { phases, phase: 0 }
    }

    /// From now on steps are those of this phase.
    pub(super) fn begin(&mut self, phase: u32) {
        self.phase = phase as usize;
    }

    /// Rows of the phase under way.
    pub(super) fn rows(&self) -> usize {
        self.phases.get(self.phase).map_or(0, Vec::len)
    }

    #[inline]
    /// What was found for the step of this row.
    pub(super) fn of(&self, row: u32) -> Option<&T> {
        self.phases.get(self.phase)?.get(row as usize)?.as_ref()
    }
}
