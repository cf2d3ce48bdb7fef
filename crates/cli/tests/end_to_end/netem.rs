//! Links by netem, where this kernel lacks it: what says so. What netem does is in the target `vm`.

use wirecost_linux::privilege::{skip, skip_without_namespaces};

use crate::program::{Program, namespaces_of};

/// Whether this machine's kernel lacks netem. The kernel's list of symbols is another source than the program's.
fn has_no_netem() -> bool {
    !std::fs::read_to_string("/proc/kallsyms").unwrap().contains(" netem_enqueue")
}

#[test]
fn without_netem_it_is_refused_and_the_emulator_makes_the_links() {
    let test = "without_netem_it_is_refused_and_the_emulator_makes_the_links";
    if skip_without_namespaces(test) {
        return;
    }
    if !has_no_netem() {
        skip(test, "this kernel has netem");
        return;
    }
    let name = format!("test-{}-no-netem", std::process::id());
    let up = ["lab", "up", "--name", &name, "--rtt", "2ms", "--backend", "netem"];
    let refused = Program::new(up).finish();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("this kernel has no netem"), "{refused}");
    assert!(refused.stderr.contains("modprobe sch_netem"), "{refused}");
    let status = Program::new(["lab", "status"]).finish();
    assert!(!status.stdout.contains(&name), "{status}");
    let refused = Program::short_run("@rr", &["--lab", "--rtt", "2ms", "--backend", "netem"]);
    let running = refused.start();
    let pid = running.pid;
    let refused = running.wait();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(namespaces_of(pid).is_empty());
    let document = Program::short_run("@rr", &["--lab", "--rtt", "2ms"]).measure();
    assert!(document.at("/netem").is_null() && document.at("/link").is_object());
}

#[test]
fn what_netem_cannot_do_is_refused_with_the_remedy() {
    if skip_without_namespaces("what_netem_cannot_do_is_refused_with_the_remedy") {
        return;
    }
    for (arguments, reason) in [
        (&["--jitter", "1ms"][..], "netem does not have jitter"),
        (&["--rate", "1gbit", "--aqm", "codel"], "netem does not have aqm=codel"),
        (&["--rate", "1gbit", "--back", "cross=1%"], "netem does not have cross"),
        (&["--queues", "1"], "netem does not have queues"),
    ] {
        let up = ["lab", "up", "--rtt", "4ms", "--backend", "netem"];
        let up = Program::new(up).args(arguments).finish();
        assert_eq!(up.code, 2, "{arguments:?}: {up}");
        assert!(up.stderr.contains(reason), "{arguments:?}: {up}");
        assert!(up.stderr.contains("--backend emulator"), "{arguments:?}: {up}");
    }
    let unknown = Program::new(["lab", "up", "--rtt", "4ms", "--backend", "tc"]).finish();
    assert_eq!(unknown.code, 2, "{unknown}");
    assert!(unknown.stderr.contains("backend `tc`: must be auto, netem or emulator"), "{unknown}");
}
