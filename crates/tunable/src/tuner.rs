//! Changes settings and restores them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wirecost_linux::process::ProcessId;

use crate::control::ControlConnection;
use crate::error::{TuneError, with_causes};
use crate::guardian::Guardian;
use crate::journal::{DIRECTORY, Directory, Entry, Journal, Place};
use crate::restore::{self, Restored, restore_left_behind};
use crate::setting::{Setting, find};
use crate::target::{Refusal, Target};
use crate::tunables::Tunable;

/// A change of the device that carries the control connection reverts after this time.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);

/// How settings are changed.
#[derive(Debug)]
pub struct Options {
    directory: PathBuf,
    guardian: Option<Guardian>,
    control: Option<ControlConnection>,
    allow_control_device: bool,
    confirm_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            directory: PathBuf::from(DIRECTORY),
            guardian: None,
            control: None,
            allow_control_device: false,
            confirm_within: CONFIRM_WITHIN,
        }
    }
}

impl Options {
    /// The process that restores settings when this one is killed.
    #[must_use]
    pub fn with_guardian(self, guardian: Guardian) -> Self {
        Self { guardian: Some(guardian), ..self }
    }

    /// Where journals are, in place of [`DIRECTORY`].
    #[must_use]
    pub fn with_directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), ..self }
    }

    /// The connection whose device is not changed.
    #[must_use]
    pub fn with_control(self, connection: ControlConnection) -> Self {
        Self { control: Some(connection), ..self }
    }

    /// The same, by the local address of a connection in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of [`ControlConnection::here`].
    pub fn with_control_address(self, local: IpAddr) -> Result<Self, TuneError> {
        Ok(self.with_control(ControlConnection::here(local)?))
    }

    /// Changes that device too. It reverts unless [`Tuner::confirm`] is called in time.
    #[must_use]
    pub fn allowing_control_device(self) -> Self {
        Self { allow_control_device: true, ..self }
    }

    /// The time in which, in place of 10 s.
    #[must_use]
    pub fn with_confirmation_within(self, time: Duration) -> Self {
        Self { confirm_within: time, ..self }
    }
}

/// A setting that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Name of the tunable.
    pub name: String,
    /// As `` `eth0` `` or `this host`.
    pub place: String,
    /// Its value before the first change.
    pub previous: String,
    pub requested: String,
    /// What was read back.
    pub effective: String,
}

impl Applied {
    /// Whether the kernel took another value than the requested one.
    #[must_use]
    pub fn is_rounded(&self) -> bool {
        self.effective != self.requested
    }
}

/// Changes settings of this host, and restores them when it is closed or dropped. If its process is
/// killed, the guardian restores them.
#[derive(Debug)]
pub struct Tuner {
    directory: PathBuf,
    owner: ProcessId,
    guardian: Option<Guardian>,
    control: Option<ControlConnection>,
    allow_control_device: bool,
    confirm_within: Duration,
    /// Whether a change has to be confirmed.
    awaiting: bool,
    left_behind: Vec<Restored>,
}

/// A setting that the target has.
struct Planned<'a> {
    setting: &'a Setting,
    place: Place,
    on_control_device: bool,
}

/// What a change is undone by.
struct Undo {
    tunable: &'static dyn Tunable,
    saved: String,
    before: String,
}

impl Tuner {
    /// Restores what owners that were killed left behind ([`Tuner::left_behind`]), and changes nothing
    /// else.
    ///
    /// # Errors
    /// When the journals cannot be locked, read or written.
    pub fn open(options: Options) -> Result<Self, TuneError> {
        let owner = ProcessId::this().ok_or(TuneError::NoProc)?;
        let left_behind = restore_left_behind(Some(&options.directory))?;
        let Options { directory, guardian, control, allow_control_device, confirm_within } =
            options;
        Ok(Self {
            directory,
            owner,
            guardian,
            control,
            allow_control_device,
            confirm_within,
            awaiting: false,
            left_behind,
        })
    }

    /// What owners that were killed had left behind, and what became of it.
    #[must_use]
    pub fn left_behind(&self) -> &[Restored] {
        &self.left_behind
    }

    /// Changes all settings, in this order, or none.
    ///
    /// # Errors
    /// [`TuneError`] names the setting and the cause. Everything is then as before, except after
    /// [`TuneError::StillChanged`]. When the guardian ends meanwhile, earlier changes are restored too.
    pub fn apply(
        &mut self,
        target: &Target,
        settings: &[Setting],
    ) -> Result<Vec<Applied>, TuneError> {
        let planned = self.plan(target, settings)?;
        let controlled = planned.iter().any(|planned| planned.on_control_device);
        // The guardian is told without the lock, which it may be waiting for.
        if let Some(guardian) = &mut self.guardian {
            guardian.hold(target.namespace())?;
            if controlled {
                guardian.revert_in(self.confirm_within)?;
            }
        }
        let changed = self.change(target, &planned);
        if controlled {
            let reverts = |entry: &Entry| entry.unconfirmed;
            self.awaiting = self.journal()?.entries.iter().any(reverts);
            // The time counts from the change. It was told before, in case that this process does not
            // come so far.
            let told = self.guardian.as_mut().map_or(Ok(()), |guardian| {
                if self.awaiting {
                    guardian.revert_in(self.confirm_within)
                } else {
                    guardian.confirmed()
                }
            });
            if let Err(error) = told {
                self.restore()?;
                return Err(error);
            }
        }
        changed
    }

    /// What can be refused before anything is changed.
    fn plan<'a>(
        &self,
        target: &Target,
        settings: &'a [Setting],
    ) -> Result<Vec<Planned<'a>>, TuneError> {
        let mut planned: Vec<Planned<'_>> = Vec::new();
        for setting in settings {
            let name = setting.name();
            if planned.iter().any(|other| other.setting.name() == name) {
                return Err(TuneError::Twice { name });
            }
            let refused = refused(target, setting);
            setting.tunable.support(target).map_err(&refused)?;
            let place = Place::of(target, setting.tunable).map_err(&refused)?;
            let concerned =
                |control: &ControlConnection| control.is_concerned(target, setting.tunable);
            let on_control_device =
                self.control.as_ref().map_or(Ok(false), concerned).map_err(&refused)?;
            if on_control_device {
                let device = target.device_name().unwrap_or_default().to_owned();
                if !self.allow_control_device {
                    return Err(TuneError::ControlDevice { name, device });
                }
                if self.guardian.is_none() {
                    return Err(TuneError::NoGuardian { name, device });
                }
            }
            planned.push(Planned { setting, place, on_control_device });
        }
        Ok(planned)
    }

    fn change(
        &mut self,
        target: &Target,
        planned: &[Planned<'_>],
    ) -> Result<Vec<Applied>, TuneError> {
        let directory = Directory::lock(&self.directory)?;
        // What cannot be read is of another version, and cannot be compared.
        let (others, _) = directory.load_all()?;
        for mut other in others.into_iter().filter(|other| other.owner != self.owner) {
            if !other.owner.is_alive() {
                // What fails stays in its journal.
                self.left_behind.push(restore::restore(&directory, &mut other, &[], |_| true)?);
            } else {
                check_unused(&other, planned)?;
            }
        }
        let mut journal = directory.load(self.owner)?;
        let entries = journal.entries.clone();
        let (mut applied, mut undo) = (Vec::new(), Vec::new());
        for planned in planned {
            match change_one(&directory, &mut journal, target, planned, &mut undo) {
                Ok(done) => applied.push(done),
                Err(error) => {
                    let failed = roll_back(target, &undo);
                    if !failed.is_empty() {
                        let settings = failed.join(", ");
                        return Err(TuneError::StillChanged {
                            settings,
                            cause: with_causes(&error),
                        });
                    }
                    journal.entries = entries;
                    directory.save(&journal)?;
                    return Err(error);
                }
            }
        }
        Ok(applied)
    }

    /// Confirms that the controller still reaches this host, so that changes of the device that carries
    /// the control connection stay.
    ///
    /// # Errors
    /// [`TuneError::NotConfirmed`] when they have been reverted.
    pub fn confirm(&mut self) -> Result<(), TuneError> {
        if !std::mem::take(&mut self.awaiting) {
            return Ok(());
        }
        {
            let directory = Directory::lock(&self.directory)?;
            let mut journal = directory.load(self.owner)?;
            if !journal.entries.iter().any(|entry| entry.unconfirmed) {
                return Err(TuneError::NotConfirmed);
            }
            journal.entries.iter_mut().for_each(|entry| entry.unconfirmed = false);
            directory.save(&journal)?;
        }
        // The journal decides; a guardian that is late finds nothing to revert.
        self.guardian.as_mut().map_or(Ok(()), Guardian::confirmed)
    }

    /// Restores all settings, the latest first. A value that somebody else changed is left.
    ///
    /// # Errors
    /// When the journal cannot be locked, read or written. What cannot be restored is no error, but in
    /// the report, and stays in the journal.
    pub fn restore(&mut self) -> Result<Restored, TuneError> {
        self.awaiting = false;
        let directory = Directory::lock(&self.directory)?;
        let mut journal = directory.load(self.owner)?;
        restore::restore(&directory, &mut journal, &[], |_| true)
    }

    /// Restores all settings and ends the guardian.
    ///
    /// # Errors
    /// Those of [`Tuner::restore`]; the guardian then tries.
    pub fn close(mut self) -> Result<Restored, TuneError> {
        let restored = self.restore()?;
        if let Some(guardian) = self.guardian.take() {
            guardian.release();
        }
        Ok(restored)
    }

    fn journal(&self) -> Result<Journal, TuneError> {
        Directory::lock(&self.directory)?.load(self.owner)
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        // A drop cannot report a failure. The guardian tries then, as it is not released.
        if self.restore().is_ok()
            && let Some(guardian) = self.guardian.take()
        {
            guardian.release();
        }
    }
}

/// Another owner that lives must not have changed the same.
fn check_unused(other: &Journal, planned: &[Planned<'_>]) -> Result<(), TuneError> {
    for planned in planned {
        let tunable = planned.setting.tunable;
        let is_same = |entry: &Entry| {
            entry.tunable == tunable.name() && entry.place.meets(&planned.place, tunable.scope())
        };
        if let Some(entry) = other.entries.iter().find(|entry| is_same(entry)) {
            return Err(TuneError::InUse {
                name: entry.tunable.clone(),
                target: entry.place.to_string(),
                pid: other.owner.pid,
            });
        }
    }
    Ok(())
}

fn change_one(
    directory: &Directory,
    journal: &mut Journal,
    target: &Target,
    planned: &Planned<'_>,
    undo: &mut Vec<Undo>,
) -> Result<Applied, TuneError> {
    let Planned { setting, place, on_control_device } = planned;
    let refused = refused(target, setting);
    let tunable = setting.tunable;
    let before = tunable.read(target).map_err(&refused)?;
    let at = |journal: &Journal, tunable: &dyn Tunable, place: &Place| {
        let is_it = |entry: &Entry| {
            entry.tunable == tunable.name() && entry.place.meets(place, tunable.scope())
        };
        journal.entries.iter().position(is_it)
    };
    let previous = at(journal, tunable, place).map(|at| journal.entries[at].previous.clone());
    let previous = previous.unwrap_or_else(|| before.clone());
    let done = |effective: String| Applied {
        name: setting.name().to_owned(),
        place: place.to_string(),
        previous,
        requested: setting.value.clone(),
        effective,
    };
    if before == setting.value {
        return Ok(done(before));
    }
    // What the change may change besides comes first, and so is restored after it.
    let mut all: Vec<(&'static dyn Tunable, Place, bool)> = Vec::new();
    for name in tunable.disturbs().into_iter().filter(|name| *name != tunable.name()) {
        let other = find(name)?;
        // What the target does not have cannot be disturbed.
        if other.save(target).is_err() {
            continue;
        }
        let place = match other.scope() == tunable.scope() {
            true => Ok(place.clone()),
            false => Place::of(target, other),
        };
        all.push((other, place.map_err(&refused)?, false));
    }
    all.push((tunable, place.clone(), *on_control_device));
    let mut added = Vec::new();
    for (tunable, place, on_control_device) in &all {
        let saved = tunable.save(target).map_err(&refused)?;
        let before = tunable.read(target).map_err(&refused)?;
        undo.push(Undo { tunable: *tunable, saved: saved.clone(), before: before.clone() });
        match at(journal, *tunable, place) {
            Some(at) => {
                journal.entries[at].applied = None;
                journal.entries[at].unconfirmed |= *on_control_device;
            }
            None => {
                added.push(tunable.name());
                journal.entries.push(Entry {
                    tunable: tunable.name().to_owned(),
                    place: place.clone(),
                    saved,
                    previous: before,
                    applied: None,
                    unconfirmed: *on_control_device,
                });
            }
        }
    }
    directory.save(journal)?;
    tunable.write(target, &setting.value).map_err(&refused)?;
    let mut effective = String::new();
    for (tunable, place, _) in &all {
        effective = tunable.read(target).map_err(&refused)?;
        let Some(at) = at(journal, *tunable, place) else { continue };
        let unchanged = effective == journal.entries[at].previous;
        if unchanged && added.contains(&tunable.name()) {
            journal.entries.remove(at);
        } else {
            journal.entries[at].applied = Some(effective.clone());
        }
    }
    directory.save(journal)?;
    Ok(done(effective))
}

/// Names of the settings that could not be undone.
fn roll_back(target: &Target, undo: &[Undo]) -> Vec<&'static str> {
    let is_done = |undo: &&Undo| undo.tunable.read(target).is_ok_and(|now| now == undo.before);
    // What is undone later may change what was undone before it, or be what that needs.
    for _ in 0..restore::ROUNDS {
        for undo in undo.iter().rev().filter(|undo| !is_done(undo)) {
            // Whether it worked is read below.
            let _ = undo.tunable.put_back(target, &undo.saved);
        }
    }
    let mut failed: Vec<_> =
        undo.iter().filter(|undo| !is_done(undo)).map(|undo| undo.tunable.name()).collect();
    failed.dedup();
    failed
}

fn refused<'a>(target: &Target, setting: &'a Setting) -> impl Fn(Refusal) -> TuneError + use<'a> {
    let place = match target.device_name() {
        Some(device) if setting.tunable.scope().is_of_device() => format!("`{device}`"),
        _ => "this host".to_owned(),
    };
    move |source| TuneError::Refused {
        name: setting.name(),
        value: setting.value.clone(),
        target: place.clone(),
        source,
    }
}
