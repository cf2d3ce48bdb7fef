//! Files that nobody sees until all of them are on the disk.
//!
//! They are written into a directory with a hidden name. [`Draft::publish`] then gives the directory
//! its own name, which is one step: after a crash at any instant there is all of it, or none.
//! [`Draft::pour`] moves the files into a directory that is there already, which may be one that
//! cannot be renamed (a mount point, somebody's working directory); the last file is the one
//! that makes the others count.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::{StoreError, cannot};

/// How the name of a draft ends.
const SUFFIX: &str = ".tmp";

/// A directory that is being filled. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    /// Where its files are to be.
    to: PathBuf,
    files: Vec<OsString>,
}

impl Draft {
    /// Begins one in `parent`, of what is to be called `name`, and whose files are to be in `to`.
    pub(crate) fn new(parent: &Path, name: &str, to: &Path) -> Result<Self, StoreError> {
        let path = parent.join(format!(".{name}.{}{SUFFIX}", std::process::id()));
        fs::create_dir(&path).map_err(cannot("write to", parent))?;
        Ok(Self { path, to: to.to_owned(), files: Vec::new() })
    }

    /// Writes a file, and sees it onto the disk.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
        // The name that it was to have says more than the hidden one.
        written.map_err(cannot("write", &self.to.join(name)))?;
        self.files.push(name.into());
        Ok(())
    }

    /// Gives the directory its name, under which nothing may be but an empty directory.
    pub(crate) fn publish(self) -> Result<(), StoreError> {
        sync(&self.path)?;
        fs::rename(&self.path, &self.to).map_err(cannot("write", &self.to))?;
        sync(self.to.parent().unwrap_or(&self.to))
    }

    /// Moves the files to where they are to be, in the order in which they were added.
    pub(crate) fn pour(self) -> Result<(), StoreError> {
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

impl Drop for Draft {
    fn drop(&mut self) {
        // Where it has got its name, there is nothing left; where not, an error came before this one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Sees the names in a directory onto the disk.
pub(crate) fn sync(directory: &Path) -> Result<(), StoreError> {
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(cannot("write to", directory))
}

/// Whether a name is that of a draft.
pub(crate) fn is_draft(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") && name.ends_with(SUFFIX.as_bytes())
}

/// Removes the drafts in a directory, of which the writers are dead.
pub(crate) fn remove_drafts(directory: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(directory).map_err(cannot("read", directory))? {
        let entry = entry.map_err(cannot("read", directory))?;
        if is_draft(&entry.file_name()) {
            fs::remove_dir_all(entry.path()).map_err(cannot("remove", &entry.path()))?;
        }
    }
    Ok(())
}
