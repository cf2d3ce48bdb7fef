//! The bytes that are sent, and the check of those that arrive.
//!
//! A message is a slice of a pattern that both ends make from the run's seed. Where messages are
//! numbered (datagrams, `verify`) its first eight bytes, or as many as it has, are its number. The next
//! eight bytes of a datagram are the time when it was sent, since the phase began.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use wirecost_model::clock::Nanos;
use wirecost_model::profile::Payload;

use crate::departures::Departures;
use crate::draw;

/// Bytes at the front of a numbered message.
pub const STAMP: usize = 8;

/// Bytes in front of a datagram's pattern: its number and its time.
const DATAGRAM_STAMP: usize = 2 * STAMP;

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
    /// The same for datagrams.
    datagram: Vec<u8>,
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
    /// When each message is to leave this host; none: at once.
    pub departures: Option<Departures>,
    /// On a socket that several clients send to: the messages, in place of those of `segments` datagrams each.
    pub addressed: &'a [Addressed],
}

/// A message to one of several clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressed {
    pub to: SocketAddr,
    /// How many of the datagrams it is.
    pub datagrams: u16,
}

/// What stands at the front of the datagrams of a call.
#[derive(Debug, Clone, Copy)]
pub struct Stamps {
    /// Number of the first one.
    pub first: u64,
    /// When they are sent, unless each has a time of its own.
    pub now: Nanos,
    pub departures: Option<Departures>,
    /// The instant that times count from.
    pub origin: Nanos,
}

impl Stamps {
    /// When a message of the call is sent, from the origin.
    fn sent_at(&self, message: usize) -> Nanos {
        let at = self.departures.map_or(self.now, |departures| departures.at(message));
        at.wrapping_sub(self.origin)
    }
}

impl DatagramBatch<'_> {
    /// Bytes of each message.
    pub fn messages(&self) -> impl Iterator<Item = usize> {
        let (mut rest, mut message) = (self.lengths, 0);
        std::iter::from_fn(move || {
            let datagrams = self.datagrams_of(message).min(rest.len());
            let lengths = rest.split_off(..datagrams).filter(|lengths| !lengths.is_empty())?;
            message += 1;
            Some(lengths.iter().sum())
        })
    }

    /// How many datagrams a message is at most.
    fn datagrams_of(&self, message: usize) -> usize {
        let addressed = self.addressed.get(message);
        addressed.map_or(self.segments, |message| usize::from(message.datagrams)).max(1)
    }

    /// How many datagrams so many messages are.
    pub fn datagrams(&self, messages: usize) -> usize {
        let datagrams: usize = match self.addressed {
            [] => messages * self.segments.max(1),
            _ => (0..messages).map(|message| self.datagrams_of(message)).sum(),
        };
        datagrams.min(self.lengths.len())
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
                Ok(Pattern { bytes, stamped: Vec::new(), datagram: Vec::new() })
            })
            .collect::<Result<_, _>>()
            .map(|each| Self { each, last: LastBatch::default() })
    }

    /// Datagrams of these lengths, with what stands at their fronts.
    pub fn batch(
        &mut self,
        payload: u32,
        lengths: impl Iterator<Item = usize>,
        stamps: Stamps,
        segments: usize,
    ) -> DatagramBatch<'_> {
        let pattern = &self.each[payload as usize].bytes;
        let at = |place| stamps.sent_at(place / segments.max(1));
        let (bytes, lengths) = self.last.lay_out((payload, pattern), lengths, (stamps.first.., at));
        let departures = stamps.departures;
        DatagramBatch { bytes, lengths, segments, departures, addressed: &[] }
    }

    /// Datagrams of one length to several clients: those of each message one behind the other. `now`: since the phase
    /// began.
    pub fn answers<'a>(
        &'a mut self,
        (payload, length): (u32, usize),
        numbers: impl ExactSizeIterator<Item = u64>,
        now: Nanos,
        (segments, addressed): (usize, &'a [Addressed]),
    ) -> DatagramBatch<'a> {
        let pattern = &self.each[payload as usize].bytes;
        let lengths = std::iter::repeat_n(length, numbers.len());
        let (bytes, lengths) = self.last.lay_out((payload, pattern), lengths, (numbers, |_| now));
        DatagramBatch { bytes, lengths, segments, departures: None, addressed }
    }

    /// Gets ready to number messages of a payload, which takes memory.
    pub fn number(&mut self, payload: u32) {
        if let Some(pattern) = self.each.get_mut(payload as usize) {
            pattern.stamp(0);
            pattern.datagram(0, 0);
        }
    }

    /// A whole datagram, at most as long as the pattern.
    #[inline]
    pub fn datagram(&mut self, payload: u32, length: u64, number: u64, at: Nanos) -> &[u8] {
        let bytes = self.each[payload as usize].datagram(number, at);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
        &bytes[..length]
    }

    /// Whether `received` is the datagram of this number, whenever it was sent.
    pub fn datagram_matches(&mut self, payload: u32, received: &[u8], number: u64) -> bool {
        let expected = self.each[payload as usize].datagram(number, 0);
        let (of_number, of_pattern) =
            (received.len().min(STAMP), received.len().min(DATAGRAM_STAMP));
        received.len() <= expected.len()
            && received[..of_number] == expected[..of_number]
            && received[of_pattern..] == expected[of_pattern..received.len()]
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

impl LastBatch {
    /// Lays datagrams of these lengths out, with their numbers and the times at which they are sent, by place.
    fn lay_out(
        &mut self,
        (payload, pattern): (u32, &[u8]),
        lengths: impl Iterator<Item = usize>,
        (numbers, sent_at): (impl Iterator<Item = u64>, impl Fn(usize) -> Nanos),
    ) -> (&[u8], &[usize]) {
        let Self { payload: before, lengths: of_before, wanted, bytes } = self;
        wanted.clear();
        wanted.extend(lengths);
        // As many as come at a time, of one length: the first of those that were laid out before.
        if *before != payload || !of_before.starts_with(wanted) {
            *before = payload;
            of_before.clone_from(wanted);
            bytes.clear();
            for &length in wanted.iter() {
                let rest = pattern.iter().cycle().take(length.saturating_sub(DATAGRAM_STAMP));
                bytes.extend([0; DATAGRAM_STAMP].iter().take(length).chain(rest));
            }
        }
        let mut used = 0;
        for (place, (number, &length)) in numbers.zip(wanted.iter()).enumerate() {
            let datagram = &mut bytes[used..used + length];
            let width = length.min(DATAGRAM_STAMP);
            datagram[..width].copy_from_slice(&stamp(number, sent_at(place))[..width]);
            used += length;
        }
        (&bytes[..used], wanted)
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

    #[inline]
    fn datagram(&mut self, number: u64, at: Nanos) -> &[u8] {
        if self.datagram.is_empty() {
            self.datagram = vec![0; DATAGRAM_STAMP];
            self.datagram.extend_from_slice(&self.bytes);
        }
        self.datagram[..DATAGRAM_STAMP].copy_from_slice(&stamp(number, at));
        &self.datagram
    }
}

#[inline]
fn stamp(number: u64, at: Nanos) -> [u8; DATAGRAM_STAMP] {
    let mut stamp = [0; DATAGRAM_STAMP];
    stamp[..STAMP].copy_from_slice(&number.to_le_bytes());
    stamp[STAMP..].copy_from_slice(&at.to_le_bytes());
    stamp
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

/// When a datagram was sent, since the phase began; `None` if it is too short to say.
pub fn sent_at(datagram: &[u8]) -> Option<Nanos> {
    datagram.get(STAMP..)?.first_chunk().map(|time| Nanos::from_le_bytes(*time))
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
            time: u64, flip in 0usize..100,
        ) {
            let mut sender = Patterns::new(&[Payload::Random], 100, 5, &Contents::new()).unwrap();
            for (lengths, first) in bursts {
                let stamps = Stamps { first, now: time, departures: None, origin: 0 };
                let batch = sender.batch(0, lengths.iter().copied(), stamps, 2);
                prop_assert_eq!(batch.messages().sum::<usize>(), lengths.iter().sum::<usize>());
                prop_assert_eq!(batch.datagrams(usize::MAX / 2), lengths.len());
                let bytes = batch.bytes.to_vec();
                let mut at = 0;
                for (&length, number) in lengths.iter().zip(first..) {
                    let alone = sender.datagram(0, length as u64, number, time).to_vec();
                    prop_assert_eq!(&alone[..], &bytes[at..at + length]);
                    prop_assert_eq!(sent_at(&alone), (length >= DATAGRAM_STAMP).then_some(time));
                    prop_assert!(sender.datagram_matches(0, &alone, number));
                    // The time may be any.
                    let (mut other, flip) = (alone, flip % length);
                    other[flip] ^= 1;
                    let is_time = (STAMP..DATAGRAM_STAMP).contains(&flip);
                    prop_assert_eq!(sender.datagram_matches(0, &other, number), is_time);
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
    fn datagrams_of_one_message_say_when_it_leaves() {
        let mut sender = Patterns::new(&[Payload::Zero], 100, 5, &Contents::new()).unwrap();
        let departures = Some(Departures::new((1000, 300), (1, 3), 1150));
        let stamps = Stamps { first: 7, now: 1150, departures, origin: 100 };
        let batch = sender.batch(0, [20; 3].into_iter(), stamps, 2);
        let told: Vec<_> = batch.bytes.chunks(20).map(|one| sent_at(one).unwrap()).collect();
        assert_eq!(told, [1050, 1050, 1100]);
        let leave: Vec<_> = (0..2).map(|message| batch.departures.unwrap().at(message)).collect();
        assert_eq!((batch.messages().count(), leave), (2, vec![1150, 1200]));
    }

    #[test]
    fn answers_have_the_numbers_of_their_requests_and_go_to_who_asked() {
        let mut sender = Patterns::new(&[Payload::Random], 100, 5, &Contents::new()).unwrap();
        let to = |port: u16, datagrams| Addressed {
            to: SocketAddr::from(([198, 18, 0, 1], port)),
            datagrams,
        };
        let addressed = [to(1, 2), to(2, 1), to(1, 3)];
        for numbers in [&[3, 4, 90, 5, 6, 7][..], &[8, 9, 10, 90, 91, 92]] {
            let numbers = numbers.iter().copied();
            let batch = sender.answers((0, 40), numbers.clone(), 77, (4, &addressed));
            assert_eq!(batch.messages().collect::<Vec<_>>(), [80, 40, 120]);
            assert_eq!([0, 1, 2, 3].map(|messages| batch.datagrams(messages)), [0, 2, 3, 6]);
            let bytes = batch.bytes.to_vec();
            for (datagram, number) in bytes.chunks(40).zip(numbers) {
                assert!(sender.datagram_matches(0, datagram, number));
                assert_eq!(sent_at(datagram), Some(77));
            }
        }
        // Fewer than before: the first of those.
        let batch = sender.answers((0, 40), [1].into_iter(), 78, (4, &addressed[1..2]));
        assert_eq!((batch.bytes.len(), batch.messages().count()), (40, 1));
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
