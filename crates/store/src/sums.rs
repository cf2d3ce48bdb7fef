//! Hashes of a record's files, kept beside them: what was changed after it was saved, or copied over
//! another record, is told when it is read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::error::{StoreError, cannot};
use crate::{HOSTS, OBSERVATION, RUN, SAMPLES, STACKS, SUMS, input};

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

/// Checks what was read of a file of a record. Earlier versions kept no hashes.
///
/// # Errors
/// It is not what was saved.
pub(crate) fn check(file: &Path, content: &[u8]) -> Result<(), StoreError> {
    let (Some(record), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
    if ![RUN, OBSERVATION, HOSTS, SAMPLES, STACKS].iter().any(|own| name == *own) {
        return Ok(());
    }
    let path = record.join(SUMS);
    let text = match input::read(&path, input::RECORD) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("read", &path)(error)),
    };
    let damaged = |path: &Path, why: String| StoreError::Damaged { path: path.to_owned(), why };
    let sums: Sums =
        serde_json::from_slice(&text).map_err(|error| damaged(&path, error.to_string()))?;
    let kept = sums.sha256.get(&*name.to_string_lossy());
    if kept.is_some_and(|kept| *kept == sha256(content)) {
        return Ok(());
    }
    let why = "it is not what was saved: it was changed, or copied from another record";
    Err(damaged(file, why.to_owned()))
}
