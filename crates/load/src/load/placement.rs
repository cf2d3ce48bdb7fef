//! Which strands run on which worker, and on which CPU that is pinned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wirecost_model::plan::limits::WORKERS;
use wirecost_model::plan::{Plan, at_most, open_at_once};
use wirecost_model::program::{GroupProgram, Side};
use wirecost_model::warning::{self, Warning};
use wirecost_program::files::stream_sources;
use wirecost_program::{calls, served};

use super::LoadError;
use super::listeners::ports_of_reconnecting;
use super::services::{Strands, own_addresses_per_strand};
use crate::broker::WorkerOf;
use crate::engines::Engine;
use crate::sockets::has_placement;

/// Descriptors a worker leaves free of its limit: what is not a connection needs some, and a full
/// table fails late and badly.
const SPARE: u64 = 2_000;

/// Strands of groups of which every worker has all, on all workers together. Each takes about a kilobyte.
const EVERYWHERE: u64 = 1 << 18;

#[derive(Debug)]
pub(super) struct Placement {
    workers: u32,
    cpus: Vec<u32>,
    /// CPUs of each worker; none where workers are not pinned.
    cpus_per_worker: Option<usize>,
    /// Strands of each group, by its number.
    strands: Vec<(u32, u32)>,
    /// Groups of which every worker has all strands: clients are served wherever they arrive.
    everywhere: BTreeSet<u32>,
    worker_of: WorkerOf,
    forced: bool,
    /// The engine, where CPUs are too few for its threads of the kernel.
    crowded: Option<&'static str>,
    connections: u64,
    /// At how many ports a service listens whose clients connect again and again to listeners of the workers.
    listening_ports: u32,
}

impl Placement {
    pub(super) fn new(
        plan: &Plan,
        engine: &dyn Engine,
        descriptor_limit: u64,
    ) -> Result<Self, LoadError> {
        let groups = &plan.program.groups;
        let strands: Vec<(u32, u32)> = groups.iter().map(|g| (g.group, g.strands)).collect();
        let total: u32 = strands.iter().map(|&(_, n)| n).sum();
        let listeners = listeners_per_strand(plan, engine);
        let sources = stream_sources(&plan.program);
        let sinks = calls::sinks(&plan.program).len() as u64;
        let shares_threads = engine.shares_threads();
        // A connection has each source open for itself, and a worker its files of sinks and those made as sources.
        let of_strand = |group: &GroupProgram| {
            let listeners = listeners.get(&group.group).copied().unwrap_or(0);
            let sent = sources.iter().filter(|(_, groups)| groups.contains_key(&group.group));
            let of_strand = if shares_threads { 0 } else { sinks };
            connections_per_strand(group) * (1 + sent.count() as u64) + listeners + of_strand
        };
        let made = sources.iter().filter(|(source, _)| source.made.is_some()).count() as u64;
        let of_worker = made + if shares_threads { sinks } else { 0 };
        let needed: u64 = groups.iter().map(|g| u64::from(g.strands) * of_strand(g)).sum();
        let per_worker = descriptor_limit.saturating_sub(SPARE + of_worker).max(1);
        let most = groups.iter().filter(|g| g.strands > 0).map(of_strand).max().unwrap_or(0);
        // Where there are few, half of them are enough for other things.
        if most > per_worker.max(descriptor_limit / 2) {
            return Err(LoadError::Plan(format!(
                "a strand may hold {most} connections, which is too many for the {descriptor_limit} \
                 descriptors that this host allows a process: close connections by disconnect, use \
                 more strands with fewer connections each, or raise the limit (ulimit -n)"
            )));
        }
        let cpus = plan.cpus.clone();
        let everywhere: BTreeSet<u32> = groups
            .iter()
            .filter(|group| served::shared_listeners(group).is_some())
            .map(|group| group.group)
            .collect();
        // Successive connections of one strand may go to any worker.
        let useful = if everywhere.is_empty() { total.max(1) } else { u32::MAX };
        let (workers, forced) = if engine.shares_threads() {
            let least = u32::try_from(needed.div_ceil(per_worker)).unwrap_or(u32::MAX);
            let fit = (cpus.len() / engine.cpus_per_worker()).max(1) as u32;
            let most = engine.limits().map_or(u32::MAX, |limits| limits.default_workers);
            let wanted = plan.workers.unwrap_or(fit.min(most)).max(1);
            // More workers would need queues of their own, and flows that come to them.
            if least > wanted && !engine.is_general() {
                return Err(LoadError::Plan(format!(
                    "engine {} needs {needed} descriptors, which is more than its workers may have ({per_worker} each): use \
                     fewer connections, or raise the limit (ulimit -n)",
                    engine.name()
                )));
            }
            let workers = wanted.max(least).min(useful);
            (workers, least > wanted)
        } else if needed > per_worker {
            return Err(LoadError::Plan(format!(
                "the {} engine needs {needed} descriptors and this host allows a process \
                 {descriptor_limit}: use fewer connections or the epoll engine",
                engine.name()
            )));
        } else {
            (total, false)
        };
        if engine.shares_threads() {
            at_most("the number of workers, for all their descriptors", workers, WORKERS)
                .map_err(|error| LoadError::Plan(error.to_string()))?;
        }
        let listening_ports = ports_of_reconnecting(&plan.program, workers, descriptor_limit)?;
        if !everywhere.is_empty() {
            let all = groups.iter().filter(|group| everywhere.contains(&group.group));
            let (strands, connections) = all.fold((0, 0), |(strands, connections), group| {
                let of_group = u64::from(group.strands);
                (strands + of_group, connections + of_group * connections_per_strand(group))
            });
            let everywhere = strands * u64::from(workers);
            if everywhere > EVERYWHERE || connections > per_worker {
                return Err(LoadError::Plan(format!(
                    "with server_sockets over TCP, each of {workers} workers may have to serve all {strands} strands \
                     ({connections} connections): use fewer strands or workers (strands times workers at most \
                     {EVERYWHERE}, and {per_worker} connections)"
                )));
            }
        }
        let groups_count = groups.iter().map(|g| g.group + 1).max().unwrap_or(0);
        let mut before = vec![0u32; groups_count as usize];
        let mut sum = 0u32;
        for (of_group, &(group, count)) in groups.iter().zip(&strands) {
            // Where a worker has receive queues of its own, that of a strand is the worker of its queue: the first strand of
            // each group is placed at the first queue.
            let by_queue = !engine.is_general() && is_placed(of_group);
            before[group as usize] = if by_queue { 0 } else { sum };
            sum += count;
        }
        let worker_of = WorkerOf {
            before: Arc::from(before),
            workers: workers.max(1),
            // Where nobody asks for a pattern of workers, both ends of a flow may be on one CPU (ADR
            // 0005), and to turn would part them. So it would with receive queues of workers.
            turns: plan.workers.is_some() && plan.program.side == Side::Peer && engine.is_general(),
        };
        let cpus_per_worker = engine.shares_threads().then(|| engine.cpus_per_worker());
        let connections = connections_of(groups);
        let each = engine.cpus_per_worker();
        let crowded = each > 1 && (plan.shares_cpus || workers as usize * each > plan.cpus.len());
        let crowded = crowded.then(|| engine.name());
        Ok(Self {
            workers,
            cpus,
            cpus_per_worker,
            strands,
            everywhere,
            worker_of,
            forced,
            crowded,
            connections,
            listening_ports,
        })
    }

    pub(super) fn workers(&self) -> u32 {
        self.workers
    }

    pub(super) fn listening_ports(&self) -> u32 {
        self.listening_ports
    }

    /// Connections of all strands.
    pub(super) fn connections(&self) -> u64 {
        self.connections
    }

    pub(super) fn worker_of(&self) -> WorkerOf {
        self.worker_of.clone()
    }

    pub(super) fn cpu(&self, worker: u32) -> Option<u32> {
        self.cpu_of(worker, 0)
    }

    /// The CPU for what the kernel does for a worker on a thread of its own, where the engine has such a thread.
    pub(super) fn second_cpu(&self, worker: u32) -> Option<u32> {
        self.cpu_of(worker, 1)
    }

    /// One of the CPUs of a worker.
    fn cpu_of(&self, worker: u32, number: usize) -> Option<u32> {
        let each = self.cpus_per_worker.filter(|&each| number < each)?;
        let place = (worker as usize * each + number).checked_rem(self.cpus.len())?;
        self.cpus.get(place).copied()
    }

    /// (group, strand) of a worker's strands, ascending.
    pub(super) fn strands(&self, worker: u32) -> impl Iterator<Item = (u32, u32)> {
        let of_group = move |&(group, count): &(u32, u32)| {
            let everywhere = self.everywhere.contains(&group);
            let all = (0..count).filter(move |_| everywhere);
            let own = self.worker_of.strands(group, count, worker).filter(move |_| !everywhere);
            all.chain(own).map(move |strand| (group, strand))
        };
        self.strands.iter().flat_map(of_group)
    }

    /// The CPU of each of these workers.
    ///
    /// # Errors
    /// Why a CPU does not tell which of them it is of.
    pub(super) fn distinct_cpus(
        &self,
        workers: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<u32>, &'static str> {
        let cpus: Option<Vec<u32>> = workers.into_iter().map(|worker| self.cpu(worker)).collect();
        let cpus = cpus.ok_or("workers are not pinned to CPUs")?;
        match cpus.iter().collect::<BTreeSet<_>>().len() == cpus.len() {
            true => Ok(cpus),
            false => Err("several workers share a CPU"),
        }
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.forced {
            warnings.push(Warning::from(warning::MoreWorkersThanCpus {
                host: String::new(),
                workers: self.workers,
                cpus: self.cpus.len() as u32,
            }));
        }
        if let Some(engine) = self.crowded {
            let (host, engine) = (String::new(), engine.to_owned());
            warnings.push(Warning::from(warning::PollersShareCpus { host, engine }));
        }
        warnings
    }
}

/// Whether the queues of a group's strands are selected (`placement`).
fn is_placed(group: &GroupProgram) -> bool {
    group
        .phases
        .iter()
        .flatten()
        .flat_map(|phase| &phase.acts)
        .any(|act| has_placement(&act.options))
}

/// Listeners of one strand's own, by group.
fn listeners_per_strand(plan: &Plan, engine: &dyn Engine) -> BTreeMap<u32, u64> {
    let strands = Strands::of(plan);
    let mut listeners: BTreeMap<u32, u64> = BTreeMap::new();
    for service in &plan.program.services {
        let own = own_addresses_per_strand(engine, &strands, service).unwrap_or(0);
        *listeners.entry(service.group).or_default() += u64::from(own);
    }
    listeners
}

fn connections_of(groups: &[GroupProgram]) -> u64 {
    groups.iter().map(|group| u64::from(group.strands) * connections_per_strand(group)).sum()
}

/// Connections that one strand may hold.
fn connections_per_strand(group: &GroupProgram) -> u64 {
    let acts = group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    open_at_once(acts.filter(|act| act.service.is_some()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wirecost_model::plan::EngineName;
    use wirecost_model::profile::{IoValue, Options, Position, Until};
    use wirecost_model::program::{HostFlowop, PhaseProgram, Program, Service, ServiceRef};

    use super::*;

    fn placement(side: Side, workers: Option<u32>) -> Placement {
        placement_of(side, workers, crate::engines::ALL[0])
    }

    fn plan_of(side: Side, workers: Option<u32>) -> Plan {
        let group = GroupProgram { group: 0, name: String::new(), strands: 16, phases: Vec::new() };
        Plan {
            token: String::new(),
            seed: 0,
            host: 0,
            engine: EngineName::default(),
            workers,
            cpus: vec![0, 1, 2, 3],
            shares_cpus: false,
            interval: 1,
            program: Program { side, groups: vec![group], services: Vec::new() },
            data_address: None,
            tcp_samples: 0,
            details: false,
            logged_operations: 0,
            receive_stamps: false,
            congestion_objects: Vec::new(),
        }
    }

    fn placement_of(side: Side, workers: Option<u32>, engine: &dyn Engine) -> Placement {
        Placement::new(&plan_of(side, workers), engine, 20_000).expect("a plan that fits")
    }

    /// A peer whose strands accept the connections of any client.
    fn everywhere(strands: u32) -> GroupProgram {
        let mut options = Options { protocol: Some("tcp".to_owned()), ..Options::default() };
        options.io.set("server_sockets", IoValue::Text("per-worker".to_owned()));
        let accept = HostFlowop {
            flowop: 0,
            kind: "accept".to_owned(),
            options,
            service: Some(ServiceRef { host: 1, service: 0 }),
            most_open: 1,
            at: Position::default(),
        };
        let phase = PhaseProgram {
            until: Until::Iterations(1),
            arrivals: None,
            acts: vec![accept],
            order: Vec::new(),
        };
        GroupProgram { group: 0, name: String::new(), strands, phases: vec![Some(phase)] }
    }

    #[test]
    fn every_worker_has_all_strands_that_accept_from_any_client() {
        let placed = |strands, workers, limit| {
            let mut plan = plan_of(Side::Peer, workers);
            plan.program.groups = vec![everywhere(strands)];
            Placement::new(&plan, crate::engines::ALL[0], limit)
        };
        // Also where there are fewer strands than workers: the next connection may go to any.
        let placement = placed(3, None, 20_000).unwrap();
        assert_eq!(placement.workers(), 4);
        for worker in 0..4 {
            let strands: Vec<_> = placement.strands(worker).collect();
            assert_eq!(strands, [(0, 0), (0, 1), (0, 2)]);
        }
        assert_eq!(placement.distinct_cpus(0..4), Ok(vec![0, 1, 2, 3]));
        let crowded = placed(3, Some(5), 20_000).unwrap();
        assert_eq!(crowded.distinct_cpus(0..5), Err("several workers share a CPU"));
        // Any worker may have to hold all connections.
        for (strands, limit) in [(10_000, 6_000), (100_000, 1 << 20)] {
            let refused = placed(strands, Some(4), limit).unwrap_err().to_string();
            assert!(refused.contains("fewer strands or workers"), "{refused}");
        }
    }

    /// All listeners are opened by one thread, which needs descriptors for other things too.
    #[test]
    fn listeners_of_workers_are_as_many_as_descriptors_allow() {
        let placed = |reconnects, workers, limit| {
            let mut plan = plan_of(Side::Peer, Some(workers));
            plan.program.groups = vec![everywhere(3)];
            let options =
                plan.program.groups[0].phases[0].as_ref().unwrap().acts[0].options.clone();
            plan.program.services = vec![Service {
                group: 0,
                protocol: "tcp".to_owned(),
                port: None,
                conns_per_strand: 1,
                reconnects,
                clients: vec![0],
                options,
            }];
            Placement::new(&plan, crate::engines::ALL[0], limit)
        };
        for (workers, limit, ports) in [(4, 20_000, 256), (32, 20_000, 128), (16, 2_100, 65)] {
            assert_eq!(placed(true, workers, limit).unwrap().listening_ports(), ports, "{limit}");
        }
        let refused = placed(true, 100, 2_100).unwrap_err().to_string();
        assert!(refused.contains("100 workers need 1600 listeners"), "{refused}");
        assert!(refused.contains("2100 descriptors"), "{refused}");
        assert!(placed(false, 100, 2_100).is_ok());
    }

    /// Pairs of the CPUs that the ends of a flow are on.
    fn ends(workers: Option<u32>) -> BTreeSet<(Option<u32>, Option<u32>)> {
        let [master, peer] = [Side::Master, Side::Peer].map(|side| placement(side, workers));
        let cpu = |of: &Placement, strand| of.cpu(of.worker_of().strand(0, strand));
        (0..16).map(|strand| (cpu(&master, strand), cpu(&peer, strand))).collect()
    }

    #[test]
    fn both_ends_of_a_flow_are_on_one_cpu_unless_workers_are_asked_for() {
        assert_eq!(ends(None), (0..4).map(|cpu| (Some(cpu), Some(cpu))).collect());
        assert_eq!(ends(Some(4)).len(), 16);
    }

    /// Strand s of each group that is placed comes to queue s of the device, or s modulo their number, and a worker has
    /// every n-th queue.
    #[test]
    fn a_placed_strand_is_of_the_worker_that_has_its_queue() {
        let group = |group, strands, placement: Option<&str>| {
            let mut options = Options::default();
            if let Some(name) = placement {
                let value = IoValue::Text(name.to_owned());
                options.io.set("placement", value);
            }
            let connect = HostFlowop {
                flowop: 0,
                kind: "connect".to_owned(),
                options,
                service: None,
                most_open: 0,
                at: Default::default(),
            };
            let phase = PhaseProgram {
                until: Until::Iterations(1),
                arrivals: Default::default(),
                acts: vec![connect],
                order: Vec::new(),
            };
            GroupProgram { group, name: String::new(), strands, phases: vec![Some(phase)] }
        };
        let groups = [group(0, 3, None), group(1, 5, Some("even")), group(2, 2, Some("random"))];
        let of = |engine, side| {
            let engine = crate::engines::find(engine).expect("an engine");
            let mut plan = plan_of(side, Some(2));
            plan.program.groups = groups.to_vec();
            Placement::new(&plan, engine, 20_000).expect("a plan that fits")
        };
        for side in [Side::Master, Side::Peer] {
            let placement = of("af_xdp", side);
            assert_eq!(placement.workers(), 2);
            let workers = |group, strands| {
                let worker = |strand| placement.worker_of().strand(group, strand);
                (0..strands).map(worker).collect::<Vec<_>>()
            };
            assert_eq!(workers(0, 3), [0, 1, 0]);
            assert_eq!(workers(1, 5), [0, 1, 0, 1, 0], "from queue 0 on");
            assert_eq!(workers(2, 2), [0, 1], "the eight before it are of any queue");
            let own = |worker| placement.strands(worker).collect::<Vec<_>>();
            assert_eq!(own(1), [(0, 1), (1, 1), (1, 3), (2, 1)]);
        }
        let turned = of("epoll", Side::Peer).worker_of();
        assert_eq!([3, 4].map(|strand| turned.strand(0, strand)), [0, 0]);
    }

    #[test]
    fn a_host_of_frames_has_one_worker_unless_more_are_asked_for() {
        for engine in ["af_xdp", "af_xdp_native"] {
            let engine = crate::engines::find(engine).expect("an engine");
            let workers = |wanted| placement_of(Side::Peer, wanted, engine).workers();
            assert_eq!([None, Some(1), Some(3)].map(workers), [1, 1, 3]);
        }
    }

    #[test]
    fn a_thread_of_the_kernel_has_a_cpu_beside_its_worker() {
        let of = |name: &str, workers| {
            let engine = crate::engines::find(name).expect("an engine");
            let placement = placement_of(Side::Master, workers, engine);
            let cpus = |worker| (placement.cpu(worker), placement.second_cpu(worker));
            (0..placement.workers()).map(cpus).collect::<Vec<_>>()
        };
        let pairs = [(Some(0), Some(1)), (Some(2), Some(3))];
        assert_eq!(of("io_uring_sqpoll", None), pairs);
        assert_eq!(of("io_uring_sqpoll", Some(4)), [pairs, pairs].concat());
        let crowded = |workers| {
            let engine = crate::engines::find("io_uring_sqpoll").expect("an engine");
            let warnings = placement_of(Side::Master, workers, engine).warnings();
            warnings.iter().any(|warning| warning.code() == "pollers-share-cpus")
        };
        assert!(!crowded(None) && !crowded(Some(2)) && crowded(Some(3)));
        assert_eq!(of("io_uring", None), (0..4).map(|cpu| (Some(cpu), None)).collect::<Vec<_>>());
        assert!(of("threads", None).iter().all(|cpus| *cpus == (None, None)));
    }
}
