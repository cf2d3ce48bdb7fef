//! Files that receivers write what comes to.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use wirecost_linux::aligned::AlignedBuffer;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::page_cache::cached_bytes;
use wirecost_model::clock::Clock;
use wirecost_model::measure::{FileChecks, IoCounts};
use wirecost_program::calls::SinkPlace;

use super::data::DataPath;
use super::file_requests::{WorkerRing, WriteBehind};
use super::pipes::{Pipe, give};
use crate::files::Files;
use crate::stream_files::{drop_cached, takes_direct};

/// What is written past the page cache or by io_uring at a time, and what has a checksum of its own.
const BLOCK: usize = 256 << 10;

/// A file that is written round and round.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    path: PathBuf,
    at: u64,
    size: u64,
    /// What waits until it is a block, where the file is written past the page cache or by io_uring.
    block: Option<Block>,
    /// Blocks that io_uring is writing.
    behind: Option<WriteBehind>,
    /// Written back to the device at the end of a phase.
    sync: bool,
    /// Left there after the run.
    keep: bool,
    sums: Option<BlockSums>,
    /// Written since the end of the last phase.
    dirty: bool,
}

#[derive(Debug)]
struct Block {
    bytes: AlignedBuffer,
    filled: usize,
}

/// Bytes of the file of each worker: whole blocks, and at least one.
pub(crate) fn bytes_of_worker(place: &SinkPlace, workers: u32) -> u64 {
    let block = BLOCK as u64;
    (place.bytes / u64::from(workers.max(1)) / block).max(1) * block
}

impl Sink {
    /// Makes the file of this worker. `name`: of a file that is to be kept.
    fn open(files: &Files, place: &SinkPlace, name: &str, workers: u32) -> io::Result<Self> {
        let directory = Path::new(&place.directory);
        let path = if place.keep { directory.join(name) } else { directory.to_owned() };
        let explain = |error: io::Error| {
            let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL) if place.direct => {
                    ": this file system does not take O_DIRECT; leave out o_direct, or name a \
                     directory of another one"
                }
                Some(Errno::NOENT | Errno::NOTDIR) => ": sink= names a directory that is there",
                Some(Errno::OPNOTSUPP) if place.preallocate => {
                    ": this file system reserves no files; leave out sink_preallocate"
                }
                Some(Errno::NOSPC) => {
                    ": use a smaller sink_size, or a directory of another file system"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("sink {}: {error}{remedy}", path.display()))
        };
        let name = place.keep.then_some(name);
        let file = files.make(directory, name, place.direct).map_err(explain)?;
        if place.direct {
            takes_direct(file.as_fd()).map_err(explain)?;
        }
        let size = bytes_of_worker(place, workers);
        if place.preallocate {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size)
                .map_err(|error| explain(error.into()))?;
        }
        let in_blocks = place.direct || place.depth.is_some();
        let block = in_blocks.then(|| Block { bytes: AlignedBuffer::new(BLOCK), filled: 0 });
        let behind = place.depth.map(|depth| WriteBehind::new(depth, size / BLOCK as u64));
        let sums = place.verify.then(|| BlockSums::new(size));
        let SinkPlace { sync, keep, .. } = *place;
        Ok(Self { file, path, at: 0, size, block, behind, sync, keep, sums, dirty: false })
    }

    pub(super) fn write(
        &mut self,
        mut bytes: &[u8],
        ring: &mut WorkerRing,
        io: &mut IoCounts,
    ) -> io::Result<()> {
        self.dirty = true;
        if let Some(sums) = &mut self.sums {
            sums.add(bytes);
        }
        while !bytes.is_empty() {
            let room = match &self.block {
                Some(block) => BLOCK - block.filled,
                None => usize::try_from(self.size - self.at).unwrap_or(usize::MAX),
            };
            let (head, rest) = bytes.split_at(bytes.len().min(room));
            match &mut self.block {
                Some(block) => {
                    let end = block.filled + head.len();
                    block.bytes.bytes_mut()[block.filled..end].copy_from_slice(head);
                    block.filled = end;
                    if end == BLOCK {
                        match &mut self.behind {
                            Some(behind) => {
                                let before = Monotonic.now();
                                let full = (std::mem::take(&mut block.bytes), self.at);
                                block.bytes = behind
                                    .write(&self.file, full, ring, io)
                                    .map_err(|e| named(&self.path, &e))?;
                                io.sink_write_ns += Monotonic.now() - before;
                            }
                            None => {
                                put(&self.file, block.bytes.bytes(), (self.at, &self.path), io)?;
                            }
                        }
                        block.filled = 0;
                        self.pass(BLOCK as u64);
                    }
                }
                None => {
                    put(&self.file, head, (self.at, &self.path), io)?;
                    self.pass(head.len() as u64);
                }
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Writes so many bytes of a pipe.
    pub(super) fn take_in(
        &mut self,
        pipe: &Pipe,
        mut bytes: usize,
        io: &mut IoCounts,
    ) -> io::Result<()> {
        self.dirty = true;
        while bytes > 0 {
            let room = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
            let before = Monotonic.now();
            let given = give(&pipe.out, &self.file, Some(self.at), bytes.min(room))
                .map_err(|e| named(&self.path, &e))?;
            io.sink_write_ns += Monotonic.now() - before;
            self.pass(given as u64);
            bytes -= given;
        }
        Ok(())
    }

    fn pass(&mut self, bytes: u64) {
        self.at += bytes;
        if self.at >= self.size {
            self.at = 0;
        }
    }

    /// At the end of a phase: what is in memory of this program goes to the file, what is asked for to the device, and
    /// what is to be compared is read back.
    fn settle(
        &mut self,
        ring: &mut WorkerRing,
        io: &mut IoCounts,
        checks: &mut FileChecks,
    ) -> io::Result<()> {
        if !std::mem::take(&mut self.dirty) {
            return Ok(());
        }
        if let Some(behind) = &mut self.behind {
            let before = Monotonic.now();
            behind.finish(&self.file, ring).map_err(|e| named(&self.path, &e))?;
            io.sink_write_ns += Monotonic.now() - before;
        }
        self.flush(io)?;
        // Errors of the device that come after the call which wrote are told by fdatasync(2), and by nothing else
        // (https://elixir.bootlin.com/linux/v6.12/source/mm/filemap.c#L785): without, a file that is kept or compared
        // could be another than was written.
        if self.sync || self.keep || self.sums.is_some() {
            let before = Monotonic.now();
            rustix::fs::fdatasync(&self.file).map_err(|e| named(&self.path, &e.into()))?;
            if self.sync {
                io.sink_sync_ns += Monotonic.now() - before;
                io.sink_syncs += 1;
            }
        }
        let Some(sums) = &self.sums else { return Ok(()) };
        // So that it comes from the device. A file system in memory drops nothing.
        drop_cached(self.file.as_fd(), 0, self.size)?;
        let read_before = checks.read_back_bytes;
        let cached = cached_bytes(&self.file, 0, self.size).unwrap_or(u64::MAX);
        sums.read_back(&self.file, checks).map_err(|e| named(&self.path, &e))?;
        checks.read_back_cached_bytes += cached.min(checks.read_back_bytes - read_before);
        Ok(())
    }

    /// Writes what is no whole block yet, by way of the page cache.
    fn flush(&mut self, io: &mut IoCounts) -> io::Result<()> {
        let Some(block) = self.block.as_ref().filter(|block| block.filled > 0) else {
            return Ok(());
        };
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        let part = &block.bytes.bytes()[..block.filled];
        put(&self.file, part, (self.at, &self.path), io)?;
        rustix::fs::fcntl_setfl(&self.file, flags)?;
        Ok(())
    }
}

/// Writes bytes at a place of a file.
fn put(file: &File, bytes: &[u8], (at, path): (u64, &Path), io: &mut IoCounts) -> io::Result<()> {
    let before = Monotonic.now();
    file.write_all_at(bytes, at).map_err(|e| named(path, &e))?;
    io.sink_write_ns += Monotonic.now() - before;
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("sink {}: {error}", path.display()))
}

/// CRC-32 of each block of a file, as it was written last.
#[derive(Debug)]
struct BlockSums {
    of_blocks: Vec<Option<u32>>,
    /// The block under way, its bytes so far, and their sum.
    block: usize,
    filled: usize,
    crc: crc32fast::Hasher,
}

impl BlockSums {
    fn new(size: u64) -> Self {
        let blocks = (size / BLOCK as u64) as usize;
        Self { of_blocks: vec![None; blocks], block: 0, filled: 0, crc: Default::default() }
    }

    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            // What was there before is overwritten in part.
            self.of_blocks[self.block] = None;
            self.crc.update(head);
            self.filled += head.len();
            if self.filled == BLOCK {
                self.of_blocks[self.block] = Some(std::mem::take(&mut self.crc).finalize());
                self.filled = 0;
                self.block = (self.block + 1) % self.of_blocks.len();
            }
            bytes = rest;
        }
    }

    fn read_back(&self, file: &File, checks: &mut FileChecks) -> io::Result<()> {
        let mut buffer = AlignedBuffer::new(BLOCK);
        let whole = self.of_blocks.iter().enumerate();
        let whole = whole.filter_map(|(block, sum)| Some((block, BLOCK, (*sum)?)));
        let part =
            (self.filled > 0).then(|| (self.block, self.filled, self.crc.clone().finalize()));
        for (block, length, sum) in whole.chain(part) {
            let mut filled = 0;
            let at = (block * BLOCK) as u64;
            while filled < length {
                match file.read_at(&mut buffer.bytes_mut()[filled..], at + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            let same = filled >= length && crc32fast::hash(&buffer.bytes()[..length]) == sum;
            checks.read_back_bytes += length as u64;
            checks.read_back_blocks += 1;
            checks.read_back_failures += u64::from(!same);
        }
        Ok(())
    }
}

impl DataPath {
    /// Makes the files that this worker keeps in these places.
    ///
    /// # Errors
    /// Those of open(2), with what to do.
    pub(crate) fn open_sinks(
        &mut self,
        (places, files): (&[SinkPlace], &Files),
        host: u32,
        (worker, workers): (u32, u32),
    ) -> io::Result<()> {
        for (number, place) in places.iter().enumerate() {
            let name = format!("wirecost-sink-{:08x}-{host}-{worker}-{number}", self.run);
            self.sinks.push(Sink::open(files, place, &name, workers)?);
        }
        Ok(())
    }

    /// See [`Sink::settle`].
    ///
    /// # Errors
    /// Those of the system calls.
    pub(crate) fn settle_sinks(&mut self) -> io::Result<()> {
        let Self { ring, io, checks, sinks, .. } = self;
        sinks.iter_mut().try_for_each(|sink| sink.settle(ring, io, checks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(place: &SinkPlace) -> Sink {
        Sink::open(&Files::all(), place, "kept", 1).unwrap()
    }

    fn place(directory: &tempfile::TempDir) -> SinkPlace {
        SinkPlace {
            directory: directory.path().to_str().unwrap().to_owned(),
            bytes: 4 * BLOCK as u64,
            direct: false,
            sync: true,
            keep: true,
            preallocate: true,
            verify: true,
            depth: None,
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length)
            .map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7])
            .collect()
    }

    #[test]
    fn what_was_written_is_read_back_and_a_changed_byte_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let ring = &mut WorkerRing::default();
        // More in flight than the file has blocks: none is overwritten before it is written.
        let ways =
            [(false, None), (true, None), (false, Some(1)), (false, Some(9)), (true, Some(9))];
        for (direct, depth) in ways {
            let place = SinkPlace { direct, depth, ..place(&directory) };
            let mut sink = sink(&place);
            let (mut io, mut checks) = (IoCounts::default(), FileChecks::default());
            // Nothing was written yet.
            sink.settle(ring, &mut io, &mut checks).unwrap();
            assert_eq!((io, checks), (IoCounts::default(), FileChecks::default()));
            // Round once and a part of a block, in pieces that no block is a multiple of.
            let written = content(4 * BLOCK + 100_001);
            written.chunks(9999).for_each(|piece| sink.write(piece, ring, &mut io).unwrap());
            sink.settle(ring, &mut io, &mut checks).unwrap();
            // The rest of the first block was overwritten in part: nobody knows its sum any more.
            assert_eq!(checks.read_back_bytes, 3 * BLOCK as u64 + 100_001);
            assert_eq!((checks.read_back_blocks, checks.read_back_failures), (4, 0));
            assert_eq!(io.sink_syncs, 1);
            assert_eq!(io.sink_requests, if depth.is_some() { 4 } else { 0 });
            assert!(io.sink_in_flight >= io.sink_requests);
            assert!(depth != Some(1) || io.sink_in_flight == io.sink_requests);
            // A file system in memory has it nowhere else.
            let in_memory = rustix::fs::fstatfs(&sink.file).unwrap().f_type == 0x0102_1994;
            let cached = if in_memory { checks.read_back_bytes } else { 0 };
            assert_eq!(checks.read_back_cached_bytes, cached);
            assert!(io.sink_write_ns > 0 && io.sink_sync_ns > 0);

            let path = directory.path().join("kept");
            let mut file = std::fs::read(&path).unwrap();
            assert_eq!(file.len(), 4 * BLOCK);
            assert_eq!(file[..100_001], written[4 * BLOCK..]);
            assert_eq!(file[100_001..], written[100_001..4 * BLOCK]);
            file[2 * BLOCK + 17] ^= 1;
            file[100_000] ^= 1;
            std::fs::write(&path, file).unwrap();
            sink.dirty = true;
            let mut checks = FileChecks::default();
            sink.settle(ring, &mut io, &mut checks).unwrap();
            // The unfinished block is written once more, where it was in this program's memory.
            let found = if direct || depth.is_some() { 1 } else { 2 };
            assert_eq!((checks.read_back_blocks, checks.read_back_failures), (4, found));
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn only_a_sink_that_is_kept_has_a_name_and_never_that_of_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(&directory);
        let unnamed = SinkPlace { keep: false, ..place.clone() };
        let ring = &mut WorkerRing::default();
        sink(&unnamed).write(b"x", ring, &mut IoCounts::default()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        drop(sink(&place));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let error = Sink::open(&Files::all(), &place, "kept", 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
