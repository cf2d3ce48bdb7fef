//! Hashes of a record's files, kept beside them: what was changed after it was saved, or copied over
//! another record, is told when it is read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::error::{StoreError, cannot};
use crate::{CPU_PARTS, HOSTS, OBSERVATION, RUN, SAMPLES, STACKS, SUMS, input};

const SCHEMA: &str = "wirecost.files/1";

/// The contents of [`SUMS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    schema: String,
    /// SHA-256 of each other file of the record, in hexadecimal digits, by name.
    sha256: BTreeMap<String, String>,
}

impl Default for Sums {
    fn default() -> Self {
        Self { schema: SCHEMA.to_owned(), sha256: BTreeMap::new() }
    }
}

impl Sums {
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) {
        self.sha256.insert(name.to_owned(), sha256(content));
    }
}

fn sha256(content: &[u8]) -> String {
    let mut digits = String::new();
    for byte in digest(&SHA256, content).as_ref() {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// A document in a record: `files` in it says that the hashes were saved with it.
#[derive(Serialize)]
pub(crate) struct Recorded<'a, T> {
    #[serde(flatten)]
    document: &'a T,
    files: &'static str,
}

impl<'a, T> Recorded<'a, T> {
    pub(crate) fn new(document: &'a T) -> Self {
        Self { document, files: SCHEMA }
    }
}

/// Checks what was read of a file of a record. Earlier versions kept no hashes, which their documents
/// tell.
///
/// # Errors
/// It is not what was saved.
pub(crate) fn check(file: &Path, content: &[u8]) -> Result<(), StoreError> {
    let (Some(record), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
    if ![RUN, OBSERVATION, HOSTS, SAMPLES, STACKS, CPU_PARTS].iter().any(|own| name == *own) {
        return Ok(());
    }
    let is_document = name == RUN || name == OBSERVATION;
    let Some(sums) = read(record)? else {
        return match is_document && has_sums(content) {
            true => {
                let why = format!("it lacks {SUMS}, which was saved with it");
                Err(StoreError::Damaged { path: record.to_owned(), why })
            }
            false => Ok(()),
        };
    };
    let kept = sums.sha256.get(&*name.to_string_lossy());
    if kept.is_some_and(|kept| *kept == sha256(content)) {
        return Ok(());
    }
    let why = "it is not what was saved: it was changed, or copied from another record";
    Err(StoreError::Damaged { path: file.to_owned(), why: why.to_owned() })
}

/// Checks that a file that a record lacks was never part of it.
///
/// # Errors
/// It was saved.
pub(crate) fn check_absent(file: &Path) -> Result<(), StoreError> {
    let (Some(record), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
    let sums = read(record)?;
    match sums.is_some_and(|sums| sums.sha256.contains_key(&*name.to_string_lossy())) {
        true => {
            let why = "it was saved, and is missing".to_owned();
            Err(StoreError::Damaged { path: file.to_owned(), why })
        }
        false => Ok(()),
    }
}

fn read(record: &Path) -> Result<Option<Sums>, StoreError> {
    let path = record.join(SUMS);
    let text = match input::read(&path, input::RECORD) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot("read", &path)(error)),
    };
    let sums = serde_json::from_slice(&text);
    sums.map(Some).map_err(|error| StoreError::Damaged { path, why: error.to_string() })
}

fn has_sums(document: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Marked {
        files: Option<String>,
    }
    serde_json::from_slice(document).is_ok_and(|Marked { files }| files.is_some())
}
