//! BIC in plain Rust: what the BPF program and the kernel's module `tcp_bic` must do in every call. A trace of either is
//! replayed, and agrees exactly or not at all.
//!
//! L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks", IEEE INFOCOM
//! 2004, <https://doi.org/10.1109/INFCOM.2004.1354672>; integer arithmetic as in
//! <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_bic.c>.

use std::collections::BTreeMap;

use super::trace::{Call, Event, State, Window};

/// Segments that the window grows by in a round trip at most.
pub const SMAX: u32 = 16;
/// A search step goes to a quarter of the distance.
const B: u32 = 4;
const SMOOTH_PART: u32 = 20;
/// Up to this window it is Reno.
pub const LOW_WINDOW: u32 = 14;
const BETA: u32 = 819;
const BETA_SCALE: u32 = 1024;
/// Ticks in a call that are tried: more than a machine stands still, and few enough to try for a trace that is wrong.
const MOST_TICKS: u32 = 100_000;
const OPEN: u32 = 0;
const LOSS: u32 = 4;

/// A part of the algorithm that decides what a call makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// The window did not limit the flow, and does not grow.
    NotLimited,
    /// Below the slow start threshold.
    SlowStart,
    /// Up to [`LOW_WINDOW`] the window grows as with Reno, which is all that BIC has of TCP friendliness.
    LowWindow,
    /// The flow has had no loss, or a timeout: growth by 5% in a round trip at least.
    NoMaximum,
    /// Far below the last maximum: growth by Smax.
    AdditiveIncrease,
    /// Below the last maximum: growth by a part of the distance.
    BinarySearch,
    /// Just below the last maximum: less than a segment in a round trip, which stands for Smin.
    SmallestStep,
    /// Just beyond the last maximum: the same.
    SlowProbing,
    /// Beyond the last maximum: growth that accelerates.
    MaxProbing,
    /// Far beyond the last maximum: growth by Smax.
    FastProbing,
    /// A loss at the last maximum or beyond: this window is the new one.
    NewMaximum,
    /// A loss below the last maximum: the new one is lower than this window.
    FastConvergence,
    /// A loss leaves 819/1024 of the window.
    Decrease,
    /// Up to [`LOW_WINDOW`], a loss leaves half of the window, as with Reno.
    LowWindowDecrease,
    /// After a timeout nothing is known of the path.
    Timeout,
}

impl Mechanism {
    pub const ALL: [Self; 15] = [
        Self::NotLimited,
        Self::SlowStart,
        Self::LowWindow,
        Self::NoMaximum,
        Self::AdditiveIncrease,
        Self::BinarySearch,
        Self::SmallestStep,
        Self::SlowProbing,
        Self::MaxProbing,
        Self::FastProbing,
        Self::NewMaximum,
        Self::FastConvergence,
        Self::Decrease,
        Self::LowWindowDecrease,
        Self::Timeout,
    ];
}

/// What decided a call: at most two mechanisms, one after the other.
type Decided = [Option<Mechanism>; 2];

impl State {
    /// Of a socket that has moved nothing: two segments for each acknowledgement are expected.
    pub const NEW: Self = Self {
        cnt: 0,
        last_max_cwnd: 0,
        last_cwnd: 0,
        last_time: 0,
        epoch_start: 0,
        delayed_ack: 2 << 4,
    };

    /// Acknowledged segments for each that the window grows by, at this window. `hz` are the jiffies of a second. Returns
    /// what decided it; `None` where it is as before.
    fn update(&mut self, cwnd: u32, now: u32, hz: u32) -> Option<Mechanism> {
        let since = now.wrapping_sub(self.last_time) as i32;
        if self.last_cwnd == cwnd && since <= (hz / 32) as i32 {
            return None;
        }
        (self.last_cwnd, self.last_time) = (cwnd, now);
        if self.epoch_start == 0 {
            self.epoch_start = now;
        }
        if cwnd <= LOW_WINDOW {
            self.cnt = cwnd;
            return Some(Mechanism::LowWindow);
        }
        let (cnt, mechanism) = self.segments_for_one(cwnd);
        // An average of 0 does not occur: it falls by less than a sixteenth of itself at once.
        let cnt = (cnt << 4).checked_div(self.delayed_ack).unwrap_or(cnt);
        self.cnt = cnt.max(1);
        // Growth by each acknowledged segment is what several mechanisms come to with few acknowledgements.
        (cnt > 1).then_some(mechanism)
    }

    fn segments_for_one(&self, cwnd: u32) -> (u32, Mechanism) {
        let slowly = cwnd.wrapping_mul(SMOOTH_PART) / B;
        let (cnt, mechanism) = match cwnd.checked_sub(self.last_max_cwnd) {
            // Below the maximum, by more than nothing.
            None => match (self.last_max_cwnd - cwnd) / B {
                0 | 1 => (slowly, Mechanism::SmallestStep),
                distance if distance > SMAX => (cwnd / SMAX, Mechanism::AdditiveIncrease),
                distance => (cwnd / distance, Mechanism::BinarySearch),
            },
            Some(beyond) if beyond < B => (slowly, Mechanism::SlowProbing),
            Some(beyond) if beyond < SMAX * (B - 1) => {
                (cwnd.wrapping_mul(B - 1) / beyond, Mechanism::MaxProbing)
            }
            Some(_) => (cwnd / SMAX, Mechanism::FastProbing),
        };
        match self.last_max_cwnd {
            0 => (cnt.min(20), Mechanism::NoMaximum),
            _ => (cnt, mechanism),
        }
    }

    /// Segments were acknowledged: returns the window, the count of segments that it has not grown by, and what decided
    /// it.
    #[must_use]
    fn cong_avoid(
        &mut self,
        given: &Window,
        acked: u32,
        now: u32,
        hz: u32,
    ) -> ((u32, u32), Decided) {
        let Window { cwnd, cwnd_cnt, ssthresh, clamp, max_packets_out, .. } = *given;
        let in_slow_start = cwnd < ssthresh;
        let is_limited =
            given.is_cwnd_limited != 0 || in_slow_start && cwnd < max_packets_out.wrapping_mul(2);
        if !is_limited {
            return ((cwnd, cwnd_cnt), [Some(Mechanism::NotLimited), None]);
        }
        let started = in_slow_start.then_some(Mechanism::SlowStart);
        let (mut cwnd, mut acked) = (cwnd, acked);
        if in_slow_start {
            let grown = cwnd.wrapping_add(acked).min(ssthresh);
            acked = acked.wrapping_sub(grown.wrapping_sub(cwnd));
            cwnd = grown.min(clamp);
            if acked == 0 {
                return ((cwnd, cwnd_cnt), [started, None]);
            }
        }
        let updated = self.update(cwnd, now, hz);
        (additive_increase(cwnd, cwnd_cnt, clamp, self.cnt, acked), [started, updated])
    }

    /// Segments were lost: the new slow start threshold, and what decided it.
    #[must_use]
    fn ssthresh(&mut self, cwnd: u32) -> (u32, Decided) {
        self.epoch_start = 0;
        let (maximum, of_maximum) = match cwnd < self.last_max_cwnd {
            true => (
                cwnd.wrapping_mul(BETA_SCALE + BETA) / (2 * BETA_SCALE),
                Mechanism::FastConvergence,
            ),
            false => (cwnd, Mechanism::NewMaximum),
        };
        self.last_max_cwnd = maximum;
        let (less, of_window) = match cwnd {
            ..=LOW_WINDOW => (cwnd / 2, Mechanism::LowWindowDecrease),
            _ => (cwnd.wrapping_mul(BETA) / BETA_SCALE, Mechanism::Decrease),
        };
        (less.max(2), [Some(of_maximum), Some(of_window)])
    }

    fn set_state(&mut self, state: u32) -> Decided {
        if state != LOSS {
            return [None, None];
        }
        *self = Self::NEW;
        [Some(Mechanism::Timeout), None]
    }

    fn packets_acked(&mut self, ca_state: u32, packets: u32) {
        if ca_state == OPEN {
            let step = packets.wrapping_sub(self.delayed_ack >> 4);
            self.delayed_ack = self.delayed_ack.wrapping_add(step);
        }
    }
}

/// The kernel's `tcp_cong_avoid_ai` (<https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_cong.c>).
fn additive_increase(cwnd: u32, cwnd_cnt: u32, clamp: u32, w: u32, acked: u32) -> (u32, u32) {
    let (mut cwnd, mut count) = (cwnd, cwnd_cnt);
    if count >= w {
        count = 0;
        cwnd = cwnd.wrapping_add(1);
    }
    count = count.wrapping_add(acked);
    if count >= w {
        let more = count.checked_div(w).unwrap_or(0);
        count -= more * w;
        cwnd = cwnd.wrapping_add(more);
    }
    (cwnd.min(clamp), count)
}

/// What a trace had that the model agrees with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agreement {
    /// Calls that were replayed.
    pub calls: BTreeMap<Call, u64>,
    /// Of them, calls that agree at a later tick than that at which they began.
    pub ticked: u64,
    /// Calls of sockets whose beginning the trace does not have.
    pub without_beginning: u64,
    pub sockets: u64,
    /// What decided the calls. Growth is not counted where it is by each acknowledged segment, as several mechanisms come
    /// to that.
    pub mechanisms: BTreeMap<Mechanism, u64>,
}

impl Agreement {
    /// Calls that this mechanism has decided.
    #[must_use]
    pub fn decided_by(&self, mechanism: Mechanism) -> u64 {
        self.mechanisms.get(&mechanism).copied().unwrap_or(0)
    }
}

/// Where a trace and the model part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {number} of the trace: the model makes {expected} of {event:?}")]
pub struct Disagreement {
    pub number: usize,
    pub event: Box<Event>,
    pub expected: String,
}

/// Replays a trace. `hz` are the jiffies of a second of the kernel that it comes from.
///
/// # Errors
/// The first call that the model makes something else of.
pub fn replay(events: &[Event], hz: u32) -> Result<Agreement, Disagreement> {
    let mut replay = Replay::new(hz);
    events.iter().try_for_each(|event| replay.add(event))?;
    Ok(replay.agreement)
}

/// The replay of a trace that goes on.
#[derive(Debug)]
pub struct Replay {
    hz: u32,
    number: usize,
    sockets: BTreeMap<u64, State>,
    agreement: Agreement,
}

impl Replay {
    #[must_use]
    pub fn new(hz: u32) -> Self {
        Self { hz, number: 0, sockets: BTreeMap::new(), agreement: Agreement::default() }
    }

    /// What the trace had so far.
    #[must_use]
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Replays the next event.
    ///
    /// # Errors
    /// The model makes something else of it.
    pub fn add(&mut self, event: &Event) -> Result<(), Disagreement> {
        let (number, hz) = (self.number, self.hz);
        self.number += 1;
        let disagreement =
            |expected: String| Disagreement { number, event: Box::new(*event), expected };
        let call = event.call().ok_or_else(|| disagreement("nothing".to_owned()))?;
        if call == Call::Init {
            self.sockets.insert(event.socket, State::NEW);
            self.agreement.sockets += 1;
        }
        let Some(state) = self.sockets.get_mut(&event.socket) else {
            self.agreement.without_beginning += 1;
            return Ok(());
        };
        let seen = Outcome::seen(call, event);
        // The call read the clock at one of these ticks, all of which are tried: a host of a hypervisor can
        // stand still for several.
        let ticks = event.jiffies_after.wrapping_sub(event.jiffies_before).min(MOST_TICKS);
        let made = |tick| expected(state, call, event, event.jiffies_before.wrapping_add(tick), hz);
        let agrees = |tick| Some((tick, made(tick))).filter(|(_, (outcome, _))| *outcome == seen);
        let Some((tick, (_, decided))) = (0..=ticks).find_map(agrees) else {
            return Err(disagreement(format!("{:?}", made(0).0)));
        };
        self.agreement.ticked += u64::from(tick > 0);
        for mechanism in decided.into_iter().flatten() {
            *self.agreement.mechanisms.entry(mechanism).or_default() += 1;
        }
        *state = event.state;
        *self.agreement.calls.entry(call).or_default() += 1;
        Ok(())
    }
}

/// What a call makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    state: State,
    cwnd: u32,
    cwnd_cnt: u32,
    result: u32,
}

impl Outcome {
    fn seen(call: Call, event: &Event) -> Self {
        let Window { cwnd, cwnd_cnt, .. } = event.after;
        let result = match call {
            Call::Ssthresh | Call::UndoCwnd => event.result,
            Call::Init | Call::CongAvoid | Call::SetState | Call::PktsAcked => 0,
        };
        Self { state: event.state, cwnd, cwnd_cnt, result }
    }
}

fn expected(state: &State, call: Call, event: &Event, now: u32, hz: u32) -> (Outcome, Decided) {
    let (mut state, given) = (*state, &event.before);
    let Window { mut cwnd, mut cwnd_cnt, .. } = *given;
    let (mut result, mut decided) = (0, [None, None]);
    match call {
        Call::Init => {}
        Call::CongAvoid => {
            ((cwnd, cwnd_cnt), decided) = state.cong_avoid(given, event.argument, now, hz);
        }
        Call::Ssthresh => (result, decided) = state.ssthresh(cwnd),
        Call::SetState => decided = state.set_state(event.argument),
        Call::PktsAcked => state.packets_acked(given.ca_state, event.argument),
        Call::UndoCwnd => result = cwnd.max(given.prior_cwnd),
    }
    (Outcome { state, cwnd, cwnd_cnt, result }, decided)
}

#[cfg(test)]
mod tests;
