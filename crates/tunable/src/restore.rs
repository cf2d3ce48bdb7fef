//! Restores what a journal says was changed.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wirecost_linux::netns::NetNs;
use wirecost_linux::process::ProcessId;

use crate::error::{TuneError, with_causes};
use crate::journal::{self, Directory, Entry, Journal, Lost};
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

impl Restored {
    /// What is left to tell of settings that are in no journal any more; `None` where all of them have their
    /// previous values. Those that are in a journal are tried again, and told then.
    pub(crate) fn report(&self) -> Option<Self> {
        let is_final = |entry: &&RestoredEntry| !matches!(entry.outcome, Outcome::Failed { .. });
        let entries = self.entries.iter().filter(is_final).cloned().collect();
        let report = Self { owner: self.owner, entries };
        (!report.is_complete()).then_some(report)
    }
}

/// What owners that have ended, for example after kill -9, had left changed.
#[derive(Debug, Default)]
pub struct LeftBehind {
    /// What became of it; also what runs that ended early, and guardians, could not restore.
    pub restored: Vec<Restored>,
    /// Journals that cannot be read or written, and those at which a guardian is still at work.
    pub problems: Vec<TuneError>,
}

/// A guardian restores within a second; longer means that something is stuck.
pub(crate) const GUARDIANS: Duration = Duration::from_secs(10);

/// Restores what owners that have ended, for example after kill -9, left behind. Also returns what
/// was not restored since the last call.
///
/// # Errors
/// When the directory of journals cannot be locked or read. What fails of single journals is among
/// [`LeftBehind::problems`].
pub fn restore_left_behind(directory: Option<&Path>) -> Result<LeftBehind, TuneError> {
    restore_after(GUARDIANS, directory.unwrap_or(Path::new(crate::DIRECTORY)))
}

/// The same; guardians that are at work have this time.
pub(crate) fn restore_after(patience: Duration, path: &Path) -> Result<LeftBehind, TuneError> {
    Ok(Untold::collect(&lock_after_guardians(path, patience)?)?.tell())
}

/// Locks a directory of journals, if possible when no guardian is at work there: it may hold namespaces
/// that nobody else finds.
pub(crate) fn lock_after_guardians(
    path: &Path,
    patience: Duration,
) -> Result<Directory, TuneError> {
    let end = Instant::now() + patience;
    loop {
        let directory = Directory::lock(path)?;
        let (journals, _) = directory.load_all()?;
        let is_at_work = |journal: &Journal| journal.guardian_at_work().is_some();
        if Instant::now() >= end || !journals.iter().any(is_at_work) {
            return Ok(directory);
        }
        drop(directory);
        thread::sleep(Duration::from_millis(2));
    }
}

/// What had been left behind, and was not told yet.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    left: LeftBehind,
    /// The same on disk, should this process not come to tell it.
    reports: Vec<PathBuf>,
}

impl Untold {
    /// Restores what owners that have ended left behind, and reads what was reported earlier.
    pub(crate) fn collect(directory: &Directory) -> Result<Self, TuneError> {
        let mut untold = Self::default();
        for (path, report) in directory.reports()? {
            untold.reports.push(path);
            untold.left.restored.push(report);
        }
        let (journals, unreadable) = directory.load_all()?;
        untold.left.problems = unreadable;
        for journal in untold.restore(directory, journals) {
            if let Some(guardian) = journal.guardian_at_work() {
                let (owner, guardian) = (journal.owner.pid, guardian.pid);
                untold.left.problems.push(TuneError::GuardianAtWork { owner, guardian });
            }
        }
        Ok(untold)
    }

    /// Restores the journals of owners that have ended and whose guardians have too; returns the others.
    pub(crate) fn restore(
        &mut self,
        directory: &Directory,
        journals: Vec<Journal>,
    ) -> Vec<Journal> {
        let is_in_use =
            |journal: &Journal| journal.owner.is_alive() || journal.guardian_at_work().is_some();
        let (others, ended): (Vec<_>, Vec<_>) = journals.into_iter().partition(is_in_use);
        for mut journal in ended {
            let (restored, unsaved) = restore(directory, &mut journal, &[], |_| true);
            // Where it cannot be written it is told only if this process comes to it.
            self.reports.extend(directory.leave(&restored).ok().flatten());
            self.left.restored.push(restored);
            self.left.problems.extend(unsaved);
        }
        others
    }

    /// Hands it over to whoever tells it.
    pub(crate) fn tell(&mut self) -> LeftBehind {
        for path in self.reports.drain(..) {
            // It is told twice then.
            let _ = journal::remove(&path);
        }
        std::mem::take(&mut self.left)
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

    /// What became of it, and its value where that can be read.
    fn outcome(self) -> (Outcome, Option<String>) {
        match self.tunable.read(&self.target) {
            Ok(current) if current == self.entry.previous => (Outcome::Restored, Some(current)),
            Ok(current) => {
                let why = format!("it is `{current}` after being restored");
                let why = self.problem.unwrap_or(why);
                (Outcome::Failed { why }, Some(current))
            }
            Err(refusal) => (Outcome::Failed { why: with_causes(&refusal) }, None),
        }
    }
}

/// In which order settings are restored that were changed in the given one: the latest first, after those
/// whose values others take.
pub(crate) fn order(tunables: &[&'static dyn Tunable]) -> Vec<usize> {
    let is_taken = |name| tunables.iter().any(|other| other.restored_after().contains(&name));
    let mut order: Vec<usize> = (0..tunables.len()).rev().collect();
    order.sort_by_key(|&at| !is_taken(tunables[at].name()));
    order
}

/// Restores the entries of a journal that `which` selects, also where the journal cannot be written: it
/// may be on a file system that is full. The error says that what is on disk is not what is returned.
pub(crate) fn restore(
    directory: &Directory,
    journal: &mut Journal,
    held: &[NetNs],
    which: impl Fn(&Entry) -> bool,
) -> (Restored, Option<TuneError>) {
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
    // The last attempt to write it decides, which is below.
    let _ = directory.save(journal);
    // What is restored later may change what was restored before it, or be what that needs. A value that
    // is right already is restored once too: more may belong to it than can be read.
    let mut found: Vec<&mut Found> = outcomes.iter_mut().flatten().collect();
    let order = order(&found.iter().map(|found| found.tunable).collect::<Vec<_>>());
    for round in 0..ROUNDS {
        let mut progress = false;
        for &at in &order {
            let found = &mut found[at];
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
    let outcomes: Vec<Outcome> = selected
        .iter()
        .zip(outcomes)
        .map(|(entry, outcome)| match outcome {
            Err(outcome) => outcome,
            Ok(found) => {
                let (outcome, current) = found.outcome();
                if outcome == Outcome::Restored {
                    journal.entries.retain(|other| !same(entry, other));
                } else if let Some(left) =
                    journal.entries.iter_mut().find(|other| same(entry, other))
                {
                    // What is set to something else from here on is somebody else's.
                    left.applied = current;
                }
                outcome
            }
        })
        .collect();
    let unsaved = directory.save(journal).err();
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
    (Restored { owner: journal.owner, entries }, unsaved)
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
    let target = entry.place.find(tunable.scope(), held).map_err(|lost| match lost {
        Lost::Gone(what) => Outcome::Gone { what },
        Lost::Unknown(why) => Outcome::Failed { why },
    })?;
    let current = tunable.read(&target);
    match (&entry.applied, current) {
        // A change was under way, or a restoration: its value may be anything between the two.
        (None, _) => {}
        (Some(applied), Ok(current)) if current == *applied || current == entry.previous => {}
        (Some(_), Ok(current)) => return Err(Outcome::ChangedByOthers { current }),
        (Some(_), Err(refusal)) => return Err(failed(&refusal)),
    }
    Ok(Found { entry: entry.clone(), tunable, target, problem: None })
}
