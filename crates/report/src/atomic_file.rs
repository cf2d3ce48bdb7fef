//! Files that are either as they were before or whole.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Finds out beforehand whether a file can be written.
///
/// # Errors
/// Why it cannot be made there.
pub fn check(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => probe(path),
        // A pipe may have no reader yet.
        Ok(metadata) if !metadata.is_dir() => Ok(()),
        Ok(_) => Err(io::ErrorKind::IsADirectory.into()),
        Err(_) => probe(path),
    }
}

fn probe(path: &Path) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let hidden = hidden(&path)?;
    fs::write(&hidden, b"").and_then(|()| fs::remove_file(&hidden))
}

/// Name of the file that becomes the document when it is whole.
fn hidden(path: &Path) -> io::Result<PathBuf> {
    let mut hidden = OsString::from(".");
    hidden.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// Puts a file in the place of what was there, if anything.
///
/// # Errors
/// It cannot be written; what was there still is.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    // A link stays a link, and a pipe or /dev/null is written to, not replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return fs::OpenOptions::new().write(true).open(&path)?.write_all(text);
    }
    let hidden = hidden(&path)?;
    fs::write(&hidden, text).and_then(|()| fs::rename(&hidden, &path)).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&hidden);
    })
}
