//! The files that orders may name: none, those below some directories, or all. Which ones they may read is one such
//! set, and where they may make files to write is another.
//!
//! A path is resolved from the descriptor of its directory, which was opened once, and never leaves
//! it, by `..` or by a symbolic link (openat2(2), RESOLVE_BENEATH).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use wirecost_model::plan::limits::FILES;

/// Entries of directories that are looked at for one `sendfile`: some are empty files or links.
const ENTRIES: usize = 4 * FILES;

/// How often a path is resolved again where the kernel could not tell that `..` stays below, as
/// something was renamed meanwhile.
const ATTEMPTS: usize = 16;

const UNREADABLE: &str = "orders may not use it: it is not below a directory that the agent was started with \
                          (`wirecost agent --files DIR`)";
const UNWRITABLE: &str = "orders may not use it: it is not below a directory that the agent was started with \
                          (`wirecost agent --write-files DIR`)";

/// Which files may be used.
#[derive(Debug, Clone, Default)]
pub struct Files(Access);

#[derive(Debug, Clone, Default)]
enum Access {
    #[default]
    Nothing,
    /// Those that the user may use, whose orders these are.
    All,
    Below(Arc<[Directory]>),
}

#[derive(Debug)]
struct Directory {
    /// Without symbolic links.
    path: PathBuf,
    /// As it was named, made absolute.
    named: PathBuf,
    descriptor: OwnedFd,
}

impl Files {
    /// All files of the user whose process this is.
    #[must_use]
    pub fn all() -> Self {
        Self(Access::All)
    }

    /// Files below these directories, which are opened now; none where there are no directories.
    ///
    /// # Errors
    /// A directory that cannot be opened.
    pub fn below(directories: &[PathBuf]) -> io::Result<Self> {
        let open = |named: &PathBuf| -> io::Result<Directory> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(named, flags, Mode::empty())?;
            let path = named.canonicalize()?;
            Ok(Directory { path, named: std::path::absolute(named)?, descriptor })
        };
        let explain = |named: &PathBuf, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", named.display()))
        };
        let directories: Vec<Directory> = directories
            .iter()
            .map(|named| open(named).map_err(|error| explain(named, error)))
            .collect::<Result<_, _>>()?;
        Ok(match directories.is_empty() {
            true => Self(Access::Nothing),
            false => Self(Access::Below(directories.into())),
        })
    }

    /// Descriptors that a thread with a table of its own has to keep for [`Files::with`].
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.directories().iter().map(|directory| directory.descriptor.as_fd())
    }

    /// The same files by other descriptors, in the order of [`Files::descriptors`].
    #[must_use]
    pub(crate) fn with(&self, descriptors: impl IntoIterator<Item = OwnedFd>) -> Self {
        let Access::Below(directories) = &self.0 else { return self.clone() };
        let directories = directories.iter().zip(descriptors).map(|(directory, descriptor)| {
            let Directory { path, named, .. } = directory;
            Directory { path: path.clone(), named: named.clone(), descriptor }
        });
        Self(Access::Below(directories.collect()))
    }

    fn directories(&self) -> &[Directory] {
        match &self.0 {
            Access::Below(directories) => directories,
            Access::Nothing | Access::All => &[],
        }
    }

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        if matches!(self.0, Access::All) {
            return Ok(rustix::fs::open(path, flags, mode)?);
        }
        let whole = std::path::absolute(path)?;
        for directory in self.directories() {
            let below = whole.strip_prefix(&directory.path);
            let Ok(below) = below.or_else(|_| whole.strip_prefix(&directory.named)) else {
                continue;
            };
            let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            match open_beneath(&directory.descriptor, below, flags, mode) {
                Err(Errno::XDEV) => {}
                opened => return Ok(opened?),
            }
        }
        let writes = flags.intersects(OFlags::CREATE | OFlags::WRONLY | OFlags::RDWR);
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            if writes { UNWRITABLE } else { UNREADABLE },
        ))
    }

    /// Opens a regular file to read it; with `direct` past the page cache.
    ///
    /// # Errors
    /// Those of opening it, and what is no regular file.
    pub(crate) fn source(&self, path: &Path, direct: bool) -> io::Result<File> {
        let mut flags = OFlags::RDONLY;
        flags.set(OFlags::DIRECT, direct);
        self.regular(path, flags, Mode::empty()).map_err(|error| {
            let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL) if direct => {
                    ": this file system does not take O_DIRECT; leave out o_direct, or send a file \
                     of another one"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
        })
    }

    /// Makes an empty file in a directory, to be written and read. With a name it must be a new one; without, the
    /// file has none, and is gone when its last descriptor is closed, however the process ends.
    ///
    /// # Errors
    /// Those of open(2): `AlreadyExists` for a name that is taken.
    pub(crate) fn make(
        &self,
        directory: &Path,
        name: Option<&str>,
        direct: bool,
    ) -> io::Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        let mut flags = OFlags::RDWR;
        flags.set(OFlags::DIRECT, direct);
        let new = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let Some(name) = name else {
            let unnamed = self.regular(directory, flags | OFlags::TMPFILE, mode);
            return match unnamed
                .as_ref()
                .map_err(|e| e.raw_os_error().map(Errno::from_raw_os_error))
            {
                // The file system has only files with names.
                Err(Some(Errno::OPNOTSUPP)) => {
                    let directory = self.writable_directory(directory)?;
                    let name =
                        format!(".wirecost-{}-{:016x}", std::process::id(), random_number()?);
                    let file = rustix::fs::openat(&directory, &name, new | OFlags::CLOEXEC, mode)?;
                    rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
                    Ok(file.into())
                }
                _ => unnamed,
            };
        };
        let directory = self.writable_directory(directory)?;
        Ok(rustix::fs::openat(&directory, name, new | OFlags::CLOEXEC, mode)?.into())
    }

    /// A directory in which files may be made.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn writable_directory(&self, directory: &Path) -> io::Result<OwnedFd> {
        let opened = self.open(directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                io::Error::new(io::ErrorKind::PermissionDenied, UNWRITABLE)
            }
            _ => error,
        })
    }

    /// Opens a file without waiting for whoever is at the other end of it, should it be a pipe.
    fn regular(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
        let fd = self.open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, mode)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let set = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, set - OFlags::NONBLOCK)?;
        Ok(fd.into())
    }

    /// The first bytes of a payload file.
    ///
    /// # Errors
    /// Those of reading it, and one that is empty or no regular file.
    pub(crate) fn payload(&self, path: &str, most: u64) -> io::Result<Vec<u8>> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("payload file {path}: {error}"))
        };
        let file = self.regular(Path::new(path), OFlags::RDONLY, Mode::empty()).map_err(named)?;
        let mut content = Vec::new();
        file.take(most).read_to_end(&mut content).map_err(named)?;
        match content.is_empty() {
            true => Err(named(io::Error::new(io::ErrorKind::InvalidData, "it is empty"))),
            false => Ok(content),
        }
    }

    /// All files that are not empty below a directory, or the one file, with their sizes. Symbolic
    /// links below it are left out, as they may lead back up.
    ///
    /// # Errors
    /// Those of reading directories, and too many files.
    pub(crate) fn sources(&self, path: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
        let fd = self.open(path, OFlags::PATH, Mode::empty())?;
        let about = rustix::fs::fstat(&fd)?;
        let mut found = Vec::new();
        match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile if about.st_size > 0 => {
                found.push((path.to_owned(), about.st_size as u64));
            }
            FileType::Directory => self.walk(path, &mut found)?,
            _ => {}
        }
        Ok(found)
    }

    fn walk(&self, path: &Path, found: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
        let mut directories = vec![path.to_owned()];
        let mut entries = 0;
        while let Some(path) = directories.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = self.open(&path, flags, Mode::empty())?;
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                entries += 1;
                if entries > ENTRIES || found.len() >= FILES {
                    let message = format!(
                        "there are more than {FILES} files (or {ENTRIES} entries) below it: name a \
                         smaller directory"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
                let about = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(about) => about,
                    // It has been removed.
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                };
                let path = path.join(OsStr::from_bytes(name.to_bytes()));
                match FileType::from_raw_mode(about.st_mode) {
                    FileType::RegularFile if about.st_size > 0 => {
                        found.push((path, about.st_size as u64));
                    }
                    FileType::Directory => directories.push(path),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn open_beneath(
    directory: &OwnedFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // A mode is refused where nothing is made.
    let makes = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode = if makes { mode } else { Mode::empty() };
    for _ in 1..ATTEMPTS {
        match rustix::fs::openat2(directory, path, flags, mode, resolve) {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    rustix::fs::openat2(directory, path, flags, mode, resolve)
}

fn random_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory that may be used, beside a secret.
    fn tree() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let all = tempfile::tempdir().unwrap();
        let (open, secret) = (all.path().join("open"), all.path().join("secret"));
        fs::create_dir_all(open.join("inner")).unwrap();
        fs::write(&secret, "secret").unwrap();
        fs::write(open.join("a"), "open").unwrap();
        fs::write(open.join("inner/b"), "inner").unwrap();
        fs::write(open.join("empty"), "").unwrap();
        symlink(&secret, open.join("link")).unwrap();
        symlink("../secret", open.join("up")).unwrap();
        symlink("a", open.join("fine")).unwrap();
        symlink(all.path(), open.join("inner/all")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            open.join("fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        (all, open, secret)
    }

    #[test]
    fn nothing_outside_is_opened() {
        let (all, open, secret) = tree();
        let files = Files::below(std::slice::from_ref(&open)).unwrap();
        let read = |path: PathBuf| files.payload(path.to_str().unwrap(), 100);
        assert_eq!(read(open.join("a")).unwrap(), b"open");
        assert_eq!(read(open.join("inner/../a")).unwrap(), b"open");
        assert_eq!(read(open.join("fine")).unwrap(), b"open");
        for outside in [
            secret.clone(),
            open.join("link"),
            open.join("up"),
            open.join("../secret"),
            open.join("inner/all/secret"),
            open.join("inner/../../secret"),
            open.join("../open2"),
            PathBuf::from("/proc/self/root").join(secret.strip_prefix("/").unwrap()),
            PathBuf::from("/dev/zero"),
        ] {
            let error = read(outside.clone()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{outside:?}: {error}");
            assert!(files.source(&outside, false).is_err());
            assert!(files.sources(&outside).is_err());
            assert!(files.make(&outside, None, false).is_err());
            assert!(files.make(&outside, Some("new"), false).is_err());
        }
        for outside in [all.path().to_owned(), open.join(".."), open.join("inner/all")] {
            for name in [None, Some("new")] {
                let error = files.make(&outside, name, false).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{outside:?}: {error}");
                assert!(error.to_string().contains("--write-files"), "{error}");
            }
        }
        assert!(!all.path().join("new").exists());
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
        assert!(!all.path().join("open2").exists());
        // A directory whose name begins alike.
        fs::write(all.path().join("open-not"), "x").unwrap();
        assert!(read(all.path().join("open-not")).is_err());
        // Without a directory there is nothing, and a user's own run has it all.
        assert!(Files::default().payload(open.join("a").to_str().unwrap(), 9).is_err());
        assert!(Files::below(&[]).unwrap().source(&open.join("a"), false).is_err());
        assert_eq!(Files::all().payload(secret.to_str().unwrap(), 9).unwrap(), b"secret");
        assert!(Files::below(&[secret]).is_err());
    }

    #[test]
    fn only_regular_files_are_read_and_no_more_than_is_wanted() {
        let (_all, open, _) = tree();
        for files in [Files::all(), Files::below(&[open.clone(), "/dev".into()]).unwrap()] {
            for special in [open.join("fifo"), "/dev/zero".into(), open.join("inner")] {
                let error = files.payload(special.to_str().unwrap(), 100).unwrap_err();
                assert!(error.to_string().contains("not a regular file"), "{error}");
                assert!(files.source(&special, false).is_err());
            }
            let empty = files.payload(open.join("empty").to_str().unwrap(), 100).unwrap_err();
            assert!(empty.to_string().contains("it is empty"), "{empty}");
            assert_eq!(files.payload(open.join("a").to_str().unwrap(), 2).unwrap(), b"op");
        }
    }

    #[test]
    fn a_file_is_made_below_and_never_over_another() {
        let (_all, open, _) = tree();
        let files = Files::below(std::slice::from_ref(&open)).unwrap();
        files.make(&open.join("inner"), Some("new"), false).unwrap();
        assert_eq!(fs::read(open.join("inner/new")).unwrap(), b"");
        // Neither a file, nor a link, wherever that leads.
        for taken in ["a", "empty", "fine", "link", "up"] {
            let error = files.make(&open, Some(taken), false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{taken}: {error}");
        }
        assert_eq!(fs::read(open.join("a")).unwrap(), b"open");
        for files in [files, Files::all()] {
            let before = fs::read_dir(&open).unwrap().count();
            let unnamed = files.make(&open, None, false).unwrap();
            unnamed.set_len(10).unwrap();
            assert_eq!(fs::read_dir(&open).unwrap().count(), before);
        }
    }

    #[test]
    fn sources_are_found_without_following_links() {
        let (_all, open, secret) = tree();
        for files in [Files::all(), Files::below(std::slice::from_ref(&open)).unwrap()] {
            let mut found = files.sources(&open).unwrap();
            found.sort();
            assert_eq!(found, [(open.join("a"), 4), (open.join("inner/b"), 5)]);
            assert_eq!(files.sources(&open.join("a")).unwrap(), [(open.join("a"), 4)]);
            assert!(files.sources(&open.join("fifo")).unwrap().is_empty());
        }
        assert_eq!(Files::all().sources(&secret).unwrap().len(), 1);
    }

    /// A worker with a descriptor table of its own has other descriptors of the same directories.
    #[test]
    fn another_descriptor_does_as_well() {
        let (_all, open, secret) = tree();
        let files = Files::below(std::slice::from_ref(&open)).unwrap();
        let copies = files.directories().iter().map(|d| d.descriptor.try_clone().unwrap());
        let copy = files.with(copies.collect::<Vec<_>>());
        drop(files);
        assert_eq!(copy.payload(open.join("a").to_str().unwrap(), 9).unwrap(), b"open");
        assert!(copy.payload(secret.to_str().unwrap(), 9).is_err());
    }
}
