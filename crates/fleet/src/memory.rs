//! Whether the machines of a run have the memory that its hosts need, before any of them takes it.

use wirecost_model::plan::Plan;
use wirecost_model::units::bytes;
use wirecost_program::calls::KnownOptions;

use crate::agent::has_thread_for_each;

/// The hosts of one machine need more memory than it has left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the hosts {} of one machine need {} of memory or more, and {} are available there: use fewer \
     connections or strands, smaller messages, or more machines",
    .hosts.join(", "), bytes(*.needed), bytes(*.available)
)]
pub struct NotEnoughMemory {
    pub hosts: Vec<String>,
    /// Bytes.
    pub needed: u64,
    /// Bytes.
    pub available: u64,
}

/// Checks the plans of all hosts of one machine, with their names, against its available bytes.
///
/// # Errors
/// [`NotEnoughMemory`].
pub fn check(plans: &[(&str, &Plan)], available: u64) -> Result<(), NotEnoughMemory> {
    let needed = plans
        .iter()
        .map(|(_, plan)| plan.memory(has_thread_for_each(&plan.engine), &KnownOptions))
        .fold(0, u64::saturating_add);
    match needed <= available {
        true => Ok(()),
        false => {
            let hosts = plans.iter().map(|(name, _)| (*name).to_owned()).collect();
            Err(NotEnoughMemory { hosts, needed, available })
        }
    }
}
