//! Settings of devices and namespaces that the tests make, and of copies of the machine's files.

mod copies;
mod crashes;
mod faults;
mod lists;
mod owners;
mod real;
mod rules;
#[path = "../../../../tests/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsGuard};
use wirecost_linux::process::ProcessId;
use wirecost_linux::spawn;
use wirecost_linux::tun::Tun;

use crate::guardian::{self, Guardian};
use crate::{Options, Outcome, Restored, Setting, Target, Tunable, Tuner, all};

const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a started copy of this program a guardian.
const GUARDIAN: &str = "WIRECOST_TEST_GUARDIAN";
/// Place of a device on a bus that is in the copy of the machine's files only.
const BUS: &str = "0000:7f:1f.7";

/// A network namespace with a pair of devices and a TUN device, a copy of files of a machine, and a
/// directory of journals.
struct Host {
    name: String,
    _guard: NetNsGuard,
    files: tempfile::TempDir,
    _tun: Vec<Tun>,
}

impl Host {
    fn new(of: &str) -> Self {
        let name = format!("wirecost-test-{}-{of}", std::process::id());
        let guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("near", "far", &namespace).unwrap();
        let tun = namespace.run(|| Tun::create_with_offloads("tun0", 1)).unwrap().unwrap();
        for device in ["lo", "near", "far", "tun0"] {
            links.up(device).unwrap();
        }
        links.add_address("near", "198.18.0.1".parse().unwrap(), 24).unwrap();
        links.wait_until_running("near", PATIENCE).unwrap();
        // In memory, as /run usually is: a busy disk would take long over each entry of a journal.
        let memory = Path::new("/dev/shm");
        let files = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        copies::write_machine(&files.path().join("machine"));
        Self { name, _guard: guard, files, _tun: tun }
    }

    fn namespace(&self) -> NetNs {
        NetNs::open(&self.name).unwrap()
    }

    fn links(&self) -> Links {
        Links::of(&self.namespace()).unwrap()
    }

    /// Where journals are.
    fn directory(&self) -> PathBuf {
        self.files.path().join("journals")
    }

    fn machine(&self) -> PathBuf {
        self.files.path().join("machine")
    }

    fn target(&self, device: &str) -> Target {
        Target::of(self.namespace()).unwrap().with_device(device)
    }

    fn targets(&self) -> Vec<Target> {
        targets(&self.name, &self.machine())
    }

    fn options(&self) -> Options {
        Options::default().with_directory(self.directory())
    }

    fn tuner(&self) -> Tuner {
        Tuner::open(self.options()).unwrap()
    }

    fn guarded_tuner(&self) -> Tuner {
        let guardian = Guardian::start(&guardian_program(), Some(&self.directory())).unwrap();
        Tuner::open(self.options().with_guardian(guardian)).unwrap()
    }

    /// Journals on disk.
    fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|found| found == "json")).collect()
    }

    /// Where the journal of a process is.
    fn journal_of(&self, owner: ProcessId) -> PathBuf {
        self.directory().join(format!("{}-{}.json", owner.pid, owner.started))
    }

    /// That of this process, as it is on disk.
    fn journal(&self) -> (PathBuf, serde_json::Value) {
        let path = self.journal_of(ProcessId::this().unwrap());
        let journal = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        (path, journal)
    }

    /// Makes it that of another process. Returns where it is then.
    fn give_journal_to(&self, owner: ProcessId) -> PathBuf {
        let (path, mut journal) = self.journal();
        journal["owner"] = serde_json::to_value(owner).unwrap();
        let given = self.journal_of(owner);
        fs::write(&given, journal.to_string()).unwrap();
        fs::remove_file(path).unwrap();
        given
    }

    /// Makes it that of a process that does not live: this one, started at another time.
    fn orphan_journal(&self) -> PathBuf {
        self.give_journal_to(ProcessId { pid: std::process::id(), started: 1 })
    }

    fn mtu(&self) -> Option<u32> {
        self.links().get("near").unwrap().mtu
    }

    /// Waits until nobody has changed anything; how long that took.
    fn wait_until_restored(&self) -> Duration {
        let start = Instant::now();
        while !self.journals().is_empty() {
            assert!(start.elapsed() < PATIENCE * 6, "the journal is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }
}

/// A directory in the place of a journal's draft: it cannot be written any more.
fn block(journal: &Path) -> PathBuf {
    let draft = journal.with_extension("draft");
    fs::create_dir(&draft).unwrap();
    draft
}

/// What a host is tested on: each of its devices, and the copy of the machine's files.
fn targets(namespace: &str, machine: &Path) -> Vec<Target> {
    let of =
        |device: &str| Target::of(NetNs::open(namespace).unwrap()).unwrap().with_device(device);
    let copy = Target::of(NetNs::open(namespace).unwrap()).unwrap();
    let copy = copy.below(machine).at_bus(BUS).allowing_pci();
    vec![of("near"), of("tun0"), of("lo"), copy]
}

/// All that can be changed there: never a file of the machine itself.
fn changeable(targets: &[Target]) -> Vec<(&Target, &'static dyn Tunable)> {
    let mut found: Vec<(&Target, &'static dyn Tunable)> = Vec::new();
    for target in targets {
        for tunable in all() {
            let is_copy = target.root() != Path::new("/");
            let belongs = match tunable.scope() {
                crate::Scope::Machine | crate::Scope::Bus => is_copy,
                crate::Scope::Namespace => target.device_name() == Some("near"),
                crate::Scope::Device => !is_copy,
            };
            if belongs && tunable.support(target).is_ok() {
                found.push((target, tunable));
            }
        }
    }
    found
}

type Snapshot = BTreeMap<(String, &'static str), String>;

fn assert_same(now: &Snapshot, before: &Snapshot, when: &str) {
    let keys = now.keys().chain(before.keys());
    let differences: BTreeMap<_, _> = keys
        .filter(|key| now.get(*key) != before.get(*key))
        .map(|key| (key, (before.get(key), now.get(key))))
        .collect();
    assert!(differences.is_empty(), "{when}: {differences:#?}");
}

fn assert_complete(restored: &Restored) {
    let left = restored.entries.iter().filter(|entry| entry.outcome != Outcome::Restored);
    let left: Vec<_> = left.collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// The value of all that can be read.
fn snapshot(targets: &[Target]) -> Snapshot {
    let mut values = BTreeMap::new();
    for target in targets {
        let place = target.device_name().unwrap_or("copy").to_owned();
        // Each of these would start a thread elsewhere.
        let read = || -> Vec<_> {
            let value = |tunable: &'static dyn Tunable| {
                Some(((place.clone(), tunable.name()), tunable.read(target).ok()?))
            };
            all().filter_map(value).collect()
        };
        values.extend(target.namespace().run(read).unwrap());
    }
    values
}

/// Values that a tunable may have in place of this one.
fn others(tunable: &dyn Tunable, current: &str) -> Vec<String> {
    let strings = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match tunable.name() {
        "tcp_congestion_control" => return strings(&["reno", "cubic", "bbr"]),
        "qdisc" => return strings(&["pfifo", "bfifo"]),
        "default_qdisc" => return strings(&["fq"]),
        "governor" => return strings(&["schedutil", "performance"]),
        "cstate_limit" => return strings(&["C1", "POLL"]),
        "pci.max-read-request" => return strings(&["512", "4096"]),
        "irq_affinity" | "rps_cpus" | "xps_cpus" => return strings(&["0", "none", "1"]),
        "mtu" => return strings(&["1400", "1399"]),
        _ => {}
    }
    let numbers: Option<Vec<u64>> = current.split(' ').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([first, middle, last]) => vec![format!("{first} {middle} {}", last + 4096)],
        Some([number]) => {
            [number + 1, number.saturating_sub(1), 1024, 2].iter().map(u64::to_string).collect()
        }
        // A switch, or several that disagree.
        _ => strings(&["off", "on"]),
    }
}

/// Settings of which the first that the target takes changes it.
fn alternatives(target: &Target, tunable: &'static dyn Tunable) -> Vec<Setting> {
    let current = tunable.read(target).unwrap();
    others(tunable, &current)
        .iter()
        .filter_map(|value| Setting::new(tunable.name(), value).ok())
        .filter(|setting| setting.value != current)
        .collect()
}

/// Changes a tunable to whatever it takes.
fn change(tuner: &mut Tuner, target: &Target, tunable: &'static dyn Tunable) -> Option<String> {
    alternatives(target, tunable).into_iter().find_map(|setting| {
        let applied = tuner.apply(target, &[setting]).ok()?;
        let [applied] = &applied[..] else { panic!("{applied:?}") };
        (applied.effective != applied.previous).then(|| applied.effective.clone())
    })
}

fn set(name: &str, value: &str) -> Setting {
    Setting::new(name, value).unwrap()
}

fn guardian_program() -> Vec<OsString> {
    let program = std::env::current_exe().unwrap();
    let mark = format!("{GUARDIAN}=1");
    let arguments = ["--exact", "tests::guardian_process", "--nocapture"];
    let mut all: Vec<OsString> = vec!["env".into(), mark.into(), program.into()];
    all.extend(arguments.map(OsString::from));
    all
}

/// Is a guardian where the test has started it as one.
#[test]
fn guardian_process() {
    if std::env::var_os(GUARDIAN).is_some() {
        guardian::run().unwrap();
    }
}

/// A process of this program that runs one test of it, and is killed with the thread that starts it.
struct Owner {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Owner {
    fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).stdout(Stdio::piped());
        command.envs(variables.iter().copied());
        spawn::end_with_parent(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Waits for a line `wanted REST`, and returns the rest.
    fn wait_for(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended before `{wanted}`");
            // The test harness begins a line and does not end it.
            if let Some((_, rest)) = line.split_once(wanted) {
                return rest.trim().to_owned();
            }
        }
    }

    /// kill -9.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
