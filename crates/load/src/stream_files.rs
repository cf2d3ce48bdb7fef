//! Files whose content is sent as a stream (`source`): found, or made, before the run, and brought into the state of
//! the page cache that the profile asks for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use wirecost_linux::aligned::ALIGNED;
use wirecost_model::plan::at_most;
use wirecost_model::plan::limits::{FILES, SINKS};
use wirecost_model::program::Program;
use wirecost_profile::io_options::page_cache::CacheState;
use wirecost_program::files::{StreamPart, StreamSource, stream_sources};

use crate::files::Files;
use crate::load::LoadError;
use crate::permissions::Permissions;
use crate::preparation::Preparation;

/// Bytes that are written or read at a time before the run.
const PIECE: usize = 1 << 20;
/// Bytes that are written before they are synced. Without it, the page cache would take them all, and the time would be that of the
/// last sync.
const SYNC_EVERY: u64 = 16 << 20;

/// A source, with the files that it has.
#[derive(Debug)]
pub(crate) struct StreamFiles {
    pub(crate) source: StreamSource,
    /// With their sizes, in the order of their names. Of a file that was made, its directory.
    files: Arc<[(PathBuf, u64)]>,
    /// The file that was made for the run, which has no name.
    made: Option<Arc<OwnedFd>>,
    /// Strands of earlier groups, by number of the group, and strands of all groups.
    before: BTreeMap<u32, u32>,
    strands: u32,
}

/// The piece of a file that one strand sends, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) file: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl StreamFiles {
    /// The sources of a program, in the order of [`stream_sources`], ready to be sent.
    ///
    /// # Errors
    /// Files that are not there, that this host has not agreed to, or that cannot be made.
    pub(crate) fn prepare(
        program: &Program,
        permissions: &Permissions,
        seed: u64,
        preparation: &Preparation,
    ) -> Result<Arc<[Self]>, LoadError> {
        let sources = stream_sources(program);
        at_most("the number of different sources", sources.len(), SINKS)
            .map_err(|error| LoadError::Plan(error.to_string()))?;
        let made = |(source, _): &(StreamSource, _)| source.made.unwrap_or(0);
        preparation.expect(sources.iter().map(made).fold(0, u64::saturating_add));
        let each = sources.into_iter().map(|(source, groups)| {
            let act = match source.made {
                Some(bytes) => format!("source {} of {bytes} bytes", source.path),
                None => format!("source {}", source.path),
            };
            let prepared = Self::find(source, &groups, permissions, Some((seed, preparation)))
                .and_then(|files| files.settle(&permissions.files, preparation).map(|()| files));
            prepared.map_err(LoadError::system(act))
        });
        let all: Vec<Self> = each.collect::<Result<_, _>>()?;
        at_most_files(&all)?;
        Ok(all.into())
    }

    /// Whether they can be made ready, without changing anything.
    ///
    /// # Errors
    /// As those of [`StreamFiles::prepare`].
    pub(crate) fn check(program: &Program, permissions: &Permissions) -> Result<(), LoadError> {
        let each = stream_sources(program).into_iter().map(|(source, groups)| {
            let act = format!("source {}", source.path);
            Self::find(source, &groups, permissions, None).map_err(LoadError::system(act))
        });
        at_most_files(&each.collect::<Result<Vec<_>, _>>()?)
    }

    /// `making`: seed of what a file is to hold that is made now.
    fn find(
        source: StreamSource,
        groups: &BTreeMap<u32, u32>,
        permissions: &Permissions,
        making: Option<(u64, &Preparation)>,
    ) -> io::Result<Self> {
        let path = Path::new(&source.path);
        let explained = |error: io::Error| explain(&error, &source);
        let (mut files, mut made) = (Vec::new(), None);
        match source.made {
            Some(bytes) => {
                permissions.writable.writable_directory(path).map_err(explained)?;
                if let Some((seed, preparation)) = making {
                    let file = permissions.writable.make(path, None, false).map_err(explained)?;
                    fill(&file, bytes, seed, preparation)?;
                    made = Some(Arc::new(OwnedFd::from(file)));
                }
                files.push((path.to_owned(), bytes));
            }
            None => {
                files = permissions.files.sources(path).map_err(explained)?;
                files.sort();
                // Whether they can be opened is said now.
                for (path, _) in &files {
                    permissions.files.source(path, source.direct)?;
                }
                if files.is_empty() {
                    let message = "it has no file that is not empty";
                    return Err(io::Error::new(io::ErrorKind::NotFound, message));
                }
            }
        }
        let mut strands = 0;
        let before = groups.iter().map(|(group, of_group)| {
            let before = strands;
            strands += of_group;
            (*group, before)
        });
        let (before, files) = (before.collect(), files.into());
        Ok(Self { source, files, made, before, strands })
    }

    /// Brings the files into the state of the page cache that is asked for.
    fn settle(&self, allowed: &Files, preparation: &Preparation) -> io::Result<()> {
        if self.is_warmed() {
            let sizes = self.files.iter().map(|(_, size)| *size);
            preparation.expect(sizes.fold(0, u64::saturating_add));
        }
        for number in 0..self.files.len() {
            let (_, size) = self.files[number];
            if self.source.direct {
                let file = self.open(allowed, number)?;
                takes_direct(file.as_fd()).map_err(|error| explain(&error, &self.source))?;
                // What was written lately is not on the device yet.
                rustix::fs::fdatasync(&file)?;
                continue;
            }
            match self.source.cache {
                CacheState::AsIs => {}
                CacheState::Cold => {
                    let file = self.open(allowed, number)?;
                    // What is not on the device yet cannot be dropped.
                    rustix::fs::fdatasync(&file)?;
                    drop_cached(file.as_fd(), 0, size)?;
                }
                CacheState::Warm => {
                    let file = File::from(self.open(allowed, number)?);
                    let mut piece = vec![0; PIECE];
                    let mut at = 0;
                    while at < size {
                        match file.read_at(&mut piece, at)? {
                            0 => break,
                            read => {
                                at += read as u64;
                                preparation.did(read as u64)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether its files are read once before the run.
    fn is_warmed(&self) -> bool {
        self.source.cache == CacheState::Warm && !self.source.direct
    }

    /// Which piece of which file a strand sends. Strands go round the files, and those that meet at a file divide it.
    pub(crate) fn slice(&self, part: StreamPart) -> Slice {
        let before = self.before.get(&part.group).copied().unwrap_or_default();
        let ordinal = u64::from(before + part.strand);
        let (files, strands) = (self.files.len() as u64, u64::from(self.strands));
        let file = (ordinal % files) as usize;
        let (place, sharers) =
            (ordinal / files, (strands - ordinal % files).div_ceil(files).max(1));
        let size = self.files[file].1;
        let each = size / sharers / ALIGNED * ALIGNED;
        if each == 0 {
            return Slice { file, start: 0, end: size };
        }
        let start = place * each;
        Slice { file, start, end: if place + 1 == sharers { size } else { start + each } }
    }

    /// A descriptor of a file with a readahead state of its own.
    pub(crate) fn open(&self, allowed: &Files, number: usize) -> io::Result<OwnedFd> {
        let Some(made) = &self.made else {
            let (path, _) = self.files.get(number).ok_or(io::ErrorKind::NotFound)?;
            return Ok(allowed.source(path, self.source.direct)?.into());
        };
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, self.source.direct);
        // Of this thread's own descriptor table.
        let again = format!("/proc/thread-self/fd/{}", made.as_raw_fd());
        let opened = rustix::fs::open(again, flags, Mode::empty());
        opened.map_err(|error| explain(&error.into(), &self.source))
    }

    /// Descriptors that a thread with a table of its own has to keep for [`StreamFiles::with`].
    pub(crate) fn descriptors(all: &[Self]) -> impl Iterator<Item = BorrowedFd<'_>> {
        all.iter().filter_map(|files| files.made.as_ref().map(|made| made.as_fd()))
    }

    /// The same files by other descriptors, in the order of [`StreamFiles::descriptors`].
    #[must_use]
    pub(crate) fn with(
        all: &[Self],
        descriptors: impl IntoIterator<Item = OwnedFd>,
    ) -> Arc<[Self]> {
        let mut descriptors = descriptors.into_iter();
        let each = all.iter().map(|files| Self {
            source: files.source.clone(),
            files: files.files.clone(),
            made: files.made.as_ref().and_then(|_| descriptors.next()).map(Arc::new),
            before: files.before.clone(),
            strands: files.strands,
        });
        each.collect()
    }
}

fn at_most_files(all: &[StreamFiles]) -> Result<(), LoadError> {
    let files: usize = all.iter().map(|of| of.files.len()).sum();
    at_most("the number of files of all sources", files, FILES)
        .map_err(|error| LoadError::Plan(error.to_string()))
}

/// Has the kernel drop what it caches of a part of a file. Pages that are dirty, or that a socket still sends from,
/// stay.
pub(crate) fn drop_cached(file: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, start, NonZeroU64::new(length), Advice::DontNeed)?)
}

/// Whether a file is read past the page cache at multiples of [`ALIGNED`], where its file system says so
/// (<https://man7.org/linux/man-pages/man2/statx.2.html>, `STATX_DIOALIGN`, Linux 6.1).
///
/// # Errors
/// `EINVAL`, as open(2) with O_DIRECT on a file system that has nothing of the kind.
pub(crate) fn takes_direct(file: BorrowedFd<'_>) -> io::Result<()> {
    let wanted = StatxFlags::from_bits_retain(DIOALIGN);
    // Older kernels have no statx(2), or not this part of it.
    let Ok(about) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted) else { return Ok(()) };
    let aligned = about.stx_dio_offset_align;
    match about.stx_mask & DIOALIGN {
        0 => Ok(()),
        _ if aligned != 0 && ALIGNED.is_multiple_of(u64::from(aligned)) => Ok(()),
        _ => Err(Errno::INVAL.into()),
    }
}

/// Of `include/uapi/linux/stat.h`.
const DIOALIGN: u32 = 0x2000;

fn explain(error: &io::Error, source: &StreamSource) -> io::Error {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INVAL) if source.direct => {
            ": this file system does not take O_DIRECT; leave out o_direct, or name a source on another one"
        }
        Some(Errno::NOENT | Errno::NOTDIR) if source.made.is_some() => {
            ": with source_size, source= names a directory that is there"
        }
        Some(Errno::NOENT) => {
            ": source= names a file or directory that is there, or use source_size"
        }
        _ => return io::Error::new(error.kind(), error.to_string()),
    };
    io::Error::new(error.kind(), format!("{error}{remedy}"))
}

/// Writes random bytes to a new file, and has them on the device: no file system can compress them, or know that
/// they are all alike. Progress is of what is on the device.
fn fill(file: &File, bytes: u64, seed: u64, preparation: &Preparation) -> io::Result<()> {
    let mut state = seed | 1;
    let mut piece = vec![0u8; PIECE];
    let (mut at, mut synced) = (0, 0);
    while at < bytes {
        for word in piece.chunks_exact_mut(8) {
            // xorshift64*, G. Marsaglia and S. Vigna.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            word.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        let length = (bytes - at).min(PIECE as u64);
        file.write_all_at(&piece[..length as usize], at)?;
        at += length;
        if at - synced >= SYNC_EVERY || at == bytes {
            rustix::fs::fdatasync(file)?;
            preparation.did(at - synced)?;
            synced = at;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(sizes: &[u64], groups: &[(u32, u32)]) -> StreamFiles {
        let mut strands = 0;
        let mut before = BTreeMap::new();
        for (group, of_group) in groups {
            before.insert(*group, strands);
            strands += of_group;
        }
        let source = StreamSource {
            path: "f".to_owned(),
            made: None,
            calls: Default::default(),
            depth: 1,
            direct: false,
            cache: CacheState::Cold,
            verify: false,
        };
        let files = sizes.iter().map(|size| ("f".into(), *size)).collect();
        StreamFiles { source, files, made: None, before, strands }
    }

    #[test]
    fn strands_divide_what_there_is_between_them() {
        let slices = |files: &StreamFiles| {
            let groups = files.before.keys().copied().collect::<Vec<_>>();
            let mut all = Vec::new();
            for (place, group) in groups.iter().enumerate() {
                let next = groups.get(place + 1).and_then(|next| files.before.get(next));
                let strands = next.copied().unwrap_or(files.strands) - files.before[group];
                for strand in 0..strands {
                    let Slice { file, start, end } =
                        files.slice(StreamPart { source: 0, group: *group, strand });
                    all.push((file, start, end));
                }
            }
            all
        };
        let of = |sizes: &[u64], groups: &[(u32, u32)]| slices(&files(sizes, groups));
        assert_eq!(of(&[10_000], &[(0, 1)]), [(0, 0, 10_000)]);
        assert_eq!(of(&[10_000], &[(0, 2)]), [(0, 0, 4096), (0, 4096, 10_000)]);
        // Too small to be divided.
        assert_eq!(of(&[5000], &[(3, 2)]), [(0, 0, 5000), (0, 0, 5000)]);
        // A file each, also of two groups.
        let each = [(0, 0, 8192), (1, 0, 9000), (2, 0, 100)];
        assert_eq!(of(&[8192, 9000, 100], &[(0, 2), (4, 1)]), each);
        // The first file has two strands, the second one.
        let shared = [(0, 0, 4096), (1, 0, 9000), (0, 4096, 8192)];
        assert_eq!(of(&[8192, 9000], &[(0, 3)]), shared);
        // More files than strands.
        assert_eq!(of(&[1, 2, 3], &[(0, 1)]), [(0, 0, 1)]);
    }

    #[test]
    fn a_file_that_is_made_is_as_long_as_it_is_to_be_and_holds_nothing_twice() {
        let file = tempfile::tempfile().unwrap();
        let bytes = PIECE as u64 + 5000;
        let preparation = Preparation::default();
        fill(&file, bytes, 7, &preparation).unwrap();
        assert_eq!(preparation.progress().0, bytes);
        assert_eq!(file.metadata().unwrap().len(), bytes);
        let mut content = vec![0; bytes as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        let blocks: std::collections::BTreeSet<&[u8]> = content.chunks(64).collect();
        assert_eq!(blocks.len(), content.len().div_ceil(64));
    }

    #[test]
    fn preparing_that_nobody_waits_for_ends() {
        let file = tempfile::tempfile().unwrap();
        let preparation = Preparation::default();
        preparation.cancel();
        let error = fill(&file, 10 * SYNC_EVERY, 7, &preparation).unwrap_err();
        assert_eq!(error.to_string(), "the controller has gone");
        assert_eq!(preparation.progress().0, SYNC_EVERY);
        assert_eq!(file.metadata().unwrap().len(), SYNC_EVERY);
    }
}
