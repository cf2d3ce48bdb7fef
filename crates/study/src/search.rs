//! `[search]` of a study: the goals of a search for the highest load, as they are written.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wirecost_model::search::{Search, SearchGoal};
use wirecost_model::study::LOAD;
use wirecost_model::units::parse_bit_rate;

use crate::definition::Definition;
use crate::error::StudyError;

/// A search at every point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchDefinition {
    pub min: String,
    pub max: String,
    #[serde(default = "default_limit")]
    pub time_limit: String,
    #[serde(default)]
    pub goals: Vec<GoalDefinition>,
}

/// A goal: the keys are the attributes of a Search Goal in RFC 9971.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalDefinition {
    pub loss: String,
    pub exceed: String,
    pub width: String,
    pub trial: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_trial: Option<String>,
    pub sum: String,
}

fn default_limit() -> String {
    "20m".to_owned()
}

impl Default for GoalDefinition {
    fn default() -> Self {
        let [loss, exceed, width, trial, sum] =
            ["0%", "50%", "0.5%", "1s", "21s"].map(str::to_owned);
        Self { loss, exceed, width, trial, initial_trial: None, sum }
    }
}

/// Settings that a search makes itself.
const OF_SEARCH: [&str; 2] = [LOAD, "duration"];

/// A shorter trial is mostly its edges.
const SHORTEST_TRIAL: Duration = Duration::from_millis(100);
/// So that nobody waits for ever.
const LONGEST_LIMIT: Duration = Duration::from_secs(24 * 3600);

impl SearchDefinition {
    /// Sets a bound or the time limit. `false` if there is no such key.
    pub fn set(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "min" => &mut self.min,
            "max" => &mut self.max,
            "time_limit" => &mut self.time_limit,
            _ => return false,
        };
        value.clone_into(place);
        true
    }
}

/// The search of a study, if it has one.
///
/// # Errors
/// The first value that means nothing, or another key that contradicts the search.
pub fn search(study: &Definition) -> Result<Option<Search>, StudyError> {
    let Some(definition) = &study.search else { return Ok(None) };
    contradictions(study)?;
    let (min, max) = (rate("min", &definition.min)?, rate("max", &definition.max)?);
    if max < min {
        return Err(wrong("max", &definition.max, "must not be less than search.min"));
    }
    let limit = time("time_limit", &definition.time_limit)?;
    if limit > LONGEST_LIMIT {
        return Err(wrong("time_limit", &definition.time_limit, "must be at most 24h"));
    }
    if definition.goals.is_empty() {
        return Err(StudyError::NoGoals);
    }
    let goals = definition.goals.iter().enumerate().map(|(index, text)| goal(index, text));
    let goals = goals.collect::<Result<Vec<SearchGoal>, StudyError>>()?;
    let longest = goals.iter().map(|goal| goal.duration_sum_seconds).fold(0.0, f64::max);
    if limit.as_secs_f64() < longest {
        let message = "must not be less than the sum of a goal";
        return Err(wrong("time_limit", &definition.time_limit, message));
    }
    Ok(Some(Search {
        min_bits_per_second: min,
        max_bits_per_second: max,
        link_bits_per_second: None,
        time_limit_seconds: limit.as_secs_f64(),
        goals,
    }))
}

fn contradictions(study: &Definition) -> Result<(), StudyError> {
    let names = crate::matrix::names(study);
    if let Some(name) = OF_SEARCH.into_iter().find(|name| names.contains(*name)) {
        return Err(StudyError::Searched { name: name.to_owned() });
    }
    let repeat = &study.repeat;
    if repeat.times != 1 || repeat.most.is_some() || !repeat.until.is_empty() {
        return Err(StudyError::SearchRepeats);
    }
    if !study.expect.is_empty() || study.baseline.is_some() {
        return Err(StudyError::SearchExpects);
    }
    Ok(())
}

fn goal(index: usize, text: &GoalDefinition) -> Result<SearchGoal, StudyError> {
    let key = |name: &str| format!("goals[{index}].{name}");
    let ratio = |name: &str, text: &str| {
        percent(text)
            .filter(|ratio| (0.0..1.0).contains(ratio))
            .ok_or_else(|| wrong(&key(name), text, "must be a percentage from 0% to below 100%"))
    };
    let width =
        percent(&text.width).filter(|width| *width > 0.0 && *width < 1.0).ok_or_else(|| {
            wrong(&key("width"), &text.width, "must be a percentage above 0% and below 100%")
        })?;
    let of_trial = |name: &str, text: &str| {
        let length = time(&key(name), text)?;
        match length < SHORTEST_TRIAL {
            true => Err(wrong(&key(name), text, "must be at least 100ms")),
            false => Ok(length),
        }
    };
    let trial = of_trial("trial", &text.trial)?;
    let initial = match &text.initial_trial {
        Some(text) => of_trial("initial_trial", text)?,
        None => trial,
    };
    if initial > trial {
        let text = text.initial_trial.as_deref().unwrap_or_default();
        return Err(wrong(&key("initial_trial"), text, "must not be longer than trial"));
    }
    let sum = time(&key("sum"), &text.sum)?;
    if sum < trial {
        return Err(wrong(&key("sum"), &text.sum, "must not be less than trial"));
    }
    Ok(SearchGoal {
        loss_ratio: ratio("loss", &text.loss)?,
        exceed_ratio: ratio("exceed", &text.exceed)?,
        width,
        initial_trial_seconds: initial.as_secs_f64(),
        trial_seconds: trial.as_secs_f64(),
        duration_sum_seconds: sum.as_secs_f64(),
    })
}

fn wrong(key: &str, value: &str, message: &str) -> StudyError {
    StudyError::Value {
        key: format!("search.{key}"),
        value: value.to_owned(),
        message: message.to_owned(),
    }
}

fn rate(key: &str, text: &str) -> Result<u64, StudyError> {
    parse_bit_rate(text)
        .ok_or_else(|| wrong(key, text, "must be a rate above zero, such as 100mbit"))
}

fn time(key: &str, text: &str) -> Result<Duration, StudyError> {
    humantime::parse_duration(text).map_err(|_| wrong(key, text, "must be a time, such as 10s"))
}

fn percent(text: &str) -> Option<f64> {
    let percent: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    percent.is_finite().then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Search>, StudyError> {
        search(&Definition::parse(text)?)
    }

    #[test]
    fn goals_have_the_recommended_defaults() {
        let text = "search = { min = \"1mbit\", max = \"1gbit\", goals = [{ loss = \"0.5%\", sum = \"60s\" }] }";
        let search = parsed(text).unwrap().unwrap();
        assert_eq!(
            (search.min_bits_per_second, search.max_bits_per_second),
            (1_000_000, 1_000_000_000)
        );
        assert_eq!(search.time_limit_seconds, 1200.0);
        let goal = &search.goals[0];
        assert_eq!((goal.loss_ratio, goal.exceed_ratio, goal.width), (0.005, 0.5, 0.005));
        let times = (goal.initial_trial_seconds, goal.trial_seconds, goal.duration_sum_seconds);
        assert_eq!(times, (1.0, 1.0, 60.0));
        assert_eq!(parsed("profile = \"@udp-stream\"").unwrap(), None);
    }

    #[test]
    fn a_search_survives_writing_and_reading() {
        let text =
            "[search]\nmin = \"1mbit\"\nmax = \"1gbit\"\ngoals = [{ initial_trial = \"200ms\" }]";
        let study = Definition::parse(text).unwrap();
        assert_eq!(Definition::parse(&study.to_text()), Ok(study));
    }

    #[test]
    fn contradictions_and_impossible_goals_have_a_message_each() {
        let of_goal = |goal: &str| {
            format!("search = {{ min = \"1mbit\", max = \"1gbit\", goals = [{goal}] }}")
        };
        let with = |more: &str| format!("{more}\n{}", of_goal("{}"));
        for (text, wanted) in [
            ("search = { min = \"1mbit\", max = \"1gbit\" }".to_owned(), "search has no goals"),
            ("search = { max = \"1gbit\" }".to_owned(), "missing field `min`"),
            (
                "search = { min = \"2gbit\", max = \"1gbit\", goals = [{}] }".to_owned(),
                "search.max = \"1gbit\": must not be less than search.min",
            ),
            (
                "search = { min = \"0bit\", max = \"1gbit\", goals = [{}] }".to_owned(),
                "search.min = \"0bit\": must be a rate above zero",
            ),
            (
                "search = { min = \"1mbit\", max = \"fast\", goals = [{}] }".to_owned(),
                "search.max = \"fast\": must be a rate above zero",
            ),
            (
                of_goal("{ width = \"0%\" }"),
                "search.goals[0].width = \"0%\": must be a percentage above",
            ),
            (
                of_goal("{ loss = \"101%\" }"),
                "search.goals[0].loss = \"101%\": must be a percentage",
            ),
            (
                of_goal("{}, { loss = \"-1%\" }"),
                "search.goals[1].loss = \"-1%\": must be a percentage",
            ),
            (of_goal("{ loss = \"1\" }"), "goals[0].loss = \"1\": must be a percentage"),
            (of_goal("{ exceed = \"100%\" }"), "goals[0].exceed = \"100%\": must be a percentage"),
            (of_goal("{ trial = \"1ms\" }"), "goals[0].trial = \"1ms\": must be at least 100ms"),
            (of_goal("{ trial = \"soon\" }"), "goals[0].trial = \"soon\": must be a time"),
            (
                of_goal("{ initial_trial = \"2s\" }"),
                "initial_trial = \"2s\": must not be longer than trial",
            ),
            (of_goal("{ trial = \"60s\" }"), "goals[0].sum = \"21s\": must not be less than trial"),
            (of_goal("{ sum = \"1h\" }"), "time_limit = \"20m\": must not be less than the sum"),
            (
                "search = { min = \"1mbit\", max = \"1gbit\", goals = [{}], time_limit = \"25h\" }"
                    .to_owned(),
                "must be at most 24h",
            ),
            (with("axes = { load = [\"max\"] }"), "load is set by search"),
            (with("set = { load = \"1gbit\" }"), "load is set by search"),
            (with("axes = { duration = [\"1s\"] }"), "duration is set by search"),
            (with("repeat = { times = 2 }"), "repeat does not apply to a search"),
            (
                with("expect = [{ that = \"throughput >= 1\" }]"),
                "expect does not apply to a search",
            ),
        ] {
            let error = parsed(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let error = Definition::parse(&of_goal("{ los = \"0%\" }")).unwrap_err();
        assert_eq!(error.help().as_deref(), Some("did you mean loss?"));
    }
}
