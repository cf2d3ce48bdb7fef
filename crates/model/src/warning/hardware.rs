//! What changed under a run: devices, their interrupts, and the clock of the CPUs.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::units::counted;

/// The link of a device changed: speed, duplex, or whether there was one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkChanged {
    pub host: String,
    pub device: String,
    /// Each as `speed from 10.0 Gb/s to 1.00 Gb/s`.
    pub changes: Vec<String>,
}

impl Problem for LinkChanged {
    fn code(&self) -> &'static str {
        "link-changed"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: the result mixes different link states; check cable, switch and link partner, and repeat the run",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, device, changes } = self;
        format!("the link of {device} on {host} changed during the window: {}", changes.join(", "))
    }
}

/// Somebody, or the driver, changed how a device works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSettingsChanged {
    pub host: String,
    pub device: String,
    /// Each as `rx-gro from on to off`.
    pub changes: Vec<String>,
}

impl Problem for DeviceSettingsChanged {
    fn code(&self) -> &'static str {
        "device-settings-changed"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: the result mixes both settings; find the program that changes them (for coalescing, the \
             driver's adaptive mode), and repeat the run",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, device, changes } = self;
        format!("settings of {device} on {host} changed during the window: {}", changes.join(", "))
    }
}

/// Interrupts of a device went to other CPUs than before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterruptsMoved {
    pub host: String,
    pub device: String,
    /// Each as `IRQ 41 (eth0-TxRx-1) from CPU 3 to CPU 0`.
    pub changes: Vec<String>,
}

impl Problem for InterruptsMoved {
    fn code(&self) -> &'static str {
        "interrupts-moved"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: figures per CPU and queue mix both placements; stop irqbalance and set the affinity \
             before the run",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, device, changes } = self;
        let number = counted(changes.len() as u64, "interrupt", "interrupts");
        format!("{number} of {device} on {host} moved during the window: {}", changes.join(", "))
    }
}

/// One end of a wire stopped the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PauseFramesSeen {
    pub host: String,
    pub device: String,
    pub received: u64,
    pub sent: u64,
}

impl Problem for PauseFramesSeen {
    fn code(&self) -> &'static str {
        "pause-frames"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let mut causes = Vec::new();
        if self.received > 0 {
            causes.push("the link partner limited what this host sent");
        }
        if self.sent > 0 {
            causes.push("this host was too slow to receive and limited its link partner");
        }
        format!(
            "{}: {}; to measure without flow control, switch it off at both ends (ethtool -A {} rx off tx off)",
            self.brief(),
            causes.join(", and "),
            self.device
        )
    }

    fn brief(&self) -> String {
        let Self { host, device, received, sent } = self;
        format!("{device} of {host} received {received} and sent {sent} pause frames")
    }
}

/// The clock of the CPUs rose or fell while it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockChanged {
    pub host: String,
    pub from_ghz: f64,
    pub to_ghz: f64,
    /// Since the beginning of the window.
    pub seconds: f64,
}

impl Problem for ClockChanged {
    fn code(&self) -> &'static str {
        "clock-changed"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: times and rates mix both clock frequencies; set the performance governor, disable turbo or let the \
             machine warm up first, and repeat the run",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, from_ghz, to_ghz, seconds } = self;
        let way = if to_ghz < from_ghz { "fell" } else { "rose" };
        format!(
            "clock of {host} {way} from {from_ghz:.1} to {to_ghz:.1} GHz after {seconds:.1} s of the window"
        )
    }
}

/// Somebody changed what decides on the clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockSettingsChanged {
    pub host: String,
    /// Each as `turbo from on to off`.
    pub changes: Vec<String>,
}

impl Problem for ClockSettingsChanged {
    fn code(&self) -> &'static str {
        "clock-settings-changed"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!("{}: find the program that changes them, and repeat the run", self.brief())
    }

    fn brief(&self) -> String {
        let Self { host, changes } = self;
        format!("clock settings of {host} changed during the window: {}", changes.join(", "))
    }
}

/// CPUs were slowed down by heat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throttled {
    pub host: String,
    /// Of cores and packages.
    pub events: u64,
    /// The longest of one of them, where the kernel tells it.
    pub milliseconds: Option<u64>,
}

impl Problem for Throttled {
    fn code(&self) -> &'static str {
        "throttled"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: the result includes thermal throttling; check the cooling and repeat the run",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, events, milliseconds } = self;
        let times = counted(*events, "time", "times");
        let long = milliseconds
            .map(|ms| format!(", {ms} ms in the most affected core or package"))
            .unwrap_or_default();
        format!("heat slowed down CPUs of {host} {times} during the window{long}")
    }
}
