//! Frames between two network namespaces, against the kernel's own UDP.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, run_in_new};
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::xdp::Received;

use super::net::Waiting;
use super::packet::Headers;
use super::*;

const HERE: [&str; 2] = ["198.18.0.1", "fd00::1"];
const THERE: [&str; 2] = ["198.18.0.2", "fd00::2"];
/// Nothing is lost here; a test that waits forever has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const MTU: usize = 1500;

/// Runs `test` in the namespace of device `a`, a wire from device `b` of the namespace that it is given.
fn on_a_wire(name: &str, test: impl Fn(&NetNs) + Send + Sync) {
    if skip_without_namespaces(name) {
        return;
    }
    run_in_new(|| {
        let there = NetNs::here().unwrap();
        run_in_new(|| {
            let links = Links::here().unwrap();
            links.add_veth("a", "b", &there).unwrap();
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
    let longest = MTU as u32 + packet::LINK_HEADER;
    let setup = xdp::Setup { device: device.index, queue: 0, mode: Mode::Generic, longest };
    FrameSocket::open(&setup).unwrap()
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
                    let attached = Attached::new(&device, Mode::Generic).unwrap();
                    let mut frames = open(&device);
                    attached.add_socket(0, &frames).unwrap();
                    let flow = Flow::new(to, ours.local_addr().unwrap());
                    attached.add_flow(&flow, 0).unwrap();

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
                    // The worker of another queue has the connection now.
                    attached.add_flow(&flow, 1).unwrap();
                    ours.send_to(b"elsewhere", to).unwrap();
                    assert_eq!(receiver.recv(&mut buffer).unwrap(), 9);
                    attached.remove_flow(&flow);
                    ours.send_to(b"closed", to).unwrap();
                    assert_eq!(receiver.recv(&mut buffer).unwrap(), 6);
                    assert!(frames.receive().is_none());
                    assert_eq!(frames.statistics().unwrap().lost(), 0);

                    let device = xdp::device_of_address(to.ip()).unwrap().unwrap();
                    assert!(device.has_program);
                    let refused = check(&device, to.ip(), 100).unwrap_err();
                    assert!(refused.contains("b has an XDP program already"), "{refused}");
                    let refused = Attached::new(&device, Mode::Generic).unwrap_err().to_string();
                    assert!(refused.contains("b has an XDP program already"), "{refused}");
                    drop(attached);
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
                let attached = Attached::new(&device, Mode::Generic).unwrap();
                let mut frames = open(&device);
                attached.add_socket(0, &frames).unwrap();
                attached.add_flow(&Flow::new(to, ours.local_addr().unwrap()), 0).unwrap();
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
                let attached = Attached::new(&device, Mode::Generic).unwrap();
                let mut frames = open(&device);
                attached.add_socket(0, &frames).unwrap();
                attached.add_flow(&Flow::new(to, ours.local_addr().unwrap()), 0).unwrap();
                ours.send_to(b"frame", to).unwrap();
                let frame = next(&mut frames);
                assert_eq!(other.bytes(&frame), b"");
                assert!(frames.bytes(&frame).ends_with(b"frame"));
                other.give_back(frame);
            })
            .unwrap();
    });
}
