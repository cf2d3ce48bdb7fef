//! What BIC was given in each call and what it made of it, as `trace.h` writes it.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object, RingBufferBuilder};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// An object that records the calls of the kernel's own BIC (module `tcp_bic`), for tests.
pub const OF_KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bic_kernel_trace.bpf.o"));

/// A function of `struct tcp_congestion_ops`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Init,
    CongAvoid,
    Ssthresh,
    SetState,
    PktsAcked,
    UndoCwnd,
}

impl Call {
    const ALL: [Self; 6] = [
        Self::Init,
        Self::CongAvoid,
        Self::Ssthresh,
        Self::SetState,
        Self::PktsAcked,
        Self::UndoCwnd,
    ];
}

/// What the socket had: windows in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Window {
    pub cwnd: u32,
    /// Acknowledged segments that the window has not grown by yet.
    pub cwnd_cnt: u32,
    pub ssthresh: u32,
    pub clamp: u32,
    /// Window before the last reduction.
    pub prior_cwnd: u32,
    /// Most segments that were in flight in the last window.
    pub max_packets_out: u32,
    /// 1 where the window was what limited sending.
    pub is_cwnd_limited: u32,
    /// `enum tcp_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u32,
}

/// What BIC keeps of a socket: `struct bic` of `socket.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct State {
    /// Acknowledged segments for each that the window grows by.
    pub cnt: u32,
    pub last_max_cwnd: u32,
    pub last_cwnd: u32,
    /// Jiffies.
    pub last_time: u32,
    /// Jiffies.
    pub epoch_start: u32,
    /// Segments for each acknowledgement, in sixteenths.
    pub delayed_ack: u32,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    /// The same for all calls of a socket. The kernel may use it again once the socket is gone.
    pub socket: u64,
    pub(super) call: u32,
    /// Segments acknowledged, or the new state.
    pub argument: u32,
    /// What the call returned.
    pub result: u32,
    pub jiffies_before: u32,
    pub jiffies_after: u32,
    pub(super) unused: u32,
    pub before: Window,
    pub after: Window,
    pub state: State,
}

impl Event {
    /// `None` for a number that is none.
    #[must_use]
    pub fn call(&self) -> Option<Call> {
        Call::ALL.get(self.call as usize).copied()
    }
}

/// All events that an object has recorded since it was last asked, and how many were lost.
///
/// # Errors
/// An object without the maps, or an event of another size.
pub fn read(object: &Object) -> libbpf_rs::Result<(Vec<Event>, u64)> {
    let map = |name: &str| {
        let missing = || libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound));
        object.maps().find(|map| map.name() == name).ok_or_else(missing)
    };
    let (ring, lost) = (map("trace")?, map("lost")?);
    let mut events = Vec::new();
    let mut unreadable = 0;
    let mut builder = RingBufferBuilder::new();
    builder.add(&ring, |bytes| {
        match Event::read_from_bytes(bytes) {
            Ok(event) => events.push(event),
            Err(_) => unreadable += 1,
        }
        0
    })?;
    let reader = builder.build()?;
    reader.poll(Duration::ZERO)?;
    reader.consume()?;
    drop(reader);
    let count = lost.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
    let count = count.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Ok((events, count + unreadable))
}
