//! Which combinations of the values of its axes a study has.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use wirecost_model::study::Point;

use crate::definition::Definition;
use crate::error::{StudyError, nearest};
use crate::matrix::label;
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
        return Ok(product(&vec![0; lengths.len()], &all, &lengths));
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
            return Err(StudyError::UnknownAxis {
                key,
                name: name.clone(),
                nearest: nearest(name, study.axes.keys().map(String::as_str)),
            });
        }
    }
    match study.pairs.iter().find(|pair| pair.iter().collect::<BTreeSet<_>>().len() < 2) {
        Some(pair) => Err(StudyError::NoPair { axes: pair.join(", ") }),
        None => Ok(()),
    }
}

impl Definition {
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
        let no = |value: &str| (value == "1" || value == "3").then(|| format!("no {value}"));
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
