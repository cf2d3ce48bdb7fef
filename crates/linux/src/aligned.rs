//! Memory as O_DIRECT requires it.

/// O_DIRECT requires memory, file offsets and lengths in multiples of the device's block size: 4 KiB is one for all devices.
pub const ALIGNED: u64 = 4096;

/// Bytes whose first one is at a multiple of [`ALIGNED`].
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// `length` bytes, all 0.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNED as usize];
        Self { start: bytes.as_ptr().align_offset(ALIGNED as usize), bytes, length }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
