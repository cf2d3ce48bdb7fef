//! Workers that wait use no CPU. The kernel counts the calls of all processes, so nothing else runs.

use crate::engines;
use crate::program::{Program, sources};

/// Calls by which workers wait, and by which they look whether there is something.
const WAITS: [&str; 13] = [
    "accept4",
    "clock_nanosleep",
    "connect",
    "epoll_pwait2",
    "epoll_wait",
    "getpeername",
    "getsockopt",
    "io_uring_enter",
    "poll",
    "ppoll",
    "recvfrom",
    "recvmsg",
    "sendto",
];

/// A worker whose strands wait sleeps. One that is told again and again of what it has heard, such as an end
/// that is closed, would make thousands of calls.
#[test]
fn workers_whose_strands_wait_make_few_system_calls() {
    let answers = "<transaction iterations=\"1\">\n\
        <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp\"/></transaction>\n\
        <transaction duration=\"1s\" rate=\"20\">\n\
        <flowop type=\"write\" options=\"size=64\"/>\n\
        <flowop type=\"read\" options=\"size=64\"/></transaction>\n";
    // The peer accepts at a listener of the strand's own, and by the broker.
    let connections = "<transaction duration=\"1s\" rate=\"5\">\n\
        <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp\"/>\n\
        <flowop type=\"think\" options=\"idle duration=100ms\"/>\n\
        <flowop type=\"connect\" options=\"remotehost=$h protocol=udp conn=2\"/>\n\
        <flowop type=\"write\" options=\"size=64 conn=2\"/>\n\
        <flowop type=\"read\" options=\"size=64 conn=2\"/>\n\
        <flowop type=\"disconnect\"/>\n\
        <flowop type=\"disconnect\" options=\"conn=2\"/></transaction>\n";
    if sources().0 != "bpf" {
        eprintln!("skipped: system calls cannot be traced here");
        return;
    }
    for engine in engines::names() {
        for (transactions, most) in [(answers, 100), (connections, 500)] {
            let profile = format!(
                "<profile name=\"idle\"><group nthreads=\"2\">\n{transactions}</group></profile>\n"
            );
            let document = Program::new(["run", "idle.xml", "--quiet", "--engine", engine])
                .args(["--observe", "syscalls", "--ramp", "200ms"])
                .file("idle.xml", &profile)
                .measure();
            let transactions = document.count("/transactions/count");
            assert!(transactions > 5, "{engine}: {transactions}");
            // Other programs of the machine make other calls.
            let calls = document.list("/observe/hosts/0/syscalls/calls");
            let waits = calls.iter().filter(|call| WAITS.contains(&call["name"].as_str().unwrap()));
            let made: u64 = waits.filter_map(|call| call["count"].as_u64()).sum();
            assert!(0 < made && made < most * transactions, "{engine}: {made} of {transactions}");
        }
    }
}
