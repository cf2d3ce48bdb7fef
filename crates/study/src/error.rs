//! Errors of studies.

/// Why a study cannot run; [`StudyError::help`] says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// Invalid TOML, or not a study. `at` is the position in bytes.
    #[error("{message}")]
    Text { message: String, at: Option<std::ops::Range<usize>>, nearest: Option<String> },
    #[error("the study has no profile")]
    NoProfile,
    #[error("the axes make {} points, and the limit is {limit}", of_count(.points))]
    TooManyPoints { points: Option<u128>, limit: u128 },
    #[error("axis {0} has no values")]
    EmptyAxis(String),
    #[error("axis {axis} lists the value {value} twice")]
    DuplicateValue { axis: String, value: String },
    #[error("a value of axis {axis} sets {name}, which is an axis itself")]
    Collision { axis: String, name: String },
    #[error("at = {{ {name} = ... }}: neither an axis nor a setting is named {name}")]
    UnknownName { name: String, nearest: Option<String> },
    #[error("{text:?} compares with something that is not a number")]
    NotANumber { text: String },
    #[error("{key} needs vary = \"one-at-a-time\": without it, every combination is a point")]
    VariesNothing { key: &'static str },
    #[error("{key}: the study has no axis {name}")]
    UnknownAxis { key: &'static str, name: String, nearest: Option<String> },
    #[error("base: {axis} = {value}, and {axis} has the values {values}")]
    UnknownBase { axis: String, value: String, values: String },
    #[error("pairs: [{axes}] does not name two different axes")]
    NoPair { axes: String },
    #[error("only.{axis}.{value}: {axis} has the values {values}")]
    UnknownOnly { axis: String, value: String, values: String },
    #[error("only.{axis}.{value} holds at no point")]
    UnusedOnly { axis: String, value: String },
    #[error("skip excludes every point")]
    NoPointsLeft,
    #[error("skip[{index}] matches no point{}", in_parentheses(.why))]
    UnusedSkip { index: usize, why: String },
    #[error("when[{index}] matches no point")]
    UnusedWhen { index: usize },
    #[error(
        "at {point}: its load is a share of the throughput at load=max, and the study has no such point"
    )]
    NoSaturatingPoint { point: String },
    #[error("{key} = {value:?}: {message}")]
    Value { key: String, value: String, message: String },
    #[error("the search has no goals")]
    NoGoals,
    #[error("{name} is set by search, and the study sets it too")]
    Searched { name: String },
    #[error("repeat does not apply to a search, which decides itself how many trials it makes")]
    SearchRepeats,
    #[error("expect does not apply to a search: its runs are trials at different loads")]
    SearchExpects,
    #[error("the search has no objective, or two")]
    NoObjective,
    #[error("{metric} is better when {}", if *.maximize { "lower" } else { "higher" })]
    WrongDirection { metric: String, maximize: bool },
    #[error("there is no factor to search")]
    NoFactors,
    #[error("{factors} factors are too many to screen; the limit is {limit}")]
    TooManyFactors { factors: usize, limit: usize },
    #[error("factor {factor} has a single level, {level}")]
    SingleLevel { factor: String, level: String },
    #[error(
        "a budget of {budget} runs is too small for {}: screening, and a confirmation of \
         the winner, take {least} runs",
        of_factors(*.factors)
    )]
    SmallBudget { budget: usize, factors: usize, least: usize },
    #[error("{0}")]
    Metric(#[from] wirecost_analyze::metrics::UnknownMetric),
    #[error(
        "--axis {0}: the study has no axis of this name; to add one, give its values: NAME=A,B,C"
    )]
    NoAxis(String),
    #[error("--axis {axis}: it has no value {value}, but {labels}")]
    NoLabel { axis: String, value: String, labels: String, nearest: Option<String> },
    #[error("the study cannot be run elsewhere: {0}")]
    NotPortable(String),
    #[error("no built-in study is named @{name}")]
    NoBuiltin { name: String, nearest: Option<String> },
}

/// None is more than can be counted.
fn of_count(points: &Option<u128>) -> String {
    points.map_or_else(|| format!("more than {}", u128::MAX), |points| points.to_string())
}

fn of_factors(factors: usize) -> String {
    format!("{factors} factor{}", if factors == 1 { "" } else { "s" })
}

fn in_parentheses(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}

impl StudyError {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        let nearest =
            |nearest: &Option<String>| nearest.as_ref().map(|n| format!("did you mean {n}?"));
        match self {
            StudyError::Text { nearest: near, .. }
            | StudyError::UnknownAxis { nearest: near, .. }
            | StudyError::UnknownName { nearest: near, .. }
            | StudyError::NoLabel { nearest: near, .. } => nearest(near),
            StudyError::NoBuiltin { nearest: near, .. } => {
                let near = near.as_ref().map(|near| format!("did you mean @{near}?"));
                near.or_else(|| Some("`wirecost study list` lists them".to_owned()))
            }
            StudyError::NoProfile => Some(
                "write profile = \"@stream\" or name a file; `wirecost list` lists the built-ins"
                    .to_owned(),
            ),
            StudyError::TooManyPoints { .. } => {
                Some("use fewer values of each axis, or several studies".to_owned())
            }
            StudyError::EmptyAxis(axis) => Some(format!("add values, or remove {axis}")),
            StudyError::UnusedSkip { .. }
            | StudyError::UnusedWhen { .. }
            | StudyError::UnusedOnly { .. } => Some(
                "its conditions contradict each other or the axes: fix or remove it".to_owned(),
            ),
            StudyError::NoSaturatingPoint { .. } => {
                Some("add \"max\" to the axis load, or give a rate, such as 1gbit".to_owned())
            }
            StudyError::NoGoals => Some("add goals = [{ loss = \"0%\" }] to search".to_owned()),
            StudyError::NoObjective => {
                Some("give one: maximize = \"throughput\", or minimize = \"p99\"".to_owned())
            }
            StudyError::WrongDirection { metric, maximize } => {
                let option = if *maximize { "--minimize" } else { "--maximize" };
                Some(format!("use {option} {metric}"))
            }
            StudyError::NoFactors => Some(
                "name factors: --factor NAME=LOW,HIGH, such as --factor option.wndsz=keep,4m"
                    .to_owned(),
            ),
            StudyError::TooManyFactors { .. } => {
                Some("choose the most promising with --factor".to_owned())
            }
            StudyError::SingleLevel { factor, level } => Some(format!(
                "give two or more; to compare with what is set now: --factor {factor}=keep,{level}"
            )),
            StudyError::SmallBudget { least, .. } => {
                Some(format!("use --budget {least} or more, or fewer factors"))
            }
            StudyError::Searched { name } => Some(format!("remove {name}, or the table search")),
            _ => None,
        }
    }
}

/// The nearest known name, if one is similar.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let distances =
        names.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let near = distances.filter(|(distance, known)| *distance <= known.len().div_ceil(3)).min();
    near.map(|(_, known)| known.to_owned())
}
