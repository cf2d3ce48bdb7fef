//! Where packets were dropped: what the kernel counts, and each packet that it frees as dropped, with its
//! reason and the code that gave it up.

mod counters;
mod reasons;

use std::collections::BTreeMap;

use wirecost_linux::kallsyms::Kallsyms;
use wirecost_linux::neighbour_tables::{self, NeighbourTable};
use wirecost_linux::softnet::{self, Softnet};
use wirecost_model::clock::Nanos;
use wirecost_model::observe::{
    DropOutcome, DropSite, DropsSection, HostObservation, Part, ProbeCost, TracedDrops,
    classify_drop,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bpf::{BpfError, LoadedObject, Options, compiled};
use crate::probe::{
    Description, Edge, Extent, Namespace, Probe, Session, Sets, Shared, Unavailable,
};
use counters::{Counters, Reading};
use reasons::Reasons;

const NAME: &str = "drops";
/// Program of probe.bpf.c without which nothing is traced.
const FREED: &str = "kfree_skb";

#[derive(Debug)]
pub(crate) struct Drops;

impl Probe for Drops {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> Description {
        Description {
            tells: "where packets were dropped: counters of devices, drivers, queueing disciplines, \
                    CPU backlogs, protocols, connection tracking and neighbour tables; every packet that the kernel freed as dropped, with \
                    its reason and call site",
            needs: "nothing for counters; BPF with BTF (root, or CAP_BPF and CAP_PERFMON) for \
                    reasons and call sites, and CAP_SYSLOG for names of functions",
            costs: "`drops:basic`, which is in `standard`: netlink queries and files around \
                    the window, about 1 ms each. `drops`: also a program at each packet dropped, \
                    about 0.2 us; none at packets that are not dropped",
            limitations: "packets that a device drops before the kernel sees them are only in the \
                    device's counters; code that frees packets without a reason (NOT_SPECIFIED) may \
                    free what it has used; datagrams that a UDP socket had unread when it closed \
                    lead to no network namespace",
        }
    }

    fn extents(&self) -> &'static [Extent] {
        &[Extent::Basic]
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Basic), full: Some(Extent::Whole) }
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let bpf = match shared.basic(NAME) {
            true => None,
            false => Some(Tracer::load().map_err(|error| error.to_string())),
        };
        let refused = bpf.as_ref().and_then(|bpf| bpf.as_ref().err());
        let missing = refused.map(|error| untraced(error)).into_iter().collect();
        Ok(Box::new(Watch { bpf, missing, ..Watch::default() }))
    }
}

fn untraced(error: &str) -> String {
    format!("no reasons and call sites: {error}")
}

/// `struct site` of probe.bpf.c.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Site {
    location: u64,
    netns: u32,
    reason: u32,
}

/// `struct tally` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Tally {
    skbs: u64,
    packets: u64,
    bytes: u64,
}

/// `struct overview` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Overview {
    no_room: u64,
}

/// The program, and what its numbers mean.
#[derive(Debug)]
struct Tracer {
    loaded: LoadedObject,
    reasons: Reasons,
}

impl Tracer {
    fn load() -> Result<Self, Unavailable> {
        let reasons = Reasons::load();
        let object = compiled!("drops", "probes_drops_probe");
        let loaded = LoadedObject::load(object, &Options::default())?;
        if loaded.missing.iter().any(|hook| hook == FREED) {
            return Err(Unavailable::Other(format!("this kernel has no tracepoint {FREED}")));
        }
        Ok(Self { loaded, reasons })
    }

    /// Empties the tables and attaches. Nothing counts before the window begins.
    fn attach(&mut self, namespaces: &BTreeMap<Option<u32>, Namespace>) -> Result<(), BpfError> {
        self.count(false)?;
        self.loaded.clear::<Tally>("sites")?;
        self.loaded.clear::<Overview>("overviews")?;
        self.loaded.clear::<u32>("watched")?;
        for namespace in namespaces.values() {
            self.loaded.set("watched", &namespace.inode, &1u32)?;
        }
        self.loaded.attach()
    }

    fn count(&self, on: bool) -> Result<(), BpfError> {
        self.loaded.set("counting", &0u32, &u32::from(on))
    }

    /// What was freed, by namespace; 0 for none that is known. `missing` is told what has no names.
    fn read(&self, missing: &mut Vec<String>) -> Result<BTreeMap<u32, Vec<DropSite>>, BpfError> {
        let mut all: BTreeMap<u32, Vec<DropSite>> = BTreeMap::new();
        let found = self.loaded.values::<Site, Tally>("sites")?;
        if found.is_empty() {
            return Ok(all);
        }
        // Read after each window: modules come and go.
        let kernel = Kallsyms::load().unwrap_or_else(|error| {
            missing.push(format!("names of functions: {error}"));
            Kallsyms::default()
        });
        for (site, tallies) in found {
            let tally = tallies.iter().fold(Tally::default(), |sum, tally| Tally {
                skbs: sum.skbs + tally.skbs,
                packets: sum.packets + tally.packets,
                bytes: sum.bytes + tally.bytes,
            });
            let reason = self.reasons.name(site.reason);
            let described = described(reason, site.location, tally, &kernel);
            all.entry(site.netns).or_default().push(described);
        }
        for sites in all.values_mut() {
            sites.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.offset.cmp(&b.offset)));
        }
        Ok(all)
    }

    fn no_room(&self) -> Result<u64, BpfError> {
        let overviews = self.loaded.percpu::<Overview>("overviews", 0)?;
        Ok(overviews.iter().map(|overview| overview.no_room).sum())
    }
}

fn described(reason: String, location: u64, tally: Tally, kernel: &Kallsyms) -> DropSite {
    // It is the address behind the call, which may be behind the function.
    let function = kernel.find(location.wrapping_sub(1));
    let (place, outcome) = classify_drop(&reason, function.map(|function| function.name));
    DropSite {
        reason,
        place,
        outcome,
        function: function.map(|function| function.name.to_owned()),
        offset: location - function.map_or(0, |function| function.address),
        module: function.and_then(|function| function.module).map(str::to_owned),
        packets: tally.packets,
        skbs: tally.skbs,
        bytes: tally.bytes,
    }
}

/// What one namespace counted, at both edges of the window.
#[derive(Debug)]
struct Watched {
    inode: u32,
    counters: Counters,
    before: Reading,
    after: Reading,
}

#[derive(Debug, Default)]
struct Watch {
    /// None where it was not asked for.
    bpf: Option<Result<Tracer, String>>,
    namespaces: BTreeMap<Option<u32>, Watched>,
    softnet: [Option<Vec<Softnet>>; 2],
    neighbours: [Option<BTreeMap<String, NeighbourTable>>; 2],
    traced: Option<BTreeMap<u32, Vec<DropSite>>>,
    no_room: u64,
    missing: Vec<String>,
}

impl Watch {
    fn count(&mut self, on: bool) {
        self.on_tracer(|tracer| tracer.count(on));
    }

    /// What fails leaves nothing traced: what has no table is not a table without drops.
    fn on_tracer(&mut self, act: impl FnOnce(&mut Tracer) -> Result<(), BpfError>) {
        if let Some(Ok(tracer)) = &mut self.bpf
            && let Err(error) = act(tracer)
        {
            self.bpf = Some(Err(error.to_string()));
        }
    }

    fn read_counters(&mut self, edge: Edge) {
        for watched in self.namespaces.values_mut() {
            let reading = watched.counters.read();
            match edge {
                Edge::Begin => watched.before = reading,
                Edge::End => watched.after = reading,
            }
        }
        self.softnet[edge as usize] = softnet::read().ok();
        self.neighbours[edge as usize] = neighbour_tables::read().ok();
    }

    fn read_traced(&mut self) {
        let tracer = match &self.bpf {
            Some(Ok(tracer)) => tracer,
            Some(Err(error)) => return self.missing.push(untraced(error)),
            None => return,
        };
        let hooks = tracer.loaded.missing.iter();
        self.missing.extend(hooks.map(|hook| format!("no tracepoint {hook}")));
        let traced = tracer.read(&mut self.missing);
        match traced.and_then(|traced| Ok((traced, tracer.no_room()?))) {
            Ok((traced, no_room)) => (self.traced, self.no_room) = (Some(traced), no_room),
            Err(error) => self.missing.push(untraced(&error.to_string())),
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        self.missing = shared.lost_namespaces();
        (self.traced, self.no_room) = (None, 0);
        let namespaces = shared.namespaces();
        let watched = namespaces.iter().map(|(of, namespace)| {
            let counters = Counters::open(namespace);
            let (before, after) = (Reading::default(), Reading::default());
            (*of, Watched { inode: namespace.inode, counters, before, after })
        });
        self.namespaces = watched.collect();
        self.on_tracer(|tracer| tracer.attach(&namespaces));
        Ok(())
    }

    fn edge(&mut self, _shared: &Shared, _at: Nanos, edge: Edge) {
        // A list of all devices takes long where there are thousands.
        self.count(edge == Edge::Begin);
    }

    fn begin(&mut self, shared: &Shared, _at: Nanos) {
        self.read_counters(Edge::Begin);
        for Watched { counters, before, .. } in self.namespaces.values_mut() {
            counters.ask_drivers(before, &shared.driver_statistics);
        }
    }

    fn end(&mut self, shared: &Shared, _at: Nanos) {
        self.read_counters(Edge::End);
        for Watched { counters, before, after, .. } in self.namespaces.values_mut() {
            counters.ask_drivers(after, &shared.driver_statistics);
            self.missing.append(&mut before.missing);
            self.missing.append(&mut after.missing);
        }
        if self.softnet.iter().any(Option::is_none) {
            self.missing.push("drops of the CPUs' backlogs".to_owned());
        }
        if self.neighbours.iter().any(Option::is_none) {
            self.missing.push("drops of neighbour tables".to_owned());
        }
        self.read_traced();
        if self.no_room > 0 {
            let skbs = self.no_room;
            self.missing.push(format!("{skbs} drops, as there were too many call sites"));
        }
        self.missing.sort();
        self.missing.dedup();
    }

    fn detach(&mut self) {
        if let Some(Ok(tracer)) = &mut self.bpf {
            tracer.loaded.detach();
        }
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(watched) = self.namespaces.get(&part.netns_of) else { return };
        let (before, after) = (&watched.before, &watched.after);
        let wanted = |name: &str| part.device.as_ref().is_none_or(|device| device == name);
        let [earlier, later] = &self.softnet;
        let [tables_before, tables_after] = &self.neighbours;
        into.drops = Some(DropsSection {
            traced: self.traced.as_ref().map(|all| traced(all, watched.inode, self.no_room)),
            devices: counters::devices(before, after, wanted),
            queueing_disciplines: counters::qdiscs(before, after, wanted),
            backlog: earlier
                .as_ref()
                .zip(later.as_ref())
                .map(|(before, after)| counters::backlog(before, after)),
            counters: counters::protocols(before, after),
            connection_tracking: counters::conntrack(before, after),
            neighbour_tables: tables_before
                .as_ref()
                .zip(tables_after.as_ref())
                .map(|(before, after)| counters::neighbours(before, after)),
        });
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    fn cost(&self) -> ProbeCost {
        match &self.bpf {
            Some(Ok(tracer)) => tracer.loaded.cost(),
            _ => ProbeCost::default(),
        }
    }
}

fn traced(all: &BTreeMap<u32, Vec<DropSite>>, inode: u32, uncounted: u64) -> TracedDrops {
    let of = |netns: u32| all.get(&netns).cloned().unwrap_or_default();
    let mut traced =
        TracedDrops { lost_packets: 0, sites: of(inode), unattributed: of(0), uncounted };
    traced.lost_packets = traced.packets(DropOutcome::Lost);
    traced
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::DropPlace;

    use super::*;

    #[test]
    fn a_call_site_is_in_the_function_that_called() {
        let kernel = Kallsyms::parse(
            "ffffffff81000000 T ip_rcv\nffffffff81000100 T udp_queue_rcv_one_skb\n\
             ffffffff81000200 T tcp_v4_rcv\nffffffffa0000000 t veth_xmit\t[veth]\n",
        );
        let tally = Tally { skbs: 2, packets: 7, bytes: 900 };
        let of = |location| described("SOCKET_RCVBUFF".to_owned(), location, tally, &kernel);
        // The call is the last instruction of its function.
        let site = of(0xffff_ffff_8100_0200);
        assert_eq!(site.function.as_deref(), Some("udp_queue_rcv_one_skb"));
        assert_eq!((site.offset, site.module), (0x100, None));
        assert_eq!((site.skbs, site.packets, site.bytes), (2, 7, 900));
        assert_eq!((site.place, site.outcome), (DropPlace::SocketBuffer, DropOutcome::Lost));
        let site = of(0xffff_ffff_a000_0010);
        assert_eq!((site.module.as_deref(), site.offset), (Some("veth"), 0x10));
        let site = of(0x1000);
        assert_eq!((site.function, site.offset), (None, 0x1000));
    }

    #[test]
    fn only_what_is_lost_is_in_the_sum() {
        let site = |packets, outcome| DropSite {
            reason: String::new(),
            place: DropPlace::Other,
            outcome,
            function: None,
            offset: 0,
            module: None,
            packets,
            skbs: 1,
            bytes: 1,
        };
        let sites = vec![
            site(1, DropOutcome::Lost),
            site(10, DropOutcome::Purged),
            site(100, DropOutcome::Duplicate),
            site(1_000, DropOutcome::NotForHost),
            site(10_000, DropOutcome::Part),
            site(100_000, DropOutcome::Lost),
        ];
        let all = BTreeMap::from([(7, sites), (0, vec![site(5, DropOutcome::Lost)])]);
        let drops = traced(&all, 7, 3);
        assert_eq!((drops.lost_packets, drops.uncounted), (100_001, 3));
        assert_eq!((drops.sites.len(), drops.unattributed.len()), (6, 1));
        assert_eq!(traced(&all, 8, 0).lost_packets, 0);
    }
}
