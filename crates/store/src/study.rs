//! A study on disk: docs/studies.md, "On disk".
//!
//! [`Study`] reads, also during writes: a record is complete or absent. [`Writer`] holds the right to
//! write.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Map, Value};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::StudyRunRef;

use crate::document;
use crate::error::{StoreError, cannot};
use crate::record::{self, Record, make_directory};
use crate::staged_dir::{StagedDir, is_staged, remove_abandoned, sync};
use crate::{RUN, input};

/// The definition, with the changes of the command line.
pub const DEFINITION: &str = "study.toml";
/// Profile files.
pub const PROFILES: &str = "profiles";
/// One record per run, by name.
pub const RUNS: &str = "runs";
/// The writer holds the lock of this file, which contains the writer's process ID.
const LOCK: &str = ".lock";

/// A study that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Study {
    directory: PathBuf,
}

impl Study {
    /// # Errors
    /// The directory is not a study.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        if !directory.exists() {
            return Err(StoreError::DoesNotExist(directory.to_owned()));
        }
        if !directory.join(DEFINITION).exists() {
            return Err(StoreError::NotAStudy(directory.to_owned()));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Directory of the profiles.
    #[must_use]
    pub fn profiles(&self) -> PathBuf {
        self.directory.join(PROFILES)
    }

    /// Directory of a run's record.
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
        input::read_text(&path, input::STUDY).map_err(cannot("read", &path))
    }

    /// Names of the existing records, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, StoreError> {
        let runs = self.directory.join(RUNS);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&runs).map_err(cannot("read", &runs))? {
            let entry = entry.map_err(cannot("read", &runs))?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !is_staged(&entry.file_name()) {
                ids.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// All existing runs with their names, sorted by name, without stacks.
    ///
    /// # Errors
    /// The first record, by name, that cannot be read.
    pub fn runs(&self) -> Result<Vec<(String, Run)>, StoreError> {
        self.each(document::run)
    }

    /// All existing runs with their stacks.
    ///
    /// # Errors
    /// As [`runs`](Study::runs).
    pub fn runs_with_stacks(&self) -> Result<Vec<(String, Run)>, StoreError> {
        self.each(|record| {
            let mut run = record::read(record)?.run;
            // All runs are in memory at once, and CPUs over time are as large as all the rest.
            let observed = run.observe.iter_mut().flat_map(|observe| &mut observe.hosts);
            observed.filter_map(|host| host.cpu.as_mut()).for_each(|cpu| cpu.samples = None);
            Ok(run)
        })
    }

    /// Reads each record, on all CPUs.
    fn each(
        &self,
        read: impl Fn(&Path) -> Result<Run, StoreError> + Sync,
    ) -> Result<Vec<(String, Run)>, StoreError> {
        let ids = self.ids()?;
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let part = ids.len().div_ceil(threads).max(1);
        let read = &|id: &String| {
            let path = self.record(id);
            let run = read(&path)?;
            match run.study.as_ref().map(StudyRunRef::id) {
                Some(of) if of != *id => Err(StoreError::Damaged {
                    path: path.join(RUN),
                    why: format!("it is run {of} of a study, copied over this one"),
                }),
                _ => Ok((id.clone(), run)),
            }
        };
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

    /// One record with its stacks.
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
        Err(StoreError::NotARecord(path)) => Err(StoreError::NeitherStudyNorRecord(path)),
        Err(error) => Err(error),
    }
}

/// The one that may write to a study.
#[derive(Debug)]
pub struct Writer {
    study: Study,
    /// The kernel releases the lock when the process ends.
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
            begun && (is_staged(name) || [LOCK, PROFILES, RUNS].iter().any(|own| name == *own))
        })?;
        let lock = lock(directory)?;
        refuse_second()?;
        make_directory(&directory.join(RUNS), |_| false)?;
        remove_abandoned(directory)?;
        let _ = fs::remove_dir_all(directory.join(PROFILES));
        let mut staged = StagedDir::new(directory, PROFILES, &directory.join(PROFILES))?;
        for (name, text) in profiles {
            staged.add(name, text.as_bytes())?;
        }
        staged.publish()?;
        // Last: with this it is a study.
        let mut staged = StagedDir::new(directory, DEFINITION, directory)?;
        staged.add(DEFINITION, definition.as_bytes())?;
        staged.install()?;
        Ok(Self { study: Study { directory: directory.to_owned() }, _lock: lock })
    }

    /// Goes on with a study. Removes what a writer that was killed has left behind.
    ///
    /// # Errors
    /// The directory is no study, or another writes to it.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let study = Study::open(directory)?;
        let runs = directory.join(RUNS);
        if fs::symlink_metadata(&runs).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(StoreError::Link(runs));
        }
        let lock = lock(directory)?;
        remove_abandoned(directory)?;
        remove_abandoned(&directory.join(RUNS))?;
        Ok(Self { study, _lock: lock })
    }

    #[must_use]
    pub fn study(&self) -> &Study {
        &self.study
    }

    /// Saves a run, also in place of one of the same name that failed. It becomes visible when it is
    /// complete, and is on disk when this returns.
    ///
    /// # Errors
    /// There is one of this name that did not fail, or it cannot be written. All other records are as
    /// they were.
    pub fn save(&self, id: &str, run: &Run, hosts: &Map<String, Value>) -> Result<(), StoreError> {
        let to = self.study.record(id);
        let replaces = to.exists();
        if replaces && document::run(&to)?.status == Status::Ok {
            return Err(StoreError::AlreadyRecorded(to));
        }
        let mut staged = StagedDir::new(&self.study.directory.join(RUNS), id, &to)?;
        record::write_run(&mut staged, run, hosts)?;
        // Without either, after a crash in between, the run is missing, and is made again.
        let _failed = replaces.then(|| StagedDir::aside(&to)).transpose()?;
        staged.publish()
    }

    /// Removes a study that has no runs.
    ///
    /// # Errors
    /// It has runs or files of others, or cannot be removed.
    pub fn discard(self) -> Result<(), StoreError> {
        let directory = self.study.directory();
        let runs = directory.join(RUNS);
        fs::remove_dir(&runs).map_err(cannot("remove", &runs))?;
        let _ = fs::remove_dir_all(self.study.profiles());
        for file in [DEFINITION, LOCK] {
            let path = directory.join(file);
            fs::remove_file(&path).map_err(cannot("remove", &path))?;
        }
        fs::remove_dir(directory).map_err(cannot("remove", directory))
    }
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK);
    // What is written must not go to another file, to which whoever made the directory has led it.
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let opened = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(no_follow)
        .open(&path);
    let is_link = |error: &io::Error| {
        rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP)
    };
    let mut file = match opened {
        Err(error) if is_link(&error) => return Err(StoreError::Link(path)),
        opened => opened.map_err(cannot("write to", &path))?,
    };
    let metadata = file.metadata().map_err(cannot("look at", &path))?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(StoreError::Link(path));
    }
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
