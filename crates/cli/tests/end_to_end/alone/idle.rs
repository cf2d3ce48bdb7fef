//! Workers that wait use no CPU. The kernel counts the calls of all processes, so nothing else runs.

use serde_json::Value;

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

/// Two strands whose requests go over one connection each, and two that connect for each: the peer accepts at a listener of
/// the strand's own, and by the broker.
const PROFILE: &str = r#"<profile name="idle">
<group nthreads="2">
<transaction iterations="1">
<flowop type="connect" options="remotehost=$h protocol=tcp"/>
</transaction>
<transaction duration="1s" rate="20">
<flowop type="write" options="size=64"/>
<flowop type="read" options="size=64"/>
</transaction>
</group>
<group nthreads="2">
<transaction iterations="1">
<flowop type="nop"/>
</transaction>
<transaction duration="1s" rate="5">
<flowop type="connect" options="remotehost=$h protocol=tcp"/>
<flowop type="think" options="idle duration=100ms"/>
<flowop type="connect" options="remotehost=$h protocol=udp conn=2"/>
<flowop type="write" options="size=64 conn=2"/>
<flowop type="read" options="size=64 conn=2"/>
<flowop type="disconnect"/>
<flowop type="disconnect" options="conn=2"/>
</transaction>
</group>
</profile>
"#;

/// A worker whose strands wait sleeps. One that is told again and again of what it has heard, such as an end
/// that is closed, would make thousands of calls.
#[test]
fn workers_whose_strands_wait_make_few_system_calls() {
    if sources().0 != "bpf" {
        eprintln!("skipped: system calls cannot be traced here");
        return;
    }
    for engine in engines::names() {
        let document = Program::new(["run", "idle.xml", "--quiet", "--engine", engine])
            .args(["--observe", "syscalls", "--ramp", "200ms"])
            .file("idle.xml", PROFILE)
            .measure();
        let reads = |group: u64| {
            let of_group = |row: &&Value| {
                row["side"] == "master" && row["type"] == "read" && row["group"] == group
            };
            let row = document.list("/flowops").iter().find(of_group).expect("its reads");
            row["count"].as_u64().expect("a count")
        };
        let (answers, connections) = (reads(0), reads(1));
        // False failures: 1e-6 (x5), computed: ten are due of the rarer, so workers would stand still for half of 1 s.
        assert!(answers > 5 && connections > 5, "{engine}: {answers} {connections}");
        // Other programs of the machine make other calls.
        let calls = document.list("/observe/hosts/0/syscalls/calls");
        let waits = calls.iter().filter(|call| WAITS.contains(&call["name"].as_str().unwrap()));
        let made: u64 = waits.filter_map(|call| call["count"].as_u64()).sum();
        let most = 100 * answers + 500 * connections;
        // False failures: 1e-6 (x5), computed: an answer takes some ten calls, a connection some thirty, of 100 and of 500.
        assert!(0 < made && made < most, "{engine}: {made} of {most}");
    }
}
