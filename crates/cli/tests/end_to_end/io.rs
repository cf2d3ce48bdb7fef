//! I/O options, on both engines: each did what it is for by a count that is not its own, and what
//! arrives is what was sent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use wirecost_linux::netns::{NetNs, NetNsGuard};

use crate::document::Document;
use crate::engines;
use crate::program::{Finished, Program, sources};

const MESSAGE: usize = 64 << 10;
const MESSAGES: usize = 40;
/// Questions and answers by datagrams.
const TURNS: u64 = 10;

/// A profile of one phase that is gone through once, so that all its counts are known beforehand.
fn profile(protocol: &str, connect: &str, flowops: &str) -> String {
    profile_of(protocol, connect, [flowops.to_owned()])
}

/// The same of several groups at once.
fn profile_of(protocol: &str, connect: &str, groups: impl IntoIterator<Item = String>) -> String {
    let group = |flowops| {
        format!(
            "<group nthreads=\"1\">\n<transaction iterations=\"1\">\n\
             <flowop type=\"connect\" options=\"remotehost=$h protocol={protocol} {connect}\"/>\n\
             {flowops}\n<flowop type=\"disconnect\"/>\n</transaction>\n</group>\n"
        )
    };
    let groups: String = groups.into_iter().map(group).collect();
    format!("<profile name=\"io\">\n{groups}</profile>\n")
}

fn program(engine: &str, text: &str) -> Program {
    Program::new(["run", "io.xml", "--quiet", "--engine", engine, "--json", "run.json"])
        .args(["--observe", "none"])
        .file("io.xml", text)
}

#[track_caller]
fn good(finished: &Finished) -> Document {
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
    document
}

#[track_caller]
fn moved(document: &Document, bytes: usize) {
    let both = document.count("/throughput/tx_bytes") + document.count("/throughput/rx_bytes");
    assert_eq!(both, bytes as u64, "{:#}", document.value());
}

fn setting<'a>(document: &'a Document, name: &str, host: &str) -> Option<(&'a str, &'a str)> {
    let settings = document.list("/settings").iter();
    let mut of = settings.filter(|s| s["name"] == name && s["host"] == host);
    let row = of.next()?;
    Some((row["asked"].as_str()?, row["granted"].as_str()?))
}

fn writes(options: &str) -> String {
    let count = format!("size={MESSAGE} count={MESSAGES}");
    profile("tcp", "", &format!("<flowop type=\"write\" options=\"{count} {options}\"/>"))
}

/// Bytes that no two messages' parts have in common by chance.
fn content() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8 | 1
    };
    (0..MESSAGE).map(|_| next()).collect()
}

#[test]
fn a_time_that_sent_data_may_wait_is_effective_at_both_ends() {
    let flowop = "<flowop type=\"write\" options=\"size=1k\"/>";
    let profile = profile("tcp", "tcp_user_timeout=2500ms", flowop);
    let document = good(&program("epoll", &profile).finish());
    for host in ["master", "peer"] {
        assert_eq!(setting(&document, "tcp_user_timeout", host), Some(("2500ms", "2500ms")));
    }
}

on_every_engine!({
    zerocopy: zerocopy();
    bytes_that_are_not_copied_are_counted: bytes_that_are_not_copied_are_counted();
    sinks_hold_what_was_sent: sinks_hold_what_was_sent();
    files_come_whole_by_any_way: files_come_whole_by_any_way();
    datagrams: datagrams();
    cork: cork();
});

/// On loopback the kernel copies all of it; and says that it does.
fn zerocopy(engine: &str) {
    for verify in ["", "verify"] {
        // The answer says that all has come, so the kernel is done with its pages.
        let flowops = format!(
            "<flowop type=\"write\" options=\"size={MESSAGE} count={MESSAGES} zerocopy {verify}\"/>\n\
             <flowop type=\"read\" options=\"size=1\"/>"
        );
        let document = good(&program(engine, &profile("tcp", "", &flowops)).finish());
        moved(&document, MESSAGE * MESSAGES + 1);
        let count = |name: &str| document.count(&format!("/io/zerocopy/{name}"));
        assert!(count("calls") >= MESSAGES as u64);
        assert!(count("completed") > 0 && count("completed") <= count("calls"));
        assert_eq!(document.number("/io/zerocopy/copied_share"), 1.0);
        assert_eq!(count("refused"), 0);
        assert!(document.has_warning("zerocopy-copied"));
        assert_eq!(setting(&document, "zerocopy", "master"), Some(("on", "on")));
        assert_eq!(setting(&document, "zerocopy", "peer"), None);
    }
}

/// A namespace of the test's own.
struct Space {
    namespace: NetNs,
    _guard: NetNsGuard,
}

impl Space {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("wirecost-io-{}-{number}", std::process::id());
        let namespace = NetNs::create(&name).expect("a namespace");
        let guard = NetNsGuard::new(NetNs::open(&name).expect("the namespace"));
        let space = Self { namespace, _guard: guard };
        space.inside(|| {
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("ip runs").success());
        });
        space
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).expect("the namespace can be entered")
    }
}

#[test]
fn zerocopy_without_memory_for_notices_copies_and_says_so() {
    let space = Space::new();
    let document = space.inside(|| {
        fs::write("/proc/sys/net/core/optmem_max", "1")
            .expect("a namespace has a limit of its own");
        good(&program("epoll", &writes("zerocopy")).finish())
    });
    moved(&document, MESSAGE * MESSAGES);
    assert_eq!(document.count("/io/zerocopy/calls"), 0);
    assert!(document.count("/io/zerocopy/refused") >= MESSAGES as u64);
    assert!(document.is_null("/io/zerocopy/copied_share"));
    assert!(document.has_warning("zerocopy-refused"));
}

/// What an ordinary user may not lock in memory is copied: each message alone is more than that.
/// The rings themselves are within it.
#[test]
fn zerocopy_beyond_the_limit_of_locked_memory_copies_and_says_so() {
    const LONG: usize = 8 << 20;
    let options = format!("size={LONG} count=3 zerocopy");
    let text = profile("tcp", "", &format!("<flowop type=\"write\" options=\"{options}\"/>"));
    for engine in engines::names() {
        let arguments = ["run", "io.xml", "--quiet", "--engine", engine, "--json", "run.json"];
        let program = Program::unprivileged_within("ulimit -l 4096", &arguments);
        let document = good(&program.args(["--workers", "1"]).file("io.xml", &text).finish());
        assert!(!document.has_warning("fallback"), "{:#}", document.at("/warnings"));
        moved(&document, 3 * LONG);
        assert!(document.count("/io/zerocopy/refused") >= 3, "{engine}: {:#}", document.at("/io"));
        assert!(document.has_warning("zerocopy-refused"), "{engine}");
    }
}

/// A number is no segment of its own.
#[test]
fn numbers_of_zerocopy_go_with_their_messages() {
    for engine in engines::event_loops() {
        let segments = ["verify", "verify zerocopy"].map(|options| {
            let flowops = format!(
                "<flowop type=\"write\" options=\"size=1000 {options}\"/>\n\
                 <flowop type=\"read\" options=\"size=1\"/>\n"
            );
            let space = Space::new();
            space.inside(|| {
                let text = profile("tcp", "tcp_nodelay", &flowops.repeat(100));
                moved(&good(&program(engine, &text).finish()), 100 * 1001);
                segments_sent()
            })
        });
        let [plain, zerocopy] = segments;
        // A segment each would be a hundred more.
        // False failures: 1e-6 (x5), computed: what is sent again or acknowledged late is some segments of 200.
        assert!(zerocopy < plain + 50, "{engine}: {plain} segments, {zerocopy} with zerocopy");
    }
}

fn bytes_that_are_not_copied_are_counted(engine: &str) {
    for (option, member) in [("discard", "discarded_bytes"), ("splice", "spliced_bytes")] {
        let document = good(&program(engine, &writes(option)).finish());
        moved(&document, MESSAGE * MESSAGES);
        assert_eq!(document.count(&format!("/io/{member}")), (MESSAGE * MESSAGES) as u64);
        assert_eq!(setting(&document, option, "peer"), Some(("on", "on")));
        assert_eq!(setting(&document, option, "master"), None);
        assert_eq!(document.has_warning("discarded"), option == "discard");
    }
}

fn only_file(directory: &Path) -> Vec<u8> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("the directory of the sink")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    fs::read(files.remove(0)).expect("the file of the sink")
}

/// The messages are the content of a file, so the sink's file must be that content again and again.
fn sinks_hold_what_was_sent(engine: &str) {
    let content = content();
    for (way, size) in [("", 64), ("splice", 64), ("o_direct", 64), ("", 1), ("splice", 1)] {
        let options = format!("payload=file:content sink=sink sink_keep sink_size={size}m {way}");
        let program = program(engine, &writes(&options));
        fs::write(program.directory().join("content"), &content).expect("a file");
        fs::create_dir(program.directory().join("sink")).expect("a directory");
        let finished = program.args(["--workers", "1"]).finish();
        let document = good(&finished);
        let kept = only_file(&finished.path("sink"));
        let expected = (size << 20).min(MESSAGE * MESSAGES);
        assert_eq!(kept.len(), expected, "{way} {size}m");
        assert!(kept.chunks(MESSAGE).all(|message| message == content), "{way} {size}m");
        assert_eq!(document.count("/io/sink_bytes"), (MESSAGE * MESSAGES) as u64);
        moved(&document, MESSAGE * MESSAGES);
    }
}

/// `sendfile` and its like, of a file that is no multiple of anything.
fn files_come_whole_by_any_way(engine: &str) {
    let content: Vec<u8> = content().into_iter().cycle().take(1_234_567).collect();
    let ways = ["splice", "o_direct", "size=10000 o_direct"];
    for ways in [&[""][..], &ways] {
        let sends = ways.iter().map(|way| {
            format!("<flowop type=\"sendfile\" options=\"dir=content count=5 {way}\"/>")
        });
        let program = program(engine, &profile_of("tcp", "", sends));
        fs::write(program.directory().join("content"), &content).expect("a file");
        let document = good(&program.finish());
        let all = 5 * content.len() * ways.len();
        moved(&document, all);
        match ways {
            [""] => assert!(document.is_null("/io")),
            _ => assert_eq!(document.count("/io/spliced_bytes"), all as u64),
        }
    }
}

/// In answer and question, so that none has to be lost.
fn datagrams(engine: &str) {
    for (options, sends, each) in
        [("gso=8", 1, 8), ("batch=8", 1, 8), ("gso=4 batch=2 gro", 1, 8), ("batch=3 count=2", 2, 3)]
    {
        let both = ["write", "read"].map(|kind| {
            format!("<flowop type=\"{kind}\" options=\"size=1000 verify {options}\"/>\n")
        });
        let flowops = both.concat().repeat(TURNS as usize);
        let document = good(&program(engine, &profile("udp", "", &flowops)).finish());
        let number = TURNS * sends * each;
        assert_eq!(document.count("/datagrams/sent"), 2 * number, "{options}");
        assert_eq!(document.count("/datagrams/received"), 2 * number, "{options}");
        assert_eq!(document.count("/datagrams/lost"), 0, "{options}");
        let moving = |row: &&serde_json::Value| row["bytes"] != 0;
        let rows: Vec<_> = document.list("/flowops").iter().filter(moving).collect();
        assert_eq!(rows.len() as u64, 4 * TURNS);
        for row in rows {
            assert_eq!(row["count"], sends * each, "{options}: {row}");
            assert_eq!(row["bytes"], 1000 * sends * each, "{options}: {row}");
            assert_eq!(row["latency_us"]["count"], sends * each, "{options}: {row}");
        }
        assert_eq!(document.count("/io/sends/calls"), 2 * TURNS * sends, "{options}");
        assert_eq!(document.count("/io/sends/datagrams"), 2 * number, "{options}");
        if options.contains("batch") {
            assert_eq!(document.count("/io/receives/datagrams"), 2 * number, "{options}");
        }
        if options.contains("gro") {
            // What came before an end received for the first time was not joined yet: 8 messages that
            // would have been 2, of each.
            let messages = document.count("/io/receives/messages");
            assert!((2 * number / 4..=2 * number / 4 + 12).contains(&messages), "{messages}");
        }
    }
}

/// Segments that a namespace has sent by TCP.
fn segments_sent() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut rows = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
    let mut both = names.split(' ').zip(values.split(' '));
    let (_, value) = both.find(|(name, _)| *name == "OutSegs").expect("OutSegs");
    value.parse().expect("a number")
}

/// Ten small messages a turn: one segment behind a cork, ten without.
fn cork(engine: &str) {
    let segments = ["", "tcp_cork"].map(|cork| {
        let flowops = format!(
            "<flowop type=\"write\" options=\"size=100 count=10 {cork}\"/>\n\
             <flowop type=\"read\" options=\"size=1\"/>\n"
        );
        let space = Space::new();
        space.inside(|| {
            let text = profile("tcp", "tcp_nodelay", &flowops.repeat(30));
            moved(&good(&program(engine, &text).finish()), 30 * 1001);
            segments_sent()
        })
    });
    let [plain, corked] = segments;
    // The answers, acknowledgements and whatever else there is are the same for both.
    // False failures: 1e-6 (x5), computed: 300 and 30; at 20 of 30 turns the cork would be open after 200 ms.
    assert!(plain >= corked + 250, "{plain} segments, {corked} with a cork");
}

#[test]
fn limits_of_sockets_are_granted_and_told() {
    let text = profile("tcp", "notsent_lowat=16k busy_poll=50", "<flowop type=\"nop\"/>");
    let document = good(&program("epoll", &text).finish());
    for host in ["master", "peer"] {
        assert_eq!(setting(&document, "notsent_lowat", host), Some(("16384", "16384")));
        assert_eq!(setting(&document, "busy_poll", host), Some(("50", "50")));
    }
    // Loopback has no device whose queue could be looked at.
    assert!(document.has_warning("no-effect"));
}

#[test]
fn who_may_not_poll_is_told() {
    let program =
        Program::unprivileged(&["run", "@rr", "--duration", "200ms", "--ramp", "0s", "--details"])
            .args(["--quiet", "--json", "run.json", "--var", "options=busy_poll=50"]);
    let finished = program.finish();
    // Whether it may poll at all differs from kernel to kernel.
    let document = finished.document();
    assert_eq!(setting(&document, "busy_poll.prefer", "master"), Some(("on", "off")));
    assert!(finished.stdout.contains("CAP_NET_ADMIN"), "{finished}");
}

/// Calls of this name per second of the probe's own window, which does not begin with that of the counters.
fn calls_per_second(document: &Document, name: &str) -> f64 {
    let calls = document.list("/observe/hosts/0/syscalls/calls");
    let row = calls.iter().find(|row| row["name"] == name).expect("it was called");
    row["per_second"].as_f64().expect("a rate")
}

/// Calls of this name that the kernel counted.
fn calls(document: &Document, name: &str) -> f64 {
    let calls = document.list("/observe/hosts/0/syscalls/calls");
    let row = calls.iter().find(|row| row["name"] == name).expect("it was called");
    row["count"].as_u64().expect("a count") as f64
}

/// By what the kernel counts: one call for each 32 datagrams.
#[test]
fn calls_are_as_few_as_said() {
    if sources().0 != "bpf" {
        eprintln!("skipped: system calls cannot be traced here");
        return;
    }
    let options = ["--observe", "syscalls", "--var", "options=gso=16 batch=2"];
    let document = Program::short_run("@udp-stream", &options).measure();
    // The window of the probe and that of the counters do not begin and end at once. With one of the two
    // options it would be 16 or 2.
    let (sent, traced) = (document.count("/datagrams/sent") as f64, calls(&document, "sendmmsg"));
    // False failures: 1e-6, computed: the windows would have to be 125 ms of 500 apart.
    assert!((24.0..48.0).contains(&(sent / traced)), "{sent} datagrams, {traced} calls");
}

/// Two reads for each request and response, one at each end: none that finds nothing.
#[test]
fn nobody_looks_for_an_answer_before_it_can_be_there() {
    if sources().0 != "bpf" {
        eprintln!("skipped: system calls cannot be traced here");
        return;
    }
    let options = ["--observe", "syscalls", "--connections", "8"];
    let document = Program::short_run("@rr", &options).measure();
    let reads = calls_per_second(&document, "read");
    let transactions = document.number("/transactions/per_second");
    // To look first would be four.
    // False failures: 1e-6, computed: the windows would have to be 125 ms of 500 apart.
    assert!((1.5..3.0).contains(&(reads / transactions)), "{reads} of {transactions} a second");
}

#[test]
fn a_variable_switches_options_of_built_ins() {
    let document =
        Program::short_run("@stream", &["--var", "options=notsent_lowat=64k discard"]).measure();
    assert!(document.count("/io/discarded_bytes") > 0);
    assert_eq!(setting(&document, "notsent_lowat", "master"), Some(("65536", "65536")));
    assert!(!document.has_warning("profile"), "{:#}", document.value());
    // What the protocol has no use for is said.
    let document = Program::short_run("@stream", &["--var", "options=gro"]).measure();
    assert!(document.is_null("/io"));
    assert!(document.has_warning("profile"), "{:#}", document.value());
}

#[test]
fn a_file_system_without_o_direct_is_named() {
    // A file of the kernel's own that has its true size.
    let file = "dir=/sys/kernel/notes";
    let flowop = format!("<flowop type=\"sendfile\" options=\"{file} o_direct\"/>");
    let finished = program("epoll", &profile("tcp", "", &flowop)).finish();
    assert_ne!(finished.code, 0, "{finished}");
    let said = finished.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("does not take O_DIRECT"), "{finished}");
    assert!(said.contains(" 5:1: sendfile of /sys/"), "{finished}");
    // TLS reads the file as ever.
    let document = good(&program("epoll", &profile("tls", "", &flowop)).finish());
    assert!(document.has_warning("profile"), "{:#}", document.value());

    let finished = program("epoll", &writes("sink=/no/such/place")).finish();
    assert_ne!(finished.code, 0, "{finished}");
    let said = finished.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("sink= names a directory that is there"), "{finished}");
}
