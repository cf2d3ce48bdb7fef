//! Reads a host while load runs: one folder per probe in `probes`.
//!
//! An [`Observer`] is opened for a request, attached, told the edges of a window and detached; what
//! it saw is an [`wirecost_model::observe::ObserverReport`]. Hooks exist only between attach and
//! detach, and are gone with the process however it ends: they hang on descriptors.

mod bpf;
mod driver_counters;
mod empty;
mod observer;
mod probe;
mod probes;
mod sampler;
mod series;
mod slices;
mod tracker;

pub use bpf::BpfError;
pub use empty::EmptyHooks;
pub use observer::Observer;
pub use probe::Description;
pub use probes::{Set, describe, layers, names};
