//! Documents on disk, of this and all earlier versions.
//!
//! Versions only added keys to `wirecost.run/1` and `wirecost.observe/1`. A key that an older document
//! lacks is read as null. tests/fixtures contains records of older versions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use wirecost_model::observe::{self, HostObservation, ObserveDocument};
use wirecost_model::run::{self, Run};

use crate::error::{StoreError, cannot};
use crate::input;
use crate::parquet_file::{self, Unreadable};
use crate::schema::FORMAT;
use crate::version::is_newer;
use crate::{CPU_PARTS, OBSERVATION, RUN, SAMPLES, STACKS, cpu_parts, stacks, sums};

/// The result of a run or an observation.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Document {
    Run(Run),
    Observe(ObserveDocument),
}

/// Reads the document of a record, or a JSON file, with its stacks.
///
/// # Errors
/// It does not exist, or cannot be read.
pub fn document(path: &Path) -> Result<Document, StoreError> {
    let file = file_of(path)?;
    let text = text(&file)?;
    let mut document = match serde_json::from_slice(&text) {
        Ok(Head { schema: Some(schema) }) if schema == observe::SCHEMA => {
            Document::Observe(parse(&file, &text, observe::SCHEMA, |w: &ObserveDocument| {
                &w.schema
            })?)
        }
        _ => {
            let run = parse(&file, &text, run::SCHEMA, |run: &Run| &run.schema)?;
            Document::Run(possible(&file, run)?)
        }
    };
    sums::check(&file, &text)?;
    let name = file.file_name();
    if let Some(record) = file.parent()
        && name.is_some_and(|name| name == RUN || name == OBSERVATION)
    {
        restore(hosts_of(&mut document), record)?;
    }
    Ok(document)
}

/// Reads the document of a run from a record or a JSON file, without its stacks.
///
/// # Errors
/// It does not exist, or cannot be read.
pub fn run(path: &Path) -> Result<Run, StoreError> {
    let file = file_of(path)?;
    if path != file {
        check_samples(path)?;
    }
    let text = text(&file)?;
    let run = parse(&file, &text, run::SCHEMA, |run: &Run| &run.schema)?;
    sums::check(&file, &text)?;
    possible(&file, run)
}

fn possible(file: &Path, run: Run) -> Result<Run, StoreError> {
    match run.impossible() {
        Some(why) => Err(StoreError::Damaged { path: file.to_owned(), why }),
        None => Ok(run),
    }
}

/// Checks the samples of a record. Early versions wrote none.
fn check_samples(record: &Path) -> Result<(), StoreError> {
    let path = record.join(SAMPLES);
    let mut file = match input::open(&path, input::RECORD) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("read", &path)(error)),
    };
    parquet_file::check(&mut file).map_err(|unreadable| match unreadable {
        Unreadable::Damaged(why) => StoreError::Damaged { path, why },
        Unreadable::Foreign(why) => StoreError::Foreign { path, why },
        Unreadable::Newer(found) => StoreError::Newer { path, found, known: FORMAT },
    })
}

/// The file that holds the document.
pub(crate) fn file_of(path: &Path) -> Result<PathBuf, StoreError> {
    let is_directory = match fs::metadata(path) {
        Ok(metadata) => metadata.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(StoreError::DoesNotExist(path.to_owned()));
        }
        Err(error) => return Err(cannot("read", path)(error)),
    };
    if !is_directory {
        return Ok(path.to_owned());
    }
    let files = [RUN, OBSERVATION].map(|name| path.join(name));
    let found = files.into_iter().find(|file| file.exists());
    found.ok_or_else(|| StoreError::NotARecord(path.to_owned()))
}

fn text(path: &Path) -> Result<Vec<u8>, StoreError> {
    input::read(path, input::RECORD).map_err(cannot("read", path))
}

fn hosts_of(document: &mut Document) -> &mut [HostObservation] {
    match document {
        Document::Run(run) => match &mut run.observe {
            Some(observe) => &mut observe.hosts,
            None => &mut [],
        },
        Document::Observe(watched) => &mut watched.hosts,
    }
}

/// Restores into the document of a record what is in files of its own.
pub(crate) fn restore(hosts: &mut [HostObservation], record: &Path) -> Result<(), StoreError> {
    restore_stacks(hosts, record)?;
    let path = record.join(CPU_PARTS);
    let text = match input::read(&path, input::RECORD) {
        Ok(text) => text,
        // Nothing was traced, or an earlier version wrote the record.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return sums::check_absent(&path),
        Err(error) => return Err(cannot("read", &path)(error)),
    };
    let restored = cpu_parts::put_back(hosts, &text);
    restored.map_err(|why| StoreError::Damaged { path: path.clone(), why })?;
    sums::check(&path, &text)
}

fn restore_stacks(hosts: &mut [HostObservation], record: &Path) -> Result<(), StoreError> {
    let path = record.join(STACKS);
    let text = match input::read_text(&path, input::RECORD) {
        Ok(text) => text,
        // Nothing was sampled, or the stacks are in the document, as in early versions.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return sums::check_absent(&path),
        Err(error) => return Err(cannot("read", &path)(error)),
    };
    let restored = stacks::put_back(hosts, &text);
    restored.map_err(|why| StoreError::Damaged { path: path.clone(), why })?;
    sums::check(&path, text.as_bytes())
}

/// The key that every document has.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
}

/// Parses a document. Only after a failure it is parsed again, to find the reason.
fn parse<T: DeserializeOwned>(
    path: &Path,
    text: &[u8],
    known: &'static str,
    schema: fn(&T) -> &str,
) -> Result<T, StoreError> {
    let error = match serde_json::from_slice(text) {
        Ok(document) if schema(&document) == known => return Ok(document),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let path = path.to_owned();
    Err(match serde_json::from_slice(text) {
        Ok(Head { schema: Some(found) }) if is_newer(&found, known) => {
            StoreError::Newer { path, found, known }
        }
        Ok(Head { schema: Some(found) }) if found == known => {
            let why = error.map(|error| error.to_string()).unwrap_or_default();
            StoreError::Damaged { path, why }
        }
        Ok(Head { schema: Some(found) }) => {
            StoreError::OtherDocument { path, found, expected: known }
        }
        Ok(Head { schema: None }) => {
            StoreError::Foreign { path, why: "it is not a document of wirecost".to_owned() }
        }
        Err(error) if error.is_eof() || is_cut(text) => {
            StoreError::Damaged { path, why: format!("it is truncated at line {}", error.line()) }
        }
        Err(error) if error.is_data() => {
            StoreError::Foreign { path, why: "it is not a document of wirecost".to_owned() }
        }
        Err(error) => StoreError::Damaged { path, why: format!("it is not JSON: {error}") },
    })
}

/// Whether a document has no end. To the parser, a number that ends with its point is malformed, even
/// where the whole text ends there.
fn is_cut(text: &[u8]) -> bool {
    text.starts_with(b"{") && !text.trim_ascii_end().ends_with(b"}")
}

/// Reads a JSON file without a version.
pub(crate) fn json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let text = text(path)?;
    let document = serde_json::from_slice(&text)
        .map_err(|error| StoreError::Damaged { path: path.to_owned(), why: error.to_string() })?;
    sums::check(path, &text)?;
    Ok(document)
}
