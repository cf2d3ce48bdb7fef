//! Devices between two readings, with known answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use wirecost_linux::pause::PauseCounts;
use wirecost_linux::queues::QueueCounts;
use wirecost_linux::standard_statistics::StandardStatistics;
use wirecost_model::environment::{Channels, Coalescing, Device, FlowControl, Rings, Vector};
use wirecost_model::observe::{FrameSizes, NicChangeKind, NicDropKind, QueueSource, StandardGroup};
use wirecost_model::rss::{DeviceSpreading, Fields, Flow, Symmetry};

use super::*;

/// A card of ixgbe's with two queues, each with its vector.
fn card() -> DeviceReading {
    let vector = |irq, queue: u32, cpu| Vector {
        irq,
        name: format!("eth0-TxRx-{queue}"),
        cpus: Some(vec![0, 1, 2, 3]),
        effective_cpus: Some(vec![cpu]),
    };
    let rss = DeviceSpreading {
        key: Some("6d:5a:56:da:25:5b:0e:c2".to_owned()),
        table: vec![0, 1, 0, 1],
        queues: 2,
        toeplitz: true,
        symmetry: Some(Symmetry::None),
        fields: [(Flow::Udp4, Some(Fields::Addresses))].into(),
    };
    let numbers = [Direction::Rx, Direction::Tx].map(|way| [(way, 0), (way, 1)]).concat();
    let mut of = DeviceReading {
        index: 2,
        device: Device {
            name: "eth0".to_owned(),
            up: true,
            mtu: Some(1500),
            speed_bits_per_second: Some(10_000_000_000),
            driver: Some("ixgbe".to_owned()),
            bus: Some("0000:03:00.0".to_owned()),
            features: Some([("rx-gro".to_owned(), true), ("rx-lro".to_owned(), false)].into()),
            rings: Some(Rings { rx: 512, rx_max: 8192, tx: 512, tx_max: 8192 }),
            coalescing: Some(Coalescing {
                adaptive_rx: true,
                adaptive_tx: false,
                rx_us: 20,
                rx_frames: 0,
                tx_us: 20,
                tx_frames: 0,
            }),
            flow_control: Some(FlowControl { negotiated: true, rx: true, tx: true }),
            channels: Some(Channels {
                rx: 0,
                rx_max: 0,
                tx: 0,
                tx_max: 0,
                combined: 2,
                combined_max: 63,
            }),
            numa_node: Some(1),
            vectors: Some(vec![vector(40, 0, 0), vector(41, 1, 3)]),
            ..Device::default()
        },
        full_duplex: Some(true),
        rss: Some(rss),
        numbers: Some(numbers.into_iter().collect()),
        ..DeviceReading::default()
    };
    of.statistics.carrier = true;
    of
}

fn nodes() -> Vec<NumaNode> {
    let node =
        |node, cpus: &[u32]| NumaNode { node, cpus: Some(cpus.to_vec()), memory_bytes: None };
    vec![node(0, &[0, 1]), node(1, &[2, 3])]
}

fn driver(counters: &[(&str, u64)]) -> Option<Arc<BTreeMap<String, u64>>> {
    let all = counters.iter().map(|(name, count)| ((*name).to_owned(), *count));
    Some(Arc::new(all.collect()))
}

fn between(before: &DeviceReading, after: &DeviceReading) -> NicDevice {
    device((before, after), &Limits::default(), &nodes(), 2.0)
}

#[test]
fn a_queue_has_its_packets_interrupt_cpu_and_node() {
    let (mut before, mut after) = (card(), card());
    before.driver = driver(&[("rx_queue_1_packets", 100), ("tx_queue_0_packets", 7)]);
    after.driver = driver(&[
        ("rx_queue_0_packets", 5),
        ("rx_queue_1_packets", 1100),
        ("rx_queue_1_bytes", 64_000),
        ("tx_queue_0_packets", 9),
        ("tx_queue_1_packets", 0),
        ("rx_no_dma_resources", 30),
        ("rx_missed_errors", 12),
        ("alloc_rx_page_failed", 1),
    ]);
    after.statistics.rx_missed_errors = 12;
    let of = between(&before, &after);
    assert_eq!((of.queue_source, &of.queue_reason), (Some(QueueSource::Driver), &None));
    let told: Vec<_> = of
        .queues
        .iter()
        .map(|of| {
            (of.direction, of.queue, of.packets, of.packets_per_second, of.irq, of.cpus.clone())
        })
        .collect();
    let (rx, tx) = (Direction::Rx, Direction::Tx);
    let expected = [
        (rx, 0, Some(5), Some(2.5), Some(40), Some(vec![0])),
        (rx, 1, Some(1000), Some(500.0), Some(41), Some(vec![3])),
        (tx, 0, Some(2), Some(1.0), Some(40), Some(vec![0])),
        (tx, 1, Some(0), Some(0.0), Some(41), Some(vec![3])),
    ];
    assert_eq!(told, expected);
    assert_eq!(of.queues[1].numa_nodes, Some(vec![1]));
    // The kernel's own count and the driver's have the 12 in common.
    assert_eq!((of.rx_drops, of.tx_drops), (42, 0));
    let kinds: Vec<_> = of.drops.iter().map(|of| (of.kind, of.packets)).collect();
    let expected =
        [(NicDropKind::NoBuffer, 30), (NicDropKind::Missed, 12), (NicDropKind::AllocFailed, 1)];
    assert_eq!(kinds, expected);
}

#[test]
fn the_kernels_own_counters_come_before_the_drivers() {
    let counts = |packets, overruns| QueueCounts {
        packets: Some(packets),
        hardware_drops: Some(overruns),
        overruns: Some(overruns),
        ..QueueCounts::default()
    };
    let (mut before, mut after) = (card(), card());
    after.device.driver = Some("virtio_net".to_owned());
    before.queues = [((Direction::Rx, 0), counts(10, 1))].into();
    after.queues = [((Direction::Rx, 0), counts(25, 4)), ((Direction::Rx, 1), counts(6, 0))].into();
    after.driver = driver(&[("rx1_drops", 2)]);
    // Of the vectors it tells one.
    after.irqs = [((Direction::Rx, 0), 41)].into();
    let of = between(&before, &after);
    assert_eq!(of.queue_source, Some(QueueSource::Netdev));
    let rx: Vec<_> = of.queues.iter().map(|of| (of.packets, of.dropped, of.irq)).take(2).collect();
    assert_eq!(rx, [(Some(15), Some(3), Some(41)), (Some(6), Some(2), Some(41))]);
    assert_eq!(of.rx_drops, 5);
    let reason = of.queue_reason.unwrap();
    assert_eq!(reason, "its driver does not count sent packets by queue");
}

#[test]
fn the_only_queue_has_all_packets() {
    let mut after = card();
    after.device.driver = Some("e1000e".to_owned());
    after.numbers = Some([(Direction::Rx, 0), (Direction::Tx, 0)].into());
    after.statistics.rx_packets = 70;
    after.statistics.tx_packets = 30;
    let of = between(&card(), &after);
    let packets: Vec<_> = of.queues.iter().map(|of| of.packets).collect();
    assert_eq!(packets, [Some(70), Some(30)]);
    assert_eq!((of.queue_source, of.queue_reason), (None, None));
}

#[test]
fn a_pair_without_napi_counts_no_queue() {
    let mut after = card();
    after.device.driver = Some("veth".to_owned());
    after.driver = driver(&[("rx_queue_0_xdp_packets", 0), ("rx_queue_1_xdp_packets", 0)]);
    after.statistics.rx_packets = 70;
    let of = between(&card(), &after);
    assert!(of.queues.iter().all(|of| of.packets.is_none()), "{of:?}");
    assert!(of.queue_reason.unwrap().contains("only where NAPI polls them"));
}

#[test]
fn pause_frames_are_those_of_the_window() {
    let (mut before, mut after) = (card(), card());
    after.pause = Some(PauseCounts { rx: Some(4096), tx: Some(7) });
    before.pause = Some(PauseCounts { rx: Some(4000), tx: Some(7) });
    // The driver counts the same frames.
    after.driver = driver(&[("rx_flow_control_xoff", 9999)]);
    let expected = PauseFrames { rx: Some(96), tx: Some(0), source: PauseSource::Standard };
    assert_eq!(between(&before, &after).pause, Some(expected));
    // Before Linux 5.9 there are only the driver's.
    (before.pause, after.pause) = (None, None);
    before.driver = driver(&[("rx_flow_control_xon", 10), ("rx_flow_control_xoff", 20)]);
    after.driver = driver(&[("rx_flow_control_xon", 13), ("rx_flow_control_xoff", 24)]);
    let expected = PauseFrames { rx: Some(7), tx: None, source: PauseSource::Driver };
    assert_eq!(between(&before, &after).pause, Some(expected));
    after.driver = None;
    let of = between(&before, &after);
    assert_eq!(
        (of.pause, of.pause_reason.as_deref()),
        (None, Some("its driver does not count them"))
    );
    after.device.bus = None;
    assert!(between(&before, &after).pause_reason.unwrap().contains("no wire"));
}

#[test]
fn what_did_not_change_is_no_change() {
    assert_eq!(between(&card(), &card()).changes, []);
    // One that came in the window was set to nothing before.
    assert_eq!(between(&DeviceReading::default(), &card()).changes, []);
}

#[test]
fn every_setting_that_changed_is_told_with_both_values() {
    let (before, mut after) = (card(), card());
    let device = &mut after.device;
    device.speed_bits_per_second = Some(1_000_000_000);
    device.mtu = Some(9000);
    device.rings = Some(Rings { rx: 4096, rx_max: 8192, tx: 512, tx_max: 8192 });
    device.coalescing.as_mut().unwrap().rx_us = 50;
    device.flow_control.as_mut().unwrap().rx = false;
    device.channels.as_mut().unwrap().combined = 1;
    device.features.as_mut().unwrap().insert("rx-gro".to_owned(), false);
    device.vectors.as_mut().unwrap()[1].effective_cpus = Some(vec![0]);
    let rss = after.rss.as_mut().unwrap();
    rss.table = vec![0, 0, 0, 0];
    rss.key = Some("00:01:02:03:04:05:06:07".to_owned());
    rss.fields.insert(Flow::Udp4, Some(Fields::AddressesAndPorts));
    after.full_duplex = Some(false);
    after.statistics.carrier_changes = 2;
    let all: Vec<String> =
        between(&before, &after).changes.iter().map(ToString::to_string).collect();
    let expected = [
        "duplex from full to half",
        "speed from 10.0 Gb/s to 1.00 Gb/s",
        "carrier from up to up after 2 changes",
        "MTU from 1500 to 9000",
        "RSS fields of udp4 from addresses to addresses and ports",
        "RSS key from 6d:5a:56:da:25:5b... to 00:01:02:03:04:05...",
        "queues from 2 combined to 1 combined",
        "rx coalescing from 20 us, 0 frames to 50 us, 0 frames",
        "rx flow control from on to off",
        "rx ring from 512 to 4096",
        "rx-gro from on to off",
        "RSS table from queues 0-1 to queues 0 (2 of 4 entries differ)",
        "IRQ 41 (eth0-TxRx-1) from CPU 3 to CPU 0",
    ];
    assert_eq!(all, expected);
    let kinds: Vec<NicChangeKind> =
        between(&before, &after).changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds[0], NicChangeKind::Link);
    assert_eq!(kinds.last(), Some(&NicChangeKind::Interrupt));
}

/// The driver's own name for the frames that are too long is one of those that the standard has, so it is not added.
#[test]
fn standard_counters_come_before_the_drivers_names() {
    let mac = |name| (StandardGroup::EthMac, name);
    let counters = |fcs, too_long, lost| StandardStatistics {
        counters: [
            (mac("FrameCheckSequenceErrors"), fcs),
            (mac("FrameTooLongErrors"), too_long),
            (mac("FramesLostDueToIntMACXmitError"), lost),
            (mac("FramesReceivedOK"), 1_000 * fcs),
            ((StandardGroup::Rmon, "etherStatsOversizePkts"), 7 * fcs),
        ]
        .into(),
        frame_sizes: [((Direction::Rx, 0, 64), fcs), ((Direction::Rx, 1519, 0), too_long)].into(),
    };
    let (mut before, mut after) = (card(), card());
    before.standard = Ok(counters(10, 4, 2));
    after.standard = Ok(counters(13, 9, 3));
    before.driver = driver(&[("rx_long_length_errors", 4), ("rx_missed_errors", 1)]);
    after.driver = driver(&[("rx_long_length_errors", 9), ("rx_missed_errors", 3)]);
    let of = between(&before, &after);
    let drops: Vec<_> = of.drops.iter().map(|of| (of.direction, of.kind, of.packets)).collect();
    let (rx, tx) = (Direction::Rx, Direction::Tx);
    let expected = [
        (rx, NicDropKind::Missed, 2),
        (rx, NicDropKind::Error, 3 + 5),
        (tx, NicDropKind::Error, 1),
    ];
    assert_eq!(drops, expected);
    // Damaged frames are no losses of intact ones.
    assert_eq!((of.rx_drops, of.tx_drops), (2, 0));
    let standard = of.standard.unwrap();
    let count = |name: &str| standard.counters.iter().find(|of| of.name == name).unwrap().count;
    assert_eq!((count("FramesReceivedOK"), count("etherStatsOversizePkts")), (3_000, 21));
    let sizes = |low, high, frames| FrameSizes { direction: rx, low, high, frames };
    assert_eq!(standard.frame_sizes, [sizes(0, Some(64), 3), sizes(1519, None, 5)]);
    assert_eq!(of.standard_reason, None);
}

/// Counts since boot are no growth: the driver's own names tell the errors.
#[test]
fn standard_counters_of_one_edge_are_not_told() {
    let counters = StandardStatistics {
        counters: [((StandardGroup::EthMac, "FrameTooLongErrors"), 700)].into(),
        ..StandardStatistics::default()
    };
    let (mut before, mut after) = (card(), card());
    before.standard = Err("no answer".to_owned());
    after.standard = Ok(counters);
    before.driver = driver(&[("rx_long_length_errors", 4)]);
    after.driver = driver(&[("rx_long_length_errors", 9)]);
    for (before, after) in [(&before, &after), (&after, &before)] {
        let of = between(before, after);
        assert_eq!((of.standard, of.standard_reason.as_deref()), (None, Some("no answer")));
        assert!(of.drops.iter().all(|of| of.packets <= 5), "{:?}", of.drops);
    }
    let drops = between(&before, &after).drops;
    let drops: Vec<_> = drops.iter().map(|of| (of.kind, of.packets)).collect();
    assert_eq!(drops, [(NicDropKind::Error, 5)]);
}

#[test]
fn a_device_without_standard_counters_has_the_reason() {
    let reason = |of: DeviceReading| between(&of, &of).standard_reason.unwrap();
    assert_eq!(reason(card()), "its driver has none");
    let mut of = card();
    of.device.bus = None;
    assert_eq!(reason(of), "a virtual device has none");
    let refused = Err("kernel or driver has no standard counters".to_owned());
    assert!(reason(DeviceReading { standard: refused, ..card() }).starts_with("kernel or driver"));
}
