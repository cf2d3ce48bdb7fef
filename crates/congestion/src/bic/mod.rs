//! BIC as our own BPF program, and its model.

pub mod model;
pub mod trace;

use std::time::Duration;

use rustix::time::{ClockId, clock_getres};
use wirecost_model::congestion::BPF_BIC;

use crate::Error;
use crate::object::Loaded;
use trace::Event;

pub(crate) const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bic_program.bpf.o"));

/// As `settings` in `program.bpf.c`.
fn settings(traces: bool) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&jiffies_per_second().to_ne_bytes());
    bytes[4..].copy_from_slice(&u32::from(traces).to_ne_bytes());
    bytes
}

/// CONFIG_HZ of the running kernel, which is the resolution of its coarse clock
/// (<https://elixir.bootlin.com/linux/v6.12/source/kernel/time/posix-timers.c>, `posix_get_coarse_res`).
#[must_use]
pub fn jiffies_per_second() -> u32 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let tick = Duration::try_from(tick).unwrap_or_default().as_nanos().max(1);
    // A tick is a rounded number of nanoseconds: the nearest rate.
    u32::try_from((1_000_000_000 + tick / 2) / tick).unwrap_or(u32::MAX)
}

/// Loads it, under a name that no other process has.
///
/// # Errors
/// What the kernel lacks or refuses.
pub fn load() -> Result<Loaded, Error> {
    Loaded::load(BPF_BIC, OBJECT, &settings(false), &["trace", "lost"])
}

/// BIC that records what it is given and what it makes of it, for tests.
#[derive(Debug)]
pub struct Traced {
    loaded: Loaded,
}

impl Traced {
    /// # Errors
    /// What the kernel lacks or refuses.
    pub fn load() -> Result<Self, Error> {
        Ok(Self { loaded: Loaded::load(BPF_BIC, OBJECT, &settings(true), &[])? })
    }

    /// For setsockopt(2), `TCP_CONGESTION`.
    #[must_use]
    pub fn kernel_name(&self) -> &str {
        self.loaded.kernel_name()
    }

    /// Events since the last call, and how many were lost.
    ///
    /// # Errors
    /// Those of reading maps.
    pub fn events(&self) -> Result<(Vec<Event>, u64), Error> {
        trace::read(self.loaded.object()).map_err(Error::of_libbpf)
    }
}
