//! Interrupts by source, softirqs by vector, how packets were fetched, and how many each interrupt
//! brought.

mod tables;
pub(super) mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::interrupts::{self, Line};
use wirecost_linux::net_dev;
use wirecost_linux::netns::NetNs;
use wirecost_linux::process_time;
use wirecost_linux::softnet::{self, Softnet};
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    DEVICES_UNREADABLE, DeviceInterrupts, HostObservation, InterruptRow, InterruptsSection,
    KsoftirqdUse, NapiRow, Part, ProbeCost, Slices, SoftnetRow,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::bpf::{BpfError, LoadedObject, Options, compiled};
use crate::driver_counters::DriverStatistics;
use crate::probe::{Description, Edge, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::tracker::{self, Source, SourceKind, Times, TrackerNeeds, slot};
use tables::Counted;
use vectors::Device;

/// Of a network namespace that no process was named for.
type Namespace = Option<u32>;

#[derive(Debug)]
pub(crate) struct Interrupts;

impl Probe for Interrupts {
    fn name(&self) -> &'static str {
        "interrupts"
    }

    fn about(&self) -> Description {
        Description {
            tells: "hard interrupts by source and CPU, and softirqs by vector: count, mean and \
                    maximum time, histogram; packets per interrupt, NAPI polls, ksoftirqd",
            needs: "BPF with BTF (root, or CAP_BPF and CAP_PERFMON); without it, and as \
                    `interrupts:basic`, only the counts of /proc/interrupts, softirqs and \
                    net/softnet_stat",
            costs: "in addition to the hooks of `cpu`, a table entry for each interrupt and \
                    softirq and one program at each NAPI poll; as `interrupts:sliced`, which is in \
                    `full`, only in a fifth of the window; `interrupts:basic` has no hooks",
            limitations: "interrupts without a tracepoint (NMI, hypervisor callbacks) are counted, not \
                    timed; handlers that share an interrupt are one source; packets per interrupt \
                    are by queue only if the driver counts by queue",
        }
    }

    fn extents(&self) -> &'static [Extent] {
        &[Extent::Basic, Extent::Sliced]
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Basic), full: Some(Extent::Sliced) }
    }

    fn ask_tracker(&self, wants: &mut TrackerNeeds) {
        wants.tables = true;
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let basic = shared.basic(self.name());
        let mut watch = Watch {
            basic,
            sliced: shared.sliced(self.name()),
            drivers: interrupts::drivers(),
            storage: interrupts::of_storage().ok(),
            threads: tracker::ksoftirqd(),
            ..Watch::default()
        };
        if !basic {
            // Without either the counts of /proc are left.
            let _ = shared.need_tracker();
            let options = Options::default();
            watch.napi = Some(
                LoadedObject::load(compiled!("napi", "probes_interrupts_probe"), &options)
                    .and_then(|loaded| match loaded.missing.as_slice() {
                        [] => Ok(loaded),
                        [hook, ..] => Err(BpfError::Attach {
                            program: hook.clone(),
                            reason: "this kernel has no such tracepoint".to_owned(),
                        }),
                    })
                    .map_err(|error| error.to_string()),
            );
            watch.missing.extend(shared.tracker_error().map(not_timed));
            watch
                .missing
                .extend(watch.napi.as_ref().and_then(|napi| napi.as_ref().err()).map(unpolled));
        }
        Ok(Box::new(watch))
    }
}

fn not_timed(error: &str) -> String {
    format!("interrupts and softirqs are counted (/proc), not timed: {error}")
}

fn unpolled(error: &String) -> String {
    format!("NAPI polls were not observed: {error}")
}

#[derive(Debug, Default)]
struct Watch {
    basic: bool,
    /// Whether polls are watched in slices of the window only.
    sliced: bool,
    drivers: BTreeMap<u32, String>,
    /// Interrupts of storage controllers; none where the bus cannot be read.
    storage: Option<BTreeSet<u32>>,
    /// The thread ksoftirqd of each CPU: its pid.
    threads: Vec<(u32, u32)>,
    /// Polls of NAPI, or why they are not watched; none where nobody asked.
    napi: Option<Result<LoadedObject, String>>,
    begin: Reading,
    end: Reading,
    /// By source, each with a value for every possible CPU; none where nothing was traced.
    sources: Option<BTreeMap<SourceKind, Vec<Source>>>,
    /// Of the CPUs, where they were traced.
    times: Option<Times>,
    coverage: Option<Slices>,
    missing: Vec<String>,
}

/// What is read at an edge of the window.
#[derive(Debug, Default)]
struct Reading {
    at: Nanos,
    interrupts: Vec<Line>,
    softirqs: Vec<Line>,
    softnet: Vec<Softnet>,
    /// CPU time of the thread of each CPU.
    ksoftirqd: BTreeMap<u32, Nanos>,
    napi: Option<Polls>,
    namespaces: BTreeMap<Namespace, BTreeMap<String, Device>>,
    /// Their numbers, as the process that stands for one may be gone later.
    numbers: BTreeMap<Namespace, u64>,
}

/// NAPI instances by address; 0 is the backlog.
type Polls = BTreeMap<u64, Vec<Poll>>;

/// `struct poll` of probe.bpf.c.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Poll {
    polls: u64,
    packets: u64,
    empty: u64,
    exhausted: u64,
    histogram: [u64; 16],
    id: u32,
    netns: u32,
    device: [u8; 16],
}

impl Watch {
    fn read(&self, shared: &Shared, at: Nanos) -> Reading {
        let wanted: BTreeSet<Namespace> = shared.parts().iter().map(|part| part.netns_of).collect();
        Reading {
            at,
            interrupts: interrupts::interrupts().unwrap_or_default(),
            namespaces: wanted.iter().map(|of| (*of, devices(*of))).collect(),
            softirqs: interrupts::softirqs().unwrap_or_default(),
            softnet: softnet::read().unwrap_or_default(),
            ksoftirqd: self
                .threads
                .iter()
                .filter_map(|&(cpu, pid)| Some((cpu, process_time::cpu_time(pid)?)))
                .collect(),
            napi: self.napi.as_ref().and_then(|napi| polls(napi.as_ref().ok()?).ok()),
            numbers: wanted.iter().filter_map(|of| Some((*of, number(*of)?))).collect(),
        }
    }
}

impl Reading {
    /// What drivers say, of which some ask their device.
    fn ask_drivers(&mut self, known: &DriverStatistics) {
        for (of, devices) in &mut self.namespaces {
            ask_drivers(*of, devices, known);
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, _shared: &Shared) -> Result<(), Unavailable> {
        if !self.sliced {
            self.watch_polls();
        }
        Ok(())
    }

    fn slice(&mut self, begins: bool) {
        if begins {
            self.watch_polls();
        } else {
            self.detach();
        }
    }

    fn edge(&mut self, shared: &Shared, at: Nanos, edge: Edge) {
        let reading = self.read(shared, at);
        match edge {
            Edge::Begin => self.begin = reading,
            Edge::End => self.end = reading,
        }
    }

    fn begin(&mut self, shared: &Shared, _at: Nanos) {
        self.begin.ask_drivers(&shared.driver_statistics);
    }

    fn end(&mut self, shared: &Shared, at: Nanos) {
        self.end.ask_drivers(&shared.driver_statistics);
        self.missing.clear();
        self.sources = None;
        self.coverage = self.sliced.then(|| shared.slices.coverage(at));
        self.times = (!self.basic).then(|| shared.tracker()?.times().ok()).flatten();
        if !self.basic {
            let sources = match (shared.tracker(), shared.tracker_error()) {
                (Some(tracker), _) => tracker.sources().map_err(|error| error.to_string()),
                (None, Some(error)) => Err(error.to_owned()),
                (None, None) => Err("nothing was traced".to_owned()),
            };
            match sources {
                Ok(sources) => self.sources = Some(sources),
                Err(error) => self.missing.push(not_timed(&error)),
            }
        }
        if let Some(Err(error)) = &self.napi {
            self.missing.push(unpolled(error));
        }
    }

    fn detach(&mut self) {
        if let Some(Ok(napi)) = &mut self.napi {
            napi.detach();
        }
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        into.interrupts = Some(self.section(part));
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    fn cost(&self) -> ProbeCost {
        match &self.napi {
            Some(Ok(napi)) => napi.cost(),
            _ => ProbeCost::default(),
        }
    }
}

impl Watch {
    fn watch_polls(&mut self) {
        if let Some(Ok(napi)) = &mut self.napi
            && let Err(error) = napi.attach()
        {
            self.napi = Some(Err(error.to_string()));
        }
    }

    fn section(&self, part: &Part) -> InterruptsSection {
        let (begin, end) = (&self.begin, &self.end);
        let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        let window = seconds(end.at.saturating_sub(begin.at));
        let traced = self.sources.as_ref();
        let counted = Counted { before: &begin.interrupts, after: &end.interrupts };
        let interrupts = tables::interrupts(traced, counted, &self.drivers, window, &wanted);
        let counted = Counted { before: &begin.softirqs, after: &end.softirqs };
        let softirqs = tables::softirqs(traced, counted, window, &wanted);
        // A sum of nothing would be -0.
        let per_second =
            |rows: &[InterruptRow]| rows.iter().fold(0.0, |sum, row| sum + row.per_second);
        let cpus = tracker::online_cpus().into_iter().filter(|cpu| wanted(*cpu)).count();
        let softnet = softnet_rows(&begin.softnet, &end.softnet, &wanted);
        let mut missing = self.missing.clone();
        if self.basic {
            missing.push(
                "times, histograms, NAPI polls: `interrupts:basic` reads only the counts of /proc"
                    .to_owned(),
            );
        } else if interrupts.iter().any(|row| row.total.seconds.is_none()) && traced.is_some() {
            missing.push("times of interrupts without a tracepoint".to_owned());
        }
        let unmatched = traced.and(self.times.as_ref()).map(|times| {
            let cpus = times.cpus.iter().filter(|(cpu, _)| wanted(**cpu));
            cpus.map(|(_, spent)| spent.unmatched).sum()
        });
        // One of each kind may be under way on a CPU when the window begins.
        if let Some(count) = unmatched.filter(|&count| count > 2 * cpus as u64) {
            missing.push(format!(
                "times of {count} interrupts or softirqs whose start was not observed"
            ));
        }
        let devices = device_rows(begin, end, part, window);
        if end.namespaces.get(&part.netns_of).is_none_or(BTreeMap::is_empty) {
            missing.push(DEVICES_UNREADABLE.to_owned());
        }
        InterruptsSection {
            source: if traced.is_some() { "bpf" } else { "proc" }.to_owned(),
            seconds: window,
            cpus: cpus as u32,
            storage_sources: self
                .storage
                .as_ref()
                .map(|irqs| irqs.iter().map(u32::to_string).collect()),
            interrupts_per_second: per_second(&interrupts),
            softirqs_per_second: per_second(&softirqs),
            interrupts,
            softirqs,
            devices,
            napi: napi_rows(begin, end, part),
            napi_slices: self.coverage.filter(|_| end.napi.is_some()),
            softnet_total: softnet_sum(&softnet),
            softnet,
            ksoftirqd: ksoftirqd(begin, end, self.times.as_ref(), &wanted),
            unmatched,
            missing,
        }
    }
}

/// Devices of a namespace and what they count. What cannot be read is not there.
fn devices(of: Namespace) -> BTreeMap<String, Device> {
    let counted = net_dev::read(of).unwrap_or_default().into_iter();
    counted.map(|(name, packets)| (name, Device { packets, ..Device::default() })).collect()
}

/// The interrupts of devices of a namespace, and what their drivers count.
fn ask_drivers(of: Namespace, devices: &mut BTreeMap<String, Device>, known: &DriverStatistics) {
    let namespace = number(of).and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let mut ask = || {
        let Ok(ethtool) = Ethtool::open() else { return };
        for (name, device) in devices.iter_mut() {
            let driver = ethtool.driver(name).ok();
            device.irqs =
                driver.as_ref().and_then(|driver| interrupts::of_device(driver.bus.as_ref()?));
            device.driver = driver.map(|driver| driver.name);
            if device.irqs.is_some() {
                let told = known.of(namespace, name, || ethtool.statistics(name));
                device.statistics = told.unwrap_or_default();
            }
        }
    };
    let Some(pid) = of.filter(|_| number(of) != number(None)) else { return ask() };
    if NetNs::of_process(pid).and_then(|namespace| namespace.run(ask)).is_err() {
        // Who may not enter may still read what its devices count.
        devices.values_mut().for_each(|device| device.irqs = Some(Vec::new()));
    }
}

/// The device that is meant, or all that did or could do anything.
fn device_rows(begin: &Reading, end: &Reading, part: &Part, window: f64) -> Vec<DeviceInterrupts> {
    let none = BTreeMap::new();
    let before = begin.namespaces.get(&part.netns_of).unwrap_or(&none);
    let after = end.namespaces.get(&part.netns_of).unwrap_or(&none);
    let rows = after.iter().filter(|(name, _)| part.device.as_ref().is_none_or(|d| d == *name));
    rows.filter_map(|(name, device)| {
        let lines = (begin.interrupts.as_slice(), end.interrupts.as_slice());
        Some(vectors::device(name, (before.get(name)?, device), lines, window))
    })
    .filter(|row| {
        part.device.is_some() || row.rx_packets + row.tx_packets + row.interrupts.unwrap_or(0) > 0
    })
    .collect()
}

fn polls(napi: &LoadedObject) -> Result<Polls, BpfError> {
    let mut polls: Polls = napi.values::<u64, Poll>("instances")?.into_iter().collect();
    let backlog = napi.values::<u32, Poll>("backlog")?;
    polls.extend(backlog.into_iter().map(|(_, values)| (0, values)));
    Ok(polls)
}

/// Number of the namespace as the kernel knows it: that of the file which stands for it.
fn number(of: Namespace) -> Option<u64> {
    let process = of.map_or_else(|| "thread-self".to_owned(), |pid| pid.to_string());
    Some(std::fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino())
}

fn napi_rows(begin: &Reading, end: &Reading, part: &Part) -> Option<Vec<NapiRow>> {
    let (before, after) = (begin.napi.as_ref()?, end.napi.as_ref()?);
    let namespace = begin.numbers.get(&part.netns_of).copied();
    let mut rows = Vec::new();
    for (address, values) in after {
        let Some(first) = values.iter().find(|value| *address == 0 || value.netns > 0) else {
            continue;
        };
        let device = (*address != 0).then(|| {
            let end = first.device.iter().position(|&byte| byte == 0).unwrap_or(first.device.len());
            String::from_utf8_lossy(&first.device[..end]).into_owned()
        });
        let meant = match &device {
            // The backlog of a CPU is everybody's.
            None => true,
            Some(device) => {
                namespace == Some(u64::from(first.netns))
                    && part.device.as_ref().is_none_or(|meant| meant == device)
            }
        };
        if !meant {
            continue;
        }
        let mut row =
            NapiRow { device, id: (*address != 0).then_some(first.id), ..NapiRow::default() };
        let mut histogram = [0; 16];
        for (place, value) in values.iter().enumerate() {
            if part.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&(place as u32))) {
                continue;
            }
            let earlier = before.get(address).and_then(|values| values.get(place));
            let since = |of: fn(&Poll) -> u64| of(value) - earlier.map_or(0, of).min(of(value));
            row.polls += since(|poll| poll.polls);
            row.packets += since(|poll| poll.packets);
            row.empty += since(|poll| poll.empty);
            row.budget_exhausted += since(|poll| poll.exhausted);
            for (slot, sum) in histogram.iter_mut().enumerate() {
                let earlier = earlier.map_or(0, |poll| poll.histogram[slot]);
                *sum += value.histogram[slot].saturating_sub(earlier);
            }
        }
        row.packets_per_poll = (row.polls > 0).then(|| row.packets as f64 / row.polls as f64);
        row.histogram_packets = super::without_trailing_zeros(&histogram);
        if row.polls > 0 {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
    Some(rows)
}

fn softnet_rows(
    before: &[Softnet],
    after: &[Softnet],
    wanted: &impl Fn(u32) -> bool,
) -> Vec<SoftnetRow> {
    let rows = after.iter().filter(|row| wanted(row.cpu)).filter_map(|after| {
        let before = before.iter().find(|before| before.cpu == after.cpu)?;
        // 32 bits of them are printed.
        let since = |of: fn(&Softnet) -> u32| u64::from(of(after).wrapping_sub(of(before)));
        Some(SoftnetRow {
            cpu: Some(after.cpu),
            processed: since(|row| row.processed),
            dropped: since(|row| row.dropped),
            time_squeezed: since(|row| row.time_squeezed),
            received_rps: since(|row| row.received_rps),
            flow_limited: after.flow_limited.map(|_| since(|row| row.flow_limited.unwrap_or(0))),
        })
    });
    rows.collect()
}

fn softnet_sum(rows: &[SoftnetRow]) -> SoftnetRow {
    let mut total = SoftnetRow::default();
    for row in rows {
        total.processed += row.processed;
        total.dropped += row.dropped;
        total.time_squeezed += row.time_squeezed;
        total.received_rps += row.received_rps;
        if let Some(limited) = row.flow_limited {
            total.flow_limited = Some(total.flow_limited.unwrap_or(0) + limited);
        }
    }
    total
}

fn ksoftirqd(
    begin: &Reading,
    end: &Reading,
    times: Option<&Times>,
    wanted: &impl Fn(u32) -> bool,
) -> Option<KsoftirqdUse> {
    let threads = end.ksoftirqd.iter().filter(|(cpu, _)| wanted(**cpu));
    let used =
        threads.filter_map(|(cpu, after)| Some(after.saturating_sub(*begin.ksoftirqd.get(cpu)?)));
    let used: Vec<Nanos> = used.collect();
    let (mut within, mut all) = (0, 0);
    let cpus = times.iter().flat_map(|times| &times.cpus);
    for (_, spent) in cpus.filter(|(cpu, _)| wanted(**cpu)) {
        within += slot::SOFTIRQS_IN_KSOFTIRQD.map(|slot| spent.ns[slot]).sum::<u64>();
        all += slot::SOFTIRQS.map(|slot| spent.ns[slot]).sum::<u64>();
    }
    (!used.is_empty()).then(|| KsoftirqdUse {
        seconds: seconds(used.iter().sum()),
        softirq_seconds: times.map(|_| seconds(within)),
        share: (all > 0).then(|| within as f64 / all as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_cannot_be_read_are_told_from_those_that_moved_nothing() {
        let why = |names: &[&str]| {
            let devices = || names.iter().map(|name| ((*name).to_owned(), Device::default()));
            let reading = || Reading {
                namespaces: BTreeMap::from([(None, devices().collect())]),
                ..Reading::default()
            };
            let watch = Watch { begin: reading(), end: reading(), ..Watch::default() };
            let section = watch.section(&Part::default());
            assert_eq!(section.devices, []);
            let told = section.missing.iter().any(|missing| missing == DEVICES_UNREADABLE);
            (told, section.packets(|device| device.rx_packets).unwrap_err())
        };
        assert_eq!(why(&[]), (true, DEVICES_UNREADABLE.to_owned()));
        assert_eq!(why(&["lo"]), (false, "no device of the namespace moved a packet".to_owned()));
    }

    #[test]
    fn counters_of_32_bits_wrap() {
        let of =
            |processed| Softnet { cpu: 1, processed, flow_limited: Some(3), ..Softnet::default() };
        let rows = softnet_rows(&[of(u32::MAX - 1)], &[of(5)], &|_| true);
        assert_eq!((rows[0].processed, rows[0].flow_limited), (7, Some(0)));
        assert_eq!(softnet_sum(&rows).processed, 7);
        assert_eq!(softnet_rows(&[of(1)], &[of(5)], &|cpu| cpu == 0), []);
    }
}
