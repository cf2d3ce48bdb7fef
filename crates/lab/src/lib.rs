//! Test hosts on one machine: each is a network namespace with a device of its own, joined by a
//! wire (two hosts) or a switch (more, or links of a set rate). A run's own lab goes when the run does; one made to stay is
//! kept by name until it is taken down.
//!
//! ```no_run
//! use wirecost_lab::{Lab, LabSpec};
//!
//! let lab = Lab::up(&LabSpec::for_this_run(2))?;
//! let mut agent = std::process::Command::new("wirecost");
//! lab.hosts()[0].place(&mut agent)?;
//! # Ok::<(), wirecost_lab::LabError>(())
//! ```

mod addresses;
mod build;
mod error;
mod host;
mod placement;
mod rate;
mod state;
mod status;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use wirecost_linux::privilege::{self, NAMESPACES};
use wirecost_linux::process::ProcessId;

pub use addresses::MAX_HOSTS;
pub use error::LabError;
pub use host::LabHost;
pub use state::Lifetime;
pub use status::{HostStatus, LabStatus, LinkStatus, Status, status};

use state::{Directory, State};

/// Name of the lab that `wirecost lab up` makes when it is not told another.
pub const DEFAULT_NAME: &str = "lab";

/// A lab to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabSpec {
    /// Part of the namespaces' names; unique on the machine.
    pub name: String,
    pub hosts: usize,
    pub lifetime: Lifetime,
    /// Of each host's link, each way; as fast as the CPU can without.
    pub rate_bits_per_second: Option<u64>,
}

impl LabSpec {
    /// A lab that goes when its [`Lab`] is dropped.
    #[must_use]
    pub fn for_this_run(hosts: usize) -> Self {
        Self { name: run_name(), hosts, lifetime: Lifetime::Run, rate_bits_per_second: None }
    }

    /// A lab that stays until [`down`] is called with its name.
    #[must_use]
    pub fn to_stay(name: impl Into<String>, hosts: usize) -> Self {
        let lifetime = Lifetime::UntilDown;
        Self { name: name.into(), hosts, lifetime, rate_bits_per_second: None }
    }

    /// The same with links of this rate. They meet in a switch, also those of two hosts, that keeps
    /// what 50 ms can carry and drops what comes beyond it.
    #[must_use]
    pub fn with_rate(self, bits_per_second: u64) -> Self {
        Self { rate_bits_per_second: Some(bits_per_second), ..self }
    }
}

/// Unique among the runs of this machine: a process, and the instant in it.
fn run_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("run-{}-{:07x}", std::process::id(), since.as_nanos() as u64 & 0xfff_ffff)
}

/// A lab that is up.
#[derive(Debug)]
pub struct Lab {
    state: State,
}

impl Lab {
    /// Makes a lab. When it fails, nothing of it is left.
    ///
    /// # Errors
    /// [`LabError`] says what to do about it.
    pub fn up(spec: &LabSpec) -> Result<Self, LabError> {
        if !(2..=MAX_HOSTS).contains(&spec.hosts) {
            return Err(LabError::HostCount { asked: spec.hosts });
        }
        if !is_name(&spec.name) {
            return Err(LabError::BadName { name: spec.name.clone() });
        }
        if let Some(rate) = spec.rate_bits_per_second.filter(|rate| *rate < rate::LEAST) {
            return Err(LabError::Rate { asked: rate });
        }
        may_make_labs()?;
        let directory = Directory::lock()?;
        if directory.load(&spec.name)?.is_some() || !build::namespaces_of(&spec.name)?.is_empty() {
            return Err(LabError::NameTaken { name: spec.name.clone() });
        }
        let mut state = State::plan(spec, ProcessId::this().ok_or(LabError::NoProc)?)?;
        // Written first: a process killed from here on leaves what `down` needs to clean up.
        directory.save(&state)?;
        match build::build(&mut state).and_then(|()| directory.save(&state)) {
            Ok(()) => Ok(Self { state }),
            Err(error) => {
                // The error that stopped the building is the one to tell; what could not be
                // removed stays in the state file, for `down`.
                let _ = take_down(&directory, &state);
                Err(error)
            }
        }
    }

    /// A lab that was made before, by its name. It stays up when this is dropped.
    ///
    /// # Errors
    /// [`LabError::NotFound`] when there is none, or it is not whole any more.
    pub fn open(name: &str) -> Result<Self, LabError> {
        may_make_labs()?;
        let directory = Directory::lock()?;
        let mut state =
            directory.load(name)?.ok_or_else(|| LabError::NotFound { name: name.to_owned() })?;
        let present = build::namespaces_of(name)?;
        if let Some(gone) = state.namespaces().find(|namespace| !present.contains(namespace)) {
            return Err(LabError::Incomplete { name: name.to_owned(), namespace: gone });
        }
        state.lifetime = Lifetime::UntilDown;
        Ok(Self { state })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Rate of each host's link; `None` where nothing limits it.
    #[must_use]
    pub fn rate_bits_per_second(&self) -> Option<u64> {
        self.state.rate_bits_per_second
    }

    #[must_use]
    pub fn hosts(&self) -> &[LabHost] {
        &self.state.hosts
    }

    /// Takes a run's lab down, as dropping it does, and says whether that worked. A lab that stays
    /// stays.
    ///
    /// # Errors
    /// [`LabError`] names what could not be removed.
    pub fn close(mut self) -> Result<(), LabError> {
        self.remove_if_ours()
    }

    fn remove_if_ours(&mut self) -> Result<(), LabError> {
        if self.state.lifetime == Lifetime::UntilDown {
            return Ok(());
        }
        // Once: what is left after a failure is for `down`.
        self.state.lifetime = Lifetime::UntilDown;
        take_down(&Directory::lock()?, &self.state)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A drop cannot fail; the state file remains, and `remove_stale` finds it.
        let _ = self.remove_if_ours();
    }
}

/// What [`down`] or [`remove_stale`] removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    pub name: String,
    pub namespaces: Vec<String>,
}

/// Removes a lab and exactly what was made for it. Processes in it lose their network and go on.
///
/// # Errors
/// [`LabError::NotFound`] when there is no such lab, [`LabError::InUse`] when it is the own lab of a
/// run that still goes on.
pub fn down(name: &str) -> Result<Removed, LabError> {
    may_make_labs()?;
    let directory = Directory::lock()?;
    let namespaces = build::namespaces_of(name)?;
    match directory.load(name)? {
        Some(state) if state.is_stale() || state.lifetime == Lifetime::UntilDown => {
            take_down(&directory, &state)?;
        }
        Some(state) => {
            return Err(LabError::InUse { name: name.to_owned(), pid: state.creator.pid });
        }
        // The state is gone (someone cleaned /run/wirecost), the names tell what was made.
        None if !namespaces.is_empty() => build::remove(name, &namespaces)?,
        None => {
            return Err(LabError::NotFound { name: name.to_owned() });
        }
    }
    Ok(Removed { name: name.to_owned(), namespaces })
}

/// Removes the labs of runs that ended without removing them, as after kill -9.
///
/// # Errors
/// [`LabError`] names what could not be removed.
pub fn remove_stale() -> Result<Vec<Removed>, LabError> {
    may_make_labs()?;
    let directory = Directory::lock()?;
    let mut removed = Vec::new();
    for state in directory.load_all()? {
        if state.is_stale() {
            let namespaces = build::namespaces_of(&state.name)?;
            take_down(&directory, &state)?;
            removed.push(Removed { name: state.name, namespaces });
        }
    }
    Ok(removed)
}

fn take_down(directory: &Directory, state: &State) -> Result<(), LabError> {
    let present = build::namespaces_of(&state.name)?;
    let ours: Vec<String> =
        state.namespaces().filter(|namespace| present.contains(namespace)).collect();
    build::remove(&state.name, &ours)?;
    directory.forget(&state.name)
}

fn may_make_labs() -> Result<(), LabError> {
    let missing = privilege::missing(NAMESPACES);
    if missing.is_empty() { Ok(()) } else { Err(LabError::NotPermitted { missing }) }
}

/// A name becomes part of a file name and of namespaces' names.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-'))
        && !name.starts_with('-')
}
