//! Bad input: one clear message, the right exit code, JSON where it was asked for, nothing left.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::{Finished, Program, SHORT};

/// A profile of two phases with these options of its flowops.
fn profile(connect: &str, flowop: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<profile name=\"bad\">\n  <group nthreads=\"1\">\n    \
         <transaction iterations=\"1\">\n      <flowop type=\"connect\" options=\"remotehost=$h \
         {connect}\"/>\n    </transaction>\n    <transaction duration=\"1s\">\n      {flowop}\n    \
         </transaction>\n  </group>\n</profile>\n"
    )
}

/// `run` refuses a profile before anything starts; its message has these words.
#[track_caller]
fn refused(text: &str, words: &[&str]) -> Finished {
    let finished =
        Program::short_run("bad.xml", &["--json", "run.json"]).file("bad.xml", text).finish();
    fails(&finished, 2, words);
    finished
}

/// It failed in this way, and the document says the same as the message.
#[track_caller]
fn fails(finished: &Finished, code: i32, words: &[&str]) {
    let document = finished.document();
    let status = match code {
        1 => "failed",
        2 => "usage",
        3 => "peer",
        4 => "invalid",
        _ => "interrupted",
    };
    assert_eq!((finished.code, document.text("/status")), (code, status), "{finished}");
    assert!(document.is_null("/throughput"), "{finished}");
    for word in words {
        // Messages are broken into lines.
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = flat(&format!("{} {}", finished.stderr, finished.stdout));
        assert!(
            flat(document.text("/error")).contains(word) || shown.contains(word),
            "no {word} in {}\n{finished}",
            document.text("/error")
        );
    }
    assert!(!document.text("/error").is_empty());
}

const WRITE: &str = "<flowop type=\"write\" options=\"size=64\"/>";
const TCP: &str = "protocol=tcp";

#[test]
fn a_malformed_profile() {
    refused("<profile><group nthreads=1", &["bad.xml"]);
    refused("this is not a profile", &["bad.xml"]);
    refused("", &["bad.xml"]);
}

#[test]
fn an_unknown_option_is_told_the_nearest_name() {
    refused(&profile(TCP, "<flowop type=\"write\" options=\"siez=64\"/>"), &["siez", "size", "8:"]);
    refused(&profile("protocol=tcp tcp_nodely", WRITE), &["tcp_nodely", "tcp_nodelay"]);
    refused(&profile(TCP, "<flowop type=\"wirte\" options=\"size=64\"/>"), &["wirte", "write"]);
    refused(&profile("protocol=tpc", WRITE), &["tpc", "tcp"]);
}

#[test]
fn an_unset_variable() {
    refused(
        &profile(TCP, "<flowop type=\"write\" options=\"size=$nobody_set_this\"/>"),
        &["nobody_set_this", "--var"],
    );
}

#[test]
fn impossible_sizes() {
    for size in ["0", "-1", "5g", "rand(9,3)", "zwei", "99999999999999999999"] {
        refused(
            &profile(TCP, &format!("<flowop type=\"write\" options=\"size={size}\"/>")),
            &["bad.xml:8"],
        );
    }
    // A datagram is not that long.
    refused(&profile("protocol=udp", "<flowop type=\"write\" options=\"size=100k\"/>"), &["size"]);
}

#[test]
fn what_run_refuses_check_refuses() {
    for (text, name) in [
        (profile("protocol=rds", WRITE), "rds"),
        (profile("protocol=tcp_zc", WRITE), "tcp_zc"),
        (profile(TCP, "<flowop type=\"sendfilev\" options=\"dir=/usr\"/>"), "sendfilev"),
        (profile(TCP, "<flowop type=\"write\"/>"), "size"),
        (profile(TCP, "<flowop type=\"write\" options=\"size=64 conn=7\"/>"), "connection 7"),
        (profile("", WRITE), "protocol"),
        (profile("protocol=udp", "<flowop type=\"write\" options=\"size=1m\"/>"), "udp"),
        (profile(TCP, "<flowop type=\"write\" options=\"size=64 count=-1\"/>"), "count"),
        (profile(TCP, "<flowop/>"), "type"),
        (profile(TCP, WRITE).replace("nthreads=\"1\"", "nthreads=\"0\""), "nothing to run"),
        // Limits of agents, told before anything is started or takes memory.
        (profile(TCP, WRITE).replace("nthreads=\"1\"", "nthreads=\"1000001\""), "1000000"),
        (
            profile(
                "protocol=tcp conn=1..2000000000",
                "<flowop type=\"write\" options=\"size=64 conn=1\"/>",
            ),
            "connections that flowops name",
        ),
        (profile(TCP, &WRITE.repeat(17_000)), "16384"),
    ] {
        refused(&text, &[name]);
        let checked = Program::new(["check", "bad.xml"]).file("bad.xml", &text).finish();
        assert_eq!(checked.code, 2, "{checked}");
        assert!(checked.stderr.contains(name), "{checked}");
    }
}

/// Every kind of refusal between reading the profile and the first traffic, by both commands: the
/// profile, arguments of both, the exit code, and words of the message.
#[test]
fn check_and_run_refuse_the_same() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let empty = tempfile::tempdir().unwrap();
    let dir = empty.path().display();
    let with = |connect: &str| profile(&format!("protocol=tcp {connect}"), WRITE);
    let moves = |kind: &str, options: &str| {
        profile(TCP, &format!("<flowop type=\"{kind}\" options=\"{options}\"/>"))
    };
    let of_protocol = |protocol: &str, options: &str| {
        let write = format!("<flowop type=\"write\" options=\"{options}\"/>");
        profile(&format!("protocol={protocol}"), &write)
    };
    let at = |host: &str| with("").replace("$h", host);
    let no_arguments: &[&str] = &[];
    let elsewhere: &[&str] = &["--host", "other=127.0.0.1"];
    // Connections without a number to two hosts, which are closed in another phase.
    let to_two_hosts = profile(TCP, "<flowop type=\"disconnect\" options=\"canfail\"/>")
        .replace("iterations=\"1\"", "iterations=\"5\"")
        .replace(
            "      <flowop type=\"connect\"",
            "      <flowop type=\"connect\" options=\"remotehost=127.0.0.2 protocol=tcp\"/>\n      \
             <flowop type=\"connect\"",
        );
    for (text, arguments, code, words) in [
        // What only the profile says.
        (moves("write", "size=$unset_here"), no_arguments, 2, "unset_here"),
        (of_protocol("$unset_here", "size=64"), no_arguments, 2, "unset_here"),
        (moves("sendfilev", "dir=/usr nfiles=2"), no_arguments, 2, "sendfilev"),
        (of_protocol("sctp", "size=64 sctp_stream_id=3"), no_arguments, 2, "sctp_stream_id"),
        (of_protocol("sctp", "size=64 sctp_pr_value=3"), no_arguments, 2, "sctp_pr_value"),
        (of_protocol("sctp", "size=64 sctp_pr_policy=ttl"), no_arguments, 2, "sctp_pr_policy"),
        (of_protocol("sctp", "size=64 sctp_unordered"), no_arguments, 2, "sctp_unordered"),
        (with("encaps=9899"), no_arguments, 2, "encaps"),
        (with("stack=rack"), no_arguments, 2, "stack"),
        (with("bblog=2"), no_arguments, 2, "bblog"),
        (of_protocol("udp", "size=70000"), no_arguments, 2, "udp"),
        (moves("write", "size=2g"), no_arguments, 2, "2g"),
        // Connections: more than there may be, and some of which it is not known where they lead.
        (
            with("").replace("iterations=\"1\"", "iterations=\"9000000\""),
            no_arguments,
            2,
            "connections is 9000000",
        ),
        (to_two_hosts.replace("$h", "127.0.0.1"), no_arguments, 2, "conn= of their own"),
        // An engine of its own limits.
        (
            with("").replace("nthreads=\"1\"", "nthreads=\"10001\""),
            &["--engine", "threads"],
            2,
            "strands with a thread for each is 10001",
        ),
        (
            moves("disconnect", "").replace("duration=\"1s\"", "iterations=\"3\""),
            no_arguments,
            2,
            "more often than it is opened",
        ),
        (moves("disconnect", ""), no_arguments, 2, "more often than it is opened"),
        // Where the hosts are.
        (at("192.0.2.1"), no_arguments, 2, "192.0.2.1"),
        (at("no-such-host.invalid"), no_arguments, 3, "does not resolve"),
        (at("192.0.2.1"), elsewhere, 2, "no --host is given"),
        (with(""), &["--rate", "1G"], 2, "this run has no lab"),
        (with(""), &["--rate", "1G", "--lab=none-such"], 2, "only to a temporary lab"),
        // What this machine lacks.
        (moves("sendfile", "dir=/nonexistent/files"), no_arguments, 3, "/nonexistent/files"),
        (moves("sendfile", &format!("dir={dir}")), no_arguments, 2, "has no file to send"),
        (
            moves("write", "size=64 payload=file:/nonexistent/data"),
            no_arguments,
            3,
            "/nonexistent/data",
        ),
        (moves("write", "size=64 sink=/nonexistent/sink"), no_arguments, 3, "/nonexistent/sink"),
        (with("cc=nosuchcc"), no_arguments, 3, "nosuchcc"),
        (with("mss=1"), no_arguments, 3, "mss=1"),
        (with(&format!("port={port}")), no_arguments, 3, &port.to_string()),
        (of_protocol("unix-seqpacket", "size=16m wndsz=4k"), no_arguments, 3, "send buffer"),
    ] {
        both_refuse(&text, arguments, code, words);
    }
}

#[track_caller]
fn both_refuse(text: &str, arguments: &[&str], code: i32, words: &str) {
    let run = Program::short_run("refused.xml", &["--json", "run.json"])
        .args(arguments)
        .file("refused.xml", text)
        .finish();
    let check =
        Program::new(["check", "refused.xml"]).args(arguments).file("refused.xml", text).finish();
    assert_eq!((run.code, check.code), (code, code), "{text}\n{run}\n{check}");
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [format!("{} {}", run.stderr, run.stdout), check.stderr.clone()] {
        assert!(flat(&said).contains(words), "no {words}\n{text}\n{run}\n{check}");
    }
}

#[test]
fn check_and_run_refuse_the_same_in_a_lab() {
    if skip_without_namespaces("check_and_run_refuse_the_same_in_a_lab") {
        return;
    }
    let at = |host: &str| profile(TCP, WRITE).replace("$h", host);
    both_refuse(&at("$h"), &["--lab=none-such"], 3, "none-such");
    both_refuse(&at("$h"), &["--lab", "--rate", "1k"], 2, "rate");
    both_refuse(&at("192.0.2.1"), &["--lab"], 2, "the lab has no host 192.0.2.1");
    // Its own host.
    let text = at("h2");
    let check = Program::new(["check", "good.xml", "--lab"]).file("good.xml", &text).finish();
    assert_eq!(check.code, 0, "{check}");
}

/// What OpenSSL alone has is no reason to refuse.
#[test]
fn an_openssl_engine_is_a_note() {
    let text = profile("protocol=ssl engine=qat", WRITE);
    let checked = Program::new(["check", "engine.xml"]).file("engine.xml", &text).finish();
    assert_eq!(checked.code, 0, "{checked}");
    assert!(checked.stderr.contains("engine= has no effect"), "{checked}");
    Program::short_run("engine.xml", &[]).file("engine.xml", &text).measure();
}

#[test]
fn a_profile_that_is_not_there() {
    let finished = Program::short_run("nothing.xml", &["--json", "run.json"]).finish();
    fails(&finished, 2, &["nothing.xml", "wirecost list"]);
    let finished = Program::short_run("@straem", &["--json", "run.json"]).finish();
    fails(&finished, 2, &["@straem", "did you mean @stream?"]);
    let finished =
        Program::short_run("@stream", &["--var", "sise=1", "--json", "run.json"]).finish();
    fails(&finished, 2, &["sise", "did you mean size?"]);
}

/// A command line that nobody understands, too.
#[test]
fn bad_usage() {
    for bad in [
        &["--engine", "io_urgin"][..],
        &["--duration", "ten"],
        &["--duration", "0s"],
        &["--interval", "1ms"],
        &["--connections", "0"],
        &["--nonsense"],
        &["--lab", "--host", "a=127.0.0.1"],
        &["--host", "nothing"],
    ] {
        let finished = Program::new(["run", "@stream", "--json", "run.json"]).args(bad).finish();
        fails(&finished, 2, &[]);
    }
}

#[test]
fn json_goes_to_standard_output_too() {
    let finished = Program::short_run("@straem", &["--json", "-"]).finish();
    assert_eq!(finished.code, 2);
    let document = Document::valid(serde_json::from_str(&finished.stdout).unwrap());
    assert_eq!(document.text("/status"), "usage");
    let finished = Program::new(["run", "@rr", "--json", "-", "--engine", "x"]).finish();
    assert_eq!(finished.code, 2);
    Document::valid(serde_json::from_str(&finished.stdout).unwrap());
}

#[test]
fn nobody_at_the_address() {
    // A port that was just free, and that nobody listens at.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = format!("peer=127.0.0.1:{port}");
    let finished = Program::short_run("@stream", &["--host", &host, "--json", "run.json"]).finish();
    fails(&finished, 3, &["peer", &port.to_string(), "wirecost agent --listen"]);
}

/// Somebody else's program listens where an agent should.
#[test]
fn a_stranger_at_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("peer={}", listener.local_addr().unwrap());
    let stranger = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
    });
    let finished = Program::short_run("@stream", &["--host", &host, "--json", "run.json"]).finish();
    fails(&finished, 3, &["peer"]);
    stranger.join().unwrap();
}

#[test]
fn a_name_that_does_not_resolve() {
    let arguments = ["--host", "peer=no-such-host.invalid:20050", "--json", "run.json"];
    fails(&Program::short_run("@stream", &arguments).finish(), 3, &["does not resolve"]);
    let arguments = ["--var", "h=no-such-host.invalid", "--json", "run.json"];
    fails(&Program::short_run("@stream", &arguments).finish(), 3, &["does not resolve"]);
    let arguments = ["--var", "h=192.0.2.1", "--json", "run.json"];
    fails(&Program::short_run("@stream", &arguments).finish(), 2, &["192.0.2.1", "--host"]);
}

#[test]
fn a_port_that_is_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = profile(&format!("protocol=tcp port={port}"), WRITE);
    let finished =
        Program::short_run("taken.xml", &["--json", "run.json"]).file("taken.xml", &text).finish();
    fails(&finished, 3, &[&port.to_string(), "port="]);
}

#[test]
fn too_few_descriptors() {
    let arguments = ["run", "@stream", "--connections", "3000", "--engine", "threads"];
    let finished = Program::with_descriptors(256, &arguments)
        .args(SHORT)
        .args(["--json", "run.json"])
        .finish();
    fails(&finished, 2, &["descriptors", "256", "fewer connections"]);
}

#[test]
fn files_that_are_not_there() {
    let arguments = ["--var", "file=/nonexistent/files", "--json", "run.json"];
    let finished = Program::short_run("@sendfile", &arguments).finish();
    fails(&finished, 3, &["/nonexistent/files"]);
    let finished = Program::short_run("missing.xml", &["--json", "run.json"])
        .file("missing.xml", &profile(TCP, "<flowop type=\"sendfile\" options=\"size=4k\"/>"))
        .finish();
    fails(&finished, 2, &["dir"]);
}

#[test]
fn json_that_cannot_be_written() {
    let finished = Program::short_run("@rr", &["--json", "no/such/directory.json"]).finish();
    assert_eq!(finished.code, 2, "{finished}");
    assert!(finished.stderr.contains("no/such/directory.json"), "{finished}");
}

#[test]
fn a_directory_that_is_in_use() {
    let program = Program::short_run("@rr", &["--out", "record", "--json", "run.json"]);
    fs::create_dir(program.directory().join("record")).unwrap();
    let finished = program.file("record/notes.txt", "mine").finish();
    fails(&finished, 2, &["record", "not empty"]);
    assert_eq!(fs::read_to_string(finished.path("record/notes.txt")).unwrap(), "mine");
}

/// The profile wants the buffers of a connection larger than any host gives: that is no failure, and
/// both numbers are told.
#[test]
fn a_clipped_buffer_is_told() {
    let text = profile("protocol=tcp wndsz=1g", WRITE);
    let document = Program::short_run("large.xml", &[]).file("large.xml", &text).measure();
    assert!(document.has_warning("clipped-setting"));
    let settings = document.list("/settings");
    let send = settings.iter().find(|s| s["name"] == "wndsz.send").unwrap();
    assert_ne!(send["asked"], send["granted"]);
}

#[test]
fn workers_of_a_host_that_is_not_there() {
    let arguments = ["--workers", "server=2", "--json", "run.json"];
    fails(&Program::short_run("@stream", &arguments).finish(), 2, &["no host server", "peer"]);
    let finished = Program::short_run("@stream", &["--workers", "2,2"]).finish();
    assert_eq!(finished.code, 2, "{finished}");
}

#[test]
fn several_peers_of_a_profile_that_names_its_own() {
    let arguments = ["--var", "h=127.0.0.1", "--peers", "2", "--json", "run.json"];
    fails(
        &Program::short_run("@stream", &arguments).finish(),
        2,
        &["--peers", "host without an address"],
    );
}

/// Files that are long in one way or another, and wrong throughout.
#[test]
fn diagnostics_are_drawn_wherever_they_are_and_the_rest_is_counted() {
    let far = format!("<profile>{}<grupp/></profile>", " ".repeat(70_000));
    let checked = Program::new(["check", "far.xml"]).file("far.xml", &far).finish();
    assert_eq!(checked.code, 2, "{checked}");
    assert!(checked.stderr.contains("<grupp") && checked.stderr.contains(":1:70010"), "{checked}");

    let words = "word\n".repeat(5000);
    let checked = Program::new(["check", "words.xml"]).file("words.xml", &words).finish();
    assert_eq!(checked.code, 2, "{checked}");
    assert_eq!(checked.stderr.matches("'word' is neither").count(), 20, "{checked}");
    assert!(checked.stderr.contains("and 4980 more"), "{checked}");
    refused(&words, &["and 4980 more"]);

    let unclosed = format!("<profile>{}", "<group nthreads=1>\n".repeat(5000));
    let checked = Program::new(["check", "open.xml"]).file("open.xml", &unclosed).finish();
    assert_eq!(checked.stderr.matches("[open.xml:").count(), 20, "{checked}");
    assert!(checked.stderr.contains("and 4982 more"), "{checked}");
    assert!(checked.stdout.contains("\n  and 4980 more groups\n"), "{checked}");
    assert!(checked.stdout.lines().count() < 60, "{checked}");
}

/// Whoever wrote a profile, a study or a record does not get to control the reader's terminal.
#[test]
fn terminal_escapes_of_files_are_shown_and_never_sent() {
    let quiet = |finished: &Finished, shown: &str| {
        let text = format!("{}{}", finished.stdout, finished.stderr);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains(shown), "{text:?}");
    };
    let escape = "\\u{1b}]0;title\\u{7}";
    let name = "\u{1b}]0;title\u{7}\u{9b}2J";
    let good = profile(TCP, WRITE).replace("name=\"bad\"", &format!("name=\"{name}\""));
    quiet(&Program::new(["check", "bad.xml"]).file("bad.xml", &good).finish(), escape);
    let bad = profile(TCP, &format!("<flowop type=\"{name}\" options=\"size=64 {name}\"/>"));
    quiet(&Program::new(["check", "bad.xml"]).file("bad.xml", &bad).finish(), escape);
    quiet(&refused(&bad, &[]), escape);
    let toml = "name = \"\u{1b}]0;title\u{7}\"\n[[group]]\n\u{1b} = 1\n";
    quiet(&Program::new(["check", "bad.toml"]).file("bad.toml", toml).finish(), escape);
    let study = "profile = \"@stream\"\ntitle = \"\\u001b]0;title\\u0007\"\n";
    let checked = Program::new(["study", "check", "s.toml"]).file("s.toml", study).finish();
    quiet(&checked, escape);
    let record = Program::short_run("good.xml", &["--json", "run.json"])
        .file("good.xml", &profile(TCP, WRITE))
        .finish();
    let document = fs::read_to_string(record.path("run.json")).unwrap();
    let document = document.replacen("good.xml", "\\u001b]0;title\\u0007", 1);
    let file = "\u{1b}]0;title\u{7}.json";
    for format in ["terminal", "markdown", "csv"] {
        let shown =
            Program::new(["report", file, "--format", format]).file(file, &document).finish();
        quiet(&shown, if format == "markdown" { "\\\\u{1b}" } else { escape });
    }
}

#[test]
fn a_profile_on_standard_input() {
    let good = profile(TCP, WRITE);
    let checked = Program::reading(&good, &["check", "-"]).finish();
    assert_eq!(checked.code, 0, "{checked}");
    assert!(checked.stdout.contains("profile bad: 1 group"), "{checked}");
    let document = Program::reading(&good, &["run", "-"]).args(SHORT).measure();
    assert_eq!(document.text("/profile"), "-");
    let checked = Program::reading("<grupp>", &["check", "-"]).finish();
    assert_eq!(checked.code, 2, "{checked}");
    assert!(checked.stderr.contains("-:1:1"), "{checked}");
}

/// What is endless, never comes or is too large is refused before it takes memory or time.
#[test]
fn inputs_without_bounds() {
    let limited = |program: Program, words: &[&str]| {
        let finished = program.finish();
        assert_eq!(finished.code, 2, "{finished}");
        for word in words {
            assert!(finished.stderr.contains(word), "no {word} in {finished}");
        }
    };
    let large = "x".repeat((1 << 20) + 1);
    for command in [&["check"][..], &["run"], &["study", "check"]] {
        let with = |input: &str| Program::new(command.iter().copied().chain([input]));
        limited(with("/dev/zero"), &["/dev/zero", "a device", "regular files"]);
        limited(with("large").file("large", &large), &["too large", "1 MiB"]);
        let fifo = with("fifo");
        let made = std::process::Command::new("mkfifo").arg(fifo.directory().join("fifo")).status();
        assert!(made.unwrap().success());
        limited(fifo, &["a FIFO"]);
    }
    for command in ["report", "flame"] {
        limited(Program::new([command, "/dev/zero"]), &["a device", "regular files"]);
    }
    limited(Program::reading(&large, &["check", "-"]), &["too large", "1 MiB"]);
    let axis = |number| format!("a{number} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n");
    let axes: String = (0..30).map(axis).collect();
    let study = format!("profile = \"@stream\"\n[axes]\n{axes}");
    let checked = Program::new(["study", "check", "s.toml"]).file("s.toml", &study);
    limited(checked, &["1000000000000000000000000000000 points", "10000"]);
}

#[test]
fn an_invalid_command_line_gets_json_from_every_command_that_writes_it() {
    let commands: [&[&str]; 7] = [
        &["run", "@rr", "--json", "-", "--duration", "x"],
        &["doctor", "--json=-", "--connections", "x"],
        &["observe", "--for", "x", "--json", "-"],
        &["compare", "--format", "json", "--threshold"],
        &["explain", "--format=json", "--no-such-option"],
        &["predict", ".", "--format", "json"],
        &["report", "--format", "json", "--no-such-option"],
    ];
    for arguments in commands {
        let finished = Program::new(arguments).finish();
        assert_eq!(finished.code, 2, "{arguments:?} {finished}");
        let document: Value = serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?} {error} {finished}"));
        assert_eq!(document["status"], "usage", "{arguments:?} {finished}");
        assert!(document["error"].as_str().is_some_and(|error| !error.is_empty()), "{finished}");
    }
    let finished = Program::new(["observe", "--dev", "nothing0", "--json", "-"]).finish();
    assert_eq!(finished.code, 2, "{finished}");
    assert!(finished.stdout.contains("nothing0"), "{finished}");
}

#[test]
fn a_run_that_cannot_begin_leaves_no_directory() {
    let text = "profile = \"@rr\"\nplace = \"lab\"\n";
    for arguments in [
        &["run", "@rr", "--lab", "--out", "kept", "--quiet"][..],
        &["study", "run", "study.toml", "--out", "kept", "--quiet"],
        &["study", "run", "study.toml", "--host", "peer=127.0.0.1:1", "--out", "kept", "--quiet"],
    ] {
        let finished = Program::unprivileged(arguments).file("study.toml", text).finish();
        assert!([2, 3].contains(&finished.code), "{finished}");
        assert!(!finished.path("kept").exists(), "{finished}");
    }
}

/// What each wrong command line is told: the mistake, and what to type.
#[test]
fn a_mistake_is_named_with_what_to_type() {
    let table: [(&[&str], &[&str]); 15] = [
        (
            &["study", "check", "@tcp-transmit", "--axis", "connections=1,x"],
            &["--axis connections", "'x'", "such as 8"],
        ),
        (
            &["study", "check", "@tcp-transmit", "--set", "duration=10x"],
            &["--set duration", "'10x'", "such as 10s"],
        ),
        (&["run", "@stream", "--var", "size=64z"], &["64z", "such as 64k", "k, m or g"]),
        (&["run", "@tcp-transmit"], &["no built-in profile", "wirecost study run @tcp-transmit"]),
        (&["study", "run", "@stream"], &["no built-in study", "wirecost run @stream"]),
        (&["study", "run", "tcp-transmit"], &["did you mean", "@tcp-transmit"]),
        (
            &["compare", "a", "b", "--metric", "cycles"],
            &["no metric cycles", "did you mean cycles_per_kbyte"],
        ),
        (&["compare", "a", "b", "--metric", "zzz"], &["no metric zzz", "wirecost report --list"]),
        (&["run", "@stream", "--connections", "1e6"], &["1e6", "in digits: 1000000"]),
        (&["run", "@stream", "--connections", "many"], &["a whole number, such as 8"]),
        (&["run", "@stream", "--lab", "--rate", "fast"], &["such as 1gbit"]),
        (&["run", "@stream", "--rate", "1G"], &["--rate", "add --lab"]),
        (&["run", "@stream", "--duration", "10 parsecs"], &["such as 10s"]),
        (&["run", "@stream", "--lab=none-of-this-name"], &["wirecost lab status"]),
        (
            &["study", "check", "@tcp-transmit", "--loopback", "--rate", "1G"],
            &["lab.rate", "place"],
        ),
    ];
    for (arguments, words) in table {
        let finished = Program::new(arguments).finish();
        assert!([2, 3].contains(&finished.code), "{arguments:?} {finished}");
        let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(said.contains(word), "{arguments:?}: no {word:?} in\n{finished}");
        }
    }
    // Seconds, where no unit is given.
    let help = Program::new(["run", "--help"]).finish();
    assert!(help.stdout.contains("a number alone is seconds"), "{help}");
}

/// A study that says that it uses a lab needs not be told so once more.
#[test]
fn a_rate_is_of_the_lab_of_the_study() {
    let text = "profile = \"@rr\"\nplace = \"lab\"\n";
    let finished =
        Program::new(["study", "check", "s.toml", "--rate", "1G"]).file("s.toml", text).finish();
    assert_eq!(finished.code, 0, "{finished}");
}

#[test]
fn without_rights_a_lab_is_refused_with_the_way_round_it() {
    let text = "profile = \"@rr\"\nplace = \"lab\"\n";
    let arguments = ["study", "run", "s.toml", "--quiet"];
    let finished = Program::unprivileged(&arguments).file("s.toml", text).finish();
    assert_eq!(finished.code, 3, "{finished}");
    assert!(finished.stderr.contains("--loopback"), "{finished}");
}

#[test]
fn too_few_descriptors_are_told_before_there_is_traffic() {
    let arguments = ["run", "@rr", "--connections", "1000", "--duration", "1s", "--quiet"];
    let finished = Program::with_descriptors(64, &arguments).finish();
    assert_eq!(finished.code, 2, "{finished}");
    let said = finished.stdout + &finished.stderr;
    assert!(said.contains("too few descriptors (64)") && said.contains("ulimit -n"), "{said}");
}

/// All commands that have no commands of their own, with their help.
fn commands(path: &[String]) -> Vec<(Vec<String>, String)> {
    let help = [path, &["--help".to_owned()]].concat();
    let help = Program::new(help.iter().map(String::as_str)).finish();
    assert_eq!(help.code, 0, "{help}");
    let listed = help.stdout.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<&str> = listed
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    if names.is_empty() {
        return vec![(path.to_vec(), help.stdout)];
    }
    let below = |name: &str| commands(&[path, &[name.to_owned()]].concat());
    names.into_iter().flat_map(below).collect()
}

/// Whatever is wrong with a command line, a program that asked for JSON gets JSON.
#[test]
fn an_invalid_command_line_is_a_document_for_every_command_that_writes_json() {
    let mut checked = Vec::new();
    for (command, help) in commands(&[]) {
        let asked: &[&str] = if help.contains("--json-lines") {
            &["--json-lines"]
        } else if help.contains("--json <") {
            &["--json", "-"]
        } else if help.contains("--format <") && help.contains("- json:") {
            &["--format", "json"]
        } else {
            continue;
        };
        let arguments = command.iter().map(String::as_str).chain(asked.iter().copied());
        let finished = Program::new(arguments.chain(["--no-such-option"])).finish();
        assert_eq!(finished.code, 2, "{command:?}\n{finished}");
        let document: Value = serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("{command:?}: {error}\n{finished}"));
        assert_eq!(document["status"], "usage", "{command:?}\n{finished}");
        assert!(document["error"].as_str().unwrap().contains("--no-such-option"), "{finished}");
        checked.push(command.join(" "));
    }
    for known in ["run", "study run", "study resume", "compare", "report", "observe", "doctor"] {
        assert!(checked.iter().any(|command| command == known), "{known}: {checked:?}");
    }
}

/// So does one whose files are wrong.
#[test]
fn a_study_that_cannot_begin_is_an_event() {
    for arguments in [
        &["study", "run", "nowhere.toml", "--json-lines"][..],
        &["study", "resume", "nowhere", "--json-lines"],
        &["study", "run", "study.toml", "--json-lines"],
    ] {
        let program = Program::new(arguments.iter().copied()).file("study.toml", "axes = 3");
        let finished = program.finish();
        assert_eq!(finished.code, 2, "{finished}");
        let event: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!((&event["event"], &event["status"]), (&"ended".into(), &"usage".into()));
        assert!(!event["error"].as_str().unwrap().is_empty(), "{event}");
    }
}
