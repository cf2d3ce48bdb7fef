//! Workers that wait use no CPU. The kernel counts the calls of all processes, so nothing else runs.

use crate::engines;
use crate::program::{Program, sources};

/// A worker whose strands wait sleeps. One that is told again and again of what it has heard, such as an end
/// that is closed, would make thousands of calls.
#[test]
fn workers_whose_strands_wait_make_few_system_calls() {
    if sources().0 != "bpf" {
        eprintln!("skipped: system calls cannot be traced here");
        return;
    }
    let profile = "<profile name=\"idle\"><group nthreads=\"2\">\n\
        <transaction iterations=\"1\">\n\
        <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp\"/></transaction>\n\
        <transaction duration=\"1s\" rate=\"20\">\n\
        <flowop type=\"write\" options=\"size=64\"/>\n\
        <flowop type=\"read\" options=\"size=64\"/></transaction>\n\
        </group></profile>\n";
    for engine in engines::names() {
        let document = Program::new(["run", "idle.xml", "--quiet", "--engine", engine])
            .args(["--observe", "syscalls", "--ramp", "200ms"])
            .file("idle.xml", profile)
            .measure();
        let transactions = document.count("/transactions/count");
        assert!(transactions > 20, "{engine}: {transactions}");
        let calls = document.list("/observe/hosts/0/syscalls/calls");
        let made: u64 = calls.iter().filter_map(|call| call["count"].as_u64()).sum();
        assert!(0 < made && made < 100 * transactions, "{engine}: {made} of {transactions}");
    }
}
