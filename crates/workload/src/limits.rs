//! After how many transactions each strand of each host ends a phase.
//!
//! When time is up nobody begins another transaction, but the two ends of a strand may have begun
//! different numbers of them. Both complete the larger number, so that every byte that was sent is
//! also received and the next phase finds the connections empty. Datagrams are not owed to anybody:
//! a host whose part is datagrams only ends where it is, or where the master does.

use std::collections::BTreeMap;

use wirecost_model::program::{GroupProgram, Program, Side};

use crate::protocols;

/// Transactions begun, or to be completed, by group and strand.
pub type Counts = BTreeMap<u32, Vec<u64>>;

/// The limits of each host, from what each has begun.
pub fn agree(programs: &[&Program], phase: u32, started: &[Counts]) -> Vec<Counts> {
    let mut limits: Vec<Counts> = started.to_vec();
    let takes_part =
        |group: &GroupProgram| matches!(group.phases.get(phase as usize), Some(Some(_)));
    let groups: Vec<u32> = programs.iter().flat_map(|p| &p.groups).map(|g| g.group).collect();
    for group in groups {
        let members: Vec<(usize, bool)> = programs
            .iter()
            .enumerate()
            .filter_map(|(host, program)| {
                let of_group = program.groups.iter().find(|g| g.group == group && takes_part(g))?;
                let coupled = program.side == Side::Master || is_coupled(of_group, phase);
                Some((host, coupled))
            })
            .collect();
        let strands = started.iter().filter_map(|s| s.get(&group)).map(Vec::len).max().unwrap_or(0);
        for strand in 0..strands {
            let begun = |host: usize| {
                started[host].get(&group).and_then(|s| s.get(strand)).copied().unwrap_or(0)
            };
            let agreed = members
                .iter()
                .filter(|(_, coupled)| *coupled)
                .map(|&(host, _)| begun(host))
                .max()
                .unwrap_or(0);
            for &(host, _) in &members {
                if let Some(place) = limits[host].get_mut(&group).and_then(|g| g.get_mut(strand)) {
                    *place = begun(host).max(agreed);
                }
            }
        }
    }
    limits
}

/// Whether a peer's part in a phase goes in step with the master's: over streams, or by opening and
/// closing connections.
fn is_coupled(group: &GroupProgram, phase: u32) -> bool {
    let Some(Some(program)) = group.phases.get(phase as usize) else { return false };
    let protocol_of = |id: u32| {
        group
            .phases
            .iter()
            .flatten()
            .flat_map(|phase| &phase.acts)
            .filter(|act| act.service.is_some() && act.options.conn.contains(id))
            .find_map(|act| act.options.protocol.as_deref().and_then(protocols::find))
    };
    program.acts.iter().any(|act| match act.kind.as_str() {
        "think" | "nop" => false,
        "connect" | "accept" | "disconnect" => true,
        _ => protocol_of(act.options.conn.first).is_none_or(|protocol| protocol.stream()),
    })
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::{Options, Position, Until};
    use wirecost_model::program::{Act, PhaseProgram, ServiceRef};

    use super::*;

    fn program(side: Side, protocol: &str, transfer: &str) -> Program {
        let act = |kind: &str| Act {
            flowop: 0,
            kind: kind.to_owned(),
            options: Options { protocol: Some(protocol.to_owned()), ..Options::default() },
            service: (kind == "accept").then_some(ServiceRef { host: 1, service: 0 }),
            at: Position::default(),
        };
        let phase = |kind: &str| {
            Some(PhaseProgram { until: Until::Iterations(1), rate: None, acts: vec![act(kind)] })
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
        let limits = agree(&[&master, &peer], 1, &[counts([5, 9]), counts([7, 8])]);
        assert_eq!(limits, [counts([7, 9]), counts([7, 9])]);
    }

    #[test]
    fn a_sender_of_datagrams_that_is_ahead_is_not_followed() {
        let (master, peer) =
            (program(Side::Master, "udp", "read"), program(Side::Peer, "udp", "write"));
        let limits = agree(&[&master, &peer], 1, &[counts([5, 9]), counts([7000, 8])]);
        assert_eq!(limits, [counts([5, 9]), counts([7000, 9])]);
    }
}
