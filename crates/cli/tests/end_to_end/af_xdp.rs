//! Datagrams as frames of AF_XDP sockets, in network namespaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use rustix::process::Signal;
use wirecost_lab::{Lab, LabHost};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::xdp;
use wirecost_model::environment::Channels;

use crate::lab::Standing;
use crate::program::{Program, signal_to, until};

/// As many as neither a receive ring nor a backlog of the kernel nor that of a veth (256) is too short for, however late
/// they are received.
const ITERATIONS: u64 = 100;
const STRANDS: u64 = 2;
/// Round trips of other traffic.
const ECHOES: u64 = 200;

const COUNTED: &str = r#"
    name = "counted"
    [variables]
    h = { help = "remote host" }
    size = { help = "bytes", default = "100" }
    [[group]]
    strands = 2
    [[group.transaction]]
    flowops = [{ type = "connect", remotehost = "${h}", protocol = "udp" }]
    [[group.transaction]]
    iterations = 100
    flowops = [{ type = "write", size = "${size}", verify = true }]
    [[group.transaction]]
    flowops = ["disconnect"]
"#;

fn has_program(host: &LabHost, address: IpAddr) -> bool {
    let namespace = NetNs::open(&host.namespace).expect("the namespace");
    let device = namespace.run(|| xdp::device_of_address(address)).expect("a thread");
    device.expect("netlink").expect("the device").has_program
}

/// All datagrams arrive. Returns how many came by the kernel's sockets.
fn carries(
    on_lab: &str,
    engine: &str,
    size: &str,
    address: Option<std::net::Ipv6Addr>,
    workers: &str,
) -> u64 {
    let size_of = format!("size={size}");
    let mut arguments = vec!["run", "counted.toml", "--observe", "none", "--json", "run.json"];
    arguments.extend([on_lab, "--engine", engine, "--var", &size_of, "--workers", workers]);
    let address = address.map(|address| format!("h={address}"));
    arguments.extend(address.iter().flat_map(|address| ["--var", address]));
    let finished = Program::new(arguments).file("counted.toml", COUNTED).finish();
    assert_eq!(finished.code, 0, "{engine}, {size} bytes: {finished}");
    let document = finished.document();
    let sent = STRANDS * ITERATIONS;
    let frames = document.at("/io/frames");
    assert_eq!(frames["sent"], sent, "{frames}");
    assert_eq!(frames["dropped"], 0, "{frames}");
    let [received, beside] =
        ["received", "received_beside"].map(|key| frames[key].as_u64().unwrap());
    assert_eq!(document.count("/datagrams/lost"), 0, "{engine}, {size} bytes: {frames}");
    assert_eq!(received + beside, sent, "{frames}");
    assert!(received > 0, "{frames}");
    assert_eq!(document.count("/datagrams/reordered"), 0);
    for stage in document.list("/frames/directions/0/stages") {
        assert_eq!(stage["datagrams"], sent, "{engine}, {size} bytes: {stage}");
    }
    beside
}

/// Sends bytes there and back.
fn echo(hosts: &[LabHost]) {
    let [here, there] = [&hosts[0], &hosts[1]].map(|host| NetNs::open(&host.namespace).unwrap());
    let at = SocketAddr::new(hosts[1].ipv4.into(), 0);
    let listener = there.run(|| TcpListener::bind(at)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            while let Ok(got @ 1..) = socket.read(&mut buffer) {
                socket.write_all(&buffer[..got]).unwrap();
            }
        });
        let mut socket = here.run(|| TcpStream::connect(at)).unwrap().unwrap();
        for number in 0..ECHOES {
            let sent: Vec<u8> = (0..3000u64).map(|place| (place + number) as u8).collect();
            socket.write_all(&sent).unwrap();
            let mut back = vec![0; sent.len()];
            socket.read_exact(&mut back).unwrap();
            assert_eq!(back, sent);
        }
    });
}

/// Also by a program that is killed.
#[test]
fn other_traffic_passes_and_nothing_stays_on_a_device() {
    if skip_without_namespaces("other_traffic_passes_and_nothing_stays_on_a_device") {
        return;
    }
    let lab = Standing::up();
    let on_lab = format!("--lab={}", lab.name);
    let hosts = Lab::open(&lab.name).unwrap().hosts().to_vec();
    let all = |wanted: bool| hosts.iter().all(|host| has_program(host, host.ipv4.into()) == wanted);
    let arguments = ["run", "@udp-rr", "--engine", "af_xdp", "--duration", "1h", "--workers", "1"];
    let running = Program::new(arguments.iter().copied().chain([&*on_lab, "--observe", "none"]));
    let running = running.start();
    until("both devices have the program", || all(true));
    echo(&hosts);
    assert!(all(true), "it is attached all the while");
    for agent in running.children() {
        signal_to(agent, Signal::KILL);
    }
    until("no device has a program", || all(false));
    let finished = running.wait_only();
    assert_ne!(finished.code, 0, "{finished}");
}

#[test]
fn what_frames_cannot_carry_is_refused_before_the_run() {
    let refused = |arguments: &[&str], words: &[&str]| {
        let finished = Program::short_run(arguments[0], &arguments[1..]).finish();
        assert_eq!(finished.code, 2, "{arguments:?}: {finished}");
        let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = format!("{said} {}", finished.stdout.replace('\n', " "));
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(said.contains(word), "{arguments:?}: no {word:?} in {finished}");
        }
    };
    refused(&["@stream", "--engine", "af_xdp"], &["engine af_xdp", "protocol=udp only"]);
    let batched = ["@udp-stream", "--engine", "af_xdp", "--var", "options=batch=8"];
    refused(&batched, &["engine af_xdp", "batch is an option of the kernel's sockets"]);
    let shared = ["@udp-rr", "--engine", "af_xdp", "--server-sockets", "shared"];
    refused(&shared, &["engine af_xdp", "server_sockets"]);
    if skip_without_namespaces("devices of frames") {
        return;
    }
    refused(&["@udp-rr", "--engine", "af_xdp"], &["lo has no Ethernet frames", "use --lab"]);
    let two =
        ["@udp-rr", "--lab", "--engine", "af_xdp", "--workers", "2", "--var", "connections=4"];
    let words = [
        "engine af_xdp",
        "each of 2 workers needs",
        "eth0 has 1 receive and 1 transmit",
        "use --workers 1",
    ];
    refused(&two, &words);
    let long = ["@udp-stream", "--lab", "--engine", "af_xdp", "--var", "size=4k"];
    refused(&long, &["a datagram of 4096 bytes", "the MTU of eth0 is 1500", "size=1472 or less"]);
}

#[test]
fn without_rights_it_is_refused() {
    let finished = Program::unprivileged(&["run", "@udp-rr", "--engine", "af_xdp"]).finish();
    assert_eq!(finished.code, 2, "{finished}");
    let said = format!("{}{}", finished.stdout, finished.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("AF_XDP sockets need CAP_NET_RAW"), "{finished}");
}

/// The backlog of a CPU is that of all programs: traffic of other tests could fill it.
mod alone {
    use super::*;

    #[test]
    fn every_datagram_arrives_as_a_frame() {
        if skip_without_namespaces("every_datagram_arrives_as_a_frame") {
            return;
        }
        let lab = Standing::up();
        let on_lab = format!("--lab={}", lab.name);
        let hosts = Lab::open(&lab.name).unwrap().hosts().to_vec();
        let mut cases =
            vec![("af_xdp", "1", None), ("af_xdp", "1472", None), ("af_xdp_native", "100", None)];
        cases.extend(hosts[1].ipv6.map(|address| ("af_xdp", "1452", Some(address))));
        for (engine, size, address) in cases {
            carries(&on_lab, engine, size, address, "1");
            for host in &hosts {
                assert!(!has_program(host, host.ipv4.into()), "it is gone with the run");
            }
        }
    }

    /// Each end has two queues, and each worker one of them, as far as this machine's veth can have two: one for each CPU. Frames of
    /// queue 1 come to queue 1 of the other end, where a driver's program sees them.
    #[test]
    fn each_worker_sends_and_receives_by_a_queue_of_its_own() {
        if skip_without_namespaces("each_worker_sends_and_receives_by_a_queue_of_its_own") {
            return;
        }
        let lab = Standing::up();
        let on_lab = format!("--lab={}", lab.name);
        let hosts = Lab::open(&lab.name).unwrap().hosts().to_vec();
        for host in &hosts {
            let set = || {
                let ethtool = Ethtool::open().unwrap();
                let channels = ethtool.channels("eth0").unwrap();
                let two = Channels { rx: 2, tx: 2, ..channels };
                (channels.rx_max.min(channels.tx_max) > 1)
                    .then(|| ethtool.set_channels("eth0", two).unwrap())
            };
            let namespace = NetNs::open(&host.namespace).expect("the namespace");
            if namespace.run(set).expect("a thread").is_none() {
                eprintln!("a veth of this machine has one queue");
                return;
            }
        }
        // A receiver with one worker has both queues. Datagrams that neither worker took would have come beside.
        for (sender, receiver) in [("2", "2"), ("2", "1")] {
            let workers = format!("master={sender},peer={receiver}");
            assert_eq!(carries(&on_lab, "af_xdp_native", "100", None, &workers), 0, "{workers}");
            for host in &hosts {
                assert!(!has_program(host, host.ipv4.into()), "it is gone with the run");
            }
        }
    }
}
