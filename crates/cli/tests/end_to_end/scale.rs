//! Many connections, and many one after another.

use crate::program::{Program, SHORT};

#[test]
fn ports_last() {
    let document = Program::new(["run", "@crr", "--duration", "2s", "--ramp", "0s", "--quiet"])
        .args(["--connections", "4"])
        .measure();
    assert_eq!(document.count("/operations/failed"), 0);
    assert_eq!(document.count("/connections/failed"), 0);
    assert!(document.count("/transactions/count") > 0);
}

#[test]
fn two_thousand_connections() {
    let document = Program::short_run("@stream", &["--connections", "2000"]).measure();
    assert_eq!(document.count("/connections/open"), 2000);
    assert_eq!(document.count("/fairness/strands"), 2000);
    assert!(document.number("/throughput/bits_per_second") > 0.0);
}

/// Each worker has a table of descriptors of its own: where one is too small, more workers run.
#[test]
fn more_connections_than_a_process_may_have() {
    let arguments = ["run", "@rr", "--connections", "2500", "--json", "run.json"];
    let finished = Program::with_descriptors(3000, &arguments).args(SHORT).finish();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
    assert_eq!(document.count("/connections/open"), 2500);
    assert!(document.has_warning("more-workers-than-cpus"), "{finished}");
    for host in document.list("/hosts") {
        // 1,000 each: of 3,000 a worker leaves 2,000 to what is no connection.
        assert!(host["workers"].as_u64().unwrap() >= 3, "{host}");
    }
}
