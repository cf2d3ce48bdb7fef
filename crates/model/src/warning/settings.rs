//! Settings that were not granted, did nothing, or do not do what a reader may think.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::tuning::NotRestored;

/// The file says something whose effect on a number a reader may not expect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub line: u32,
    pub column: u32,
    pub text: String,
}

impl Problem for Profile {
    fn code(&self) -> &'static str {
        "profile"
    }

    fn message(&self) -> String {
        format!("{}:{}: {}", self.line, self.column, self.text)
    }

    fn brief(&self) -> String {
        let Self { line, column, text } = self;
        let first = text.split("; ").next().unwrap_or_default();
        format!("{line}:{column}: {first}")
    }
}

/// A setting that a run had changed does not have its previous value again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingLeft {
    pub host: String,
    pub setting: NotRestored,
}

impl Problem for SettingLeft {
    fn code(&self) -> &'static str {
        "setting-left"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!("{}; its value before the run was `{}`", self.brief(), self.setting.previous)
    }

    fn brief(&self) -> String {
        let NotRestored { name, place, why, .. } = &self.setting;
        format!("{}: {name} of {place} was not restored: {why}", self.host)
    }
}

/// The kernel granted another value than the profile asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClippedSetting {
    pub host: String,
    pub name: String,
    pub requested: String,
    pub effective: String,
    pub remedy: String,
}

impl Problem for ClippedSetting {
    fn code(&self) -> &'static str {
        "clipped-setting"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, name, requested, effective, remedy } = self;
        format!("{host} set {name}={effective} instead of the requested {requested}; {remedy}")
    }

    fn brief(&self) -> String {
        let Self { host, name, requested, effective, .. } = self;
        format!("{host} set {name}={effective} instead of {requested}")
    }
}

/// An engine or option could not be used and another was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fallback {
    pub host: String,
    pub wanted: String,
    pub used: String,
    pub reason: String,
}

impl Problem for Fallback {
    fn code(&self) -> &'static str {
        "fallback"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, wanted, used, reason } = self;
        format!("{host} used {used} instead of {wanted}: {reason}")
    }

    fn brief(&self) -> String {
        let Self { host, wanted, used, .. } = self;
        format!("{host} used {used} instead of {wanted}")
    }
}

/// An option that was set changed nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoEffect {
    pub host: String,
    pub option: String,
    pub reason: String,
}

impl Problem for NoEffect {
    fn code(&self) -> &'static str {
        "no-effect"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, option, reason } = self;
        format!("{option} had no effect on {host}: {reason}")
    }

    fn brief(&self) -> String {
        let Self { host, option, .. } = self;
        format!("{option} had no effect on {host}")
    }
}

/// A queueing discipline that holds packets back until their departure times has room for fewer than there may be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepartureQueueShort {
    pub host: String,
    pub device: String,
    /// Packets of each socket that it holds, and that may wait.
    pub limit: u64,
    pub most: u64,
}

impl Problem for DepartureQueueShort {
    fn code(&self) -> &'static str {
        "departure-queue-short"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { device, limit, most, .. } = self;
        format!(
            "{}: use a shorter txtime or a smaller batch, or `tc qdisc replace dev {device} root fq limit {} flow_limit {}`",
            self.brief(),
            (100 * most).max(10_000),
            most.max(limit),
        )
    }

    fn brief(&self) -> String {
        let Self { host, device, limit, most } = self;
        format!(
            "fq on {device} of {host} drops packets if more than {limit} of a socket wait for their departure time, \
             and {most} may"
        )
    }
}

/// Whether the kernel heeds the departure times of packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepartureTimesUnknown {
    pub host: String,
    pub reason: String,
}

impl Problem for DepartureTimesUnknown {
    fn code(&self) -> &'static str {
        "departure-times-unknown"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, reason } = self;
        format!(
            "it is unknown whether {host} held its datagrams back until their departure times (txtime): {reason}. \
             One-way delays of 0 show that it did not"
        )
    }

    fn brief(&self) -> String {
        let Self { host, .. } = self;
        format!("it is unknown whether {host} held its datagrams back until their departure times")
    }
}

/// Zero-copy that the kernel made copies for all the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZeroCopyCopied {
    pub percent: f64,
}

impl Problem for ZeroCopyCopied {
    fn code(&self) -> &'static str {
        "zerocopy-copied"
    }

    fn message(&self) -> String {
        format!(
            "the kernel still copied {:.0}% of the zero-copy sends: it does so on loopback, and for \
             devices without scatter-gather",
            self.percent
        )
    }

    fn brief(&self) -> String {
        format!("the kernel still copied {:.0}% of the zero-copy sends", self.percent)
    }
}

/// Sends that were to be without a copy and for which the kernel had no means left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZeroCopyRefused {
    pub host: String,
    pub refused: u64,
    pub of: u64,
}

impl Problem for ZeroCopyRefused {
    fn code(&self) -> &'static str {
        "zerocopy-refused"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, refused, of } = self;
        format!(
            "the kernel of {host} refused {refused} of {of} zero-copy sends, so they were sent with a \
             copy: on {host}, raise net.core.optmem_max or, for an ordinary user, the locked-memory \
             limit (ulimit -l)"
        )
    }

    fn brief(&self) -> String {
        let Self { host, refused, of } = self;
        format!("the kernel of {host} refused {refused} of {of} zero-copy sends")
    }
}

/// Received bytes never came to the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Discarded {}

impl Problem for Discarded {
    fn code(&self) -> &'static str {
        "discarded"
    }

    fn message(&self) -> String {
        "discard: the kernel dropped received bytes without copying them to the receiver, which a \
         program that uses its data cannot do"
            .to_owned()
    }

    fn brief(&self) -> String {
        "discard: received bytes were not copied to the receiver".to_owned()
    }
}
