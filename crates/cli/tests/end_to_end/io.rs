//! I/O options, on both engines: each did what it is for by a count that is not its own, and what
//! arrives is what was sent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use wirecost_linux::netns::{NetNs, NetNsGuard};

use crate::document::Document;
use crate::program::{Finished, Program};

const MESSAGE: usize = 64 << 10;
const MESSAGES: usize = 40;

/// A profile that ends after so many turns, so that all its counts are known beforehand.
fn profile(protocol: &str, connect: &str, iterations: usize, flowops: &str) -> String {
    format!(
        "<profile name=\"io\">\n<group nthreads=\"1\">\n<transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol={protocol} {connect}\"/>\n\
         </transaction>\n<transaction iterations=\"{iterations}\">\n{flowops}\n</transaction>\n\
         <transaction iterations=\"1\">\n<flowop type=\"disconnect\"/>\n</transaction>\n</group>\n\
         </profile>\n"
    )
}

fn program(engine: &str, text: &str) -> Program {
    Program::new(["run", "io.xml", "--quiet", "--engine", engine, "--json", "run.json"])
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
    let row = document.list("/flowops").iter().find(|row| row["side"] == "peer");
    assert_eq!(row.expect("the peer's flowop")["bytes"], bytes, "{:#}", document.value());
}

fn setting<'a>(document: &'a Document, name: &str, host: &str) -> Option<(&'a str, &'a str)> {
    let settings = document.list("/settings").iter();
    let mut of = settings.filter(|s| s["name"] == name && s["host"] == host);
    let row = of.next()?;
    Some((row["asked"].as_str()?, row["granted"].as_str()?))
}

fn writes(options: &str) -> String {
    let flowop = format!("<flowop type=\"write\" options=\"size={MESSAGE} {options}\"/>");
    profile("tcp", "", MESSAGES, &flowop)
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

mod epoll {
    #[test]
    fn zerocopy() {
        super::zerocopy("epoll");
    }
    #[test]
    fn bytes_that_are_not_copied_are_counted() {
        super::bytes_that_are_not_copied_are_counted("epoll");
    }
    #[test]
    fn sinks_hold_what_was_sent() {
        super::sinks_hold_what_was_sent("epoll");
    }
    #[test]
    fn files_come_whole_by_any_way() {
        super::files_come_whole_by_any_way("epoll");
    }
    #[test]
    fn datagrams() {
        super::datagrams("epoll");
    }
    #[test]
    fn cork() {
        super::cork("epoll");
    }
}

mod threads {
    #[test]
    fn zerocopy() {
        super::zerocopy("threads");
    }
    #[test]
    fn bytes_that_are_not_copied_are_counted() {
        super::bytes_that_are_not_copied_are_counted("threads");
    }
    #[test]
    fn sinks_hold_what_was_sent() {
        super::sinks_hold_what_was_sent("threads");
    }
    #[test]
    fn files_come_whole_by_any_way() {
        super::files_come_whole_by_any_way("threads");
    }
    #[test]
    fn datagrams() {
        super::datagrams("threads");
    }
    #[test]
    fn cork() {
        super::cork("threads");
    }
}

/// On loopback the kernel copies all of it; and says that it does.
fn zerocopy(engine: &str) {
    for verify in ["", "verify"] {
        let document = good(&program(engine, &writes(&format!("zerocopy {verify}"))).finish());
        moved(&document, MESSAGE * MESSAGES);
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
        let options = format!("payload=file:$content sink=$sink sink_size={size}m {way}");
        let program = program(engine, &writes(&options));
        let directory = program.directory().to_owned();
        fs::write(directory.join("content"), &content).expect("a file");
        fs::create_dir(directory.join("sink")).expect("a directory");
        let variable = |name: &str| format!("{name}={}", directory.join(name).display());
        let (from, to) = (variable("content"), variable("sink"));
        let finished =
            program.args(["--workers", "1"]).args(["--var", &from, "--var", &to]).finish();
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
    for (way, size) in [("", ""), ("splice", ""), ("o_direct", ""), ("o_direct", "size=10000")] {
        let flowop = format!("<flowop type=\"sendfile\" options=\"dir=$content {size} {way}\"/>");
        let program = program(engine, &profile("tcp", "", 5, &flowop));
        let directory = program.directory().to_owned();
        fs::write(directory.join("content"), &content).expect("a file");
        let from = format!("content={}", directory.join("content").display());
        let document = good(&program.args(["--var", &from]).finish());
        moved(&document, 5 * content.len());
        match way {
            "" => assert!(document.is_null("/io")),
            _ => assert_eq!(document.count("/io/spliced_bytes"), 5 * content.len() as u64),
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
        let document = good(&program(engine, &profile("udp", "", 50, &both.concat())).finish());
        let number = 50 * sends * each;
        assert_eq!(document.count("/datagrams/sent"), 2 * number, "{options}");
        assert_eq!(document.count("/datagrams/received"), 2 * number, "{options}");
        assert_eq!(document.count("/datagrams/lost"), 0, "{options}");
        for row in document.list("/flowops") {
            assert_eq!(row["count"], number, "{options}: {row}");
            assert_eq!(row["bytes"], 1000 * number, "{options}: {row}");
            assert_eq!(row["latency_us"]["count"], number, "{options}: {row}");
        }
        assert_eq!(document.count("/io/sends/calls"), 2 * 50 * sends, "{options}");
        assert_eq!(document.count("/io/sends/datagrams"), 2 * number, "{options}");
        if options.contains("batch") {
            assert_eq!(document.count("/io/receives/datagrams"), 2 * number, "{options}");
        }
        if options.contains("gro") {
            assert_eq!(document.count("/io/receives/messages"), 2 * number / 4);
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
             <flowop type=\"read\" options=\"size=1\"/>"
        );
        let space = Space::new();
        space.inside(|| {
            let text = profile("tcp", "tcp_nodelay", 100, &flowops);
            moved(&good(&program(engine, &text).finish()), 100_000);
            segments_sent()
        })
    });
    let [plain, corked] = segments;
    // The answers, acknowledgements and whatever else there is are the same for both.
    assert!(plain >= corked + 850, "{plain} segments, {corked} with a cork");
}

#[test]
fn limits_of_sockets_are_granted_and_told() {
    let text = profile("tcp", "notsent_lowat=16k busy_poll=50", 5, "<flowop type=\"nop\"/>");
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
    let program = Program::unprivileged(&["run", "@rr", "--duration", "200ms", "--ramp", "0s"])
        .args(["--quiet", "--json", "run.json", "--var", "options=busy_poll=50"]);
    let finished = program.finish();
    let document = good(&finished);
    assert_eq!(setting(&document, "busy_poll", "master"), Some(("50", "0")));
    assert!(finished.stdout.contains("CAP_NET_ADMIN"), "{finished}");
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
    // A file of the kernel's own that has a size.
    let file = "dir=/sys/kernel/mm/transparent_hugepage/enabled";
    let flowop = format!("<flowop type=\"sendfile\" options=\"{file} o_direct\"/>");
    let finished = program("epoll", &profile("tcp", "", 1, &flowop)).finish();
    assert_ne!(finished.code, 0, "{finished}");
    assert!(finished.stderr.contains("does not take O_DIRECT"), "{finished}");

    let finished = program("epoll", &writes("sink=/no/such/place")).finish();
    assert_ne!(finished.code, 0, "{finished}");
    assert!(finished.stderr.contains("/no/such/place"), "{finished}");
}
