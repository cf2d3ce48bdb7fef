//! Labs on this machine's kernel. Names are unique, so the tests run beside each other and beside
//! labs that are in use.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use wirecost_linux::link::Links;
use wirecost_linux::netns::{self, NetNs};
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::thread::allowed_cpus;
use wirecost_linux::{facts, rps, sysctl};
use wirecost_model::link::netem::{Backend, BackendChoice};
use wirecost_model::link::{LinkSpec, Topology};

use crate::{
    DEFAULT_NAME, EmulatedLinks, Lab, LabError, LabHost, LabSpec, Lifetime, down, remove_stale,
    status,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn stay(of: &str) -> LabSpec {
    LabSpec::persistent(format!("test-{}-{of}", std::process::id()), 2)
}

fn is_gone(name: &str) -> bool {
    let prefix = format!("wirecost-{name}-");
    let present = netns::list().unwrap();
    !present.iter().any(|namespace| namespace.starts_with(&prefix))
        && !Path::new(&format!("/run/wirecost/lab/{name}.json")).exists()
}

fn addresses(host: &LabHost) -> Vec<IpAddr> {
    std::iter::once(IpAddr::V4(host.ipv4)).chain(host.ipv6.map(IpAddr::V6)).collect()
}

/// One message there and back, over TCP and over UDP. A socket belongs to the namespace in which it
/// was made, so only making them needs to happen there.
fn exchange(from: &LabHost, to: &LabHost) {
    for (near, far) in addresses(from).into_iter().zip(addresses(to)) {
        let listener = in_host(to, move || TcpListener::bind((far, 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut message = [0; 4];
            stream.read_exact(&mut message).unwrap();
            stream.write_all(&message).unwrap();
        });
        let mut stream =
            in_host(from, move || TcpStream::connect_timeout(&address, PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), near);
        stream.write_all(b"ping").unwrap();
        let mut message = [0; 4];
        stream.read_exact(&mut message).unwrap();
        assert_eq!(&message, b"ping");
        answering.join().unwrap();

        let bound = |host, ip| {
            let socket = in_host(host, move || UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (sender, receiver) = (bound(from, near), bound(to, far));
        sender.send_to(b"ping", receiver.local_addr().unwrap()).unwrap();
        let (length, origin) = receiver.recv_from(&mut message).unwrap();
        assert_eq!((length, origin), (4, sender.local_addr().unwrap()));
    }
}

fn in_host<T: Send>(host: &LabHost, work: impl FnOnce() -> T + Send) -> T {
    host.open().unwrap().run(work).unwrap()
}

#[test]
fn two_hosts_talk_over_a_wire() {
    if skip_without_namespaces("lab::two_hosts_talk_over_a_wire") {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    let [first, second] = lab.hosts() else { panic!("{:?}", lab.hosts()) };
    assert_eq!(first.ipv4.to_string(), "198.18.0.1");
    exchange(first, second);
    exchange(second, first);
    let name = lab.name().to_owned();
    lab.close().unwrap();
    assert!(is_gone(&name));
}

#[test]
fn four_hosts_talk_over_a_switch() {
    if skip_without_namespaces("lab::four_hosts_talk_over_a_switch") {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(4)).unwrap();
    for from in lab.hosts() {
        for to in lab.hosts().iter().filter(|to| *to != from) {
            exchange(from, to);
        }
    }
    let name = lab.name().to_owned();
    drop(lab);
    assert!(is_gone(&name));
}

#[test]
fn the_switch_limits_the_rate_of_links() {
    if skip_without_namespaces("lab::the_switch_limits_the_rate_of_links") {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(2).with_rate(100_000_000)).unwrap();
    let [first, second] = lab.hosts() else { panic!("{:?}", lab.hosts()) };
    exchange(first, second);
    let name = lab.name().to_owned();
    let switch = NetNs::open(&format!("wirecost-{name}-switch")).unwrap();
    let links = Links::of(&switch).unwrap();
    for host in lab.hosts() {
        let limit = links.rate_limit(&host.name).unwrap().unwrap();
        assert_eq!((limit.bits_per_second, limit.queue_bytes), (100_000_000, 625_000));
        // A host is told of the rate, and is not itself limited.
        let facts = in_host(host, || facts::read().unwrap());
        assert_eq!(facts.link_bits_per_second, Some(100_000_000));
        let own = Links::of(&host.open().unwrap()).unwrap();
        assert_eq!(own.rate_limit(&host.device).unwrap(), None);
    }
    let status = status().unwrap();
    let this = status.labs.iter().find(|one| one.name == name).unwrap();
    assert_eq!(this.rate_bits_per_second, Some(100_000_000));
    lab.close().unwrap();
    assert!(is_gone(&name));
    let refused = Lab::up(&LabSpec::temporary(2).with_rate(1)).unwrap_err();
    assert!(matches!(refused, LabError::Rate { asked: 1 }), "{refused}");
}

#[test]
fn a_lab_has_no_route_out_and_its_settings_apply() {
    if skip_without_namespaces("lab::a_lab_has_no_route_out_and_its_settings_apply") {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    let error = in_host(&lab.hosts()[0], || {
        assert_eq!(sysctl::read("net.ipv4.tcp_tw_reuse").unwrap(), "1");
        assert_eq!(sysctl::read("net.ipv4.ip_local_port_range").unwrap(), "16384 65535");
        TcpStream::connect_timeout(&"192.0.2.1:9".parse().unwrap(), PATIENCE).unwrap_err()
    });
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    assert_eq!(
        sysctl::read("net.ipv4.tcp_rmem").ok(),
        in_host(&lab.hosts()[0], || sysctl::read("net.ipv4.tcp_rmem").ok())
    );
}

#[test]
fn receive_work_is_steered_to_a_hosts_own_cpus() {
    if skip_without_namespaces("lab::receive_work_is_steered_to_a_hosts_own_cpus") {
        return;
    }
    let allowed = allowed_cpus().unwrap();
    for hosts in [2, allowed.len().max(2) + 1] {
        let lab = Lab::up(&LabSpec::temporary(hosts)).unwrap();
        let owned = allowed.len() >= hosts;
        for host in lab.hosts() {
            assert_eq!(host.owns_cpus, owned);
            let queues = rps::steering(&host.open().unwrap(), &host.device).unwrap();
            let expected: &[u32] = if owned { &host.cpus } else { &[] };
            assert!(queues.iter().all(|cpus| cpus == expected), "{queues:?} {host:?}");
            assert_eq!(host.receive_cpus, expected);
        }
    }
}

#[test]
fn a_placed_process_is_on_its_host() {
    if skip_without_namespaces("lab::a_placed_process_is_on_its_host") {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    let host = &lab.hosts()[1];
    let mut command = Command::new("cat");
    command.args(["/proc/self/net/fib_trie", "/proc/self/status"]);
    host.place(&mut command).unwrap();
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(output.contains(&host.ipv4.to_string()), "{output}");
    if let [cpu] = host.cpus[..] {
        assert!(output.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{output}");
    }
}

#[test]
fn labs_with_the_same_addresses_are_isolated() {
    if skip_without_namespaces("lab::labs_with_the_same_addresses_are_isolated") {
        return;
    }
    let one = Lab::up(&LabSpec::temporary(2)).unwrap();
    let other = Lab::up(&LabSpec::temporary(2)).unwrap();
    assert_ne!(one.name(), other.name());
    let ip = one.hosts()[1].ipv4;
    let _listener = in_host(&one.hosts()[1], move || TcpListener::bind((ip, 7000)).unwrap());
    let refused = in_host(&other.hosts()[0], move || {
        TcpStream::connect_timeout(&(ip, 7000).into(), PATIENCE).unwrap_err()
    });
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    drop(one);
    exchange(&other.hosts()[0], &other.hosts()[1]);
}

#[test]
fn a_persistent_lab_exists_until_down() {
    if skip_without_namespaces("lab::a_persistent_lab_exists_until_down") {
        return;
    }
    let spec = stay("stays");
    drop(Lab::up(&spec).unwrap());
    let taken = Lab::up(&spec).unwrap_err();
    assert!(matches!(taken, LabError::NameTaken { .. }));
    assert!(taken.remedy().unwrap().contains("wirecost lab down"));

    let lab = Lab::open(&spec.name).unwrap();
    exchange(&lab.hosts()[0], &lab.hosts()[1]);
    lab.close().unwrap();

    let status = status().unwrap();
    let known = status.labs.iter().find(|lab| lab.name == spec.name).unwrap();
    assert!(known.whole && !known.stale && known.lifetime == Lifetime::UntilDown);
    for host in &known.hosts {
        assert!(host.alive && host.link.as_ref().unwrap().running);
    }

    let removed = down(&spec.name).unwrap();
    assert_eq!(removed.namespaces.len(), 2);
    assert!(is_gone(&spec.name));
    assert!(matches!(down(&spec.name), Err(LabError::NotFound { .. })));
    assert!(matches!(Lab::open(&spec.name), Err(LabError::NotFound { .. })));
}

#[test]
fn an_incomplete_lab_is_reported_and_removed() {
    if skip_without_namespaces("lab::an_incomplete_lab_is_reported_and_removed") {
        return;
    }
    let spec = stay("broken");
    let lab = Lab::up(&spec).unwrap();
    netns::delete(&lab.hosts()[0].namespace).unwrap();
    assert!(matches!(Lab::open(&spec.name), Err(LabError::Incomplete { .. })));
    assert!(!status().unwrap().labs.iter().find(|lab| lab.name == spec.name).unwrap().whole);
    down(&spec.name).unwrap();
    assert!(is_gone(&spec.name));
}

#[test]
fn namespaces_without_a_state_file_are_removed_by_their_name() {
    if skip_without_namespaces("lab::namespaces_without_a_state_file_are_removed_by_their_name") {
        return;
    }
    let spec = stay("orphan");
    let namespace = format!("wirecost-{}-h1", spec.name);
    NetNs::create(&namespace).unwrap();
    assert!(status().unwrap().orphans.contains(&namespace));
    assert!(matches!(Lab::up(&spec), Err(LabError::NameTaken { .. })));
    assert_eq!(down(&spec.name).unwrap().namespaces, [namespace]);
    assert!(is_gone(&spec.name));
}

#[test]
fn the_lab_of_a_run_in_progress_is_not_removed() {
    if skip_without_namespaces("lab::the_lab_of_a_run_in_progress_is_not_removed") {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    assert!(matches!(down(lab.name()), Err(LabError::InUse { .. })));
    assert!(!remove_stale().unwrap().iter().any(|removed| removed.name == lab.name()));
    exchange(&lab.hosts()[0], &lab.hosts()[1]);
}

/// The test starts itself a second time, as the run to be killed.
#[test]
fn the_next_lab_removes_that_of_a_killed_run() {
    const CHILD: &str = "WIRECOST_TEST_LAB_CHILD";
    const UP: &str = "lab is up: ";
    if skip_without_namespaces("lab::the_next_lab_removes_that_of_a_killed_run") {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let lab = Lab::up(&LabSpec::temporary(3)).unwrap();
        println!("\n{UP}{}", lab.name());
        std::thread::sleep(6 * PATIENCE);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::the_next_lab_removes_that_of_a_killed_run", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let name = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .find_map(|line| Some(line.unwrap().strip_prefix(UP)?.to_owned()))
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // The next lab, of whomever, removes it.
    Lab::up(&LabSpec::temporary(2)).unwrap();
    assert!(is_gone(&name));
}

#[test]
fn without_privileges_the_error_names_the_missing_capabilities() {
    let error = std::thread::spawn(|| {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective = rustix::thread::CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets).unwrap();
        // Looking is allowed to all.
        status().unwrap();
        Lab::up(&LabSpec::temporary(2)).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(error.to_string().contains("CAP_NET_ADMIN and CAP_SYS_ADMIN"), "{error}");
    assert!(error.remedy().unwrap().contains("loopback"));
}

#[test]
fn labs_with_invalid_parameters_are_refused() {
    for hosts in [0, 1, 251] {
        let error = Lab::up(&LabSpec::persistent(DEFAULT_NAME, hosts)).unwrap_err();
        assert!(matches!(error, LabError::HostCount { .. }));
    }
    for name in ["", "-x", "a/b", "a b"] {
        let error = Lab::up(&LabSpec::persistent(name, 2)).unwrap_err();
        assert!(matches!(error, LabError::BadName { .. }));
    }
}

#[test]
fn a_lab_whose_emulator_does_not_start_is_refused_and_leaves_nothing() {
    if skip_without_namespaces("a_lab_whose_emulator_does_not_start_is_refused_and_leaves_nothing")
    {
        return;
    }
    // One that is not there, and one that ends at once.
    for (number, program) in ["/nonexistent/emulator", "false"].into_iter().enumerate() {
        let mut spec = stay(&format!("no-emulator-{number}"));
        spec.emulated = Some(emulated(Topology::Pair, &[program.into()]));
        let error = Lab::up(&spec).unwrap_err();
        assert!(matches!(error, LabError::Emulator { .. }), "{error}");
        assert!(error.remedy().unwrap().contains("modprobe tun"));
        assert!(is_gone(&spec.name));
    }
}

fn emulated(topology: Topology, program: &[OsString]) -> EmulatedLinks {
    let backend = BackendChoice::Only(Backend::Emulator);
    let (link, program) = (LinkSpec::default(), program.to_vec());
    EmulatedLinks { topology, link, backend, seed: 1, program }
}

#[test]
fn a_topology_has_its_number_of_hosts() {
    for (topology, hosts, message) in [
        (Topology::Pair, 3, "a pair has 2 hosts, not 3"),
        (Topology::Dumbbell, 2, "a dumbbell has 3 or more hosts, not 2"),
    ] {
        let links = Some(emulated(topology, &["false".into()]));
        let spec = LabSpec { hosts, emulated: links, ..stay("topology") };
        assert_eq!(Lab::planned(&spec).unwrap_err().to_string(), message);
    }
}
