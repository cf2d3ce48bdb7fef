//! What a profile and its options ask of the network, as packets on a lab's device show it.

use std::io::{ErrorKind, Read};

use socket2::{Domain, Protocol, Socket, Type};
use wirecost_lab::{Lab, LabHost};
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::lab::Standing;
use crate::program::Program;

const PORT: u16 = 5001;

/// A TCP packet to or from the data port.
#[derive(Debug)]
struct Packet {
    /// From the end that accepted.
    from_acceptor: bool,
    tos: u8,
    /// Number of the first byte.
    sequence: u32,
    /// Bytes behind the header of TCP.
    payload: usize,
    fin: bool,
}

impl Packet {
    /// Number of the byte behind the last.
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.payload as u32)
    }
}

/// Packets that a host's device receives and sends.
struct Capture(Socket);

impl Capture {
    fn on(host: &LabHost) -> Self {
        const ETH_P_ALL: u16 = 3;
        let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let namespace = NetNs::open(&host.namespace).unwrap();
        let socket = namespace.run(|| Socket::new(Domain::PACKET, Type::RAW, Some(protocol)));
        let socket = socket.unwrap().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    /// What has come so far, in order.
    fn packets(mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        let mut bytes = vec![0; 128 << 10];
        loop {
            match self.0.read(&mut bytes) {
                Ok(length) => packets.extend(packet(&bytes[..length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return packets,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn packet(frame: &[u8]) -> Option<Packet> {
    const LINK: usize = 14;
    const TCP: u8 = 6;
    let ip = frame.get(LINK..)?;
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (protocol, tos, header, length) = match ip.first()? >> 4 {
        4 => (ip[9], ip[1], usize::from(ip[0] & 15) * 4, usize::from(word(ip, 2))),
        6 => (ip[6], (word(ip, 0) >> 4) as u8, 40, 40 + usize::from(word(ip, 4))),
        _ => return None,
    };
    let tcp = ip.get(header..).filter(|tcp| protocol == TCP && tcp.len() >= 20)?;
    let ports = (word(tcp, 0), word(tcp, 2));
    if ports.0 != PORT && ports.1 != PORT {
        return None;
    }
    let payload = length - header - usize::from(tcp[12] >> 4) * 4;
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let from_acceptor = ports.0 == PORT;
    Some(Packet { from_acceptor, tos, sequence, payload, fin: tcp[13] & 1 != 0 })
}

fn profile(flowops: &str) -> String {
    format!(
        "<profile name=\"packets\"><group nthreads=\"1\"><transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp port={PORT} dscp=cs1\"/>\n\
         {flowops}\n<flowop type=\"disconnect\"/>\n</transaction></group></profile>\n"
    )
}

/// Runs a profile between the hosts of a lab.
fn measure(lab: &Standing, arguments: &[&str], flowops: &str) -> (Document, Vec<Packet>) {
    let on_lab = format!("--lab={}", lab.name);
    let capture = Capture::on(&Lab::open(&lab.name).unwrap().hosts()[1]);
    let document = Program::new(["run", "packets.xml", "--quiet", &on_lab])
        .args(arguments)
        .file("packets.xml", &profile(flowops))
        .measure();
    (document, capture.packets())
}

fn settings(document: &Document, name: &str) -> Vec<(String, String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let settings = document.list("/settings").iter().filter(|setting| setting["name"] == name);
    settings.map(|s| (text(&s["host"]), text(&s["asked"]), text(&s["granted"]))).collect()
}

#[test]
fn packets_of_both_ends_have_the_type_of_service_of_the_command_line() {
    if skip_without_namespaces("packets_of_both_ends_have_the_type_of_service") {
        return;
    }
    const AF41: u8 = 34 << 2;
    let lab = Standing::up();
    let opened = Lab::open(&lab.name).unwrap();
    let host = &opened.hosts()[1];
    let addresses = [None, host.ipv6.map(|address| format!("h={address}"))];
    for (address, engine) in addresses.iter().zip(["epoll", "io_uring"]) {
        let mut arguments = vec!["--tos", "af41", "--engine", engine];
        arguments.extend(address.iter().flat_map(|address| ["--var", address]));
        let flowops = "<flowop type=\"write\" options=\"size=1k count=20\"/>\n\
                       <flowop type=\"read\" options=\"size=1k count=20\"/>";
        let (document, packets) = measure(&lab, &arguments, flowops);
        let told = |host: &str| (host.to_owned(), AF41.to_string(), AF41.to_string());
        assert_eq!(settings(&document, "tos"), [told("h1"), told("h2")]);
        for from_acceptor in [false, true] {
            let of = packets.iter().filter(|p| p.from_acceptor == from_acceptor && p.payload > 0);
            let classes: Vec<u8> = of.map(|packet| packet.tos).collect();
            assert!(classes.len() > 1 && classes.iter().all(|tos| *tos == AF41), "{classes:?}");
        }
    }
}

#[test]
fn a_half_closed_stream_ends_before_the_other_way_begins() {
    if skip_without_namespaces("a_half_closed_stream_ends_before_the_other_way_begins") {
        return;
    }
    let lab = Standing::up();
    for engine in ["epoll", "poll", "io_uring", "threads"] {
        let flowops = "<flowop type=\"write\" options=\"size=8k count=10\"/>\n\
                       <flowop type=\"shutdown\"/>\n\
                       <flowop type=\"read\" options=\"size=2k count=10\"/>";
        let (document, packets) = measure(&lab, &["--engine", engine], flowops);
        assert_eq!(document.count("/throughput/tx_bytes"), 80 << 10);
        assert_eq!(document.count("/throughput/rx_bytes"), 20 << 10);
        let ended = packets.iter().position(|packet| packet.fin && !packet.from_acceptor);
        let answered = packets.iter().position(|packet| packet.payload > 0 && packet.from_acceptor);
        let (ended, answered) = (ended.unwrap(), answered.unwrap());
        assert!(ended < answered, "{engine}: {packets:?}");
        // What comes behind was sent before, and is sent again.
        let end = packets[ended].end();
        let mut behind = packets[ended + 1..].iter().filter(|packet| !packet.from_acceptor);
        let is_old =
            |packet: &Packet| packet.payload == 0 || packet.end().wrapping_sub(end) as i32 <= 0;
        assert!(behind.all(is_old), "{engine}: {packets:?}");
    }
}
