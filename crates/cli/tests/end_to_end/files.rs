//! Files at both ends: what is written is what was read, whatever moves it; what is counted; and which files a run
//! may touch.

use std::fs;
use std::path::{Path, PathBuf};

use wirecost_linux::page_cache::cached_bytes;

use crate::agents::Agent;
use crate::document::Document;
use crate::program::{Finished, Program};

/// A multiple of no block.
const FILE: usize = 3_000_001;
const MESSAGE: usize = 64 << 10;
/// Of each strand: more than twice the file.
const MESSAGES: usize = 100;

/// Bytes that no two parts have in common by chance.
fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn profile(strands: u32, options: &str) -> String {
    format!(
        "<profile name=\"files\">\n<group nthreads=\"{strands}\">\n<transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp\"/>\n\
         <flowop type=\"write\" options=\"size={MESSAGE} count={MESSAGES} {options}\"/>\n\
         <flowop type=\"disconnect\"/>\n</transaction>\n</group>\n</profile>\n"
    )
}

fn program(engine: &str, strands: u32, options: &str) -> Program {
    let program =
        Program::new(["run", "files.xml", "--quiet", "--engine", engine, "--json", "run.json"])
            .file("files.xml", &profile(strands, options));
    fs::create_dir(program.directory().join("sink")).expect("a directory");
    program
}

#[track_caller]
fn good(finished: &Finished) -> Document {
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
    document
}

/// What each host says of its files: the sender, then the receiver.
fn rows(document: &Document) -> [&serde_json::Value; 2] {
    let rows = document.list("/io/files");
    let of = |host: &str| rows.iter().find(|row| row["host"] == host).expect("a row of the host");
    [of("master"), of("peer")]
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory of the sink");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

on_every_engine!({
    a_file_comes_whole_by_all_calls: a_file_comes_whole_by_all_calls();
});

fn a_file_comes_whole_by_all_calls(engine: &str) {
    let content = content(7, FILE);
    let total = MESSAGE * MESSAGES;
    for (options, verifies) in [
        ("verify", true),
        ("source_io=sendfile verify", true),
        ("source_io=splice verify", true),
        ("o_direct verify", true),
        ("source_io=splice o_direct", false),
        ("source_io=splice splice sink_preallocate", false),
        ("source_io=io_uring sink_io=io_uring verify", true),
        ("source_io=io_uring sink_io=io_uring io_depth=3 o_direct sink_preallocate verify", true),
    ] {
        let sink = "sink=sink sink_keep sink_size=8m sink_sync";
        let program = program(engine, 1, &format!("source=content {sink} {options}"));
        fs::write(program.directory().join("content"), &content).expect("a file");
        let drops = drops_pages(program.directory());
        let finished = program.args(["--workers", "1"]).finish();
        let document = good(&finished);
        assert_eq!(document.count("/throughput/tx_bytes"), total as u64, "{options}");
        let [sender, receiver] = rows(&document);
        assert_eq!(sender["source_bytes"], total, "{options}: {sender}");
        if options.contains("sendfile") {
            assert!(sender["read_bytes"].is_null() && sender["read_seconds"].is_null(), "{sender}");
        } else {
            assert!(sender["read_bytes"].as_u64() >= Some(total as u64), "{options}: {sender}");
            assert!(sender["read_seconds"].as_f64() > Some(0.0), "{options}: {sender}");
        }
        let cached = sender["cached_share"].as_f64().expect("one's own file is told of");
        assert!(!options.contains("o_direct") || !drops || cached < 0.05, "{options}: {sender}");
        assert_eq!(receiver["sink_bytes"], total, "{options}: {receiver}");
        assert!(receiver["write_seconds"].as_f64() > Some(0.0), "{options}: {receiver}");
        assert!(receiver["sync_seconds"].as_f64() > Some(0.0), "{options}: {receiver}");
        let checked = verifies.then_some(total as u64);
        for row in [sender, receiver] {
            assert_eq!(row["checked_bytes"].as_u64(), checked, "{options}: {row}");
        }
        assert_eq!(receiver["read_back_bytes"].as_u64(), checked, "{options}: {receiver}");
        if verifies && drops {
            assert_eq!(receiver["read_back_cached_bytes"], 0, "{options}: {receiver}");
        }
        let [kept] = &files_of(&finished.path("sink"))[..] else { panic!("one file: {finished}") };
        let kept = fs::read(kept).expect("the file of the sink");
        // Reserved space is not given back.
        let length = if options.contains("preallocate") { 8 << 20 } else { total };
        assert_eq!(kept.len(), length, "{options}");
        let expected = content.iter().cycle().take(total);
        assert!(kept[..total].iter().eq(expected), "{options}: not what was sent");
    }
}

/// Of 6,553,600 bytes: 25 blocks of 256 KiB are written, and each pass of the file takes 12 requests.
#[test]
fn io_uring_has_as_many_requests_in_flight_as_asked_for() {
    let blocks = (MESSAGE * MESSAGES).div_ceil(256 << 10) as u64;
    for depth in [1, 16] {
        let options = format!(
            "source=content source_io=io_uring sink=sink sink_io=io_uring sink_size=8m o_direct \
             io_depth={depth} verify"
        );
        let program = program("epoll", 1, &options);
        let directory = program.directory();
        fs::write(directory.join("content"), content(13, FILE)).expect("a file");
        let has_device = drops_pages(directory);
        let finished = program.args(["--workers", "1"]).finish();
        let document = good(&finished);
        let [sender, receiver] = rows(&document);
        let read = sender["read_requests"].as_u64().expect("requests");
        assert!((blocks..=36).contains(&read), "{sender}");
        assert_eq!(receiver["write_requests"], blocks, "{receiver}");
        for mean in [&sender["read_depth"], &receiver["write_depth"]] {
            let mean = mean.as_f64().expect("a mean");
            assert!((1.0..=f64::from(depth)).contains(&mean), "{depth}: {sender} {receiver}");
        }
        // The first requests of a pass are made one after the other, before a device has completed one.
        if has_device && depth > 1 {
            assert!(sender["read_depth"].as_f64() > Some(2.0), "{sender}");
        }
        assert_eq!(receiver["read_back_bytes"], MESSAGE * MESSAGES, "{receiver}");
    }
}

/// Connections that are closed while the kernel still reads ahead for them.
#[test]
fn what_is_read_ahead_for_a_closed_connection_is_given_up() {
    let text = "<profile><group nthreads=\"2\"><transaction iterations=\"40\">\n\
                <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp\"/>\n\
                <flowop type=\"write\" options=\"size=100k source=content source_io=io_uring io_depth=32 verify\"/>\n\
                <flowop type=\"disconnect\"/>\n</transaction></group></profile>\n";
    for engine in ["epoll", "io_uring", "threads"] {
        let program = program(engine, 2, "").file("files.xml", text);
        fs::write(program.directory().join("content"), content(17, 8 << 20)).expect("a file");
        let finished = program.finish();
        let document = good(&finished);
        let [sender] = document.list("/io/files") else { panic!("one row: {document:?}") };
        let bytes = 2 * 40 * (100u64 << 10);
        assert_eq!(sender["source_bytes"], bytes, "{engine}: {sender}");
        // The receiver's sum of the same bytes is equal: else the run were invalid.
        assert_eq!(sender["checked_bytes"], bytes, "{engine}: {sender}");
        // The strand's half of the file is 16 requests, and each connection begins with its start.
        assert_eq!(sender["read_requests"], 2 * 40 * 16, "{engine}: {sender}");
    }
}

#[test]
fn strands_send_files_of_their_own_and_parts_of_those_that_they_share() {
    let contents = [content(3, 2 << 20), content(5, 3 << 20)];
    // Each strand has a thread, so each connection has a file.
    let program = program("threads", 3, "source=in sink=sink sink_keep sink_size=64m verify");
    let directory = program.directory().join("in");
    fs::create_dir(&directory).expect("a directory");
    for (name, content) in ["a", "b"].iter().zip(&contents) {
        fs::write(directory.join(name), content).expect("a file");
    }
    let finished = program.finish();
    good(&finished);
    let (first, second) = contents[0].split_at(1 << 20);
    let mut expected: Vec<&[u8]> = vec![first, &contents[1], second];
    for path in files_of(&finished.path("sink")) {
        let kept = fs::read(path).expect("the file of a strand");
        assert_eq!(kept.len(), MESSAGE * MESSAGES);
        let sent = |part: &&[u8]| kept.iter().eq(part.iter().cycle().take(kept.len()));
        let place = expected.iter().position(sent).expect("a part that no other strand sent");
        expected.remove(place);
    }
    assert!(expected.is_empty(), "{} parts were not sent", expected.len());
}

#[test]
fn files_of_a_run_are_gone_after_it_and_the_page_cache_is_as_asked() {
    for state in ["cold", "warm"] {
        // One strand: none reads ahead into the part of another. It sends the file three times.
        let made = format!("source=sink source_size=2m page_cache={state} sink=sink verify");
        let finished = program("epoll", 1, &made).finish();
        let document = good(&finished);
        let sink = finished.path("sink");
        assert_eq!(files_of(&sink), [] as [PathBuf; 0]);
        let [sender, receiver] = rows(&document);
        assert_eq!(sender["source_bytes"], MESSAGE * MESSAGES, "{sender}");
        assert_eq!(receiver["read_back_bytes"], MESSAGE * MESSAGES, "{receiver}");
        let cached = sender["cached_share"].as_f64().expect("one's own file is told of");
        match state {
            "warm" => assert!(cached > 0.9, "{sender}"),
            _ if drops_pages(&sink) => assert!(cached < 0.3, "{sender}"),
            _ => {}
        }
        let as_asked = if state == "warm" { cached >= 0.95 } else { cached <= 0.05 };
        assert_eq!(document.has_warning("page-cache"), !as_asked, "{sender}");
    }
}

/// A connection whose bytes a ring received before they went to a file.
#[test]
fn bytes_go_to_a_file_only_from_where_they_are_to() {
    let text = format!(
        "<profile name=\"files\">\n<group nthreads=\"1\">\n<transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol=tcp\"/>\n\
         <flowop type=\"write\" options=\"size={MESSAGE} count=7\"/>\n\
         <flowop type=\"write\" options=\"size={MESSAGE} count={MESSAGES} source=content sink=sink sink_size=8m sink_keep verify\"/>\n\
         <flowop type=\"disconnect\"/>\n</transaction>\n</group>\n</profile>\n"
    );
    let content = content(11, FILE);
    for engine in ["io_uring", "epoll"] {
        let program = program(engine, 1, "").file("files.xml", &text);
        fs::write(program.directory().join("content"), &content).expect("a file");
        let finished = program.args(["--workers", "1"]).finish();
        let document = good(&finished);
        let [_, receiver] = rows(&document);
        assert_eq!(receiver["read_back_bytes"], MESSAGE * MESSAGES, "{receiver}");
        let [kept] = &files_of(&finished.path("sink"))[..] else { panic!("one file: {finished}") };
        let kept = fs::read(kept).expect("the file of the sink");
        assert!(kept.iter().eq(content.iter().cycle().take(MESSAGE * MESSAGES)), "{engine}");
    }
}

/// A file system in memory drops nothing.
fn drops_pages(directory: &Path) -> bool {
    let path = directory.join("probe");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let cached = cached_bytes(&file, 0, 1 << 20).unwrap();
    fs::remove_file(path).unwrap();
    cached == 0
}

/// An agent reads only below --files, and makes files only below --write-files.
#[test]
fn reading_and_writing_each_need_consent() {
    let directory = tempfile::tempdir().unwrap();
    let [read, write] = ["read", "write"].map(|name| {
        let path = directory.path().join(name);
        fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    });
    fs::write(format!("{read}/file"), content(9, 100_000)).unwrap();
    std::os::unix::fs::symlink(&read, format!("{write}/out")).unwrap();
    let reader = Agent::with(&["--files", &read]);
    let both = Agent::with(&["--files", &read, "--write-files", &write]);
    // The host of the agent sends, or receives.
    let run = |agent: &Agent, host: &str, options: &str| {
        // Where the master is elsewhere, its peer has an address.
        let text = match host {
            "master" => profile(1, options).replace("$h", "127.0.0.1"),
            _ => profile(1, options),
        };
        let host = format!("{host}={}", agent.address);
        Program::new(["run", "f.xml", "--quiet", "--json", "run.json", "--host", &host])
            .file("f.xml", &text)
            .finish()
    };
    for (agent, host, options, missing) in [
        (&reader, "peer", format!("sink={read}"), Some("--write-files")),
        (&reader, "master", format!("source={read} source_size=1m"), Some("--write-files")),
        (&both, "peer", format!("sink={read} sink_keep"), Some("--write-files")),
        (&both, "peer", format!("sink={write}/out"), Some("--write-files")),
        (&both, "peer", format!("sink={write}/.."), Some("--write-files")),
        (&both, "master", format!("source={write}"), Some("--files")),
        (&both, "master", format!("source={read}/../write"), Some("--files")),
        (&both, "master", format!("source={read}/file verify"), None),
        (&both, "master", format!("source={write} source_size=1m verify"), None),
        (&both, "peer", format!("sink={write} verify"), None),
    ] {
        let finished = run(agent, host, &options);
        match missing {
            Some(option) => {
                assert_eq!(finished.code, 3, "{options}: {finished}");
                let document = finished.document();
                let error = document.text("/error");
                let remedy = format!("wirecost agent {option} DIR");
                assert!(
                    error.contains("orders may not use it") && error.contains(&remedy),
                    "{error}"
                );
            }
            None => drop(good(&finished)),
        }
    }
    assert_eq!(files_of(Path::new(&read)).len(), 1);
    assert_eq!(files_of(Path::new(&write)).len(), 1, "only the link that was there");
    assert_eq!(fs::read(format!("{read}/file")).unwrap(), content(9, 100_000));
}

#[test]
fn what_is_not_there_is_named_with_the_remedy() {
    for (options, said) in [
        ("source=/no/such/file", "source= names a file or directory that is there"),
        ("source=/no/such source_size=1m", "source= names a directory that is there"),
        ("sink=/no/such/place", "sink= names a directory that is there"),
        ("source=sink", "it has no file that is not empty"),
    ] {
        let finished = program("epoll", 1, options).finish();
        assert_eq!(finished.code, 3, "{finished}");
        let text = finished.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{options}: {finished}");
    }
}
