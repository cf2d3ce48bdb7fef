//! Sockets of a peer that several clients send to.

use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::Program;

fn profile(sockets: &str, flowops: &str) -> String {
    format!(
        r#"
        name = "served"
        [variables]
        h = {{ help = "remote host" }}
        [[group]]
        strands = 5
        [[group.transaction]]
        flowops = [{{ type = "connect", remotehost = "${{h}}", protocol = "udp", server_sockets = "{sockets}" }}]
        [[group.transaction]]
        iterations = 400
        flowops = [{flowops}]
        [[group.transaction]]
        flowops = ["disconnect"]
        "#
    )
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

/// Transactions of a strand, of which an engine with threads in the kernel does few.
fn iterations(text: &str, engine: &str, number: u32) -> (String, f64) {
    let number = if engine == "io_uring_sqpoll" { number / 10 } else { number };
    (text.replace("iterations = 400", &format!("iterations = {number}")), f64::from(number * 5))
}

/// Whichever worker reads a request, its sender gets the answer.
fn each_client_is_answered(engine: &str) {
    for sockets in ["per-worker", "shared"] {
        let arguments = ["--engine", engine, "--workers", "2"];
        let document = run(&profile(sockets, &patient(ECHO)), &arguments);
        let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
        assert_eq!(document.number("/transactions/count"), 2000.0, "{sockets}");
        assert_eq!((counted("sent"), counted("received")), (4000.0, 4000.0), "{sockets}");
        assert_eq!((counted("lost"), counted("duplicated")), (0.0, 0.0), "{sockets}");
    }
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

/// Whichever workers read the datagrams of a transaction, and in whichever order they answer: each has its answer, and the
/// transaction ends with the last of them.
fn each_of_several_datagrams_is_answered(engine: &str) {
    for sockets in ["per-worker", "shared"] {
        for form in SEVERAL {
            let text = profile(sockets, &patient(&several(form)));
            let (text, transactions) = iterations(&text, engine, 100);
            let document = run(&text, &["--engine", engine, "--workers", "2"]);
            let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
            let of = format!("{sockets} {form:?}");
            assert_eq!(document.number("/transactions/count"), transactions, "{of}");
            let all = transactions * 16.0;
            assert_eq!((counted("sent"), counted("received")), (all, all), "{of}");
            assert_eq!((counted("lost"), counted("duplicated")), (0.0, 0.0), "{of}");
            assert_eq!(document.number("/operations/failed"), 0.0, "{of}");
        }
    }
}

/// The same where requests do not wait for the answers to those before them.
fn requests_need_not_wait(engine: &str) {
    let ahead = patient(ECHO).replacen("verify", "outstanding = 16, verify", 1);
    for sockets in ["per-connection", "per-worker", "shared"] {
        let arguments = ["--engine", engine, "--workers", "2"];
        let document = run(&profile(sockets, &ahead), &arguments);
        let counted = |key: &str| document.number(&format!("/datagrams/{key}"));
        assert_eq!((counted("sent"), counted("duplicated")), (4000.0, 0.0), "{sockets}");
        // An answer that another worker overtook comes too late to end a transaction, at the end of the phase also to be
        // read.
        let unread = counted("lost");
        assert_eq!(counted("received"), 4000.0 - unread, "{sockets}");
        assert!(unread == 0.0 || sockets == "shared", "{sockets}: {unread} unread");
        // 5 strands have 16 each under way.
        assert!(unread < 80.0, "{sockets}: {unread} unread");
        let late = counted("late") + unread;
        assert!(late == 0.0 || sockets == "shared", "{sockets}: {late} late");
        let transactions = document.number("/transactions/count");
        assert!(
            transactions >= 2000.0 - late && transactions <= 2000.0,
            "{sockets}: {transactions}"
        );
    }
}

on_every_engine!({
    each_client_is_answered: each_client_is_answered();
    each_of_several_datagrams_is_answered: each_of_several_datagrams_is_answered();
    requests_need_not_wait: requests_need_not_wait();
});

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
            assert!(missing > 10.0, "{sockets}: {missing}");
            assert_eq!(counted("lost"), missing, "{sockets}");
            let transactions = document.number("/transactions/count");
            assert!(
                transactions >= 2000.0 - missing - counted("late"),
                "{sockets}: {transactions}"
            );
            let failed = document.number("/operations/failed");
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
            assert!(answers < 2400.0 && answers > 2000.0, "{of}: {answers}");
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
    let text = profile("shared", ECHO).replace("iterations = 400", "duration = \"2s\"");
    let document = run(&text, &["--workers", "1", "--ramp", "100ms"]);
    let sent = document.number("/frames/directions/0/stages/0/datagrams");
    let in_window = document.number("/transactions/count");
    // Before and behind the window are a ramp of 0.1 s and what the end takes; the one strand of the server that reads
    // does five times what a client does.
    assert!(sent < 1.6 * in_window, "{sent} in all, {in_window} of them in the window");
}

#[test]
fn sockets_that_no_cpu_chooses_are_told() {
    let text = profile("per-worker", ECHO);
    for (engine, told) in [("threads", true), ("epoll", false)] {
        let document = run(&text, &["--engine", engine, "--workers", "2"]);
        let warnings = document.list("/warnings").iter();
        let message = |warning: &serde_json::Value| warning["message"].to_string();
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
