//! Settings of this host that a session changes, and restores when it ends in whatever way.

use std::net::IpAddr;

use wirecost_model::status::Status;
use wirecost_model::tuning::{NotRestored, Tuned, Tuning};
use wirecost_tunable::guardian::Guardian;
use wirecost_tunable::{Applied, Options, Outcome, Restored, Setting, Target, TuneError};

use crate::agent::TuningPolicy;

/// Why settings were not changed or not restored.
#[derive(Debug)]
pub(crate) struct TuningError {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl From<TuneError> for TuningError {
    fn from(error: TuneError) -> Self {
        let status = match error {
            TuneError::Unknown { .. }
            | TuneError::BadValue { .. }
            | TuneError::Twice { .. }
            | TuneError::ControlDevice { .. } => Status::Usage,
            _ => Status::Peer,
        };
        Self { status, message: in_full(&error) }
    }
}

/// With its causes and what to do about it.
fn in_full(error: &TuneError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    match error.remedy() {
        Some(remedy) => format!("{message} ({remedy})"),
        None => message,
    }
}

/// Settings that are changed.
#[derive(Debug)]
pub(crate) struct Tuner(wirecost_tunable::Tuner);

impl Tuner {
    /// Changes all settings or none. Returns what they are now, and what earlier sessions had left changed.
    /// `control` are this host's addresses of connections to the controller.
    ///
    /// # Errors
    /// The first setting that this host does not take; nothing is changed then.
    pub(crate) fn start(
        tuning: &Tuning,
        policy: &TuningPolicy,
        control: impl Iterator<Item = IpAddr>,
    ) -> Result<(Self, Vec<Tuned>, Vec<NotRestored>), TuningError> {
        let settings = tuning
            .settings
            .iter()
            .map(|(name, value)| Setting::new(name, value))
            .collect::<Result<Vec<_>, _>>()?;
        let mut target = Target::here().map_err(TuneError::from)?;
        if let Some(device) = &tuning.device {
            target = target.with_device(device);
        }
        if policy.allow_pci {
            target = target.allowing_pci();
        }
        let guardian = Guardian::start(&policy.guardian, None)?;
        let mut options = Options::default().with_guardian(guardian);
        for address in control {
            options = options.with_control_address(address)?;
        }
        if tuning.allow_control_device {
            options = options.allowing_control_device();
        }
        let mut tuner = wirecost_tunable::Tuner::open(options)?;
        let tuned = tuner.apply(&target, &settings)?.into_iter().map(tuned).collect();
        // After an error nobody would be told what was left; the next session is then.
        let left = tuner.take_left_behind();
        let restored = left.restored.iter().flat_map(not_restored);
        let left = restored.chain(left.problems.iter().map(not_known)).collect();
        Ok((Self(tuner), tuned, left))
    }

    /// The controller still reaches this host.
    ///
    /// # Errors
    /// It is too late: the changes have been reverted.
    pub(crate) fn confirm(&mut self) -> Result<(), TuningError> {
        Ok(self.0.confirm()?)
    }

    /// Restores all settings, and returns those that do not have their previous values.
    ///
    /// # Errors
    /// The journal cannot be read or written; the guardian then tries.
    pub(crate) fn restore(self) -> Result<Vec<NotRestored>, TuningError> {
        Ok(not_restored(&self.0.close()?).collect())
    }
}

fn tuned(applied: Applied) -> Tuned {
    let Applied { name, requested, effective, previous, .. } = applied;
    Tuned { name, requested, effective, previous }
}

/// Settings of a journal of which it is not known what they are.
fn not_known(problem: &TuneError) -> NotRestored {
    let (name, place) = ("a setting".to_owned(), "an earlier run".to_owned());
    NotRestored { name, place, previous: "unknown".to_owned(), why: in_full(problem) }
}

fn not_restored(restored: &Restored) -> impl Iterator<Item = NotRestored> {
    restored.entries.iter().filter_map(|entry| {
        let why = match &entry.outcome {
            Outcome::Restored => return None,
            Outcome::ChangedByOthers { current } => {
                format!("somebody else has set it to `{current}`")
            }
            // It was of a lab, for example.
            Outcome::Gone { .. } => return None,
            Outcome::Failed { why } => why.clone(),
        };
        let (name, place, previous) =
            (entry.name.clone(), entry.place.clone(), entry.previous.clone());
        Some(NotRestored { name, place, previous, why })
    })
}
