//! One record.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use wirecost_model::environment::Environment;
use wirecost_model::observe::{Observed, Watched};
use wirecost_model::run::Run;
use wirecost_model::sample::Sample;

use crate::document;
use crate::draft::{Draft, sync};
use crate::error::{StoreError, cannot};
use crate::{HOSTS, OBSERVATION, RUN, SAMPLES, STACKS, parquet_file, samples, stacks};

/// What a record of a run holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub run: Run,
    /// By name of the host. One that could not tell has an environment in which nothing is known.
    pub hosts: BTreeMap<String, Environment>,
}

/// Reads a record.
///
/// # Errors
/// There is none, or one of its files cannot be read.
pub fn read(directory: &Path) -> Result<Record, StoreError> {
    let mut run = document::run(directory)?;
    if let Some(observe) = &mut run.observe {
        document::put_back_stacks(&mut observe.hosts, directory)?;
    }
    Ok(Record { run, hosts: hosts(directory)? })
}

/// What the hosts of a record were like, by their names.
///
/// # Errors
/// It cannot be read.
pub fn hosts(directory: &Path) -> Result<BTreeMap<String, Environment>, StoreError> {
    let hosts: BTreeMap<String, Option<Environment>> = document::json(&directory.join(HOSTS))?;
    Ok(hosts.into_iter().map(|(name, host)| (name, host.unwrap_or_default())).collect())
}

/// A directory that is to hold a record.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
}

impl Recorder {
    /// Makes the directory, or takes an empty one. Tries whether something can be made in it.
    ///
    /// # Errors
    /// Something else is there, or nothing can be written there.
    pub fn create(directory: &Path) -> Result<Self, StoreError> {
        if [RUN, OBSERVATION].iter().any(|name| directory.join(name).exists()) {
            return Err(StoreError::AlreadyRecorded(directory.to_owned()));
        }
        make_directory(directory, |_| false)?;
        Draft::new(directory, RUN, directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Writes a record; its document last, so that where there is one there is all of the record.
    ///
    /// # Errors
    /// A file could not be written; then there is no document.
    pub fn save(&self, run: &Run, hosts: &Map<String, Value>) -> Result<(), StoreError> {
        let mut draft = Draft::new(&self.directory, RUN, &self.directory)?;
        write_run(&mut draft, run, hosts)?;
        draft.pour()
    }

    /// The same of a host that was only observed.
    ///
    /// # Errors
    /// As of [`Recorder::save`].
    pub fn save_observation(
        &self,
        watched: &Watched,
        hosts: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        let mut draft = Draft::new(&self.directory, OBSERVATION, &self.directory)?;
        let mut watched = watched.clone();
        let samples = samples::of_watched(&watched);
        write_others(&mut draft, &samples, &mut watched.hosts, hosts)?;
        add_json(&mut draft, OBSERVATION, &watched)?;
        draft.pour()
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Writes the files of a record, the document last.
pub(crate) fn write_run(
    draft: &mut Draft,
    run: &Run,
    hosts: &Map<String, Value>,
) -> Result<(), StoreError> {
    let mut run = run.clone();
    let samples = samples::of_run(&run);
    let observed = run.observe.as_mut().map(|observe| observe.hosts.as_mut_slice());
    write_others(draft, &samples, observed.unwrap_or_default(), hosts)?;
    add_json(draft, RUN, &run)
}

/// What is beside the document; takes the stacks out of it.
fn write_others(
    draft: &mut Draft,
    samples: &[Sample],
    observed: &mut [Observed],
    hosts: &Map<String, Value>,
) -> Result<(), StoreError> {
    add_json(draft, HOSTS, hosts)?;
    let samples = parquet_file::write(samples).map_err(io::Error::other);
    draft.add(SAMPLES, &samples.map_err(cannot("make", Path::new(SAMPLES)))?)?;
    let stacks = stacks::take(observed);
    if !stacks.is_empty() {
        draft.add(STACKS, stacks.as_bytes())?;
    }
    Ok(())
}

fn add_json(
    draft: &mut Draft,
    name: &str,
    document: &impl serde::Serialize,
) -> Result<(), StoreError> {
    let text = serde_json::to_vec_pretty(document).map_err(io::Error::from);
    let mut text = text.map_err(cannot("make", Path::new(name)))?;
    text.push(b'\n');
    draft.add(name, &text)
}

/// Makes a directory, or takes one in which there is nothing but what is `allowed`.
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
