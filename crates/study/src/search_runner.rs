//! Making the trials of searches. Which is next follows from those that are there, so a search continues
//! from its records.

use std::collections::BTreeMap;
use std::time::Duration;

use wirecost_analyze::search::{self, Next, State, Trial};
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::run::Run;
use wirecost_model::search::{Search, SearchTrial};
use wirecost_model::status::Status;

use crate::definition::Definition;
use crate::matrix::Matrix;
use crate::order::{self, Task};
use crate::runner::{Event, Listener, PointError, PointRunner, StopReason, Summary};

/// The search at one point.
struct PointSearch {
    search: Search,
    /// By the number of their run.
    trials: BTreeMap<u32, Trial>,
    warmed_up: bool,
}

impl PointSearch {
    fn add(&mut self, repeat: u32, run: &Run) {
        match (repeat, Trial::of(run)) {
            (0, _) => self.warmed_up = true,
            (_, Some(trial)) => {
                self.trials.insert(repeat, trial);
            }
            (_, None) => {}
        }
    }

    fn in_order(&self) -> Vec<Trial> {
        self.trials.values().cloned().collect()
    }

    fn next(&self) -> Option<(u64, Nanos)> {
        match search::next(&self.search, &self.in_order()) {
            Next::Trial { load, duration } => Some((load, duration)),
            Next::Finished => None,
        }
    }

    /// A number that no trial has. One that had no result and was not kept leaves its number.
    fn free(&self) -> u32 {
        let mut free = 1;
        while self.trials.contains_key(&free) {
            free += 1;
        }
        free
    }

    /// Trials without a result, if there are so many that the search had to end.
    fn invalid(&self) -> usize {
        let trials = self.in_order();
        let outcomes = search::outcomes(&self.search, &trials);
        match outcomes.iter().any(|outcome| outcome.state == State::Invalid) {
            true => trials.iter().filter(|trial| trial.result.is_err()).count(),
            false => 0,
        }
    }
}

/// Makes the trials that are not `done`.
pub(crate) fn run(
    study: &Definition,
    of_study: &Search,
    matrix: &Matrix,
    done: impl IntoIterator<Item = Run>,
    runner: &mut dyn PointRunner,
    listener: &mut dyn Listener,
) -> Summary {
    let places = 1..=matrix.points.len() as u32;
    let mut searches: Vec<PointSearch> = places
        .map(|place| PointSearch {
            search: runner.possible(place, of_study),
            trials: BTreeMap::new(),
            warmed_up: false,
        })
        .collect();
    let mut number = 0;
    for run in done {
        if let Some(at) = &run.study
            && let Some(point) = searches.get_mut((at.place as usize).saturating_sub(1))
        {
            point.add(at.repeat, &run);
            number += 1;
        }
    }
    let most = |point: &PointSearch| search::most(&point.search, 0.0).0;
    listener.event(&Event::Started {
        points: searches.len(),
        least: searches.len(),
        most: searches.iter().map(most).sum(),
        done: number,
    });
    let mut trials = Trials { matrix, runner, listener, number, made: 0 };
    let ended = trials.all(study, &mut searches);
    let made = trials.made;
    let invalid = searches.iter().map(PointSearch::invalid).sum();
    let summary = Summary { ended, made, invalid, not_measured: 0 };
    listener.event(&Event::Ended(&summary));
    summary
}

/// The trials that are made.
struct Trials<'a> {
    matrix: &'a Matrix,
    runner: &'a mut dyn PointRunner,
    listener: &'a mut dyn Listener,
    number: usize,
    made: usize,
}

impl Trials<'_> {
    fn all(&mut self, study: &Definition, searches: &mut [PointSearch]) -> StopReason {
        let blocks = self.matrix.blocks(&study.across);
        let order = |round| order::round(study.order, study.seed, round, &blocks);
        for index in order(1).into_iter().take(study.warm_up as usize) {
            if !searches[index].warmed_up
                && let Some(next) = searches[index].next()
                && let Err(stop) = self.make(index, 0, next, &mut searches[index])
            {
                return stop;
            }
        }
        // One trial of each point in turn, so that drift does not look like an effect of an axis.
        for round in 1.. {
            let mut is_finished = true;
            for index in order(round) {
                let point = &mut searches[index];
                let Some(next) = point.next() else { continue };
                is_finished = false;
                if let Err(stop) = self.make(index, point.free(), next, point) {
                    return stop;
                }
            }
            if is_finished {
                break;
            }
        }
        StopReason::Complete
    }

    fn make(
        &mut self,
        index: usize,
        repeat: u32,
        (load, duration): (u64, Nanos),
        point: &mut PointSearch,
    ) -> Result<(), StopReason> {
        if self.runner.stopped() {
            return Err(StopReason::Interrupted);
        }
        self.number += 1;
        let number = self.number;
        let task = Task {
            point: self.matrix.points[index].clone(),
            place: index as u32 + 1,
            repeat,
            order: number as u32,
            load: Some(load),
            trial: Some(SearchTrial {
                bits_per_second: load,
                seconds: seconds(duration),
                search: point.search.clone(),
            }),
        };
        self.listener.event(&Event::RunStarted { task: &task, number });
        let run = self.runner.run(&task).map_err(StopReason::Refused)?;
        self.made += 1;
        match run.status {
            Status::Interrupted => return Err(StopReason::Interrupted),
            Status::Ok | Status::Invalid => {}
            status => {
                let message = run.error.clone().unwrap_or_default();
                return Err(StopReason::Refused(PointError { status, message }));
            }
        }
        point.add(repeat, &run);
        self.listener.event(&Event::RunEnded { task: &task, number, run: &run });
        Ok(())
    }
}

impl Task {
    /// Measurement time, where it is a trial of a search.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        self.trial.as_ref().map(|trial| Duration::from_secs_f64(trial.seconds))
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::host::HostFacts;
    use wirecost_model::measure::Bytes;
    use wirecost_model::program::Side;
    use wirecost_model::run::{AfterRamp, Datagrams, HostRow, Window, WindowKind};
    use wirecost_model::study::StudyRunRef;

    use super::*;
    use crate::StudyError;

    /// A link of 50 Mb/s at point 1, and of 20 Mb/s at point 2.
    #[derive(Default)]
    struct Link {
        kept: Vec<Run>,
        stop_at: Option<usize>,
        /// Trials that are invalid, by their number.
        invalid: Vec<usize>,
    }

    impl PointRunner for Link {
        fn run(&mut self, task: &Task) -> Result<Run, PointError> {
            let trial = task.trial.clone().unwrap();
            assert_eq!(task.load, Some(trial.bits_per_second));
            let capacity = [50e6, 20e6][task.place as usize - 1];
            let sent = (trial.bits_per_second as f64 * trial.seconds / 8e3) as u64;
            let lost = (1.0 - capacity / trial.bits_per_second as f64).max(0.0) * sent as f64;
            let mut run = Run::empty("@udp-stream", "epoll", "0.1.0", 0);
            if self.invalid.contains(&self.kept.len()) {
                run.status = Status::Invalid;
            }
            let seconds = trial.seconds;
            let kind = WindowKind::Duration;
            run.window = Some(Window {
                seconds,
                phase: 1,
                ramp_seconds: 0.1,
                kind,
                dead_seconds: None,
                late_us: None,
                started_unix_ms: None,
            });
            run.datagrams = Some(Datagrams {
                sent,
                received: sent - lost as u64,
                lost: lost as i64,
                late: 0,
                reordered: None,
                duplicated: None,
                loss_bursts: None,
                jitter_us: None,
                one_way_us: None,
                after_ramp: Some(AfterRamp { sent, lost: lost.ceil() as u64 }),
            });
            run.hosts = vec![sender(sent * 1000)];
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
            Duration::ZERO
        }

        fn stopped(&self) -> bool {
            self.stop_at.is_some_and(|at| self.kept.len() >= at)
        }
    }

    fn sender(tx_sent: u64) -> HostRow {
        HostRow {
            name: "h1".to_owned(),
            role: Side::Master,
            address: None,
            cpus: Vec::new(),
            shares_machine_with: Vec::new(),
            workers: 1,
            busiest_worker: None,
            receive_stamps: None,
            cpu: None,
            cpu_source: None,
            cycles_per_kbyte: None,
            cycles_source: None,
            cycles_reason: None,
            foreign_cycles_per_kbyte: None,
            bytes: Some(Bytes { tx_sent, ..Bytes::default() }),
            facts: HostFacts::default(),
            clock_offset_us: 0.0,
            clock_error_us: 0.0,
            memory: None,
        }
    }

    const STUDY: &str = "profile = \"@udp-stream\"\norder = \"written\"\nwarm_up = 1\n\
                         search = { min = \"1mbit\", max = \"100mbit\", goals = [{ width = \"1%\", sum = \"5s\" }] }";

    fn go(text: &str, done: Vec<Run>, link: &mut Link) -> Result<Summary, StudyError> {
        let study = Definition::parse(text).unwrap();
        let matrix = Matrix::of(&study).unwrap();
        crate::run(&study, &matrix, done, link, &mut ())
    }

    fn outcome(runs: &[Run], place: u32) -> search::GoalOutcome {
        let of_place = |run: &&Run| {
            run.study.as_ref().is_some_and(|study| study.place == place && study.repeat > 0)
        };
        let trials: Vec<Trial> = runs.iter().filter(of_place).filter_map(Trial::of).collect();
        let study = runs[0].study.as_ref().unwrap();
        search::outcomes(&study.search.as_ref().unwrap().search, &trials).remove(0)
    }

    fn ids(runs: &[Run]) -> Vec<String> {
        runs.iter().map(|run| run.study.as_ref().unwrap().id()).collect()
    }

    #[test]
    fn each_point_is_searched_in_turn() {
        let mut link = Link::default();
        let text = format!("{STUDY}\naxes = {{ size = [1, 2] }}");
        let summary = go(&text, Vec::new(), &mut link).unwrap();
        assert_eq!((summary.ended, summary.invalid), (StopReason::Complete, 0));
        assert_eq!(summary.made, link.kept.len());
        assert_eq!(ids(&link.kept)[..4], ["0001-warm-up", "0001-01", "0002-01", "0001-02"]);
        for (place, capacity) in [(1, 50e6), (2, 20e6)] {
            let found = outcome(&link.kept, place);
            assert_eq!(found.state, State::Reached);
            assert!((0.98 * capacity..=capacity).contains(&found.throughput.unwrap()), "{found:?}");
        }
    }

    #[test]
    fn a_search_continues_from_its_records_wherever_it_was_interrupted() {
        let mut whole = Link::default();
        go(STUDY, Vec::new(), &mut whole).unwrap();
        let all = whole.kept.len();
        assert!(all > 10, "{all}");
        for stop_at in 0..all {
            let mut first = Link { stop_at: Some(stop_at), ..Link::default() };
            let summary = go(STUDY, Vec::new(), &mut first).unwrap();
            assert_eq!((summary.ended, summary.made), (StopReason::Interrupted, stop_at));
            let mut second = Link::default();
            go(STUDY, first.kept.clone(), &mut second).unwrap();
            let both = [first.kept, second.kept].concat();
            assert_eq!(both, whole.kept, "{stop_at}");
        }
    }

    #[test]
    fn an_invalid_trial_is_made_again_under_a_number_of_its_own() {
        let mut whole = Link::default();
        go(STUDY, Vec::new(), &mut whole).unwrap();
        let mut link = Link { invalid: vec![3, 4], ..Link::default() };
        let summary = go(STUDY, Vec::new(), &mut link).unwrap();
        assert_eq!((summary.status(), link.kept.len()), (Status::Ok, whole.kept.len() + 2));
        assert_eq!(outcome(&link.kept, 1), outcome(&whole.kept, 1));
        assert_eq!(ids(&link.kept)[3..6], ["0001-03", "0001-04", "0001-05"]);
        let mut link = Link { invalid: vec![3, 4, 5], ..Link::default() };
        let summary = go(STUDY, Vec::new(), &mut link).unwrap();
        assert_eq!((summary.status(), summary.invalid), (Status::Invalid, 3));
        // `resume` keeps the valid ones, and the search is finished.
        let mut valid = link.kept;
        valid.retain(|run| run.status == Status::Ok);
        let mut second = Link::default();
        let summary = go(STUDY, valid.clone(), &mut second).unwrap();
        assert_eq!(summary.status(), Status::Ok);
        assert_eq!(outcome(&[valid, second.kept].concat(), 1), outcome(&whole.kept, 1));
    }
}
