//! Controllers that want to harm an agent's host: each order is raw JSON on the agent's port. The agent
//! refuses it with a reason, takes little memory and few threads, and serves the next controller.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use wirecost_fleet::wire::{self, Notice, Order, PhaseTimes};
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, Nanos, SECOND};
use wirecost_model::observe::{ObserveRequest, ObserveTimes};
use wirecost_model::plan::{Endpoints, Plan, Prepared};

use crate::agents::{Agent, Hostile, plan};
use crate::engines;
use crate::program::{Program, until};

/// Measured: the process that listens has 3 MiB and one thread, whoever connects.
const LISTENER: Usage = Usage { memory: 8 << 20, threads: 1 };
/// Measured: a session has 3 MiB and up to 6 threads; one that reads a list of a million elements before it
/// refuses that 18 MiB.
const SESSION: Usage = Usage { memory: 32 << 20, threads: 8 };

/// What a process has had at most of memory of its own, in bytes, and its threads now. Pages of its
/// executable are left out: the kernel decides how many of them are in memory.
#[derive(Debug)]
struct Usage {
    memory: u64,
    threads: u64,
}

impl Usage {
    /// None of a process that has ended.
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let memory = number("VmHWM:")?.saturating_sub(number("RssFile:")?) << 10;
        Some(Self { memory, threads: number("Threads:")? })
    }

    fn is_within(&self, limit: &Self) -> bool {
        self.memory <= limit.memory && self.threads <= limit.threads
    }
}

/// No process of the agent has taken more than it needs to refuse. Of a session this can be seen only
/// while it lasts.
#[track_caller]
fn is_bounded(agent: &Agent) {
    let listener = Usage::of(agent.pid()).unwrap();
    assert!(listener.is_within(&LISTENER), "{listener:?}");
    for session in agent.sessions().into_iter().filter_map(Usage::of) {
        assert!(session.is_within(&SESSION), "{session:?}");
    }
}

#[track_caller]
fn is_unharmed(agent: &Agent) {
    is_bounded(agent);
    let host = format!("peer={}", agent.address);
    // The attacker may still hold the host.
    Program::short_run("@rr", &["--host", &host, "--share"]).measure();
}

fn frame(value: &Value) -> Vec<u8> {
    let body = value.to_string();
    [&(body.len() as u32).to_le_bytes(), body.as_bytes()].concat()
}

impl Hostile {
    fn say(&mut self, value: &Value) {
        self.stream.write_all(&frame(value)).unwrap();
    }

    /// Why the agent refuses this order, without taking much for that.
    #[track_caller]
    fn refused(&mut self, agent: &Agent, value: &Value) -> String {
        self.say(value);
        match self.notice() {
            Notice::Failed { message, .. } => {
                is_bounded(agent);
                message
            }
            other => panic!("it obeys: {other:?}"),
        }
    }
}

/// The plan of a master, as JSON, with something else in it.
fn altered(edit: impl FnOnce(&mut Value)) -> Value {
    let mut value = serde_json::to_value(Order::Prepare(Box::new(plan(0)))).unwrap();
    edit(&mut value["prepare"]);
    value
}

/// The options of the master's transfer.
fn options(plan: &mut Value) -> &mut Value {
    &mut plan["program"]["groups"][0]["phases"][1]["acts"][0]["options"]
}

#[test]
fn plans_out_of_bounds_are_refused_before_they_are_carried_out() {
    let agent = Agent::start();
    let attacks: Vec<(&str, Value)> = vec![
        (
            "connections that flowops name is",
            altered(|p| options(p)["conn"] = json!({"first": 0, "last": u32::MAX})),
        ),
        ("workers is 4294967295", altered(|p| p["workers"] = json!(u32::MAX))),
        ("logged_operations is", altered(|p| p["logged_operations"] = json!(u64::MAX))),
        (
            "the size of an object of congestion control is 1048577",
            altered(|p| {
                let object = "AAAA".repeat((1 << 20) / 3) + "AAA=";
                p["congestion_objects"] = json!([{"name": "x", "object": object}]);
            }),
        ),
        (
            "the name of congestion control",
            altered(|p| {
                let object = json!({"name": "x".repeat(5000), "object": ""});
                p["congestion_objects"] = json!([object]);
            }),
        ),
        ("interval is 1", altered(|p| p["interval"] = json!(1))),
        (
            "strands with a thread for each is 1000000",
            altered(|p| {
                p["engine"] = json!("threads");
                p["program"]["groups"][0]["strands"] = json!(1_000_000);
            }),
        ),
        (
            "is there twice",
            altered(|p| {
                let group = p["program"]["groups"][0].clone();
                p["program"]["groups"] = json!(vec![group; 1000]);
            }),
        ),
        ("strands is", altered(|p| p["program"]["groups"][0]["strands"] = json!(u32::MAX))),
        ("count is", altered(|p| options(p)["count"] = json!(u64::MAX))),
        ("size is", altered(|p| options(p)["size"] = json!({"fixed": u64::MAX}))),
        (
            "is from 2 to 1",
            altered(|p| {
                let drawn = json!({"exponential": {"mean": 1, "min": 2, "max": 1}});
                options(p)["size"] = drawn;
            }),
        ),
        (
            "rounds of loops around a mix",
            altered(|p| {
                let nothing = json!({"weight": u32::MAX, "parts": []});
                let seldom = json!({"weight": 1, "parts": [{"flowop": 0}]});
                let mut parts = json!([{ "mix": [nothing, seldom] }]);
                for _ in 0..3 {
                    parts = json!([{"loop": {"times": u32::MAX, "parts": parts}}]);
                }
                p["program"]["groups"][0]["phases"][1]["order"] = parts;
            }),
        ),
        (
            "the memory in bytes that the plan needs",
            altered(|p| {
                p["program"]["groups"][0]["strands"] = json!(1_000_000);
                p["workers"] = json!(4096);
                options(p)["size"] = json!({"fixed": 16 << 20});
            }),
        ),
    ];
    for (words, attack) in attacks {
        let mut hostile = Hostile::connect(&agent.address);
        let message = hostile.refused(&agent, &attack);
        assert!(message.contains(words), "{message}, not {words}");
    }
    // Too long to be read whole.
    let services = altered(|p| {
        let service = serde_json::to_value(&plan(1).program.services[0]).unwrap();
        p["program"]["services"] = json!(vec![service; 20_000]);
    });
    let phases = altered(|p| p["program"]["groups"][0]["phases"] = json!(vec![(); 1_000_000]));
    let objects = altered(|p| {
        p["congestion_objects"] = json!(vec![json!({"name": "x", "object": ""}); 9]);
    });
    for attack in [services, phases, objects] {
        let message = Hostile::connect(&agent.address).refused(&agent, &attack);
        assert!(message.contains("a list of at most"), "{message}");
    }
    is_unharmed(&agent);
}

#[test]
fn payloads_that_are_no_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    let agent = Agent::with(&["--files", directory.path().to_str().unwrap(), "--files", "/dev"]);
    for path in [fifo.to_str().unwrap(), "/dev/zero"] {
        let attack = altered(|p| options(p)["payload"] = json!({ "file": path }));
        let message = Hostile::connect(&agent.address).refused(&agent, &attack);
        assert!(message.contains("not a regular file"), "{message}");
    }
    is_unharmed(&agent);
}

/// What the controller of a run from here gets of a file that an agent elsewhere has.
#[test]
fn files_are_below_the_directories_that_the_agent_names() {
    let directory = tempfile::tempdir().unwrap();
    let (open, secret) = (directory.path().join("open"), directory.path().join("secret"));
    fs::create_dir(&open).unwrap();
    fs::write(open.join("file"), [7; 10_000]).unwrap();
    fs::write(&secret, [8; 10_000]).unwrap();
    std::os::unix::fs::symlink(&secret, open.join("link")).unwrap();
    let (open, secret) = (open.to_str().unwrap(), secret.to_str().unwrap());
    let closed = Agent::start();
    let agent = Agent::with(&["--files", open]);
    let send = |agent: &Agent, dir: &str| {
        let master = format!("master={}", agent.address);
        let text = format!(
            "<profile name=\"f\"><group nthreads=\"1\"><transaction iterations=\"1\">\n\
             <flowop type=\"connect\" options=\"remotehost=127.0.0.1 protocol=tcp\"/>\n\
             <flowop type=\"sendfile\" options=\"dir={dir}\"/>\n\
             <flowop type=\"disconnect\"/></transaction></group></profile>"
        );
        let run = ["run", "f.xml", "--quiet", "--json", "run.json", "--host"];
        Program::new(run).args([master]).file("f.xml", &text).finish()
    };
    let finished = send(&agent, open);
    let document = finished.document();
    assert_eq!((finished.code, document.count("/throughput/tx_bytes")), (0, 10_000), "{finished}");
    let outside = [secret.to_owned(), format!("{open}/link"), format!("{open}/../secret")];
    for path in outside.into_iter().chain(["/etc".to_owned()]) {
        let finished = send(&agent, &path);
        assert_eq!(finished.code, 3, "{finished}");
        assert!(finished.document().text("/error").contains("orders may not use it"), "{finished}");
    }
    assert_eq!(send(&closed, open).code, 3);
    // Nor is anything made or emptied elsewhere.
    let sink = altered(|p| {
        let acts = &mut p["program"]["groups"][0]["phases"][1]["acts"][0];
        acts["kind"] = json!("read");
        acts["options"]["io"]["sink"] = json!({ "text": directory.path() });
    });
    let message = Hostile::connect(&agent.address).refused(&agent, &sink);
    assert!(message.contains("orders may not use it"), "{message}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    assert!(fs::read(secret).unwrap().iter().all(|&byte| byte == 8));
}

#[test]
fn silent_connections_cost_no_threads() {
    let agent = Agent::start();
    let silent: Vec<TcpStream> =
        (0..3000).map(|_| TcpStream::connect(&agent.address).unwrap()).collect();
    is_unharmed(&agent);
    // Who came before that run has been accepted, and most have been closed again.
    let descriptors = fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count();
    assert!(descriptors < 320, "{descriptors} descriptors");
    drop(silent);
    // Nor is a long message waited for before a hello.
    let mut stream = TcpStream::connect(&agent.address).unwrap();
    stream.write_all(&(256u32 << 20).to_le_bytes()).unwrap();
    let taken = (0..64).try_for_each(|_| stream.write_all(&[b' '; 1 << 20]));
    assert!(taken.is_err(), "it reads on");
    is_unharmed(&agent);
}

/// Who asks without reading the answers is not asked for more.
#[test]
fn answers_that_nobody_reads_take_no_memory() {
    let agent = Agent::start();
    let mut hostile = Hostile::connect(&agent.address);
    let mut pings = Vec::new();
    for number in 0..10_000u64 {
        wire::write(&mut pings, &Order::Ping { number }).unwrap();
    }
    // An agent that reads on takes all of it within this time, a hundred megabytes in the end.
    hostile.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let taken = (0..400).try_for_each(|_| hostile.stream.write_all(&pings));
    let error = taken.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    is_unharmed(&agent);
}

/// The master's and the peer's session of a run on one agent, as far as both are connected.
fn connected(agent: &Agent, edit: impl Fn(&mut Plan)) -> [Hostile; 2] {
    let mut both = [0, 1].map(|host| {
        let mut hostile = Hostile::connect(&agent.address);
        let mut plan = plan(host);
        edit(&mut plan);
        hostile.order(&Order::Prepare(Box::new(plan)));
        hostile
    });
    let hosts: Vec<Prepared> = both
        .iter_mut()
        .map(|hostile| match hostile.notice() {
            Notice::Prepared(prepared) => prepared,
            other => panic!("{other:?}"),
        })
        .collect();
    for hostile in &mut both {
        hostile.order(&Order::Connect(Endpoints { hosts: hosts.clone() }));
        assert!(matches!(hostile.notice(), Notice::Ready));
    }
    both
}

fn times(phase: u32, window: Option<Nanos>) -> PhaseTimes {
    let start = Monotonic.now();
    PhaseTimes {
        phase,
        start,
        window: window.map(|length| (start, start + length)),
        unobserved: Vec::new(),
        observe: None,
    }
}

#[test]
fn phases_that_cannot_be_are_refused() {
    let agent = Agent::start();
    let [mut hostile, _peer] = connected(&agent, |_| {});
    let refused = |hostile: &mut Hostile, times: PhaseTimes, words: &str| {
        let order = serde_json::to_value(Order::Start(times)).unwrap();
        let message = hostile.refused(&agent, &order);
        assert!(message.contains(words), "{message}");
    };
    refused(&mut hostile, times(7, None), "is not in the plan");
    let mut early = times(1, Some(SECOND));
    early.window = Some((0, early.start));
    refused(&mut hostile, early, "the beginning of the window");
    let mut late = times(1, None);
    late.start += 3600 * SECOND;
    refused(&mut hostile, late, "start is");
    refused(&mut hostile, times(1, Some(300 * 24 * 3600 * SECOND)), "use a longer interval");
    let finish = json!({"finish": {"limits": {"9": []}}});
    assert!(hostile.refused(&agent, &finish).contains("is not in the plan"));
    // The second of each in one session would take as much again.
    let again = serde_json::to_value(Order::Prepare(Box::new(plan(0)))).unwrap();
    assert!(hostile.refused(&agent, &again).contains("second"));
    let again = serde_json::to_value(Order::Connect(Endpoints::default())).unwrap();
    assert!(hostile.refused(&agent, &again).contains("an unexpected order"));
    is_unharmed(&agent);
}

/// Before there is a plan nothing says how often to look.
#[test]
fn nobody_observes_in_a_phase_of_no_plan() {
    let agent = Agent::start();
    let mut hostile = Hostile::connect(&agent.address);
    hostile.order(&Order::Observe(ObserveRequest::default()));
    assert!(matches!(hostile.notice(), Notice::Watching { .. }));
    let mut start = times(0, Some(SECOND));
    start.observe = Some(ObserveTimes { attach: start.start, start: start.start, end: None });
    let order = serde_json::to_value(Order::Start(start)).unwrap();
    assert!(hostile.refused(&agent, &order).contains("before a plan"));
    is_unharmed(&agent);
}

/// Whatever a session does, nothing of it is left soon after its controller has gone.
#[test]
fn work_ends_when_its_asker_has_gone() {
    let agent = Agent::start();
    for engine in engines::names() {
        let mut both = connected(&agent, |plan| {
            plan.engine = serde_json::from_value(json!(engine)).unwrap();
            for phase in plan.program.groups[0].phases.iter_mut().flatten() {
                phase.until = wirecost_model::profile::Until::Duration(Duration::from_secs(3600));
            }
        });
        // One works for an hour, the other waits to begin.
        let mut later = times(0, None);
        later.start += 50 * SECOND;
        both[0].order(&Order::Start(times(0, Some(3600 * SECOND))));
        both[1].order(&Order::Start(later));
        for hostile in &mut both {
            hostile.order(&Order::Ping { number: 1 });
            while !matches!(hostile.notice(), Notice::Pong { .. }) {}
        }
        drop(both);
        until("no process works for them", || agent.sessions().is_empty());
    }
    is_unharmed(&agent);
}
