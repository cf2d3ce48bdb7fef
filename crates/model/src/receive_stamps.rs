//! Time from the driver to the application, by the kernel's receive stamps on some sockets (`--receive-stamps`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::run::Latency;

/// One strand in so many has its sockets stamped.
pub const ONE_IN: u32 = 64;

/// Why a message of a stamped socket has no time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Unstamped {
    /// The kernel gave no stamp: the message came before stamps were on.
    NoStamp,
    /// It was read by a call that takes no stamp (`splice`, `discard`).
    Call,
}

impl Unstamped {
    /// In words, for a person.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Unstamped::NoStamp => "the kernel gave no stamp (they came before stamps were on)",
            Unstamped::Call => "read by a call that takes no stamp (splice, discard)",
        }
    }
}

/// Why a socket of a strand that was chosen is not stamped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NotSampled {
    /// TLS reads the socket by calls of its own.
    Tls,
    /// Its protocol moves no packets of a device: a Unix socket, or one between a virtual machine and its host.
    NoPackets,
    /// The kernel refused the option.
    Refused,
}

impl NotSampled {
    /// In words, for a person.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            NotSampled::Tls => "TLS reads them by calls that take no stamp",
            NotSampled::NoPackets => "their protocol has no packets of a device",
            NotSampled::Refused => "the kernel refused SO_TIMESTAMPING",
        }
    }
}

/// What stamped sockets of a host have read in the window of a phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StampCounts {
    /// Stamped sockets that were open in the phase.
    pub sockets: u64,
    pub not_sampled: BTreeMap<NotSampled, u64>,
    /// Messages that they have read.
    pub messages: u64,
    /// From the stamp to after the call that read the message, nanoseconds.
    pub delays: Histogram,
    /// Messages with a stamp that was later than the clock after the call.
    pub negative: u64,
    pub unstamped: BTreeMap<Unstamped, u64>,
    /// Messages with a stamp of the device too.
    pub by_device: u64,
    /// By how much somebody has set CLOCK_REALTIME during the phase, nanoseconds; 0 where that is no more than the error
    /// of reading it.
    pub clock_step: i64,
}

impl StampCounts {
    /// Adds those of another worker.
    pub fn add(&mut self, other: &Self) {
        self.sockets += other.sockets;
        self.messages += other.messages;
        self.delays.merge(&other.delays);
        self.negative += other.negative;
        self.by_device += other.by_device;
        for (reason, count) in &other.not_sampled {
            *self.not_sampled.entry(*reason).or_default() += count;
        }
        for (reason, count) in &other.unstamped {
            *self.unstamped.entry(*reason).or_default() += count;
        }
        // All workers see the same clock.
        if other.clock_step.unsigned_abs() > self.clock_step.unsigned_abs() {
            self.clock_step = other.clock_step;
        }
    }
}

/// Time from the driver to the application on the sockets of one strand in 64, at least one of each worker and group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiveStamps {
    /// Sockets with stamps that were open in the phase.
    pub sockets: u64,
    /// Sockets that were chosen and could not be stamped.
    pub not_sampled: Vec<NotSampledSockets>,
    /// Messages that these sockets read in the window: datagrams, or as many as the kernel joined to one; of a stream,
    /// what one call read. They are those of `delay_us`, `negative` and `unstamped`.
    pub messages: u64,
    /// From the stamp, when the driver handed the packet to the network stack, until after the call that read it. Of a
    /// stream, from the last segment of which the call read bytes. Null where no message has such a time.
    pub delay_us: Option<Latency>,
    /// Messages whose stamp is later than the clock after the call, as CLOCK_REALTIME was set back in between. They are
    /// not in `delay_us`.
    pub negative: u64,
    /// Messages without a time.
    pub unstamped: Vec<UnstampedMessages>,
    /// Messages that the device has stamped too. Its clock is another one, so there is no time from it.
    pub by_device: u64,
    /// By how much CLOCK_REALTIME was set during the phase, microseconds: so much the times of messages may be wrong
    /// that were under way then. Null where it was not.
    pub clock_step_us: Option<f64>,
}

impl ReceiveStamps {
    /// Why there is no time.
    #[must_use]
    pub fn no_delay(&self) -> String {
        if self.messages > 0 {
            let reasons = self.unstamped.iter().map(|of| of.reason.reason());
            let set_back = (self.negative > 0).then_some("the clock was set back");
            let reasons: Vec<_> = reasons.chain(set_back).collect();
            return format!("no message has a time: {}", reasons.join("; "));
        }
        match self.not_sampled.first() {
            Some(sockets) if self.sockets == 0 => {
                format!("no socket was stamped: {}", sockets.reason.reason())
            }
            _ if self.sockets == 0 => "no socket was stamped: the host had none open".to_owned(),
            _ => "the stamped sockets received nothing in the window".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotSampledSockets {
    pub reason: NotSampled,
    pub sockets: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnstampedMessages {
    pub reason: Unstamped,
    pub messages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_workers_add_up() {
        let mut counts =
            StampCounts { sockets: 1, messages: 4, clock_step: -3, ..Default::default() };
        counts.delays.record_many(1_000, 2);
        counts.negative = 1;
        counts.unstamped.insert(Unstamped::NoStamp, 1);
        counts.not_sampled.insert(NotSampled::Tls, 5);
        let mut sum = StampCounts { clock_step: 2, ..StampCounts::default() };
        sum.add(&counts);
        sum.add(&counts);
        assert_eq!((sum.sockets, sum.messages, sum.delays.count(), sum.negative), (2, 8, 4, 2));
        assert_eq!(sum.unstamped, [(Unstamped::NoStamp, 2)].into());
        assert_eq!(sum.not_sampled, [(NotSampled::Tls, 10)].into());
        assert_eq!(sum.clock_step, -3);
    }
}
