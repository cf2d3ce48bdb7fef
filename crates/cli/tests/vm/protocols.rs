//! Protocols that many kernels lack: exact bytes of known content, by every engine.

use crate::document::Document;
use crate::engines;
use crate::exact::{exact, is_exact_by, setting};
use crate::guest::{Check, Left, Part, checks};

pub(crate) fn parts() -> Vec<Part> {
    vec![
        // A window of less than two of loopback's packets makes SCTP wait for timers.
        part(
            "sctp",
            "protocol=sctp wndsz=200k sctp_nodelay sctp_rto_max=2000 sctp_out_streams=3",
            "modprobe sctp",
            "",
            checks![sctp_moves_what_is_sent],
        ),
        part(
            "vsock",
            "protocol=vsock",
            "modprobe vsock_loopback",
            // Sockets there are without the module, but no way from one to another.
            "rmmod vsock_loopback\n\
             for command in check run; do\n\
             code=0\n\
             wirecost $command exact.xml --var h=127.0.0.1 >without-$command 2>&1 || code=$?\n\
             echo $code >>without-$command\n\
             done\n",
            checks![vsock_moves_what_is_sent, vsock_without_its_loopback_is_refused],
        ),
        part(
            "ktls",
            "protocol=tls ktls",
            "modprobe tls",
            "cat /proc/net/tls_stat >tls_stat\n",
            checks![the_kernel_encrypts_what_ktls_is_asked_for],
        ),
        part(
            "busy_poll",
            "protocol=tcp busy_poll=50",
            "uname -r >release",
            "",
            checks![waits_that_cannot_look_at_devices_are_told],
        ),
    ]
}

/// Runs the exact profile with what its connect says on all engines.
fn part(
    name: &'static str,
    open: &str,
    before: &str,
    after: &str,
    checks: &'static [Check],
) -> Part {
    let run = |engine| {
        let options = "--var h=127.0.0.1 --quiet --observe none";
        format!("measure {engine} run exact.xml --engine {engine} {options}\n")
    };
    let runs: String = engines().map(run).collect();
    Part {
        name,
        files: vec![("exact.xml".to_owned(), exact(open).into_bytes())],
        script: format!("set -e\n{before}\n{runs}{after}"),
        checks,
    }
}

/// Of each engine.
fn documents(left: &Left, protocol: &str) -> Vec<Document> {
    let of_engine = |engine| {
        let document = left.measured(engine);
        is_exact_by(&document, engine, protocol);
        document
    };
    engines().map(of_engine).collect()
}

fn sctp_moves_what_is_sent(left: &Left) {
    for document in documents(left, "sctp") {
        // TCP_INFO tells nothing of SCTP.
        assert!(document.is_null("/tcp"));
        assert_eq!(setting(&document, "wndsz.send").len(), 2);
    }
}

fn vsock_moves_what_is_sent(left: &Left) {
    for document in documents(left, "vsock") {
        assert!(document.is_null("/tcp"));
    }
}

fn vsock_without_its_loopback_is_refused(left: &Left) {
    for command in ["check", "run"] {
        let said = left.read(&format!("without-{command}"));
        assert!(said.contains("the kernel module vsock_loopback"), "{said}");
        assert!(said.ends_with("\n3\n"), "{said}");
    }
}

fn the_kernel_encrypts_what_ktls_is_asked_for(left: &Left) {
    for document in documents(left, "tls") {
        let granted = |host: &str| (host.to_owned(), "send, receive".to_owned());
        assert_eq!(setting(&document, "ktls"), [granted("master"), granted("peer")]);
    }
    let text = left.read("tls_stat");
    let counter = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a counter");
        line.trim().parse().unwrap()
    };
    // Two strands, two ends each.
    let runs = engines().map(|engine| 1 + left.retried(engine).len() as u64).sum::<u64>();
    assert_eq!((counter("TlsTxSw"), counter("TlsRxSw")), (4 * runs, 4 * runs), "{text}");
    assert_eq!(counter("TlsDecryptError"), 0);
}

/// Kernels before 6.9 cannot poll devices while an event loop waits.
fn waits_that_cannot_look_at_devices_are_told(left: &Left) {
    // Version of the guest's kernel, its first two numbers.
    let release = left.read("release");
    let mut numbers = release.split('.').map(|text| text.parse::<u32>().unwrap());
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    let by_waits: &[&str] = if kernel < (6, 9) { &["0", "0"] } else { &["50", "50"] };
    for (engine, document) in engines().zip(documents(left, "tcp")) {
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
