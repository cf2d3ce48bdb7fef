//! Files that become visible only when all of them are on disk.
//!
//! They are written to a directory with a hidden name. [`StagedDir::publish`] renames the directory, which
//! is atomic: after a crash all files exist, or none. [`StagedDir::install`] moves the files into an
//! existing directory, which may be one that cannot be replaced (a mount point, a working directory). The
//! last file makes the record valid.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::SUMS;
use crate::error::{StoreError, cannot};
use crate::sums::Sums;

/// Suffix of a staged directory's name.
const SUFFIX: &str = ".tmp";

/// A hidden directory that receives files. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct StagedDir {
    path: PathBuf,
    /// Final directory of its files.
    to: PathBuf,
    files: Vec<OsString>,
    sums: Sums,
}

impl StagedDir {
    /// Creates the hidden directory for `name` in `parent`. The files' final directory is `to`.
    pub(crate) fn new(parent: &Path, name: &str, to: &Path) -> Result<Self, StoreError> {
        let path = parent.join(format!(".{name}.{}{SUFFIX}", std::process::id()));
        fs::create_dir(&path).map_err(cannot("write to", parent))?;
        Ok(Self { path, to: to.to_owned(), files: Vec::new(), sums: Sums::default() })
    }

    /// Hides a directory, which goes with the result.
    pub(crate) fn aside(directory: &Path) -> Result<Self, StoreError> {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let hidden = format!(".{name}.{}-old{SUFFIX}", std::process::id());
        let path = directory.with_file_name(hidden);
        fs::rename(directory, &path).map_err(cannot("replace", directory))?;
        Ok(Self { path, to: directory.to_owned(), files: Vec::new(), sums: Sums::default() })
    }

    /// Writes a file and syncs it to disk.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
        // The final name says more than the hidden one.
        written.map_err(cannot("write", &self.to.join(name)))?;
        self.files.push(name.into());
        self.sums.add(name, content);
        Ok(())
    }

    /// Writes the last file of a record, and before it the hashes of all.
    pub(crate) fn add_last(&mut self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        self.sums.add(name, content);
        let text = serde_json::to_vec_pretty(&self.sums).map_err(std::io::Error::from);
        let mut text = text.map_err(cannot("make", &self.to.join(SUMS)))?;
        text.push(b'\n');
        self.add(SUMS, &text)?;
        self.add(name, content)
    }

    /// Renames the directory to its final name, which must not exist or be an empty directory.
    pub(crate) fn publish(self) -> Result<(), StoreError> {
        sync(&self.path)?;
        fs::rename(&self.path, &self.to).map_err(cannot("write", &self.to))?;
        sync(self.to.parent().unwrap_or(&self.to))
    }

    /// Moves the files to their final directory, in the order in which they were added.
    pub(crate) fn install(self) -> Result<(), StoreError> {
        let Some((last, others)) = self.files.split_last() else { return Ok(()) };
        let rename = |name: &OsStr| {
            let to = self.to.join(name);
            fs::rename(self.path.join(name), &to).map_err(cannot("write", &to))
        };
        for name in others {
            rename(name)?;
        }
        sync(&self.to)?;
        rename(last)?;
        sync(&self.to)
    }
}

impl Drop for StagedDir {
    fn drop(&mut self) {
        // After the rename nothing is left to remove. Otherwise an earlier error was already reported.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Syncs the names of a directory to disk.
pub(crate) fn sync(directory: &Path) -> Result<(), StoreError> {
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(cannot("write to", directory))
}

/// Whether a name is that of a staged directory.
pub(crate) fn is_staged(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") && name.ends_with(SUFFIX.as_bytes())
}

/// Removes the staged directories of dead writers.
pub(crate) fn remove_abandoned(directory: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(directory).map_err(cannot("read", directory))? {
        let entry = entry.map_err(cannot("read", directory))?;
        if is_staged(&entry.file_name()) {
            fs::remove_dir_all(entry.path()).map_err(cannot("remove", &entry.path()))?;
        }
    }
    Ok(())
}
