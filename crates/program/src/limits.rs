//! After how many transactions each strand of each host ends a phase.
//!
//! When time is up nobody begins another transaction, but the two ends of a strand may have begun
//! different numbers of them. Both complete the larger number, so that every byte that was sent is
//! also received and the next phase finds the connections empty. Of datagrams the last ones are
//! either received or known to be lost. Only a host that moves nothing but datagrams beside others
//! that use streams is not followed: they would have to move more just to hear the last of it.

use std::collections::BTreeMap;

use wirecost_model::program::{GroupProgram, HostFlowop, Program, Side};
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::protocols;

/// Transactions begun, or to be completed, by group and strand.
pub type Counts = BTreeMap<u32, Vec<u64>>;

/// The limits of each host, from what each has begun.
pub fn completion_limits(
    programs: &[&Program],
    phase: u32,
    mut started: Vec<Counts>,
) -> Vec<Counts> {
    let takes_part =
        |group: &GroupProgram| matches!(group.phases.get(phase as usize), Some(Some(_)));
    let groups: Vec<u32> = programs.iter().flat_map(|p| &p.groups).map(|g| g.group).collect();
    for group in groups {
        let members: Vec<(usize, Part)> = programs
            .iter()
            .enumerate()
            .filter_map(|(host, program)| {
                let of_group = program.groups.iter().find(|g| g.group == group && takes_part(g))?;
                let master = program.side == Side::Master;
                Some((host, if master { Part::Leads } else { part(of_group, phase) }))
            })
            .collect();
        let streams = members.iter().any(|(_, part)| *part == Part::Streams);
        let counts = |part: Part| match part {
            Part::Leads | Part::Streams => true,
            Part::Datagrams => !streams,
            Part::Idle => false,
        };
        let strands = started.iter().filter_map(|s| s.get(&group)).map(Vec::len).max().unwrap_or(0);
        for strand in 0..strands {
            let begun =
                |host: usize| started[host].get(&group).and_then(|s| s.get(strand)).copied();
            let agreed = members
                .iter()
                .filter(|(_, part)| counts(*part))
                .filter_map(|&(host, _)| begun(host))
                .max()
                .unwrap_or(0);
            for &(host, _) in &members {
                if let Some(place) = started[host].get_mut(&group).and_then(|g| g.get_mut(strand)) {
                    *place = agreed.max(*place);
                }
            }
        }
    }
    started
}

/// What a host has to do with a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is the master.
    Leads,
    /// Its transactions go in step with the master's: over streams, or by opening and closing.
    Streams,
    /// All it moves is datagrams.
    Datagrams,
    /// It moves nothing.
    Idle,
}

fn part(group: &GroupProgram, phase: u32) -> Part {
    let Some(Some(program)) = group.phases.get(phase as usize) else { return Part::Idle };
    let parts = program.acts.iter().map(|act| match flowops::find(&act.kind).map(|f| f.action()) {
        Some(Action::Think | Action::Nothing) => Part::Idle,
        Some(Action::Send(_) | Action::Receive(_)) if by_datagrams(group, act) => Part::Datagrams,
        _ => Part::Streams,
    });
    parts.fold(Part::Idle, |whole, part| match (whole, part) {
        (Part::Idle, part) => part,
        (Part::Datagrams, Part::Streams) => Part::Streams,
        (whole, _) => whole,
    })
}

fn by_datagrams(group: &GroupProgram, act: &HostFlowop) -> bool {
    let acts = group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    acts.filter(|opens| {
        opens.service.is_some() && opens.options.conn.contains(act.options.conn.first)
    })
    .find_map(|opens| opens.options.protocol.as_deref().and_then(protocols::find))
    .is_some_and(|protocol| !protocol.delivery().is_reliable())
}

/// Whether a host has anything to do in a phase.
pub fn takes_part(program: &Program, phase: u32) -> bool {
    program.groups.iter().any(|group| matches!(group.phases.get(phase as usize), Some(Some(_))))
}

/// Whether a host may be left waiting for datagrams that were lost, or for what failed at the other
/// side, where iterations decide: then only the others know when the phase is over. A master that
/// does more than receive does not wait forever, nor does one whose receives time out.
pub fn may_wait(program: &Program, phase: u32) -> bool {
    program.groups.iter().any(|group| {
        let Some(Some(of_phase)) = group.phases.get(phase as usize) else { return false };
        let action = |act: &HostFlowop| flowops::find(&act.kind).map(|flowop| flowop.action());
        let waits = |act: &HostFlowop| {
            matches!(action(act), Some(Action::Receive(_))) && by_datagrams(group, act)
        };
        let idles = |act: &HostFlowop| matches!(action(act), Some(Action::Think | Action::Nothing));
        let follows = program.side == Side::Peer && of_phase.acts.iter().any(|a| a.options.canfail);
        follows
            || of_phase.acts.iter().any(waits)
                && (program.side == Side::Peer
                    || of_phase
                        .acts
                        .iter()
                        .all(|act| waits(act) && act.options.timeout.is_none() || idles(act)))
    })
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::{Options, Position, Until};
    use wirecost_model::program::{PhaseProgram, ServiceRef};

    use super::*;

    fn program(side: Side, protocol: &str, transfer: &str) -> Program {
        let act = |kind: &str| HostFlowop {
            flowop: 0,
            kind: kind.to_owned(),
            options: Options { protocol: Some(protocol.to_owned()), ..Options::default() },
            service: (kind == "accept").then_some(ServiceRef { host: 1, service: 0 }),
            most_open: 1,
            at: Position::default(),
        };
        let phase = |kind: &str| {
            Some(PhaseProgram {
                until: Until::Iterations(1),
                arrivals: None,
                acts: vec![act(kind)],
                order: Vec::new(),
            })
        };
        let groups = vec![GroupProgram {
            group: 0,
            name: String::new(),
            strands: 2,
            phases: vec![phase("accept"), phase(transfer)],
        }];
        Program { side, groups, services: Vec::new() }
    }

    fn counts(of: [u64; 2]) -> Counts {
        BTreeMap::from([(0, of.to_vec())])
    }

    #[test]
    fn streams_end_together_at_the_larger_number() {
        let (master, peer) =
            (program(Side::Master, "tcp", "read"), program(Side::Peer, "tcp", "write"));
        let limits = completion_limits(&[&master, &peer], 1, vec![counts([5, 9]), counts([7, 8])]);
        assert_eq!(limits, [counts([7, 9]), counts([7, 9])]);
    }

    #[test]
    fn datagrams_are_received_to_the_last() {
        let (master, peer) =
            (program(Side::Master, "udp", "read"), program(Side::Peer, "udp", "write"));
        let limits =
            completion_limits(&[&master, &peer], 1, vec![counts([5, 9]), counts([7000, 8])]);
        assert_eq!(limits, [counts([7000, 9]), counts([7000, 9])]);
    }

    #[test]
    fn a_sender_of_datagrams_that_is_ahead_is_not_followed_by_streams() {
        let hosts = [
            program(Side::Master, "tcp", "read"),
            program(Side::Peer, "tcp", "write"),
            program(Side::Peer, "udp", "write"),
        ];
        let started = [counts([5, 9]), counts([6, 8]), counts([7000, 8])];
        let limits = completion_limits(&hosts.each_ref(), 1, started.to_vec());
        assert_eq!(limits, [counts([6, 9]), counts([6, 9]), counts([7000, 9])]);
    }

    #[test]
    fn a_master_whose_receives_time_out_does_not_wait_for_others() {
        let mut master = program(Side::Master, "udp", "read");
        let mut peer = program(Side::Peer, "udp", "write");
        assert!(may_wait(&master, 1) && !may_wait(&peer, 1));
        let change = |program: &mut Program, timeout| {
            let options = &mut program.groups[0].phases[1].as_mut().unwrap().acts[0].options;
            (options.canfail, options.timeout) = (true, timeout);
        };
        change(&mut master, Some(std::time::Duration::from_millis(100)));
        change(&mut peer, None);
        assert!(!may_wait(&master, 1) && may_wait(&peer, 1));
    }

    #[test]
    fn a_host_without_a_part_in_the_phase_has_nothing_to_complete() {
        let (master, mut peer) =
            (program(Side::Master, "tcp", "read"), program(Side::Peer, "tcp", "write"));
        peer.groups[0].phases[1] = None;
        assert!(takes_part(&master, 1) && !takes_part(&peer, 1));
        let limits = completion_limits(&[&master, &peer], 1, vec![counts([5, 9]), counts([0, 0])]);
        assert_eq!(limits, [counts([5, 9]), counts([0, 0])]);
    }
}
