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
use crate::restore::{self, GUARDIANS, LeftBehind, Restored, Untold};
use crate::setting::{Setting, find};
use crate::target::{Refusal, Target};
use crate::tunables::{Scope, Tunable};

/// A change of the device that carries the control connection reverts after this time.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
/// How long a device may take to find its carrier again.
const CARRIER: Duration = Duration::from_secs(10);

/// How settings are changed.
#[derive(Debug)]
pub struct Options {
    directory: PathBuf,
    guardian: Option<Guardian>,
    control: Vec<ControlConnection>,
    allow_control_device: bool,
    confirm_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            directory: PathBuf::from(DIRECTORY),
            guardian: None,
            control: Vec::new(),
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

    /// A connection whose device is not changed; one more at each call.
    #[must_use]
    pub fn with_control(mut self, connection: ControlConnection) -> Self {
        self.control.push(connection);
        self
    }

    /// The same, by the local address of a connection in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of [`ControlConnection::here`].
    pub fn with_control_address(self, local: IpAddr) -> Result<Self, TuneError> {
        Ok(self.with_control(ControlConnection::here(local)?))
    }

    /// Changes such a device too. It reverts unless [`Tuner::confirm`] is called in time.
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
    control: Vec<ControlConnection>,
    allow_control_device: bool,
    confirm_within: Duration,
    /// Whether a change has to be confirmed.
    awaiting: bool,
    /// Changed devices that could carry packets before.
    running: Vec<Target>,
    untold: Untold,
}

/// A setting that the target has.
struct Planned<'a> {
    setting: &'a Setting,
    place: Place,
    /// What a change of it may change, it itself last.
    affected: Vec<Affected>,
    on_control_device: bool,
}

/// A setting that a change may change.
struct Affected {
    tunable: &'static dyn Tunable,
    target: Target,
    place: Place,
}

/// What a change is undone by.
struct Undo {
    tunable: &'static dyn Tunable,
    target: Target,
    place: Place,
    saved: String,
    before: String,
}

impl Tuner {
    /// Restores what owners that were killed left behind ([`Tuner::take_left_behind`]), and changes nothing
    /// else.
    ///
    /// # Errors
    /// When the directory of journals cannot be locked or read.
    pub fn open(options: Options) -> Result<Self, TuneError> {
        let owner = ProcessId::this().ok_or(TuneError::NoProc)?;
        let untold = {
            let directory = restore::lock_after_guardians(&options.directory, GUARDIANS)?;
            Untold::collect(&directory)?
        };
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
            running: Vec::new(),
            untold,
        })
    }

    /// What owners that were killed had left behind, and what became of it. Who takes it tells it; what is
    /// not taken is given to the next tuner.
    pub fn take_left_behind(&mut self) -> LeftBehind {
        self.untold.tell()
    }

    /// Changes all settings, in this order, or none. A device that loses its carrier by that has it back
    /// then, or the change fails.
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
        let device = planned.iter().any(|planned| planned.setting.tunable.scope().is_of_device());
        if device && target.link().is_ok_and(|link| link.running) {
            self.running.push(target.clone());
        }
        let changed = self.change(target, &planned);
        // Where the controller has to be reached, its confirmation tells of the carrier too. After a failure
        // the guardian must still hear that nothing is to be confirmed.
        let ready = match &changed {
            _ if controlled => self.await_confirmation(),
            Ok(_) => self.await_carriers(),
            Err(_) => Ok(()),
        };
        if let Err(error) = ready {
            self.restore_unheard()?;
            return Err(error);
        }
        changed
    }

    /// Drivers reset a device for many settings, and its carrier then takes seconds to come back.
    fn await_carriers(&self) -> Result<(), TuneError> {
        self.running.iter().try_for_each(|target| match target.wait_until_running(CARRIER) {
            Ok(true) => Ok(()),
            // Somebody has removed it: that its settings are gone is told elsewhere.
            Err(_) => Ok(()),
            Ok(false) => {
                let device = target.device_name().unwrap_or_default().to_owned();
                Err(TuneError::NoCarrier { device, seconds: CARRIER.as_secs() })
            }
        })
    }

    /// The time counts from the change. It was told before, in case that this process does not come so far.
    fn await_confirmation(&mut self) -> Result<(), TuneError> {
        self.awaiting = self.journal()?.entries.iter().any(|entry| entry.unconfirmed);
        let Some(guardian) = &mut self.guardian else { return Ok(()) };
        if self.awaiting { guardian.revert_in(self.confirm_within) } else { guardian.confirmed() }
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
            let affected = affected(setting.tunable, target, &place).map_err(&refused)?;
            let mut on_control_device = false;
            for control in &self.control {
                on_control_device |=
                    control.is_concerned(target, setting.tunable).map_err(&refused)?;
            }
            if on_control_device {
                let device = target.device_name().unwrap_or_default().to_owned();
                if !self.allow_control_device {
                    return Err(TuneError::ControlDevice { name, device });
                }
                if self.guardian.is_none() {
                    return Err(TuneError::NoGuardian { name, device });
                }
            }
            planned.push(Planned { setting, place, affected, on_control_device });
        }
        Ok(planned)
    }

    fn change(
        &mut self,
        target: &Target,
        planned: &[Planned<'_>],
    ) -> Result<Vec<Applied>, TuneError> {
        let directory = restore::lock_after_guardians(&self.directory, GUARDIANS)?;
        // What cannot be read is of another version, and cannot be compared.
        let (mut others, _) = directory.load_all()?;
        others.retain(|other| other.owner != self.owner);
        // What fails stays in its journal.
        for other in self.untold.restore(&directory, others) {
            check_unused(&other, planned)?;
        }
        let mut journal = directory.load(self.owner)?;
        journal.guardian = self.guardian.as_ref().and_then(Guardian::process);
        let entries = journal.entries.clone();
        let (mut applied, mut undo) = (Vec::new(), Vec::new());
        for planned in planned {
            match change_one(&directory, &mut journal, target, planned, &mut undo) {
                Ok(done) => applied.push(done),
                Err(error) => {
                    let failed = roll_back(&undo);
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
        if !self.awaiting {
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
        self.awaiting = false;
        self.guardian.as_mut().map_or(Ok(()), Guardian::confirmed)
    }

    /// Restores all settings, the latest first. A value that somebody else changed is left.
    ///
    /// # Errors
    /// When the journal cannot be locked, read or written. What cannot be restored is no error, but in
    /// the report, and stays in the journal.
    pub fn restore(&mut self) -> Result<Restored, TuneError> {
        self.restore_and(false)
    }

    /// The same where nobody is there to be told: the next one is.
    fn restore_unheard(&mut self) -> Result<Restored, TuneError> {
        self.restore_and(true)
    }

    fn restore_and(&mut self, leave_report: bool) -> Result<Restored, TuneError> {
        self.awaiting = false;
        let (restored, unsaved) = {
            let directory = Directory::lock(&self.directory)?;
            let mut journal = directory.load(self.owner)?;
            let (restored, unsaved) = restore::restore(&directory, &mut journal, &[], |_| true);
            if leave_report || unsaved.is_some() {
                // Where that fails nobody can be told.
                let _ = directory.leave(&restored);
            }
            (restored, unsaved)
        };
        // Its settings are restored, whether or not the device finds its carrier again.
        let _ = self.await_carriers();
        self.running.clear();
        unsaved.map_or(Ok(restored), Err)
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
        if self.restore_unheard().is_ok()
            && let Some(guardian) = self.guardian.take()
        {
            guardian.release();
        }
    }
}

/// What a change of a setting may change, it itself last.
fn affected(
    tunable: &'static dyn Tunable,
    target: &Target,
    place: &Place,
) -> Result<Vec<Affected>, Refusal> {
    let mut all = Vec::new();
    for name in tunable.disturbs().into_iter().filter(|name| *name != tunable.name()) {
        let Ok(other) = find(name) else { continue };
        let place = match other.scope() == tunable.scope() {
            true => Ok(place.clone()),
            false => Place::of(target, other),
        };
        match place {
            Ok(place) => all.push(Affected { tunable: other, target: target.clone(), place }),
            // What the target does not have cannot be disturbed.
            Err(Refusal::Unsupported(_)) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    for device in tunable.disturbed_devices(target)? {
        let target = target.clone().with_device(&device);
        let place = Place::of(&target, tunable)?;
        all.push(Affected { tunable, target, place });
    }
    all.push(Affected { tunable, target: target.clone(), place: place.clone() });
    Ok(all)
}

/// Another owner that lives, or whose guardian does, must not have changed the same, or what may change
/// with it when either is restored.
fn check_unused(other: &Journal, planned: &[Planned<'_>]) -> Result<(), TuneError> {
    let pid = other.owner.pid;
    for planned in planned {
        let ours = planned.setting.tunable;
        for entry in &other.entries {
            // What is not known here is of another version, and cannot be compared.
            let Ok(theirs) = find(&entry.tunable) else { continue };
            let target = entry.place.to_string();
            if ours.name() == theirs.name() && entry.place.meets(&planned.place, ours.scope()) {
                return Err(TuneError::InUse { name: entry.tunable.clone(), target, pid });
            }
            if takes(ours, theirs, planned, entry) || disturb(theirs, planned, entry) {
                let (name, other) = (ours.name(), entry.tunable.clone());
                return Err(TuneError::Disturbs { name, other, target, pid });
            }
        }
    }
    Ok(())
}

/// Whether restoring one takes the value of the other.
fn takes(ours: &dyn Tunable, theirs: &dyn Tunable, planned: &Planned<'_>, entry: &Entry) -> bool {
    let is_after = ours.restored_after().contains(&theirs.name())
        || theirs.restored_after().contains(&ours.name());
    is_after && entry.place.meets(&planned.place, Scope::Machine)
}

/// Whether a change of either may change the other, or both the same.
fn disturb(theirs: &'static dyn Tunable, planned: &Planned<'_>, entry: &Entry) -> bool {
    let is_ours = |tunable: &dyn Tunable, place: &Place| {
        planned.affected.iter().any(|ours| {
            ours.tunable.name() == tunable.name() && ours.place.meets(place, tunable.scope())
        })
    };
    let is_named = |name: &str| planned.affected.iter().any(|ours| ours.tunable.name() == name);
    if !is_named(theirs.name()) && !theirs.disturbs().into_iter().any(is_named) {
        return false;
    }
    let target = entry.place.find(theirs.scope(), &[]).ok();
    match target.and_then(|target| affected(theirs, &target, &entry.place).ok()) {
        Some(all) => all.iter().any(|affected| is_ours(affected.tunable, &affected.place)),
        // Of a place that cannot be looked at only this is known.
        None => is_ours(theirs, &entry.place),
    }
}

fn change_one(
    directory: &Directory,
    journal: &mut Journal,
    target: &Target,
    planned: &Planned<'_>,
    undo: &mut Vec<Undo>,
) -> Result<Applied, TuneError> {
    let Planned { setting, place, affected, on_control_device } = planned;
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
    let mut all: Vec<(&Affected, bool)> = Vec::new();
    for (index, affected) in affected.iter().enumerate() {
        let Affected { tunable, target, place } = affected;
        let is_besides = index + 1 < planned.affected.len();
        let saved = match tunable.save(target) {
            Ok(saved) => saved,
            // What the target does not have cannot be disturbed.
            Err(_) if is_besides => continue,
            Err(refusal) => return Err(refused(refusal)),
        };
        let before = tunable.read(target).map_err(&refused)?;
        // An earlier change of the same settings may have changed it, and knows what it was before.
        let is_same = |undo: &Undo| {
            undo.tunable.name() == tunable.name() && undo.place.meets(place, tunable.scope())
        };
        if !undo.iter().any(is_same) {
            undo.push(Undo {
                tunable: *tunable,
                target: target.clone(),
                place: place.clone(),
                saved: saved.clone(),
                before: before.clone(),
            });
        }
        let known = at(journal, *tunable, place);
        match known {
            Some(at) => {
                journal.entries[at].applied = None;
                journal.entries[at].unconfirmed |= *on_control_device;
            }
            None => journal.entries.push(Entry {
                tunable: tunable.name().to_owned(),
                place: place.clone(),
                saved,
                previous: before,
                applied: None,
                unconfirmed: *on_control_device,
            }),
        }
        all.push((affected, known.is_none()));
    }
    directory.save(journal)?;
    tunable.write(target, &setting.value).map_err(&refused)?;
    let mut effective = String::new();
    for (Affected { tunable, target, place }, is_added) in all {
        effective = tunable.read(target).map_err(&refused)?;
        let Some(at) = at(journal, *tunable, place) else { continue };
        let unchanged = effective == journal.entries[at].previous;
        if unchanged && is_added {
            journal.entries.remove(at);
        } else {
            journal.entries[at].applied = Some(effective.clone());
        }
    }
    directory.save(journal)?;
    Ok(done(effective))
}

/// Names of the settings that could not be undone.
fn roll_back(undo: &[Undo]) -> Vec<&'static str> {
    let is_done = |undo: &Undo| undo.tunable.read(&undo.target).is_ok_and(|now| now == undo.before);
    let order = restore::order(&undo.iter().map(|undo| undo.tunable).collect::<Vec<_>>());
    // What is undone later may change what was undone before it, or be what that needs.
    for _ in 0..restore::ROUNDS {
        for undo in order.iter().map(|&at| &undo[at]).filter(|undo| !is_done(undo)) {
            // Whether it worked is read below.
            let _ = undo.tunable.put_back(&undo.target, &undo.saved);
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
