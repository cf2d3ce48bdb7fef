//! Sockets of a peer that several clients send to.

use serde_json::{Value, json};
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::Program;

/// A group of five clients.
struct Clients<'a> {
    sockets: &'a str,
    flowops: String,
    iterations: u32,
}

fn profile_of(groups: &[Clients<'_>]) -> String {
    let group = |Clients { sockets, flowops, iterations }: &Clients<'_>| {
        format!(
            r#"
            [[group]]
            strands = 5
            [[group.transaction]]
            flowops = [{{ type = "connect", remotehost = "${{h}}", protocol = "udp", server_sockets = "{sockets}" }}]
            [[group.transaction]]
            iterations = {iterations}
            flowops = [{flowops}]
            [[group.transaction]]
            flowops = ["disconnect"]
            "#
        )
    };
    let groups: String = groups.iter().map(group).collect();
    format!("name = \"served\"\nvariables.h = {{ help = \"remote host\" }}\n{groups}")
}

fn profile(sockets: &str, flowops: &str) -> String {
    profile_of(&[Clients { sockets, flowops: flowops.to_owned(), iterations: 400 }])
}

fn run(text: &str, arguments: &[&str]) -> Document {
    let always = ["run", "served.toml", "--observe", "none", "--json", "run.json"];
    let program = Program::new(always.iter().chain(arguments));
    let finished = program.file("served.toml", text).finish();
    assert_eq!(finished.code, 0, "{finished}");
    finished.document()
}

const ECHO: &str = r#"{ type = "write", size = 100, verify = true }, { type = "read", size = 100, verify = true }"#;

/// Lets reads wait as long as it takes. Nothing is lost here, and on two busy CPUs an engine whose kernel threads spin may need
/// more than the second that a read waits by default.
fn patient(flowops: &str) -> String {
    flowops.replace(r#""read", "#, r#""read", timeout = "60s", "#)
}

/// Ways to send 8 datagrams and to read 8 answers.
const SEVERAL: [(&str, &str); 4] = [
    ("batch = 8", "batch = 8"),
    ("count = 8", "count = 8"),
    ("gso = 8, gro = true", "gso = 8, gro = true"),
    ("count = 2, batch = 4", "batch = 2, gso = 4"),
];

fn several((write, read): (&str, &str)) -> String {
    format!(
        r#"{{ type = "write", size = 100, verify = true, {write} }}, {{ type = "read", size = 60, verify = true, {read} }}"#
    )
}

/// How often the clients of a group have done what a flowop of theirs does.
fn done(document: &Document, group: usize, kind: &str) -> f64 {
    let of_group = |row: &&Value| row["side"] == "master" && row["group"] == group;
    let mut rows = document.list("/flowops").iter().filter(of_group);
    let row = rows.find(|row| row["type"] == kind).expect("a flowop of the group");
    assert_eq!((&row["failed"], &row["timeouts"]), (&json!(0), &json!(0)), "{row}");
    row["count"].as_f64().expect("a count")
}

/// Whichever workers read the datagrams of a transaction, and in whichever order they answer: each has its answer, which its
/// sender gets, and the transaction ends with the last of them.
fn each_datagram_is_answered(engine: &str) {
    // An engine with threads in the kernel does few.
    let fewer = if engine == "io_uring_sqpoll" { 10 } else { 1 };
    let mut groups = vec![];
    let mut requests = vec![];
    for sockets in ["per-worker", "shared"] {
        let forms = SEVERAL.iter().map(|form| (several(*form), 100 / fewer, 8));
        for (flowops, iterations, each) in forms.chain([(ECHO.to_owned(), 400 / fewer, 1)]) {
            groups.push(Clients { sockets, flowops: patient(&flowops), iterations });
            requests.push(f64::from(5 * iterations * each));
        }
    }
    let document = run(&profile_of(&groups), &["--engine", engine, "--workers", "2"]);
    for (number, (group, requests)) in groups.iter().zip(&requests).enumerate() {
        let of_group = ["write", "read"].map(|kind| done(&document, number, kind));
        assert_eq!(of_group, [*requests; 2], "{}: {}", group.sockets, group.flowops);
    }
    let transactions: u32 = groups.iter().map(|group| 5 * group.iterations).sum();
    assert_eq!(document.number("/transactions/count"), f64::from(transactions));
    let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
    let both_ways = 2.0 * requests.iter().sum::<f64>();
    assert_eq!((counted("sent"), counted("received")), (both_ways, both_ways));
    assert_eq!((counted("lost"), counted("duplicated")), (0.0, 0.0));
    assert_eq!(document.number("/operations/failed"), 0.0);
}

/// The same where requests do not wait for the answers to those before them.
fn requests_need_not_wait(engine: &str) {
    let ahead = patient(ECHO).replacen("verify", "outstanding = 16, verify", 1);
    let of = |sockets| Clients { sockets, flowops: ahead.clone(), iterations: 400 };
    let arguments = ["--engine", engine, "--workers", "2"];

    let document = run(&profile_of(&["per-connection", "per-worker"].map(of)), &arguments);
    let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
    for group in 0..2 {
        let of_group = ["write", "read"].map(|kind| done(&document, group, kind));
        assert_eq!(of_group, [2000.0; 2], "group {group}");
    }
    assert_eq!((counted("sent"), counted("received")), (8000.0, 8000.0));
    assert_eq!(["lost", "duplicated", "late"].map(counted), [0.0; 3]);
    assert_eq!(document.number("/transactions/count"), 4000.0);

    let document = run(&profile_of(&[of("shared")]), &arguments);
    let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
    assert_eq!((counted("sent"), counted("duplicated")), (4000.0, 0.0));
    // An answer that another worker overtook comes too late to end a transaction, at the end of the phase also to be read.
    let unread = counted("lost");
    assert_eq!(counted("received"), 4000.0 - unread);
    // 5 strands have 16 each under way.
    assert!(unread < 80.0, "{unread} unread");
    let late = counted("late") + unread;
    let transactions = document.number("/transactions/count");
    assert!((2000.0 - late..=2000.0).contains(&transactions), "{transactions}, {late} late");
}

on_every_engine!({
    each_datagram_is_answered: each_datagram_is_answered();
    requests_need_not_wait: requests_need_not_wait();
});

mod waiting {
    use super::*;

    /// A lost request has no answer, and later ones have theirs.
    #[test]
    fn clients_go_on_after_a_loss() {
        if skip_without_namespaces("clients_go_on_after_a_loss") {
            return;
        }
        let ahead = ECHO.replacen("verify", "outstanding = 16, verify", 1);
        for (echo, most_failed) in [(ECHO, 200.0), (&ahead[..], 0.0)] {
            let echo = echo.replace(r#""read", "#, r#""read", timeout = "50ms", "#);
            for sockets in ["per-connection", "per-worker", "shared"] {
                let arguments = ["--workers", "2", "--lab", "--loss", "2%", "--rtt", "1ms"];
                let document = run(&profile(sockets, &echo), &arguments);
                let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
                let missing = counted("sent") - counted("received");
                // False failures: 1e-20, computed: 79 are expected, of a Poisson distribution.
                assert!(missing > 10.0, "{sockets}: {missing}");
                assert_eq!(counted("lost"), missing, "{sockets}");
                let transactions = document.number("/transactions/count");
                assert!(
                    transactions >= 2000.0 - missing - counted("late"),
                    "{sockets}: {transactions}"
                );
                let failed = document.number("/operations/failed");
                // False failures: 1e-6 (x6), computed: 79 are expected, deviation 9; 24 stops of 50 ms would add as many again.
                assert!(failed <= most_failed, "{sockets}: {failed}");
            }
        }
    }

    /// Of several requests some are lost, or their answers: each is one lost datagram and one operation that fails.
    #[test]
    fn what_is_lost_of_several_is_counted_once() {
        if skip_without_namespaces("what_is_lost_of_several_is_counted_once") {
            return;
        }
        for engine in ["epoll", "io_uring"] {
            for (sockets, form) in
                [("per-worker", SEVERAL[0]), ("shared", SEVERAL[1]), ("shared", SEVERAL[2])]
            {
                let flowops = several(form).replace(r#""read", "#, r#""read", timeout = "50ms", "#);
                let text = profile(sockets, &flowops).replace("= 400", "= 60");
                let lab = ["--workers", "2", "--lab", "--loss", "2%", "--rtt", "1ms"];
                let document = run(&text, &[&["--engine", engine], &lab[..]].concat());
                let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
                let of = format!("{engine} {sockets} {form:?}");
                let missing = counted("sent") - counted("received");
                // False failures: 1e-20, computed: 95 are expected, of a Poisson distribution.
                assert!(missing > 10.0, "{of}: {missing}");
                assert_eq!(counted("lost"), missing, "{of}");
                // 300 transactions of 8 requests, each of which has an answer or fails; what came after its time counts as both.
                let failed = document.number("/operations/failed");
                let late = counted("late");
                assert!(
                    (missing..=missing + late).contains(&failed),
                    "{of}: {failed} {missing} {late}"
                );
                let answers = document.number("/frames/directions/1/stages/0/datagrams");
                // False failures: 1e-12 (x6), computed: of 2,400 requests 48 are lost on average, none or 400 never (binomial).
                assert!(answers < 2400.0 && answers > 2000.0, "{of}: {answers}");
            }
        }
    }
}

/// Also where several are received by one call, which the kernel may have joined.
#[test]
fn what_is_lost_at_a_shared_socket_is_counted_once() {
    if skip_without_namespaces("what_is_lost_at_a_shared_socket_is_counted_once") {
        return;
    }
    for flowop in [
        r#"{ type = "write", size = 200 }"#,
        r#"{ type = "write", size = 200, batch = 8, gso = 4, gro = true }"#,
    ] {
        for sockets in ["per-worker", "shared"] {
            let text = profile(sockets, flowop)
                .replace(r#"protocol = "udp""#, r#"protocol = "udp", wndsz = 2304"#);
            let document = run(&text, &["--lab", "--workers", "2"]);
            let stages = document.list("/frames/directions/0/stages");
            let datagrams = |stage: usize| stages[stage]["datagrams"].as_f64().unwrap();
            let lost = datagrams(0) - datagrams(4);
            // False failures: 1e-9 (x4), computed: 2,000 datagrams would each be read before the next, as a buffer holds two.
            assert!(lost > 0.0, "{stages:?}");
            assert_eq!(document.number("/datagrams/lost"), lost, "{sockets} {flowop}");
            // A busy machine may fill a CPU's backlog as well.
            let dropped = datagrams(3) - datagrams(4);
            assert_eq!(stages[4]["missing"].as_f64(), Some(dropped));
        }
    }
}

/// A strand of the server counts what it does for all its clients, which is no number of any client's transactions.
#[test]
fn clients_do_no_more_than_their_own_transactions() {
    let text = profile("shared", ECHO).replace("iterations = 400", "duration = \"1s\"");
    let document = run(&text, &["--workers", "1", "--ramp", "100ms"]);
    let sent = document.number("/frames/directions/0/stages/0/datagrams");
    let in_window = document.number("/transactions/count");
    // Before and behind the window are a ramp of 0.1 s and what the end takes; the one strand of the server that reads
    // does five times what a client does.
    // False failures: 1e-6, computed: a ramp of 0.1 s would need six times the rate of the window.
    assert!(sent < 1.6 * in_window, "{sent} in all, {in_window} of them in the window");
}

#[test]
fn sockets_that_no_cpu_chooses_are_told() {
    let text = profile("per-worker", ECHO);
    for (engine, told) in [("threads", true), ("epoll", false)] {
        let document = run(&text, &["--engine", engine, "--workers", "2"]);
        let warnings = document.list("/warnings").iter();
        let message = |warning: &Value| warning["message"].to_string();
        let found =
            warnings.map(message).any(|message| message.contains("by the hash of addresses"));
        assert_eq!(found, told, "{engine}");
    }
}

/// Over `lo`, a datagram is handled on the CPU of its sender, whose worker is the only one that reads it.
#[test]
fn with_a_socket_for_each_worker_datagrams_keep_their_order() {
    let text = profile("per-worker", r#"{ type = "write", size = 100 }"#);
    let text = text.replace("iterations = 400", "duration = \"1s\"\n        rate = 20000");
    let document = run(&text, &["--workers", "2"]);
    let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
    // False failures: 1e-6, computed: of 20,000 or more due in a second 95% would be late or lost.
    assert!(counted("received") > 1000.0);
    assert_eq!(counted("reordered"), 0.0);
}

/// What a server reads by one call it answers by one call. Over `lo`, the kernel does not take apart a message that it has not
/// sent yet, so a server that lets it join datagrams reads all of a client's at a time.
#[test]
fn answers_are_sent_together() {
    for form in [("gso = 8, gro = true", "batch = 8"), ("gso = 8, gro = true", "gso = 8")] {
        let text = profile("shared", &several(form)).replace("= 400", "= 100");
        let document = run(&text, &["--workers", "2"]);
        assert_eq!(document.number("/io/sends/datagrams"), 8000.0);
        // 500 of the clients and 500 of the server, or a few more where a buffer was full.
        let calls = document.number("/io/sends/calls");
        // False failures: 1e-6 (x2), computed: five messages are under way, and a buffer of 208 KiB holds more than a hundred.
        assert!((1000.0..1100.0).contains(&calls), "{form:?}: {calls} calls");
    }
}

#[test]
fn what_cannot_be_answered_one_by_one_is_refused() {
    let few = several(("batch = 8", "batch = 4"));
    let finished =
        Program::new(["run", "served.toml"]).file("served.toml", &profile("shared", &few)).finish();
    assert_eq!(finished.code, 2, "{finished}");
    let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("one read of as many datagrams"), "{finished}");
}
