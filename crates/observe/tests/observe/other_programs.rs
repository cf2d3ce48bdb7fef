//! What probes count, beside what tcpdump, bpftrace and perf say of the same traffic, CPU time and waits for locks.
//! These programs are not wirecost's: what they say is by other code and by other hooks.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use wirecost_linux::absent_page::AbsentPage;
use wirecost_linux::privilege::{skip, skip_without_namespaces, skip_without_tracing};
use wirecost_model::observe::{HostObservation, ObserveRequest, Part, ProbeStatus};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;
use crate::two_hosts::{DEVICE, Host, World, carry, pump};

/// Whether a program cannot be started, which is then said.
fn is_missing(program: &str, test: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let missing = command.status().is_err();
    if missing {
        skip(test, &format!("needs {program}"));
    }
    missing
}

fn interrupt(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::INT).expect("it is there");
}

/// tcpdump on the device of a host, under way.
struct Dump {
    child: Child,
    said: BufReader<ChildStderr>,
    seen: std::thread::JoinHandle<String>,
}

/// What it has seen, from the side of one address.
#[derive(Debug, Default)]
struct Packets {
    sent: u64,
    /// With link headers.
    sent_bytes: u64,
    data_sent: u64,
    data_received: u64,
    payload_sent: u64,
    pure_acks_sent: u64,
    pure_acks_received: u64,
}

impl Dump {
    fn start(host: &Host) -> Self {
        // With link headers, without names, a line at once; room for what comes in bursts.
        let mut command = Command::new("tcpdump");
        command.args(["-e", "-n", "-l", "-B", "65536", "-s", "128", "-i", DEVICE, "tcp"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = host.run(|| command.spawn()).expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.starts_with("listening on") {
            line.clear();
            assert!(said.read_line(&mut line).expect("words") > 0, "tcpdump has ended");
        }
        let mut out = child.stdout.take().expect("a pipe");
        let seen = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).expect("text");
            text
        });
        Self { child, said, seen }
    }

    fn finish(mut self, own: &str) -> Packets {
        interrupt(&self.child);
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("text");
        self.child.wait().expect("it ends");
        assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
        let mut packets = Packets::default();
        let text = self.seen.join().expect("lines");
        // What it takes the payload of some ports for is in further lines.
        let headers = text.lines().filter(|line| line.contains("Flags ["));
        headers.for_each(|line| packets.note(line, own));
        packets
    }
}

impl Packets {
    /// `... ethertype IPv4 (0x0800), length 366: 10.0.0.1.40 > 10.0.0.2.50: Flags [P.], ..., length 300`
    fn note(&mut self, line: &str, own: &str) {
        let parts = || {
            let (_, rest) = line.split_once("), length ")?;
            let (frame, rest) = rest.split_once(": ")?;
            let (from, rest) = rest.split_once(" > ")?;
            let (_, rest) = rest.split_once("Flags [")?;
            let (flags, rest) = rest.split_once(']')?;
            let (_, payload) = rest.split_once(", length ")?;
            let payload = payload.split([' ', ':']).next()?;
            let frame: u64 = frame.parse().ok()?;
            Some((frame, from, flags, payload.parse::<u64>().ok()?))
        };
        let (frame, from, flags, payload) = parts().unwrap_or_else(|| panic!("{line}"));
        let ours = from.rsplit_once('.').is_some_and(|(address, _)| address == own);
        if ours {
            self.sent += 1;
            self.sent_bytes += frame;
            self.payload_sent += payload;
        }
        let bare = payload == 0 && !flags.contains(['S', 'F', 'R']);
        match (ours, payload > 0, bare) {
            (true, true, _) => self.data_sent += 1,
            (false, true, _) => self.data_received += 1,
            (true, _, true) => self.pure_acks_sent += 1,
            (false, _, true) => self.pure_acks_received += 1,
            _ => {}
        }
    }
}

/// Requests of connections that last, and of connections of their own.
fn traffic(world: &World) {
    let (mut client, mut server) = world.connect(|_| (), |_| ());
    carry(&mut client, &mut server, 2_000_003);
    pump(client, server, 0);
    for _ in 0..50 {
        let (mut client, mut server) = world.connect(|_| (), |_| ());
        client.write_all(&[7; 300]).unwrap();
        server.read_exact(&mut [0; 300]).unwrap();
        server.write_all(&[8; 5_000]).unwrap();
        drop(server);
        client.read_to_end(&mut Vec::new()).unwrap();
    }
}

fn near(figure: Option<u64>, seen: u64, missed: u64, what: &str) {
    let figure = figure.expect("measured");
    // What begins and ends a connection may be at the other side of an edge.
    let apart = 5 + seen / 50 + missed;
    assert!(figure.abs_diff(seen) <= apart, "{what}: {figure}, and tcpdump {seen}");
}

#[test]
fn segments_acknowledgements_and_bytes_are_those_of_tcpdump() {
    const NAME: &str = "segments_acknowledgements_and_bytes_are_those_of_tcpdump";
    if skip_without_namespaces(NAME) || skip_without_tracing(NAME) || is_missing("tcpdump", NAME) {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        // tcpdump sees packets before they are segmented.
        world.a.send_single_segments();
        world.b.send_single_segments();
        let dump = Dump::start(&world.b);
        let watched = world.observe(&["segments", "tcp"], || traffic(&world));
        let seen = dump.finish(&world.b.address.to_string());
        for report in &watched.observation.probes {
            assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
        }
        let missed = watched.observation.probes.iter().map(|p| p.cost.recursion_misses).sum();
        let b: &HostObservation = watched.of_b();
        let device = &b.segments.as_ref().unwrap().devices[0];
        assert_eq!(
            (device.sent.packets, device.sent.bytes),
            (seen.sent, seen.sent_bytes),
            "{seen:?}"
        );
        assert_eq!(device.sent.segments, seen.sent);
        let tcp = b.tcp.as_ref().unwrap();
        near(tcp.acks_received.data_segments, seen.data_sent, missed, "data sent");
        near(tcp.acks_sent.data_segments, seen.data_received, missed, "data received");
        near(tcp.acks_sent.pure_acks, seen.pure_acks_sent, missed, "acknowledgements sent");
        near(tcp.acks_received.pure_acks, seen.pure_acks_received, missed, "acknowledgements got");
        assert!(seen.payload_sent >= 50 * 5_000, "{seen:?}");
    });
}

/// bpftrace that adds up the time that a thread is on a CPU; it looks for tracepoints where debugfs was
/// mounted in former times.
fn time_on_cpu(pid: u32) -> Option<(Child, BufReader<std::process::ChildStdout>)> {
    let script = format!(
        r#"BEGIN {{ printf("ready\n"); }}
           tracepoint:sched:sched_switch /args->next_pid == {pid}/ {{ @since = nsecs; }}
           tracepoint:sched:sched_switch /args->prev_pid == {pid} && @since/ {{
               @sum = @sum + (nsecs - @since);
           }}
           END {{ printf("sum %llu\n", @sum); clear(@since); clear(@sum); }}"#
    );
    let mount = "mount -t debugfs none /sys/kernel/debug; \
                 mount -t tracefs none /sys/kernel/debug/tracing; exec bpftrace -e \"$0\"";
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", mount, &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut out = BufReader::new(child.stdout.take()?);
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        if out.read_line(&mut line).ok()? == 0 {
            let _ = child.wait();
            return None;
        }
    }
    Some((child, out))
}

/// Seconds that the hypervisor has taken from all CPUs (proc_stat(5)).
fn stolen() -> f64 {
    let text = fs::read_to_string("/proc/stat").expect("times of the CPUs");
    let ticks = text.split_whitespace().nth(8).expect("the time of all CPUs, `cpu` first");
    ticks.parse::<f64>().expect("a number") / 100.0
}

fn is_stopped(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Set for the child of [`alone::waits_for_locks_are_those_of_perf`].
const CHILD: &str = "WIRECOST_TEST_CONTENDS";

/// Not a test but what the test's child does: threads write to a pipe while another, which waits for its memory,
/// has the lock.
#[test]
fn contends_when_it_is_told() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    std::io::stdin().read_exact(&mut [0]).expect("it is told");
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let write = |bytes: &[u8]| (&writer).write_all(&bytes[..10]).expect("there is room");
    for _ in 0..30 {
        let page = AbsentPage::new().expect("userfaultfd");
        std::thread::scope(|scope| {
            scope.spawn(|| write(page.bytes()));
            page.is_wanted().expect("a fault");
            for _ in 0..3 {
                scope.spawn(|| write(&[7; 10]));
            }
            std::thread::sleep(Duration::from_millis(10));
            page.give().expect("a page");
        });
    }
}

/// perf that counts the waits for locks of a process from here until the process ends, into a file.
fn count_waits(pid: u32, directory: &Path) -> Option<Child> {
    let [control, acknowledged] = ["control", "acknowledged"].map(|name| directory.join(name));
    for fifo in [&control, &acknowledged] {
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .expect("a pipe");
    }
    let open = |fifo: &Path| {
        let file = fs::OpenOptions::new().read(true).write(true).open(fifo);
        file.expect("a pipe")
    };
    let (mut tell, heard) = (open(&control), open(&acknowledged));
    let mut child = Command::new("perf")
        .args(["stat", "-e", "lock:contention_end", "-x", ",", "--delay", "-1"])
        .arg(format!("--control=fifo:{},{}", control.display(), acknowledged.display()))
        .arg(format!("--output={}", directory.join("counts").display()))
        .args(["-p", &pid.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("perf");
    tell.write_all(b"enable\n").expect("it is read");
    // It says so when it counts, unless it has ended.
    loop {
        let mut ready = [PollFd::new(&heard, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut ready, Some(&timeout)).expect("it can be waited for") > 0 {
            return Some(child);
        }
        if child.try_wait().expect("its state").is_some() {
            return None;
        }
    }
}

/// Waits of other programs for locks take room in the table of the probe.
mod alone {
    use super::*;

    #[test]
    fn waits_for_locks_are_those_of_perf() {
        const NAME: &str = "waits_for_locks_are_those_of_perf";
        if skip_without_tracing(NAME) || is_missing("perf", NAME) {
            return;
        }
        undisturbed_machine(|| {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "other_programs::contends_when_it_is_told", "--nocapture"])
                .env(CHILD, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("a child");
            let pid = child.id();
            let directory = tempfile::tempdir().expect("a directory");
            let Some(mut perf) = count_waits(pid, directory.path()) else {
                let _ = child.kill();
                let _ = child.wait();
                return skip(NAME, "perf has no event lock:contention_end here");
            };
            let part = Part { pid: Some(pid), ..Part::default() };
            let probes = vec!["locks".to_owned()];
            let mut observer = Observer::open(ObserveRequest { probes, parts: vec![part] });
            observer.attach();
            observer.begin();
            // All that the child does from here on, its end too, is seen by both.
            child.stdin.take().expect("a pipe").write_all(b"g").expect("it reads");
            assert!(child.wait().expect("it ends").success());
            observer.end();
            observer.detach();
            assert!(perf.wait().expect("it ends").success());
            let text = fs::read_to_string(directory.path().join("counts")).expect("counts");
            let line =
                text.lines().find(|line| line.contains("lock:contention_end")).expect("a count");
            let count: u64 = line.split(',').next().unwrap_or_default().parse().expect("a number");
            let observation = observer.take();
            let report = &observation.probes[0];
            assert_eq!(report.status, ProbeStatus::Ready);
            let locks = observation.parts[0].locks.as_ref().expect("a section");
            // perf no longer counts what a thread does late in its end, which takes locks too. Others of the machine may
            // have kept the probe from seeing a wait.
            let unseen = report.cost.recursion_misses + locks.abandoned + locks.uncounted;
            assert!(count <= locks.waits + unseen, "{count}: {locks:#?}");
            let pipe = locks.sites.iter().filter(|site| site.class.as_deref() == Some("pipe"));
            let pipe: u64 = pipe.map(|site| site.waits).sum();
            assert!((30..=count).contains(&pipe), "{count}, {pipe} of them for a pipe: {locks:#?}");
        });
    }
}

/// Other programs on the CPUs change what these compare.
mod measured {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_is_that_of_bpftrace() {
        const NAME: &str = "the_cpu_time_of_a_process_is_that_of_bpftrace";
        if skip_without_namespaces(NAME)
            || skip_without_tracing(NAME)
            || is_missing("bpftrace", NAME)
        {
            return;
        }
        // Works after it has been told to, and then stops itself, so that all of it is in both windows.
        let work = "read line; n=0; while [ $n -lt 1000000 ]; do n=$((n+1)); done; kill -STOP $$";
        let mut worker =
            Command::new("sh").args(["-c", work]).stdin(Stdio::piped()).spawn().expect("a shell");
        let pid = worker.id();
        let Some((mut trace, mut out)) = time_on_cpu(pid) else {
            let _ = worker.kill();
            let _ = worker.wait();
            return skip(NAME, "bpftrace finds no tracepoints here");
        };
        let part = Part { host: "here".to_owned(), pid: Some(pid), ..Part::default() };
        let mut observer =
            Observer::open(ObserveRequest { probes: vec!["cpu".to_owned()], parts: vec![part] });
        observer.attach();
        observer.begin();
        let stolen_before = stolen();
        worker.stdin.take().expect("a pipe").write_all(b"go\n").expect("it reads");
        while !is_stopped(pid) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let stolen = stolen() - stolen_before;
        observer.end();
        observer.detach();
        // The shell has become bpftrace.
        interrupt(&trace);
        let mut text = String::new();
        out.read_to_string(&mut text).expect("text");
        trace.wait().expect("it ends");
        let observation = observer.take();
        let _ = worker.kill();
        let _ = worker.wait();
        let sum = text.lines().find_map(|line| line.strip_prefix("sum ")?.parse::<u64>().ok());
        let traced = sum.expect("a sum") as f64 / 1e9;
        let processes = &observation.parts[0].cpu.as_ref().unwrap().processes;
        let process = processes.iter().find(|process| process.pid == pid).expect("the worker");
        // False failures: 1e-9, computed: a shell would do 20 million passes a second.
        assert!(traced > 0.05, "{traced} s");
        // Between two switches bpftrace sees also what the hypervisor took from the CPU, which the kernel does
        // not count as time of the process:
        // https://elixir.bootlin.com/linux/v6.12/source/kernel/sched/core.c#L737
        // It tells the sum in ticks of 10 ms for each CPU.
        let least = 0.98 * traced - stolen - 0.02;
        let seconds = process.seconds;
        // False failures: 1e-6, computed: both see the same switches; interrupts take 0.3% of a CPU, not 2%.
        assert!(
            least < seconds && seconds < 1.02 * traced,
            "{seconds} s, and bpftrace {traced} s, of which the hypervisor took {stolen} s"
        );
    }
}
