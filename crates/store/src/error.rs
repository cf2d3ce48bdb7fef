//! Why a record or a study cannot be made, saved or read.

use std::io;
use std::path::{Path, PathBuf};

/// One message each, which names the file or directory and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} already holds a record: name another directory or remove it", .0.display())]
    AlreadyRecorded(PathBuf),
    #[error(
        "{} already holds a study: go on with it by `wirecost study resume {}`, or name another \
         directory",
        .0.display(),
        .0.display()
    )]
    AlreadyStudied(PathBuf),
    #[error("{} is not empty: what is to be kept needs a directory of its own", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} is not a directory: name one that is empty or does not exist", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} does not exist: see that the name is right", .0.display())]
    NotThere(PathBuf),
    #[error(
        "{} is no record, as it has neither run.json nor observe.json: name a directory that \
         `--out` of `wirecost run` or `wirecost observe` has made",
        .0.display()
    )]
    NoRecord(PathBuf),
    #[error(
        "{} is no study, as it has no study.toml: name a directory that `wirecost study run --out` \
         has made",
        .0.display()
    )]
    NoStudy(PathBuf),
    #[error(
        "{} is neither a study nor a record, as it has neither study.toml nor run.json: name a \
         directory that `--out` of `wirecost study run` or `wirecost run` has made",
        .0.display()
    )]
    NoResult(PathBuf),
    #[error(
        "{} is written to by another wirecost{}: wait until it has ended, or end it",
        path.display(),
        process.map(|pid| format!(", process {pid}")).unwrap_or_default()
    )]
    Busy { path: PathBuf, process: Option<u32> },
    /// Of a file that was whole once: saving leaves none behind that is not.
    #[error(
        "{} is damaged ({why}): copy it again from where it came from, or remove its directory and \
         make the run again",
        path.display()
    )]
    Damaged { path: PathBuf, why: String },
    #[error("{} is not what its name says ({why}): put back wirecost's own, or remove it", path.display())]
    Foreign { path: PathBuf, why: String },
    #[error(
        "{} was written by a newer wirecost ({found}, and this one reads up to {known}): read it \
         with that one, or a later one",
        path.display()
    )]
    Newer { path: PathBuf, found: String, known: &'static str },
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
}

/// Says of an error of the kernel what was tried, and with which file.
pub(crate) fn cannot(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { act, path, source }
}
