//! Conditions that select points.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use wirecost_model::study::{Point, number};

use crate::scalar::{Scalar, ValueMatch};

/// Holds at points where all entries hold. Without entries it holds everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Condition {
    pub(crate) entries: IndexMap<String, ValueMatch>,
}

type Compare = fn(f64, f64) -> bool;

/// Longer operators first: `<=` begins with `<`.
const COMPARISONS: [(&str, Compare); 5] = [
    ("<=", |a, b| a <= b),
    (">=", |a, b| a >= b),
    ("!=", |a, b| a != b),
    ("<", |a, b| a < b),
    (">", |a, b| a > b),
];

impl Condition {
    /// Whether it holds at this point.
    #[must_use]
    pub fn holds(&self, point: &Point) -> bool {
        self.entries.iter().all(|(name, wanted)| {
            let value = point.get(name);
            value.is_some_and(|value| match wanted {
                ValueMatch::One(scalar) => is(value, scalar),
                ValueMatch::OneOf(scalars) => scalars.iter().any(|scalar| is(value, scalar)),
            })
        })
    }

    /// Names of the axes and settings that it uses.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The text of an invalid comparison, if there is one.
    pub(crate) fn invalid_comparison(&self) -> Option<&str> {
        let all = self.entries.values().flat_map(|wanted| match wanted {
            ValueMatch::One(scalar) => std::slice::from_ref(scalar),
            ValueMatch::OneOf(scalars) => scalars.as_slice(),
        });
        let bad = |scalar: &&Scalar| match comparison(&scalar.0) {
            // Any value can differ from any other; only numbers have an order.
            Some(("!=", _, _)) => false,
            Some((_, _, operand)) => number(operand).is_none(),
            None => false,
        };
        all.into_iter().find(bad).map(|scalar| scalar.0.as_str())
    }
}

type Comparison<'a> = (&'static str, Compare, &'a str);

fn comparison(text: &str) -> Option<Comparison<'_>> {
    COMPARISONS
        .into_iter()
        .find_map(|(sign, compare)| Some((sign, compare, text.trim().strip_prefix(sign)?.trim())))
}

fn is(value: &str, wanted: &Scalar) -> bool {
    match comparison(&wanted.0) {
        Some((sign, compare, operand)) => match (number(value), number(operand)) {
            (Some(value), Some(operand)) => compare(value, operand),
            _ => sign == "!=" && value != operand,
        },
        // 64k is 65536.
        None => {
            let both = number(value).zip(number(&wanted.0));
            both.map_or(value == wanted.0, |(a, b)| a == b)
        }
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::study::Value;

    use super::*;

    fn condition(text: &str) -> Condition {
        toml::from_str(text).unwrap()
    }

    fn point(connections: &str, size: &str) -> Point {
        let values = vec![Value::new("connections", connections), Value::new("size", size)];
        Point { axes: values.clone(), settings: values }
    }

    #[test]
    fn a_condition_holds_if_all_entries_hold() {
        let at = condition("connections = \"> 100\"\nsize = [\"64k\", \"8k\"]");
        assert!(at.holds(&point("1000", "65536")));
        assert!(!at.holds(&point("100", "64k")));
        assert!(!at.holds(&point("1000", "1k")));
        assert!(condition("connections = 7").holds(&point("7", "1")));
        assert!(condition("size = \"!= 1k\"").holds(&point("7", "@x")));
        assert!(!condition("size = \"!= 1k\"").holds(&point("7", "1024")));
        assert!(condition("").holds(&point("7", "1")));
        // What is nowhere set is nothing.
        assert!(!condition("engine = \"!= epoll\"").holds(&point("7", "1")));
    }

    #[test]
    fn only_numbers_can_be_compared() {
        assert_eq!(condition("engine = \"> epoll\"").invalid_comparison(), Some("> epoll"));
        assert_eq!(
            condition("engine = \"!= epoll\"\nsize = \">= 64k\"").invalid_comparison(),
            None
        );
    }
}
