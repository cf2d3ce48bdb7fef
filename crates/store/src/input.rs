//! Files that a user names, read within limits of memory and time: regular files only, and none larger
//! than its kind can be.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// The largest input of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    what: &'static str,
    bytes: u64,
}

/// A profile. 16,384 flowops, more than an agent accepts, fit in this.
pub const PROFILE: Limit = Limit { what: "a profile", bytes: 1 << 20 };
/// The definition of a study.
pub const STUDY: Limit = Limit { what: "a study", bytes: 1 << 20 };
/// All traces of a profile together. A trace has at most 1,000,000 starts.
pub const TRACES: Limit = Limit { what: "all traces of a profile together", bytes: 64 << 20 };
/// A page of HTML.
pub const PAGE: Limit = Limit { what: "a page", bytes: 64 << 20 };
/// Each file of a record. The series of the largest runs have some 100 MiB.
pub const RECORD: Limit = Limit { what: "a file of a record", bytes: 256 << 20 };

impl Limit {
    /// What is left of the limit after so many bytes.
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        Self { bytes: self.bytes.saturating_sub(bytes), ..self }
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// There is more than the limit, or it cannot be read.
    pub fn read(self, from: impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        from.take(self.bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > self.bytes {
            true => Err(self.exceeded()),
            false => Ok(bytes),
        }
    }

    fn exceeded(self) -> io::Error {
        let Self { what, bytes } = self;
        let limit = match bytes {
            0..1024 => format!("{bytes} bytes"),
            1024..0x10_0000 => format!("{} KiB", bytes >> 10),
            _ => format!("{} MiB", bytes >> 20),
        };
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the file is too large: the limit for {what} is {limit}"),
        )
    }
}

/// Opens a regular file within a limit.
///
/// # Errors
/// It is something else, too large, or cannot be opened.
pub fn open(path: &Path, limit: Limit) -> io::Result<File> {
    // Opening a FIFO for reading would wait for a writer.
    let without_waiting = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    let other = match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a FIFO"),
        () if kind.is_char_device() || kind.is_block_device() => Some("a device"),
        () => Some("a special file"),
    };
    match other {
        Some(other) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {other}, and only regular files are read"),
        )),
        None if metadata.len() > limit.bytes => Err(limit.exceeded()),
        None => Ok(file),
    }
}

/// Reads a regular file within a limit.
///
/// # Errors
/// As [`open`] and [`Limit::read`].
pub fn read(path: &Path, limit: Limit) -> io::Result<Vec<u8>> {
    limit.read(open(path, limit)?)
}

/// The same of a text.
///
/// # Errors
/// As [`read`]; or it is not UTF-8.
pub fn read_text(path: &Path, limit: Limit) -> io::Result<String> {
    String::from_utf8(read(path, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SMALL: Limit = Limit { what: "a test", bytes: 2048 };

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [b'x'; 2048]).unwrap();
        assert_eq!(read(&path, SMALL).unwrap().len(), 2048);
        fs::write(&path, [b'x'; 2049]).unwrap();
        let error = read(&path, SMALL).unwrap_err().to_string();
        assert_eq!(error, "the file is too large: the limit for a test is 2 KiB");
        // A gigabyte is refused by its size, and nothing of it is read.
        File::create(&path).unwrap().set_len(1 << 30).unwrap();
        assert!(open(&path, RECORD).unwrap_err().to_string().ends_with("256 MiB"));
    }

    #[test]
    fn an_endless_stream_is_read_up_to_its_limit() {
        let mut stream = io::repeat(0).take(1 << 30);
        assert!(SMALL.read(&mut stream).unwrap_err().to_string().contains("2 KiB"));
        assert_eq!((1 << 30) - stream.limit(), 2049);
        assert_eq!(SMALL.after(2000).read(&[0u8; 48][..]).unwrap().len(), 48);
        assert!(SMALL.after(2000).read(&[0u8; 49][..]).is_err());
    }

    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let cases = [
            (fifo.as_path(), "it is a FIFO"),
            (directory.path(), "it is a directory"),
            (Path::new("/dev/zero"), "it is a device"),
        ];
        for (path, words) in cases {
            let error = read(path, SMALL).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("regular files"), "{error}");
        }
        assert_eq!(
            read(&directory.path().join("none"), SMALL).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
