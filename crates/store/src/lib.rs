//! Records of runs on disk. A record is a directory with `run.json`, the document of the run (or
//! `observe.json`, of a host that was only observed), and `hosts.json`, the environment of each host
//! by its name.
//!
//! A [`Record`] is made before the run, so that a directory that cannot take it is refused before
//! anything moves, and saved after it. A file is either not there or whole, also after a crash.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use wirecost_model::observe::Watched;
use wirecost_model::run::Run;

pub const RUN: &str = "run.json";
pub const OBSERVATION: &str = "observe.json";
pub const HOSTS: &str = "hosts.json";

/// Why a record cannot be made or saved.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} already holds a record: name another directory or remove it", .0.display())]
    AlreadyRecorded(PathBuf),
    #[error("{} is not empty: a record needs a directory of its own", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} is not a directory: name one that is empty or does not exist", .0.display())]
    NotADirectory(PathBuf),
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
}

/// A directory that is to hold a run.
#[derive(Debug)]
pub struct Record {
    directory: PathBuf,
}

impl Record {
    /// Makes the directory, or takes an empty one. Tries whether a file can be made in it.
    pub fn create(directory: &Path) -> Result<Self, StoreError> {
        let failed = |act| move |source| StoreError::Io { act, path: directory.to_owned(), source };
        match fs::metadata(directory) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(StoreError::NotADirectory(directory.to_owned()));
            }
            Ok(_) => refuse_used(directory)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(directory).map_err(failed("create"))?;
            }
            Err(error) => return Err(failed("look at")(error)),
        }
        let probe = temporary(directory, OsStr::new(RUN));
        File::create(&probe).and_then(|_| fs::remove_file(&probe)).map_err(failed("write to"))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Writes the environment of each host, then the document: where there is a document, there is
    /// all of the record.
    pub fn save(
        &self,
        run: &Run,
        hosts: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), StoreError> {
        write(&self.directory, HOSTS, hosts)?;
        write(&self.directory, RUN, run)
    }

    /// The same of a host that was only observed.
    pub fn save_observation(
        &self,
        watched: &Watched,
        hosts: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), StoreError> {
        write(&self.directory, HOSTS, hosts)?;
        write(&self.directory, OBSERVATION, watched)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

fn refuse_used(directory: &Path) -> Result<(), StoreError> {
    if [RUN, OBSERVATION].iter().any(|name| directory.join(name).exists()) {
        return Err(StoreError::AlreadyRecorded(directory.to_owned()));
    }
    let mut entries = fs::read_dir(directory).map_err(|source| StoreError::Io {
        act: "read",
        path: directory.to_owned(),
        source,
    })?;
    match entries.next() {
        Some(_) => Err(StoreError::NotEmpty(directory.to_owned())),
        None => Ok(()),
    }
}

fn temporary(directory: &Path, name: &OsStr) -> PathBuf {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    directory.join(hidden)
}

/// Under another name first, and onto the disk before it gets its own.
fn write(directory: &Path, name: &str, document: &impl serde::Serialize) -> Result<(), StoreError> {
    let path = directory.join(name);
    let hidden = temporary(directory, OsStr::new(name));
    let result = write_synced(&hidden, document)
        .and_then(|()| fs::rename(&hidden, &path))
        .and_then(|()| File::open(directory)?.sync_all());
    result.map_err(|source| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&hidden);
        StoreError::Io { act: "write", path, source }
    })
}

fn write_synced(path: &Path, document: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    let mut file = File::create(path)?;
    file.write_all(&text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn run() -> Run {
        Run::empty("@stream", "epoll", "0.1.0", 1_700_000_000_000)
    }

    fn hosts() -> Map<String, Value> {
        Map::from_iter([("client".to_owned(), json!({"kernel": "6.12"}))])
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_saved_is_what_was_measured_and_nothing_else_stays() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("runs/one");
        let record = Record::create(&directory).unwrap();
        assert!(names(&directory).is_empty());
        record.save(&run(), &hosts()).unwrap();
        assert_eq!(names(&directory), [HOSTS, RUN]);
        let text = fs::read_to_string(directory.join(RUN)).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run());
        let text = fs::read_to_string(directory.join(HOSTS)).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({"client": {"kernel": "6.12"}})
        );
    }

    #[test]
    fn a_second_record_is_refused_and_the_first_stays() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record::create(directory.path()).unwrap();
        record.save(&run(), &hosts()).unwrap();
        let error = Record::create(directory.path()).unwrap_err();
        assert!(matches!(error, StoreError::AlreadyRecorded(_)));
        assert!(error.to_string().contains("name another directory"));
        assert_eq!(names(directory.path()), [HOSTS, RUN]);
    }

    #[test]
    fn other_peoples_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("notes");
        fs::write(&file, "mine").unwrap();
        let error = Record::create(directory.path()).unwrap_err();
        assert!(matches!(error, StoreError::NotEmpty(_)));
        let error = Record::create(&file).unwrap_err();
        assert!(matches!(error, StoreError::NotADirectory(_)));
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }

    #[test]
    fn a_directory_that_is_gone_is_an_error_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record::create(directory.path()).unwrap();
        fs::remove_dir(directory.path()).unwrap();
        let error = record.save(&run(), &hosts()).unwrap_err().to_string();
        assert!(error.starts_with("cannot write ") && error.contains(HOSTS), "{error}");
    }
}
