//! A study as it is written.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::error::{StudyError, nearest};
use crate::matrix::{label, labels};
use crate::place::Place;
use crate::scalar::{AxisValue, Scalar};
use crate::search::SearchDefinition;
use crate::tuning::{KEEP, TuneDefinition};
use crate::variation::Vary;

/// The key that names a table of an axis.
pub(crate) const LABEL: &str = "label";

/// The keys of a study's file; docs/studies.md says what they mean.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Definition {
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub place: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<LabDefinition>,
    pub seed: u64,
    pub order: Order,
    pub warm_up: u32,
    #[serde(skip_serializing_if = "Vary::is_all")]
    pub vary: Vary,
    /// Axes of which every value is combined with everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub across: Vec<String>,
    /// Axes whose values are combined with each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub hosts: IndexMap<String, String>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub set: IndexMap<String, Scalar>,
    pub repeat: Repeat,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchDefinition>,
    /// The axes are the factors of a search by `wirecost tune`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune: Option<TuneDefinition>,
    /// Value of an axis while others vary.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub base: IndexMap<String, Scalar>,
    /// Values of axes, by axis and label, that there are only where a condition holds.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub only: IndexMap<String, IndexMap<String, Condition>>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub axes: IndexMap<String, Vec<AxisValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<When>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<Skip>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<Quick>,
}

/// What the lab is like.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LabDefinition {
    /// Keys that differ in the direction to the first host.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub back: IndexMap<String, Scalar>,
    /// Keys of its links, and its topology.
    #[serde(flatten)]
    pub keys: IndexMap<String, Scalar>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Each repeat of all points in an order of its own.
    #[default]
    Shuffled,
    /// Shuffled too, but points with the same values of the axes `across` follow each other.
    Blocks,
    /// As the points are listed.
    Written,
}

/// How often each point is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Repeat {
    pub times: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub until: IndexMap<String, String>,
}

impl Default for Repeat {
    fn default() -> Self {
        Self { times: 1, most: None, budget: None, until: IndexMap::new() }
    }
}

/// What is set at some points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    pub at: Condition,
    pub set: IndexMap<String, Scalar>,
}

/// Points that are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    pub at: Condition,
    #[serde(default)]
    pub why: String,
}

/// What is expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub that: String,
    #[serde(default, skip_serializing_if = "is_everywhere")]
    pub at: Condition,
}

fn is_everywhere(at: &Condition) -> bool {
    at.entries.is_empty()
}

/// What others are compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Baseline {
    Study { study: String },
    Point(Condition),
}

/// A table of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TableChoice {
    /// One of those that have a name.
    Named(String),
    Columns {
        title: String,
        columns: Vec<String>,
    },
}

/// What `--quick` changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchDefinition>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub set: IndexMap<String, Scalar>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub axes: IndexMap<String, Vec<AxisValue>>,
}

impl Definition {
    /// Reads a study.
    ///
    /// # Errors
    /// What is no TOML, or has keys or values that studies have not, with the nearest that they have.
    pub fn parse(text: &str) -> Result<Self, StudyError> {
        toml::from_str(text).map_err(|error| {
            let message = error.message().to_owned();
            // serde names in backticks what was found, then what could have been.
            let mut words = message.split('`').skip(1).step_by(2);
            let nearest = match message.starts_with("unknown ") {
                true => words.next().and_then(|found| nearest(found, words)),
                false => None,
            };
            StudyError::Text { message, at: error.span(), nearest }
        })
    }

    /// The study as text, as it is kept beside its runs.
    #[must_use]
    pub fn to_text(&self) -> String {
        let rest = Self { axes: IndexMap::new(), ..self.clone() };
        // Texts, numbers and tables of them: TOML can write all of it.
        let mut text = toml::to_string_pretty(&rest).unwrap_or_default();
        if !self.axes.is_empty() {
            text += "\n[axes]\n";
        }
        // Written with the rest, axes of tables would come after all others, and points follow from the order of axes.
        for (name, values) in &self.axes {
            let name = toml::Value::String(name.clone());
            let values = toml::Value::try_from(values).map(|values| values.to_string());
            text += &format!("{name} = {}\n", values.unwrap_or_default());
        }
        text
    }

    /// What `quick` says put in place of what it stands for.
    #[must_use]
    pub fn with_quick_overrides(mut self) -> Self {
        let Some(quick) = self.quick.take() else { return self };
        self.set.extend(quick.set);
        self.warm_up = quick.warm_up.unwrap_or(self.warm_up);
        self.repeat = quick.repeat.unwrap_or(self.repeat);
        self.search = quick.search.or(self.search);
        for (name, values) in quick.axes {
            // An axis that the quick variant does not have.
            if values.is_empty() {
                self.axes.shift_remove(&name);
                self.drop_variation_of(&name);
            } else {
                let values = values.into_iter().map(|value| self.table_of(&name, value)).collect();
                self.axes.insert(name, values);
            }
        }
        self.drop_lost_bases();
        self.drop_lost_only();
        self
    }

    /// Sets something at every point.
    pub fn set(&mut self, name: &str, value: &str) {
        self.set.insert(name.to_owned(), Scalar(value.to_owned()));
    }

    /// Gives an axis tables for values, each by its label with what it sets; a new one comes last.
    pub fn set_tables(&mut self, name: &str, tables: Vec<(&str, Vec<(String, String)>)>) {
        let of = |(label, table): (&str, Vec<(String, String)>)| {
            let label = (LABEL.to_owned(), Scalar(label.to_owned()));
            let settings = table.into_iter().map(|(name, value)| (name, Scalar(value)));
            AxisValue::Several(std::iter::once(label).chain(settings).collect())
        };
        self.axes.insert(name.to_owned(), tables.into_iter().map(of).collect());
        self.drop_lost_bases();
        self.drop_lost_only();
    }

    /// The names of an axis' values; none without such an axis.
    #[must_use]
    pub fn levels_of(&self, name: &str) -> Vec<String> {
        self.axes.get(name).map(|values| labels(values)).unwrap_or_default()
    }

    /// Gives an axis these levels, of which [`KEEP`] sets nothing.
    pub fn set_levels(&mut self, name: &str, levels: &[String]) {
        let of = |level: &String| match level == KEEP {
            true => AxisValue::Several(
                [(LABEL.to_owned(), Scalar(KEEP.to_owned()))].into_iter().collect(),
            ),
            false => AxisValue::One(Scalar(level.clone())),
        };
        self.axes.insert(name.to_owned(), levels.iter().map(of).collect());
    }

    /// Runs each point so often, and more often only where the study wants that for its precision.
    pub fn set_repeats(&mut self, times: u32) {
        self.repeat.times = times;
        self.repeat.most = self.repeat.most.map(|most| most.max(times));
    }

    /// The table of an axis that has this label; the value itself where there is none.
    fn table_of(&self, axis: &str, value: AxisValue) -> AxisValue {
        let AxisValue::One(Scalar(wanted)) = &value else { return value };
        let mut known = self.axes.get(axis).into_iter().flatten();
        known.find(|known| label(known) == *wanted).cloned().unwrap_or(value)
    }

    /// Replaces a value of an axis by others, also in the quick variant. A value that the axis has already is not repeated.
    pub fn replace_value(&mut self, axis: &str, value: &str, others: &[String]) {
        let quick = self.quick.as_mut().and_then(|quick| quick.axes.get_mut(axis));
        for values in self.axes.get_mut(axis).into_iter().chain(quick) {
            let known = labels(values);
            let new = others.iter().filter(|other| !known.contains(other));
            let new: Vec<AxisValue> =
                new.map(|other| AxisValue::One(Scalar(other.clone()))).collect();
            let replaced = std::mem::take(values).into_iter().flat_map(|of| match label(&of) {
                of if of == value => new.clone(),
                _ => vec![of],
            });
            *values = replaced.collect();
        }
    }

    /// Whether an axis has a value of this name, also in the quick variant.
    #[must_use]
    pub fn has_value(&self, axis: &str, value: &str) -> bool {
        let quick = self.quick.as_ref().and_then(|quick| quick.axes.get(axis));
        let mut all = self.axes.get(axis).into_iter().chain(quick).flatten();
        all.any(|of| label(of) == value)
    }

    /// Gives an axis these values; a new one comes last. Of an axis whose values are tables, labels select some of them.
    ///
    /// # Errors
    /// There are no values, or one is no label of an axis that has only tables.
    pub fn set_axis(&mut self, name: &str, values: &[&str]) -> Result<(), StudyError> {
        if name.is_empty() || values.is_empty() || values.iter().any(|value| value.is_empty()) {
            return Err(StudyError::NoAxis(name.to_owned()));
        }
        let known = self.axes.get(name).map(Vec::as_slice).unwrap_or_default();
        let only_tables = known.iter().all(|value| matches!(value, AxisValue::Several(_)));
        let labels: Vec<String> = known.iter().map(label).collect();
        let is_none = |value: &&&str| !labels.iter().any(|label| label == *value);
        if !labels.is_empty()
            && only_tables
            && let Some(value) = values.iter().find(is_none)
        {
            return Err(StudyError::NoLabel {
                axis: name.to_owned(),
                value: (*value).to_owned(),
                nearest: nearest(value, labels.iter().map(String::as_str)),
                labels: labels.join(", "),
            });
        }
        let of = |value: &&str| self.table_of(name, AxisValue::One(Scalar((*value).to_owned())));
        let values = values.iter().map(of).collect();
        self.axes.insert(name.to_owned(), values);
        self.drop_lost_bases();
        self.drop_lost_only();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
        title = "all keys"
        profile = "@stream"
        place = "lab"
        lab = { rate = "1gbit" }
        seed = 7
        order = "written"
        warm_up = 1
        tables = ["tcp-transmit", { title = "mine", columns = ["connections"] }]
        baseline = { engine = "epoll" }
        hosts = { server = "10.0.0.2" }
        [set]
        duration = "2s"
        [repeat]
        times = 2
        most = 5
        budget = "10m"
        until = { throughput = "5%" }
        [axes]
        size = ["64k", 1024, 1.5, true]
        example = [{ label = "a", engine = "threads" }, { engine = "epoll", workers = 1 }]
        [[when]]
        at = { size = ["64k", 1024] }
        set = { options = "wndsz=32k" }
        [[skip]]
        at = { size = "> 1k" }
        why = "large"
        [[expect]]
        that = "throughput >= 1"
        at = { size = 1024 }
        [quick]
        warm_up = 0
        repeat = { times = 1 }
        set = { duration = "100ms" }
        axes = { size = [1] }
    "#;

    #[test]
    fn a_definition_survives_writing_and_reading() {
        let study = Definition::parse(ALL).unwrap();
        assert_eq!(study.axes.keys().collect::<Vec<_>>(), ["size", "example"]);
        assert_eq!(Definition::parse(&study.to_text()), Ok(study));
        let least = Definition::parse("profile = \"@rr\"").unwrap();
        assert_eq!(Definition::parse(&least.to_text()), Ok(least));
    }

    #[test]
    fn quick_replaces_values() {
        let study = Definition::parse(ALL).unwrap().with_quick_overrides();
        assert_eq!((study.warm_up, study.repeat.times, study.repeat.most), (0, 1, None));
        assert_eq!(study.set["duration"], Scalar("100ms".to_owned()));
        assert_eq!(study.axes["size"].len(), 1);
        assert_eq!(study.axes["example"].len(), 2);
        assert_eq!(study.quick, None);
        // A label stands for its table.
        let text = ALL.replace("axes = { size = [1] }", "axes = { example = [\"a\"] }");
        let study = Definition::parse(&text).unwrap().with_quick_overrides();
        let AxisValue::Several(only) = &study.axes["example"][0] else { panic!("{study:?}") };
        assert_eq!((study.axes["example"].len(), &*only["engine"].0), (1, "threads"));
    }

    #[test]
    fn an_unknown_key_suggests_the_nearest() {
        let error = Definition::parse("profil = \"@rr\"").unwrap_err();
        assert_eq!(error.help().as_deref(), Some("did you mean profile?"));
        let StudyError::Text { at, .. } = error else { panic!("{error}") };
        assert_eq!(at, Some(0..6));
        let error = Definition::parse("[repeat]\ntimse = 3").unwrap_err();
        assert_eq!(error.help().as_deref(), Some("did you mean times?"));
        let error = Definition::parse("place = \"labs\"").unwrap_err();
        assert!(error.to_string().contains("unknown place `labs`"), "{error}");
        assert_eq!(error.help().as_deref(), Some("did you mean lab?"));
    }

    #[test]
    fn invalid_values_name_the_expected_type() {
        for (text, wanted) in [
            ("axes = { size = [[1]] }", "expected a number, a string or a boolean"),
            ("set = { size = [1] }", "expected a number, a string or a boolean"),
            ("axes = { size = 1 }", "expected a sequence"),
            ("skip = [{ at = { size = { a = 1 } } }]", "or a list of these"),
            ("seed = -1", "u64"),
            ("title = ", ""),
        ] {
            let error = Definition::parse(text).unwrap_err();
            assert!(error.to_string().contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn the_command_line_sets_repeats() {
        let mut study = Definition::parse("repeat = { times = 2, most = 4 }").unwrap();
        study.set_repeats(3);
        assert_eq!((study.repeat.times, study.repeat.most), (3, Some(4)));
        study.set_repeats(9);
        assert_eq!((study.repeat.times, study.repeat.most), (9, Some(9)));
    }

    #[test]
    fn a_value_is_replaced_by_others_in_the_quick_variant_too() {
        let text = "axes = { cc = [\"reno\", \"all\"] }\nquick = { axes = { cc = [\"all\"] } }";
        let mut study = Definition::parse(text).unwrap();
        assert!(study.has_value("cc", "all") && !study.has_value("size", "all"));
        let others = ["cubic", "reno"].map(str::to_owned);
        study.replace_value("cc", "all", &others);
        study.replace_value("size", "all", &others);
        assert_eq!(study.levels_of("cc"), ["reno", "cubic"]);
        assert_eq!(study.with_quick_overrides().levels_of("cc"), ["cubic", "reno"]);
    }

    #[test]
    fn the_command_line_sets_values_of_axes() {
        let mut study = Definition::parse(ALL).unwrap();
        study.set_axis("size", &["1k", "2k"]).unwrap();
        study.set_axis("engine", &["epoll"]).unwrap();
        assert_eq!(study.axes.keys().collect::<Vec<_>>(), ["size", "example", "engine"]);
        assert_eq!(study.axes["size"].len(), 2);
        // A label stands for its table, and comes in the order of the command line.
        study.set_axis("example", &["epoll/1", "a"]).unwrap();
        let AxisValue::Several(first) = &study.axes["example"][0] else { panic!("{study:?}") };
        assert_eq!(first["workers"], Scalar("1".to_owned()));
        assert_eq!(label(&study.axes["example"][1]), "a");
        let error = study.set_axis("example", &["aa"]).unwrap_err();
        assert_eq!(error.to_string(), "--axis example: it has no value aa, but epoll/1, a");
        assert_eq!(error.help().as_deref(), Some("did you mean a?"));
        assert!(study.set_axis("size", &[]).is_err());
        assert!(study.set_axis("size", &["1", ""]).is_err());
    }
}
