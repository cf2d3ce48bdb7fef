//! One record.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use wirecost_model::environment::Environment;
use wirecost_model::observe::{HostObservation, ObserveDocument};
use wirecost_model::run::Run;
use wirecost_model::sample::Sample;

use crate::document;
use crate::error::{StoreError, cannot};
use crate::staged_dir::{StagedDir, sync};
use crate::sums::Recorded;
use crate::{
    CPU_PARTS, HOSTS, OBSERVATION, RUN, SAMPLES, STACKS, TRACE, cpu_parts, input, parquet_file,
    samples, stacks, sums, trace,
};

/// The contents of a record of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub run: Run,
    /// By host name. The environment of a host that could not report it is empty.
    pub hosts: BTreeMap<String, Environment>,
}

/// Reads a record.
///
/// # Errors
/// It does not exist, or one of its files cannot be read.
pub fn read(directory: &Path) -> Result<Record, StoreError> {
    let mut run = document::run(directory)?;
    let samples = directory.join(SAMPLES);
    match input::read(&samples, input::RECORD) {
        Ok(content) => sums::check(&samples, &content)?,
        // Early versions wrote none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => sums::check_absent(&samples)?,
        Err(error) => return Err(cannot("read", &samples)(error)),
    }
    if let Some(observe) = &mut run.observe {
        document::restore(&mut observe.hosts, directory)?;
    }
    Ok(Record { run, hosts: hosts(directory)? })
}

/// The environments of a record's hosts, by host name.
///
/// # Errors
/// It cannot be read.
pub fn hosts(directory: &Path) -> Result<BTreeMap<String, Environment>, StoreError> {
    let hosts: BTreeMap<String, Option<Environment>> = document::json(&directory.join(HOSTS))?;
    Ok(hosts.into_iter().map(|(name, host)| (name, host.unwrap_or_default())).collect())
}

/// The directory for a new record.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
}

impl Recorder {
    /// Creates the directory, or uses an empty one. Tests whether it is writable.
    ///
    /// # Errors
    /// The directory is not empty or not writable.
    pub fn create(directory: &Path) -> Result<Self, StoreError> {
        Self::check(directory)?;
        make_directory(directory, |_| false)?;
        StagedDir::new(directory, RUN, directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Finds out what would keep it from being created, and creates nothing.
    ///
    /// # Errors
    /// The directory is there and not empty, or something else is.
    pub fn check(directory: &Path) -> Result<(), StoreError> {
        if [RUN, OBSERVATION].iter().any(|name| directory.join(name).exists()) {
            return Err(StoreError::AlreadyRecorded(directory.to_owned()));
        }
        if directory.exists() { make_directory(directory, |_| false) } else { Ok(()) }
    }

    /// Writes a record; its document last, so that a record with a document is complete.
    ///
    /// # Errors
    /// A file could not be written. Then the document does not exist.
    pub fn save(&self, run: &Run, hosts: &Map<String, Value>) -> Result<(), StoreError> {
        let mut staged = StagedDir::new(&self.directory, RUN, &self.directory)?;
        write_run(&mut staged, run, hosts)?;
        staged.install()
    }

    /// Writes the record of an observation.
    ///
    /// # Errors
    /// As [`Recorder::save`].
    pub fn save_observation(
        &self,
        watched: &ObserveDocument,
        hosts: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        let mut staged = StagedDir::new(&self.directory, OBSERVATION, &self.directory)?;
        let mut watched = watched.clone();
        let samples = samples::of_watched(&watched);
        write_others(&mut staged, &samples, &mut watched.hosts, hosts)?;
        staged.add_last(OBSERVATION, &json(OBSERVATION, &Recorded::new(&watched))?)?;
        staged.install()
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Writes the files of a record, the document last.
pub(crate) fn write_run(
    staged: &mut StagedDir,
    run: &Run,
    hosts: &Map<String, Value>,
) -> Result<(), StoreError> {
    let mut run = run.clone();
    let samples = samples::of_run(&run);
    let observed = run.observe.as_mut().map(|observe| observe.hosts.as_mut_slice());
    write_others(staged, &samples, observed.unwrap_or_default(), hosts)?;
    staged.add_last(RUN, &json(RUN, &Recorded::new(&run))?)
}

/// Writes the other files; moves stacks, parts of CPUs and traces out of the document.
fn write_others(
    staged: &mut StagedDir,
    samples: &[Sample],
    observed: &mut [HostObservation],
    hosts: &Map<String, Value>,
) -> Result<(), StoreError> {
    staged.add(HOSTS, &json(HOSTS, hosts)?)?;
    let samples = parquet_file::write(samples).map_err(io::Error::other);
    staged.add(SAMPLES, &samples.map_err(cannot("make", Path::new(SAMPLES)))?)?;
    let stacks = stacks::take(observed);
    if !stacks.is_empty() {
        staged.add(STACKS, stacks.as_bytes())?;
    }
    let parts = cpu_parts::take(observed);
    if !parts.is_empty() {
        let text = serde_json::to_vec(&parts).map_err(io::Error::from);
        staged.add(CPU_PARTS, &text.map_err(cannot("make", Path::new(CPU_PARTS)))?)?;
    }
    if let Some(trace) = trace::take(observed) {
        staged.add(TRACE, trace.as_bytes())?;
    }
    Ok(())
}

fn json(name: &str, document: &impl serde::Serialize) -> Result<Vec<u8>, StoreError> {
    let text = serde_json::to_vec_pretty(document).map_err(io::Error::from);
    let mut text = text.map_err(cannot("make", Path::new(name)))?;
    text.push(b'\n');
    Ok(text)
}

/// Creates a directory, or uses one that contains only `allowed` names.
pub(crate) fn make_directory(
    directory: &Path,
    allowed: impl Fn(&OsStr) -> bool,
) -> Result<(), StoreError> {
    match fs::metadata(directory) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(StoreError::NotADirectory(directory.to_owned()));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            fs::create_dir_all(directory).map_err(cannot("create", directory))?;
            return sync(parent);
        }
        Err(error) => return Err(cannot("look at", directory)(error)),
    }
    for entry in fs::read_dir(directory).map_err(cannot("read", directory))? {
        let name = entry.map_err(cannot("read", directory))?.file_name();
        if !allowed(&name) {
            return Err(StoreError::NotEmpty(directory.to_owned()));
        }
    }
    Ok(())
}
