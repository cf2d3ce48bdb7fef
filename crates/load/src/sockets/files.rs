//! The files that `sendfile` sends, and flowops with `source`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use wirecost_program::files::{FileSource, StreamPart};

use super::data::DataPath;
use super::{Common, Socket, stream};
use crate::files::Files;
use crate::stream_files::StreamFiles;

/// Bytes of a file that are read at a time where this program encrypts them.
const PIECE: usize = 64 << 10;

/// A source of files, with the files that were found there when the run began, in the order in which
/// they are drawn.
#[derive(Debug)]
pub(crate) struct SourceFiles {
    pub(crate) source: FileSource,
    pub(crate) paths: Vec<PathBuf>,
}

/// The open files of one worker.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// Which files may be opened.
    allowed: Files,
    sources: Arc<[SourceFiles]>,
    /// By source and place. They are opened when they are first sent.
    open: Box<[Vec<Option<OwnedFd>>]>,
    /// What has been read of a file where this program encrypts it.
    scratch: Vec<u8>,
    streams: Arc<[StreamFiles]>,
}

impl OpenFiles {
    pub(super) fn new(common: &Common) -> Self {
        let (sources, streams) = (common.files.clone(), common.streams.clone());
        let allowed = common.permissions.files.clone();
        let open = sources.iter().map(|files| files.paths.iter().map(|_| None).collect());
        Self { allowed, open: open.collect(), sources, scratch: Vec::new(), streams }
    }

    /// See [`wirecost_program::net::Net::send_from_file`].
    pub(super) fn send_stream(
        &mut self,
        (socket, data): (&Socket, &mut DataPath),
        part: StreamPart,
        length: u64,
    ) -> io::Result<usize> {
        stream::send((&self.streams, &self.allowed), (socket, data), part, length)
    }

    /// Sends a piece of file `number` of a source.
    pub(super) fn send(
        &mut self,
        (socket, data): (&Socket, &mut DataPath),
        (source, number): (u32, usize),
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        let place = source as usize;
        let (Some(of), Some(open)) = (self.sources.get(place), self.open.get_mut(place)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let FileSource { direct, splice, .. } = of.source;
        let file = file(&self.allowed, of, open, number)?;
        if let Some(session) = &socket.session {
            let mut session = session.borrow_mut();
            if !session.holds_unsent() {
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(PIECE);
                self.scratch.resize(length, 0);
                let got = rustix::io::pread(file, &mut self.scratch, offset)?;
                self.scratch.truncate(got);
            }
            return session.send(&socket.fd, &self.scratch);
        }
        if direct || splice {
            return data.splice_file(socket, file, offset, length, direct);
        }
        let mut at = offset;
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(1 << 30);
        Ok(rustix::fs::sendfile(&socket.fd, file, Some(&mut at), length)?)
    }
}

/// An open file of a source.
fn file<'a>(
    allowed: &Files,
    of: &SourceFiles,
    open: &'a mut [Option<OwnedFd>],
    number: usize,
) -> io::Result<BorrowedFd<'a>> {
    let missing = || {
        let message = format!("no file {number} in {}", of.source.directory);
        io::Error::new(io::ErrorKind::NotFound, message)
    };
    let place = open.get_mut(number).ok_or_else(missing)?;
    if place.is_none() {
        let path = of.paths.get(number).ok_or_else(missing)?;
        *place = Some(allowed.source(path, of.source.direct)?.into());
    }
    place.as_ref().map(AsFd::as_fd).ok_or_else(missing)
}
