//! The points of a study.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use wirecost_model::study::{OfferedLoad, Point, Value};

use crate::condition::Condition;
use crate::definition::{Definition, LABEL, Skip};
use crate::error::{StudyError, nearest};
use crate::scalar::{AxisValue, Scalar, ValueMatch};
use crate::variation;

/// Points of a study, with those that are skipped. Each is read and planned before the first run, and
/// so many runs take hours.
const MOST_POINTS: u128 = 10_000;

/// The points of a study, and the skipped ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The last axis varies fastest.
    pub points: Vec<Point>,
    pub skipped: Vec<Skipped>,
}

/// A skipped point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub point: Point,
    pub why: String,
}

impl Matrix {
    /// The points of a study.
    ///
    /// # Errors
    /// Axes without values or with duplicates, conditions with unknown names or without a matching point,
    /// a matrix without points.
    pub fn of(study: &Definition) -> Result<Self, StudyError> {
        check_axes(study)?;
        if study.tune.is_some() {
            // The settings that a search tries follow from its runs; that of the base is known.
            let base = vec![0; study.axes.len()];
            return Ok(Self { points: vec![Self::at(study, &base)?], skipped: Vec::new() });
        }
        check_count(study)?;
        let names: BTreeSet<String> = names(study);
        for at in study.only.values().flat_map(IndexMap::values) {
            check_condition(at, &names)?;
        }
        let all = points(study)?;
        let mut points: Vec<Point> = Vec::new();
        let mut skipped = Vec::new();
        let mut holds = (vec![false; study.when.len()], vec![false; study.skip.len()]);
        for at in conditions(study) {
            check_condition(at, &names)?;
        }
        for mut point in all {
            let mut settings: IndexMap<String, String> = IndexMap::new();
            let profile = study.profile.iter().map(|profile| ("profile", profile));
            let set = study.set.iter().map(|(name, Scalar(value))| (name.as_str(), value));
            for (name, value) in profile.chain(set) {
                settings.insert(name.to_owned(), value.clone());
            }
            for Value { name, value } in std::mem::take(&mut point.settings) {
                settings.insert(name, value);
            }
            point.settings = values(&settings);
            for (rule, holds) in study.when.iter().zip(&mut holds.0) {
                if rule.at.holds(&point) {
                    *holds = true;
                    for (name, Scalar(value)) in &rule.set {
                        settings.insert(name.clone(), value.clone());
                    }
                    point.settings = values(&settings);
                }
            }
            let mut skip_reason = None;
            for (rule, holds) in study.skip.iter().zip(&mut holds.1) {
                if rule.at.holds(&point) {
                    *holds = true;
                    skip_reason = skip_reason.or(Some(rule.why.clone()));
                }
            }
            match skip_reason {
                Some(why) => skipped.push(Skipped { point, why }),
                None => points.push(point),
            }
        }
        if let Some(index) = holds.0.iter().position(|holds| !holds) {
            return Err(StudyError::UnusedWhen { index });
        }
        if let Some(index) = holds.1.iter().position(|holds| !holds) {
            return Err(StudyError::UnusedSkip { index, why: study.skip[index].why.clone() });
        }
        skip_shares_of_skipped(&mut points, &mut skipped);
        if points.is_empty() {
            return Err(StudyError::NoPointsLeft);
        }
        if points.iter().any(|point| point.get("profile").is_none()) {
            return Err(StudyError::NoProfile);
        }
        let matrix = Self { points, skipped };
        let has_saturating = |place: &usize| matrix.saturating(*place).is_some();
        let shares = (0..matrix.points.len()).filter(|place| is_share(&matrix.points[*place]));
        match shares.into_iter().find(|place| !has_saturating(place)) {
            Some(place) => {
                Err(StudyError::NoSaturatingPoint { point: matrix.points[place].to_string() })
            }
            None => Ok(matrix),
        }
    }

    /// The point at these levels of the factors of a search.
    ///
    /// # Errors
    /// As of [`Matrix::of`].
    pub fn at(study: &Definition, levels: &[usize]) -> Result<Point, StudyError> {
        let mut one = Definition { tune: None, ..study.clone() };
        for ((axis, values), level) in one.axes.iter_mut().zip(levels) {
            let value = values.get(*level).cloned();
            *values = vec![value.ok_or_else(|| StudyError::EmptyAxis(axis.clone()))?];
        }
        Self::of(&one)?.points.into_iter().next().ok_or(StudyError::NoPointsLeft)
    }

    /// For each point, the number of its block: points with the same values of these axes.
    pub(crate) fn blocks(&self, axes: &[String]) -> Vec<usize> {
        let mut known: Vec<Vec<&str>> = Vec::new();
        let mut blocks = Vec::new();
        for point in &self.points {
            let of = point.axes.iter().filter(|axis| axes.contains(&axis.name));
            let values: Vec<&str> = of.map(|axis| axis.value.as_str()).collect();
            let place = known.iter().position(|other| *other == values);
            blocks.push(place.unwrap_or(known.len()));
            if place.is_none() {
                known.push(values);
            }
        }
        blocks
    }

    /// Index of the point whose throughput a share of load is of; `None` for points whose load is no share.
    #[must_use]
    pub fn saturating(&self, index: usize) -> Option<usize> {
        let point = self.points.get(index).filter(|point| is_share(point))?;
        self.points.iter().position(|other| point.is_saturated_by(other))
    }
}

impl Definition {
    /// Removes the rules that matched some points until these axes had other values, and match none now.
    ///
    /// # Errors
    /// As of [`Matrix::of`], for anything else.
    pub fn drop_rules_of(&mut self, axes: &[&str]) -> Result<(), StudyError> {
        let depends = |at: &Condition| at.names().any(|name| axes.contains(&name));
        loop {
            match Matrix::of(self) {
                Err(StudyError::UnusedWhen { index }) if depends(&self.when[index].at) => {
                    self.when.remove(index);
                }
                Err(StudyError::UnusedSkip { index, .. }) if depends(&self.skip[index].at) => {
                    self.skip.remove(index);
                }
                Err(StudyError::UnusedOnly { axis, value })
                    if depends(&self.only[&axis][&value]) =>
                {
                    self.drop_value(&axis, &value);
                }
                Ok(_) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Definition {
    /// Removes a value of an axis, and what is said of it.
    fn drop_value(&mut self, axis: &str, value: &str) {
        if let Some(values) = self.axes.get_mut(axis) {
            values.retain(|known| label(known) != value);
        }
        self.drop_lost_bases();
        self.drop_lost_only();
    }

    /// Axes that set nothing but names with these prefixes.
    #[must_use]
    pub fn axes_of(&self, prefixes: &[&str]) -> Vec<String> {
        let is_of = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let sets_only_these = |(axis, values): &(&String, &Vec<AxisValue>)| {
            let mut names = values.iter().flat_map(|value| set_by(axis, value)).peekable();
            names.peek().is_some() && names.all(is_of)
        };
        self.axes.iter().filter(sets_only_these).map(|(axis, _)| axis.clone()).collect()
    }

    /// Removes the values, of axes that have others, that set nothing but names with these prefixes. Each axis with the
    /// labels of what it lost.
    pub fn drop_values_of(&mut self, prefixes: &[&str]) -> Vec<(String, Vec<String>)> {
        let is_of = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let mut dropped = Vec::new();
        for (axis, values) in &self.axes {
            let is_lost = |value: &&AxisValue| {
                let mut names = set_by(axis, value).peekable();
                names.peek().is_some() && names.all(is_of)
            };
            let labels: Vec<String> = values.iter().filter(is_lost).map(label).collect();
            if !labels.is_empty() && labels.len() < values.len() {
                dropped.push((axis.clone(), labels));
            }
        }
        for (axis, labels) in &dropped {
            labels.iter().for_each(|label| self.drop_value(axis, label));
        }
        dropped
    }

    /// Removes an axis, with the rules and expectations about it.
    ///
    /// # Errors
    /// The study has no such axis.
    pub fn remove_axis(&mut self, axis: &str) -> Result<(), StudyError> {
        let values = self.axes.shift_remove(axis);
        let values = values.ok_or_else(|| StudyError::NoAxis(axis.to_owned()))?;
        self.drop_variation_of(axis);
        let left = names(self);
        let mut gone: Vec<&str> = values.iter().flat_map(|value| set_by(axis, value)).collect();
        gone.push(axis);
        gone.retain(|name| !left.contains(*name));
        let stays = |at: &Condition| !at.names().any(|name| gone.contains(&name));
        self.when.retain(|rule| stays(&rule.at));
        self.skip.retain(|rule| stays(&rule.at));
        self.expect.retain(|rule| stays(&rule.at));
        self.only.values_mut().for_each(|rules| rules.retain(|_, at| stays(at)));
        self.only.retain(|_, rules| !rules.is_empty());
        Ok(())
    }
}

impl Definition {
    /// Leaves out the points at which an axis has a value that cannot be had, with the reason that `missing` gives of one of
    /// the settings, by name and value, that it sets. A base that cannot be had is replaced by the first value that can.
    pub fn leave_out_values(&mut self, axis: &str, missing: impl Fn(&str, &str) -> Option<String>) {
        let Some(values) = self.axes.get(axis) else { return };
        let why = |value: &AxisValue| match value {
            AxisValue::One(Scalar(value)) => missing(axis, value),
            AxisValue::Several(set) => {
                let mut set = set.iter().filter(|(name, _)| *name != LABEL);
                set.find_map(|(name, Scalar(value))| missing(name, value))
            }
        };
        let labels: Vec<(String, Option<String>)> =
            values.iter().map(|value| (label(value), why(value))).collect();
        let base = match self.base.get(axis) {
            Some(Scalar(base)) => Some(base),
            None => labels.first().map(|(first, _)| first),
        };
        let lost = labels.iter().any(|(label, why)| Some(label) == base && why.is_some());
        let other = labels.iter().find(|(_, why)| why.is_none());
        if !self.vary.is_all()
            && lost
            && let Some((other, _)) = other
        {
            self.base.insert(axis.to_owned(), Scalar(other.clone()));
        }
        for (value, why) in labels {
            if let Some(why) = why {
                let entries = [(axis.to_owned(), ValueMatch::One(Scalar(value)))];
                let at = Condition { entries: entries.into_iter().collect() };
                self.skip.push(Skip { at, why });
            }
        }
    }

    /// Leaves out one point, with the reason.
    pub fn leave_out_point(&mut self, point: &Point, why: &str) {
        let entry =
            |value: &Value| (value.name.clone(), ValueMatch::One(Scalar(value.value.clone())));
        let at = Condition { entries: point.axes.iter().map(entry).collect() };
        self.skip.push(Skip { at, why: why.to_owned() });
    }
}

/// Names that a value of an axis sets.
fn set_by<'a>(axis: &'a str, value: &'a AxisValue) -> impl Iterator<Item = &'a str> {
    let (one, several) = match value {
        AxisValue::One(_) => (Some(axis), None),
        AxisValue::Several(set) => (None, Some(set)),
    };
    let several = several.into_iter().flat_map(IndexMap::keys).map(String::as_str);
    one.into_iter().chain(several.filter(|name| *name != LABEL))
}

fn is_share(point: &Point) -> bool {
    matches!(point.load(), OfferedLoad::Share(_))
}

/// Without the run that saturates, a share of its throughput is unknown.
fn skip_shares_of_skipped(points: &mut Vec<Point>, skipped: &mut Vec<Skipped>) {
    let missing: Vec<Point> = skipped.iter().map(|skipped| skipped.point.clone()).collect();
    points.retain(|point| {
        let is_lost = is_share(point) && missing.iter().any(|other| point.is_saturated_by(other));
        if is_lost {
            let why = "its load is a share of the throughput at load=max, which is skipped";
            skipped.push(Skipped { point: point.clone(), why: why.to_owned() });
        }
        !is_lost
    });
}

fn values(settings: &IndexMap<String, String>) -> Vec<Value> {
    settings.iter().map(|(name, value)| Value::new(name, value)).collect()
}

fn check_axes(study: &Definition) -> Result<(), StudyError> {
    for (axis, values) in &study.axes {
        if values.is_empty() {
            return Err(StudyError::EmptyAxis(axis.clone()));
        }
        let mut seen = BTreeSet::new();
        for value in values {
            let label = label(value);
            if !seen.insert(label.clone()) {
                return Err(StudyError::DuplicateValue { axis: axis.clone(), value: label });
            }
            let AxisValue::Several(set) = value else { continue };
            let other = |name: &&String| *name != LABEL && study.axes.contains_key(*name);
            if let Some(name) = set.keys().find(other) {
                return Err(StudyError::Collision { axis: axis.clone(), name: name.clone() });
            }
        }
    }
    Ok(())
}

/// Counts the points before there are any.
fn check_count(study: &Definition) -> Result<(), StudyError> {
    match variation::count(study) {
        Some(points) if points <= MOST_POINTS => Ok(()),
        points => Err(StudyError::TooManyPoints { points, limit: MOST_POINTS }),
    }
}

/// A table without a label is named by all its values.
pub(crate) fn label(value: &AxisValue) -> String {
    match value {
        AxisValue::One(Scalar(value)) => value.clone(),
        AxisValue::Several(set) => match set.get(LABEL) {
            Some(Scalar(label)) => label.clone(),
            None => {
                let parts: Vec<&str> = set.values().map(|Scalar(value)| value.as_str()).collect();
                parts.join("/")
            }
        },
    }
}

/// Names of the values of an axis.
pub(crate) fn labels(values: &[AxisValue]) -> Vec<String> {
    values.iter().map(label).collect()
}

/// Its points, without what is set at all of them.
fn points(study: &Definition) -> Result<Vec<Point>, StudyError> {
    let combinations = variation::combinations(study)?;
    Ok(combinations.iter().map(|places| point_at(study, places)).collect())
}

/// The point with these values of the axes, each by its place.
pub(crate) fn point_at(study: &Definition, places: &[usize]) -> Point {
    let mut point = Point::default();
    for ((axis, values), place) in study.axes.iter().zip(places) {
        let value = &values[*place];
        point.axes.push(Value::new(axis, &label(value)));
        match value {
            AxisValue::One(Scalar(value)) => point.settings.push(Value::new(axis, value)),
            AxisValue::Several(set) => {
                let set = set.iter().filter(|(name, _)| *name != LABEL);
                point.settings.extend(set.map(|(name, Scalar(v))| Value::new(name, v)));
            }
        }
    }
    point
}

/// All names that the study sets.
pub(crate) fn names(study: &Definition) -> BTreeSet<String> {
    let in_tables = study.axes.values().flatten().filter_map(|value| match value {
        AxisValue::Several(set) => Some(set.keys().filter(|name| *name != LABEL)),
        AxisValue::One(_) => None,
    });
    let whens = study.when.iter().flat_map(|when| when.set.keys());
    let all = study.axes.keys().chain(study.set.keys()).chain(whens).chain(in_tables.flatten());
    all.cloned().chain(["profile".to_owned()]).collect()
}

fn conditions(study: &Definition) -> impl Iterator<Item = &Condition> {
    let baseline = study.baseline.iter().filter_map(|baseline| match baseline {
        crate::definition::Baseline::Point(at) => Some(at),
        crate::definition::Baseline::Study { .. } => None,
    });
    let whens = study.when.iter().map(|when| &when.at);
    let skips = study.skip.iter().map(|skip| &skip.at);
    whens.chain(skips).chain(study.expect.iter().map(|expect| &expect.at)).chain(baseline)
}

fn check_condition(at: &Condition, names: &BTreeSet<String>) -> Result<(), StudyError> {
    if let Some(name) = at.names().find(|name| !names.contains(*name)) {
        let nearest = nearest(name, names.iter().map(String::as_str));
        return Err(StudyError::UnknownName { name: name.to_owned(), nearest });
    }
    match at.invalid_comparison() {
        Some(text) => Err(StudyError::NotANumber { text: text.to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(text: &str) -> Result<Matrix, StudyError> {
        Matrix::of(&Definition::parse(&format!("profile = \"@stream\"\n{text}")).unwrap())
    }

    fn labels(text: &str) -> Vec<String> {
        matrix(text).unwrap().points.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn points_are_counted_before_they_are_made() {
        let values = |n: usize| format!("{:?}", (0..n).collect::<Vec<_>>());
        let axes = |axes: usize, each: usize| {
            let axis = |axis| format!("a{axis} = {}\n", values(each));
            format!("[axes]\n{}", (0..axes).map(axis).collect::<String>())
        };
        assert_eq!(matrix(&axes(4, 10)).unwrap().points.len(), 10_000);
        let error = |text: &str| matrix(text).unwrap_err().to_string();
        let limit = "points, and the limit is 10000";
        assert_eq!(error(&axes(1, 10_001)), format!("the axes make 10001 {limit}"));
        assert_eq!(error(&axes(30, 10)), format!("the axes make 1{} {limit}", "0".repeat(30)));
        let more = format!("the axes make more than {} {limit}", u128::MAX);
        assert_eq!(error(&axes(40, 10)), more);
    }

    #[test]
    fn every_combination_is_a_point_and_the_last_axis_varies_fastest() {
        let text = "[axes]\nsize = [\"64k\", 1]\nconnections = [1, 2]";
        assert_eq!(
            labels(text),
            [
                "size=64k connections=1",
                "size=64k connections=2",
                "size=1 connections=1",
                "size=1 connections=2"
            ]
        );
        assert_eq!(labels(""), ["all"]);
    }

    #[test]
    fn a_table_value_sets_several_names_of_one_point() {
        let text = r#"
            set = { engine = "threads", workers = 3 }
            [axes]
            way = [{ label = "a", engine = "epoll" }, { profile = "@rr", size = "1k" }]
        "#;
        let matrix = matrix(text).unwrap();
        assert_eq!(labels(text), ["way=a", "way=@rr/1k"]);
        let get = |point: usize, name| matrix.points[point].get(name);
        assert_eq!((get(0, "engine"), get(0, "profile")), (Some("epoll"), Some("@stream")));
        assert_eq!((get(1, "engine"), get(1, "profile")), (Some("threads"), Some("@rr")));
        assert_eq!((get(1, "workers"), get(1, "label")), (Some("3"), None));
    }

    #[test]
    fn rules_apply_to_matching_points_and_later_rules_override() {
        let text = r#"
            axes = { connections = [1, 100, 400] }
            when = [
              { at = {}, set = { "option.wndsz" = "256k" } },
              { at = { connections = "> 100" }, set = { "option.wndsz" = "32k" } },
              { at = { "option.wndsz" = "32k" }, set = { workers = 1 } },
            ]
            skip = [{ at = { connections = 1 }, why = "too few" }]
        "#;
        let matrix = matrix(text).unwrap();
        let settings: Vec<_> = matrix
            .points
            .iter()
            .map(|point| (point.get("option.wndsz").unwrap(), point.get("workers")))
            .collect();
        assert_eq!(settings, [("256k", None), ("32k", Some("1"))]);
        assert_eq!(matrix.skipped[0].point.to_string(), "connections=1");
        assert_eq!(matrix.skipped[0].why, "too few");
    }

    #[test]
    fn rules_of_values_that_the_command_line_replaced_are_dropped() {
        let text = r#"
            profile = "@stream"
            axes = { size = ["64k", "1k"], connections = [1, 100] }
            when = [{ at = { connections = "> 10" }, set = { "option.wndsz" = "32k" } }]
            skip = [{ at = { size = "1k", connections = 100 } }, { at = { size = "64k" } }]
        "#;
        let mut study = Definition::parse(text).unwrap();
        study.set_axis("connections", &["1", "2"]).unwrap();
        study.drop_rules_of(&["connections"]).unwrap();
        assert_eq!((study.when.len(), study.skip.len()), (0, 1));
        // A mistake of another axis stays one.
        study.set_axis("size", &["1k"]).unwrap();
        assert!(matches!(
            study.drop_rules_of(&["connections"]),
            Err(StudyError::UnusedSkip { index: 0, .. })
        ));
    }

    #[test]
    fn an_axis_is_removed_with_what_is_about_it() {
        let text = r#"
            profile = "@stream"
            [axes]
            size = ["64k", "1k"]
            "tune.mtu" = [1500, 9000]
            device = [{ label = "veth" }, { label = "tun", "lab.ring" = 1024 }]
            way = [{ label = "a", "tune.tcp_sack" = 0, engine = "threads" }, { "tune.tcp_sack" = 1 }]
            [[skip]]
            at = { "tune.mtu" = 9000, size = "1k" }
            [[skip]]
            at = { "lab.ring" = 1024, size = "1k" }
            [[skip]]
            at = { size = "1k", way = "a" }
            [[when]]
            at = { device = "tun" }
            set = { workers = 1 }
            [[expect]]
            that = "throughput >= 1"
            at = { "tune.mtu" = 9000 }
        "#;
        let mut study = Definition::parse(text).unwrap();
        // An axis that sets something else as well is about more.
        let axes = study.axes_of(&["tune.", "lab."]);
        assert_eq!(axes, ["tune.mtu", "device"]);
        for axis in axes {
            study.remove_axis(&axis).unwrap();
        }
        assert_eq!(study.axes.keys().collect::<Vec<_>>(), ["size", "way"]);
        assert_eq!((study.skip.len(), study.when.len(), study.expect.len()), (1, 0, 0));
        assert_eq!(Matrix::of(&study).unwrap().points.len(), 3);
        assert_eq!(study.remove_axis("sizes"), Err(StudyError::NoAxis("sizes".to_owned())));
    }

    #[test]
    fn a_share_of_load_needs_its_saturating_point() {
        let text = "axes = { load = [\"25%\", \"max\", \"1gbit\"], size = [1, 2] }";
        let all = matrix(text).unwrap();
        // 25%/1, 25%/2, max/1, max/2, 1gbit/1, 1gbit/2
        let saturating: Vec<_> = (0..6).map(|place| all.saturating(place)).collect();
        assert_eq!(saturating, [Some(2), Some(3), None, None, None, None]);
        let skip = "skip = [{ at = { load = \"max\", size = 2 }, why = \"slow\" }]";
        let part = matrix(&format!("{text}\n{skip}")).unwrap();
        assert_eq!(part.points.len(), 4);
        assert!(part.skipped[1].why.contains("load=max, which is skipped"), "{:?}", part.skipped);
        for text in ["axes = { load = [\"25%\"] }", "set = { load = \"25%\" }"] {
            let error = matrix(text).unwrap_err();
            assert!(error.to_string().contains("a share of the throughput at load=max"), "{error}");
            assert!(error.help().unwrap().contains("max"));
        }
    }

    #[test]
    fn contradictory_definitions_are_refused() {
        for (text, wanted) in [
            ("axes = { size = [] }", "axis size has no values"),
            ("axes = { size = [1, \"1\"] }", "the value 1 twice"),
            ("axes = { a = [{ b = 1 }], b = [2] }", "sets b, which is an axis"),
            ("axes = { size = [1] }\nskip = [{ at = { sise = 1 } }]", "is named sise"),
            ("axes = { size = [1] }\nskip = [{ at = { size = \"> x\" } }]", "is not a number"),
            ("axes = { size = [1] }\nskip = [{ at = { size = 1 } }]", "excludes every point"),
            (
                "axes = { size = [1, 2] }\nskip = [{ at = { size = \"> 2\" }, why = \"w\" }]",
                "skip[0] matches no point (w)",
            ),
            (
                "axes = { size = [1] }\nwhen = [{ at = { size = 2 }, set = { a = 1 } }]",
                "when[0] matches no point",
            ),
        ] {
            let error = matrix(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let near = matrix("axes = { size = [1] }\nskip = [{ at = { sise = 1 } }]").unwrap_err();
        assert_eq!(near.help().as_deref(), Some("did you mean size?"));
        let none = Matrix::of(&Definition::default()).unwrap_err();
        assert_eq!(none, StudyError::NoProfile);
    }
}
