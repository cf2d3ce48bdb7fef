//! Windows, intervals and clocks that were off.

use serde::{Deserialize, Serialize};

use super::Problem;

/// Intervals whose snapshot was late by more than half an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LostIntervals {
    pub host: String,
    pub lost: u64,
    pub of: u64,
}

impl Problem for LostIntervals {
    fn code(&self) -> &'static str {
        "lost-intervals"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, lost, of } = self;
        format!(
            "{lost} of {of} snapshots of {host} were late: use a longer --interval or leave the host a \
             free CPU"
        )
    }

    fn brief(&self) -> String {
        let Self { host, lost, of } = self;
        format!("{lost} of {of} snapshots of {host} were late")
    }
}

/// The window of a host began or ended at another instant than planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowSkew {
    pub host: String,
    pub milliseconds: f64,
}

impl Problem for WindowSkew {
    fn code(&self) -> &'static str {
        "window-skew"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, milliseconds } = self;
        format!(
            "the window of {host} was off by {milliseconds:.1} ms: the host was too busy to take \
             snapshots of its counters on time"
        )
    }

    fn brief(&self) -> String {
        let Self { host, milliseconds } = self;
        format!("the window of {host} was off by {milliseconds:.1} ms")
    }
}

/// Clocks of two machines could only be matched this well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockOffset {
    pub host: String,
    pub error_us: f64,
}

impl Problem for ClockOffset {
    fn code(&self) -> &'static str {
        "clock-offset"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, error_us } = self;
        format!(
            "the clock offset of {host} is uncertain by {error_us:.0} us, and so are its window edges"
        )
    }

    fn brief(&self) -> String {
        let Self { host, error_us } = self;
        format!("the clock offset of {host} is uncertain by {error_us:.0} us")
    }
}

/// Traffic stood still in the window though operations were under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadTime {
    /// In the window, together; the longest of these times, also as far as it lies beside the window;
    /// and the window itself.
    pub seconds: f64,
    pub longest: f64,
    pub window: f64,
    /// Those whose traffic stood still.
    pub hosts: Vec<String>,
}

impl Problem for DeadTime {
    fn code(&self) -> &'static str {
        "dead-time"
    }

    fn message(&self) -> String {
        let Self { seconds, longest, window, hosts } = self;
        let share = seconds * 100.0 / window;
        let beyond = match longest > seconds {
            true => format!(", part of a gap of {longest:.1} s"),
            false => String::new(),
        };
        format!(
            "no byte moved for {seconds:.1} s of the window ({share:.0}%){beyond}, although operations \
             were pending on {}: a link was down, a host was stopped, or all packets were lost",
            hosts.join(" and ")
        )
    }

    fn brief(&self) -> String {
        let Self { seconds, window, .. } = self;
        let share = seconds * 100.0 / window;
        format!("no byte moved for {seconds:.1} s of the window ({share:.0}%)")
    }
}
