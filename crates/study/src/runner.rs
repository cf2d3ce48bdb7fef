//! Making the runs of a study.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wirecost_model::run::Run;
use wirecost_model::status::Status;

use crate::definition::Definition;
use crate::error::StudyError;
use crate::matrix::Matrix;
use crate::order::{self, Task};
use crate::stop::StopRule;

/// Who makes a run, and knows the time.
pub trait Bench {
    /// Makes a run and keeps it, whatever its status.
    ///
    /// # Errors
    /// It could not be made or kept, and no other could.
    fn run(&mut self, task: &Task) -> Result<Run, Refusal>;

    /// Time that was spent on the study.
    fn spent(&self) -> Duration;

    /// Whether the user wants no further run.
    fn stopped(&self) -> bool;
}

/// Why a study cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    pub message: String,
}

/// What happens while a study is under way.
#[derive(Debug)]
pub enum Event<'a> {
    /// `least` runs are to be made, of which `done` are there already; a stop rule may ask for more, up
    /// to `most`.
    Started {
        points: usize,
        least: usize,
        most: usize,
        done: usize,
    },
    RunStarted {
        task: &'a Task,
        number: usize,
    },
    RunEnded {
        task: &'a Task,
        number: usize,
        run: &'a Run,
    },
    /// A round that only some points are still run in.
    Wants {
        points: usize,
        repeat: u32,
    },
    Ended(&'a Summary),
}

/// Receives events in the order in which they happen.
pub trait Listener {
    fn event(&mut self, event: &Event<'_>);
}

impl Listener for () {
    fn event(&mut self, _: &Event<'_>) {}
}

/// How a study ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub ended: Ended,
    /// Runs that were made now, those to warm up included.
    pub made: usize,
    /// Of all runs that count, those whose figures are not valid.
    pub invalid: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All runs are there.
    Complete,
    /// Those that are there at least, and the budget is spent.
    BudgetSpent,
    Interrupted,
    Refused(Refusal),
}

impl Summary {
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.ended {
            Ended::Refused(refusal) => refusal.status,
            Ended::Interrupted => Status::Interrupted,
            Ended::Complete | Ended::BudgetSpent if self.invalid > 0 => Status::Invalid,
            Ended::Complete | Ended::BudgetSpent => Status::Ok,
        }
    }
}

/// What is known of the runs that are there.
struct Known<'a> {
    rule: &'a StopRule,
    done: BTreeSet<(u32, u32)>,
    /// By place of the point, in the order of `rule.until`.
    figures: BTreeMap<u32, Vec<Vec<f64>>>,
    invalid: usize,
}

impl Known<'_> {
    fn add(&mut self, place: u32, repeat: u32, run: &Run) {
        self.done.insert((place, repeat));
        if repeat == 0 {
            return;
        }
        if run.status != Status::Ok {
            self.invalid += 1;
            return;
        }
        let none = || vec![Vec::new(); self.rule.until.len()];
        let figures = self.figures.entry(place).or_insert_with(none);
        for (values, (asked, _)) in figures.iter_mut().zip(&self.rule.until) {
            values.extend(asked.of(run));
        }
    }

    fn wants_more(&self, place: u32, runs: u32) -> bool {
        self.rule.wants_more(runs, self.figures.get(&place).map(Vec::as_slice).unwrap_or_default())
    }
}

/// Makes the runs of a study that are not `done`.
///
/// # Errors
/// The study's stop rule is none; nothing was run.
pub fn run(
    study: &Definition,
    matrix: &Matrix,
    done: impl IntoIterator<Item = Run>,
    bench: &mut dyn Bench,
    listener: &mut dyn Listener,
) -> Result<Summary, StudyError> {
    let rule = StopRule::of(&study.repeat)?;
    let mut known =
        Known { rule: &rule, done: BTreeSet::new(), figures: BTreeMap::new(), invalid: 0 };
    for run in done {
        if let Some(at) = &run.study {
            known.add(at.place, at.repeat, &run);
        }
    }
    let points = matrix.points.len();
    let warm_up = (study.warm_up as usize).min(points);
    listener.event(&Event::Started {
        points,
        least: points * rule.times as usize + warm_up,
        most: points * rule.most as usize + warm_up,
        done: known.done.len(),
    });
    let mut made = 0;
    let ended = all_rounds(study, matrix, &mut known, warm_up, bench, listener, &mut made);
    let summary = Summary { ended, made, invalid: known.invalid };
    listener.event(&Event::Ended(&summary));
    Ok(summary)
}

fn all_rounds(
    study: &Definition,
    matrix: &Matrix,
    known: &mut Known<'_>,
    warm_up: usize,
    bench: &mut dyn Bench,
    listener: &mut dyn Listener,
    made: &mut usize,
) -> Ended {
    let mut number = 0;
    for repeat in 0..=known.rule.most {
        let indices = order::round(study.order, study.seed, repeat.max(1), matrix.points.len());
        let place = |index: &usize| *index as u32 + 1;
        let wanted: Vec<usize> = match repeat {
            0 => indices.into_iter().take(warm_up).collect(),
            _ => indices.into_iter().filter(|i| known.wants_more(place(i), repeat - 1)).collect(),
        };
        let further = repeat > known.rule.times;
        if further && wanted.is_empty() {
            break;
        }
        if further {
            listener.event(&Event::Wants { points: wanted.len(), repeat });
        }
        for index in wanted {
            number += 1;
            let task = Task {
                point: matrix.points[index].clone(),
                place: place(&index),
                repeat,
                order: number as u32,
            };
            if known.done.contains(&(task.place, task.repeat)) {
                continue;
            }
            if bench.stopped() {
                return Ended::Interrupted;
            }
            if further && known.rule.budget.is_some_and(|budget| bench.spent() >= budget) {
                return Ended::BudgetSpent;
            }
            listener.event(&Event::RunStarted { task: &task, number });
            let run = match bench.run(&task) {
                Ok(run) => run,
                Err(refusal) => return Ended::Refused(refusal),
            };
            *made += 1;
            match run.status {
                Status::Interrupted => return Ended::Interrupted,
                Status::Ok | Status::Invalid => {}
                status => {
                    let message = run.error.clone().unwrap_or_default();
                    return Ended::Refused(Refusal { status, message });
                }
            }
            known.add(task.place, task.repeat, &run);
            listener.event(&Event::RunEnded { task: &task, number, run: &run });
        }
    }
    Ended::Complete
}
