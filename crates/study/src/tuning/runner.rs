//! Making the runs of a search for the best setting. Which is next follows from those that are there, so a
//! search continues from its records.

use std::collections::BTreeMap;

use wirecost_analyze::tuning::{self, Ask, Levels, Measured, Outcome, Stage, TuningError};
use wirecost_model::run::Run;
use wirecost_model::status::Status;

use super::TuneGoal;
use super::goal::measured;
use crate::definition::Definition;
use crate::error::StudyError;
use crate::matrix::Matrix;
use crate::order::Task;
use crate::runner::{PointError, PointRunner, StopReason, Summary};

/// A run without a result is made once more.
const ATTEMPTS: u32 = 2;

/// Events of a search.
#[derive(Debug)]
pub enum TuneEvent<'a> {
    /// At most so many runs, of which so many are there.
    Started {
        budget: usize,
        done: usize,
    },
    RunStarted {
        task: &'a Task,
        stage: Option<Stage>,
        number: usize,
    },
    RunEnded {
        task: &'a Task,
        stage: Option<Stage>,
        number: usize,
        run: &'a Run,
    },
    Ended(&'a Summary),
}

/// Receives events in their order.
pub trait TuneListener {
    fn event(&mut self, event: &TuneEvent<'_>);
}

impl TuneListener for () {
    fn event(&mut self, _: &TuneEvent<'_>) {}
}

impl<F: FnMut(&TuneEvent<'_>)> TuneListener for F {
    fn event(&mut self, event: &TuneEvent<'_>) {
        self(event);
    }
}

/// How a search ended.
#[derive(Debug)]
pub struct Tuned {
    pub summary: Summary,
    /// None where it did not come to its end.
    pub outcome: Option<Result<Outcome, TuningError>>,
}

/// Makes the runs of a search that are not `done`.
///
/// # Errors
/// Of [`super::goal`]. Nothing was run.
pub fn run(
    study: &Definition,
    done: impl IntoIterator<Item = Run>,
    runner: &mut dyn PointRunner,
    listener: &mut dyn TuneListener,
) -> Result<Tuned, StudyError> {
    let goal = super::goal(study)?.ok_or(StudyError::NoObjective)?;
    let done = by_place(done);
    listener.event(&TuneEvent::Started { budget: goal.tuning.budget, done: done.len() });
    let mut search = Search {
        study,
        goal: &goal,
        done,
        source: Some((runner, listener)),
        places: BTreeMap::from([(goal.tuning.base(), 1)]),
        repeats: BTreeMap::new(),
        number: 0,
        made: 0,
        invalid: 0,
    };
    let (ended, outcome) = match search.all() {
        Ok(outcome) => (StopReason::Complete, Some(outcome)),
        Err(stop) => (stop, None),
    };
    let summary = Summary { ended, made: search.made, invalid: search.invalid, not_measured: 0 };
    if let Some((_, listener)) = &mut search.source {
        listener.event(&TuneEvent::Ended(&summary));
    }
    Ok(Tuned { summary, outcome })
}

/// The outcome of a search by its records alone; `None` where runs are missing.
///
/// # Errors
/// Of [`super::goal`].
pub fn replay(
    study: &Definition,
    done: impl IntoIterator<Item = Run>,
) -> Result<Option<Result<Outcome, TuningError>>, StudyError> {
    let goal = super::goal(study)?.ok_or(StudyError::NoObjective)?;
    let mut search = Search {
        study,
        goal: &goal,
        done: by_place(done),
        source: None,
        places: BTreeMap::from([(goal.tuning.base(), 1)]),
        repeats: BTreeMap::new(),
        number: 0,
        made: 0,
        invalid: 0,
    };
    Ok(search.all().ok())
}

fn by_place(done: impl IntoIterator<Item = Run>) -> BTreeMap<(u32, u32), Run> {
    let at = |run: Run| run.study.as_ref().map(|at| (at.place, at.repeat)).map(|at| (at, run));
    done.into_iter().filter_map(at).collect()
}

struct Search<'a> {
    study: &'a Definition,
    goal: &'a TuneGoal,
    done: BTreeMap<(u32, u32), Run>,
    /// What makes runs that are not done; none where only records count.
    source: Option<(&'a mut dyn PointRunner, &'a mut dyn TuneListener)>,
    /// Settings are numbered in the order in which they first run, the base first.
    places: BTreeMap<Levels, u32>,
    repeats: BTreeMap<u32, u32>,
    number: usize,
    made: usize,
    invalid: usize,
}

impl Search<'_> {
    fn all(&mut self) -> Result<Result<Outcome, TuningError>, StopReason> {
        if self.study.warm_up > 0 {
            // The first run of a command finds the machine colder than the others do.
            let task = self.task(&self.goal.tuning.base(), 1, 0)?;
            if !self.done.contains_key(&(1, 0)) && self.source.is_some() {
                self.make(&task, None)?;
            }
        }
        let tuning = self.goal.tuning.clone();
        tuning::search(&tuning, &mut |ask| self.ask(ask))
    }

    fn ask(&mut self, ask: Ask<'_>) -> Result<Result<Measured, String>, StopReason> {
        self.number += 1;
        let next = self.places.len() as u32 + 1;
        let place = *self.places.entry(ask.levels.to_vec()).or_insert(next);
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let repeat = self.repeats.entry(place).or_default();
            *repeat += 1;
            let repeat = *repeat;
            let task = self.task(ask.levels, place, repeat)?;
            let known = self.done.remove(&(place, repeat)).filter(|run| {
                // One of another search that was begun here.
                run.study.as_ref().is_some_and(|at| at.point == task.point)
            });
            let run = match known {
                Some(run) => run,
                None => self.make(&task, Some(ask.stage))?,
            };
            let result = match run.status {
                Status::Ok => measured(&run, &self.goal.objective, &self.goal.bounds),
                _ => Err(run.error.unwrap_or_else(|| "the run is invalid".to_owned())),
            };
            match result {
                Ok(measured) => return Ok(Ok(measured)),
                Err(error) => {
                    self.invalid += 1;
                    reason = format!("{}: {error}", task.point);
                }
            }
        }
        Ok(Err(reason))
    }

    fn task(&self, levels: &[usize], place: u32, repeat: u32) -> Result<Task, StopReason> {
        let point = Matrix::at(self.study, levels).map_err(|error| {
            StopReason::Refused(PointError { status: Status::Usage, message: error.to_string() })
        })?;
        let order = self.number as u32;
        Ok(Task { point, place, repeat, order, load: None, trial: None })
    }

    fn make(&mut self, task: &Task, stage: Option<Stage>) -> Result<Run, StopReason> {
        let number = self.number;
        let Some((runner, listener)) = &mut self.source else {
            return Err(StopReason::Interrupted);
        };
        if runner.stopped() {
            return Err(StopReason::Interrupted);
        }
        listener.event(&TuneEvent::RunStarted { task, stage, number });
        let run = runner.run(task).map_err(StopReason::Refused)?;
        self.made += 1;
        match run.status {
            Status::Interrupted => return Err(StopReason::Interrupted),
            Status::Ok | Status::Invalid => {}
            status => {
                let message = run.error.clone().unwrap_or_default();
                return Err(StopReason::Refused(PointError { status, message }));
            }
        }
        listener.event(&TuneEvent::RunEnded { task, stage, number, run: &run });
        Ok(run)
    }
}
