//! Memory as O_DIRECT wants it.

use crate::stream_files::ALIGNED;

/// Bytes whose first one is at a multiple of [`ALIGNED`].
#[derive(Debug, Default)]
pub(super) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    pub(super) fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNED as usize];
        Self { start: bytes.as_ptr().align_offset(ALIGNED as usize), bytes, length }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
