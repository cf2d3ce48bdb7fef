//! Listeners of a peer at which the strands of all its workers accept (`server_sockets` over TCP).

use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::Program;

/// Connections that stay open.
fn lasting(sockets: &str, flowops: &str) -> String {
    format!(
        r#"
        name = "served"
        [variables]
        h = {{ help = "remote host" }}
        [[group]]
        strands = 5
        [[group.transaction]]
        flowops = [{{ type = "connect", remotehost = "${{h}}", protocol = "tcp", server_sockets = "{sockets}", tcp_nodelay = true }}]
        [[group.transaction]]
        iterations = 400
        flowops = [{flowops}]
        [[group.transaction]]
        flowops = ["disconnect"]
        "#
    )
}

/// A connection per transaction.
fn short(sockets: &str, flowops: &str) -> String {
    format!(
        r#"
        name = "served"
        [variables]
        h = {{ help = "remote host" }}
        [[group]]
        strands = 5
        [[group.transaction]]
        iterations = 200
        flowops = [
            {{ type = "connect", remotehost = "${{h}}", protocol = "tcp", server_sockets = "{sockets}", tcp_nodelay = true }},
            {flowops},
            "disconnect",
        ]
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

const ECHO: &str = r#"{ type = "write", size = 100, verify = true }, { type = "read", size = 3000, verify = true }"#;

/// Accepted connections: all, and those by a worker on another CPU than that of their packets.
fn accepted(document: &Document) -> (f64, f64) {
    let counted = |key: &str| document.number(&format!("/connections/accepted/{key}"));
    (counted("on_own_cpu") + counted("on_other_cpu"), counted("on_other_cpu"))
}

/// Over `lo`, the packets of a connection are handled on the CPU of its client's worker, which is pinned.
#[test]
fn each_client_is_served_by_the_worker_of_its_packets() {
    for engine in ["epoll", "poll", "io_uring"] {
        for sockets in ["per-worker", "shared"] {
            let arguments = ["--engine", engine, "--workers", "2"];
            let own = |all: f64, (accepted, other): (f64, f64)| {
                assert_eq!(accepted, all, "{engine} {sockets}");
                assert!(other == 0.0 || sockets == "shared", "{engine}: {other} on another CPU");
            };
            let document = run(&lasting(sockets, ECHO), &arguments);
            assert_eq!(document.number("/transactions/count"), 2000.0, "{engine} {sockets}");
            own(5.0, accepted(&document));
            let document = run(&short(sockets, ECHO), &arguments);
            assert_eq!(document.number("/transactions/count"), 1000.0, "{engine} {sockets}");
            own(1000.0, accepted(&document));
        }
    }
}

/// The packets of clients on a CPU without a worker of the peer: another worker accepts, and the result says so.
#[test]
fn connections_to_a_cpu_without_a_worker_are_told() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        wirecost_linux::privilege::skip(
            "connections_to_a_cpu_without_a_worker_are_told",
            "needs two CPUs",
        );
        return;
    }
    let told = |sockets: &str, workers: &str| {
        let document = run(&short(sockets, ECHO), &["--workers", workers]);
        let (all, other) = accepted(&document);
        let mut warnings = document.list("/warnings").iter();
        let found = warnings.find(|warning| warning["code"] == "connections-on-other-cpu");
        let message = found.map(|warning| warning["message"].to_string());
        let counts = format!("{other} of {all} connections to peer");
        assert!(message.as_ref().is_none_or(|said| said.contains(&counts)), "{message:?} {counts}");
        message.is_some()
    };
    assert!(told("per-worker", "master=2,peer=1"));
    assert!(!told("per-worker", "2"));
    assert!(!told("shared", "master=2,peer=1"));
}

/// Both ends agree on the last transaction, and on what was sent and received at every snapshot: else the run fails.
#[test]
fn phases_that_last_for_a_time_end_alike() {
    for engine in ["epoll", "poll", "io_uring"] {
        for (text, least) in [
            (lasting("per-worker", r#"{ type = "write", size = 65536 }"#), 100.0),
            (lasting("shared", ECHO), 100.0),
            (short("shared", ECHO), 20.0),
            (short("per-worker", r#"{ type = "read", size = 500 }"#), 20.0),
        ] {
            let text = text.replace("iterations = 400", "duration = \"500ms\"");
            let text = text.replace("iterations = 200", "duration = \"500ms\"");
            let document = run(&text, &["--engine", engine, "--workers", "2"]);
            let transactions = document.number("/transactions/count");
            assert!(transactions > least, "{engine}: {transactions} transactions");
        }
    }
}

/// The client's source ports select the queue, the queue the CPU, and the CPU the worker.
#[test]
fn placed_connections_are_served_where_their_queue_is() {
    if skip_without_namespaces("placed_connections_are_served_where_their_queue_is") {
        return;
    }
    let lab = ["--lab", "--queues", "2", "--workers", "2", "--placement"];
    for (placement, strands) in [("one-per-queue", 2), ("all-on-one", 5)] {
        for text in [lasting("per-worker", ECHO), short("per-worker", ECHO)] {
            let text = text.replace("strands = 5", &format!("strands = {strands}"));
            let arguments: Vec<&str> = lab.iter().copied().chain([placement]).collect();
            let (accepted, other) = accepted(&run(&text, &arguments));
            assert!(accepted >= f64::from(strands));
            assert_eq!(other, 0.0, "{placement}: of {accepted}");
        }
    }
}

#[test]
fn an_engine_without_an_event_loop_is_refused() {
    let program = Program::new(["run", "served.toml", "--engine", "threads"]);
    let finished = program.file("served.toml", &lasting("shared", ECHO)).finish();
    assert_eq!(finished.code, 2, "{finished}");
    let said = format!("{} {}", finished.stdout, finished.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("use epoll, io_uring or poll"), "{finished}");
}

/// A peer that writes first would not know when to stop.
#[test]
fn a_transaction_that_the_client_does_not_lead_is_refused() {
    let text = lasting("per-worker", r#"{ type = "read", size = 100 }"#);
    let program = Program::new(["run", "served.toml", "--observe", "none"]);
    let finished = program.file("served.toml", &text).finish();
    assert_eq!(finished.code, 2, "{finished}");
    assert!(finished.stderr.contains("begins with a write"), "{finished}");
}
