//! The probe `nic` on a pair with two queues: packets that were sent from a CPU whose queue is known, a device that drops what is
//! too long, and settings that changed in the window.

use std::net::UdpSocket;

use wirecost_linux::environment;
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::Links;
use wirecost_linux::net_sysfs::NetSysfs;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::thread::{allowed_cpus, pin};
use wirecost_model::environment::Channels;
use wirecost_model::observe::{Direction, HostObservation, NicDevice, NicQueue, QueueSource};

use crate::two_hosts::{DEVICE, Host, World};

const LENGTH: usize = 100;

/// Two queues for each direction, of which a CPU sends to its own; packets that arrive are polled (NAPI).
fn two_queues(host: &Host, cpus: [u32; 2]) -> bool {
    let ethtool = host.run(Ethtool::open).expect("a socket");
    let channels = ethtool.channels(DEVICE).expect("a pair has queues");
    if channels.rx_max < 2 || channels.tx_max < 2 {
        return false;
    }
    ethtool.set_channels(DEVICE, Channels { rx: 2, tx: 2, ..channels }).expect("two queues");
    ethtool.set_feature(DEVICE, "rx-gro", true).expect("it can be on");
    let sysfs = NetSysfs::of(&host.namespace).expect("its /sys");
    for (queue, cpu) in cpus.iter().enumerate() {
        let mask = format!("{:x}", 1_u64 << cpu);
        sysfs.write(&format!("class/net/{DEVICE}/queues/tx-{queue}/xps_cpus"), &mask).expect("XPS");
    }
    true
}

/// Sends datagrams from a CPU, one by one.
fn send(from: &Host, to: &Host, cpu: u32, count: usize, length: usize) {
    from.run(|| {
        // A thread of its own: a pinned one stays so.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(cpu).expect("this CPU");
                let socket = UdpSocket::bind((from.address, 0)).expect("a socket");
                for _ in 0..count {
                    socket.send_to(&vec![7; length], (to.address, 9)).expect("sent");
                }
            });
        });
    });
}

fn device(of: &HostObservation) -> &NicDevice {
    let section = of.nic.as_ref().expect("a section");
    assert_eq!(section.devices.len(), 1, "{section:?}");
    &section.devices[0]
}

fn queue(of: &NicDevice, direction: Direction, number: u32) -> &NicQueue {
    let mut queues = of.queues.iter();
    queues.find(|queue| (queue.direction, queue.queue) == (direction, number)).expect("the queue")
}

#[test]
fn packets_are_counted_by_the_queue_that_they_came_to() {
    if skip_without_namespaces("packets_are_counted_by_the_queue_that_they_came_to") {
        return;
    }
    let cpus = allowed_cpus().expect("CPUs");
    let &[first, second, ..] = cpus.as_slice() else { return };
    if second > 63 {
        return;
    }
    let world = World::new();
    if ![&world.a, &world.b].into_iter().all(|host| two_queues(host, [first, second])) {
        return;
    }
    // A pair polls only what came in single segments from a device that makes no longer ones.
    world.a.send_single_segments();
    // Errors that come back are packets too.
    let sink = world.b.run(|| UdpSocket::bind((world.b.address, 9)).expect("the port"));
    let watched = world.observe(&["nic"], || {
        send(&world.a, &world.b, first, 40, LENGTH);
        send(&world.a, &world.b, second, 17, LENGTH);
    });
    drop(sink);
    let of = device(watched.of_b());
    assert_eq!((of.rx_packets, of.tx_packets, of.rx_drops), (57, 0, 0), "{of:?}");
    assert_eq!(of.driver.as_deref(), Some("veth"));
    assert_eq!(of.queue_source, Some(QueueSource::Driver));
    let packets = [0, 1].map(|number| queue(of, Direction::Rx, number).packets);
    assert_eq!(packets, [Some(40), Some(17)], "{of:?}");
    assert!(queue(of, Direction::Rx, 0).packets_per_second.is_some_and(|rate| rate > 0.0));
    // A pair has neither interrupts nor a wire.
    assert!(of.queues.iter().all(|queue| queue.irq.is_none()));
    assert_eq!((of.pause.as_ref(), of.bus.as_ref()), (None, None));
    assert!(of.pause_reason.is_some());
    assert_eq!(of.standard, None);
    assert!(of.standard_reason.is_some());
    assert_eq!(of.changes, []);
    assert!(of.settings.carrier);
    assert_eq!(of.settings.mtu, Some(1500));
    // Nobody counts what a pair sends by queue, which is told and is not 0.
    let sender = device(watched.of_a());
    assert_eq!(sender.tx_packets, 57);
    assert!(queue(sender, Direction::Tx, 0).packets.is_none(), "{sender:?}");
    assert!(sender.queue_reason.as_ref().expect("a reason").contains("sent packets"));
}

#[test]
fn drops_and_changes_of_a_device_are_told() {
    if skip_without_namespaces("drops_and_changes_of_a_device_are_told") {
        return;
    }
    let world = World::new();
    let cpu = allowed_cpus().expect("CPUs")[0];
    let watched = world.observe(&["nic"], || {
        let links = Links::of(&world.b.namespace).expect("a socket");
        links.set_mtu(DEVICE, 1000).expect("an MTU");
        let ethtool = world.b.run(Ethtool::open).expect("a socket");
        ethtool.set_feature(DEVICE, "tx-tcp-segmentation", false).expect("it can be off");
        // It drops what is longer than it may be.
        send(&world.a, &world.b, cpu, 17, 1200);
    });
    let of = device(watched.of_b());
    assert_eq!((of.rx_packets, of.rx_drops), (0, 17), "{of:?}");
    let changes: Vec<String> = of.changes.iter().map(ToString::to_string).collect();
    for expected in ["MTU from 1500 to 1000", "tx-tcp-segmentation from on to off"] {
        assert!(changes.iter().any(|change| change == expected), "{changes:?}");
    }
    assert!(
        !of.settings
            .offloads
            .as_ref()
            .expect("features")
            .contains(&"tx-tcp-segmentation".to_owned())
    );
    assert_eq!(device(watched.of_a()).changes, []);
}

/// What this machine's own devices tell is told of them: by the kernel's own interface where the driver has it, with
/// interrupts where the bus has them.
#[test]
fn hardware_of_this_machine_has_its_queues() {
    let parts =
        vec![wirecost_model::observe::Part { host: "here".to_owned(), ..Default::default() }];
    let probes = vec!["nic".to_owned()];
    let request = wirecost_model::observe::ObserveRequest { probes, parts };
    let mut observer = wirecost_observe::Observer::open(request);
    observer.attach();
    observer.begin();
    observer.end();
    observer.detach();
    let seen = observer.take().parts.remove(0);
    let told = seen.nic.expect("a section").devices;
    assert!(told.iter().all(|of| of.device != "lo"));
    let here = environment::devices().expect("devices");
    for device in here.iter().filter(|device| device.up && device.vectors.is_some()) {
        // One may have come since.
        let Some(of) = told.iter().find(|of| of.device == device.name) else { continue };
        assert_eq!((&of.driver, &of.bus), (&device.driver, &device.bus));
        // Of others the vectors may not be those of queues.
        let has_queues = of.driver.as_deref() == Some("virtio_net");
        assert!(!has_queues || of.queues.iter().any(|queue| queue.irq.is_some()), "{of:?}");
        let with = of.queues.iter().filter(|queue| queue.irq.is_some());
        assert!(with.clone().all(|queue| queue.cpus.is_some()), "{of:?}");
    }
}
