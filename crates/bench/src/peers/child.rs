//! A program that was started here: it has a time limit, and is ended by its number with all that
//! it started.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use wirecost_linux::clock::{Monotonic, sleep};
use wirecost_linux::cpu_list::parse_list;
use wirecost_linux::process::{ProcessId, descendants};
use wirecost_linux::spawn::{end_with_parent, pin_on_spawn};
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, SECOND};

use super::contender::{Line, Port, find};
use crate::interrupt::check_interrupted;

/// Polling interval.
const GLANCE: Nanos = 5 * MILLISECOND;
/// Grace time after a request to end.
const TIMEOUT: Nanos = 2 * SECOND;

/// A running program. It ends with this value, and with the calling thread.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    cpu: Option<u32>,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts it; its output goes to files in `directory` with the prefix `role`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(line: &Line, directory: &Path, role: &str) -> Result<Self, String> {
        let (stdout, stderr) =
            (directory.join(format!("{role}.out")), directory.join(format!("{role}.err")));
        let open = |path: &Path| {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut command = Command::new(file(&line.program));
        command.args(&line.args).stdin(Stdio::null());
        command.stdout(open(&stdout)?).stderr(open(&stderr)?);
        end_with_parent(&mut command);
        pin_on_spawn(&mut command, line.cpu.as_slice());
        let child = command.spawn().map_err(|error| format!("{}: {error}", line.program))?;
        Ok(Self { name: line.program.clone(), cpu: line.cpu, child, stdout, stderr })
    }

    /// Checks that it is on its CPUs: a program may change them itself.
    ///
    /// # Errors
    /// One of its threads, or of its children's, may run elsewhere.
    pub(crate) fn is_in_place(&self) -> Result<(), String> {
        let Some(cpu) = self.cpu else { return Ok(()) };
        let all = std::iter::once(self.child.id()).chain(descendants(self.child.id()));
        let may_run_on = all.flat_map(cpus_of_threads).find(|cpus| *cpus != [cpu]);
        may_run_on.map_or(Ok(()), |cpus| {
            Err(format!("{} left CPU {cpu}: a thread of it may run on {cpus:?}", self.name))
        })
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Polls until `done`.
    ///
    /// # Errors
    /// This program ends earlier, or the time limit is reached.
    pub(crate) fn until(
        &mut self,
        deadline: Nanos,
        what: &str,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), String> {
        while !done() {
            check_interrupted()?;
            if let Some(status) = self.ended() {
                return Err(format!("{} ended {what} ({status}){}", self.name, self.complaint()));
            }
            if Monotonic.now() > deadline {
                return Err(format!("{} took too long {what}{}", self.name, self.complaint()));
            }
            sleep(GLANCE);
        }
        Ok(())
    }

    /// Waits for its successful end, and returns its output.
    ///
    /// # Errors
    /// It fails, or exceeds the time limit.
    pub(crate) fn finish(&mut self, deadline: Nanos) -> Result<String, String> {
        loop {
            check_interrupted()?;
            match self.ended() {
                Some(status) if status.success() => return Ok(self.written()),
                Some(status) => return Err(format!("{}: {status}{}", self.name, self.complaint())),
                None if Monotonic.now() > deadline => {
                    return Err(format!("{} did not end in time{}", self.name, self.complaint()));
                }
                None => sleep(GLANCE),
            }
        }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    /// The line of its errors that describes the failure: one with a usual prefix, or the last.
    fn complaint(&self) -> String {
        let text = fs::read(&self.stderr).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let name = Path::new(&self.name).file_name().unwrap_or_default().to_string_lossy();
        let begins = [format!("{name}:"), "error".to_owned(), "×".to_owned()];
        let error = lines.clone().find(|line| {
            let line = line.to_lowercase();
            begins.iter().any(|begin| line.starts_with(begin))
        });
        error.or_else(|| lines.next_back()).map_or_else(String::new, |line| format!(": {line}"))
    }

    /// Ends it and everything that it started, and waits for the end.
    fn end(&mut self) {
        let started: Vec<ProcessId> =
            descendants(self.child.id()).into_iter().filter_map(ProcessId::of).collect();
        if self.ended().is_none() {
            signal(self.child.id(), Signal::TERM);
            let deadline = Monotonic.now() + TIMEOUT;
            while self.ended().is_none() && Monotonic.now() < deadline {
                sleep(GLANCE);
            }
        }
        for process in started.iter().filter(|process| process.is_alive()) {
            signal(process.pid, Signal::KILL);
        }
        // It has ended, or does now; nothing is left to do about either.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What is killed takes a moment to go, and its ports with it.
        let deadline = Monotonic.now() + TIMEOUT;
        while started.iter().any(|process| process.is_alive()) && Monotonic.now() < deadline {
            sleep(GLANCE);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a command line names: a program without its path is searched for.
pub(crate) fn file(program: &str) -> PathBuf {
    let found = if program.contains('/') { None } else { find(program) };
    found.unwrap_or_else(|| PathBuf::from(program))
}

/// CPUs that each thread of a process may run on (proc_pid_status(5)).
fn cpus_of_threads(pid: u32) -> Vec<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let allowed = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        parse_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
    });
    allowed.collect()
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Who has gone needs no signal.
        let _ = kill_process(pid, signal);
    }
}

/// Whether a socket listens on the port, in the namespace of the calling thread (proc_net_tcp(5)).
/// Connecting would use up a server that serves one client.
pub(crate) fn listens(port: Port) -> bool {
    let (tables, state, port) = match port {
        Port::Tcp(port) => (["tcp", "tcp6"], "0A", port),
        Port::Udp(port) => (["udp", "udp6"], "07", port),
    };
    tables.iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        in_table(&text, state, port)
    })
}

fn in_table(text: &str, state: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    text.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.nth(1).is_some_and(|local| local.ends_with(&end)) && words.nth(1) == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn start(directory: &Path, script: &str) -> Running {
        start_on(None, directory, script)
    }

    fn start_on(cpu: Option<u32>, directory: &Path, script: &str) -> Running {
        let args = vec!["-c".to_owned(), script.to_owned()];
        let line = Line { program: "sh".to_owned(), args, cpu };
        Running::start(&line, directory, "test").unwrap()
    }

    #[test]
    fn a_program_that_leaves_its_cpu_is_reported() {
        let allowed = wirecost_linux::thread::allowed_cpus().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let started = |script: &str| {
            let mut running = start_on(Some(allowed[0]), directory.path(), script);
            let wrote =
                || fs::read(directory.path().join("test.out")).is_ok_and(|text| !text.is_empty());
            running.until(Monotonic.now() + 60 * SECOND, "before it began", wrote).unwrap();
            running
        };
        started("sleep 1000 & echo; wait").is_in_place().unwrap();
        if let [_, second, ..] = allowed[..] {
            let script =
                format!("taskset -c {second} sleep 1000 & taskset -c -p {second} $$; wait");
            let error = started(&script).is_in_place().unwrap_err();
            assert!(error.contains(&format!("left CPU {}", allowed[0])), "{error}");
        }
    }

    #[test]
    fn a_listening_socket_is_found() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        let (of_tcp, of_udp) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
        assert!(listens(Port::Tcp(of_tcp)) && listens(Port::Udp(of_udp)));
        let line = "  0: 0100007F:1F90 00000000:0000 01 00000000:00000000";
        let text = format!("header\n{line}\n");
        assert!(in_table(&text, "01", 0x1f90) && !in_table(&text, "0A", 0x1f90));
        assert!(!in_table(&text, "01", 0x1f91));
    }

    #[test]
    fn output_and_failure_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let far = Monotonic.now() + 60 * SECOND;
        assert_eq!(start(directory.path(), "echo 17").finish(far).unwrap(), "17\n");
        let error = start(directory.path(), "echo no luck >&2; exit 3").finish(far).unwrap_err();
        assert!(error.contains("3") && error.ends_with("no luck"), "{error}");
        let script = "echo warming up >&2; echo Error: no luck >&2; echo try again >&2; exit 3";
        let error = start(directory.path(), script).finish(far).unwrap_err();
        assert!(error.ends_with("Error: no luck"), "{error}");
    }

    #[test]
    fn a_program_over_its_time_limit_is_ended_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().join("test.out");
        let mut running = start(directory.path(), "trap '' TERM; sleep 1000 & echo; wait");
        let far = Monotonic.now() + 60 * SECOND;
        let wrote = || fs::read(&marker).is_ok_and(|text| !text.is_empty());
        running.until(far, "before it began", wrote).unwrap();
        let [sleeper] = descendants(running.child.id())[..] else { panic!("one child") };
        let sleeper = ProcessId::of(sleeper).unwrap();
        assert!(running.finish(Monotonic.now()).unwrap_err().contains("did not end in time"));
        drop(running);
        assert!(!sleeper.is_alive());
    }
}
