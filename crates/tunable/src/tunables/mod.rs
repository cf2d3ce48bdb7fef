//! The settings themselves: a file for each, or for each family.

mod channels;
mod coalescing;
mod governor;
mod idle_limit;
mod irq_affinity;
mod mtu;
mod napi;
mod offloads;
mod pause;
mod pci_read_request;
mod qdisc;
mod queues;
mod rings;
mod rss;
mod sysctls;
mod turbo;
mod tx_queue_len;

use std::fmt::Debug;

use crate::target::{Refusal, Target};

/// One setting of a host. A value is text: what a user types, and what is read back.
pub trait Tunable: Sync + Debug {
    /// As a user types it: `tune.NAME`.
    fn name(&self) -> &'static str;

    /// What it is, in one sentence.
    fn about(&self) -> &'static str;

    fn scope(&self) -> Scope;

    /// The values that it takes, as in `expected ...`.
    fn values(&self) -> String;

    /// The value as it is read back; `None` for one that it cannot have anywhere.
    fn check(&self, value: &str) -> Option<String>;

    /// Whether the target has it, and it could be restored there.
    ///
    /// # Errors
    /// [`Refusal`] says what is missing.
    fn support(&self, target: &Target) -> Result<(), Refusal> {
        self.save(target).map(drop)
    }

    /// Its value now.
    ///
    /// # Errors
    /// [`Refusal`] when the target does not have it or does not let it be read.
    fn read(&self, target: &Target) -> Result<String, Refusal>;

    /// Sets a value that [`Tunable::check`] or [`Tunable::read`] returned.
    ///
    /// # Errors
    /// [`Refusal`] when the target does not take it. Part of it may be set then.
    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal>;

    /// All that is needed to restore it.
    ///
    /// # Errors
    /// As [`Tunable::read`], and when it could not be restored.
    fn save(&self, target: &Target) -> Result<String, Refusal> {
        self.read(target)
    }

    /// Restores what [`Tunable::save`] returned.
    ///
    /// # Errors
    /// As [`Tunable::write`].
    fn put_back(&self, target: &Target, saved: &str) -> Result<(), Refusal> {
        self.write(target, saved)
    }

    /// Tunables that a change of this one may change too; it may be among them.
    fn disturbs(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Other devices of which a change of this one may change this tunable too.
    ///
    /// # Errors
    /// When the kernel does not list devices.
    fn disturbed_devices(&self, _target: &Target) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    /// Its name for sysctl(8), if it is a sysctl.
    fn sysctl(&self) -> Option<String> {
        None
    }

    /// Tunables whose values this one takes when it is restored, so that they have to be restored before it.
    fn restored_after(&self) -> &'static [&'static str] {
        &[]
    }
}

/// What a tunable is a setting of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A network namespace.
    Namespace,
    /// A device of a network namespace.
    Device,
    /// A device on its bus, in whichever network namespace it is.
    Bus,
    /// The machine. A sysctl of the machine is only seen in its first network namespace.
    Machine,
}

impl Scope {
    /// Whether a device must be given.
    #[must_use]
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Device | Self::Bus)
    }

    /// As `network namespace`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "network namespace",
            Self::Device => "device",
            Self::Bus => "physical device",
            Self::Machine => "machine",
        }
    }
}

/// All tunables, by file.
pub static ALL: &[&[&dyn Tunable]] = &[
    sysctls::LIST,
    mtu::LIST,
    tx_queue_len::LIST,
    qdisc::LIST,
    offloads::LIST,
    rings::LIST,
    coalescing::LIST,
    pause::LIST,
    channels::LIST,
    rss::LIST,
    queues::LIST,
    napi::LIST,
    irq_affinity::LIST,
    pci_read_request::LIST,
    governor::LIST,
    turbo::LIST,
    idle_limit::LIST,
];

/// All tunables.
pub fn all() -> impl Iterator<Item = &'static dyn Tunable> {
    ALL.iter().flat_map(|family| family.iter().copied())
}
