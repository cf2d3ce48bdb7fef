//! The objective of a search, and the bounds of other metrics.

use wirecost_analyze::metrics::{self, Selector};
use wirecost_analyze::tuning::{Bound, Measured, Reference};
use wirecost_model::metric::Better;
use wirecost_model::run::Run;

use crate::error::StudyError;
use crate::expect::quantity;

/// The metric that is to be high, or low.
#[derive(Debug, Clone)]
pub struct Objective {
    pub selector: Selector,
    pub maximize: bool,
}

/// A bound, with the metric that it is of.
#[derive(Debug, Clone)]
pub struct BoundDefinition {
    /// As it is written.
    pub text: String,
    pub selector: Selector,
    pub bound: Bound,
}

/// Short names of metrics.
const SHORT_NAMES: [(&str, &str); 4] = [
    ("p50", "latency.p50"),
    ("p90", "latency.p90"),
    ("p99", "latency.p99"),
    ("p999", "latency.p999"),
];

fn find(name: &str) -> Result<Selector, StudyError> {
    let name = name.trim();
    let known = SHORT_NAMES.iter().find(|(short, _)| *short == name);
    Ok(metrics::find(known.map_or(name, |(_, long)| long))?)
}

impl Objective {
    pub(super) fn parse(name: &str, maximize: bool) -> Result<Self, StudyError> {
        let selector = find(name)?;
        let wrong = match selector.metric().better {
            Better::Higher => !maximize,
            Better::Lower => maximize,
            Better::Neither => false,
        };
        match wrong {
            true => Err(StudyError::WrongDirection { metric: selector.name, maximize }),
            false => Ok(Self { selector, maximize }),
        }
    }
}

impl BoundDefinition {
    /// `METRIC >= NUMBER`, `NUMBER*best` or `NUMBER*base`; also with `<=`.
    pub(super) fn parse(text: &str) -> Result<Self, StudyError> {
        let wrong = |message: &str| StudyError::Value {
            key: "subject_to".to_owned(),
            value: text.to_owned(),
            message: message.to_owned(),
        };
        let form = "write METRIC >= NUMBER, METRIC >= NUMBER*best or METRIC >= NUMBER*base";
        let (name, at_least, limit) = match (text.split_once(">="), text.split_once("<=")) {
            (Some((name, limit)), None) => (name, true, limit),
            (None, Some((name, limit))) => (name, false, limit),
            _ => return Err(wrong(form)),
        };
        let selector = find(name)?;
        let (mut amount, mut of) = (None, Reference::Number);
        for part in limit.split('*').map(str::trim) {
            match (part, of) {
                ("best", Reference::Number) => of = Reference::Best,
                ("base", Reference::Number) => of = Reference::Base,
                _ if amount.is_none() => {
                    amount = Some(part);
                }
                _ => return Err(wrong(form)),
            }
        }
        let amount = match (amount, of) {
            (Some(amount), Reference::Number) => quantity(amount, selector.metric().unit),
            (Some(amount), _) => share(amount),
            (None, Reference::Number) => None,
            (None, _) => Some(1.0),
        };
        let amount = amount.ok_or_else(|| wrong(form))?;
        // Of loss, and of what else counts faults, 0 is a limit.
        let may_be_zero = !at_least && of == Reference::Number;
        if amount < 0.0 || (amount == 0.0 && !may_be_zero) {
            return Err(wrong("the number must be greater than 0"));
        }
        let bound = Bound { at_least, amount, of };
        Ok(Self { text: text.trim().to_owned(), selector, bound })
    }
}

/// `0.95` or `95%`.
fn share(text: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|share| share.is_finite());
    match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    }
}

/// What a run says of the objective and of the bounds.
pub(super) fn measured(
    run: &Run,
    objective: &Objective,
    bounds: &[BoundDefinition],
) -> Result<Measured, String> {
    let positive = |selector: &Selector| match selector.of(run) {
        Ok(value) if value > 0.0 => Ok(value),
        Ok(value) => Err(format!("{} is {value}, and ratios of it have no meaning", selector.name)),
        Err(reason) => Err(format!("{} was not measured: {reason}", selector.name)),
    };
    let bounded = |of: &BoundDefinition| match (of.bound.of, of.selector.of(run)) {
        // Loss, for example, is best at 0.
        (Reference::Number, Ok(value)) => Ok(value),
        _ => positive(&of.selector),
    };
    Ok(Measured {
        objective: positive(&objective.selector)?,
        bounded: bounds.iter().map(bounded).collect::<Result<_, _>>()?,
    })
}
