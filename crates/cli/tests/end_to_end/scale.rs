//! Many connections, and many one after another.

use crate::program::{Program, SHORT};

#[test]
fn ports_last() {
    let run = Program::new(["run", "@crr", "--duration", "2s", "--ramp", "0s", "--quiet"])
        .args(["--connections", "4"]);
    run.measure_and(|_, document| {
        assert_eq!(document.count("/operations/failed"), 0);
        assert_eq!(document.count("/connections/failed"), 0);
        assert!(document.count("/transactions/count") > 0);
    });
}

#[test]
fn two_thousand_connections() {
    let run = Program::short_run("@stream", &["--connections", "2000"]);
    run.measure_and(|_, document| {
        assert_eq!(document.count("/connections/open"), 2000);
        assert_eq!(document.count("/fairness/strands"), 2000);
        assert!(document.number("/throughput/bits_per_second") > 0.0);
    });
}

/// Each worker has a table of descriptors of its own: where one is too small, more workers run.
#[test]
fn more_connections_than_a_process_may_have() {
    let arguments = ["run", "@rr", "--connections", "2500"];
    let document = Program::with_descriptors(3000, &arguments).args(SHORT).measure();
    assert_eq!(document.count("/connections/open"), 2500);
    assert!(document.has_warning("more-workers-than-cpus"));
    for host in document.list("/hosts") {
        // 1,000 each: of 3,000 a worker leaves 2,000 to what is no connection.
        assert!(host["workers"].as_u64().unwrap() >= 3, "{host}");
    }
}

/// Each peer has connections of its own, and each host the workers that it was given.
#[test]
fn several_peers_and_workers_by_host() {
    let arguments = ["--peers", "3", "--connections", "2", "--workers", "master=4,peer=1"];
    Program::short_run("@stream", &arguments).measure_and(|_, document| {
        assert_eq!(document.count("/connections/open"), 6);
        let hosts = document.list("/hosts");
        let workers: Vec<_> = hosts.iter().map(|host| host["workers"].as_u64().unwrap()).collect();
        assert_eq!(workers, [4, 1, 1, 1]);
        for peer in &hosts[1..] {
            assert!(peer["bytes"]["tx_received"].as_u64().unwrap() > 0, "{peer}");
        }
    });
}

#[test]
fn long_flows_and_calls_beside_each_other() {
    let arguments = ["--var", "flows=2", "--var", "calls=3"];
    Program::short_run("@mixed", &arguments).measure_and(|_, document| {
        assert_eq!(document.count("/connections/open"), 5);
        let [tx, rx] = ["tx", "rx"].map(|way| document.count(&format!("/throughput/{way}_bytes")));
        assert!(tx > rx && rx > 0, "{tx} {rx}");
    });
}

/// Groups take time in programs, plans and results, and a run of them ends when it must, of itself.
#[test]
fn three_thousand_groups_end_by_the_timeout() {
    let group = "[[group]]\nstrands = 1\n[[group.transaction]]\nflowops = [{ type = \"connect\", remotehost = \
                 \"${h}\", protocol = \"tcp\" }]\n[[group.transaction]]\nduration = \"1min\"\nflowops = [{ type = \
                 \"write\", size = \"1k\" }]\n";
    let profile = format!("name = \"groups\"\n{}", group.repeat(3000));
    let finished = Program::new(["run", "groups.toml", "--ramp", "0s", "--timeout", "5s"])
        .args(["--observe", "none", "--quiet", "--json", "run.json"])
        .file("groups.toml", &profile)
        .finish();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (4, "invalid"), "{finished}");
    assert!(document.text("/error").contains("--timeout"), "{finished}");
}
