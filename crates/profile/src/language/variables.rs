//! Variables of a profile: where their values come from, and which ones a profile asks for.

use std::collections::{BTreeMap, HashMap};

use wirecost_model::profile::Position;

use super::flowop::words;
use super::lexer::{TokenKind, lex};
use super::options;
use super::source::Lines;

/// Looks up variables. The caller decides what comes first (`--var` beats the environment).
pub trait Variables {
    /// The value of the variable of exactly this name.
    fn get(&self, name: &str) -> Option<String>;
}

impl<F: Fn(&str) -> Option<String>> Variables for F {
    fn get(&self, name: &str) -> Option<String> {
        self(name)
    }
}

impl Variables for BTreeMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        BTreeMap::get(self, name).cloned()
    }
}

impl Variables for HashMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        HashMap::get(self, name).cloned()
    }
}

/// A place where a profile asks for a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableUse {
    /// As written, without `$`.
    pub name: String,
    pub position: Position,
    /// The option, or the attribute, whose value it is.
    pub option: String,
    /// Whether the profile says what it is where nobody else does.
    pub has_default: bool,
}

/// Every use of a variable that `source` itself holds, in its order; those inside of a variable's own
/// value (`options="$opts"`) are not known before it is looked up.
pub(super) fn variables(source: &str) -> Vec<VariableUse> {
    let lines = Lines::new(source);
    let mut uses = Vec::new();
    let mut add = |name: &str, option: &str, offset: usize| {
        uses.push(VariableUse {
            name: name.to_owned(),
            position: lines.position(offset),
            option: option.to_owned(),
            has_default: false,
        });
    };
    for token in lex(source).tokens {
        let TokenKind::Attribute { key, value } = token.kind else {
            continue;
        };
        if token.swallowed {
            continue;
        }
        if let Some(name) = value.text.strip_prefix('$') {
            add(name, &key, value.span.offset);
        } else if key == "options" {
            for (offset, word) in words(&value.text) {
                if let Some(name) = word.strip_prefix('$') {
                    add(name, &key, value.span_of(offset, 1).offset);
                    continue;
                }
                let Some((option, name)) = word.split_once("=$") else {
                    continue;
                };
                if let Some(option) = options::find(option) {
                    let at = value.span_of(offset + option.name.len() + 1, 1);
                    add(name, option.name, at.offset);
                }
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_found_with_their_places() {
        let source = "<group nthreads=\"$n\">\n <flowop type=connect \
                      options=\"Remotehost=$H protocol=tcp size=4$x $bare\" />\n<flowop options=$o />";
        let found: Vec<_> = variables(source)
            .into_iter()
            .map(|u| format!("{} {} {}", u.position, u.option, u.name))
            .collect();
        assert_eq!(
            found,
            ["1:18 nthreads n", "2:43 remotehost H", "2:68 options bare", "3:17 options o"]
        );
    }
}
