//! Protocols beside TCP, UDP and Unix sockets: exact bytes of known content, through the kernel of
//! this machine, or in a virtual machine (`scripts/vm`) for protocols that many kernels lack.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use wirecost_lab::{Lab, LabSpec};
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::{skip, skip_without_namespaces};
use wirecost_linux::{ktls, sysctl};

use crate::document::Document;
use crate::engines;
use crate::guest::Guest;
use crate::program::{BINARY, Program};

/// Of each of two strands: so many transactions, which move so much each way.
const TIMES: u64 = 60;
const REQUEST: u64 = 100_000;
const RESPONSE: u64 = 300;

/// A profile whose bytes are known, and compared with what was sent.
fn exact(open: &str) -> String {
    format!(
        "<profile name=\"exact\"><group nthreads=\"2\">\n\
         <transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h {open}\"/></transaction>\n\
         <transaction iterations=\"{TIMES}\">\n\
         <flowop type=\"write\" options=\"size={REQUEST} verify\"/>\n\
         <flowop type=\"read\" options=\"size={RESPONSE} verify\"/></transaction>\n\
         <transaction iterations=\"1\"><flowop type=\"disconnect\"/></transaction>\n\
         </group></profile>\n"
    )
}

#[track_caller]
fn is_exact(document: &Document) {
    assert_eq!(document.text("/status"), "ok", "{}", document.text("/error"));
    let moved = (document.sum("/phases", "tx_bytes"), document.sum("/phases", "rx_bytes"));
    assert_eq!(moved, ((2 * TIMES * REQUEST) as f64, (2 * TIMES * RESPONSE) as f64));
    assert!(document.number("/phases/1/bits_per_second") > 0.0);
}

/// Exact, by the engine that was asked for. Of a ring that cannot move the protocol's bytes each host
/// says so; none says that it had no ring.
#[track_caller]
fn is_exact_by(document: &Document, engine: &str, protocol: &str) {
    is_exact(document);
    let warnings = document.list("/warnings").iter().filter(|w| w["code"] == "fallback");
    let told: Vec<_> = warnings.filter_map(|w| w["message"].as_str()).collect();
    let beside = engine.starts_with("io_uring") && !["tcp", "vsock"].contains(&protocol);
    assert_eq!(told.len(), if beside { 2 } else { 0 }, "{engine}: {told:?}");
    let said = format!("used a system call for each read and write of {protocol} instead of");
    assert!(told.iter().all(|text| text.contains(&said)), "{told:?}");
}

#[track_caller]
fn setting(document: &Document, name: &str) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let settings = document.list("/settings").iter().filter(|setting| setting["name"] == name);
    settings.map(|setting| (text(&setting["host"]), text(&setting["granted"]))).collect()
}

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

/// What runs in the virtual machine: a name, and what the profile's connect says. One boot serves
/// all, as booting takes longer than they do.
const IN_GUEST: [(&str, &str); 4] = [
    // A window of less than two of loopback's packets makes SCTP wait for timers.
    ("sctp", "protocol=sctp wndsz=200k sctp_nodelay sctp_rto_max=2000 sctp_out_streams=3"),
    ("vsock", "protocol=vsock"),
    ("ktls", "protocol=tls ktls"),
    ("busy_poll", "protocol=tcp busy_poll=50"),
];

/// Runs the exact profile with each of them on all engines.
static GUEST: LazyLock<Result<Guest, String>> = LazyLock::new(|| {
    let files = IN_GUEST.map(|(name, open)| (format!("{name}.xml"), exact(open).into_bytes()));
    let runs =
        IN_GUEST.iter().flat_map(|(name, _)| engines::names().map(move |engine| (name, engine)));
    let mut script: String = runs
        .map(|(name, engine)| {
            let run = format!("{name}.{engine}");
            format!(
                "timeout 300 '{BINARY}' run {name}.xml --var h=127.0.0.1 --engine {engine} \
                 --quiet --observe none --json {run}.json >{run}.log 2>&1; echo $? >>{run}.log\n"
            )
        })
        .collect();
    script += "uname -r >release; cat /proc/net/tls_stat >tls_stat\n";
    script += "rmmod vsock_loopback\n";
    for command in ["check", "run"] {
        script += &format!(
            "timeout 60 '{BINARY}' {command} vsock.xml --var h=127.0.0.1 >without.{command}.log 2>&1\n\
             echo $? >>without.{command}.log\n"
        );
    }
    Guest::run("sctp,vsock_loopback,tls", &files, &script)
});

/// What the virtual machine did with one of the profiles.
struct Runs {
    name: &'static str,
    guest: &'static Guest,
}

impl Runs {
    /// `None` where there can be no virtual machine.
    fn of(test: &str, name: &'static str) -> Option<Self> {
        match &*GUEST {
            Ok(guest) => Some(Self { name, guest }),
            Err(missing) => {
                skip(test, missing);
                None
            }
        }
    }

    /// Of each engine.
    fn documents(&self, protocol: &str) -> Vec<Document> {
        let of_engine = |engine| {
            let run = format!("{}.{engine}", self.name);
            let log = self.guest.read(&format!("{run}.log"));
            assert!(log.ends_with("\n0\n"), "{log}");
            let document = Document::valid(self.guest.json(&format!("{run}.json")));
            is_exact_by(&document, engine, protocol);
            document
        };
        engines::names().map(of_engine).collect()
    }

    /// A counter of /proc/net/tls_stat.
    fn tls(&self, name: &str) -> u64 {
        let text = self.guest.read("tls_stat");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a counter");
        line.trim().parse().unwrap()
    }

    /// Version of the guest's kernel, its first two numbers.
    fn kernel(&self) -> (u32, u32) {
        let mut numbers = self.guest.read("release").split('.').map(|text| text.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }
}

#[test]
fn sctp_moves_what_is_sent() {
    let Some(runs) = Runs::of("sctp_moves_what_is_sent", "sctp") else { return };
    for document in runs.documents("sctp") {
        // TCP_INFO tells nothing of SCTP.
        assert!(document.is_null("/tcp"));
        assert_eq!(setting(&document, "wndsz.send").len(), 2);
    }
}

#[test]
fn vsock_moves_what_is_sent() {
    let Some(runs) = Runs::of("vsock_moves_what_is_sent", "vsock") else { return };
    for document in runs.documents("vsock") {
        assert!(document.is_null("/tcp"));
    }
}

/// Sockets there are without the module, but no way from one to another.
#[test]
fn vsock_without_its_loopback_is_refused() {
    let test = "vsock_without_its_loopback_is_refused";
    let Some(runs) = Runs::of(test, "vsock") else { return };
    for command in ["check", "run"] {
        let log = runs.guest.read(&format!("without.{command}.log"));
        let words: Vec<&str> = log.split_whitespace().collect();
        assert!(log.contains("the kernel module vsock_loopback"), "{log}");
        assert_eq!(words.last(), Some(&"3"), "{log}");
    }
}

#[test]
fn the_kernel_encrypts_what_ktls_is_asked_for() {
    let test = "the_kernel_encrypts_what_ktls_is_asked_for";
    let Some(runs) = Runs::of(test, "ktls") else { return };
    for document in runs.documents("tls") {
        let granted = |host: &str| (host.to_owned(), "send, receive".to_owned());
        assert_eq!(setting(&document, "ktls"), [granted("master"), granted("peer")]);
    }
    // Two strands, two ends each.
    let sessions = 4 * engines::names().count() as u64;
    assert_eq!((runs.tls("TlsTxSw"), runs.tls("TlsRxSw")), (sessions, sessions));
    assert_eq!(runs.tls("TlsDecryptError"), 0);
}

/// Kernels before 6.9 cannot poll devices while an event loop waits.
#[test]
fn waits_that_cannot_look_at_devices_are_told() {
    let test = "waits_that_cannot_look_at_devices_are_told";
    let Some(runs) = Runs::of(test, "busy_poll") else { return };
    let by_waits: &[&str] = if runs.kernel() < (6, 9) { &["0", "0"] } else { &["50", "50"] };
    for (engine, document) in engines::names().zip(runs.documents("tcp")) {
        let waits: &[&str] = match engine {
            "threads" => &[],
            "poll" => &["0", "0"],
            _ => by_waits,
        };
        let of = |name| -> Vec<String> {
            setting(&document, name).into_iter().map(|(_, granted)| granted).collect()
        };
        assert_eq!(of("busy_poll"), ["50", "50"]);
        assert_eq!(of("busy_poll.waits"), waits);
        let remedy = "wait only since Linux 6.9";
        let told = document.list("/warnings").iter().filter_map(|w| w["message"].as_str());
        let refused = waits.iter().filter(|granted| **granted == "0").count();
        assert_eq!(told.filter(|text| text.contains(remedy)).count(), refused);
    }
}
