//! Studies that come with wirecost.

use crate::definition::Definition;
use crate::error::{StudyError, nearest};

/// One of them.
#[derive(Debug)]
pub struct Builtin {
    /// Without the `@`.
    pub name: &'static str,
    /// The file.
    pub source: &'static str,
}

const fn builtin(name: &'static str, source: &'static str) -> Builtin {
    Builtin { name, source }
}

/// All of them.
pub static ALL: &[Builtin] = &[
    builtin("tcp-transmit", include_str!("tcp-transmit.toml")),
    builtin("http-get", include_str!("http-get.toml")),
    builtin("io-engines", include_str!("io-engines.toml")),
    builtin("disk-limits", include_str!("disk-limits.toml")),
    builtin("lso", include_str!("lso.toml")),
    builtin("function-cost", include_str!("function-cost.toml")),
    builtin("interrupt-cost", include_str!("interrupt-cost.toml")),
    builtin("interrupt-polling", include_str!("interrupt-polling.toml")),
    builtin("patterns", include_str!("patterns.toml")),
    builtin("udp-rate-search", include_str!("udp-rate-search.toml")),
    builtin("udp-scaling", include_str!("udp-scaling.toml")),
    builtin("wan-tuning", include_str!("wan-tuning.toml")),
    builtin("rtt-fairness", include_str!("rtt-fairness.toml")),
    builtin("long-haul", include_str!("long-haul.toml")),
    builtin("responsiveness", include_str!("responsiveness.toml")),
    builtin("latency-load", include_str!("latency-load.toml")),
    builtin("option-payoff", include_str!("option-payoff.toml")),
];

/// The built-in study of this name, without the `@`.
///
/// # Errors
/// There is none; the error names the nearest.
pub fn find(name: &str) -> Result<&'static Builtin, StudyError> {
    ALL.iter().find(|builtin| builtin.name == name).ok_or_else(|| StudyError::NoBuiltin {
        name: name.to_owned(),
        nearest: nearest(name, ALL.iter().map(|builtin| builtin.name)),
    })
}

impl Builtin {
    /// What it says.
    ///
    /// # Errors
    /// It is no study.
    pub fn definition(&self) -> Result<Definition, StudyError> {
        Definition::parse(self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Matrix;
    use crate::place::Place;

    #[test]
    fn each_builtin_runs_in_a_lab_and_has_a_quick_variant() {
        let mut names = BTreeSet::new();
        for builtin in ALL {
            assert!(names.insert(builtin.name), "{} is there twice", builtin.name);
            let study = builtin.definition().unwrap();
            assert!(!study.title.is_empty() && !study.tables.is_empty(), "{}", builtin.name);
            assert_eq!(study.place, Place::Lab, "{}", builtin.name);
            assert!(study.quick.is_some(), "{}", builtin.name);
            let all = Matrix::of(&study).unwrap().points.len();
            let quick = Matrix::of(&study.with_quick_overrides()).unwrap().points.len();
            assert!(quick <= all, "{}: {quick} of {all}", builtin.name);
        }
    }

    #[test]
    fn a_misspelled_name_suggests_the_nearest() {
        let error = find("tcp-trasmit").unwrap_err();
        assert_eq!(error.help().as_deref(), Some("did you mean @tcp-transmit?"));
        assert!(find("xyzzy").unwrap_err().help().unwrap().contains("study list"));
    }
}
