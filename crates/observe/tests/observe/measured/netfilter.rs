//! Rules of a firewall are paid in the layer `netfilter`, and nowhere else. The test runs in a process of its own
//! under scripts/test, so that only this load is in its samples.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use wirecost_lab::{Lab, LabSpec};
use wirecost_linux::netns::NetNs;
use wirecost_linux::{privilege, rps, spawn};
use wirecost_model::observe::{ObserveRequest, Part};
use wirecost_model::proportion;
use wirecost_observe::Observer;

/// Datagrams of a slice, and their payload.
const DATAGRAMS: u64 = 75_000;
const BYTES: usize = 64;
/// Slices of each kind. They alternate, so that a machine that gets slower does so for both.
const SLICES: usize = 8;
/// Standard deviations of the intervals.
const Z: f64 = 3.8;

/// Layers that other programs of the machine move: who is switched to, interrupted or traced.
const OF_OTHERS: &[&str] = &["BPF", "RCU", "interrupts", "observer", "scheduler", "timers"];

fn nft(namespace: &NetNs, rules: &str) {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped());
    spawn::enter_on_spawn(&mut command, namespace).unwrap();
    let mut child = command.spawn().expect("nft");
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Rules that look at every datagram and match none.
fn rules() -> String {
    let mut rules = String::from(
        "table ip wirecost {\nchain input {\ntype filter hook input priority 0; policy accept;\n",
    );
    for port in 1..=200 {
        rules += &format!("udp dport {port} drop\n");
    }
    rules + "}\n}\n"
}

/// Sends and receives on one thread, so that nobody is woken and nothing waits. What is lost, as
/// another load has filled the backlog of the CPU, is sent again.
fn load(near: &UdpSocket, far: &UdpSocket) {
    let mut buffer = [0; BYTES];
    far.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut received = 0;
    while received < DATAGRAMS {
        near.send(&[1; BYTES]).unwrap();
        received += far.recv(&mut buffer).map_or(0, |_| 1);
    }
}

/// Samples by layer, and all.
#[derive(Debug, Default)]
struct Sum {
    layers: BTreeMap<String, u64>,
    all: u64,
}

impl Sum {
    fn add(&mut self, observer: &mut Observer, load: impl FnOnce()) {
        observer.begin();
        load();
        observer.end();
        let section = observer.take().parts.remove(0).functions.expect("a section");
        assert_eq!(section.lost, 0);
        self.all += section.samples;
        for layer in section.layers {
            let found = (layer.share * section.samples as f64).round() as u64;
            *self.layers.entry(layer.layer).or_default() += found;
        }
    }

    /// Samples of a layer for each KByte, at least and at most.
    fn cost(&self, layer: &str) -> (f64, f64) {
        let found = self.layers.get(layer).copied().unwrap_or(0);
        let (low, high) = proportion::wilson(found, self.all, Z);
        let kbytes = (SLICES as u64 * DATAGRAMS * BYTES as u64) as f64 / 1024.0;
        let each = self.all as f64 / kbytes;
        (low * each, high * each)
    }
}

#[test]
fn rules_raise_netfilter_alone() {
    if privilege::skip_without_namespaces("rules_raise_netfilter_alone")
        || privilege::skip_without_tracing("rules_raise_netfilter_alone")
    {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return privilege::skip("rules_raise_netfilter_alone", "needs nft");
    }
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    let [one, two] = lab.hosts() else { panic!("two hosts") };
    let (here, there) = (one.open().unwrap(), two.open().unwrap());
    // Whoever sends delivers too: all is the work of one thread.
    rps::steer(&here, &one.device, &[]).unwrap();
    rps::steer(&there, &two.device, &[]).unwrap();
    let near = here.run(|| UdpSocket::bind((one.ipv4, 0))).unwrap().unwrap();
    let far = there.run(|| UdpSocket::bind((two.ipv4, 0))).unwrap().unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();

    let part = Part { pid: Some(std::process::id()), ..Part::default() };
    let request = ObserveRequest { probes: vec!["functions".to_owned()], parts: vec![part] };
    let mut observer = Observer::open_at(request, 997);
    observer.attach();
    load(&near, &far);
    let (mut without, mut with) = (Sum::default(), Sum::default());
    for _ in 0..SLICES {
        without.add(&mut observer, || load(&near, &far));
        nft(&there, &rules());
        with.add(&mut observer, || load(&near, &far));
        nft(&there, "delete table ip wirecost\n");
    }
    observer.detach();

    let names: Vec<&String> = with.layers.keys().chain(without.layers.keys()).collect();
    for layer in &names {
        println!("{layer:16} {:.3?} {:.3?}", without.cost(layer), with.cost(layer));
    }
    let (before, after) = (without.cost("netfilter"), with.cost("netfilter"));
    // False failures: 1e-9, computed: 200 rules at 5 ns add 600 samples, of a deviation of 25, to a bound of 30.
    assert!(after.0 > 2.0 * before.1, "{before:?} {after:?}");
    for layer in names {
        if layer == "netfilter" || OF_OTHERS.contains(&layer.as_str()) {
            continue;
        }
        let (before, after) = (without.cost(layer), with.cost(layer));
        // False failures: 2e-6, computed: in one of 20 layers two counts are 5.4 deviations of their difference apart.
        assert!(before.0 <= after.1 && after.0 <= before.1, "{layer}: {before:?} {after:?}");
    }
    lab.close().unwrap();
}
