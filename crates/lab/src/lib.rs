//! Test hosts on one machine. Each host is a network namespace with its own device. A wire joins two
//! hosts; a switch joins more hosts, or links with a limited rate. A temporary lab is removed with its
//! run. A persistent lab stays, by name, until it is removed.
//!
//! ```no_run
//! use wirecost_lab::{Lab, LabSpec};
//!
//! let lab = Lab::up(&LabSpec::temporary(2))?;
//! let mut agent = std::process::Command::new("wirecost");
//! lab.hosts()[0].place(&mut agent)?;
//! # Ok::<(), wirecost_lab::LabError>(())
//! ```

mod addresses;
mod build;
mod emulator;
mod error;
mod host;
mod netem;
mod placement;
mod rate;
mod state;
mod status;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use wirecost_linux::privilege::{self, NAMESPACES};
use wirecost_linux::process::ProcessId;
use wirecost_model::link::netem::Backend;
use wirecost_model::link::{LinkSpec, Topology};

pub use addresses::MAX_HOSTS;
pub use emulator::{EmulatedLinks, LinkReader, serve as serve_links};
pub use error::LabError;
pub use host::LabHost;
pub use netem::QdiscReader;
pub use state::Lifetime;
pub use status::{EmulatedStatus, HostStatus, LabStatus, LinkStatus, Status, status};

use state::{Directory, State};

/// Default name of `wirecost lab up`.
pub const DEFAULT_NAME: &str = "lab";

/// A lab to create.
#[derive(Debug, Clone, PartialEq)]
pub struct LabSpec {
    /// Part of the namespaces' names; unique on the machine.
    pub name: String,
    pub hosts: usize,
    pub lifetime: Lifetime,
    /// Rate of each host's link, per direction; unlimited if absent.
    pub rate_bits_per_second: Option<u64>,
    /// Emulated links instead of wires or a switch.
    pub emulated: Option<EmulatedLinks>,
}

impl LabSpec {
    /// A temporary lab, removed when its [`Lab`] is dropped.
    #[must_use]
    pub fn temporary(hosts: usize) -> Self {
        Self::new(run_name(), hosts, Lifetime::Run)
    }

    /// A persistent lab, which stays until [`down`] is called with its name.
    #[must_use]
    pub fn persistent(name: impl Into<String>, hosts: usize) -> Self {
        Self::new(name.into(), hosts, Lifetime::UntilDown)
    }

    fn new(name: String, hosts: usize, lifetime: Lifetime) -> Self {
        Self { name, hosts, lifetime, rate_bits_per_second: None, emulated: None }
    }

    /// Limits the rate of the links. They meet in a switch, also with two hosts. The switch queues 50 ms
    /// of traffic and drops the excess.
    #[must_use]
    pub fn with_rate(self, bits_per_second: u64) -> Self {
        Self { rate_bits_per_second: Some(bits_per_second), ..self }
    }
}

/// A name that is unique among the runs of this machine: process and time.
fn run_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("run-{}-{:07x}", std::process::id(), since.as_nanos() as u64 & 0xfff_ffff)
}

/// A running lab.
#[derive(Debug)]
pub struct Lab {
    state: State,
    /// The emulator that this process started.
    emulator: Option<emulator::Process>,
}

impl Lab {
    /// Creates a lab. A failure leaves nothing behind. Removes the labs that killed runs left behind.
    ///
    /// # Errors
    /// [`LabError`], with a remedy where there is one.
    pub fn up(spec: &LabSpec) -> Result<Self, LabError> {
        let mut state = Self::plan(spec)?;
        let directory = Directory::lock()?;
        // What cannot be removed is no obstacle to a lab of another name, and `down` tells why.
        let _ = remove_stale_labs(&directory);
        if directory.load(&spec.name)?.is_some() || !build::namespaces_of(&spec.name)?.is_empty() {
            return Err(LabError::NameTaken { name: spec.name.clone() });
        }
        // Written first: if the process is killed after this, `down` knows what to remove.
        directory.save(&state)?;
        let program = spec.emulated.as_ref().map(|links| links.program.as_slice());
        let mut emulator = None;
        let built = build::build(&mut state, |state| {
            let started = directory.start_emulator(state, program.unwrap_or_default())?;
            emulator = started;
            Ok(())
        });
        match built.and_then(|()| directory.save(&state)) {
            Ok(()) => Ok(Self { state, emulator }),
            Err(error) => {
                // Report the error that stopped the building. What could not be removed stays in
                // the state file, for `down`.
                let _ = remove_lab(&directory, &state);
                Err(error)
            }
        }
    }

    /// The hosts that [`Lab::up`] would create. Creates nothing.
    ///
    /// # Errors
    /// The lab cannot be created: its number of hosts, its name, its rate, or missing privileges.
    pub fn planned(spec: &LabSpec) -> Result<Vec<LabHost>, LabError> {
        Self::plan(spec).map(|state| state.hosts)
    }

    fn plan(spec: &LabSpec) -> Result<State, LabError> {
        if !(2..=MAX_HOSTS).contains(&spec.hosts) {
            return Err(LabError::HostCount { asked: spec.hosts });
        }
        if !is_valid_name(&spec.name) {
            return Err(LabError::BadName { name: spec.name.clone() });
        }
        if let Some(rate) = spec.rate_bits_per_second.filter(|rate| *rate < rate::MIN_RATE) {
            return Err(LabError::Rate { asked: rate });
        }
        if let Some(links) = &spec.emulated {
            check_topology(links.topology, spec.hosts)?;
        }
        check_privileges()?;
        State::plan(spec, ProcessId::this().ok_or(LabError::NoProc)?)
    }

    /// Opens an existing lab by name. Dropping it does not remove the lab.
    ///
    /// # Errors
    /// [`LabError::NotFound`] if no lab has the name, [`LabError::Incomplete`] if a namespace is missing.
    pub fn open(name: &str) -> Result<Self, LabError> {
        check_privileges()?;
        let directory = Directory::lock()?;
        let _ = remove_stale_labs(&directory);
        let mut state =
            directory.load(name)?.ok_or_else(|| LabError::NotFound { name: name.to_owned() })?;
        let present = build::namespaces_of(name)?;
        if let Some(gone) = state.namespaces().find(|namespace| !present.contains(namespace)) {
            return Err(LabError::Incomplete { name: name.to_owned(), namespace: gone });
        }
        if state.emulator.as_ref().is_some_and(|emulator| !emulator.is_alive()) {
            return Err(LabError::EmulatorGone { name: name.to_owned() });
        }
        state.lifetime = Lifetime::UntilDown;
        Ok(Self { state, emulator: None })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Rate of each host's link; `None` if unlimited.
    #[must_use]
    pub fn rate_bits_per_second(&self) -> Option<u64> {
        self.state.rate_bits_per_second
    }

    /// How its hosts are joined, by which links and what makes them, if they are emulated.
    #[must_use]
    pub fn emulated(&self) -> Option<(Topology, &LinkSpec, Backend)> {
        self.state.emulated()
    }

    /// What reads the counters of its links by netem; `None` if it has none.
    ///
    /// # Errors
    /// [`LabError`] if the namespace of the links cannot be opened.
    pub fn qdisc_reader(&self) -> Option<Result<QdiscReader, LabError>> {
        self.state.qdisc_reader()
    }

    /// What reads the counters of the emulator of its links; `None` if it has none.
    #[must_use]
    pub fn link_reader(&self) -> Option<LinkReader> {
        let process = self.state.emulator.as_ref()?.process?;
        Some(LinkReader::new(&self.state.name, process.pid))
    }

    #[must_use]
    pub fn hosts(&self) -> &[LabHost] {
        &self.state.hosts
    }

    /// Removes a temporary lab, as dropping it does, and returns errors. A persistent lab stays.
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
        // Only once: what a failure leaves behind is for `down`.
        self.state.lifetime = Lifetime::UntilDown;
        if let Some(mut emulator) = self.emulator.take() {
            emulator.stop();
        }
        remove_lab(&Directory::lock()?, &self.state)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A drop cannot report a failure. The state file remains, and `remove_stale` finds it.
        let _ = self.remove_if_ours();
    }
}

/// What [`down`] or [`remove_stale`] removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    pub name: String,
    pub namespaces: Vec<String>,
}

/// Removes a lab and only what was created for it. Processes in it continue without a network.
///
/// # Errors
/// [`LabError::NotFound`] if no lab has the name, [`LabError::InUse`] if it is the temporary lab of a
/// run in progress.
pub fn down(name: &str) -> Result<Removed, LabError> {
    check_privileges()?;
    let directory = Directory::lock()?;
    let namespaces = build::namespaces_of(name)?;
    match directory.load(name)? {
        Some(state) if state.is_stale() || state.lifetime == Lifetime::UntilDown => {
            remove_lab(&directory, &state)?;
        }
        Some(state) => {
            return Err(LabError::InUse { name: name.to_owned(), pid: state.creator.pid });
        }
        // The state file is missing (/run/wirecost was cleaned); names identify what was created.
        None if !namespaces.is_empty() => build::remove(name, &namespaces)?,
        None => {
            return Err(LabError::NotFound { name: name.to_owned() });
        }
    }
    Ok(Removed { name: name.to_owned(), namespaces })
}

/// Removes the labs of runs that ended without removing them, for example after kill -9.
///
/// # Errors
/// [`LabError`] names what could not be removed.
pub fn remove_stale() -> Result<Vec<Removed>, LabError> {
    check_privileges()?;
    remove_stale_labs(&Directory::lock()?)
}

fn remove_stale_labs(directory: &Directory) -> Result<Vec<Removed>, LabError> {
    let mut removed = Vec::new();
    for state in directory.load_all()? {
        if state.is_stale() {
            let namespaces = build::namespaces_of(&state.name)?;
            remove_lab(directory, &state)?;
            removed.push(Removed { name: state.name, namespaces });
        }
    }
    Ok(removed)
}

fn remove_lab(directory: &Directory, state: &State) -> Result<(), LabError> {
    let present = build::namespaces_of(&state.name)?;
    let ours: Vec<String> =
        state.namespaces().filter(|namespace| present.contains(namespace)).collect();
    if let Some(process) = state.emulator.as_ref().and_then(|emulator| emulator.process) {
        emulator::stop(process);
    }
    build::remove(&state.name, &ours)?;
    directory.forget(&state.name)
}

fn check_topology(topology: Topology, asked: usize) -> Result<(), LabError> {
    match topology {
        Topology::Pair if asked != 2 => {
            Err(LabError::Topology { topology: "pair", hosts: "2", asked })
        }
        Topology::Dumbbell if asked < 3 => {
            Err(LabError::Topology { topology: "dumbbell", hosts: "3 or more", asked })
        }
        _ => Ok(()),
    }
}

fn check_privileges() -> Result<(), LabError> {
    let missing = privilege::missing(NAMESPACES);
    if missing.is_empty() { Ok(()) } else { Err(LabError::NotPermitted { missing }) }
}

/// Whether a name is valid as part of file and namespace names.
fn is_valid_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-'))
        && !name.starts_with('-')
}
