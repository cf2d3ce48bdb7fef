//! What a user without rights is told: the right that is missing and what to do, and nothing is changed.

use std::os::unix::fs::PermissionsExt as _;

use wirecost_congestion::{Obstacle, names, obstacle};
use wirecost_linux::privilege::skip;
use wirecost_linux::sysctl;

use crate::congestion::{Made, words};
use crate::program::Program;

/// Settings that the cases below would change.
const SETTINGS: [&str; 3] =
    ["net.ipv4.tcp_sack", "net.ipv4.tcp_congestion_control", "net.core.netdev_max_backlog"];
/// Of a host's settings, and of labs.
const OF_HOSTS: &str = "CAP_NET_ADMIN and CAP_SYS_ADMIN";
const OF_BPF: &str = "CAP_BPF and CAP_PERFMON";

/// Runs the program without rights. Nothing is changed and nothing is saved.
#[track_caller]
fn refused(program: Program, code: i32) -> String {
    let settings = || SETTINGS.map(|name| sysctl::read(name).unwrap());
    let namespaces = || -> Vec<_> {
        let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        all.map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().contains("of-nobody"))
            .collect()
    };
    let before = settings();
    let finished = program.finish();
    assert_eq!(finished.code, code, "{finished}");
    assert_eq!(settings(), before, "{finished}");
    assert!(namespaces().is_empty(), "{finished}");
    assert!(!finished.path("kept").exists(), "{finished}");
    let said = words(&finished);
    assert!(!said.contains("/run/wirecost"), "{finished}");
    said
}

fn short(arguments: &[&'static str]) -> Vec<&'static str> {
    let common = ["--duration", "100ms", "--ramp", "0s", "--observe", "none", "--quiet"];
    [arguments, &common[..]].concat()
}

#[test]
fn settings_of_a_host_that_a_user_may_not_change_are_refused_with_the_right_that_is_missing() {
    for setting in ["tcp_sack=0", "netdev_max_backlog=77", "mtu=1400"] {
        let run = ["run", "@rr", "--tune", setting];
        let said = refused(Program::unprivileged(&short(&run)), 3);
        assert!(said.contains(OF_HOSTS) && said.contains("as root"), "{said}");
    }
    let tune = ["tune", "@rr", "--maximize", "throughput", "--out", "kept"];
    let factor = ["--factor", "tune.tcp_sack=keep,0"];
    let said = refused(Program::unprivileged(&short(&[&tune[..], &factor].concat())), 3);
    assert!(said.contains("--factor tune.tcp_sack: "), "{said}");
    assert!(said.contains(OF_HOSTS) && said.contains("leave this factor out"), "{said}");
    let said = refused(Program::unprivileged(&short(&[&tune[..], &["--apply"]].concat())), 3);
    assert!(said.contains("--apply: ") && said.contains(OF_HOSTS), "{said}");
    assert!(said.contains("as root"), "{said}");
    let said = refused(Program::unprivileged(&["restore"]), 3);
    assert!(said.contains(OF_HOSTS) && said.contains("as root"), "{said}");
}

/// What needs no rights is searched, and the report says why the rest is not.
#[test]
fn a_search_without_rights_leaves_out_what_it_may_not_change_and_says_so() {
    let tune = ["tune", "@stream", "--maximize", "throughput", "--budget", "19", "--seed", "1"];
    let program = Program::unprivileged(&short(&tune)).args(["--format", "json", "--out", "kept"]);
    let before = SETTINGS.map(|name| sysctl::read(name).unwrap());
    let finished = program.finish();
    assert_eq!(finished.code, 0, "{finished}");
    assert_eq!(SETTINGS.map(|name| sysctl::read(name).unwrap()), before, "{finished}");
    let said = words(&finished);
    assert!(said.contains("no setting of this machine is a factor"), "{finished}");
    assert!(said.contains("as root"), "{finished}");
    let study = std::fs::read_to_string(finished.path("kept/study.toml")).unwrap();
    let study: toml::Table = study.parse().unwrap();
    let axes: Vec<_> = study["axes"].as_table().unwrap().keys().cloned().collect();
    assert!(!axes.is_empty() && axes.iter().all(|name| !name.starts_with("tune.")), "{axes:?}");
    let left_out = study["tune"]["left_out"].to_string();
    for factor in ["tune.tcp_rmem=", "tune.tcp_congestion_control=bbr", "tune.busy_poll=50"] {
        assert!(left_out.contains(factor), "{factor}: {left_out}");
    }
    assert!(left_out.contains(OF_HOSTS), "{left_out}");
}

#[test]
fn labs_that_a_user_may_not_create_are_refused_with_the_right_that_is_missing() {
    let lab = ["lab", "up", "--name", "of-nobody"];
    let run = short(&["run", "@rr", "--lab", "--out", "kept"]);
    let on_link = short(&["run", "@rr", "--lab", "--rate", "10mbit", "--out", "kept"]);
    let tune = short(&["tune", "@rr", "--maximize", "transactions", "--lab", "--out", "kept"]);
    for arguments in [&lab[..], &run, &on_link, &tune] {
        let said = refused(Program::unprivileged(arguments), 3);
        assert!(said.contains(OF_HOSTS) && said.contains("as root"), "{said}");
        assert!(said.contains("without --lab"), "{said}");
    }
}

/// Root of a container can write the journal of settings, and lacks the rights all the same.
#[test]
fn root_without_capabilities_is_refused_before_the_search() {
    if !rustix::process::geteuid().is_root() {
        return skip("root_without_capabilities_is_refused_before_the_search", "needs root");
    }
    let tune = ["tune", "@rr", "--maximize", "transactions", "--out", "kept"];
    for (more, option) in [
        (["--factor", "tune.tcp_sack=keep,0"].as_slice(), "--factor tune.tcp_sack: "),
        (&["--factor", "engine=epoll,io_uring", "--apply"], "--apply: "),
    ] {
        let program = Program::without_capabilities(&short(&[&tune[..], more].concat()));
        let said = refused(program, 3);
        assert!(said.contains(option) && said.contains(OF_HOSTS), "{said}");
    }
}

/// With a file that everybody may read.
fn with_object(made: &Made, arguments: &[&str]) -> Program {
    let program = Program::unprivileged(arguments);
    let path = program.directory().join("mine.bpf.o");
    std::fs::copy(made.path(), &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    program
}

#[test]
fn congestion_control_that_a_user_may_not_load_is_refused_with_the_right_that_is_missing() {
    if !matches!(obstacle(), None | Some(Obstacle::NotPermitted(_))) {
        // This kernel loads no programs for anybody.
        return;
    }
    let names = || names::registered().unwrap();
    let is_ours = |name: &String| name.starts_with("e2enobo.");
    let run = Program::unprivileged(&short(&["run", "@rr", "--cc", "bpf-bic"]));
    let said = refused(run, 3);
    assert!(said.contains("cc=bpf-bic: ") && said.contains(OF_BPF), "{said}");
    assert!(said.contains("run as root"), "{said}");
    let made = Made::new("e2enobody", &[]);
    let run = short(&["run", "@rr", "--cc", "e2enobody", "--cc-object", "mine.bpf.o"]);
    let said = refused(with_object(&made, &run), 3);
    assert!(said.contains("cc=e2enobody: ") && said.contains(OF_BPF), "{said}");
    assert!(said.contains("run as root"), "{said}");
    let tune = ["tune", "@rr", "--maximize", "transactions", "--out", "kept"];
    let factor = ["--factor", "cc=reno,bpf-bic"];
    let said = refused(Program::unprivileged(&short(&[&tune[..], &factor].concat())), 3);
    assert!(said.contains("factor cc, level bpf-bic: ") && said.contains(OF_BPF), "{said}");
    assert!(!names().iter().any(is_ours), "{:?}", names());
}

/// Those that the kernel has, but not for all users.
#[test]
fn congestion_control_that_a_user_may_not_choose_is_refused_with_the_right_that_is_missing() {
    let allowed = sysctl::read("net.ipv4.tcp_allowed_congestion_control").unwrap();
    let available = names::available().unwrap();
    let Some(other) = available.iter().find(|name| !allowed.split(' ').any(|one| one == *name))
    else {
        return;
    };
    let run = Program::unprivileged(&short(&["run", "@rr"])).args(["--cc", other]);
    let said = refused(run, 3);
    assert!(
        said.contains(&format!("cc={other}: choosing {other} requires CAP_NET_ADMIN")),
        "{said}"
    );
    assert!(said.contains("tcp_allowed_congestion_control"), "{said}");
}
