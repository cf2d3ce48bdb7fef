//! Memory of sockets, how many there are, and pressure on TCP's memory: by /proc alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use wirecost_linux::net_counters::NetCounters;
use wirecost_linux::socket_memory::{self, Slab, Sockstat};
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    Gauge, HostObservation, MemorySample, MemorySection, Part, SocketCounts, SocketSlab,
    TcpMemoryLimits, TcpMemoryPressure,
};

use crate::probe::{Description, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::series::Series;
use crate::tracker::online_cpus;

#[derive(Debug)]
pub(crate) struct Memory;

impl Probe for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> Description {
        Description {
            tells: "memory of TCP and UDP sockets over time and the limits of TCP, memory \
                    pressure, sockets by state, waiting IP fragments, the kernel's socket caches",
            needs: "only /proc; root for the caches, and in a network namespace for the limits",
            costs: "three small files per interval, and two files of counters at the edges of the \
                    window; `memory`, but not `memory:basic`, which is in `standard`, also reads \
                    the list of all caches there",
            limitations: "memory and orphans are those of all network namespaces; each CPU accounts for \
                    up to 1 MiB later (net.core.mem_pcpu_rsv); page fragments count only with the \
                    socket that holds their data; caches that the kernel merged with others are \
                    not listed; peaks between two readings",
        }
    }

    fn extents(&self) -> &'static [Extent] {
        &[Extent::Basic]
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Basic), full: Some(Extent::Whole) }
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        Ok(Box::new(Watch { basic: shared.basic(self.name()), ..Watch::default() }))
    }
}

#[derive(Debug, Default)]
struct Watch {
    /// Without the caches.
    basic: bool,
    /// By the process that names the namespace.
    namespaces: BTreeMap<Option<u32>, Watched>,
    slabs: Option<(Vec<Slab>, Vec<Slab>)>,
    limits: Option<TcpMemoryLimits>,
    uncertainty: Option<u64>,
    begin: Nanos,
    missing: Vec<String>,
}

/// One network namespace.
#[derive(Debug)]
struct Watched {
    process: PathBuf,
    before: Option<NetCounters>,
    section: MemorySection,
    series: Series<MemorySample>,
    lost: bool,
}

impl Watched {
    fn of(process: PathBuf) -> Self {
        let (section, series) = (MemorySection::default(), Series::default());
        Self { process, before: None, section, series, lost: false }
    }

    fn read(&mut self, begin: Nanos, at: Nanos) {
        let Ok(now) = Sockstat::of(&self.process) else {
            self.lost = true;
            return;
        };
        let sample = MemorySample {
            seconds: seconds(at.saturating_sub(begin)),
            tcp_bytes: now.bytes("TCP"),
            udp_bytes: now.bytes("UDP"),
            reassembly_bytes: now.sum(&["FRAG.memory", "FRAG6.memory"]),
            tcp_sockets: now.sum(&["TCP.inuse", "TCP6.inuse"]),
            time_wait: now.get("TCP.tw"),
            orphans: now.get("TCP.orphan"),
            under_pressure: socket_memory::tcp_under_pressure(&self.process),
        };
        let section = &mut self.section;
        Gauge::add(&mut section.tcp_bytes, sample.tcp_bytes);
        Gauge::add(&mut section.udp_bytes, sample.udp_bytes);
        Gauge::add(&mut section.reassembly_bytes, sample.reassembly_bytes);
        let SocketCounts { used, tcp, udp, time_wait, orphans, tcp_allocated } =
            &mut section.sockets;
        Gauge::add(used, now.get("sockets.used"));
        Gauge::add(tcp, sample.tcp_sockets);
        Gauge::add(udp, now.sum(&["UDP.inuse", "UDP6.inuse"]));
        Gauge::add(time_wait, sample.time_wait);
        Gauge::add(orphans, sample.orphans);
        Gauge::add(tcp_allocated, now.get("TCP.alloc"));
        if let Some(under) = sample.under_pressure {
            *section.pressure.readings.get_or_insert(0) += u64::from(under);
        }
        self.series.push(at, sample);
    }

    fn counters(&self) -> Option<NetCounters> {
        NetCounters::of(&self.process).ok()
    }

    /// What the counters of pressure have grown by.
    fn pressure(&self) -> TcpMemoryPressure {
        let after = self.counters();
        let grown =
            |name: &str| after.as_ref()?.since(self.before.as_ref()?, &format!("TcpExt.{name}"));
        TcpMemoryPressure {
            entered: grown("TCPMemoryPressures"),
            seconds: grown("TCPMemoryPressuresChrono")
                .map(|milliseconds| milliseconds as f64 / 1e3),
            aborted: grown("TCPAbortOnMemory"),
            ..self.section.pressure
        }
    }
}

impl Watch {
    fn slabs(&mut self) -> Option<Vec<Slab>> {
        if self.basic {
            return None;
        }
        match socket_memory::slabs() {
            Ok(slabs) => Some(slabs),
            Err(error) => {
                self.missing.push(format!("the kernel's caches: /proc/slabinfo: {error}"));
                None
            }
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        self.missing = shared.lost_namespaces();
        let namespaces = shared.namespaces().into_iter();
        self.namespaces =
            namespaces.map(|(named, namespace)| (named, Watched::of(namespace.process))).collect();
        self.limits = match socket_memory::tcp_limits() {
            Ok([low_bytes, pressure_bytes, high_bytes]) => {
                Some(TcpMemoryLimits { low_bytes, pressure_bytes, high_bytes })
            }
            Err(error) => {
                self.missing.push(format!("the limits of TCP: net.ipv4.tcp_mem: {error}"));
                None
            }
        };
        let reserve = socket_memory::reserve_of_each_cpu().ok();
        self.uncertainty = reserve.map(|each| each.saturating_mul(online_cpus().len() as u64));
        Ok(())
    }

    fn begin(&mut self, _shared: &Shared, at: Nanos) {
        self.begin = at;
        self.slabs = self.slabs().map(|before| (before, Vec::new()));
        for watched in self.namespaces.values_mut() {
            watched.before = watched.counters();
            watched.read(at, at);
        }
    }

    fn interval(&mut self, _shared: &Shared, at: Nanos) {
        for watched in self.namespaces.values_mut() {
            if watched.series.wants(at) {
                watched.read(self.begin, at);
            }
        }
    }

    fn end(&mut self, _shared: &Shared, at: Nanos) {
        for watched in self.namespaces.values_mut() {
            watched.read(self.begin, at);
            watched.section.pressure = watched.pressure();
            if watched.lost || watched.section.pressure.entered.is_none() {
                self.missing
                    .push("readings of a network namespace that no longer exists".to_owned());
            }
        }
        if let Some(after) = self.slabs()
            && let Some((_, at_end)) = &mut self.slabs
        {
            *at_end = after;
        }
        self.missing.sort();
        self.missing.dedup();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(watched) = self.namespaces.get(&part.netns_of) else { return };
        into.memory = Some(MemorySection {
            uncertainty_bytes: self.uncertainty,
            tcp_limits: self.limits,
            slabs: self.slabs.as_ref().map(|(before, after)| grown(before, after)),
            samples: watched.series.iter().map(|(_, sample)| *sample).collect(),
            ..watched.section.clone()
        });
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}

/// Caches that were there at both edges of the window.
fn grown(before: &[Slab], after: &[Slab]) -> Vec<SocketSlab> {
    let both = after.iter().filter_map(|end| {
        let begin = before.iter().find(|begin| begin.name == end.name)?;
        Some(SocketSlab {
            name: end.name.clone(),
            object_bytes: end.object_bytes,
            objects_begin: begin.objects,
            objects_end: end.objects,
            bytes_begin: begin.bytes,
            bytes_end: end.bytes,
        })
    });
    both.collect()
}
