//! Protocols beside TCP, UDP and Unix sockets: exact bytes of known content, through the kernel of
//! this machine. Those that many kernels lack are in the target `vm`.

use std::collections::BTreeMap;
use std::fs;

use wirecost_lab::{Lab, LabSpec};
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::{skip, skip_without_namespaces};
use wirecost_linux::{ktls, sysctl};

use crate::engines;
use crate::exact::{REQUEST, TIMES, exact, is_exact, is_exact_by, setting};
use crate::program::Program;

#[test]
fn tls_on_all_engines_and_with_every_cipher() {
    for (engine, cipher, suite) in [
        ("epoll", "", "TLS_AES_256_GCM_SHA384"),
        ("epoll", "cipher=chacha20", "TLS_CHACHA20_POLY1305_SHA256"),
        ("io_uring", "", "TLS_AES_256_GCM_SHA384"),
        ("threads", "cipher=aes128", "TLS_AES_128_GCM_SHA256"),
    ] {
        let document = Program::new(["run", "exact.xml", "--quiet", "--engine", engine])
            .file("exact.xml", &exact(&format!("protocol=tls {cipher}")))
            .measure();
        is_exact_by(&document, engine, "tls");
        let granted = |host: &str| (host.to_owned(), suite.to_owned());
        assert_eq!(setting(&document, "cipher"), [granted("master"), granted("peer")]);
    }
}

/// Strands with several connections share an address, so their first bytes say whose they are.
#[test]
fn tls_behind_shared_addresses() {
    let profile = exact("protocol=tls conn=1..5")
        .replace("size=", "conn=1..5 size=")
        .replace("\"disconnect\"", "\"disconnect\" options=\"conn=1..5\"");
    for engine in engines::event_loops() {
        let document = Program::new(["run", "exact.xml", "--quiet", "--engine", engine])
            .file("exact.xml", &profile)
            .measure();
        assert_eq!(document.sum("/phases", "tx_bytes"), (5 * 2 * TIMES * REQUEST) as f64);
    }
}

#[test]
fn tls_for_each_request_and_from_files() {
    let each = |profile| engines::event_loops().map(move |engine| (profile, engine));
    for (profile, engine) in ["@crr", "@sendfile"].into_iter().flat_map(each) {
        let file = concat!("file=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let arguments = ["--var", "protocol=tls", "--engine", engine];
        let mut program = Program::short_run(profile, &arguments);
        if profile == "@sendfile" {
            program = program.args(["--var", file]);
        }
        let document = program.measure();
        assert!(document.number("/throughput/bits_per_second") > 0.0);
    }
}

/// Each message arrives whole, compared with what was sent; one that the socket cannot take is refused.
#[test]
fn messages_of_unix_seqpacket_arrive_whole() {
    let shared = exact("protocol=unix-seqpacket conn=1..5")
        .replace("size=", "conn=1..5 size=")
        .replace("\"disconnect\"", "\"disconnect\" options=\"conn=1..5\"");
    for engine in engines::names() {
        let run = |profile: &str| {
            let arguments = ["run", "exact.xml", "--quiet", "--engine", engine];
            Program::new(arguments).file("exact.xml", profile).measure()
        };
        is_exact_by(&run(&exact("protocol=unix-seqpacket")), engine, "unix-seqpacket");
        // Behind an address that strands share, the first message says whose connection it is.
        let sent = run(&shared).sum("/phases", "tx_bytes");
        assert_eq!(sent, (5 * 2 * TIMES * REQUEST) as f64, "{engine}");
    }
    let long = exact("protocol=unix-seqpacket wndsz=20000");
    let finished = Program::new(["run", "exact.xml", "--quiet", "--json", "run.json"])
        .file("exact.xml", &long)
        .finish();
    assert_eq!(finished.code, 3, "{finished}");
    let error = finished.document().text("/error").to_owned();
    assert!(error.contains("size=100000 is more than the 39968 bytes"), "{error}");
    assert!(error.contains("wndsz="), "{error}");
}

/// uperf's name for it.
#[test]
fn ssl_is_tls() {
    let program = Program::new(["run", "exact.xml", "--quiet"]);
    let document = program.file("exact.xml", &exact("protocol=ssl method=tls")).measure();
    is_exact(&document);
    let notes = document.list("/warnings").iter().filter(|w| w["code"] == "profile");
    assert!(notes.filter_map(|w| w["message"].as_str()).any(|text| text.contains("ssl is tls")));
}

#[test]
fn what_the_kernel_lacks_is_said_before_anything_is_sent() {
    let program = Program::new(["run", "exact.xml", "--quiet"])
        .file("exact.xml", &exact("protocol=tls ktls"));
    if ktls::available() {
        return is_exact(&program.measure());
    }
    let finished = program.args(["--json", "run.json"]).finish();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (3, "peer"), "{finished}");
    assert!(document.text("/error").contains("CONFIG_TLS"), "{finished}");
    assert!(document.is_null("/throughput"));
    let check = |arguments: &[&str]| {
        let check = Program::new(["check", "exact.xml"]).args(arguments);
        check.file("exact.xml", &exact("protocol=tls ktls")).finish()
    };
    let checked = check(&[]);
    assert_eq!(checked.code, 3, "{checked}");
    assert!(checked.stderr.contains("CONFIG_TLS"), "{checked}");
    // Nothing is known of other hosts.
    let elsewhere = check(&["--host", "master=127.0.0.1", "--host", "peer=127.0.0.1"]);
    assert_eq!(elsewhere.code, 0, "{elsewhere}");
}

fn without_mptcp(test: &str) -> bool {
    let on = sysctl::read("net.mptcp.enabled").is_ok_and(|value| value.trim() == "1");
    if !on {
        skip(test, "the kernel has no MPTCP, or net.mptcp.enabled is not 1");
    }
    !on
}

/// The counters that say of this namespace's MPTCP how its connections began, and went on.
fn mptcp_counters() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let values = values.split(' ').map(|value| value.parse().unwrap());
    names.split(' ').map(str::to_owned).zip(values).collect()
}

#[test]
fn mptcp_between_two_hosts_is_no_tcp() {
    let test = "mptcp_between_two_hosts_is_no_tcp";
    if skip_without_namespaces(test) || without_mptcp(test) {
        return;
    }
    let lab = Lab::up(&LabSpec::temporary(2)).unwrap();
    let namespaces: Vec<NetNs> =
        lab.hosts().iter().map(|host| NetNs::open(&host.namespace).unwrap()).collect();
    for engine in engines::names() {
        let before = namespaces[1].run(mptcp_counters).unwrap();
        let document = Program::new(["run", "exact.xml", "--quiet", "--engine", engine])
            .args([format!("--lab={}", lab.name())])
            .file("exact.xml", &exact("protocol=mptcp"))
            .measure();
        is_exact_by(&document, engine, "mptcp");
        assert!(document.at("/tcp/retransmits").is_u64());
        let after = namespaces[1].run(mptcp_counters).unwrap();
        let more = |name: &str| after[name] - before[name];
        // Both strands' connections, and nothing else that spoke it or failed to.
        assert_eq!((more("MPCapableSYNRX"), more("MPCapableACKRX")), (2, 2), "{engine}");
        assert_eq!(more("MPCapableFallbackACK") + more("MPFallbackTokenInit"), 0, "{engine}");
    }
}

#[test]
fn mptcp_for_each_request() {
    if without_mptcp("mptcp_for_each_request") {
        return;
    }
    for engine in engines::names() {
        let arguments = ["--var", "protocol=mptcp", "--engine", engine];
        let document = Program::short_run("@crr", &arguments).measure();
        assert!(document.count("/transactions/count") > 0);
        assert_eq!(setting(&document, "protocol"), [], "none fell back");
    }
}
