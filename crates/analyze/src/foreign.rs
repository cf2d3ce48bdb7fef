//! CPU time of programs that are no part of the run.

use wirecost_model::observe::{CpuUser, HostObservation};
use wirecost_model::outcome::{HostOutcome, Outcome};

/// Programs that are named; all are in the sum.
const NAMED: usize = 3;
/// Less is shown as 0.0%.
const LEAST_NAMED: f64 = 0.0005;

/// What others used of the busy time of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForeignUse {
    /// 0 to 1.
    pub(crate) share: f64,
    /// Those that used most, each with its share.
    pub(crate) programs: Vec<String>,
}

/// Of a machine on which these hosts of the run are, as it was observed as a whole. `None` where
/// processes were not read.
pub(crate) fn of(
    outcome: &Outcome,
    hosts: &[&HostOutcome],
    seen: &HostObservation,
) -> Option<ForeignUse> {
    let cpu = seen.cpu.as_ref()?;
    let busy = cpu.total.wall - cpu.total.idle;
    if busy <= 0.0 {
        return None;
    }
    let link = outcome.link.as_ref().map(|link| link.pid);
    let ours = |pid: u32| link == Some(pid) || hosts.iter().any(|host| host.pid == pid);
    let is_foreign = |user: &CpuUser<'_>| {
        !user.kernel_thread && !user.pid.is_some_and(ours) && !user.is_controller()
    };
    let users = cpu.users().into_iter().filter(is_foreign);
    let mut used: Vec<(String, f64)> = users.map(|user| (user.title(), user.seconds)).collect();
    // A program in another PID namespace is in no list, nor was one that ended in older records.
    let unseen = cpu.unseen_processes.unwrap_or(0.0);
    if unseen > 0.0 {
        used.push(("programs that ended unseen or are in other PID namespaces".to_owned(), unseen));
    }
    let unlisted = cpu.unlisted_programs.unwrap_or(0.0);
    if unlisted > 0.0 {
        used.push(("programs that used less each".to_owned(), unlisted));
    }
    used.sort_by(|a, b| b.1.total_cmp(&a.1));
    let programs = used
        .iter()
        .filter(|(_, seconds)| seconds / busy >= LEAST_NAMED)
        .take(NAMED)
        .map(|(name, seconds)| format!("{name} {:.1}%", seconds * 100.0 / busy));
    Some(ForeignUse {
        // A sum of nothing would be -0.
        share: (used.iter().fold(0.0, |sum, (_, seconds)| sum + seconds) / busy).min(1.0),
        programs: programs.collect(),
    })
}
