//! System calls of connections that live for one transaction. The probe counts those of all programs, so no other test
//! may open connections meanwhile.

use wirecost_linux::privilege::skip_without_tracing;

use crate::document::Document;
use crate::program::{Program, sources};

/// Calls of this name that the probe counted; 0 where there were none.
fn count_of_calls(document: &Document, name: &str) -> f64 {
    let calls = document.list("/observe/hosts/0/syscalls/calls");
    let row = calls.iter().find(|row| row["name"] == name);
    row.and_then(|row| row["count"].as_f64()).unwrap_or(0.0)
}

/// Connections that close in the window are not asked for their segments, and the result says so. Nothing is
/// asked that an event tells.
#[test]
fn connections_that_open_and_close_take_few_calls() {
    if sources().0 != "bpf" {
        eprintln!("skipped: system calls cannot be traced here");
        return;
    }
    let options = ["--observe", "syscalls", "--connections", "8"];
    let document = Program::short_run("@crr", &options).measure();
    let transactions = document.count("/transactions/count") as f64;
    let rows = document.list("/observe/hosts/0/syscalls/calls");
    let of = |name| count_of_calls(&document, name);
    // False failures: 1e-6, computed: the windows would have to differ by half of 500 ms.
    assert!(of("accept4") > transactions / 2.0, "{rows:#?}");
    assert!(of("getsockopt") < transactions / 10.0, "{rows:#?}");
    // Nor whether they are connected, and nobody accepts where nobody waits. netperf 2.7.1 makes 14 calls, both
    // ends together; ours are 13 without waits, which are the fewer the more is under way.
    let failed = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name);
        row.and_then(|row| row["failed"].as_f64()).unwrap_or(0.0)
    };
    assert!(of("getpeername") < transactions / 10.0, "{rows:#?}");
    assert!(failed("accept4") < transactions / 10.0, "{rows:#?}");
    let socket_calls =
        ["socket", "setsockopt", "connect", "accept4", "epoll_ctl", "read", "write", "close"];
    let all: f64 = socket_calls.iter().map(|name| of(name)).sum();
    // The window of the probe and that of the counters do not begin and end at once: so it is of what the probe counts.
    // False failures: 1e-9, computed: calls of a connection are a constant; eight connections are under way at an edge.
    assert!(all < 15.0 * of("connect"), "{all} of {transactions}: {rows:#?}");
    assert!(document.is_null("/tcp/retransmits"));
    assert!(document.count("/tcp/closed_unread") > 0);
    let lasting = Program::short_run("@rr", &["--connections", "8"]).measure();
    assert_eq!(lasting.count("/tcp/closed_unread"), 0);
    assert!(!lasting.is_null("/tcp/retransmits"));
}

/// What a completion tells of a connection is not asked again.
#[test]
fn a_ring_asks_no_connection_whether_it_is_open() {
    if skip_without_tracing("a_ring_asks_no_connection_whether_it_is_open") {
        return;
    }
    let options = ["--engine", "io_uring", "--observe", "syscalls", "--connections", "8"];
    let document = Program::short_run("@crr", &options).measure();
    assert!(!document.has_warning("fallback"), "{:#}", document.value());
    let transactions = document.count("/transactions/count") as f64;
    let rows = document.list("/observe/hosts/0/syscalls/calls");
    let count = |name| count_of_calls(&document, name);
    // False failures: 1e-6, computed: the windows would have to differ by half of 500 ms.
    assert!(count("connect") > transactions / 2.0, "{rows:#?}");
    assert!(count("getpeername") < count("connect") / 10.0, "{rows:#?}");
}
