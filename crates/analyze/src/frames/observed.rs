//! The same packets by queue, by CPU and by the place of a drop, from what a lab's devices counted and probes read.

use wirecost_model::frames::{Frames, FramesCpu, FramesQueue, FramesSource, FramesTraced, Stage};
use wirecost_model::link::nic::DeviceCounts;
use wirecost_model::observe::{
    Direction, DropOutcome, DropPlace, HostObservation, NicDevice, NicQueue, QueueSource,
    SoftnetRow, TracedDrops,
};
use wirecost_model::program::Side;
use wirecost_model::run::Run;

/// Adds what was read in the window of this run. Of a run with several passes, call it for the first: the others
/// counted other packets.
pub(crate) fn add_observed(run: &mut Run) {
    let Some(mut frames) = run.frames.take() else { return };
    let observations = run.observe.as_ref().map_or(&[][..], |observe| &observe.hosts);
    let window = run.window.as_ref().map_or(0.0, |window| window.seconds);
    let lab = run.link.as_ref().map_or(&[][..], |link| &link.devices);
    for host in &run.hosts {
        // A lab's devices count by queue what the kernel does not.
        if let Some(device) = lab.iter().find(|device| device.host == host.name) {
            let seconds = run.link.as_ref().map_or(window, |link| link.seconds);
            frames.queues.extend(of_lab(device, seconds));
            continue;
        }
        let observed = observations.iter().find(|of| of.host == host.name);
        match observed.map(of_devices) {
            Some(Ok(queues)) => frames.queues.extend(queues),
            Some(Err(reason)) => {
                frames.uncounted.push(format!("queues of {}: {reason}", host.name))
            }
            None => frames
                .uncounted
                .push(format!("queues of {}: its devices were not observed", host.name)),
        }
    }
    for observed in observations {
        match &observed.interrupts {
            Some(interrupts) => frames.cpus.extend(of_cpus(observed, &interrupts.softnet)),
            None => frames.uncounted.push(format!(
                "CPUs of {}: the probe interrupts did not run",
                observed.covers.join(", ")
            )),
        }
        if let Some(traced) = observed.drops.as_ref().and_then(|drops| drops.traced.as_ref())
            && let Some(host) = run.hosts.iter().find(|host| host.name == observed.host)
        {
            add_traced(&mut frames, host.role, traced);
        }
    }
    run.frames = Some(frames);
}

fn of_lab(device: &DeviceCounts, seconds: f64) -> impl Iterator<Item = FramesQueue> {
    device.queues.iter().zip(0..).map(move |(of, queue)| FramesQueue {
        host: device.host.clone(),
        device: None,
        queue,
        cpus: Some(vec![of.cpu]),
        received: Some(of.received),
        received_per_second: (seconds > 0.0).then(|| of.received as f64 / seconds),
        dropped: Some(of.dropped),
        sent: Some(of.sent),
        source: FramesSource::Lab,
    })
}

fn of_cpus(observed: &HostObservation, rows: &[SoftnetRow]) -> impl Iterator<Item = FramesCpu> {
    rows.iter().filter_map(|row| {
        Some(FramesCpu {
            hosts: observed.covers.clone(),
            cpu: row.cpu?,
            received: row.processed,
            steered: row.received_rps,
            dropped: row.dropped,
        })
    })
}

/// Both directions of each queue of a host's devices.
fn of_devices(observed: &HostObservation) -> Result<Vec<FramesQueue>, String> {
    let nic = observed.nic.as_ref().ok_or("the probe nic did not run")?;
    let mut queues = Vec::new();
    let mut reasons = Vec::new();
    for device in &nic.devices {
        match device.queue_source {
            Some(source) => queues.extend(of_device(&observed.host, device, source)),
            None => reasons.extend(device.queue_reason.clone()),
        }
    }
    match queues.is_empty() {
        false => Ok(queues),
        true if reasons.is_empty() => Err("it has no device with queues".to_owned()),
        true => Err(reasons.join("; ")),
    }
}

fn of_device(host: &str, device: &NicDevice, source: QueueSource) -> Vec<FramesQueue> {
    let mut numbers: Vec<u32> = device.queues.iter().map(|queue| queue.queue).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let find = |number, direction| -> Option<&NicQueue> {
        let mut all = device.queues.iter();
        all.find(|queue| queue.queue == number && queue.direction == direction)
    };
    let row = |number| {
        let (rx, tx) = (find(number, Direction::Rx), find(number, Direction::Tx));
        FramesQueue {
            host: host.to_owned(),
            device: Some(device.device.clone()),
            queue: number,
            cpus: rx.and_then(|queue| queue.cpus.clone()),
            received: rx.and_then(|queue| queue.packets),
            received_per_second: rx.and_then(|queue| queue.packets_per_second),
            dropped: rx.and_then(|queue| queue.dropped),
            sent: tx.and_then(|queue| queue.packets),
            source: match source {
                QueueSource::Netdev => FramesSource::Netdev,
                QueueSource::Driver => FramesSource::Driver,
            },
        }
    };
    let counted = |queue: &FramesQueue| queue.received.is_some() || queue.sent.is_some();
    numbers.into_iter().map(row).filter(counted).collect()
}

/// To the stage that packets dropped there do not reach: of what a host sends those at its queueing discipline and device,
/// and of what it receives all others.
fn add_traced(frames: &mut Frames, side: Side, traced: &TracedDrops) {
    for direction in &mut frames.directions {
        for stage in &mut direction.stages {
            let is_of = |place: DropPlace| match (place, stage.stage) {
                (DropPlace::Qdisc | DropPlace::Device, Stage::Sent) => direction.from == side,
                (DropPlace::Qdisc | DropPlace::Device, _) => false,
                (DropPlace::SocketBuffer, Stage::Read) => direction.from != side,
                (DropPlace::SocketBuffer, _) => false,
                (_, Stage::ReachedSocket) => direction.from != side,
                _ => false,
            };
            let is_here = match stage.stage {
                Stage::Sent => direction.from == side,
                Stage::ReachedSocket | Stage::Read => direction.from != side,
                Stage::Generated | Stage::Received => false,
            };
            if is_here {
                let all = stage.traced.get_or_insert_default();
                let sites = traced.sites.iter();
                for site in sites.filter(|of| of.outcome == DropOutcome::Lost && is_of(of.place)) {
                    match all.iter_mut().find(|of| of.place == site.place) {
                        Some(of) => of.packets += site.packets,
                        None => all.push(FramesTraced { place: site.place, packets: site.packets }),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::frames::{FramesDirection, FramesStage};
    use wirecost_model::link::nic::QueueCounts;
    use wirecost_model::observe::{DropSite, DropsSection, InterruptsSection, NicSection};
    use wirecost_model::run::{HostRow, Observe};

    use super::*;
    use crate::fixtures;

    fn frames() -> Frames {
        let stage = |stage| FramesStage {
            stage,
            datagrams: None,
            packets: None,
            foreign: None,
            per_second: None,
            missing: None,
            places: Vec::new(),
            traced: None,
        };
        let direction = |from| FramesDirection {
            from,
            stages: Stage::ALL.into_iter().map(stage).collect(),
            intervals: Vec::new(),
        };
        Frames {
            directions: vec![direction(Side::Master), direction(Side::Peer)],
            queues: Vec::new(),
            cpus: Vec::new(),
            uncounted: Vec::new(),
            reason: None,
        }
    }

    fn run(observed: Vec<HostObservation>) -> Run {
        let mut run = Run::empty("@udp-stream", "epoll", "0.1.0", 0);
        run.window = Some(fixtures::window(2.0));
        run.frames = Some(frames());
        run.hosts =
            vec![fixtures::host("h1"), HostRow { role: Side::Peer, ..fixtures::host("h2") }];
        run.observe = Some(Observe { hosts: observed, ..Observe::default() });
        run
    }

    fn added(mut run: Run) -> Frames {
        add_observed(&mut run);
        run.frames.unwrap()
    }

    fn watched(host: &str) -> HostObservation {
        HostObservation {
            host: host.to_owned(),
            covers: vec![host.to_owned()],
            ..HostObservation::default()
        }
    }

    fn queue(direction: Direction, queue: u32, packets: Option<u64>) -> NicQueue {
        NicQueue {
            direction,
            queue,
            packets,
            bytes: None,
            packets_per_second: packets.map(|packets| packets as f64 / 2.0),
            dropped: Some(u64::from(queue)),
            drops: Vec::new(),
            irq: None,
            cpus: Some(vec![queue + 4]),
            numa_nodes: None,
            bql: None,
        }
    }

    #[test]
    fn both_directions_of_a_queue_are_one_row_and_uncounted_queues_have_a_reason() {
        let counted = NicDevice {
            device: "eth0".to_owned(),
            queue_source: Some(QueueSource::Driver),
            queues: vec![
                queue(Direction::Rx, 0, Some(70)),
                queue(Direction::Rx, 1, Some(30)),
                queue(Direction::Tx, 0, Some(5)),
                queue(Direction::Tx, 2, None),
            ],
            ..NicDevice::default()
        };
        let silent = NicDevice {
            queue_reason: Some("its driver does not count".to_owned()),
            queues: vec![queue(Direction::Rx, 0, None)],
            ..NicDevice::default()
        };
        let of = |host: &str, devices| HostObservation {
            nic: Some(NicSection { devices }),
            ..watched(host)
        };
        let frames = added(run(vec![of("h1", vec![silent]), of("h2", vec![counted])]));
        let rows: Vec<_> = frames
            .queues
            .iter()
            .map(|of| (of.host.as_str(), of.queue, of.received, of.sent, of.dropped))
            .collect();
        assert_eq!(
            rows,
            [("h2", 0, Some(70), Some(5), Some(0)), ("h2", 1, Some(30), None, Some(1))]
        );
        assert_eq!(frames.queues[1].cpus, Some(vec![5]));
        assert_eq!(frames.queues[0].received_per_second, Some(35.0));
        assert_eq!(
            frames.uncounted,
            [
                "queues of h1: its driver does not count",
                "CPUs of h1: the probe interrupts did not run",
                "CPUs of h2: the probe interrupts did not run",
            ]
        );
    }

    #[test]
    fn a_labs_devices_count_by_queue() {
        let of = |cpu, received| QueueCounts { cpu, received, dropped: 3, ..Default::default() };
        let devices = vec![DeviceCounts {
            host: "h2".to_owned(),
            pauses: 0,
            queues: vec![of(1, 500), of(0, 100)],
        }];
        let mut run = run(vec![watched("h1")]);
        run.link = Some(wirecost_model::link::LinkReport {
            topology: wirecost_model::link::Topology::Pair,
            link: wirecost_model::link::LinkSpec::default(),
            seconds: 4.0,
            lines: Vec::new(),
            devices,
            error_us: None,
            late: 0.0,
            refused: 0,
            unread: 0,
            unheld: 0,
            cpu_percent: 0.0,
            cpu_source: String::new(),
            cpus: Default::default(),
        });
        let frames = added(run);
        let rows: Vec<_> =
            frames.queues.iter().map(|of| (of.queue, of.received, of.dropped)).collect();
        assert_eq!(rows, [(0, Some(500), Some(3)), (1, Some(100), Some(3))]);
        assert_eq!(frames.queues[0].cpus, Some(vec![1]));
        assert_eq!(frames.queues[0].received_per_second, Some(125.0));
        assert_eq!(frames.uncounted[0], "queues of h1: the probe nic did not run");
    }

    #[test]
    fn cpus_count_what_they_took_and_the_sum_is_no_row() {
        let row = |cpu, processed| SoftnetRow {
            cpu,
            processed,
            dropped: 2,
            time_squeezed: 0,
            received_rps: 9,
            flow_limited: None,
        };
        let softnet = vec![row(Some(0), 10), row(Some(1), 20)];
        let interrupts = InterruptsSection {
            softnet,
            softnet_total: row(None, 30),
            ..InterruptsSection::default()
        };
        let frames =
            added(run(vec![HostObservation { interrupts: Some(interrupts), ..watched("h2") }]));
        let rows: Vec<_> =
            frames.cpus.iter().map(|of| (of.cpu, of.received, of.steered, of.dropped)).collect();
        assert_eq!(rows, [(0, 10, 9, 2), (1, 20, 9, 2)]);
        assert_eq!(frames.cpus[0].hosts, ["h2"]);
    }

    #[test]
    fn traced_drops_are_at_the_stage_that_packets_did_not_reach() {
        let site = |place, outcome, packets| DropSite {
            reason: String::new(),
            place,
            outcome,
            function: None,
            offset: 0,
            module: None,
            packets,
            skbs: packets,
            bytes: 0,
        };
        let sites = vec![
            site(DropPlace::SocketBuffer, DropOutcome::Lost, 10),
            site(DropPlace::SocketBuffer, DropOutcome::Lost, 5),
            site(DropPlace::Backlog, DropOutcome::Lost, 7),
            site(DropPlace::Qdisc, DropOutcome::Lost, 3),
            site(DropPlace::NoSocket, DropOutcome::Purged, 100),
        ];
        let traced = TracedDrops { sites, ..TracedDrops::default() };
        let drops = DropsSection { traced: Some(traced), ..DropsSection::default() };
        let frames = added(run(vec![HostObservation { drops: Some(drops), ..watched("h2") }]));
        let at = |direction: usize| -> Vec<Option<Vec<(DropPlace, u64)>>> {
            let stages = frames.directions[direction].stages.iter();
            let pairs = |all: &Vec<FramesTraced>| {
                all.iter().map(|of| (of.place, of.packets)).collect::<Vec<_>>()
            };
            stages.map(|stage| stage.traced.as_ref().map(pairs)).collect()
        };
        let (backlog, socket) =
            (vec![(DropPlace::Backlog, 7)], vec![(DropPlace::SocketBuffer, 15)]);
        assert_eq!(at(0), [None, None, None, Some(backlog), Some(socket)]);
        // Of what the server sends, nothing is known of the client's side.
        assert_eq!(at(1), [None, Some(vec![(DropPlace::Qdisc, 3)]), None, None, None]);
    }

    #[test]
    fn a_run_without_datagrams_stays_as_it_is() {
        let mut run = run(Vec::new());
        run.frames = None;
        add_observed(&mut run);
        assert_eq!(run.frames, None);
    }
}
