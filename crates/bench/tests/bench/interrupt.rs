//! Ctrl-C while a program runs that does not heed it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use wirecost_linux::process::ProcessId;

#[test]
fn nothing_is_left_running() {
    let directory = tempfile::tempdir().unwrap();
    let (program, mark) = (directory.path().join("wirecost"), directory.path().join("mark"));
    // The other half of the test is what it starts.
    let script = format!(
        "#!/bin/sh\ntrap '' HUP INT TERM\nsleep 1000 &\necho $$ $! > {0}.new\nmv {0}.new {0}\nwait\n",
        mark.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let scratch = tempfile::tempdir().unwrap();
        let mut bench = Command::new(env!("CARGO_BIN_EXE_wirecost-bench"))
            .args(["variants", "@rr", "--variant", "a=", "--variant", "b=", "--wirecost"])
            .arg(&program)
            .env("TMPDIR", scratch.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while !mark.is_file() {
            assert!(bench.try_wait().unwrap().is_none(), "it ended early");
            std::thread::yield_now();
        }
        let pids = fs::read_to_string(&mark).unwrap();
        fs::remove_file(&mark).unwrap();
        let pids = pids.split_whitespace().map(|pid| pid.parse().unwrap());
        let started: Vec<ProcessId> = pids.map(|pid| ProcessId::of(pid).unwrap()).collect();
        kill_process(Pid::from_child(&bench), signal).unwrap();
        assert_eq!(bench.wait().unwrap().code(), Some(130));
        assert!(started.iter().all(|process| !process.is_alive()), "{started:?}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left");
    }
}
