//! The observer: takes the probes that were asked for through windows, one after the other.

use std::collections::BTreeMap;

use wirecost_linux::clock::Monotonic;
use wirecost_linux::net_dev;
use wirecost_model::clock::{Clock, Nanos, seconds};
use wirecost_model::observe::{
    DeviceTraffic, HostObservation, ObserveRequest, ObserverReport, ProbeCost, ProbeReport,
    ProbeStatus,
};

use crate::probe::{Edge, Extent, Probe, Session, Shared, parse_entry};
use crate::probes;
use crate::sampler::PER_SECOND;
use crate::slices::Slices;
use crate::tracker::READ_EVERY;

/// One probe, as far as it got.
struct ActiveProbe {
    probe: &'static dyn Probe,
    extent: Extent,
    session: Option<Box<dyn Session>>,
    /// Why there is nothing of it.
    refused: Option<String>,
    attached: bool,
}

/// Probes of one machine. It never fails: what cannot be had is in the reports.
pub struct Observer {
    request: ObserveRequest,
    shared: Shared,
    probes: Vec<ActiveProbe>,
    window: Option<(Nanos, Nanos)>,
    /// Counters of the devices of the first part's namespace, at the edges of the window.
    devices: [DeviceCounters; 2],
}

type DeviceCounters = BTreeMap<String, net_dev::Counters>;

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("probes", &self.request.probes).finish_non_exhaustive()
    }
}

impl Observer {
    /// Loads what the probes need. This may take some hundred milliseconds.
    #[must_use]
    pub fn open(request: ObserveRequest) -> Self {
        Self::open_at(request, PER_SECOND)
    }

    /// The same, with so many samples a second of each CPU.
    #[must_use]
    pub fn open_at(request: ObserveRequest, samples_per_second: u32) -> Self {
        let shared = Shared::new(&request, samples_per_second);
        Self::open_with(request, shared)
    }

    /// The same without what CPUs do over time, to measure what that costs.
    #[must_use]
    pub fn open_without_cpu_samples(request: ObserveRequest) -> Self {
        let mut shared = Shared::new(&request, PER_SECOND);
        shared.leave_out_cpu_samples();
        Self::open_with(request, shared)
    }

    fn open_with(request: ObserveRequest, mut shared: Shared) -> Self {
        let wanted: Vec<&'static dyn Probe> = probes::ALL
            .iter()
            .copied()
            .filter(|probe| request.probes.iter().any(|entry| parse_entry(entry).0 == probe.name()))
            .collect();
        let probes = wanted
            .into_iter()
            .map(|probe| {
                let (session, refused) = match probe.open(&mut shared) {
                    Ok(session) => (Some(session), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                let extent = shared.extent(probe.name());
                ActiveProbe { probe, extent, session, refused, attached: false }
            })
            .collect();
        Self { request, shared, probes, window: None, devices: Default::default() }
    }

    /// Puts all hooks in place. From here on the host pays.
    pub fn attach(&mut self) {
        self.window = None;
        self.shared.attach();
        for active in &mut self.probes {
            let Some(session) = &mut active.session else { continue };
            match session.attach(&self.shared) {
                Ok(()) => active.attached = true,
                Err(error) => active.refused = Some(error.to_string()),
            }
        }
    }

    /// The window begins now.
    pub fn begin(&mut self) {
        let at = self.shared.begin();
        self.devices = Default::default();
        self.edge(at, Edge::Begin);
        self.window = Some((at, at));
        for session in attached(&mut self.probes) {
            session.begin(&self.shared, at);
        }
        self.shared.slices = Slices::of_window(at);
        // Whoever does not go on by `watch` has a window of one slice.
        if sliced(&mut self.probes).next().is_some() {
            self.slice();
        }
    }

    /// Goes through the window that has begun until `end`, with a reading at each `interval` from
    /// `start` on. `wait` waits until an instant; the window is over when it returns false.
    pub fn watch(
        &mut self,
        start: Nanos,
        end: Nanos,
        interval: Nanos,
        mut wait: impl FnMut(Nanos) -> bool,
    ) {
        let slices = sliced(&mut self.probes).next().is_some();
        let mut due = start.saturating_add(interval.max(1));
        let mut read = start.saturating_add(READ_EVERY);
        loop {
            let turn = if slices { self.shared.slices.next() } else { Nanos::MAX };
            let next = due.min(turn).min(read).min(end);
            if !wait(next) || next >= end {
                return;
            }
            if next >= read {
                self.shared.read();
                read = Monotonic.now().saturating_add(READ_EVERY);
            }
            if next >= turn {
                self.slice();
            }
            if next >= due {
                for session in attached(&mut self.probes) {
                    session.interval(&self.shared, due);
                }
                due = due.saturating_add(interval.max(1));
            }
        }
    }

    /// A slice begins, or the one under way ends.
    fn slice(&mut self) {
        let begins = !self.shared.slices.under_way();
        if !begins {
            self.shared.slices.ends(Monotonic.now());
        }
        for session in sliced(&mut self.probes) {
            session.slice(begins);
        }
        if begins {
            self.shared.slices.begins(Monotonic.now());
        }
    }

    /// The window ends now.
    pub fn end(&mut self) {
        if self.shared.slices.under_way() {
            self.slice();
        }
        let at = self.shared.end();
        self.edge(at, Edge::End);
        if let Some((_, end)) = &mut self.window {
            *end = at;
        }
        for session in attached(&mut self.probes) {
            session.end(&self.shared, at);
        }
        self.shared.collect();
    }

    /// Reads all that is quick to read, before anything that is not: the times of a thousand processes
    /// take milliseconds.
    fn edge(&mut self, at: Nanos, edge: Edge) {
        self.devices[edge as usize] = self.device_counters();
        for session in attached(&mut self.probes) {
            session.edge(&self.shared, at, edge);
        }
    }

    /// An error shows as devices that are not there.
    fn device_counters(&self) -> DeviceCounters {
        let process = self.request.parts.first().and_then(|part| part.netns_of);
        net_dev::read(process).unwrap_or_default()
    }

    /// What the devices of the first part's namespace counted in the window that ended last.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceTraffic> {
        let [before, after] = &self.devices;
        let traffic = after.iter().filter_map(|(name, after)| {
            let before = before.get(name)?;
            let grown = |of: fn(&net_dev::Counters) -> u64| of(after).saturating_sub(of(before));
            Some(DeviceTraffic {
                device: name.clone(),
                rx_bytes: grown(|c| c.rx_bytes),
                rx_packets: grown(|c| c.rx_packets),
                rx_drops: grown(|c| c.rx_drops),
                tx_bytes: grown(|c| c.tx_bytes),
                tx_packets: grown(|c| c.tx_packets),
                tx_drops: grown(|c| c.tx_drops),
            })
        });
        traffic.collect()
    }

    /// Takes all hooks away. From here on the host pays nothing.
    pub fn detach(&mut self) {
        for session in attached(&mut self.probes) {
            session.detach();
        }
        self.shared.detach();
    }

    /// What was seen in the window that ended last.
    pub fn take(&mut self) -> ObserverReport {
        let Some((begin, end)) = self.window else {
            return ObserverReport { probes: self.reports(), parts: Vec::new() };
        };
        let mut parts = Vec::new();
        for part in &self.request.parts {
            let mut observed = HostObservation {
                host: part.host.clone(),
                covers: part.covers.clone(),
                seconds: seconds(end.saturating_sub(begin)),
                ..HostObservation::default()
            };
            for session in attached(&mut self.probes) {
                session.fill(&self.shared, part, &mut observed);
            }
            parts.push(observed);
        }
        ObserverReport { probes: self.reports(), parts }
    }

    /// How each probe of the request did; before the first window, what each can do.
    pub fn reports(&mut self) -> Vec<ProbeReport> {
        let host = self.request.parts.first().map(|part| part.host.clone()).unwrap_or_default();
        let mut reports = Vec::new();
        for active in &self.probes {
            let missing =
                active.session.as_ref().map(|session| session.missing()).unwrap_or_default();
            let (status, reason) = match &active.refused {
                Some(reason) => (ProbeStatus::No, Some(reason.clone())),
                None if missing.is_empty() => (ProbeStatus::Ready, None),
                None => (ProbeStatus::Partial, Some(missing.join("; "))),
            };
            let own = active.session.as_ref().map(|session| session.cost()).unwrap_or_default();
            let cost = match active.session {
                Some(_) => sum(self.shared.cost(), own),
                None => own,
            };
            reports.push(ProbeReport {
                host: host.clone(),
                name: active.probe.name().to_owned(),
                status,
                reason,
                cost,
            });
        }
        reports
    }
}

/// Sessions whose hooks are in place for slices of the window.
fn sliced(probes: &mut [ActiveProbe]) -> impl Iterator<Item = &mut Box<dyn Session>> {
    attached_if(probes, |active| active.extent == Extent::Sliced)
}

fn attached(probes: &mut [ActiveProbe]) -> impl Iterator<Item = &mut Box<dyn Session>> {
    attached_if(probes, |_| true)
}

fn attached_if(
    probes: &mut [ActiveProbe],
    wanted: impl Fn(&ActiveProbe) -> bool,
) -> impl Iterator<Item = &mut Box<dyn Session>> {
    probes
        .iter_mut()
        .filter(move |active| active.attached && wanted(active))
        .filter_map(|active| active.session.as_mut())
}

fn sum(a: ProbeCost, b: ProbeCost) -> ProbeCost {
    ProbeCost {
        hooks: a.hooks + b.hooks,
        load_ms: a.load_ms + b.load_ms,
        attach_ms: a.attach_ms + b.attach_ms,
        recursion_misses: a.recursion_misses + b.recursion_misses,
        lost: a.lost + b.lost,
    }
}

#[cfg(test)]
#[path = "../../../tests/attempts.rs"]
mod attempts;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use wirecost_linux::link::Links;
    use wirecost_linux::netns::{NetNs, NetNsGuard};
    use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};
    use wirecost_model::observe::Part;

    use super::attempts::undisturbed_machine;
    use super::*;

    const LONG: Duration = Duration::from_millis(100);

    /// Takes long to read, as the times of many processes do.
    struct Slow;

    impl Session for Slow {
        fn begin(&mut self, _shared: &Shared, _at: Nanos) {
            thread::sleep(LONG);
        }

        fn end(&mut self, _shared: &Shared, _at: Nanos) {
            thread::sleep(LONG);
        }

        fn fill(&mut self, _shared: &Shared, _part: &Part, _into: &mut HostObservation) {}
    }

    /// Moves data over loopback until told to stop.
    fn traffic(over: &AtomicBool) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut buffer = [7; 1_000];
        while !over.load(Ordering::Relaxed) {
            client.write_all(&buffer).unwrap();
            server.read_exact(&mut buffer).unwrap();
        }
    }

    /// Runs while there is traffic.
    fn during_traffic(work: impl FnOnce()) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| traffic(&over));
            work();
            over.store(true, Ordering::Relaxed);
        });
    }

    /// A window with traffic at one of its edges, beyond it.
    fn window_with_traffic_across(edge: Edge) {
        let probes = ["interrupts:basic", "segments", "tcp"].map(str::to_owned).to_vec();
        let parts = vec![Part { host: "here".to_owned(), ..Part::default() }];
        let mut observer = Observer::open(ObserveRequest { probes, parts });
        let slow = ActiveProbe {
            probe: probes::ALL[0],
            extent: Extent::Whole,
            session: Some(Box::new(Slow)),
            refused: None,
            attached: false,
        };
        observer.probes.insert(0, slow);
        observer.attach();
        match edge {
            Edge::Begin => {
                during_traffic(|| {
                    thread::sleep(LONG);
                    observer.begin();
                });
                observer.end();
            }
            Edge::End => {
                observer.begin();
                during_traffic(|| {
                    thread::sleep(LONG);
                    observer.end();
                });
            }
        }
        observer.detach();
        let seen = observer.take().parts.remove(0);
        let exact = &seen.segments.as_ref().unwrap().devices[0].sent;
        let interrupts = seen.interrupts.unwrap();
        let lo = interrupts.devices.iter().find(|device| device.device == "lo").unwrap();
        let near = |counted: u64, exact: u64| {
            assert!(exact > 100 && counted.abs_diff(exact) < exact / 5, "{counted} of {exact}");
        };
        near(lo.tx_packets, exact.packets);
        near(seen.tcp.unwrap().segments_sent.unwrap(), exact.segments);
        let devices = observer.devices();
        near(devices.iter().find(|d| d.device == "lo").unwrap().tx_packets, exact.packets);
    }

    #[test]
    fn counters_are_those_of_the_exact_window_whatever_else_is_read() {
        const NAME: &str = "counters_are_those_of_the_exact_window_whatever_else_is_read";
        if skip_without_namespaces(NAME) || skip_without_tracing(NAME) {
            return;
        }
        let name = format!("wirecost-test-{}-edges", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        Links::of(&namespace).unwrap().up("lo").unwrap();
        for edge in [Edge::Begin, Edge::End] {
            undisturbed_machine(|| {
                namespace.run(|| window_with_traffic_across(edge)).unwrap();
            });
        }
    }
}
