//! The bytes that are sent, and the check of those that arrive.
//!
//! A message is a slice of a pattern that both ends make from the run's seed. Where messages are
//! numbered (datagrams, `verify`) its first eight bytes, or as many as it has, are its number.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use wirecost_model::profile::Payload;

use crate::draw;

/// Bytes at the front of a numbered message.
pub const STAMP: usize = 8;

/// The largest piece that one call sends or receives; longer messages take several.
pub const MAX_PIECE: usize = 16 << 20;

/// What payload files hold, by their names.
pub type Contents = BTreeMap<String, Arc<[u8]>>;

/// What a worker sends from. A clone shares the bytes.
#[derive(Debug, Clone)]
pub struct Patterns {
    /// For each payload of the program.
    each: Vec<Pattern>,
    last: LastBatch,
}

#[derive(Debug, Clone)]
struct Pattern {
    /// Never changes, so that the kernel may go on reading it after a call has returned.
    bytes: Arc<[u8]>,
    /// A stamp with the pattern behind it, where messages are numbered.
    stamped: Vec<u8>,
}

/// Datagrams as they were laid out last: the next ones are mostly the same but for their numbers.
#[derive(Debug, Clone, Default)]
struct LastBatch {
    payload: u32,
    lengths: Vec<usize>,
    wanted: Vec<usize>,
    bytes: Vec<u8>,
}

/// Numbered datagrams, one behind the other.
#[derive(Debug, Clone, Copy)]
pub struct DatagramBatch<'a> {
    pub bytes: &'a [u8],
    pub lengths: &'a [usize],
    /// So many at a time are one message, which the kernel cuts apart.
    pub segments: usize,
}

impl DatagramBatch<'_> {
    /// Bytes of each message.
    pub fn messages(&self) -> impl Iterator<Item = usize> {
        self.lengths.chunks(self.segments.max(1)).map(|lengths| lengths.iter().sum())
    }

    /// How many datagrams so many messages are.
    pub fn datagrams(&self, messages: usize) -> usize {
        (messages * self.segments.max(1)).min(self.lengths.len())
    }
}

impl Patterns {
    /// Patterns for messages of up to `message` bytes.
    ///
    /// # Errors
    /// A payload file without content.
    pub fn new(
        payloads: &[Payload],
        message: u64,
        seed: u64,
        contents: &Contents,
    ) -> io::Result<Self> {
        payloads
            .iter()
            .map(|payload| {
                let bytes = pattern(payload, message, seed, contents)?.into();
                Ok(Pattern { bytes, stamped: Vec::new() })
            })
            .collect::<Result<_, _>>()
            .map(|each| Self { each, last: LastBatch::default() })
    }

    /// Datagrams of these lengths, numbered from `first` on.
    pub fn batch(
        &mut self,
        payload: u32,
        lengths: impl Iterator<Item = usize>,
        first: u64,
        segments: usize,
    ) -> DatagramBatch<'_> {
        let LastBatch { payload: before, lengths: of_before, wanted, bytes } = &mut self.last;
        wanted.clear();
        wanted.extend(lengths);
        if (*before, &*of_before) != (payload, &*wanted) {
            *before = payload;
            of_before.clone_from(wanted);
            bytes.clear();
            let pattern = &self.each[payload as usize].bytes;
            for &length in wanted.iter() {
                let rest = pattern.iter().cycle().take(length.saturating_sub(STAMP));
                bytes.extend([0; STAMP].iter().take(length).chain(rest));
            }
        }
        let mut at = 0;
        for (number, &length) in (first..).zip(wanted.iter()) {
            let width = length.min(STAMP);
            bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            at += length;
        }
        DatagramBatch { bytes, lengths: wanted, segments }
    }

    /// Gets ready to number messages of a payload, which takes memory.
    pub fn number(&mut self, payload: u32) {
        if let Some(pattern) = self.each.get_mut(payload as usize) {
            pattern.stamp(0);
        }
    }

    /// The patterns themselves, of which every piece is a part that does not begin within a stamp.
    pub fn shared(&self) -> impl Iterator<Item = Arc<[u8]>> {
        self.each.iter().map(|pattern| pattern.bytes.clone())
    }

    /// As much of a message as there is in one piece, from `offset` on, at most `length` bytes.
    #[inline]
    pub fn piece(&mut self, payload: u32, offset: u64, length: u64, stamp: Option<u64>) -> &[u8] {
        let pattern = &mut self.each[payload as usize];
        let (bytes, start) = match stamp {
            Some(number) if offset < STAMP as u64 => (pattern.stamp(number), offset as usize),
            Some(_) => (&*pattern.bytes, place(&pattern.bytes, offset - STAMP as u64)),
            None => (&*pattern.bytes, place(&pattern.bytes, offset)),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len() - start);
        &bytes[start..start + length]
    }

    /// Whether `received` is what a numbered message has at `offset`.
    pub fn matches(
        &mut self,
        payload: u32,
        mut received: &[u8],
        mut offset: u64,
        stamp: u64,
    ) -> bool {
        while !received.is_empty() {
            let expected = self.piece(payload, offset, received.len() as u64, Some(stamp));
            let length = expected.len();
            if expected != &received[..length] {
                return false;
            }
            received = &received[length..];
            offset += length as u64;
        }
        true
    }
}

impl Pattern {
    fn stamp(&mut self, number: u64) -> &[u8] {
        if self.stamped.is_empty() {
            self.stamped = vec![0; STAMP];
            self.stamped.extend_from_slice(&self.bytes);
        }
        self.stamped[..STAMP].copy_from_slice(&number.to_le_bytes());
        &self.stamped
    }
}

#[inline]
fn place(bytes: &[u8], offset: u64) -> usize {
    (offset % bytes.len() as u64) as usize
}

fn pattern(payload: &Payload, message: u64, seed: u64, contents: &Contents) -> io::Result<Vec<u8>> {
    let length = usize::try_from(message).unwrap_or(MAX_PIECE).clamp(STAMP, MAX_PIECE);
    let mut bytes = Vec::new();
    match payload {
        Payload::Zero => bytes.resize(length, 0),
        Payload::Random => {
            let words = length.div_ceil(8) as u64;
            bytes.extend((0..words).flat_map(|i| draw::key(&[seed, i]).to_le_bytes()));
            bytes.truncate(length);
        }
        Payload::File(path) => {
            let content = contents.get(path).filter(|content| !content.is_empty());
            let content = content.ok_or_else(|| {
                let message = format!("payload file {path} has not been read");
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?;
            bytes.extend(content.iter().cycle().take(length));
        }
    }
    Ok(bytes)
}

/// The number at the front of a datagram, of which only as many bytes count as the datagram has,
/// compared with the one that was expected: how far ahead (positive) or behind (negative) it is.
pub fn ahead(datagram: &[u8], expected: u64) -> i64 {
    let width = datagram.len().min(STAMP);
    let mut bytes = [0; STAMP];
    bytes[..width].copy_from_slice(&datagram[..width]);
    let unused = 64 - 8 * width as u32;
    if unused == 64 {
        return 0;
    }
    // The difference modulo 2^(8 width), as a signed number.
    ((u64::from_le_bytes(bytes).wrapping_sub(expected) << unused) as i64) >> unused
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(pattern: &mut Patterns, length: u64, stamp: Option<u64>, step: u64) -> Vec<u8> {
        let mut sent = Vec::new();
        while (sent.len() as u64) < length {
            let left = (length - sent.len() as u64).min(step);
            let piece = pattern.piece(0, sent.len() as u64, left, stamp).to_vec();
            sent.extend(piece);
        }
        sent
    }

    proptest! {
        /// However a message is cut into pieces, it is the same message and passes the check; with
        /// any one byte changed it does not.
        #[test]
        fn pieces_make_the_same_message(
            length in 1u64..500, pattern in 8u64..100, stamp: u64, step in 1u64..50, flip in 0usize..500,
        ) {
            let mut sender = Patterns::new(&[Payload::Random], pattern, 5, &Contents::new()).unwrap();
            let mut receiver = Patterns::new(&[Payload::Random], pattern, 5, &Contents::new()).unwrap();
            let whole = message(&mut sender, length, Some(stamp), u64::MAX);
            let mut cut = message(&mut sender, length, Some(stamp), step);
            prop_assert_eq!(&whole, &cut);
            for (i, piece) in cut.chunks(step as usize).enumerate() {
                prop_assert!(receiver.matches(0, piece, i as u64 * step, stamp));
            }
            let flip = flip % cut.len();
            cut[flip] ^= 1;
            prop_assert!(!receiver.matches(0, &cut, 0, stamp));
        }

        /// Laid out together datagrams are what they are one by one, also when the same place held
        /// others before.
        #[test]
        fn datagrams_are_the_same_one_by_one(
            bursts in prop::collection::vec((prop::collection::vec(1usize..100, 1..6), 0u64..1 << 60), 1..4),
        ) {
            let mut sender = Patterns::new(&[Payload::Random], 100, 5, &Contents::new()).unwrap();
            for (lengths, first) in bursts {
                let batch = sender.batch(0, lengths.iter().copied(), first, 2);
                prop_assert_eq!(batch.messages().sum::<usize>(), lengths.iter().sum::<usize>());
                prop_assert_eq!(batch.datagrams(usize::MAX / 2), lengths.len());
                let bytes = batch.bytes.to_vec();
                let mut at = 0;
                for (&length, number) in lengths.iter().zip(first..) {
                    let alone = message(&mut sender, length as u64, Some(number), u64::MAX);
                    prop_assert_eq!(&alone[..], &bytes[at..at + length]);
                    at += length;
                }
            }
        }

        #[test]
        fn numbers_are_compared_by_what_fits(expected in 0u64..1 << 60, by in -100i64..100, width in 1usize..20) {
            let number = expected.wrapping_add_signed(by);
            let mut datagram = vec![0xaa; width.max(8)];
            datagram[..8].copy_from_slice(&number.to_le_bytes());
            prop_assert_eq!(ahead(&datagram[..width], expected), by);
        }
    }

    #[test]
    fn default_payload_does_not_compress() {
        let mut pattern = Patterns::new(&[Payload::Random], 65536, 1, &Contents::new()).unwrap();
        let sent = message(&mut pattern, 65536, None, u64::MAX);
        let mut seen = [false; 256];
        sent.iter().for_each(|&byte| seen[byte as usize] = true);
        assert!(seen.iter().all(|&s| s));
    }
}
