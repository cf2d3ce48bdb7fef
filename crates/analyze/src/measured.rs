//! The runs of a study by point: the input of tables, findings, comparisons and the cost model.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::{LOAD, Point, Value};

use crate::metrics::Selector;
use crate::statistics::Estimate;

/// The axis of runs outside a study: their names.
pub const RUN: &str = "run";

/// The measurements of a study, or of several runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurements {
    /// Points in the order of the study.
    pub points: Vec<MeasuredPoint>,
}

/// The measurements of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPoint {
    pub point: Point,
    /// Valid runs, in the order of their repeats.
    pub runs: Vec<Run>,
    /// Failed and invalid runs.
    pub failed: Vec<Run>,
}

impl Measurements {
    /// Of runs with a name each, which tells those apart that are of no study. Runs to warm up are
    /// left out.
    #[must_use]
    pub fn of(runs: impl IntoIterator<Item = (String, Run)>) -> Self {
        // By place in the study and load of a search, those of none after them as they come.
        let mut points: BTreeMap<(u32, u64), MeasuredPoint> = BTreeMap::new();
        for (number, (name, run)) in runs.into_iter().enumerate() {
            let (key, point) = match &run.study {
                Some(study) if study.repeat == 0 => continue,
                Some(study) => match &study.search {
                    // Trials at different loads have no figure in common.
                    Some(trial) => {
                        let load = trial.bits_per_second;
                        let mut point = study.point.clone();
                        point.axes.push(Value::new(LOAD, &format!("{load}bit")));
                        ((study.place, load), point)
                    }
                    None => ((study.place, 0), study.point.clone()),
                },
                None => {
                    let point = Point { axes: vec![Value::new(RUN, &name)], settings: Vec::new() };
                    ((u32::MAX, number as u64), point)
                }
            };
            let at = points.entry(key).or_insert_with(|| MeasuredPoint::not_measured(&point));
            if run.status == Status::Ok { at.runs.push(run) } else { at.failed.push(run) }
        }
        let mut points: Vec<MeasuredPoint> = points.into_values().collect();
        for point in &mut points {
            point.runs.sort_by_key(|run| run.study.as_ref().map(|study| study.repeat));
        }
        Self { points }
    }

    /// Whether its runs are trials of searches.
    #[must_use]
    pub fn is_search(&self) -> bool {
        let mut runs = self.points.iter().flat_map(|point| point.runs.iter().chain(&point.failed));
        runs.any(|run| run.study.as_ref().is_some_and(|study| study.search.is_some()))
    }

    /// Names of the axes, in their order.
    #[must_use]
    pub fn axes(&self) -> Vec<&str> {
        let first = self.points.first();
        first.map(|p| p.point.axes.iter().map(|a| a.name.as_str()).collect()).unwrap_or_default()
    }

    /// The points whose load is as fast as it can be, without the axis of loads; all of them, where none is.
    #[must_use]
    pub fn saturated(&self) -> Cow<'_, Self> {
        let is_axis = |axis: &Value| axis.name == LOAD;
        if !self.points.iter().any(|point| point.point.axes.iter().any(is_axis)) {
            return Cow::Borrowed(self);
        }
        let kept = self.points.iter().filter(|point| !point.point.is_paced());
        let mut points: Vec<MeasuredPoint> = kept.cloned().collect();
        if points.is_empty() {
            return Cow::Borrowed(self);
        }
        points.iter_mut().for_each(|point| point.point.axes.retain(|axis| !is_axis(axis)));
        Cow::Owned(Self { points })
    }

    /// What an axis or a setting is at the points, in the order in which it first comes; nothing
    /// where no point has it.
    #[must_use]
    pub fn values(&self, name: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for value in self.points.iter().filter_map(|point| point.point.get(name)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
}

impl Measurements {
    /// The axes of a point that vary in the study, without those that `is_own` names.
    pub(crate) fn common(
        &self,
        point: &MeasuredPoint,
        is_own: impl Fn(&str) -> bool,
    ) -> Vec<Value> {
        let other = |axis: &&Value| !is_own(&axis.name) && self.values(&axis.name).len() > 1;
        point.point.axes.iter().filter(other).cloned().collect()
    }
}

impl MeasuredPoint {
    /// A point without a run.
    #[must_use]
    pub fn not_measured(point: &Point) -> Self {
        Self { point: point.clone(), runs: Vec::new(), failed: Vec::new() }
    }

    /// Whether times of its runs say nothing of hardware (the warning `emulated-cpu`).
    #[must_use]
    pub fn has_emulated_cpus(&self) -> bool {
        let mut warnings = self.runs.iter().flat_map(|run| &run.warnings);
        warnings.any(|warning| warning.code == "emulated-cpu")
    }

    /// A figure of each run that counts and has it.
    pub fn figures(&self, selector: &Selector) -> Vec<f64> {
        self.runs.iter().filter_map(|run| selector.of(run).ok()).collect()
    }

    /// A figure of this point, of all its runs.
    ///
    /// # Errors
    /// Why it was not measured.
    pub fn estimate(&self, selector: &Selector) -> Result<Estimate, String> {
        if let Some(estimate) = Estimate::of(&self.figures(selector)) {
            return Ok(estimate.within(selector.metric().unit.range()));
        }
        let run = self.runs.first().or(self.failed.first());
        Err(match run.map(|run| selector.of(run)) {
            Some(Err(reason)) => reason,
            Some(Ok(_)) => "the run failed".to_owned(),
            None => "not run yet".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::run::Transactions;
    use wirecost_model::search::{Search, SearchTrial};
    use wirecost_model::study::{OfferedLoad, StudyRunRef};

    use super::*;
    use crate::metrics;

    fn run(place: u32, repeat: u32, per_second: f64) -> (String, Run) {
        let mut run = Run::empty("@rr", "epoll", "0.1.0", 0);
        let axes = vec![Value::new("connections", &place.to_string())];
        run.study = Some(StudyRunRef {
            study: "s".to_owned(),
            point: Point { axes, settings: Vec::new() },
            place,
            repeat,
            order: 1,
            search: None,
        });
        run.transactions = Some(Transactions { count: 1, per_second });
        (String::new(), run)
    }

    #[test]
    fn runs_are_grouped_by_point_without_warm_up() {
        let mut failed = run(1, 3, 99.0);
        failed.1.status = Status::Invalid;
        let runs = [run(2, 1, 7.0), run(1, 2, 12.0), run(1, 0, 1000.0), run(1, 1, 10.0), failed];
        let measured = Measurements::of(runs);
        assert_eq!(measured.axes(), ["connections"]);
        assert_eq!(measured.values("connections"), ["1", "2"]);
        assert_eq!(measured.points.len(), 2);
        let transactions = metrics::find("transactions").unwrap();
        assert_eq!(measured.points[0].figures(&transactions), [10.0, 12.0]);
        assert_eq!(measured.points[0].failed.len(), 1);
        assert_eq!(measured.points[0].estimate(&transactions).unwrap().mean, 11.0);
        let latency = metrics::find("latency.p99").unwrap();
        assert!(measured.points[0].estimate(&latency).unwrap_err().contains("no transaction"));
    }

    #[test]
    fn trials_of_a_search_are_grouped_by_load() {
        let trial = |place, repeat, load| {
            let (name, mut run) = run(place, repeat, 1.0);
            let search = Search {
                min_bits_per_second: 1,
                max_bits_per_second: 9_000_000,
                link_bits_per_second: None,
                time_limit_seconds: 1.0,
                goals: Vec::new(),
            };
            run.study.as_mut().unwrap().search =
                Some(SearchTrial { bits_per_second: load, seconds: 1.0, search });
            (name, run)
        };
        let runs = [trial(1, 1, 9_000_000), trial(1, 2, 5_000_000), trial(1, 3, 9_000_000)];
        let measured = Measurements::of(runs.into_iter().chain([trial(2, 1, 9_000_000)]));
        assert!(measured.is_search() && !Measurements::of([run(1, 1, 1.0)]).is_search());
        let points: Vec<_> =
            measured.points.iter().map(|p| (p.point.to_string(), p.runs.len())).collect();
        let point =
            |place: u32, load: &str, runs| (format!("connections={place} load={load}bit"), runs);
        let expected = [point(1, "5000000", 1), point(1, "9000000", 2), point(2, "9000000", 1)];
        assert_eq!(points, expected);
        assert_eq!(measured.points[0].point.load(), OfferedLoad::Rate(5_000_000));
    }

    #[test]
    fn an_interval_has_no_impossible_values() {
        let measured = Measurements::of([run(1, 1, 10.0), run(1, 2, 1000.0)]);
        let transactions = metrics::find("transactions").unwrap();
        let interval = measured.points[0].estimate(&transactions).unwrap().interval.unwrap();
        assert_eq!(interval.0, 0.0);
        assert!(interval.1 > 1000.0);
    }

    #[test]
    fn each_run_outside_a_study_is_a_point() {
        let run = || Run::empty("@rr", "epoll", "0.1.0", 0);
        let measured = Measurements::of([("a".to_owned(), run()), ("b".to_owned(), run())]);
        assert_eq!(measured.values(RUN), ["a", "b"]);
    }
}
