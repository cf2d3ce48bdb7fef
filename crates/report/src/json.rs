//! A document as JSON, to a file or a stream. A file is either as it was before or whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::atomic_file;

#[derive(Debug, thiserror::Error)]
#[error("cannot write JSON to {target}: {source}")]
pub struct JsonError {
    target: String,
    source: io::Error,
}

/// Where the document goes: `--json FILE` or `--json -`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The stream that the caller hands in.
    Stream,
    File(PathBuf),
}

impl From<&str> for Target {
    fn from(text: &str) -> Self {
        match text {
            "-" => Target::Stream,
            file => Target::File(file.into()),
        }
    }
}

/// Writes the document; `stream` is used only for [`Target::Stream`].
pub fn write(
    document: &impl Serialize,
    target: &Target,
    stream: &mut dyn Write,
) -> Result<(), JsonError> {
    let (name, result) = match target {
        Target::Stream => ("the standard output".to_owned(), to_stream(document, stream)),
        Target::File(path) => (path.display().to_string(), to_file(document, path)),
    };
    result.map_err(|source| JsonError { target: name, source })
}

/// Finds out beforehand whether the document can be written.
///
/// # Errors
/// Why a file cannot be made there.
pub fn check(target: &Target) -> Result<(), JsonError> {
    let Target::File(path) = target else { return Ok(()) };
    atomic_file::check(path)
        .map_err(|source| JsonError { target: path.display().to_string(), source })
}

fn to_stream(document: &impl Serialize, stream: &mut dyn Write) -> io::Result<()> {
    stream.write_all(&text(document)?)?;
    stream.flush()
}

fn text(document: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    Ok(text)
}

fn to_file(document: &impl Serialize, path: &Path) -> io::Result<()> {
    let text = text(document)?;
    atomic_file::write(path, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use wirecost_model::run::Run;

    use super::*;

    fn run() -> Run {
        Run::empty("@stream", "epoll", "0.1.0", 1)
    }

    fn back(text: &[u8]) -> Run {
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn a_dash_is_the_stream() {
        let mut stream = Vec::new();
        write(&run(), &Target::from("-"), &mut stream).unwrap();
        assert_eq!(back(&stream), run());
        assert!(stream.ends_with(b"}\n"));
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run.json");
        let link = directory.path().join("link");
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let target = Target::File(link.clone());
        write(&run(), &target, &mut io::sink()).unwrap();
        assert_eq!(back(&fs::read(&file).unwrap()), run());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_device_is_written_to() {
        let target = Target::from("/dev/null");
        write(&run(), &target, &mut io::sink()).unwrap();
        let metadata = fs::metadata("/dev/null").unwrap();
        assert!(!metadata.is_file());
    }

    #[test]
    fn an_error_names_the_file_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none/run.json");
        let error = write(&run(), &Target::File(missing.clone()), &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains(missing.to_str().unwrap()));
        let taken = Target::File(directory.path().to_owned());
        assert!(write(&run(), &taken, &mut io::sink()).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
