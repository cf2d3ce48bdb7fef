//! Restores what a journal says was changed.

use std::path::Path;

use serde::{Deserialize, Serialize};
use wirecost_linux::netns::NetNs;
use wirecost_linux::process::ProcessId;

use crate::error::{TuneError, with_causes};
use crate::journal::{Directory, Entry, Journal};
use crate::setting::find;
use crate::target::Target;
use crate::tunables::Tunable;

/// What became of the settings of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The process that had changed them.
    pub owner: ProcessId,
    /// In the order in which they had been changed.
    pub entries: Vec<RestoredEntry>,
}

/// What became of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredEntry {
    /// Name of the tunable.
    pub name: String,
    /// As `` `eth0` `` or `this host`.
    pub place: String,
    /// Its value before it was changed.
    pub previous: String,
    pub outcome: Outcome,
}

/// What became of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has its previous value.
    Restored,
    /// Somebody else has changed it, so it was left as it is.
    ChangedByOthers { current: String },
    /// What it was a setting of does not exist any more.
    Gone { what: String },
    /// It still has another value, and stays in the journal.
    Failed { why: String },
}

impl Restored {
    /// Whether every setting has its previous value.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| entry.outcome == Outcome::Restored)
    }
}

/// Restores what owners that have ended, for example after kill -9, left behind. Also returns what
/// guardians could not restore since the last call.
///
/// # Errors
/// When the journals cannot be locked, read or written. All that could be read was restored.
pub fn restore_left_behind(directory: Option<&Path>) -> Result<Vec<Restored>, TuneError> {
    let directory = Directory::lock(directory.unwrap_or(Path::new(crate::DIRECTORY)))?;
    let mut restored = directory.take_reports()?;
    let (journals, unreadable) = directory.load_all()?;
    for mut journal in journals.into_iter().filter(|journal| !journal.owner.is_alive()) {
        restored.push(restore(&directory, &mut journal, &[], |_| true)?);
    }
    match unreadable.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(restored),
    }
}

/// Settings that need each other are right after two rounds; a chain of them may take more.
pub(crate) const ROUNDS: usize = 5;

/// A setting whose place exists.
struct Found {
    entry: Entry,
    tunable: &'static dyn Tunable,
    target: Target,
    /// Why it could not be restored yet.
    problem: Option<String>,
}

impl Found {
    fn is_restored(&self) -> bool {
        self.tunable.read(&self.target).is_ok_and(|current| current == self.entry.previous)
    }
}

/// Restores the entries of a journal that `which` selects, the latest first.
pub(crate) fn restore(
    directory: &Directory,
    journal: &mut Journal,
    held: &[NetNs],
    which: impl Fn(&Entry) -> bool,
) -> Result<Restored, TuneError> {
    let selected: Vec<Entry> =
        journal.entries.iter().filter(|entry| which(entry)).cloned().collect();
    // All are looked at before the first is restored: that may change others.
    let mut outcomes: Vec<Result<Found, Outcome>> =
        selected.iter().map(|entry| look(entry, held)).collect();
    for (entry, outcome) in selected.iter().zip(&outcomes) {
        let is_it = |other: &&mut Entry| same(entry, other);
        match outcome {
            // If this process is killed from here on, the next one must not take a value that is half
            // restored for somebody else's.
            Ok(_) => {
                if let Some(entry) = journal.entries.iter_mut().find(is_it) {
                    entry.applied = None;
                }
            }
            Err(Outcome::Failed { .. }) => {}
            Err(_) => journal.entries.retain(|other| !same(entry, other)),
        }
    }
    directory.save(journal)?;
    // What is restored later may change what was restored before it, or be what that needs. A value that
    // is right already is restored once too: more may belong to it than can be read.
    for round in 0..ROUNDS {
        let mut progress = false;
        for found in outcomes.iter_mut().rev().flatten() {
            if round == 0 || !found.is_restored() {
                let done = found.tunable.put_back(&found.target, &found.entry.saved);
                progress |= done.is_ok();
                found.problem = done.err().map(|refusal| with_causes(&refusal));
            }
        }
        if !progress {
            break;
        }
    }
    let outcomes: Vec<Outcome> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Err(outcome) => outcome,
            Ok(found) => match found.tunable.read(&found.target) {
                Ok(current) if current == found.entry.previous => Outcome::Restored,
                Ok(current) => Outcome::Failed {
                    why: found
                        .problem
                        .unwrap_or_else(|| format!("it is `{current}` after being restored")),
                },
                Err(refusal) => Outcome::Failed { why: with_causes(&refusal) },
            },
        })
        .collect();
    for (entry, outcome) in selected.iter().zip(&outcomes) {
        if *outcome == Outcome::Restored {
            journal.entries.retain(|other| !same(entry, other));
        }
    }
    directory.save(journal)?;
    let entries = selected
        .into_iter()
        .zip(outcomes)
        .map(|(entry, outcome)| RestoredEntry {
            name: entry.tunable,
            place: entry.place.to_string(),
            previous: entry.previous,
            outcome,
        })
        .collect();
    Ok(Restored { owner: journal.owner, entries })
}

/// Whether two entries are of one setting.
fn same(entry: &Entry, other: &Entry) -> bool {
    entry.tunable == other.tunable
        && find(&entry.tunable).is_ok_and(|t| entry.place.meets(&other.place, t.scope()))
}

/// What there is to restore; otherwise what became of it.
fn look(entry: &Entry, held: &[NetNs]) -> Result<Found, Outcome> {
    let failed = |error: &dyn std::error::Error| Outcome::Failed { why: with_causes(error) };
    let tunable = find(&entry.tunable).map_err(|error| failed(&error))?;
    let target = entry.place.find(tunable.scope(), held).map_err(|what| Outcome::Gone { what })?;
    let current = tunable.read(&target);
    match (&entry.applied, current) {
        // A change was under way: its value may be anything between the two.
        (None, _) => {}
        (Some(applied), Ok(current)) if current == *applied || current == entry.previous => {}
        (Some(_), Ok(current)) => return Err(Outcome::ChangedByOthers { current }),
        (Some(_), Err(refusal)) => return Err(failed(&refusal)),
    }
    Ok(Found { entry: entry.clone(), tunable, target, problem: None })
}
