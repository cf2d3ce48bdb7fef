//! Errors of records and studies.

use std::io;
use std::path::{Path, PathBuf};

/// Why a record or a study cannot be created, saved or read. Messages name the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} already contains a record: choose another directory or remove it", .0.display())]
    AlreadyRecorded(PathBuf),
    #[error(
        "{} already contains a study: continue it with `wirecost study resume {}`, or choose \
         another directory",
        .0.display(),
        .0.display()
    )]
    AlreadyStudied(PathBuf),
    #[error("{} is not empty: choose an empty directory or a new one", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} is not a directory: choose an empty directory or a new one", .0.display())]
    NotADirectory(PathBuf),
    #[error(
        "{} is a link, or not what wirecost made there, and is not written through: remove it",
        .0.display()
    )]
    Link(PathBuf),
    #[error("{} does not exist: check the path", .0.display())]
    DoesNotExist(PathBuf),
    #[error(
        "{} is not a record: it lacks run.json and observe.json. Choose a directory that `--out` of \
         `wirecost run` or `wirecost observe` created",
        .0.display()
    )]
    NotARecord(PathBuf),
    #[error(
        "{} is not a study: it lacks study.toml. Choose a directory that `wirecost study run --out` \
         created",
        .0.display()
    )]
    NotAStudy(PathBuf),
    #[error(
        "{} is neither a study nor a record: it lacks study.toml and run.json. Choose a directory \
         that `--out` of `wirecost study run` or `wirecost run` created",
        .0.display()
    )]
    NeitherStudyNorRecord(PathBuf),
    #[error(
        "{} is in use by another wirecost{}: wait until it ends, or stop it",
        path.display(),
        process.map(|pid| format!(", process {pid}")).unwrap_or_default()
    )]
    Busy { path: PathBuf, process: Option<u32> },
    /// The file was damaged after it was saved: saving leaves only complete files.
    #[error(
        "{} is damaged ({why}): copy it again from its source, or remove its directory and repeat \
         the run",
        path.display()
    )]
    Damaged { path: PathBuf, why: String },
    #[error("{} is not a file of wirecost ({why}): restore the original, or remove it", path.display())]
    Foreign { path: PathBuf, why: String },
    #[error(
        "{} is a document {found}, and {expected} is needed here: give the path of a document of \
         that kind",
        path.display()
    )]
    OtherDocument { path: PathBuf, found: String, expected: &'static str },
    #[error(
        "{} was written by a newer wirecost ({found}; this version reads up to {known}): upgrade \
         wirecost to read it",
        path.display()
    )]
    Newer { path: PathBuf, found: String, known: &'static str },
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
}

/// Adds the action and the path to an I/O error.
pub(crate) fn cannot(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { act, path, source }
}
