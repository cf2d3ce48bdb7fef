//! `wirecost rss`: flows go to the queues for which they were found, in a lab (on virtio-net: in the target `vm`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use rustix::process::Signal;
use serde_json::Value;
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::{skip, skip_without_namespaces};
use wirecost_linux::{rps, sysctl, thread};
use wirecost_model::rss::{DeviceSpreading, Flow};

use crate::program::{Program, until};

struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        Program::new(["lab", "down", "--name", &self.0]).finish();
    }
}

#[test]
fn flows_go_to_the_queues_of_a_lab_for_which_they_were_found() {
    if skip_without_namespaces("flows_go_to_the_queues_of_a_lab_for_which_they_were_found") {
        return;
    }
    let name = format!("test-{}-rss", std::process::id());
    let key = wirecost_model::rss::Key([0x35; 40]).to_string();
    let up = ["lab", "up", "--name", &name, "--queues", "2", "--rss-table", "1,1,0"];
    let up = Program::new(up).args(["--rss-key", &key]).start().wait_only();
    let _removed = Removed(name.clone());
    assert_eq!(up.code, 0, "{up}");
    let lab = format!("--lab={name}");
    let status = || -> Value {
        let status = Program::new(["lab", "status", "--json"]).finish();
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        let labs = status["labs"].as_array().unwrap();
        labs.iter().find(|lab| lab["name"] == name.as_str()).unwrap().clone()
    };
    let before = status();
    let host = |number: usize| {
        let host = &before["hosts"][number]["host"];
        let address: Ipv4Addr = host["ipv4"].as_str().unwrap().parse().unwrap();
        (NetNs::open(host["namespace"].as_str().unwrap()).unwrap(), address)
    };
    let ((sender, from), (receiver, to)) = (host(0), host(1));
    let socket = receiver.run(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
    let destination = socket.local_addr().unwrap();

    let shown = Program::new(["rss", "show", "h2", &lab]).finish();
    assert_eq!(shown.code, 0, "{shown}");
    assert!(shown.stdout.contains("h2: 2 receive queues"), "{shown}");
    assert!(shown.stdout.contains(&key) && shown.stdout.contains("(128 entries)"), "{shown}");

    let found = Program::new(["rss", "flows", "--dev", "h2", &lab, "--json", "--count", "20"])
        .args(["--dst", &destination.to_string(), "--src", &from.to_string()])
        .args(["--queues", "0-1"])
        .finish();
    assert_eq!(found.code, 0, "{found}");
    let flows: Vec<Value> = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(flows.len(), 40);
    // All to one queue first: what another gets is seen.
    let mut expected = [0_u64; 2];
    let received = || -> Vec<u64> {
        let counts = status()["emulated"]["counts"].clone();
        let queues = counts["devices"][1]["queues"].as_array().unwrap().clone();
        queues.iter().map(|queue| queue["received"].as_u64().unwrap()).collect()
    };
    for queue in [0, 1] {
        for flow in flows.iter().filter(|flow| flow["queue"] == queue) {
            let source: SocketAddr = flow["source"].as_str().unwrap().parse().unwrap();
            let socket = sender.run(|| UdpSocket::bind(source).unwrap()).unwrap();
            assert_eq!(socket.send_to(b"datagram", destination).unwrap(), 8);
            expected[queue] += 1;
        }
        until("all have arrived", || received().iter().sum::<u64>() >= expected.iter().sum());
        assert_eq!(received(), expected);
    }
    assert_eq!(expected, [20, 20]);
}

/// The receiver's sockets tell the CPU, and its table the queue: both divide the flows in the same way.
#[test]
fn flows_are_found_by_asking_on_which_cpu_they_arrive() {
    let test = "flows_are_found_by_asking_on_which_cpu_they_arrive";
    if skip_without_namespaces(test) {
        return;
    }
    let name = format!("test-{}-ask", std::process::id());
    let up = Program::new(["lab", "up", "--name", &name, "--queues", "2"]).start().wait_only();
    let _removed = Removed(name.clone());
    assert_eq!(up.code, 0, "{up}");
    let status = Program::new(["lab", "status", "--json"]).finish();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let labs = status["labs"].as_array().unwrap();
    let hosts = labs.iter().find(|lab| lab["name"] == name.as_str()).unwrap()["hosts"].clone();
    let host = |number: usize| {
        let host = &hosts[number]["host"];
        let text = |key: &str| host[key].as_str().unwrap().to_owned();
        (text("namespace"), text("ipv4"))
    };
    let ((sender, from), (receiver, to)) = (host(0), host(1));
    let shown = Program::new(["rss", "show", "h2", &format!("--lab={name}"), "--json"]).finish();
    let spreading: DeviceSpreading = serde_json::from_str(&shown.stdout).unwrap();

    for protocol in ["udp", "tcp"] {
        let at = format!("{to}:9000");
        let answer = ["rss", "answer", &at, "--for", "60s", "--protocol", protocol];
        let mut answer = Program::in_namespace(&receiver, &answer).start();
        let command = answer.line(|line| line.contains("rss flows --ask"));
        let mut words: Vec<&str> = command.split_whitespace().skip(1).collect();
        assert_eq!(words.pop(), Some("ADDRESS"), "{command}");
        words.extend([&from, "--count", "8", "--json"]);
        let found = Program::in_namespace(&sender, &words).finish();
        assert_eq!(found.code, 0, "{found}");
        let flows: Vec<Value> = serde_json::from_str(&found.stdout).unwrap();
        let address = |flow: &Value, key: &str| -> SocketAddr {
            flow[key].as_str().unwrap().parse().unwrap()
        };
        let flow = Flow::of(protocol == "udp", to.parse().unwrap());
        let spread = spreading.spread(flow).unwrap();
        let mut queues: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for flow in &flows {
            let hash = spread.hash(address(flow, "source"), address(flow, "destination"));
            let queue = spread.queue(hash).unwrap();
            queues.entry(flow["cpu"].as_u64().unwrap()).or_default().insert(queue);
        }
        // With one CPU both queues are there.
        let cpus = thread::allowed_cpus().unwrap().len().min(2);
        assert_eq!((flows.len(), queues.len()), (8 * cpus, cpus), "{found}");
        if cpus == 2 {
            assert!(queues.values().all(|queues| queues.len() == 1), "{queues:?}");
        }
        let stranger = ["rss", "flows", "--ask", "1", "--dst", &at, "--src", &from];
        let absent =
            Program::in_namespace(&sender, &stranger).args(["--protocol", protocol]).finish();
        assert_eq!(absent.code, 3, "{absent}");
        assert!(absent.stderr.contains("does not say where packets arrive"), "{absent}");
        answer.signal(Signal::INT);
        assert_eq!(answer.wait().code, 0);
    }
}

#[test]
fn flows_are_found_for_a_device_that_is_known_from_its_manual() {
    let flows = |arguments: &[&str]| {
        Program::new(["rss", "flows", "--key", "microsoft", "--dst", "161.142.100.80:1766"])
            .args(arguments)
            .finish()
    };
    let source = ["--src", "66.9.149.187", "--ports", "2794-2794"];
    // The first of Microsoft's examples: 0x51ccc178 leads to entry 120.
    let found = flows(&[&source[..], &["--table", "equal 4", "--queues", "0"]].concat());
    assert_eq!(found.code, 0, "{found}");
    assert_eq!(
        found.stdout,
        "queue  source             hash\n    0  66.9.149.187:2794  0x51ccc178\n"
    );
    let addresses = ["--fields", "addresses", "--table", "equal 4", "--queues", "2"];
    let found = flows(&[&source[..], &addresses].concat());
    assert!(found.stdout.contains("0x323e8fc2"), "{found}");
    let network = ["--src", "66.9.149.0/24", "--fields", "addresses", "--queues", "0-7"];
    let found = flows(&network);
    assert_eq!(found.stdout.lines().count(), 9, "{found}");
}

#[test]
fn what_cannot_be_known_or_found_is_refused() {
    let base = ["rss", "flows", "--dst", "198.18.0.1:9", "--src", "198.18.0.2"];
    let key = ["--key", "microsoft", "--queues"];
    for (arguments, code, reason) in [
        (&["--dev", "none-such", "--queues", "0"][..], 2, "no network device none-such here"),
        (&["--dev", "lo", "--queues", "0"], 3, "does not tell how it spreads flows"),
        (&["--dev", "h2", "--lab=none-such", "--queues", "0"], 2, "no lab none-such"),
        (&["--key", "6d:5a", "--queues", "0"], 2, "must be at least 12 bytes"),
        (&["--queues", "0"], 2, "<--dev <DEV>|--key <KEY>|--ask <CODE>>"),
        (&["--key", "microsoft", "--dev", "lo", "--queues", "0"], 2, "cannot be used with"),
        (&[&key[..], &["x"]].concat(), 2, "must be a list of queues"),
        (
            &[&key[..], &["4", "--table", "equal 4"]].concat(),
            2,
            "--queues: queues that the table has",
        ),
        (&[&key[..], &["0", "--table", "equal"]].concat(), 2, "must be `equal N`"),
        (&[&key[..], &["0-3", "--fields", "addresses"]].concat(), 2, "lead to queue"),
        (&[&key[..], &["0", "--ports", "9-1"]].concat(), 2, "must be FIRST-LAST"),
        (&[&key[..], &["0", "--src", "fd00::/120"]].concat(), 2, "cannot be used multiple times"),
    ] {
        let refused = Program::new(base).args(arguments).finish();
        assert_eq!(refused.code, code, "{arguments:?}: {refused}");
        assert!(refused.stderr.contains(reason), "{arguments:?}: {refused}");
    }
    for (destination, reason) in
        [("198.18.0.1:0", "must have a port"), ("198.18.0.1", "must be an address and a port")]
    {
        let to = ["rss", "flows", "--dst", destination, "--src", "198.18.0.2"];
        let refused = Program::new(to).args(key).args(["0"]).finish();
        assert_eq!(refused.code, 2, "{refused}");
        assert!(refused.stderr.contains(reason), "{refused}");
    }
    let other = ["rss", "flows", "--dst", "198.18.0.1:9", "--src", "fd00::/120"];
    let refused = Program::new(other).args(key).args(["0"]).finish();
    assert!(refused.stderr.contains("different families"), "{refused}");
    assert_eq!(refused.code, 2);
}

/// Connections that the profile places, by what the queues of the receiver's device got.
#[test]
fn connections_arrive_on_the_queues_where_a_profile_places_them() {
    if skip_without_namespaces("connections_arrive_on_the_queues_where_a_profile_places_them") {
        return;
    }
    let profile = r#"
        name = "placed"
        [variables]
        h = { help = "remote host" }
        protocol = { help = "protocol", default = "udp" }
        [[group]]
        strands = 4
        [[group.transaction]]
        flowops = [{ type = "connect", remotehost = "${h}", protocol = "${protocol}", placement = "even" }]
        [[group.transaction]]
        duration = "1s"
        rate = 500
        flowops = [{ type = "write", size = 100 }, { type = "read", size = 100 }]
        [[group.transaction]]
        flowops = ["disconnect"]
    "#;
    let run = |arguments: &[&str]| {
        let always = ["run", "placed.toml", "--observe", "none", "--json", "run.json"];
        Program::new(always.iter().chain(arguments)).file("placed.toml", profile).finish()
    };
    let name = format!("test-{}-queues", std::process::id());
    let up = Program::new(["lab", "up", "--name", &name, "--queues", "2"]).start().wait_only();
    let _removed = Removed(name.clone());
    assert_eq!(up.code, 0, "{up}");
    // Hosts send nothing of their own then.
    for host in ["h1", "h2"] {
        let namespace = NetNs::open(&format!("wirecost-{name}-{host}")).unwrap();
        let off = || sysctl::write("net.ipv6.conf.all.disable_ipv6", "1").unwrap();
        namespace.run(off).unwrap();
    }
    let on_lab = format!("--lab={name}");
    let queues = [on_lab.as_str()];
    let received = |arguments: &[&str]| -> Vec<u64> {
        let finished = run(&[&queues[..], arguments].concat());
        assert_eq!(finished.code, 0, "{finished}");
        let document = finished.document();
        let queues = document.list("/link/devices/1/queues");
        queues.iter().map(|queue| queue["received"].as_u64().unwrap()).collect()
    };
    // Each strand sends 500 in the window. No frame of all-on-one is on the other queue.
    let even = received(&[]);
    let share = even[0] as f64 / even.iter().sum::<u64>() as f64;
    // False failures: 1e-5, computed: of 1,000 datagrams of a queue 180 would have to be beyond the window.
    assert!(even.iter().sum::<u64>() > 1000 && (share - 0.5).abs() < 0.05, "{even:?}");
    let on_one = received(&["--placement", "all-on-one"]);
    assert!(on_one[0] > 1000 && on_one[1] == 0, "{on_one:?}");
    let of_tcp = received(&["--placement", "all-on-one", "--var", "protocol=tcp"]);
    assert!(of_tcp[0] > 1000 && of_tcp[1] == 0, "{of_tcp:?}");

    let refused = run(&[&queues[..], &["--placement", "one-per-queue"]].concat());
    assert_ne!(refused.code, 0, "{refused}");
    let expected = "4 strands cannot have a queue each, as the peer's device has 2";
    assert!(refused.stdout.contains(expected), "{refused}");
    let by_table = run(&[&queues[..], &["--duration", "100ms"]].concat()).document();
    for strand in by_table.list("/placements") {
        assert_eq!(strand["by"], "device-table", "{strand}");
        assert_eq!(strand["queue"], strand["strand"].as_u64().unwrap() % 2, "{strand}");
    }
    let unknown = run(&["--lab", "--placement", "odd"]);
    assert_eq!(unknown.code, 2, "{unknown}");
    assert!(unknown.stderr.contains("one-per-queue, even, all-on-one, random"), "{unknown}");
}

const ON_VETH: &str = r#"
    name = "placed"
    [variables]
    h = { help = "remote host", default = "h2" }
    protocol = { help = "protocol", default = "udp" }
    strands = { help = "strands", default = "4" }
    [[group]]
    strands = "${strands}"
    [[group.transaction]]
    flowops = [{ type = "connect", remotehost = "${h}", protocol = "${protocol}", placement = "even" }]
    [[group.transaction]]
    iterations = 200
    flowops = [{ type = "write", size = 100 }, { type = "read", size = 100 }]
    [[group.transaction]]
    flowops = ["disconnect"]
"#;

/// On devices that do not tell how they spread packets: veth, whose packets RPS spreads over the receiver's CPUs.
#[test]
fn connections_arrive_on_the_cpus_where_a_profile_places_them_on_veth() {
    let test = "connections_arrive_on_the_cpus_where_a_profile_places_them_on_veth";
    if skip_without_namespaces(test) {
        return;
    }
    let cpus = thread::allowed_cpus().unwrap();
    let &[first, second, ..] = &cpus[..] else { return skip(test, "needs two CPUs") };
    let name = format!("test-{}-placed", std::process::id());
    let up = Program::new(["lab", "up", "--name", &name]).start().wait_only();
    let _removed = Removed(name.clone());
    assert_eq!(up.code, 0, "{up}");
    let status = Program::new(["lab", "status", "--json"]).finish();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let labs = status["labs"].as_array().unwrap();
    let receiver =
        &labs.iter().find(|lab| lab["name"] == name.as_str()).unwrap()["hosts"][1]["host"];
    let namespace = NetNs::open(receiver["namespace"].as_str().unwrap()).unwrap();
    let device = receiver["device"].as_str().unwrap();
    let steer = |cpus: &[u32]| assert_eq!(rps::steer(&namespace, device, cpus).unwrap(), cpus);
    let ipv6 = format!("h={}", receiver["ipv6"].as_str().unwrap_or_default());

    let run = |arguments: &[&str]| {
        let lab = format!("--lab={name}");
        let always = ["run", "placed.toml", "--observe", "none", "--json", "run.json", &lab];
        Program::new(always.iter().chain(arguments)).file("placed.toml", ON_VETH).finish()
    };
    // Where each strand was to arrive, and where the peer's sockets say that it arrived.
    let arrived = |arguments: &[&str]| -> Vec<(u64, Vec<u64>)> {
        let finished = run(arguments);
        assert_eq!(finished.code, 0, "{arguments:?}: {finished}");
        let document = finished.document();
        let codes = document.list("/warnings").iter().map(|warning| warning["code"].to_string());
        let rejected = codes.filter(|code| code.contains("rejected")).count();
        assert_eq!(rejected, 0, "{finished}");
        let strands = document.list("/placements").iter().enumerate();
        strands
            .map(|(number, strand)| {
                assert_eq!(strand["strand"], number, "{strand}");
                assert_eq!((&strand["host"], &strand["peer"]), (&"h1".into(), &"h2".into()));
                assert_eq!(
                    (&strand["by"], &strand["connections"]),
                    (&"observation".into(), &1.into())
                );
                assert!(strand["queue"].is_null(), "{strand}");
                assert!(strand["connections_tried"].as_u64().unwrap() >= 1, "{strand}");
                let arrived = strand["arrived_on"].as_array().unwrap().iter();
                let arrived = arrived.map(|cpu| cpu.as_u64().unwrap()).collect();
                (strand["cpu"].as_u64().unwrap(), arrived)
            })
            .collect()
    };
    let (low, high) = (u64::from(first), u64::from(second));
    let exactly = |cpus: &[u64]| cpus.iter().map(|&cpu| (cpu, vec![cpu])).collect::<Vec<_>>();
    steer(&[first, second]);
    let even = exactly(&[low, high, low, high]);
    for arguments in [
        &[][..],
        &["--var", "protocol=tcp"],
        &["--var", "protocol=tls"],
        &["--engine", "io_uring", "--var", "protocol=tcp"],
        &["--engine", "threads"],
    ] {
        assert_eq!(arrived(arguments), even, "{arguments:?}");
    }
    if receiver["ipv6"].is_string() {
        assert_eq!(arrived(&["--var", &ipv6]), even);
        assert_eq!(arrived(&["--var", &ipv6, "--var", "protocol=tcp"]), even);
    }
    let all_on_one = exactly(&[low; 4]);
    assert_eq!(arrived(&["--placement", "all-on-one"]), all_on_one);
    let one_each = ["--placement", "one-per-queue", "--var", "strands=2"];
    assert_eq!(arrived(&one_each), exactly(&[low, high]));
    // What clients share does not tell the CPU afterwards.
    let served = ["--server-sockets", "per-worker"];
    let placed = |cpus: &[u64]| cpus.iter().map(|&cpu| (cpu, Vec::new())).collect::<Vec<_>>();
    assert_eq!(arrived(&served), placed(&[low, high, low, high]));

    let refused = |arguments: &[&str], expected: &str| {
        let refused = run(arguments);
        assert_ne!(refused.code, 0, "{refused}");
        let error = refused.json("run.json")["error"].to_string();
        assert!(error.contains(expected), "{error}: {refused}");
    };
    let expected = "4 strands cannot have a CPU each, as packets arrive on 2 CPUs of the peer";
    refused(&["--placement", "one-per-queue"], expected);
    steer(&[second]);
    assert_eq!(arrived(&[]), exactly(&[high; 4]));
    refused(&one_each, "all packets arrive on one CPU of the peer (set rps_cpus of its device)");
}
