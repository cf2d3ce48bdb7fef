//! CLOCK_MONOTONIC, the clock that measurements use, and CLOCK_REALTIME, the clock of the kernel's stamps.

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

/// The clock of one thread's CPU time, which all threads of its process can read.
///
/// The kernel brings the time of a running thread up to now when it is asked:
/// <https://elixir.bootlin.com/linux/v6.12/source/kernel/time/posix-cpu-timers.c#L357>.
#[derive(Debug, Clone, Copy)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// That of the calling thread; `None` where the C library has none.
    pub fn own() -> Option<Self> {
        let mut id = 0;
        // SAFETY: the calling thread is there, and `id` is a place for one number.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) };
        (error == 0).then_some(Self(id))
    }

    /// CPU time of the thread so far; `None` once it has ended.
    pub fn now(self) -> Option<Nanos> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a place for one time; of a clock that is gone there is an error.
        let error = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (error == 0).then(|| time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos)
    }
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

/// CLOCK_REALTIME, nanoseconds since 1970: the clock of the kernel's stamps of packets. It may be set while a program
/// runs.
#[inline]
pub fn realtime() -> Nanos {
    from_timespec(clock_gettime(ClockId::Realtime))
}

/// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, and how far this may be wrong, nanoseconds. It changes only when
/// somebody sets the clock: both run at the same rate, also where NTP changes it.
pub fn realtime_ahead() -> (i64, Nanos) {
    let reading = || {
        let before = Monotonic.now();
        let time = realtime();
        let width = Monotonic.now().saturating_sub(before);
        (width, time.wrapping_sub(before + width / 2).cast_signed())
    };
    // A thread may lose its CPU between two readings.
    let (width, ahead) = (0..5).map(|_| reading()).min().unwrap_or_default();
    (ahead, width)
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
    fn clocks_run_at_one_rate() {
        let (before, error) = realtime_ahead();
        sleep(20_000_000);
        let (after, also) = realtime_ahead();
        assert!(before.abs_diff(after) <= error + also, "{before} {after} {error} {also}");
    }

    #[test]
    fn sleeping_until_an_instant_reaches_it() {
        let due = Monotonic.now() + 2_000_000;
        sleep_until(due).unwrap();
        assert!(Monotonic.now() >= due);
    }

    #[test]
    fn the_clock_of_a_thread_is_read_from_another_until_it_has_ended() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu_time() < 3_000_000 {}
            tell.send((ThreadClock::own().unwrap(), thread_cpu_time())).unwrap();
            ended.recv().unwrap_err();
        });
        let (clock, before) = told.recv().unwrap();
        let mine = thread_cpu_time();
        let time = clock.now().unwrap();
        assert!(time >= before && before >= 3_000_000, "{time} {before}");
        // It sleeps, whatever this thread does.
        while thread_cpu_time() < mine + 20_000_000 {}
        assert!(clock.now().unwrap() - time < 10_000_000);
        drop(end);
        thread.join().unwrap();
        // Who joins is told (clear_child_tid, in mm_release) before the kernel lets go of the thread:
        // https://elixir.bootlin.com/linux/v6.12/source/kernel/fork.c
        while clock.now().is_some() {
            std::thread::yield_now();
        }
    }
}
