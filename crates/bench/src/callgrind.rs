//! Instructions of the user, which are the same however busy the machine is.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many a program takes to its end, counted by callgrind (Debian's package `valgrind`).
///
/// # Errors
/// It is not installed, or the program failed.
pub(crate) fn instructions<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error} (apt-get install valgrind)"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let counted = text.lines().find_map(|line| line.split_once("Collected :"));
    counted
        .filter(|_| output.status.success())
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}
