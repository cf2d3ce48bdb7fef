//! CLOCK_MONOTONIC: the only clock that measurements use.

use std::io;

use rustix::thread::{NanosleepRelativeResult, clock_nanosleep_absolute};
use rustix::time::{ClockId, Timespec, clock_gettime};
use wirecost_model::clock::{Clock, Nanos, SECOND};

/// This host's CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    #[inline]
    fn now(&self) -> Nanos {
        from_timespec(clock_gettime(ClockId::Monotonic))
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu_time() -> Nanos {
    from_timespec(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps until the monotonic clock shows `instant`.
///
/// # Errors
/// When a signal ended the sleep.
pub fn sleep_until(instant: Nanos) -> io::Result<()> {
    clock_nanosleep_absolute(ClockId::Monotonic, &timespec(instant)).map_err(io::Error::from)
}

/// Wall-clock time in milliseconds since 1970, for display only.
pub fn unix_ms() -> f64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// `Nanos` as the kernel takes it.
pub fn timespec(length: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(length / SECOND).unwrap_or(i64::MAX),
        tv_nsec: (length % SECOND) as i64,
    }
}

#[inline]
fn from_timespec(time: Timespec) -> Nanos {
    // Both fields of a monotonic time are not negative.
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}

/// Sleeps for `length`; shorter when a signal comes.
pub fn sleep(length: Nanos) {
    match rustix::thread::nanosleep(&timespec(length)) {
        NanosleepRelativeResult::Ok
        | NanosleepRelativeResult::Interrupted(_)
        | NanosleepRelativeResult::Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_until_an_instant_reaches_it() {
        let due = Monotonic.now() + 2_000_000;
        sleep_until(due).unwrap();
        assert!(Monotonic.now() >= due);
    }
}
