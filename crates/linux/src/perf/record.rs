//! What the kernel writes into a ring, read without trust: whatever the bytes, nothing is read past
//! them.

use perf_event_open_sys::bindings as sys;
use wirecost_model::clock::Nanos;

/// What a sample is asked to hold: the parser knows these fields and no others.
pub(super) const FIELDS: u64 = (sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_CALLCHAIN) as u64;

/// Type, misc and size.
const HEADER: usize = 8;

/// One record of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    Sample(Sample<'a>),
    /// So many found no room.
    Lost(u64),
    /// Of another kind, or not as it should be.
    Other,
}

/// Where a CPU was at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample<'a> {
    /// As the namespace of who opened the sampler numbers it; 0 is the idle task.
    pub process: u32,
    pub thread: u32,
    /// By CLOCK_MONOTONIC.
    pub at: Nanos,
    pub cpu: u32,
    /// Whether the CPU was in the kernel.
    pub in_kernel: bool,
    pub chain: Chain<'a>,
}

/// Addresses from the innermost function outwards, kernel and user parts each after its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain<'a>(&'a [u8]);

impl Chain<'_> {
    /// The kernel's part, and the user's. In user space the kernel follows frame pointers, and takes
    /// whatever a function without them keeps in that register: the chain ends where an address
    /// cannot be one of user space.
    #[must_use]
    pub fn split(&self) -> (Vec<u64>, Vec<u64>) {
        let (words, _) = self.0.as_chunks::<8>();
        let addresses: Vec<u64> = words.iter().copied().map(u64::from_ne_bytes).collect();
        // Marks are the topmost 4095 numbers, and the kernel's part comes first:
        // https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/perf_event.h#L1253
        // https://elixir.bootlin.com/linux/v6.12/source/kernel/events/callchain.c#L180
        let mut parts = addresses.splitn(2, |&address| address == USER);
        let kernel = parts.next().unwrap_or_default();
        let user = parts.next().unwrap_or_default();
        (
            kernel.iter().copied().filter(|&address| address < MARKS).collect(),
            user.iter().copied().take_while(|address| USER_SPACE.contains(address)).collect(),
        )
    }
}

/// Nothing is mapped in the first page; the upper half is the kernel's.
const USER_SPACE: std::ops::Range<u64> = 0x1000..1 << 63;
const USER: u64 = sys::PERF_CONTEXT_USER;
const MARKS: u64 = sys::PERF_CONTEXT_MAX;

/// The first record of `bytes`, and how long it is; none when there is no whole one.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let kind = u32::from_ne_bytes(*bytes.first_chunk()?);
    let misc = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let size = usize::from(u16::from_ne_bytes(*bytes.get(6..)?.first_chunk()?));
    // A record is at least its header, so reading always goes on.
    let body = bytes.get(HEADER..size)?;
    let record = match kind {
        sys::PERF_RECORD_SAMPLE => sample(body, misc).map(Record::Sample),
        // What was lost since the last such record: id, number.
        sys::PERF_RECORD_LOST => word(body, 1).map(Record::Lost),
        _ => None,
    };
    Some((record.unwrap_or(Record::Other), size))
}

fn sample(body: &[u8], misc: u16) -> Option<Sample<'_>> {
    let half =
        |place: usize| body.get(place * 4..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (process, thread, at, cpu) = (half(0)?, half(1)?, word(body, 1)?, half(4)?);
    let number = usize::try_from(word(body, 3)?).ok()?;
    let chain = body.get(32..)?.get(..number.checked_mul(8)?)?;
    let mode = u32::from(misc) & sys::PERF_RECORD_MISC_CPUMODE_MASK;
    let in_kernel = mode == sys::PERF_RECORD_MISC_KERNEL;
    Some(Sample { process, thread, at, cpu, in_kernel, chain: Chain(chain) })
}

fn word(body: &[u8], place: usize) -> Option<u64> {
    body.get(place * 8..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KERNEL: u64 = sys::PERF_CONTEXT_KERNEL;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn sample_of(chain: &[u64]) -> Vec<u8> {
        let mut body: Vec<u8> =
            [42u32, 43, 77, 0, 1, 0].iter().flat_map(|half| half.to_ne_bytes()).collect();
        body.extend((chain.len() as u64).to_ne_bytes());
        body.extend(chain.iter().flat_map(|address| address.to_ne_bytes()));
        record(sys::PERF_RECORD_SAMPLE, sys::PERF_RECORD_MISC_KERNEL as u16, &body)
    }

    #[test]
    fn a_sample_has_its_kernel_and_its_user_part() {
        let bytes = sample_of(&[
            KERNEL,
            0xffff_8000_0000_0001,
            0xffff_8000_0000_0002,
            USER,
            0x7000,
            0x8000,
            3,
        ]);
        let (record, size) = parse(&bytes).unwrap();
        assert_eq!(size, bytes.len());
        let Record::Sample(sample) = record else { panic!("{record:?}") };
        assert_eq!((sample.process, sample.thread, sample.at, sample.cpu), (42, 43, 77, 1));
        assert!(sample.in_kernel);
        let (kernel, user) = sample.chain.split();
        assert_eq!(kernel, [0xffff_8000_0000_0001, 0xffff_8000_0000_0002]);
        assert_eq!(user, [0x7000, 0x8000]);
    }

    #[test]
    fn lost_records_are_counted() {
        let body: Vec<u8> = [9u64, 12].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = record(sys::PERF_RECORD_LOST, 0, &body);
        assert_eq!(parse(&bytes), Some((Record::Lost(12), 24)));
    }

    #[test]
    fn a_record_that_is_not_whole_is_none() {
        let bytes = sample_of(&[KERNEL, 1]);
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), None);
        }
        // A chain that claims to be longer than the record.
        let mut lies = sample_of(&[KERNEL, 1]);
        lies[32] = 200;
        assert_eq!(parse(&lies), Some((Record::Other, lies.len())));
        // A size in which not even the header has room would be read for ever.
        assert_eq!(parse(&[9, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn garbage_is_read_to_its_end(kind in 0u32..16, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let whole = record(kind, 1, &bytes);
            let mut rest = &whole[..];
            while let Some((record, size)) = parse(rest) {
                prop_assert!(size >= HEADER && size <= rest.len());
                if let Record::Sample(sample) = record {
                    let _ = sample.chain.split();
                }
                rest = &rest[size..];
            }
            let _ = parse(&bytes);
        }
    }
}
