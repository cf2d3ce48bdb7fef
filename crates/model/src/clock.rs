//! Time as wirecost keeps it: nanoseconds of one host's CLOCK_MONOTONIC.

/// An instant of a host's monotonic clock, or a length of time, in nanoseconds.
pub type Nanos = u64;

pub const SECOND: Nanos = 1_000_000_000;
pub const MILLISECOND: Nanos = 1_000_000;
pub const MICROSECOND: Nanos = 1_000;

/// Where time comes from. Engines are given one, so tests can bring their own.
pub trait Clock {
    /// Nanoseconds since an arbitrary, fixed beginning; never goes back.
    fn now(&self) -> Nanos;
}

/// Seconds of a length of time.
pub fn seconds(length: Nanos) -> f64 {
    length as f64 / SECOND as f64
}

/// Nanoseconds of a [`std::time::Duration`]; at most `Nanos::MAX`, some 584 years.
pub fn nanos(length: std::time::Duration) -> Nanos {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
