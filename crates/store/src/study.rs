//! A study on disk: docs/studies.md, "On disk".
//!
//! [`Study`] reads, whoever writes meanwhile: a record is there whole, or not there. [`Writer`] is the
//! one that may write, as long as it lives.

use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Map, Value};
use wirecost_model::run::Run;

use crate::document;
use crate::draft::{Draft, is_draft, remove_drafts, sync};
use crate::error::{StoreError, cannot};
use crate::record::{self, Record, make_directory};

/// The study as it is run.
pub const DEFINITION: &str = "study.toml";
/// Profiles that are files of their own.
pub const PROFILES: &str = "profiles";
/// A record for each run, by its name.
pub const RUNS: &str = "runs";
/// Who holds the lock of this file writes; it holds the writer's number.
const LOCK: &str = ".lock";

/// A study that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Study {
    directory: PathBuf,
}

impl Study {
    /// # Errors
    /// The directory is no study.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        if !directory.exists() {
            return Err(StoreError::NotThere(directory.to_owned()));
        }
        if !directory.join(DEFINITION).exists() {
            return Err(StoreError::NoStudy(directory.to_owned()));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the profiles are.
    #[must_use]
    pub fn profiles(&self) -> PathBuf {
        self.directory.join(PROFILES)
    }

    /// Where the record of a run is, or will be.
    #[must_use]
    pub fn record(&self, id: &str) -> PathBuf {
        self.directory.join(RUNS).join(id)
    }

    /// The text of the study.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn definition(&self) -> Result<String, StoreError> {
        let path = self.directory.join(DEFINITION);
        fs::read_to_string(&path).map_err(cannot("read", &path))
    }

    /// Names of the records that are there, in the order of the names.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, StoreError> {
        let runs = self.directory.join(RUNS);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&runs).map_err(cannot("read", &runs))? {
            let entry = entry.map_err(cannot("read", &runs))?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !is_draft(&entry.file_name()) {
                ids.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// All runs that are there, with their names, in the order of these. Stacks are left out.
    ///
    /// # Errors
    /// The first record, by its name, that cannot be read.
    pub fn runs(&self) -> Result<Vec<(String, Run)>, StoreError> {
        self.each(document::run)
    }

    /// The same with their stacks.
    ///
    /// # Errors
    /// As of [`runs`](Study::runs).
    pub fn runs_with_stacks(&self) -> Result<Vec<(String, Run)>, StoreError> {
        self.each(|record| Ok(record::read(record)?.run))
    }

    /// What is read of each record, on all CPUs.
    fn each(
        &self,
        read: impl Fn(&Path) -> Result<Run, StoreError> + Sync,
    ) -> Result<Vec<(String, Run)>, StoreError> {
        let ids = self.ids()?;
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let part = ids.len().div_ceil(threads).max(1);
        let read = &|id: &String| Ok((id.clone(), read(&self.record(id))?));
        thread::scope(|scope| {
            let parts: Vec<_> = ids
                .chunks(part)
                .map(|ids| scope.spawn(move || ids.iter().map(read).collect::<Result<Vec<_>, _>>()))
                .collect();
            let mut runs = Vec::with_capacity(ids.len());
            for part in parts {
                match part.join() {
                    Ok(part) => runs.append(&mut part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(runs)
        })
    }

    /// One record, whole.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn read(&self, id: &str) -> Result<Record, StoreError> {
        record::read(&self.record(id))
    }
}

/// The runs of a study, or the one of a record or of a file of JSON, with their names.
///
/// # Errors
/// There is nothing of the kind, or it cannot be read.
pub fn runs(path: &Path) -> Result<Vec<(String, Run)>, StoreError> {
    if path.join(DEFINITION).exists() {
        return Study::open(path)?.runs();
    }
    match document::run(path) {
        Ok(run) => Ok(vec![(path.display().to_string(), run)]),
        Err(StoreError::NoRecord(path)) => Err(StoreError::NoResult(path)),
        Err(error) => Err(error),
    }
}

/// The one that may write to a study.
#[derive(Debug)]
pub struct Writer {
    study: Study,
    /// Closed, by whatever ends the process, it is free again.
    _lock: File,
}

impl Writer {
    /// Makes a study of its text, and of the profiles that are files, by name.
    ///
    /// # Errors
    /// Something else is there, or another makes it at this moment, or it cannot be written.
    pub fn create<'a>(
        directory: &Path,
        definition: &str,
        profiles: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, StoreError> {
        let refuse_second = || match directory.join(DEFINITION).exists() {
            true => Err(StoreError::AlreadyStudied(directory.to_owned())),
            false => Ok(()),
        };
        refuse_second()?;
        // What one that died while it did this has left is no obstacle.
        let begun = directory.join(LOCK).exists();
        make_directory(directory, |name| {
            begun && (is_draft(name) || [LOCK, PROFILES, RUNS].iter().any(|own| name == *own))
        })?;
        let lock = lock(directory)?;
        refuse_second()?;
        make_directory(&directory.join(RUNS), |_| false)?;
        remove_drafts(directory)?;
        let _ = fs::remove_dir_all(directory.join(PROFILES));
        let mut draft = Draft::new(directory, PROFILES, &directory.join(PROFILES))?;
        for (name, text) in profiles {
            draft.add(name, text.as_bytes())?;
        }
        draft.publish()?;
        // Last: with this it is a study.
        let mut draft = Draft::new(directory, DEFINITION, directory)?;
        draft.add(DEFINITION, definition.as_bytes())?;
        draft.pour()?;
        Ok(Self { study: Study { directory: directory.to_owned() }, _lock: lock })
    }

    /// Goes on with a study. Removes what a writer that was killed has left behind.
    ///
    /// # Errors
    /// The directory is no study, or another writes to it.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let study = Study::open(directory)?;
        let lock = lock(directory)?;
        remove_drafts(directory)?;
        remove_drafts(&directory.join(RUNS))?;
        Ok(Self { study, _lock: lock })
    }

    #[must_use]
    pub fn study(&self) -> &Study {
        &self.study
    }

    /// Keeps a run. When this returns it is on the disk; before, there is nothing of it to be seen.
    ///
    /// # Errors
    /// There is one of this name, or it cannot be written. All other records are as they were.
    pub fn save(&self, id: &str, run: &Run, hosts: &Map<String, Value>) -> Result<(), StoreError> {
        let to = self.study.record(id);
        if to.exists() {
            return Err(StoreError::AlreadyRecorded(to));
        }
        let mut draft = Draft::new(&self.study.directory.join(RUNS), id, &to)?;
        record::write_run(&mut draft, run, hosts)?;
        draft.publish()
    }
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK);
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(cannot("write to", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut number = String::new();
            let _ = file.read_to_string(&mut number);
            let process = number.trim().parse().ok();
            return Err(StoreError::Busy { path: directory.to_owned(), process });
        }
        Err(TryLockError::Error(error)) => return Err(cannot("lock", &path)(error)),
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(cannot("write to", &path))?;
    sync(directory)?;
    Ok(file)
}
