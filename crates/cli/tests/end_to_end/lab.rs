//! In network namespaces: what each host costs, and bytes as the kernel counts them.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use wirecost_analyze::RunMeta;
use wirecost_fleet::controller::{self, Settings};
use wirecost_fleet::host::{AgentHost, Host, HostError, Notices};
use wirecost_fleet::wire::Order;
use wirecost_lab::{Lab, LabHost, LabSpec};
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_model::status::Status;
use wirecost_profile::language;

use crate::connections::{Totals, established};
use crate::engines;
use crate::honesty::{agent_command, member, settings};
use crate::program::{BINARY, Program, is_a_source_of_cycles, sources};

#[test]
fn each_host_has_its_cost() {
    if skip_without_namespaces("each_host_has_its_cost") {
        return;
    }
    let document = Program::short_run("@stream", &["--lab"]).measure();
    let hosts = document.list("/hosts");
    assert_eq!(hosts.len(), 2);
    let own_cpus = std::thread::available_parallelism().unwrap().get() >= 2;
    let mut all: Vec<&Value> = Vec::new();
    for host in hosts {
        assert!(host["cpu"].is_object(), "{host:#}");
        assert_eq!(host["cpu_source"], sources().0);
        assert_eq!(host["cycles_per_kbyte"].as_f64().is_some_and(|c| c > 0.0), own_cpus);
        assert_eq!(host["cycles_reason"].is_null(), own_cpus);
        if own_cpus {
            is_a_source_of_cycles(&host["cycles_source"]);
            all.extend(host["cpus"].as_array().unwrap());
        }
    }
    let number = all.len();
    all.sort_by_key(|cpu| cpu.as_u64());
    all.dedup();
    assert_eq!(all.len(), number, "a CPU belongs to one host");
    assert_eq!(document.list("/machines").len(), 1);
    assert!(document.number("/machines/0/cycles_per_kbyte") > 0.0);
    assert_ne!(document.text("/hosts/0/address"), document.text("/hosts/1/address"));
}

#[test]
fn over_ipv6_and_on_threads() {
    if skip_without_namespaces("over_ipv6_and_on_threads") {
        return;
    }
    let lab = Standing::up();
    let opened = Lab::open(&lab.name).unwrap();
    let Some(address) = opened.hosts()[1].ipv6 else { return };
    let variable = format!("h={address}");
    let on_lab = format!("--lab={}", lab.name);
    let arguments = [&on_lab, "--var", &variable, "--engine", "threads"];
    let document = Program::short_run("@rr", &arguments).measure();
    assert_eq!(document.text("/hosts/1/address"), address.to_string());
    assert!(document.count("/transactions/count") > 0);
}

/// The advice is a line that can be typed.
#[test]
fn a_second_lab_of_a_name_is_told_how_to_remove_the_first() {
    if skip_without_namespaces("a_second_lab_of_a_name_is_told_how_to_remove_the_first") {
        return;
    }
    let lab = Standing::up();
    let again = Program::new(["lab", "up", "--name", &lab.name]).finish();
    assert_eq!(again.code, 2, "{again}");
    let (_, line) = again.stderr.split_once("remove it: wirecost ").expect("the line");
    let down = Program::new(line.split_whitespace()).finish();
    assert_eq!(down.code, 0, "{down}");
    std::mem::forget(lab);
}

/// A lab made by hand.
pub(crate) struct Standing {
    pub(crate) name: String,
}

impl Standing {
    pub(crate) fn up() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        let finished = Program::new(["lab", "up", "--name", &name]).finish();
        assert_eq!(finished.code, 0, "{finished}");
        assert!(finished.stdout.contains(&name), "{finished}");
        let status = Program::new(["lab", "status"]).finish();
        assert!(status.stdout.contains(&format!("lab {name}: up")), "{status}");
        Self { name }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let down = Command::new(BINARY).args(["lab", "down", "--name", &self.name]).output();
        assert!(std::thread::panicking() || down.is_ok_and(|down| down.status.success()));
    }
}

/// Fixed numbers of bytes: 48 MiB there, and 16 MiB back, of 4 connections.
const CONNECTIONS: u64 = 4;
const TX: u64 = CONNECTIONS * 192 * (64 << 10);
const RX: u64 = CONNECTIONS * 256 * (16 << 10);

fn fixed(options: &str, disconnect: bool) -> String {
    let cubic = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .is_ok_and(|names| names.split_whitespace().any(|name| name == "cubic"));
    // A machine's own choice may be one that paces.
    let cc = if cubic { "cubic" } else { "reno" };
    let last = if disconnect {
        "<transaction iterations=\"1\">\n<flowop type=\"disconnect\"/>\n</transaction>\n"
    } else {
        ""
    };
    format!(
        "<?xml version=\"1.0\"?>\n<profile name=\"fixed\">\n<group nthreads=\"{CONNECTIONS}\">\n\
         <transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp cc={cc} {options}\"/>\n\
         </transaction>\n\
         <transaction iterations=\"192\">\n<flowop type=\"write\" options=\"size=64k\"/>\n\
         </transaction>\n\
         <transaction iterations=\"256\">\n<flowop type=\"read\" options=\"size=16k\"/>\n\
         </transaction>\n{last}</group>\n</profile>\n"
    )
}

/// Bytes and packets of a device, sent and received.
#[derive(Debug, Clone, Copy)]
struct Device {
    received: (u64, u64),
    sent: (u64, u64),
}

fn device(host: &LabHost) -> Device {
    let namespace = NetNs::open(&host.namespace).unwrap();
    let text = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let line = text.lines().find_map(|line| {
        line.trim_start().strip_prefix(&format!("{}:", host.device)).map(ToOwned::to_owned)
    });
    let numbers: Vec<u64> =
        line.unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect();
    Device { received: (numbers[0], numbers[1]), sent: (numbers[8], numbers[9]) }
}

/// Payload that a device moved between two readings. A large segment that the device would cut up
/// (TSO) counts on a veth as the one packet with the one header that it is, so the headers are those
/// of the packets counted, whatever their size: Ethernet 14, IPv4 20, TCP 20, timestamps 12.
fn payload(before: (u64, u64), after: (u64, u64)) -> u64 {
    (after.0 - before.0) - (after.1 - before.1) * 66
}

#[test]
fn a_device_counts_the_same_bytes() {
    if skip_without_namespaces("a_device_counts_the_same_bytes") {
        return;
    }
    let lab = Standing::up();
    let hosts = Lab::open(&lab.name).unwrap().hosts().to_vec();
    for engine in engines::names() {
        let before = [device(&hosts[0]), device(&hosts[1])];
        let document = Program::new(["run", "fixed.xml", "--quiet", "--engine", engine])
            .args([format!("--lab={}", lab.name)])
            .file("fixed.xml", &fixed("", true))
            .measure();
        let after = [device(&hosts[0]), device(&hosts[1])];
        let (tx, rx) = (document.sum("/phases", "tx_bytes"), document.sum("/phases", "rx_bytes"));
        assert_eq!((tx, rx), (TX as f64, RX as f64));
        for (moved, counted) in [
            (tx, payload(before[0].sent, after[0].sent)),
            (tx, payload(before[1].received, after[1].received)),
            (rx, payload(before[1].sent, after[1].sent)),
            (rx, payload(before[0].received, after[0].received)),
        ] {
            let apart = (counted as f64 - moved).abs() / moved;
            assert!(apart < 0.001, "{engine}: {moved} moved, {counted} counted by the device");
        }
    }
}

/// An agent on a host of a lab whose connections are looked at when the last phase has ended, and
/// before they are closed.
struct Watched {
    agent: AgentHost,
    host: LabHost,
    seen: Arc<Mutex<Vec<Totals>>>,
}

impl Host for Watched {
    fn name(&self) -> &str {
        self.agent.name()
    }

    fn order(&mut self, order: Order) -> Result<(), HostError> {
        if order == Order::Summarize {
            let namespace = NetNs::open(&self.host.namespace).unwrap();
            let totals = namespace.run(established).unwrap();
            self.seen.lock().unwrap().push(totals);
        }
        self.agent.order(order)
    }

    fn attach(&mut self, number: usize, notices: Notices) {
        self.agent.attach(number, notices);
    }
}

#[test]
fn tcp_counts_the_same_bytes() {
    if skip_without_namespaces("tcp_counts_the_same_bytes") {
        return;
    }
    for engine in engines::names() {
        let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
        let address = lab.hosts()[1].ipv4.to_string();
        let text = fixed("tcp_nodelay", false);
        let profile = language::parse(&text, &|_: &str| Some(address.clone())).unwrap().profile;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let members = ["master", "peer"].into_iter().zip(lab.hosts()).map(|(name, host)| {
            let mut command = agent_command();
            host.place(&mut command).unwrap();
            let agent = AgentHost::spawn(name, command).unwrap();
            let watched = Watched { agent, host: host.clone(), seen: seen.clone() };
            let mut member = member(watched);
            member.data_address = Some(host.ipv4.into());
            member.listens_at = member.data_address;
            member.cpus = host.cpus.clone();
            member.owns_cpus = host.owns_cpus;
            member
        });
        let settings = Settings { ramp: 0, ..settings(engine.into(), "tcp_counts_the_same_bytes") };
        let stop = AtomicBool::new(false);
        let outcome = controller::run(&profile, members.collect(), &settings, &stop, &mut ());
        let meta = RunMeta {
            profile: "fixed".to_owned(),
            engine: engine.to_owned(),
            version: String::new(),
            started_unix_ms: 0,
            probes: Vec::new(),
            dead_time: Default::default(),
            offered_bits_per_second: None,
        };
        let run = wirecost_analyze::run(&outcome, &meta);
        assert_eq!((run.status, run.error), (Status::Ok, None));
        let moved = |bytes: fn(&wirecost_model::run::PhaseRow) -> u64| {
            run.phases.iter().map(bytes).sum::<u64>()
        };
        let (tx, rx) = (moved(|phase| phase.tx_bytes), moved(|phase| phase.rx_bytes));
        assert_eq!((tx, rx), (TX, RX));

        let seen = seen.lock().unwrap();
        let [master, peer] = seen[..] else { panic!("{seen:?}") };
        assert_eq!((master.connections, peer.connections), (CONNECTIONS, CONNECTIONS));
        assert_eq!((peer.received, master.received), (tx, rx));
        // The one that opens a connection counts its SYN, which has a number, as a byte.
        assert_eq!(master.acked - CONNECTIONS, tx);
        assert_eq!(peer.acked, rx);
    }
}
