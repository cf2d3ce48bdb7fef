//! What is expected of figures: `hosts.sender.cycles_per_kbyte <= 1.05 * baseline`.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::{self, Selector};
use wirecost_model::metric::Unit;
use wirecost_model::study::Point;

use crate::condition::Condition;
use crate::definition::{Baseline, Definition};
use crate::error::StudyError;

/// One of a study, read.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// As it is written.
    pub text: String,
    pub selector: Selector,
    at: Condition,
    most: bool,
    factor: f64,
    of_baseline: bool,
}

/// How an expectation did at a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// As the expectation is written.
    pub text: String,
    pub point: Point,
    pub unit: Unit,
    /// What it was, and what it was to be at most or at least; why, where one was not measured.
    pub measured: Result<(Estimate, f64), String>,
    /// What was not measured does not hold.
    pub holds: bool,
}

impl Expectation {
    /// Those of a study.
    ///
    /// # Errors
    /// One that is none, or asks for a baseline that the study does not name.
    pub fn all(study: &Definition) -> Result<Vec<Self>, StudyError> {
        let all = study.expect.iter().map(|expect| Self::parse(&expect.that, &expect.at));
        let all: Vec<Self> = all.collect::<Result<_, _>>()?;
        let wants = all.iter().find(|expectation| expectation.of_baseline);
        if let (Some(wants), None) = (wants, &study.baseline) {
            return Err(wrong(&wants.text, "the study has no baseline"));
        }
        Ok(all)
    }

    fn parse(text: &str, at: &Condition) -> Result<Self, StudyError> {
        let form = "write METRIC <= NUMBER, or METRIC >= NUMBER * baseline";
        let (name, most, bound) = match (text.split_once("<="), text.split_once(">=")) {
            (Some((name, bound)), None) => (name, true, bound),
            (None, Some((name, bound))) => (name, false, bound),
            _ => return Err(wrong(text, form)),
        };
        let selector = metrics::find(name.trim())?;
        let mut factor = 1.0;
        let mut of_baseline = false;
        for part in bound.split('*').map(str::trim) {
            if part == "baseline" && !of_baseline {
                of_baseline = true;
            } else {
                let part = quantity(part, selector.metric().unit);
                factor *= part.ok_or_else(|| wrong(text, form))?;
            }
        }
        Ok(Self { text: text.to_owned(), selector, at: at.clone(), most, factor, of_baseline })
    }

    /// How it did wherever it is to hold. `other` is the study that the baseline names, if it does.
    #[must_use]
    pub fn judge(
        &self,
        baseline: Option<&Baseline>,
        measured: &Measurements,
        other: Option<&Measurements>,
    ) -> Vec<Verdict> {
        let points = measured.points.iter().filter(|point| self.at.holds(&point.point));
        let judged = points.filter_map(|point| {
            let reference = match baseline {
                Some(Baseline::Point(at)) if self.of_baseline => {
                    // The baseline is not compared with itself.
                    if at.holds(&point.point) {
                        return None;
                    }
                    find_baseline(at, point, measured)
                }
                Some(Baseline::Study { .. }) if self.of_baseline => other.and_then(|other| {
                    other.points.iter().find(|o| o.point.axes == point.point.axes)
                }),
                _ => None,
            };
            Some(self.judge_one(point, reference))
        });
        judged.collect()
    }

    fn judge_one(&self, point: &MeasuredPoint, reference: Option<&MeasuredPoint>) -> Verdict {
        let bound = || match (self.of_baseline, reference) {
            (false, _) => Ok(self.factor),
            (true, None) => Err("the baseline has no such point".to_owned()),
            (true, Some(reference)) => match reference.estimate(&self.selector) {
                Ok(estimate) => Ok(self.factor * estimate.mean),
                Err(reason) => Err(format!("the baseline: {reason}")),
            },
        };
        let measured = point.estimate(&self.selector).and_then(|value| Ok((value, bound()?)));
        let holds = measured.as_ref().is_ok_and(|(value, bound)| match self.most {
            true => value.mean <= *bound,
            false => value.mean >= *bound,
        });
        Verdict {
            text: self.text.clone(),
            point: point.point.clone(),
            unit: self.selector.metric().unit,
            measured,
            holds,
        }
    }
}

/// The point where the baseline's condition holds, and that is else the same.
fn find_baseline<'a>(
    at: &Condition,
    point: &MeasuredPoint,
    measured: &'a Measurements,
) -> Option<&'a MeasuredPoint> {
    let named: Vec<&str> = at.names().collect();
    let same = |other: &&MeasuredPoint| {
        let both = point.point.axes.iter().zip(&other.point.axes);
        both.into_iter().all(|(a, b)| named.contains(&a.name.as_str()) || a == b)
    };
    measured.points.iter().filter(|other| at.holds(&other.point)).find(same)
}

fn wrong(text: &str, message: &str) -> StudyError {
    StudyError::Value {
        key: "expect.that".to_owned(),
        value: text.to_owned(),
        message: message.to_owned(),
    }
}

/// A number, as it is or with the prefix and unit that it is shown with: `9.5 Gb/s`, `5%`.
pub(crate) fn quantity(text: &str, unit: Unit) -> Option<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e' || c == '/' || c == '%');
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let prefix = rest.trim().strip_suffix(unit.symbol()).unwrap_or(rest.trim());
    let scale = match prefix.trim() {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    let number: f64 = digits.trim().parse().ok()?;
    number.is_finite().then_some(number * scale)
}

#[cfg(test)]
mod tests {
    use wirecost_model::run::{Run, Transactions};
    use wirecost_model::study::{StudyRunRef, Value};

    use super::*;

    fn measured() -> Measurements {
        let runs = [
            ("epoll", "1", 100.0),
            ("epoll", "2", 50.0),
            ("threads", "1", 94.0),
            ("threads", "2", 49.0),
        ];
        Measurements::of(runs.into_iter().enumerate().map(|(place, (engine, size, per_second))| {
            let mut run = Run::empty("@rr", engine, "0.1.0", 0);
            let axes = vec![Value::new("engine", engine), Value::new("size", size)];
            let point = Point { axes: axes.clone(), settings: axes };
            let place = place as u32 + 1;
            run.study = Some(StudyRunRef {
                study: String::new(),
                point,
                place,
                repeat: 1,
                order: 1,
                search: None,
            });
            run.transactions = Some(Transactions { count: 1, per_second });
            (String::new(), run)
        }))
    }

    fn study(text: &str) -> Definition {
        Definition::parse(text).unwrap()
    }

    fn verdicts(text: &str) -> Vec<(String, bool)> {
        let study = study(text);
        let all = Expectation::all(&study).unwrap();
        let measured = measured();
        let judged =
            all.iter().flat_map(|e| e.judge(study.baseline.as_ref(), &measured, Some(&measured)));
        judged.map(|verdict| (verdict.point.to_string(), verdict.holds)).collect()
    }

    #[test]
    fn a_bound_applies_to_every_selected_point() {
        let text = "expect = [{ that = \"transactions >= 0.05 k/s\", at = { size = 2 } }]";
        assert_eq!(
            verdicts(text),
            [("engine=epoll size=2".to_owned(), true), ("engine=threads size=2".to_owned(), false)]
        );
    }

    #[test]
    fn the_baseline_is_the_point_that_differs_only_in_its_axes() {
        let text = "baseline = { engine = \"epoll\" }\n\
                    expect = [{ that = \"transactions >= 0.95 * baseline\" }]";
        assert_eq!(
            verdicts(text),
            [
                ("engine=threads size=1".to_owned(), false),
                ("engine=threads size=2".to_owned(), true)
            ]
        );
        let text = "baseline = { study = \"other\" }\n\
                    expect = [{ that = \"transactions <= baseline\" }]";
        assert_eq!(verdicts(text).iter().filter(|(_, holds)| *holds).count(), 4);
    }

    #[test]
    fn an_expectation_without_a_measurement_fails() {
        let all = verdicts("expect = [{ that = \"latency.p99 <= 100 us\" }]");
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|(_, holds)| !holds));
    }

    #[test]
    fn invalid_expectations_are_refused() {
        for (text, wanted) in [
            ("transactions", "write METRIC"),
            ("transactions <= many", "write METRIC"),
            ("transactions <= 5 us", "write METRIC"),
            ("transactions <= baseline * baseline", "write METRIC"),
            ("transactons <= 1", "did you mean transactions?"),
            ("transactions <= baseline", "has no baseline"),
        ] {
            let study = study(&format!("expect = [{{ that = \"{text}\" }}]"));
            let error = Expectation::all(&study).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn quantities_are_parsed_as_they_are_printed() {
        assert_eq!(quantity("9.5 Gb/s", Unit::BitsPerSecond), Some(9.5e9));
        assert_eq!(quantity("1e3", Unit::Microseconds), Some(1000.0));
        assert_eq!(quantity("100us", Unit::Microseconds), Some(100.0));
        assert_eq!(quantity("5%", Unit::Percent), Some(5.0));
        assert_eq!(quantity("3 kb", Unit::Count), None);
    }
}
