//! Assignment of CPUs to hosts.

use std::fs;

/// The CPUs of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) cpus: Vec<u32>,
    pub(crate) owned: bool,
}

/// Divides `cpus` among hosts. Each host gets the same number, so that no host is faster than another.
/// The remainder, at least `spare` CPUs if there are as many beside one per host, is left to an emulator, the
/// controller and the rest of the machine. With fewer CPUs than hosts, all
/// hosts share all CPUs. CPUs of one core (see `core_of`) stay together, because threads of a core slow
/// each other down.
pub(crate) fn share(
    cpus: &[u32],
    hosts: usize,
    spare: usize,
    core_of: impl Fn(u32) -> Option<(u32, u32)>,
) -> Vec<Share> {
    let hosts = hosts.max(1);
    let leaving = |spare: usize| cpus.len().saturating_sub(spare) / hosts;
    // Rather less for the emulator than no CPU for a host.
    let each = (0..=spare).rev().map(leaving).find(|each| *each > 0).unwrap_or(0);
    if each == 0 {
        return vec![Share { cpus: cpus.to_vec(), owned: false }; hosts];
    }
    let mut by_core = cpus.to_vec();
    // CPUs of unknown cores come last, in their order.
    by_core.sort_by_key(|&cpu| (core_of(cpu).unwrap_or((u32::MAX, u32::MAX)), cpu));
    by_core
        .chunks_exact(each)
        .take(hosts)
        .map(|chunk| {
            let mut cpus = chunk.to_vec();
            cpus.sort_unstable();
            Share { cpus, owned: true }
        })
        .collect()
}

/// Package and core of a CPU of this machine.
pub(crate) fn core_of(cpu: u32) -> Option<(u32, u32)> {
    let number = |name| -> Option<u32> {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some((number("physical_package_id")?, number("core_id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(cpus: &[u32], hosts: usize, core_of: fn(u32) -> Option<(u32, u32)>) -> Vec<Vec<u32>> {
        let shares = share(cpus, hosts, 0, core_of);
        assert!(shares.iter().all(|share| share.owned == (cpus.len() >= hosts)));
        shares.into_iter().map(|share| share.cpus).collect()
    }

    #[test]
    fn each_host_gets_the_same_number_of_cpus() {
        assert_eq!(shares(&[0, 1], 2, |_| None), [[0], [1]]);
        assert_eq!(shares(&[0, 1, 2, 3, 5], 2, |_| None), [[0, 1], [2, 3]]);
    }

    #[test]
    fn an_emulator_gets_a_cpu_where_there_are_more_than_hosts() {
        let cpus = |number: u32, spare| -> Vec<u32> {
            let all: Vec<u32> = (0..number).collect();
            share(&all, 2, spare, |_| None).into_iter().flat_map(|share| share.cpus).collect()
        };
        assert_eq!(cpus(4, 0), [0, 1, 2, 3]);
        assert_eq!(cpus(4, 1), [0, 1]);
        assert_eq!(cpus(3, 1), [0, 1]);
        assert_eq!(cpus(2, 1), [0, 1]);
        assert_eq!(cpus(3, 2), [0, 1]);
        assert_eq!(cpus(8, 2), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn too_few_cpus_are_shared_by_all_hosts() {
        assert_eq!(shares(&[0, 1], 3, |_| None), [[0, 1], [0, 1], [0, 1]]);
    }

    #[test]
    fn threads_of_a_core_stay_together() {
        // As x86 numbers them: 0 and 4 are one core.
        let pairs = |cpu| Some((0, cpu % 4));
        let cpus = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(shares(&cpus, 2, pairs), [[0, 1, 4, 5], [2, 3, 6, 7]]);
        assert_eq!(shares(&cpus, 4, pairs), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    }

    #[test]
    fn hosts_are_filled_socket_by_socket() {
        let sockets = |cpu| Some((cpu % 2, cpu / 2));
        assert_eq!(shares(&[0, 1, 2, 3], 2, sockets), [[0, 2], [1, 3]]);
    }
}
