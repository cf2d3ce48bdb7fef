//! Frames between two network namespaces, against the kernel's own UDP.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, run_in_new};
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::xdp::{Mode, Received};

use super::net::Waiting;
use super::packet::{Flow, Headers};
use super::program::MOST_SOCKETS;
use super::*;

const HERE: [&str; 2] = ["198.18.0.1", "fd00::1"];
const THERE: [&str; 2] = ["198.18.0.2", "fd00::2"];
/// Nothing is lost here; a test that waits forever has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const MTU: usize = 1500;

fn on_a_wire(name: &str, test: impl Fn(&NetNs) + Send + Sync) {
    on_a_wire_with_queues(name, 1, test);
}

/// Runs `test` in the namespace of device `a`, a wire from device `b` of the namespace that it is given. Each has so many
/// queues.
fn on_a_wire_with_queues(name: &str, queues: u32, test: impl Fn(&NetNs) + Send + Sync) {
    if skip_without_namespaces(name) {
        return;
    }
    run_in_new(|| {
        let there = NetNs::here().unwrap();
        run_in_new(|| {
            let links = Links::here().unwrap();
            links.add_veth_with_queues("a", "b", &there, queues).unwrap();
            let set_up = |device: &str, addresses: [&str; 2]| {
                let links = Links::here().unwrap();
                for (address, length) in addresses.into_iter().zip([24, 64]) {
                    links.add_address(device, address.parse().unwrap(), length).unwrap();
                }
                links.up(device).unwrap();
                links.up("lo").unwrap();
            };
            set_up("a", HERE);
            there.run(|| set_up("b", THERE)).unwrap();
            test(&there);
        })
        .unwrap();
    })
    .unwrap();
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Of the calling thread's namespace.
fn checksum_errors() -> Vec<u64> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let (snmp, snmp6) = (read("snmp").unwrap(), read("snmp6").unwrap());
    let lines: Vec<&str> = snmp.lines().filter(|line| line.starts_with("Udp:")).collect();
    let place = lines[0].split_whitespace().position(|name| name == "InCsumErrors").unwrap();
    let of_ipv4 = lines[1].split_whitespace().nth(place).unwrap();
    let of_ipv6 = snmp6.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors")).unwrap();
    [of_ipv4, of_ipv6].map(|number| number.trim().parse().unwrap()).to_vec()
}

fn open(device: &Device) -> FrameSocket {
    open_queue(device, 0, Mode::Generic)
}

fn open_queue(device: &Device, queue: u32, mode: Mode) -> FrameSocket {
    let longest = MTU as u32 + packet::LINK_HEADER;
    let setup = xdp::Setup { device: device.index, queue, mode, longest, sends: true };
    FrameSocket::open(&setup).unwrap()
}

/// The program as a worker has it.
fn of_worker(program: &HostProgram, worker: u32) -> WorkerProgram {
    let maps = program.descriptors().map(|map| map.try_clone_to_owned().unwrap());
    program.access(worker).with(maps).unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + length) as u8).collect()
}

#[test]
fn the_kernel_receives_frames_of_every_length() {
    on_a_wire("the_kernel_receives_frames_of_every_length", |there| {
        for (family, (here, address)) in HERE.into_iter().zip(THERE).enumerate() {
            let receiver = there.run(|| socket(address)).unwrap();
            let sender = socket(here);
            sender.connect(receiver.local_addr().unwrap()).unwrap();
            // The kernel finds the neighbour.
            sender.send(b"first").unwrap();
            let mut buffer = [0; 2 * MTU];
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
            let (from, to) = (sender.local_addr().unwrap(), receiver.local_addr().unwrap());
            let path = xdp::path(from.ip(), to.ip()).unwrap();
            assert_eq!((path.device.name.as_str(), path.device.mtu), ("a", MTU as u32));
            let own = path.device.ethernet.unwrap();
            let headers = Headers::new((own, path.neighbour), from, to);
            let mut frames = open(&path.device);
            let most = MTU - packet::overhead(from.ip()) as usize;
            for length in 0..=most {
                let payload = content(length);
                let size = headers.frame_length(length);
                let written = frames.send(size, |frame| headers.write(frame, &payload)).unwrap();
                assert!(written.is_some() && frames.hand_over().unwrap(), "{length} bytes");
                let got = receiver.recv(&mut buffer).expect("the datagram");
                assert_eq!(buffer[..got], payload, "{length} bytes");
            }
            assert_eq!(there.run(checksum_errors).unwrap()[family], 0);
            // The kernel does look at the checksum.
            let damaged = |frame: &mut [u8]| {
                headers.write(frame, b"payload");
                frame[headers.frame_length(0)] ^= 1;
            };
            assert!(frames.send(headers.frame_length(7), damaged).unwrap().is_some());
            frames.hand_over().unwrap();
            let counted = || there.run(checksum_errors).unwrap()[family];
            while counted() == 0 {
                receiver.set_nonblocking(true).unwrap();
                assert!(receiver.recv(&mut buffer).is_err(), "it was accepted");
            }
            // For the other family.
            drop(frames);
            if family == 0 {
                continue;
            }
            let too_long = open(&path.device).send(MTU + 15, |_| ()).unwrap_err();
            assert_eq!(too_long.kind(), io::ErrorKind::InvalidInput);
        }
    });
}

/// Waits for a frame, which the kernel writes while the sender's call runs or soon after.
fn next(socket: &mut FrameSocket) -> Received {
    loop {
        if let Some(frame) = socket.receive() {
            return frame;
        }
        std::thread::yield_now();
    }
}

#[test]
fn only_frames_of_a_connection_and_its_queue_are_taken_from_the_kernel() {
    on_a_wire("only_frames_of_a_connection_and_its_queue_are_taken_from_the_kernel", |there| {
        for (here, address) in HERE.into_iter().zip(THERE) {
            let (ours, other) = (socket(here), socket(here));
            there
                .run(|| {
                    let receiver = socket(address);
                    let to = receiver.local_addr().unwrap();
                    let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
                    assert!(!device.has_program);
                    let host = HostProgram::load(Mode::Generic, 1).unwrap();
                    let program = of_worker(&host, 0);
                    let attached = program.attach(&device, 1).unwrap();
                    let mut frames = open(&device);
                    program.add_socket(&attached, 0, &frames).unwrap();
                    let flow = Flow::new(to, ours.local_addr().unwrap());
                    program.add_flow(&attached, &flow).unwrap();

                    let mut buffer = [0; 2 * MTU];
                    for length in [1, 60, 1000] {
                        ours.send_to(&content(length), to).unwrap();
                        let frame = next(&mut frames);
                        let (of, payload) = Flow::of_frame(frames.bytes(&frame)).unwrap();
                        assert_eq!(of, flow);
                        assert_eq!(frames.bytes(&frame)[payload], content(length));
                        frames.give_back(frame);
                    }
                    // Another port, and fragments.
                    other.send_to(b"other", to).unwrap();
                    assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
                    ours.send_to(&content(2000), to).unwrap();
                    assert_eq!(receiver.recv(&mut buffer).unwrap(), 2000);
                    program.remove_flow(&flow);
                    ours.send_to(b"closed", to).unwrap();
                    assert_eq!(receiver.recv(&mut buffer).unwrap(), 6);
                    assert!(frames.receive().is_none());
                    assert_eq!(frames.statistics().unwrap().lost(), 0);

                    let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
                    assert!(device.has_program);
                    let refused = check(&device, to.ip(), 100).unwrap_err();
                    assert!(refused.contains("b has an XDP program already"), "{refused}");
                    let another = HostProgram::load(Mode::Generic, 1).unwrap();
                    let refused = of_worker(&another, 0).attach(&device, 1).unwrap_err();
                    let refused = refused.to_string();
                    assert!(refused.contains("b has an XDP program already"), "{refused}");
                    drop(host);
                    let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
                    assert!(!device.has_program);
                })
                .unwrap();
        }
    });
}

#[test]
fn frames_beyond_the_receive_ring_are_counted() {
    on_a_wire("frames_beyond_the_receive_ring_are_counted", |there| {
        let ours = socket(HERE[0]);
        there
            .run(|| {
                let receiver = socket(THERE[0]);
                let to = receiver.local_addr().unwrap();
                let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
                let host = HostProgram::load(Mode::Generic, 1).unwrap();
                let program = of_worker(&host, 0);
                let attached = program.attach(&device, 1).unwrap();
                let mut frames = open(&device);
                program.add_socket(&attached, 0, &frames).unwrap();
                let flow = Flow::new(to, ours.local_addr().unwrap());
                program.add_flow(&attached, &flow).unwrap();
                let held: Vec<Received> = (0u32..2048)
                    .map(|number| {
                        ours.send_to(&number.to_le_bytes(), to).unwrap();
                        next(&mut frames)
                    })
                    .collect();
                assert_eq!(frames.statistics().unwrap().lost(), 0);
                // All places are in use.
                for _ in 0..7 {
                    ours.send_to(b"lost", to).unwrap();
                }
                while frames.statistics().unwrap().lost() < 7 {
                    std::thread::yield_now();
                }
                assert_eq!(frames.statistics().unwrap().lost(), 7);
                held.into_iter().for_each(|frame| frames.give_back(frame));
                ours.send_to(b"again", to).unwrap();
                let frame = next(&mut frames);
                let (_, payload) = Flow::of_frame(frames.bytes(&frame)).unwrap();
                assert_eq!(&frames.bytes(&frame)[payload], b"again");
            })
            .unwrap();
    });
}

#[test]
fn datagrams_that_are_no_frame_are_refused_with_the_size_that_is() {
    let ethernet = Some([2, 0, 0, 0, 0, 1]);
    let device = Device { index: 5, name: "eth7".into(), mtu: 1500, ethernet, has_program: false };
    let (ipv4, ipv6): (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), "fd00::1".parse().unwrap());
    assert_eq!(check(&device, ipv4, 1472), Ok(()));
    assert_eq!(check(&device, ipv6, 1452), Ok(()));
    for (address, room) in [(ipv4, 1472), (ipv6, 1452)] {
        let refused = check(&device, address, room + 1).unwrap_err();
        assert!(refused.contains(&format!("size={room} or less")), "{refused}");
        assert!(refused.contains("the MTU of eth7 is 1500"), "{refused}");
    }
    let jumbo = Device { mtu: 9000, ..device.clone() };
    assert_eq!(check(&jumbo, ipv4, 3798), Ok(()));
    let refused = check(&jumbo, ipv4, 3799).unwrap_err();
    assert!(refused.contains("3840 bytes"), "{refused}");
    let refused = check(&device, "fe80::1".parse().unwrap(), 1).unwrap_err();
    assert!(refused.contains("fe80::1 is a link-local address"), "{refused}");
    let tun = Device { ethernet: None, ..device };
    assert!(check(&tun, ipv4, 1).unwrap_err().contains("eth7 has no Ethernet frames"));
}

/// Of 2,048 places, 1,024 may wait for whomever they came; of the rest each of four connections has its share.
#[test]
fn a_connection_that_does_not_read_leaves_places_to_the_others() {
    let mut waiting = Waiting::default();
    let mut of_first = 0;
    for _ in 0..5000 {
        of_first += usize::from(waiting.admits(of_first, 4));
    }
    assert_eq!((of_first, waiting.frames, waiting.dropped), (1024, 1024, 3976));
    for _ in 0..3 {
        let mut of_other = 0;
        for _ in 0..5000 {
            of_other += usize::from(waiting.admits(of_other, 4));
        }
        assert_eq!(of_other, 256);
    }
    assert!(waiting.frames < FrameSocket::PLACES as usize, "a frame can still come");
    // It has read all.
    waiting.frames -= of_first;
    assert!(waiting.admits(256, 4));
}

/// The memory of a socket is not that of another.
#[test]
fn a_frame_of_another_socket_is_not_taken_back() {
    on_a_wire("a_frame_of_another_socket_is_not_taken_back", |there| {
        let ours = socket(HERE[0]);
        let other = xdp::device_of_address(HERE[0].parse().unwrap()).unwrap().unwrap();
        let mut other = open(&other);
        there
            .run(|| {
                let receiver = socket(THERE[0]);
                let to = receiver.local_addr().unwrap();
                let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
                let host = HostProgram::load(Mode::Generic, 1).unwrap();
                let program = of_worker(&host, 0);
                let attached = program.attach(&device, 1).unwrap();
                let mut frames = open(&device);
                program.add_socket(&attached, 0, &frames).unwrap();
                let flow = Flow::new(to, ours.local_addr().unwrap());
                program.add_flow(&attached, &flow).unwrap();
                ours.send_to(b"frame", to).unwrap();
                let frame = next(&mut frames);
                assert_eq!(other.bytes(&frame), b"");
                assert!(frames.bytes(&frame).ends_with(b"frame"));
                other.give_back(frame);
            })
            .unwrap();
    });
}

/// Two workers share the queues of a device. A frame is of who has its queue and its connection, and of the kernel's socket
/// otherwise. Drivers know the queue of each frame; a veth's receives at the queue that its other end sent by.
#[test]
fn each_worker_receives_its_connections_at_its_queues() {
    const QUEUES: u32 = 4;
    const WORKERS: u32 = 2;
    let test = "each_worker_receives_its_connections_at_its_queues";
    on_a_wire_with_queues(test, QUEUES, |there| {
        let receiver = there.run(|| socket(THERE[0])).unwrap();
        let to = receiver.local_addr().unwrap();
        let ours = [socket(HERE[0]), socket(HERE[0])];
        let from = ours.each_ref().map(|socket| socket.local_addr().unwrap());
        let mut buffer = [0; 2 * MTU];
        // The kernel finds the neighbour.
        ours[0].send_to(b"first", to).unwrap();
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 5);
        let path = xdp::path(from[0].ip(), to.ip()).unwrap();
        let addresses = (path.device.ethernet.unwrap(), path.neighbour);
        let mut senders: Vec<FrameSocket> =
            (0..QUEUES).map(|queue| open_queue(&path.device, queue, Mode::Native)).collect();

        let set_up = || {
            let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
            let queues = xdp::queues("b").unwrap().unwrap();
            assert_eq!((queues.receive, queues.transmit), (QUEUES, QUEUES));
            let host = HostProgram::load(Mode::Native, WORKERS).unwrap();
            let mut sockets = Vec::new();
            for worker in 0..WORKERS {
                let program = of_worker(&host, worker);
                let attached = program.attach(&device, QUEUES).unwrap();
                let flow = Flow::new(to, from[worker as usize]);
                program.add_flow(&attached, &flow).unwrap();
                for queue in program.queues(QUEUES) {
                    let frames = open_queue(&device, queue, Mode::Native);
                    program.add_socket(&attached, queue, &frames).unwrap();
                    sockets.push((queue, flow, frames));
                }
            }
            sockets.sort_by_key(|&(queue, ..)| queue);
            (host, sockets)
        };
        let (host, mut sockets) = there.run(set_up).unwrap();
        assert_eq!(sockets.iter().map(|&(queue, ..)| queue).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for worker in 0..WORKERS {
            let headers = Headers::new(addresses, from[worker as usize], to);
            for queue in 0..QUEUES {
                let payload = [worker as u8, queue as u8, 7];
                let sender = &mut senders[queue as usize];
                let length = headers.frame_length(payload.len());
                let written = sender.send(length, |frame| headers.write(frame, &payload)).unwrap();
                assert!(written.is_some());
                sender.hand_over().unwrap();
                if queue % WORKERS == worker {
                    let (_, flow, frames) = &mut sockets[queue as usize];
                    let frame = next(frames);
                    let (of, content) = Flow::of_frame(frames.bytes(&frame)).unwrap();
                    assert_eq!((of, &frames.bytes(&frame)[content]), (*flow, &payload[..]));
                    frames.give_back(frame);
                } else {
                    assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);
                    assert_eq!(buffer[..3], payload);
                }
            }
        }
        receiver.set_nonblocking(true).unwrap();
        receiver.recv(&mut buffer).unwrap_err();
        for (queue, _, frames) in &mut sockets {
            assert!(frames.receive().is_none(), "queue {queue}");
            assert_eq!(frames.statistics().unwrap().lost(), 0);
        }
        let has_program =
            || there.run(|| xdp::device_of_address(to.ip()).unwrap().unwrap().has_program).unwrap();
        assert!(has_program());
        drop(host);
        assert!(!has_program(), "it goes with the host, not with its sockets");
    });
}

/// Keys among sockets of one device are none of another.
#[test]
fn devices_of_a_host_have_sockets_of_their_own() {
    on_a_wire_with_queues("devices_of_a_host_have_sockets_of_their_own", 2, |_| {
        let links = Links::here().unwrap();
        links.add_veth_with_queues("c", "d", &NetNs::here().unwrap(), 2).unwrap();
        let host = HostProgram::load(Mode::Generic, 1).unwrap();
        let program = of_worker(&host, 0);
        let device = |name: &str| {
            let index = links.get(name).unwrap().index;
            Device { index, name: name.to_owned(), mtu: 1500, ethernet: None, has_program: false }
        };
        let attached = |name: &str, queues| program.attach(&device(name), queues);
        let firsts = ["a", "c", "a"].map(|name| attached(name, 2).unwrap().first());
        assert_eq!(firsts, [0, 2, 0]);
        let refused = attached("d", MOST_SOCKETS - 3).unwrap_err().to_string();
        assert!(refused.contains("1025 receive queues, and 1024 are possible"), "{refused}");
        assert_eq!(attached("d", MOST_SOCKETS - 4).unwrap().first(), 4);
    });
}

/// Descriptors of the program are those of its maps, and not of another object.
#[test]
fn a_worker_without_maps_is_refused() {
    on_a_wire("a_worker_without_maps_is_refused", |_| {
        let host = HostProgram::load(Mode::Generic, 1).unwrap();
        let [flows, _] = host.descriptors().map(|map| map.try_clone_to_owned().unwrap());
        let refused = host.access(0).with([flows]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let no_map = || io::stderr().as_fd().try_clone_to_owned().unwrap();
        host.access(0).with([no_map(), no_map()]).unwrap_err();
    });
}

#[test]
fn each_worker_needs_queues_of_its_own_and_memory_for_them() {
    let ethernet = Some([2, 0, 0, 0, 0, 1]);
    let device = Device { index: 5, name: "eth7".into(), mtu: 1500, ethernet, has_program: false };
    let has = |receive, transmit| Some(Queues { receive, transmit });
    let admit = |told, workers| admit_queues(&device, told, workers, u64::MAX);
    assert_eq!(admit(has(4, 4), 4).ok(), has(4, 4));
    assert_eq!(admit(has(64, 1), 1).ok(), has(64, 1));
    assert_eq!(admit(None, 1).ok(), has(1, 1));
    assert!(admit(None, 2).unwrap_err().contains("use --workers 1"));
    let refused = admit(has(4, 2), 3).unwrap_err();
    assert!(refused.contains("eth7 has 4 receive and 2 transmit queues"), "{refused}");
    assert!(refused.contains("use --workers 2"), "{refused}");
    // 2 * 8 MiB for workers, and 4 MiB for each of two queues more, of 2,048 bytes a frame.
    const NEEDED: u64 = 24 << 20;
    assert_eq!(admit_queues(&device, has(4, 4), 2, 2 * NEEDED).ok(), has(4, 4));
    let refused = admit_queues(&device, has(4, 4), 2, 2 * NEEDED - 2).unwrap_err();
    assert!(refused.contains("need 24 MiB"), "{refused}");
}
