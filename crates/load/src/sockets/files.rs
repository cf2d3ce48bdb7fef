//! The files that a worker sends by `sendfile`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use wirecost_program::files::FileSource;

/// A source of files, with the files that were found there when the run began.
#[derive(Debug)]
pub(crate) struct SourceFiles {
    pub(crate) source: FileSource,
    pub(crate) paths: Vec<PathBuf>,
}

/// Files that a worker has opened, by source and place. They stay open until the run ends.
#[derive(Debug)]
pub(super) struct OpenFiles {
    sources: Arc<[SourceFiles]>,
    opened: Box<[Vec<Option<OwnedFd>>]>,
}

impl OpenFiles {
    pub(super) fn new(sources: Arc<[SourceFiles]>) -> Self {
        let opened = sources.iter().map(|_| Vec::new()).collect();
        Self { sources, opened }
    }

    /// Whether the files of a source are read with O_DIRECT, and whether they go through a pipe.
    pub(super) fn calls(&self, source: u32) -> (bool, bool) {
        let source = self.sources.get(source as usize).map(|files| &files.source);
        source.map_or((false, false), |source| (source.direct, source.splice))
    }

    /// Takes an open file out of its place.
    pub(super) fn take(&mut self, source: u32, file: usize) -> Option<OwnedFd> {
        self.opened.get_mut(source as usize)?.get_mut(file)?.take()
    }

    pub(super) fn put(&mut self, source: u32, file: usize, opened: OwnedFd) {
        if let Some(place) =
            self.opened.get_mut(source as usize).and_then(|files| files.get_mut(file))
        {
            *place = Some(opened);
        }
    }

    /// # Errors
    /// Those of open(2), and a file that is not known.
    pub(super) fn open(&mut self, source: u32, file: usize) -> io::Result<OwnedFd> {
        let files = self.sources.get(source as usize);
        let (Some(files), Some(opened)) = (files, self.opened.get_mut(source as usize)) else {
            let message = format!("no source of files {source}");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        };
        let FileSource { directory, direct, .. } = &files.source;
        let path = files.paths.get(file).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no file {file} in {directory}"))
        })?;
        if opened.is_empty() {
            opened.resize_with(files.paths.len(), || None);
        }
        Ok(open_source(path, *direct)?.into())
    }
}

/// Opens a file of `sendfile`.
///
/// # Errors
/// Those of open(2), with what to do.
pub(crate) fn open_source(path: &Path, direct: bool) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = if direct { rustix::fs::OFlags::DIRECT } else { rustix::fs::OFlags::empty() };
    let mut options = std::fs::File::options();
    options.read(true).custom_flags(flags.bits() as i32).open(path).map_err(|error| {
        let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INVAL) if direct => {
                ": this file system does not take O_DIRECT; leave out o_direct, or send a file of \
                 another one"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
    })
}
