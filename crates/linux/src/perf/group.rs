//! Counters that are on the PMU together or not at all, so that they can be compared.

use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings as sys;

use super::{Act, Event, Scope, open, tell};

/// Words before the counters: how many there are, time enabled, time running.
const HEAD: usize = 3;

/// A leader and its members.
#[derive(Debug)]
pub struct Group {
    events: Vec<OwnedFd>,
}

impl Group {
    /// Opens the events as one group, the first leading. They count nothing yet.
    ///
    /// # Errors
    /// No event, or one that this machine does not have, that may not be had, or for which the PMU
    /// has no counter left.
    pub fn open(scope: Scope, events: &[Event]) -> io::Result<Self> {
        if events.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut opened: Vec<OwnedFd> = Vec::new();
        for event in events {
            let mut attributes = event.attributes();
            attributes.read_format = u64::from(
                sys::PERF_FORMAT_GROUP
                    | sys::PERF_FORMAT_TOTAL_TIME_ENABLED
                    | sys::PERF_FORMAT_TOTAL_TIME_RUNNING,
            );
            // Members follow their leader.
            attributes.set_disabled(opened.is_empty().into());
            let fd = open(&attributes, scope, opened.first())?;
            opened.push(fd);
        }
        Ok(Self { events: opened })
    }

    /// Begins to count, from 0.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn start(&self) -> io::Result<()> {
        tell(self.leader()?, Act::Reset, true)?;
        tell(self.leader()?, Act::Enable, true)
    }

    /// Stops counting; what was counted stays.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn stop(&self) -> io::Result<()> {
        tell(self.leader()?, Act::Disable, true)
    }

    /// What was counted. Times are since the group was opened, as the kernel does not reset them.
    ///
    /// # Errors
    /// Those of read(2), or an answer that is not of this group.
    pub fn read(&self) -> io::Result<Counts> {
        let mut buffer = vec![0u8; (HEAD + self.events.len()) * size_of::<u64>()];
        let length = rustix::io::read(self.leader()?, &mut buffer)?;
        parse_group(buffer.get(..length).unwrap_or_default())
            .filter(|counts| counts.values.len() == self.events.len())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn leader(&self) -> io::Result<&OwnedFd> {
        self.events.first().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// What a group has counted, in the order of its events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Nanoseconds in which it was to count.
    pub enabled: u64,
    /// Nanoseconds in which it did: less where groups take turns on the PMU.
    pub running: u64,
    pub values: Vec<u64>,
}

impl Counts {
    /// What was counted since an earlier reading of the same group.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.values.iter().copied().chain(std::iter::repeat(0));
        Self {
            enabled: self.enabled.saturating_sub(earlier.enabled),
            running: self.running.saturating_sub(earlier.running),
            values: self.values.iter().zip(before).map(|(a, b)| a.saturating_sub(b)).collect(),
        }
    }

    /// Share of the time in which it did count; 1 for a group that was never enabled.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.enabled == 0 { 1.0 } else { self.running as f64 / self.enabled as f64 }
    }

    /// Counts as they would be had the group counted all of the time; none where it never did.
    #[must_use]
    pub fn scaled(&self) -> Option<Vec<f64>> {
        (self.running > 0)
            .then(|| self.values.iter().map(|&value| value as f64 / self.share()).collect())
    }
}

/// Reads what the kernel writes of a group:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/perf_event.h#L345>.
#[must_use]
pub fn parse_group(bytes: &[u8]) -> Option<Counts> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().copied().map(u64::from_ne_bytes).collect();
    let [number, enabled, running, values @ ..] = words.as_slice() else { return None };
    (rest.is_empty() && *number == values.len() as u64).then(|| Counts {
        enabled: *enabled,
        running: *running,
        values: values.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Software;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn what_was_not_always_counted_is_scaled() {
        let counts = parse_group(&bytes(&[2, 1000, 250, 10, 1_000_003])).unwrap();
        assert_eq!(counts.share(), 0.25);
        assert_eq!(counts.scaled().unwrap(), [40.0, 4_000_012.0]);
        let all = parse_group(&bytes(&[1, 500, 500, 7])).unwrap();
        assert_eq!(all.scaled().unwrap(), [7.0]);
        let never = parse_group(&bytes(&[1, 500, 0, 0])).unwrap();
        assert_eq!(never.scaled(), None);
    }

    #[test]
    fn a_window_is_the_difference_of_two_readings() {
        let begin = Counts { enabled: 100, running: 100, values: vec![5, 6] };
        let end = Counts { enabled: 300, running: 200, values: vec![105, 6] };
        let window = end.since(&begin);
        assert_eq!(window, Counts { enabled: 200, running: 100, values: vec![100, 0] });
        assert_eq!(window.scaled().unwrap(), [200.0, 0.0]);
    }

    #[test]
    fn an_answer_of_another_shape_is_none() {
        for words in [&[][..], &[1, 2], &[2, 10, 10, 5], &[0, 10, 10, 5]] {
            assert_eq!(parse_group(&bytes(words)), None);
        }
        assert_eq!(parse_group(&bytes(&[1, 10, 10, 5])[..31]), None);
    }

    /// Touches this number of fresh pages, with one fault each. Pages are mapped one by one: the
    /// kernel may fault in several pages of a larger mapping at once.
    fn fault(pages: usize) {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let size = rustix::param::page_size();
        for _ in 0..pages {
            // SAFETY: a fresh mapping of one page that nothing else knows, gone before the next.
            unsafe {
                let page = mmap_anonymous(
                    std::ptr::null_mut(),
                    size,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )
                .unwrap();
                let _ = madvise(page, size, Advice::LinuxNoHugepage);
                page.cast::<u8>().write_volatile(1);
                munmap(page, size).unwrap();
            }
        }
    }

    #[test]
    fn a_group_counts_what_happened() {
        let events = [
            Software::TaskClock,
            Software::MinorFaults,
            Software::PageFaults,
            Software::ContextSwitches,
        ]
        .map(Event::software);
        // Without privilege the kernel may not be looked at.
        let allowed = |event: Event| match super::super::paranoid() {
            Some(..=1) => event,
            _ if rustix::process::geteuid().is_root() => event,
            _ => Event { kernel: false, ..event },
        };
        let events = events.map(allowed);
        // The first faults of this code itself happen outside of the count.
        fault(2);
        let group = Group::open(Scope::ThisThread, &events).unwrap();
        fault(100);
        assert_eq!(group.read().unwrap().values, [0; 4]);
        group.start().unwrap();
        fault(997);
        group.stop().unwrap();
        let counts = group.read().unwrap();
        fault(100);
        assert_eq!(group.read().unwrap().values, counts.values);
        assert_eq!(counts.share(), 1.0);
        let [clock, minor, all, _] = counts.values[..] else { panic!("{counts:?}") };
        assert!(clock > 0 && clock <= counts.enabled, "{counts:?}");
        // A few more where the kernel takes a page of the code or the stack away meanwhile.
        assert!((997..1017).contains(&minor), "{counts:?}");
        assert!(all >= minor);
    }

    #[test]
    fn an_event_that_is_none_is_an_error() {
        let none = Event { kind: u32::MAX, config: 0, user: true, kernel: false };
        assert!(Group::open(Scope::ThisThread, &[none]).is_err());
        assert!(Group::open(Scope::ThisThread, &[]).is_err());
    }

    #[inline(never)]
    fn turns(number: u64) -> u64 {
        (0..number).fold(0, |sum, turn| std::hint::black_box(sum ^ turn))
    }

    /// Where there is a PMU: each turn of a loop has the same number of instructions.
    #[test]
    fn instructions_of_the_hardware_are_counted() {
        use crate::perf::Hardware;
        let event = Event { kernel: false, ..Event::hardware(Hardware::Instructions, None) };
        let cycles = Event { kernel: false, ..Event::hardware(Hardware::Cycles, None) };
        let Ok(group) = Group::open(Scope::ThisThread, &[cycles, event]) else { return };
        let counted = |number: u64| {
            group.start().unwrap();
            turns(number);
            group.stop().unwrap();
            group.read().unwrap()
        };
        turns(1000);
        let before = group.read().unwrap();
        let (one, three) = (counted(1_000_003), counted(3_000_009));
        assert!(three.since(&before).share() > 0.0);
        let each = (three.values[1] - one.values[1]) as f64 / 2_000_006.0;
        // A whole number of at least a few: the loop, its sum and its end.
        assert!(each > 2.5 && (each - each.round()).abs() < 0.01, "{each} {one:?} {three:?}");
        assert!(three.values[0] > one.values[0]);
    }
}
