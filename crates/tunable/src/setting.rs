//! A tunable and the value that it is to have.

use std::fmt;

use crate::error::TuneError;
use crate::tunables::{Tunable, all};

/// A setting whose value has the right form. Whether a host has it is known when it is applied.
#[derive(Debug, Clone)]
pub struct Setting {
    pub(crate) tunable: &'static dyn Tunable,
    pub(crate) value: String,
}

/// Names that are not like any other within this distance are not suggested.
const SIMILAR: f64 = 0.75;

impl Setting {
    /// # Errors
    /// [`TuneError::Unknown`] for a name that no tunable has, [`TuneError::BadValue`] for a value that
    /// this tunable cannot have.
    pub fn new(name: &str, value: &str) -> Result<Self, TuneError> {
        let tunable = find(name)?;
        let value = value.trim();
        match tunable.check(value) {
            Some(value) => Ok(Self { tunable, value }),
            None => Err(TuneError::BadValue {
                name: tunable.name(),
                value: value.to_owned(),
                wants: tunable.values(),
            }),
        }
    }

    /// Name of its tunable.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.tunable.name()
    }

    /// The value, as it is read back.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    #[must_use]
    pub fn tunable(&self) -> &'static dyn Tunable {
        self.tunable
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.value)
    }
}

/// The tunable of a name.
///
/// # Errors
/// [`TuneError::Unknown`], with the most similar name.
pub(crate) fn find(name: &str) -> Result<&'static dyn Tunable, TuneError> {
    if let Some(found) = all().find(|tunable| tunable.name() == name) {
        return Ok(found);
    }
    let similarity = |known: &str| strsim::jaro_winkler(known, name);
    let similar = all()
        .map(|tunable| tunable.name())
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
        .filter(|known| similarity(known) >= SIMILAR);
    Err(TuneError::Unknown { name: name.to_owned(), similar })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_a_known_name_and_a_possible_value() {
        let setting = Setting::new("tcp_rmem", " 4096,131072 6291456\n").unwrap();
        assert_eq!(setting.to_string(), "tcp_rmem=4096 131072 6291456");
        let error = Setting::new("coalesce.rx-usec", "3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no tunable named `coalesce.rx-usec`; did you mean `coalesce.rx-usecs`?"
        );
        let error = Setting::new("zzz", "3").unwrap_err();
        assert_eq!(error.to_string(), "there is no tunable named `zzz`");
        let error = Setting::new("offload.tso", "maybe").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid value `maybe` for `offload.tso`: expected on or off"
        );
    }
}
