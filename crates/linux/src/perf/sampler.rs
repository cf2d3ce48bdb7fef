//! Samples a CPU at a fixed rate of its clock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perf_event_open_sys::bindings as sys;

use super::record::{FIELDS, Record, parse};
use super::ring::Ring;
use super::{Act, Event, Scope, Software, open, tell};

/// Pages of records that a ring is asked to have, and the fewest that will do. The first fills what
/// the kernel lets each user lock per CPU (kernel.perf_event_mlock_kb, by default 512 KiB and a
/// page).
const PAGES: usize = 128;
const MIN_PAGES: usize = 4;

/// A sampler of one CPU, by its software clock: a timer of high resolution at a fixed rate, with
/// the chain of calls in the kernel and in user space.
#[derive(Debug)]
pub struct CpuSampler {
    ring: Ring,
    event: OwnedFd,
    taken: Vec<u8>,
    /// Whether the kernel tells how many were lost when asked.
    tells_lost: bool,
    /// Lost as records told, for kernels that do not.
    lost: u64,
}

impl CpuSampler {
    /// Takes no samples yet.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON where perf_event_paranoid is above 0; a CPU that is not
    /// there; no memory for the ring.
    pub fn open(cpu: u32, per_second: u32) -> io::Result<Self> {
        let mut attributes = Event::software(Software::CpuClock).attributes();
        attributes.sample_type = FIELDS;
        // A timer takes the frequency as a fixed period:
        // https://elixir.bootlin.com/linux/v6.12/source/kernel/events/core.c#L11698
        attributes.set_freq(1);
        attributes.__bindgen_anon_1.sample_freq = u64::from(per_second);
        // Samples are told apart by when they were taken, on the clock of the window.
        attributes.set_use_clockid(1);
        attributes.clockid = libc::CLOCK_MONOTONIC;
        // Whoever waits is woken when the ring is half full.
        attributes.set_watermark(1);
        attributes.__bindgen_anon_2.wakeup_watermark =
            (PAGES * rustix::param::page_size() / 2) as u32;
        // Linux 6.0 and later: https://git.kernel.org/torvalds/c/119a784c81270eb88e573174ed2209225d646656
        attributes.read_format = u64::from(sys::PERF_FORMAT_LOST);
        let (event, tells_lost) = match open(&attributes, Scope::Cpu(cpu), None) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                attributes.read_format = 0;
                (open(&attributes, Scope::Cpu(cpu), None)?, false)
            }
            opened => (opened?, true),
        };
        let mut pages = PAGES;
        let ring = loop {
            match Ring::map(&event, pages) {
                Err(_) if pages > MIN_PAGES => pages /= 2,
                mapped => break mapped?,
            }
        };
        Ok(Self { ring, event, taken: Vec::new(), tells_lost, lost: 0 })
    }

    /// # Errors
    /// Those of ioctl(2).
    pub fn start(&self) -> io::Result<()> {
        tell(&self.event, Act::Enable, false)
    }

    /// # Errors
    /// Those of ioctl(2).
    pub fn stop(&self) -> io::Result<()> {
        tell(&self.event, Act::Disable, false)
    }

    /// Hands over every record that is there now; never waits.
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        self.taken.clear();
        self.ring.take(&mut self.taken);
        let mut rest = &self.taken[..];
        while let Some((record, size)) = parse(rest) {
            if let Record::Lost(number) = record {
                self.lost += number;
            }
            each(record);
            rest = rest.get(size..).unwrap_or_default();
        }
    }

    /// Samples that found no room since the sampler was opened.
    #[must_use]
    pub fn lost(&self) -> u64 {
        // Value, lost: the records tell only when room is found again.
        let mut words = [0u8; 16];
        match rustix::io::read(&self.event, &mut words) {
            Ok(16) if self.tells_lost => {
                let (_, lost) = words.split_at(8);
                lost.first_chunk().map_or(self.lost, |lost| u64::from_ne_bytes(*lost))
            }
            _ => self.lost,
        }
    }
}

/// Ready to be read when the ring is half full.
impl AsFd for CpuSampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{clock, privilege, thread};

    fn burn(milliseconds: u64) {
        let end = clock::thread_cpu_time() + milliseconds * 1_000_000;
        while clock::thread_cpu_time() < end {
            std::hint::spin_loop();
        }
    }

    /// Samples of this process.
    fn own(sampler: &mut CpuSampler) -> u64 {
        let mut found = 0;
        sampler.drain(|record| {
            if let Record::Sample(sample) = record {
                found += u64::from(sample.process == std::process::id());
                let (kernel, user) = sample.chain.split();
                assert_eq!(sample.in_kernel, !kernel.is_empty());
                assert!(kernel.iter().all(|address| *address > 1 << 63), "{kernel:x?}");
                assert!(sample.in_kernel || !user.is_empty());
            }
        });
        found
    }

    #[test]
    fn a_busy_cpu_is_looked_at_as_often_as_asked() {
        if privilege::skip_without_tracing("a_busy_cpu_is_looked_at_as_often_as_asked") {
            return;
        }
        let cpu = thread::allowed_cpus().unwrap()[0];
        std::thread::spawn(move || {
            thread::pin(cpu).unwrap();
            let mut sampler = CpuSampler::open(cpu, 997).unwrap();
            burn(50);
            assert_eq!(own(&mut sampler), 0);
            sampler.start().unwrap();
            let began = Instant::now();
            let mut found = 0;
            for _ in 0..50 {
                burn(10);
                found += own(&mut sampler);
            }
            sampler.stop().unwrap();
            found += own(&mut sampler);
            let most = began.elapsed().as_secs_f64() * 997.0 + 1.0;
            burn(50);
            assert_eq!(own(&mut sampler), 0);
            // 498 of this thread, and some of others of this process: all that the CPU did if it did nothing
            // else. What another program of the machine keeps from being drained in time is told as lost, and
            // a hypervisor that takes the CPU away takes samples with it.
            let told = found + sampler.lost();
            assert!(told >= 250 && found > 0, "{found} of {told}");
            assert!(found as f64 <= most, "{found} of {most}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        if privilege::skip_without_tracing("what_finds_no_room_is_counted") {
            return;
        }
        let cpu = thread::allowed_cpus().unwrap()[0];
        std::thread::spawn(move || {
            thread::pin(cpu).unwrap();
            let mut sampler = CpuSampler::open(cpu, 9973).unwrap();
            sampler.start().unwrap();
            // A record has at least 64 bytes, so the ring holds at most 8192 of them.
            while sampler.lost() == 0 {
                burn(100);
            }
            sampler.stop().unwrap();
            let lost = sampler.lost();
            assert!(own(&mut sampler) > 100);
            // Now there is room again.
            sampler.start().unwrap();
            // The kernel throttles such a rate where its samples take too long.
            while own(&mut sampler) == 0 {
                burn(20);
            }
            sampler.stop().unwrap();
            // Others may have filled it meanwhile.
            assert!(sampler.lost() >= lost);
        })
        .join()
        .unwrap();
    }
}
