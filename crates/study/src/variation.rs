//! Which combinations of the values of its axes a study has.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use wirecost_model::study::Point;

use crate::condition::Condition;
use crate::definition::Definition;
use crate::error::{StudyError, nearest};
use crate::matrix::{label, point_at};
use crate::scalar::Scalar;

/// How axes vary together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vary {
    /// Every combination is a point.
    #[default]
    All,
    /// Each axis varies while the others keep their base; and pairs of axes that are named.
    OneAtATime,
}

/// Values of axes by their place: one of each axis, in their order.
type Places = Vec<usize>;

impl Vary {
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Vary::All
    }
}

/// The combinations of a study, each once; in those of a product the last axis varies fastest.
pub(crate) fn combinations(study: &Definition) -> Result<Vec<Places>, StudyError> {
    check(study)?;
    let lengths: Vec<usize> = study.axes.values().map(Vec::len).collect();
    let all: Vec<usize> = (0..lengths.len()).collect();
    if study.vary.is_all() {
        return possible(study, product(&vec![0; lengths.len()], &all, &lengths));
    }
    let base = base(study)?;
    let across = places(study, &study.across);
    let mut combinations = Vec::new();
    let mut seen = BTreeSet::new();
    for start in product(&base, &across, &lengths) {
        let alone = all.iter().filter(|axis| !across.contains(axis)).map(|axis| vec![*axis]);
        let pairs = study.pairs.iter().map(|names| places(study, names));
        let groups = std::iter::once(Vec::new()).chain(alone).chain(pairs);
        let more = groups.flat_map(|axes| product(&start, &axes, &lengths));
        combinations.extend(more.filter(|places| seen.insert(places.clone())));
    }
    possible(study, combinations)
}

/// Without the combinations that have a value where `only` says that there is none.
fn possible(study: &Definition, combinations: Vec<Places>) -> Result<Vec<Places>, StudyError> {
    let mut used = BTreeSet::new();
    let rule = |axis: usize, place: usize| -> Option<&Condition> {
        let (axis, values) = study.axes.get_index(axis)?;
        study.only.get(axis)?.get(&label(values.get(place)?))
    };
    let is_possible = |places: &Places| {
        let ruled = places.iter().enumerate().map(|(axis, place)| (axis, *place));
        let ruled: Vec<_> = ruled.filter(|(axis, place)| rule(*axis, *place).is_some()).collect();
        if ruled.is_empty() {
            return true;
        }
        let point = point_at(study, places);
        let holds = |(axis, place): &(usize, usize)| {
            rule(*axis, *place).is_some_and(|rule| rule.holds(&point))
        };
        let (holding, others): (Vec<_>, Vec<_>) = ruled.into_iter().partition(holds);
        used.extend(holding);
        others.is_empty()
    };
    let combinations = combinations.into_iter().filter(is_possible).collect();
    for (axis, rules) in &study.only {
        let of_axis = study.axes.get_full(axis);
        for value in rules.keys() {
            let is_used = of_axis.is_some_and(|(index, _, values)| {
                let place = values.iter().position(|known| label(known) == *value);
                place.is_some_and(|place| used.contains(&(index, place)))
            });
            if !is_used {
                let (axis, value) = (axis.clone(), value.clone());
                return Err(StudyError::UnusedOnly { axis, value });
            }
        }
    }
    Ok(combinations)
}

/// An upper bound of their number; `None` where it cannot be counted.
pub(crate) fn count(study: &Definition) -> Option<u128> {
    let length = |axis: &String| study.axes.get(axis).map_or(0, Vec::len);
    if study.vary.is_all() {
        return product_of(study.axes.values().map(Vec::len));
    }
    let alone: u128 = study.axes.values().map(|values| values.len() as u128).sum();
    let mut each = alone.checked_add(1)?;
    for pair in &study.pairs {
        each = each.checked_add(product_of(pair.iter().map(length))?)?;
    }
    each.checked_mul(product_of(study.across.iter().map(length))?)
}

fn product_of(lengths: impl Iterator<Item = usize>) -> Option<u128> {
    lengths.map(|length| length as u128).try_fold(1, u128::checked_mul)
}

/// All values of these axes with those of `start` on the others.
fn product(start: &[usize], axes: &[usize], lengths: &[usize]) -> Vec<Places> {
    axes.iter().fold(vec![start.to_vec()], |combinations, &axis| {
        let with = |places: &Places, value| {
            let mut places = places.clone();
            places[axis] = value;
            places
        };
        combinations
            .iter()
            .flat_map(|places| (0..lengths[axis]).map(move |value| with(places, value)))
            .collect()
    })
}

fn places(study: &Definition, names: &[String]) -> Vec<usize> {
    names.iter().filter_map(|name| study.axes.get_index_of(name)).collect()
}

/// The base of each axis: the first value where none is given.
fn base(study: &Definition) -> Result<Places, StudyError> {
    let of_axis = |(axis, values): (&String, &Vec<_>)| {
        let Some(Scalar(wanted)) = study.base.get(axis) else { return Ok(0) };
        let labels: Vec<String> = values.iter().map(label).collect();
        labels.iter().position(|label| label == wanted).ok_or_else(|| StudyError::UnknownBase {
            axis: axis.clone(),
            value: wanted.clone(),
            values: labels.join(", "),
        })
    };
    study.axes.iter().map(of_axis).collect()
}

/// Refuses axes that the study does not have, and what has no meaning in a full product.
fn check(study: &Definition) -> Result<(), StudyError> {
    for (axis, rules) in &study.only {
        let Some(values) = study.axes.get(axis) else {
            return Err(unknown_axis(study, "only", axis));
        };
        let labels: Vec<String> = values.iter().map(label).collect();
        if let Some(value) = rules.keys().find(|value| !labels.contains(value)) {
            return Err(StudyError::UnknownOnly {
                axis: axis.clone(),
                value: value.clone(),
                values: labels.join(", "),
            });
        }
    }
    let keys = [
        ("base", study.base.keys().collect::<Vec<_>>()),
        ("across", study.across.iter().collect()),
        ("pairs", study.pairs.iter().flatten().collect()),
    ];
    for (key, names) in keys {
        if study.vary.is_all() && !names.is_empty() {
            return Err(StudyError::VariesNothing { key });
        }
        if let Some(name) = names.into_iter().find(|name| !study.axes.contains_key(*name)) {
            return Err(unknown_axis(study, key, name));
        }
    }
    match study.pairs.iter().find(|pair| pair.iter().collect::<BTreeSet<_>>().len() < 2) {
        Some(pair) => Err(StudyError::NoPair { axes: pair.join(", ") }),
        None => Ok(()),
    }
}

fn unknown_axis(study: &Definition, key: &'static str, name: &str) -> StudyError {
    let nearest = nearest(name, study.axes.keys().map(String::as_str));
    StudyError::UnknownAxis { key, name: name.to_owned(), nearest }
}

impl Definition {
    /// Forgets what `only` says of values that their axes no longer have.
    pub(crate) fn drop_lost_only(&mut self) {
        let axes = &self.axes;
        for (axis, rules) in &mut self.only {
            let values = axes.get(axis).map(Vec::as_slice).unwrap_or_default();
            rules.retain(|value, _| values.iter().any(|known| label(known) == *value));
        }
        self.only.retain(|_, rules| !rules.is_empty());
    }

    /// Forgets bases that are none of the values of their axes any more.
    pub(crate) fn drop_lost_bases(&mut self) {
        let axes = &self.axes;
        self.base.retain(|axis, Scalar(wanted)| {
            axes.get(axis).is_none_or(|values| values.iter().any(|value| label(value) == *wanted))
        });
    }

    /// Forgets what is said of an axis that the study no longer has.
    pub(crate) fn drop_variation_of(&mut self, axis: &str) {
        self.base.shift_remove(axis);
        self.only.shift_remove(axis);
        self.across.retain(|name| name != axis);
        self.pairs.retain(|pair| !pair.iter().any(|name| name == axis));
    }

    /// The base of a study that varies one axis at a time: `size=64k connections=1`.
    #[must_use]
    pub fn base_text(&self) -> Option<String> {
        let base = base(self).ok().filter(|_| !self.vary.is_all())?;
        let values = self.axes.iter().zip(base);
        let values: Vec<String> = values
            .filter(|((axis, _), _)| !self.across.contains(axis))
            .map(|((axis, values), place)| format!("{axis}={}", label(&values[place])))
            .collect();
        Some(values.join(" "))
    }

    /// A point as a person calls it: of a study that varies one axis at a time, what differs from the base.
    #[must_use]
    pub fn name_of(&self, point: &Point) -> String {
        let Ok(base) = base(self) else { return point.to_string() };
        if self.vary.is_all() {
            return point.to_string();
        }
        let labels: IndexMap<&str, String> = self
            .axes
            .iter()
            .zip(base)
            .map(|((axis, values), place)| (axis.as_str(), label(&values[place])))
            .collect();
        let differs = |axis: &&wirecost_model::study::Value| {
            self.across.contains(&axis.name) || labels.get(axis.name.as_str()) != Some(&axis.value)
        };
        let parts: Vec<String> = (point.axes.iter())
            .filter(differs)
            .map(|axis| format!("{}={}", axis.name, axis.value))
            .collect();
        if parts.len() == self.across.len() {
            return std::iter::once("base".to_owned()).chain(parts).collect::<Vec<_>>().join(" ");
        }
        parts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    fn study(text: &str) -> Definition {
        Definition::parse(&format!("profile = \"@stream\"\n{text}")).unwrap()
    }

    fn names(text: &str) -> Vec<String> {
        let study = study(text);
        let points = Matrix::of(&study).unwrap().points;
        points.iter().map(|point| study.name_of(point)).collect()
    }

    const AXES: &str = "[axes]\na = [1, 2, 3]\nb = [\"x\", \"y\"]\nc = [1, 2]\n";

    #[test]
    fn each_axis_varies_while_the_others_keep_their_base() {
        let text = "vary = \"one-at-a-time\"\nbase = { a = 2 }\n";
        assert_eq!(names(&format!("{text}{AXES}")), ["base", "a=1", "a=3", "b=y", "c=2"]);
        let matrix = Matrix::of(&study(&format!("{text}{AXES}"))).unwrap();
        // Every point has a value of each axis.
        assert_eq!(matrix.points[1].to_string(), "a=1 b=x c=1");
    }

    #[test]
    fn pairs_are_combined_in_full_and_no_point_comes_twice() {
        let text = "vary = \"one-at-a-time\"\npairs = [[\"a\", \"c\"]]\n";
        let expected = ["base", "a=2", "a=3", "b=y", "c=2", "a=2 c=2", "a=3 c=2"];
        assert_eq!(names(&format!("{text}{AXES}")), expected);
    }

    #[test]
    fn axes_across_are_combined_with_everything() {
        let text = "vary = \"one-at-a-time\"\nacross = [\"c\"]\n";
        assert_eq!(
            names(&format!("{text}{AXES}")),
            [
                "base c=1", "a=2 c=1", "a=3 c=1", "b=y c=1", "base c=2", "a=2 c=2", "a=3 c=2",
                "b=y c=2"
            ]
        );
    }

    #[test]
    fn values_are_left_out_where_their_condition_does_not_hold() {
        let text = "vary = \"one-at-a-time\"\nacross = [\"c\"]\nonly = { a = { 2 = { c = 2 } } }\n";
        let expected =
            ["base c=1", "a=3 c=1", "b=y c=1", "base c=2", "a=2 c=2", "a=3 c=2", "b=y c=2"];
        assert_eq!(names(&format!("{text}{AXES}")), expected);
        // In every combination too.
        let all = "only = { a = { 2 = { c = 2, b = \"x\" }, 3 = { c = 1 } } }\n";
        let points = names(&format!("{all}{AXES}"));
        assert_eq!(points.len(), 4 + 1 + 2, "{points:?}");
        assert!(points.contains(&"a=2 b=x c=2".to_owned()));
        let mut changed = study(&format!("{text}{AXES}"));
        assert_eq!(Definition::parse(&changed.to_text()), Ok(changed.clone()));
        // What holds nowhere any more goes with its value.
        changed.set_axis("c", &["1"]).unwrap();
        changed.drop_rules_of(&["c"]).unwrap();
        assert!(changed.only.is_empty());
        let points = Matrix::of(&changed).unwrap().points;
        assert_eq!(
            points.iter().map(|at| changed.name_of(at)).collect::<Vec<_>>(),
            ["base c=1", "a=3 c=1", "b=y c=1"]
        );
        let mut changed = study(&format!("{text}{AXES}"));
        changed.set_axis("a", &["1", "3"]).unwrap();
        assert!(changed.only.is_empty());
        let mut changed = study(&format!("{text}{AXES}"));
        changed.remove_axis("c").unwrap();
        assert!(changed.only.is_empty());
    }

    #[test]
    fn tables_are_left_out_by_what_they_set() {
        let way = "way = [{ label = \"off\" }, { label = \"on\", engine = \"x\" }]\n";
        let mut changed = study(&format!("vary = \"one-at-a-time\"\n[axes]\n{way}"));
        let no = |name: &str, value: &str| {
            ((name, value) == ("engine", "x")).then(|| "no engine x".to_owned())
        };
        changed.leave_out_values("way", no);
        let matrix = Matrix::of(&changed).unwrap();
        assert_eq!(matrix.points.len(), 1);
        assert_eq!(matrix.skipped[0].why, "no engine x");
    }

    #[test]
    fn a_large_number_of_factors_is_few_points() {
        let axes: String = (0..200).map(|axis| format!("a{axis} = [1, 2, 3]\n")).collect();
        let text = format!("vary = \"one-at-a-time\"\n[axes]\n{axes}");
        assert_eq!(names(&text).len(), 401);
    }

    #[test]
    fn what_varies_nothing_is_refused_with_a_remedy() {
        let error = |text: &str| Matrix::of(&study(&format!("{text}{AXES}"))).unwrap_err();
        for (text, expected) in [
            ("base = { a = 2 }\n", "base needs vary = \"one-at-a-time\""),
            ("vary = \"one-at-a-time\"\nbase = { a = 4 }\n", "a has the values 1, 2, 3"),
            ("vary = \"one-at-a-time\"\nacross = [\"d\"]\n", "the study has no axis d"),
            ("vary = \"one-at-a-time\"\npairs = [[\"a\", \"a\"]]\n", "two different axes"),
            ("only = { d = { x = { a = 1 } } }\n", "only: the study has no axis d"),
            ("only = { b = { z = { a = 1 } } }\n", "only.b.z: b has the values x, y"),
            ("only = { b = { x = { d = 1 } } }\n", "is named d"),
            ("only = { b = { x = { a = 4 } } }\n", "only.b.x holds at no point"),
        ] {
            let error = error(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let near =
            study("vary = \"one-at-a-time\"\nacross = [\"conections\"]\n[axes]\nconnections = [1]");
        let near = Matrix::of(&near).unwrap_err().help();
        assert_eq!(near.as_deref(), Some("did you mean connections?"));
    }

    #[test]
    fn changes_of_axes_take_their_base_along() {
        let text = "vary = \"one-at-a-time\"\nbase = { a = 2 }\npairs = [[\"a\", \"c\"]]\nacross = [\"c\"]\n";
        let mut changed = study(&format!("{text}{AXES}"));
        changed.set_axis("a", &["7", "8"]).unwrap();
        let points = |study: &Definition| Matrix::of(study).unwrap().points.len();
        // For both values of c: the base, one more a, one more b.
        assert_eq!((changed.base.len(), points(&changed)), (0, 6));
        changed.remove_axis("c").unwrap();
        assert_eq!((changed.across.len(), changed.pairs.len(), points(&changed)), (0, 0, 3));
        assert_eq!(Definition::parse(&changed.to_text()), Ok(changed));
    }

    #[test]
    fn values_that_cannot_be_had_are_left_out_with_the_reason() {
        let text = "vary = \"one-at-a-time\"\npairs = [[\"a\", \"c\"]]\n";
        let mut changed = study(&format!("{text}{AXES}"));
        let no =
            |_: &str, value: &str| (value == "1" || value == "3").then(|| format!("no {value}"));
        changed.leave_out_values("a", no);
        changed.leave_out_values("d", no);
        let matrix = Matrix::of(&changed).unwrap();
        let points: Vec<String> = matrix.points.iter().map(|at| changed.name_of(at)).collect();
        // The first value was the base.
        assert_eq!(points, ["base", "b=y", "c=2"]);
        assert_eq!(matrix.points[0].to_string(), "a=2 b=x c=1");
        let skipped: Vec<(String, &str)> =
            matrix.skipped.iter().map(|of| (changed.name_of(&of.point), &*of.why)).collect();
        let expected = [("a=1", "no 1"), ("a=3", "no 3"), ("a=1 c=2", "no 1"), ("a=3 c=2", "no 3")];
        assert_eq!(skipped, expected.map(|(name, why)| (name.to_owned(), why)));
        // A study that was kept leaves out the same.
        assert_eq!(Definition::parse(&changed.to_text()), Ok(changed));
    }
}
