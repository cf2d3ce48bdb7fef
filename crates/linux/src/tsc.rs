//! The time-stamp counter, and when it was read.

use std::fs;
use std::sync::OnceLock;

use wirecost_model::clock::{Clock, Nanos, seconds};

use crate::clock::Monotonic;

/// Clock readings around one of the counter are this close together where nothing came in between.
const CLOSE: Nanos = 500;
/// Attempts at that. A CPU that others want as well is seldom taken away twice within microseconds.
const ATTEMPTS: usize = 32;

/// The counter at an instant of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TscReading {
    pub count: u64,
    pub at: Nanos,
    /// How far `at` can be wrong.
    pub error: Nanos,
}

impl TscReading {
    /// Counts a second since an earlier reading; `None` where too little time has passed for one part
    /// in ten thousand.
    #[must_use]
    pub fn rate_since(&self, earlier: &Self) -> Option<f64> {
        let passed = self.at.checked_sub(earlier.at)?;
        let counted = self.count.checked_sub(earlier.count)?;
        let is_sure = passed / 10_000 >= self.error + earlier.error;
        (is_sure && counted > 0).then(|| counted as f64 / seconds(passed))
    }
}

/// Reads the counter of the CPU this runs on, where all CPUs count alike at one rate.
#[must_use]
pub fn read() -> Option<TscReading> {
    static USABLE: OnceLock<bool> = OnceLock::new();
    if !*USABLE.get_or_init(is_usable) {
        return None;
    }
    bracketed(|| Some((Monotonic.now(), read_counter()?, Monotonic.now())))
}

/// The reading that the clock is surest of: the time between the two readings of the clock may have been
/// another program's.
fn bracketed(mut attempt: impl FnMut() -> Option<(Nanos, u64, Nanos)>) -> Option<TscReading> {
    let mut best: Option<TscReading> = None;
    for _ in 0..ATTEMPTS {
        let (before, count, after) = attempt()?;
        let took = after.saturating_sub(before);
        let reading = TscReading { count, at: before + took / 2, error: took.div_ceil(2) };
        if best.is_none_or(|best| reading.error < best.error) {
            best = Some(reading);
        }
        if took <= CLOSE {
            break;
        }
    }
    best
}

/// The flags say that the rate does not follow frequency or sleep states; that the kernel chose the
/// counter as its clock says that it found the CPUs' counters in step and goes on watching them:
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/kernel/tsc.c#L1079>.
fn is_usable() -> bool {
    let clocksource =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let cpuinfo = fs::read_to_string("/proc/cpuinfo");
    match (clocksource, cpuinfo) {
        (Ok(clocksource), Ok(cpuinfo)) => clocksource.trim() == "tsc" && is_constant(&cpuinfo),
        _ => false,
    }
}

fn is_constant(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or("");
    ["constant_tsc", "nonstop_tsc"]
        .iter()
        .all(|wanted| flags.split_ascii_whitespace().any(|flag| flag == *wanted))
}

#[cfg(target_arch = "x86_64")]
fn read_counter() -> Option<u64> {
    // SAFETY: the instruction reads a register, and every x86_64 CPU has it.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_flags_are_required() {
        assert!(is_constant("model : 1\nflags\t\t: fpu constant_tsc x nonstop_tsc\n"));
        assert!(!is_constant("flags\t\t: fpu constant_tsc\n"));
        assert!(!is_constant("Features : fp asimd\n"));
    }

    #[test]
    fn a_reading_that_was_interrupted_is_made_again() {
        // 4 ms of another program before the counter was read, then after it, then none.
        let mut attempts =
            [(0, 12, 4_000_000), (4_000_100, 13, 8_000_000), (8_000_100, 24, 8_000_140)]
                .into_iter();
        let reading = bracketed(|| attempts.next()).unwrap();
        assert_eq!(reading, TscReading { count: 24, at: 8_000_120, error: 20 });
        let never = bracketed(|| Some((100, 7, 5_000))).unwrap();
        assert_eq!(never.error, 2_450);
        // Twice that error are more than a ten-thousandth of 40 ms.
        let later = |at| TscReading { count: 1_000_000, at, error: 2_450 };
        assert_eq!(later(40_000_000).rate_since(&never), None);
        assert!(later(90_000_000).rate_since(&never).is_some());
    }

    /// Threads that want all CPUs take this one away between any two instructions.
    #[test]
    fn the_rate_is_the_same_on_a_starved_host() {
        let Some(first) = read() else { return };
        let over = AtomicBool::new(false);
        let cpus = std::thread::available_parallelism().unwrap().get();
        let rates: Vec<f64> = std::thread::scope(|scope| {
            for _ in 0..4 * cpus {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let mut rates = Vec::new();
            for _ in 0..10 {
                let begin = read().unwrap();
                std::thread::sleep(Duration::from_millis(20));
                rates.extend(read().unwrap().rate_since(&begin));
            }
            over.store(true, Ordering::Relaxed);
            rates
        });
        let rate = read().unwrap().rate_since(&first).unwrap();
        assert!(!rates.is_empty());
        for short in rates {
            // What NTP slews the clock by is included.
            assert!((short / rate - 1.0).abs() < 5e-4, "{short} of {rate}");
        }
    }
}
