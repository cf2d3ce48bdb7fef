//! Congestion control that a run loads into the kernel: its own BIC, and objects of the user's.

use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_rs::query::{LinkInfoIter, MapInfoIter};
use rustix::process::Signal;
use tempfile::TempDir;
use wirecost_congestion::names;
use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};

use crate::agents::Agent;
use crate::program::{Finished, Program, processes, signal_to, until};

/// An object as a user makes it, in a directory of its own.
pub(crate) struct Made {
    _home: TempDir,
    path: PathBuf,
}

impl Made {
    pub(crate) fn new(name: &str, defines: &[&str]) -> Self {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../congestion/tests/objects/mine.c");
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("mine.bpf.o");
        let mut command = Command::new(wirecost_bpf_build::compiler().unwrap());
        command.args(["-g", "-O2", "-target", "bpf", "-c"]).args(defines).arg(source);
        let compiled = command.arg(format!("-DNAME=\"{name}\"")).arg("-o").arg(&path).output();
        let compiled = compiled.unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Self { _home: home, path }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// The kernel's names that processes made of one that begins like this.
fn registered_as(prefix: &str) -> Vec<String> {
    let start = format!("{prefix}.");
    names::registered().unwrap().into_iter().filter(|name| name.starts_with(&start)).collect()
}

fn is_registered(prefix: &str) -> bool {
    !registered_as(prefix).is_empty()
}

#[test]
fn bic_carries_a_run_between_hosts_of_a_lab_and_leaves_nothing() {
    let test = "bic_carries_a_run_between_hosts_of_a_lab_and_leaves_nothing";
    if skip_without_namespaces(test) || skip_without_tracing(test) {
        return;
    }
    let arguments = ["--lab", "--cc", "bpf-bic", "--observe", "tcp"];
    let document = Program::short_run("@stream", &arguments).measure();
    let settings = document.list("/settings");
    let of_cc: Vec<_> = settings.iter().filter(|setting| setting["name"] == "cc").collect();
    assert!(of_cc.len() >= 2, "{settings:#?}");
    for setting in of_cc {
        assert_eq!(
            (&setting["requested"], &setting["effective"]),
            (&"bpf-bic".into(), &"bpf-bic".into())
        );
    }
    let flows = document.list("/observe/hosts/0/tcp/flows");
    assert!(flows.iter().any(|flow| flow["congestion_control"] == "bpf-bic"), "{flows:#?}");
    let states = flows.iter().flat_map(|flow| flow["samples"].as_array().unwrap());
    let known = ["open", "disorder", "cwr", "recovery", "loss"];
    let states: Vec<_> =
        states.map(|sample| sample["congestion_state"].as_str().unwrap()).collect();
    assert!(!states.is_empty() && states.iter().all(|state| known.contains(state)), "{states:?}");
    // Of other tests too, which end; what they register later has other names.
    let names = registered_as("bpf_bic");
    until("the kernel has no name of the run", || {
        let now = registered_as("bpf_bic");
        !names.iter().any(|name| now.contains(name))
    });
}

#[test]
fn an_object_is_gone_when_the_processes_that_have_it_are_killed() {
    if skip_without_tracing("an_object_is_gone_when_the_processes_that_have_it_are_killed") {
        return;
    }
    let made = Made::new("e2ekill", &[]);
    let run = ["run", "@stream", "--duration", "60s", "--observe", "none", "--cc", "e2ekill"];
    let running = Program::new(run).args(["--cc-object", made.path()]).start();
    until("the object is registered", || is_registered("e2ekill"));
    let mark = running.mark.clone();
    for pid in processes(&mark) {
        signal_to(pid, Signal::KILL);
    }
    running.wait_only();
    until("the object is gone", || !is_registered("e2ekill"));
}

/// Numbers of the structures of operations (struct_ops) that processes hold by links, from proc(5), and of these links.
fn held_operations(pids: &[u32]) -> Vec<Held> {
    let mut held = Vec::new();
    for pid in pids {
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { continue };
        for descriptor in descriptors.flatten() {
            let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
            let number = |key: &str| -> Option<u32> {
                let line = text.lines().find_map(|line| line.strip_prefix(key))?;
                line.trim().parse().ok()
            };
            let is_operations = text.lines().any(|line| line == "link_type:\tstruct_ops");
            if let (true, Some(link), Some(map)) =
                (is_operations, number("link_id:"), number("map_id:"))
            {
                held.push(Held { link, map });
            }
        }
    }
    held
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    link: u32,
    map: u32,
}

impl Held {
    /// Whether the kernel still has one of them.
    fn is_there(self) -> bool {
        let link = LinkInfoIter::default().any(|link| link.id == self.link);
        link || MapInfoIter::default().any(|map| map.id == self.map)
    }
}

#[test]
fn bic_is_gone_when_the_processes_that_have_it_are_killed() {
    let test = "bic_is_gone_when_the_processes_that_have_it_are_killed";
    if skip_without_tracing(test) {
        return;
    }
    let run = ["run", "@stream", "--duration", "60s", "--observe", "none", "--cc", "bpf-bic"];
    let running = Program::new(run).args(["--share"]).start();
    let mark = running.mark.clone();
    // Both hosts have a program of their own.
    let hold = || held_operations(&processes(&mark));
    until("both hosts hold their program", || hold().len() >= 2);
    let held = hold();
    // Of other tests too, which end.
    let names = registered_as("bpf_bic");
    assert!(names.len() >= 2 && held.iter().all(|held| held.is_there()), "{names:?} {held:?}");
    for pid in processes(&mark) {
        signal_to(pid, Signal::KILL);
    }
    running.wait_only();
    until("nothing of it is left", || {
        let now = registered_as("bpf_bic");
        let is_named = names.iter().any(|name| now.contains(name));
        !is_named && !held.iter().any(|held| held.is_there())
    });
}

/// What was printed, without line breaks.
pub(crate) fn words(finished: &Finished) -> String {
    finished.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_agent_loads_objects_only_where_it_was_told_to() {
    if skip_without_tracing("an_agent_loads_objects_only_where_it_was_told_to") {
        return;
    }
    let made = Made::new("e2eagent", &[]);
    let run = |agent: &Agent| {
        let host = format!("h={}", agent.address);
        let arguments = ["--host", &host, "--cc", "e2eagent", "--cc-object", made.path()];
        Program::short_run("@rr", &arguments).args(["--share", "--json", "run.json"]).finish()
    };
    let refused = run(&Agent::start());
    assert_eq!(refused.code, 2, "{refused}");
    assert!(words(&refused).contains("start it with --allow-cc-object"), "{refused}");
    let done = run(&Agent::with(&["--allow-cc-object"]));
    assert_eq!(done.document().text("/status"), "ok", "{done}");
    until("the object is gone", || !is_registered("e2eagen"));
}

#[test]
fn what_cannot_be_loaded_is_refused_with_a_remedy() {
    let refused = |arguments: &[&str]| {
        let finished = Program::short_run("@rr", arguments).finish();
        assert_eq!(finished.code, 2, "{finished}");
        words(&finished)
    };
    let made = Made::new("unused", &[]);
    let said = refused(&["--cc-object", made.path()]);
    assert!(said.contains("add --cc unused"), "{said}");
    assert!(refused(&["--cc-object", "/no/such.o"]).contains("/no/such.o: No such file"));
    assert!(refused(&["--cc-object", "/etc/passwd"]).contains("not an object file of BPF"));
    let pinned = Made::new("pinned", &["-DPINNED"]);
    assert!(refused(&["--cc-object", pinned.path()]).contains("its map kept is pinned"));
    let unknown = Program::short_run("@rr", &["--cc", "bci"]).finish();
    assert_eq!(unknown.code, 3, "{unknown}");
    assert!(words(&unknown).contains("no congestion control bci (it has"), "{unknown}");
    if skip_without_tracing("what_cannot_be_loaded_is_refused_with_a_remedy") {
        return;
    }
    let forbidden = Made::new("forbid", &["-DFORBIDDEN"]);
    let said = refused(&["--cc", "forbid", "--cc-object", forbidden.path()]);
    assert!(said.contains("the kernel refuses it") && said.contains("processed"), "{said}");
    let reno = Made::new("reno", &[]);
    let said = refused(&["--cc", "reno", "--cc-object", reno.path()]);
    assert!(said.contains("has a congestion control named reno already"), "{said}");
    assert!(!is_registered("forbid") && !is_registered("reno"));
}

#[test]
fn check_reads_objects_and_studies_use_each() {
    if skip_without_tracing("check_reads_objects_and_studies_use_each") {
        return;
    }
    let made = Made::new("e2echk", &[]);
    let home = tempfile::tempdir().unwrap();
    let profile = |name: &str, cc: &str| {
        let path = home.path().join(name);
        let text = format!(
            "<profile name=\"p\"><group nthreads=\"1\"><transaction iterations=\"1\">\
             <flowop type=\"connect\" options=\"remotehost=127.0.0.1 protocol=tcp cc={cc}\"/></transaction>\
             <transaction iterations=\"2\"><flowop type=\"write\" options=\"size=64\"/></transaction>\
             </group></profile>"
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let check = |arguments: &[&str]| Program::new(["check"]).args(arguments).finish();
    let mine = profile("mine.xml", "e2echk");
    let alone = check(&[&mine]);
    assert!(alone.stderr.contains("no congestion control e2echk"), "{alone}");
    let given = check(&[&mine, "--cc-object", made.path()]);
    assert_eq!(given.code, 0, "{given}");
    assert!(!is_registered("e2echk"));
    let bic = profile("bic.xml", "bpf-bic");
    assert_eq!(check(&[&bic]).code, 0);
    let unused = check(&[&bic, "--cc-object", made.path()]);
    assert_eq!(unused.code, 2, "{unused}");
    assert!(unused.stderr.contains("no connection chooses its e2echk"), "{unused}");
    let study = |cc: &str| {
        let path = home.path().join("study.toml");
        let object = made.path();
        let text = format!(
            "profile = \"@rr\"\n[set]\nduration = \"1s\"\ncc_object = \"{object}\"\n\
             [axes]\ncc = [\"reno\", {cc}]\n"
        );
        std::fs::write(&path, text).unwrap();
        Program::new(["study", "check", path.to_str().unwrap()]).finish()
    };
    let used = study("\"e2echk\"");
    assert_eq!(used.code, 0, "{used}");
    let unused = study("\"cubic\"");
    assert_eq!(unused.code, 2, "{unused}");
    assert!(unused.stderr.contains("no point of the study chooses its e2echk"), "{unused}");
}
