//! Runs the program under test, and makes sure that it ends and leaves nothing behind.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use wirecost_lab::LabHost;
use wirecost_linux::netns;

use crate::attempts::{Machine, again_where_disturbed};
use crate::document::Document;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_wirecost");

/// What neither ends nor changes a file for so long hangs, and is killed. No test depends on how long
/// anything takes otherwise.
const PATIENCE: Duration = Duration::from_secs(600);
/// A variable that the program's own processes inherit, by which they are found.
const MARK: &str = "WIRECOST_TEST_MARK";

/// Short, and long enough for several intervals.
pub(crate) const SHORT: [&str; 7] =
    ["--duration", "500ms", "--ramp", "100ms", "--interval", "100ms", "--quiet"];

/// Where CPU time comes from on this machine, for who runs the tests; and cycles, which a virtual
/// machine may or may not be shown the counters of.
pub(crate) fn sources() -> (&'static str, &'static [&'static str]) {
    use wirecost_linux::privilege::{TRACING, missing};
    match missing(TRACING).is_empty() {
        true => ("bpf", &["pmu", "tsc-exact"]),
        false => ("proc-stat", &["tsc-ticks"]),
    }
}

#[track_caller]
pub(crate) fn is_a_source_of_cycles(value: &Value) {
    let text = value.as_str().unwrap_or_default();
    assert!(sources().1.contains(&text), "cycles of {value}");
}

/// One execution of the program that is being put together.
#[derive(Debug)]
pub(crate) struct Program {
    command: Command,
    home: TempDir,
    mark: String,
}

impl Program {
    pub(crate) fn new<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::through(Command::new(BINARY), arguments)
    }

    /// `wirecost run` of a short window.
    pub(crate) fn short_run(profile: &str, arguments: &[&str]) -> Self {
        let mut program = Self::new(["run", profile]);
        program.command.args(SHORT).args(arguments);
        program
    }

    /// By a link of this name.
    pub(crate) fn called(name: &str, arguments: &[&str]) -> Self {
        let mut program = Self::new(arguments);
        let link = program.home.path().join(name);
        std::os::unix::fs::symlink(BINARY, &link).expect("a link");
        let mut command = Command::new(link);
        command.args(arguments).current_dir(program.home.path());
        for (name, value) in program.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        program.command = command;
        program
    }

    /// On a host of a lab.
    pub(crate) fn in_host(mut self, host: &LabHost) -> Self {
        host.place(&mut self.command).expect("the host is there");
        self
    }

    /// With this text on its standard input.
    pub(crate) fn reading(text: &str, arguments: &[&str]) -> Self {
        let mut program = Self::new(arguments);
        let path = program.home.path().join("standard-input");
        fs::write(&path, text).expect("a file for the program");
        program.command.stdin(fs::File::open(&path).expect("the file that was written"));
        program
    }

    /// With a limit of open descriptors that the program cannot raise.
    pub(crate) fn with_descriptors(limit: u32, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\""), BINARY]);
        Self::through(shell, arguments)
    }

    /// With its standard output as a shell directs it: `>/dev/full`, `>&-`.
    pub(crate) fn redirected(to: &str, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {to}"), BINARY]);
        Self::through(shell, arguments)
    }

    /// In a network namespace of its own, whose loopback device is up.
    pub(crate) fn in_own_network(arguments: &[&str]) -> Self {
        let mut unshare = Command::new("unshare");
        let inside = "ip link set lo up && exec \"$0\" \"$@\"";
        unshare.args(["--net", "sh", "-c", inside, BINARY]);
        Self::through(unshare, arguments)
    }

    /// In a network namespace that has this name.
    pub(crate) fn in_namespace(name: &str, arguments: &[&str]) -> Self {
        let mut ip = Command::new("ip");
        ip.args(["netns", "exec", name, BINARY]);
        Self::through(ip, arguments)
    }

    fn through<S: AsRef<OsStr>>(
        mut command: Command,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let home = tempfile::tempdir().expect("a directory for the test");
        fs::create_dir(home.path().join("tmp")).expect("a directory for temporary files");
        command
            .args(arguments)
            .env(MARK, &mark)
            .env("TMPDIR", home.path().join("tmp"))
            // Tests run side by side: each is as if alone on its machine.
            .env("WIRECOST_RUNTIME_DIR", home.path().join("runtime"))
            // How messages are drawn must not depend on who runs the test.
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { command, home, mark }
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// On the same machine, in effect, as others with this runtime directory.
    pub(crate) fn on_machine(mut self, runtime: &Path) -> Self {
        self.command.env("WIRECOST_RUNTIME_DIR", runtime);
        self
    }

    /// On these CPUs only.
    pub(crate) fn on_cpus(mut self, cpus: &[u32]) -> Self {
        wirecost_linux::spawn::pin_on_spawn(&mut self.command, cpus);
        self
    }

    /// A file in the directory in which the program runs.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.home.path().join(name), text).expect("a file for the program");
        self
    }

    /// As a user without any rights, who has the program within reach for that.
    pub(crate) fn unprivileged(arguments: &[&str]) -> Self {
        Self::unprivileged_within("ulimit -S -c 0", arguments)
    }

    /// The same within limits that a shell sets.
    pub(crate) fn unprivileged_within(limits: &str, arguments: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let mut program = Self::new(arguments);
        let linked = program.home.path().join("wirecost");
        // A link takes no space; between file systems there is none.
        fs::hard_link(BINARY, &linked)
            .or_else(|_| fs::copy(BINARY, &linked).map(drop))
            .expect("the program where everybody may run it");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")]).arg(&linked);
        command.args(arguments);
        program.replace_command(command);
        if rustix::process::geteuid().is_root() {
            let user = new_user();
            program.command.uid(user).gid(user);
        }
        let home = program.home.path();
        for (path, mode) in [(home, 0o777), (&*home.join("tmp"), 0o777), (&*linked, 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("everybody may");
        }
        program
    }

    /// Root without the capabilities that change a host, as in a container.
    pub(crate) fn without_capabilities(arguments: &[&str]) -> Self {
        let mut program = Self::new(arguments);
        let mut command = Command::new("setpriv");
        let without = "-net_admin,-sys_admin";
        command
            .args([format!("--bounding-set={without}"), format!("--inh-caps={without}")])
            .arg(BINARY)
            .args(arguments);
        program.replace_command(command);
        program
    }

    /// Has another command begin the program, with its environment and streams.
    fn replace_command(&mut self, mut command: Command) {
        for (name, value) in self.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.command = command;
    }

    pub(crate) fn directory(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn start(mut self) -> Running {
        let mut child = self.command.spawn().expect("the program starts");
        let out = child.stdout.take().expect("a pipe");
        let err = child.stderr.take().expect("a pipe");
        let (sender, lines) = channel();
        let stdout = std::thread::spawn(move || {
            let mut all = String::new();
            let mut out = BufReader::new(out);
            let mut line = String::new();
            while out.read_line(&mut line).is_ok_and(|got| got > 0) {
                all += &line;
                let _ = sender.send(std::mem::take(&mut line));
            }
            all
        });
        let (error_sender, errors) = channel();
        let stderr = std::thread::spawn(move || {
            let mut all = String::new();
            let mut err = BufReader::new(err);
            let mut line = Vec::new();
            while err.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
                let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                all += &text;
                let _ = error_sender.send(text);
            }
            all
        });
        let pid = child.id();
        Running {
            command: self.command,
            child,
            pid,
            home: self.home,
            mark: self.mark,
            lines,
            errors,
            stdout: Some(stdout),
            stderr: Some(stderr),
        }
    }

    /// Runs it to its end.
    pub(crate) fn finish(self) -> Finished {
        self.start().wait()
    }

    /// Runs it to its end with `--json`; it must have ended well, with a valid document.
    #[track_caller]
    pub(crate) fn measure(self) -> Document {
        self.measure_and(|_, document| document.clone())
    }

    /// The same, and this must hold of it.
    #[track_caller]
    pub(crate) fn measure_and<T>(self, check: impl Fn(&Finished, &Document) -> T) -> T {
        self.args(["--json", "run.json"]).finish_and(|finished| {
            let document = finished.document();
            let (status, error) = (document.text("/status"), document.text("/error"));
            assert_eq!((finished.code, status, error), (0, "ok", ""), "{finished}");
            check(finished, &document)
        })
    }

    /// Runs it to its end and checks it: again where the check fails and the run itself reports what disturbed it, or the
    /// kernel counts time of other programs.
    #[track_caller]
    pub(crate) fn finish_and<T>(self, check: impl Fn(&Finished) -> T) -> T {
        let of_test = names(self.home.path());
        let first = RefCell::new(Some(self));
        let run = |before: Option<Attempt>| {
            let program = before.map_or_else(
                || first.take().expect("a program"),
                |before| {
                    remove_all_but(&of_test, before.finished.home.path());
                    before.finished.again()
                },
            );
            let machine = Machine::now();
            let finished = program.finish();
            Attempt { foreign: machine.disturbances(), finished }
        };
        again_where_disturbed(run, Attempt::disturbances, |attempt| check(&attempt.finished))
    }
}

/// What a run says where its hosts got no CPU, and which makes it invalid.
const TOO_BUSY: [&str; 2] = ["too busy to read its counters on time", "no byte moved for "];

/// Whether that, and nothing else, made a run invalid.
pub(crate) fn is_too_busy(error: &str) -> bool {
    error.split("; ").all(|reason| TOO_BUSY.iter().any(|busy| reason.contains(busy)))
}

/// What a line of standard error says that a run ended with.
fn error_of(line: &str) -> Option<String> {
    line.strip_prefix("wirecost: ").map(str::to_owned)
}

/// One run of several.
struct Attempt {
    finished: Finished,
    /// What the kernel counted meanwhile.
    foreign: Vec<String>,
}

impl Attempt {
    /// Other programs explain no other failure than those that the run puts down to them.
    fn disturbances(&self) -> Vec<String> {
        if self.finished.code != 0 {
            return self.finished.too_busy().into_iter().collect();
        }
        let document = self.finished.written_document();
        let told = document.as_ref().map(Document::disturbances).unwrap_or_default();
        told.into_iter().chain(self.foreign.clone()).collect()
    }
}

fn names(directory: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(directory).expect("the directory of the test");
    entries.map(|entry| entry.expect("its entry").file_name()).collect()
}

fn remove_all_but(names_kept: &BTreeSet<OsString>, directory: &Path) {
    for name in names(directory).difference(names_kept) {
        let path = directory.join(name);
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A user whom nobody else is. The kernel charges a user for the locked memory of all his processes,
/// so two tests of one user would take it from each other.
fn new_user() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 1 << 30;
    // A process number has 22 bits.
    FIRST | std::process::id() << 8 | NEXT.fetch_add(1, Ordering::Relaxed) & 0xff
}

/// An execution under way.
#[derive(Debug)]
pub(crate) struct Running {
    command: Command,
    child: Child,
    pub(crate) pid: u32,
    home: TempDir,
    pub(crate) mark: String,
    lines: Receiver<String>,
    errors: Receiver<String>,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Waits for a line of standard output that fits.
    #[track_caller]
    pub(crate) fn line(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let line = wait_for_line(&self.lines, fits);
        line.unwrap_or_else(|why| self.has_not_said_it(why))
    }

    /// Waits for a line of standard error that fits.
    #[track_caller]
    pub(crate) fn error_line(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let line = wait_for_line(&self.errors, fits);
        line.unwrap_or_else(|why| self.has_not_said_it(why))
    }

    /// Tells what it has said instead, for which it must end.
    #[track_caller]
    fn has_not_said_it(&mut self, why: RecvTimeoutError) -> ! {
        let what = match why {
            RecvTimeoutError::Disconnected => "ended without saying it",
            RecvTimeoutError::Timeout => "has not said it and was killed",
        };
        if why == RecvTimeoutError::Timeout {
            processes(&self.mark).into_iter().for_each(|pid| signal_to(pid, Signal::KILL));
        }
        let status = self.child.wait().expect("it is a child");
        let [stdout, stderr] = [&mut self.stdout, &mut self.stderr].map(joined);
        panic!("the program {what}: {status}\n--- out\n{stdout}\n--- err\n{stderr}")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(self.pid, signal);
    }

    /// Its own process excepted.
    pub(crate) fn children(&self) -> Vec<u32> {
        processes(&self.mark).into_iter().filter(|&pid| pid != self.pid).collect()
    }

    /// Waits for its end, and makes sure that nothing is left of it.
    pub(crate) fn wait(self) -> Finished {
        let (pid, mark) = (self.pid, self.mark.clone());
        let finished = self.wait_only();
        assert_eq!(processes(&mark), [0u32; 0], "processes are left\n{finished}");
        let namespaces = namespaces_of(pid);
        assert!(namespaces.is_empty(), "left: {namespaces:?}\n{finished}");
        let left: Vec<_> = fs::read_dir(finished.home.path().join("tmp"))
            .expect("the directory of temporary files")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(left.is_empty(), "left: {left:?}\n{finished}");
        let drafts: Vec<_> = fs::read_dir(finished.home.path())
            .expect("the directory of the program")
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name.to_string_lossy().contains(".tmp"))
            .collect();
        assert!(drafts.is_empty(), "left: {drafts:?}\n{finished}");
        finished
    }

    /// Waits for its end, whatever it leaves.
    pub(crate) fn wait_only(mut self) -> Finished {
        let mut hung = false;
        let begin = SystemTime::now();
        let mut patience = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                break status;
            }
            if Instant::now() > patience && !hung {
                // A study is many runs: each of them writes its files.
                let change = last_change(self.home.path()).max(begin);
                let idle = change.elapsed().unwrap_or_default();
                hung = idle > PATIENCE;
                patience = Instant::now() + PATIENCE.saturating_sub(idle);
                if hung {
                    for pid in processes(&self.mark) {
                        signal_to(pid, Signal::KILL);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let finished = Finished {
            code: status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or(0)),
            stdout: joined(&mut self.stdout),
            stderr: joined(&mut self.stderr),
            command: self.command,
            home: self.home,
            mark: self.mark,
        };
        assert!(!hung, "the program hung and was killed\n{finished}");
        assert!(!finished.stderr.contains("panicked at"), "{finished}");
        finished
    }
}

/// An execution that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// 1000 and the signal's number, where a signal ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    command: Command,
    home: TempDir,
    mark: String,
}

impl Finished {
    /// The same once more, in the same directory.
    pub(crate) fn again(self) -> Program {
        Program { command: self.command, home: self.home, mark: self.mark }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        let text =
            fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}\n{self}"));
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{self}"))
    }

    /// That of `--json run.json`.
    pub(crate) fn document(&self) -> Document {
        Document::valid(self.json("run.json"))
    }

    fn written_document(&self) -> Option<Document> {
        self.path("run.json").exists().then(|| self.document())
    }

    /// What makes a run invalid, where that is only that its hosts got no CPU.
    fn too_busy(&self) -> Option<String> {
        if self.code != 4 {
            return None;
        }
        if let Some(document) = self.written_document() {
            let error = document.text("/error");
            return is_too_busy(error).then(|| error.to_owned());
        }
        let errors = match self.errors_of_kept_runs() {
            of_runs if of_runs.is_empty() => self.stderr.lines().filter_map(error_of).collect(),
            of_runs => of_runs,
        };
        let is_so = !errors.is_empty() && errors.iter().all(|error| is_too_busy(error));
        is_so.then(|| errors.join(", "))
    }

    /// Of the runs of a study that are invalid.
    fn errors_of_kept_runs(&self) -> Vec<String> {
        let entries = |of: &Path| fs::read_dir(of).into_iter().flatten().flatten();
        let kept = entries(self.home.path()).map(|kept| kept.path().join("runs"));
        let runs = kept.flat_map(|runs| entries(&runs).map(|run| run.path().join("run.json")));
        let error = |path: PathBuf| {
            let run: Value = serde_json::from_slice(&fs::read(path).ok()?).expect("JSON");
            let is_invalid = run["status"] == "invalid";
            is_invalid.then(|| run["error"].as_str().unwrap_or_default().to_owned())
        };
        runs.filter_map(error).collect()
    }

    /// It did what it should, whether or not what it measured is valid.
    #[track_caller]
    pub(crate) fn has_run(&self) {
        assert!(self.code == 0 || self.too_busy().is_some(), "{self}");
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {}\n--- out\n{}\n--- err\n{}", self.code, self.stdout, self.stderr)
    }
}

/// When a file in a directory, or in one below it, was written last.
fn last_change(directory: &Path) -> SystemTime {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let change_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => last_change(&entry.path()),
        // A file may go meanwhile.
        data => data.and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH),
    };
    entries.map(change_of).max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What a stream had, once its reader has ended.
fn joined(reader: &mut Option<JoinHandle<String>>) -> String {
    reader.take().map(|reader| reader.join().expect("a reader")).unwrap_or_default()
}

fn wait_for_line(
    lines: &Receiver<String>,
    fits: impl Fn(&str) -> bool,
) -> Result<String, RecvTimeoutError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let line = lines.recv_timeout(end.saturating_duration_since(Instant::now()))?;
        if fits(&line) {
            return Ok(line);
        }
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal_to(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    // It may have just ended.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Live processes of one execution.
pub(crate) fn processes(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").expect("/proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            // One that has just ended, or is another user's, has no environment for us.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .collect()
}

/// Namespaces of the own labs of a run.
pub(crate) fn namespaces_of(pid: u32) -> Vec<String> {
    let start = format!("wirecost-run-{pid}-");
    let names = netns::list().unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(&start)).collect()
}
