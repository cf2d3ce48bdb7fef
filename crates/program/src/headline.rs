//! The phase that gives a run its figures.
//!
//! The same for every run of a profile: it follows from the profile, and where only iterations limit
//! the phases, from the work that they have done. How long a phase took would not do: two runs that
//! are compared could show the figures of different phases.

use std::time::Duration;

use wirecost_model::profile::{Profile, Until};
use wirecost_profile::flowops::{self, Action};

/// Whether any flowop of the phase moves data. A transaction of no iterations has none that runs.
pub fn moves_data(profile: &Profile, phase: usize) -> bool {
    profile
        .groups
        .iter()
        .filter_map(|group| group.transactions.get(phase))
        .filter(|transaction| transaction.until != Until::Iterations(0))
        .flat_map(|transaction| &transaction.flowops)
        .filter_map(|flowop| flowops::find(&flowop.kind))
        .any(|kind| kind.action().moves() || kind.action() == Action::SendFile)
}

/// The longest duration of the groups' transactions of this number.
fn duration(profile: &Profile, phase: usize) -> Option<Duration> {
    profile
        .groups
        .iter()
        .filter_map(|group| match group.transactions.get(phase)?.until {
            Until::Duration(length) => Some(length),
            Until::Iterations(_) => None,
        })
        .max()
}

/// The headline, where the profile alone decides it: the longest phase with a duration that moves
/// data; else the only phase by iterations that does; where none moves data, the longest phase with
/// a duration. Of phases that last equally long the last.
pub fn of_profile(profile: &Profile) -> Option<usize> {
    let phases = profile.groups.iter().map(|group| group.transactions.len()).max().unwrap_or(0);
    let longest = |of: &[usize]| {
        let timed = of.iter().filter_map(|&phase| Some((duration(profile, phase)?, phase)));
        timed.max().map(|(_, phase)| phase)
    };
    let all: Vec<usize> = (0..phases).collect();
    let with_data: Vec<usize> =
        all.iter().copied().filter(|&phase| moves_data(profile, phase)).collect();
    match &with_data[..] {
        [] => longest(&all),
        [only] => Some(*only),
        several => longest(several),
    }
}

/// What a phase has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub moves_data: bool,
    pub received_bytes: u64,
    pub operations: u64,
}

/// The headline of phases by iterations, by what each of them has done: of those that move data, if
/// there are any, the one that moved the most bytes; of equals the one with more operations, and
/// then the first.
pub fn of_work(phases: &[(usize, Work)]) -> Option<usize> {
    let best = phases.iter().min_by_key(|(phase, work)| {
        let Work { moves_data, received_bytes, operations } = *work;
        (std::cmp::Reverse((moves_data, received_bytes, operations)), *phase)
    });
    best.map(|(phase, _)| *phase)
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::{Flowop, Group, Options, Position, Transaction};

    use super::*;

    /// A group of transactions: seconds of each (or none, for an iteration), and its flowops.
    fn profile(transactions: &[(Option<u64>, &[&str])]) -> Profile {
        let flowop = |kind: &&str| Flowop {
            kind: (*kind).to_owned(),
            options: Options::default(),
            at: Position::default(),
        };
        let transactions = transactions
            .iter()
            .map(|(seconds, flowops)| Transaction {
                until: seconds.map_or(Until::Iterations(1), |seconds| {
                    Until::Duration(Duration::from_secs(seconds))
                }),
                arrivals: None,
                flowops: flowops.iter().map(flowop).collect(),
                order: Vec::new(),
                at: Position::default(),
            })
            .collect();
        let group = Group { strands: 1, transactions, ..Group::default() };
        Profile { name: String::new(), groups: vec![group] }
    }

    #[test]
    fn a_phase_that_moves_data_comes_before_a_longer_one_that_does_not() {
        let storm: (_, &[&str]) = (Some(30), &["connect", "disconnect"]);
        let data: (_, &[&str]) = (Some(10), &["write", "read"]);
        assert_eq!(of_profile(&profile(&[storm, data])), Some(1));
        assert_eq!(of_profile(&profile(&[data, storm])), Some(0));
        assert_eq!(of_profile(&profile(&[storm, (None, &["read"])])), Some(1));
        assert_eq!(of_profile(&profile(&[(None, &["connect"]), storm])), Some(1));
        assert_eq!(of_profile(&profile(&[data, (Some(20), &["sendfile"]), data])), Some(1));
        assert_eq!(of_profile(&profile(&[data, data])), Some(1));
    }

    #[test]
    fn a_phase_of_no_iterations_gives_no_figures() {
        let mut skipped = profile(&[(None, &["connect"]), (None, &["write"]), (None, &["nop"])]);
        assert_eq!(of_profile(&skipped), Some(1));
        skipped.groups[0].transactions[1].until = Until::Iterations(0);
        assert!(!moves_data(&skipped, 1));
        assert_eq!(of_profile(&skipped), None);
    }

    #[test]
    fn of_phases_by_iterations_the_work_decides() {
        let profile = profile(&[(None, &["connect"]), (None, &["write"]), (None, &["read"])]);
        assert_eq!(of_profile(&profile), None);
        let work = |moves_data, received_bytes, operations| Work {
            moves_data,
            received_bytes,
            operations,
        };
        let connect = (0, work(false, 0, 1_000));
        assert_eq!(of_work(&[connect, (1, work(true, 10, 1)), (2, work(true, 9, 1))]), Some(1));
        assert_eq!(of_work(&[connect, (1, work(true, 0, 0))]), Some(1));
        assert_eq!(of_work(&[connect, (3, work(false, 0, 1_000))]), Some(0));
        assert_eq!(of_work(&[]), None);
    }
}
