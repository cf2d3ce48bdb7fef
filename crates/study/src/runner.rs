//! Making the runs of a study.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wirecost_model::run::Run;
use wirecost_model::search::Search;
use wirecost_model::status::Status;
use wirecost_model::study::OfferedLoad;

use crate::definition::Definition;
use crate::error::StudyError;
use crate::matrix::Matrix;
use crate::order::{self, Task};
use crate::search_runner;
use crate::stop::StopRule;

/// Makes runs, and knows the time.
pub trait PointRunner {
    /// Makes a run and saves it, whatever its status.
    ///
    /// # Errors
    /// It could not be made or saved, and no further run can be.
    fn run(&mut self, task: &Task) -> Result<Run, PointError>;

    /// A search without the loads that the link of this point cannot carry, where its rate is known; `place` counts
    /// points from 1.
    fn possible(&self, _place: u32, search: &Search) -> Search {
        search.clone()
    }

    /// Time spent on the study.
    fn spent(&self) -> Duration;

    /// Whether the user stopped the study.
    fn stopped(&self) -> bool;
}

/// Why a study cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointError {
    pub status: Status,
    pub message: String,
}

/// Events of a running study.
#[derive(Debug)]
pub enum Event<'a> {
    /// `least` runs are planned, `done` of them are finished. A stop rule or a search may add runs, up to
    /// `most`.
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
    /// A run that is not made, with the reason.
    NotMeasured {
        task: &'a Task,
        number: usize,
        reason: &'a str,
    },
    /// An additional round that contains only some points.
    Wants {
        points: usize,
        repeat: u32,
    },
    Ended(&'a Summary),
}

/// Receives events in their order.
pub trait Listener {
    fn event(&mut self, event: &Event<'_>);
}

impl<F: FnMut(&Event<'_>)> Listener for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

impl Listener for () {
    fn event(&mut self, _: &Event<'_>) {}
}

/// How a study ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub ended: StopReason,
    /// Runs made by this call, including warm-up runs.
    pub made: usize,
    /// Number of invalid runs, without warm-up runs.
    pub invalid: usize,
    /// Number of runs that were not made, without warm-up runs.
    pub not_measured: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// All runs are finished.
    Complete,
    /// The minimum of runs is finished, and the time budget is exhausted.
    BudgetSpent,
    Interrupted,
    Refused(PointError),
}

impl Summary {
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.ended {
            StopReason::Refused(refusal) => refusal.status,
            StopReason::Interrupted => Status::Interrupted,
            StopReason::Complete | StopReason::BudgetSpent => {
                match self.invalid + self.not_measured {
                    0 => Status::Ok,
                    _ => Status::Invalid,
                }
            }
        }
    }
}

/// The finished runs of a study.
struct FinishedRuns<'a> {
    rule: &'a StopRule,
    done: BTreeSet<(u32, u32)>,
    /// By place of the point, in the order of `rule.until`.
    figures: BTreeMap<u32, Vec<Vec<f64>>>,
    /// By place, of its first valid run: the repeat, and bits per second. Later runs do not change it, so all
    /// repeats of a share of it offer the same load.
    throughput: BTreeMap<u32, (u32, f64)>,
    invalid: usize,
    not_measured: usize,
}

impl FinishedRuns<'_> {
    fn add(&mut self, place: u32, repeat: u32, run: &Run) {
        self.done.insert((place, repeat));
        let throughput =
            run.throughput.as_ref().map_or(0.0, |throughput| throughput.bits_per_second);
        if run.status == Status::Ok && throughput > 0.0 {
            // A warm-up counts only until there is something better.
            let this = (if repeat == 0 { u32::MAX } else { repeat }, throughput);
            let first = self.throughput.entry(place).or_insert(this);
            if this.0 < first.0 {
                *first = this;
            }
        }
        if repeat == 0 {
            return;
        }
        if run.status != Status::Ok {
            self.invalid += 1;
            return;
        }
        let none = || vec![Vec::new(); self.rule.until.len()];
        let figures = self.figures.entry(place).or_insert_with(none);
        for (values, (selector, _)) in figures.iter_mut().zip(&self.rule.until) {
            values.extend(selector.of(run));
        }
    }

    /// The load of a point, if it is a share of the throughput of this other one.
    ///
    /// # Errors
    /// Why it is unknown.
    fn load_of(&self, matrix: &Matrix, index: usize) -> Result<Option<u64>, String> {
        let Some(saturating) = matrix.saturating(index) else { return Ok(None) };
        let OfferedLoad::Share(share) = matrix.points[index].load() else { return Ok(None) };
        match self.throughput.get(&(saturating as u32 + 1)) {
            Some((_, throughput)) => Ok(Some((share * throughput).round().max(1.0) as u64)),
            None => Err(format!(
                "its load is a share of the throughput at {}, which has no valid run",
                matrix.points[saturating]
            )),
        }
    }

    fn wants_more(&self, place: u32, runs: u32) -> bool {
        self.rule.wants_more(runs, self.figures.get(&place).map(Vec::as_slice).unwrap_or_default())
    }
}

/// Makes the runs of a study that are not `done`.
///
/// # Errors
/// The study's stop rule or search is invalid. Nothing was run.
pub fn run(
    study: &Definition,
    matrix: &Matrix,
    done: impl IntoIterator<Item = Run>,
    runner: &mut dyn PointRunner,
    listener: &mut dyn Listener,
) -> Result<Summary, StudyError> {
    if let Some(search) = crate::search::search(study)? {
        return Ok(search_runner::run(study, &search, matrix, done, runner, listener));
    }
    let rule = StopRule::of(&study.repeat)?;
    let mut finished = FinishedRuns {
        rule: &rule,
        done: BTreeSet::new(),
        figures: BTreeMap::new(),
        throughput: BTreeMap::new(),
        invalid: 0,
        not_measured: 0,
    };
    for run in done {
        if let Some(at) = &run.study {
            finished.add(at.place, at.repeat, &run);
        }
    }
    let points = matrix.points.len();
    let warm_up = (study.warm_up as usize).min(points);
    listener.event(&Event::Started {
        points,
        least: points * rule.times as usize + warm_up,
        most: points * rule.most as usize + warm_up,
        done: finished.done.len(),
    });
    let mut made = 0;
    let ended = all_rounds(study, matrix, &mut finished, warm_up, runner, listener, &mut made);
    let FinishedRuns { invalid, not_measured, .. } = finished;
    let summary = Summary { ended, made, invalid, not_measured };
    listener.event(&Event::Ended(&summary));
    Ok(summary)
}

fn all_rounds(
    study: &Definition,
    matrix: &Matrix,
    finished: &mut FinishedRuns<'_>,
    warm_up: usize,
    runner: &mut dyn PointRunner,
    listener: &mut dyn Listener,
    made: &mut usize,
) -> StopReason {
    let mut number = 0;
    let blocks = matrix.blocks(&study.across);
    for repeat in 0..=finished.rule.most {
        let place = |index: &usize| *index as u32 + 1;
        let mut indices = order::round(study.order, study.seed, repeat.max(1), &blocks);
        // Before there is a run of it; a resumed study has the same order.
        order::put_first(&mut indices, |index| {
            let is_unknown = repeat <= 1 || finished.load_of(matrix, index).is_err();
            matrix.saturating(index).filter(|_| is_unknown)
        });
        let wanted: Vec<usize> = match repeat {
            0 => indices.into_iter().take(warm_up).collect(),
            _ => {
                indices.into_iter().filter(|i| finished.wants_more(place(i), repeat - 1)).collect()
            }
        };
        let further = repeat > finished.rule.times;
        if further && wanted.is_empty() {
            break;
        }
        if further {
            listener.event(&Event::Wants { points: wanted.len(), repeat });
        }
        for index in wanted {
            number += 1;
            let mut task = Task {
                point: matrix.points[index].clone(),
                place: place(&index),
                repeat,
                order: number as u32,
                load: None,
                trial: None,
            };
            if finished.done.contains(&(task.place, task.repeat)) {
                continue;
            }
            if runner.stopped() {
                return StopReason::Interrupted;
            }
            if further && finished.rule.budget.is_some_and(|budget| runner.spent() >= budget) {
                return StopReason::BudgetSpent;
            }
            match finished.load_of(matrix, index) {
                Ok(load) => task.load = load,
                Err(reason) => {
                    finished.not_measured += usize::from(repeat > 0);
                    listener.event(&Event::NotMeasured { task: &task, number, reason: &reason });
                    continue;
                }
            }
            listener.event(&Event::RunStarted { task: &task, number });
            let run = match runner.run(&task) {
                Ok(run) => run,
                Err(refusal) => return StopReason::Refused(refusal),
            };
            *made += 1;
            match run.status {
                Status::Interrupted => return StopReason::Interrupted,
                Status::Ok | Status::Invalid => {}
                status => {
                    let message = run.error.clone().unwrap_or_default();
                    return StopReason::Refused(PointError { status, message });
                }
            }
            finished.add(task.place, task.repeat, &run);
            listener.event(&Event::RunEnded { task: &task, number, run: &run });
        }
    }
    StopReason::Complete
}

#[cfg(test)]
mod tests {
    use wirecost_model::run::{Throughput, Transactions};
    use wirecost_model::study::StudyRunRef;

    use super::*;

    /// Hosts that answer what they are told, in no time but that which they say.
    #[derive(Default)]
    struct Fake {
        made: Vec<(u32, u32)>,
        kept: Vec<Run>,
        /// Rate of a run by place and repeat.
        rate: Option<fn(u32, u32) -> f64>,
        /// Status of the n-th run.
        status: Vec<(usize, Status)>,
        refuse_at: Option<usize>,
        /// Loads that were offered, by place and repeat.
        loads: Vec<(u32, u32, u64)>,
        stop_at: Option<usize>,
        spent: Duration,
    }

    impl PointRunner for Fake {
        fn run(&mut self, task: &Task) -> Result<Run, PointError> {
            let number = self.made.len();
            if self.refuse_at == Some(number) {
                let message = "no room".to_owned();
                return Err(PointError { status: Status::Failed, message });
            }
            self.made.push((task.place, task.repeat));
            self.spent += Duration::from_secs(1);
            let mut run = Run::empty("@rr", "epoll", "0.1.0", 0);
            let per_second = self.rate.map_or(1.0, |rate| rate(task.place, task.repeat));
            run.transactions = Some(Transactions { count: 1, per_second });
            self.loads.extend(task.load.map(|load| (task.place, task.repeat, load)));
            run.throughput = Some(Throughput {
                bits_per_second: 1e9 * f64::from(10 * task.place + task.repeat),
                tx_bits_per_second: 0.0,
                rx_bits_per_second: 0.0,
                tx_bytes: 0,
                rx_bytes: 0,
            });
            let status = self.status.iter().find(|(n, _)| *n == number);
            run.status = status.map_or(Status::Ok, |(_, status)| *status);
            run.study = Some(StudyRunRef {
                study: String::new(),
                point: task.point.clone(),
                place: task.place,
                repeat: task.repeat,
                order: task.order,
                search: task.trial.clone(),
            });
            self.kept.push(run.clone());
            Ok(run)
        }

        fn spent(&self) -> Duration {
            self.spent
        }

        fn stopped(&self) -> bool {
            self.stop_at.is_some_and(|at| self.made.len() >= at)
        }
    }

    fn go(text: &str, done: Vec<Run>, fake: &mut Fake) -> Summary {
        let text = format!("profile = \"@rr\"\n{text}");
        let study = Definition::parse(&text).unwrap();
        let matrix = Matrix::of(&study).unwrap();
        run(&study, &matrix, done, fake, &mut ()).unwrap()
    }

    const STUDY: &str = "warm_up = 2\naxes = { size = [1, 2, 3] }\nrepeat = { times = 2 }";

    #[test]
    fn all_points_run_times_after_the_warm_up() {
        let mut fake = Fake::default();
        let summary = go(STUDY, Vec::new(), &mut fake);
        assert_eq!((summary.ended, summary.made, summary.invalid), (StopReason::Complete, 8, 0));
        assert!(fake.made[..2].iter().all(|(_, repeat)| *repeat == 0));
        assert!(fake.made[2..5].iter().all(|(_, repeat)| *repeat == 1));
        assert!(fake.made[5..].iter().all(|(_, repeat)| *repeat == 2));
        let mut places: Vec<u32> = fake.made[2..5].iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        assert_eq!(places, [1, 2, 3]);
    }

    #[test]
    fn an_interrupted_study_resumes_where_it_stopped() {
        let mut whole = Fake::default();
        go(STUDY, Vec::new(), &mut whole);
        for stop_at in 0..8 {
            let mut first = Fake { stop_at: Some(stop_at), ..Fake::default() };
            let summary = go(STUDY, Vec::new(), &mut first);
            assert_eq!((summary.ended.clone(), summary.made), (StopReason::Interrupted, stop_at));
            assert_eq!(summary.status(), Status::Interrupted);
            let mut second = Fake::default();
            let summary = go(STUDY, first.kept.clone(), &mut second);
            assert_eq!(summary.ended, StopReason::Complete);
            let both: Vec<_> = first.made.iter().chain(&second.made).copied().collect();
            assert_eq!(both, whole.made);
        }
    }

    #[test]
    fn a_lost_host_ends_the_study_and_an_invalid_run_does_not() {
        let mut fake = Fake { status: vec![(4, Status::Invalid)], ..Fake::default() };
        let summary = go(STUDY, Vec::new(), &mut fake);
        assert_eq!((summary.status(), summary.made, summary.invalid), (Status::Invalid, 8, 1));
        let mut fake = Fake { status: vec![(4, Status::Peer)], ..Fake::default() };
        let summary = go(STUDY, Vec::new(), &mut fake);
        assert_eq!((summary.status(), summary.made), (Status::Peer, 5));
        let mut fake = Fake { refuse_at: Some(3), ..Fake::default() };
        let summary = go(STUDY, Vec::new(), &mut fake);
        assert_eq!((summary.status(), summary.made), (Status::Failed, 3));
    }

    #[test]
    fn varying_points_repeat_until_their_intervals_are_narrow() {
        let text = "axes = { size = [1, 2] }\n\
                    repeat = { times = 2, most = 6, until = { transactions = \"10%\" } }";
        // The first varies too much for any number of runs; the second does not vary.
        let rate = |place, repeat: u32| match place {
            1 => f64::from(100 + 50 * (repeat % 2)),
            _ => 100.0,
        };
        let mut fake = Fake { rate: Some(rate), ..Fake::default() };
        let summary = go(text, Vec::new(), &mut fake);
        assert_eq!(summary.ended, StopReason::Complete);
        let count = |place| fake.made.iter().filter(|(p, _)| *p == place).count();
        assert_eq!((count(1), count(2)), (6, 2));
    }

    #[test]
    fn the_budget_ends_additional_runs_but_not_the_minimum() {
        let text = "axes = { size = [1, 2] }\n\
                    repeat = { times = 3, until = { transactions = \"1%\" }, budget = \"8s\" }";
        let rate = |_, repeat: u32| f64::from(repeat);
        let mut fake = Fake { rate: Some(rate), ..Fake::default() };
        let summary = go(text, Vec::new(), &mut fake);
        assert_eq!((summary.ended, summary.made), (StopReason::BudgetSpent, 8));
        let mut slow = Fake { rate: Some(rate), spent: Duration::from_secs(60), ..Fake::default() };
        assert_eq!(go(text, Vec::new(), &mut slow).made, 6);
    }

    /// Places: 1 and 2 are 25%, 3 and 4 are 50%, 5 and 6 saturate.
    const PACED: &str = "axes = { load = [\"25%\", \"50%\", \"max\"], size = [1, 2] }";

    #[test]
    fn shares_of_load_follow_their_saturating_run() {
        for seed in 0..10 {
            let text = format!("seed = {seed}\nwarm_up = 4\nrepeat = {{ times = 2 }}\n{PACED}");
            let mut whole = Fake::default();
            let summary = go(&text, Vec::new(), &mut whole);
            assert_eq!((summary.status(), summary.made), (Status::Ok, 16));
            for share in 1..=4 {
                let first = |place| whole.made.iter().position(|made| made.0 == place).unwrap();
                let saturating = 5 + (share - 1) % 2;
                assert!(first(saturating) < first(share), "{:?}", whole.made);
            }
            // Of the first counted runs, which have 51 and 61 Gb/s; warm-ups have less.
            let counted = whole.loads.iter().filter(|(_, repeat, _)| *repeat > 0);
            for (place, _, load) in counted {
                let expected = [12.75e9, 15.25e9, 25.5e9, 30.5e9][*place as usize - 1];
                assert_eq!(*load, expected as u64, "{place}");
            }
            for stop_at in [1, 5, 9, 12] {
                let mut first = Fake { stop_at: Some(stop_at), ..Fake::default() };
                go(&text, Vec::new(), &mut first);
                let mut second = Fake::default();
                let summary = go(&text, first.kept.clone(), &mut second);
                assert_eq!(summary.ended, StopReason::Complete);
                let both = |of: fn(&Fake) -> BTreeSet<(u32, u32)>| {
                    of(&first).into_iter().chain(of(&second)).collect::<BTreeSet<_>>()
                };
                let made = |fake: &Fake| fake.made.iter().copied().collect();
                assert_eq!(both(made), whole.made.iter().copied().collect());
                assert_eq!([first.loads, second.loads].concat(), whole.loads);
            }
        }
    }

    #[test]
    fn a_share_of_a_load_that_was_not_measured_is_not_run() {
        let study = Definition::parse(&format!("profile = \"@rr\"\norder = \"written\"\n{PACED}"));
        let study = study.unwrap();
        let matrix = Matrix::of(&study).unwrap();
        // The first run is that of place 5, which 1 needs.
        let mut fake = Fake { status: vec![(0, Status::Invalid)], ..Fake::default() };
        let mut said = Vec::new();
        let mut listen = |event: &Event<'_>| {
            if let Event::NotMeasured { task, reason, .. } = event {
                said.push((task.place, (*reason).to_owned()));
            }
        };
        let summary = run(&study, &matrix, Vec::new(), &mut fake, &mut listen).unwrap();
        assert_eq!((summary.made, summary.invalid, summary.not_measured), (4, 1, 2));
        assert_eq!(summary.status(), Status::Invalid);
        assert_eq!(said.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [3, 1]);
        assert!(said[0].1.contains("at load=max size=1, which has no valid run"), "{said:?}");
    }
}
