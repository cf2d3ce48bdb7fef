//! A writer that is killed at any instant, and a disk that is full: finished records stay whole. Each
//! test runs itself again in a process of its own, which it names a directory.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_store::study::{Study, Writer};
use wirecost_store::{Recorder, StoreError};

use crate::recorded::{contents, hosts, names, run};
use crate::seed::seed;

/// Where the other process works.
const DIRECTORY: &str = "WIRECOST_TEST_DIRECTORY";

fn id(number: usize) -> String {
    format!("{number:04}-01")
}

fn given() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// This program, for one test of this module.
fn again(test: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let test = format!("crashes::{test}");
    [&program, "--exact", &test, "--nocapture"].map(str::to_owned).to_vec()
}

/// Writes records until it is killed, and says so of each one that is written.
fn write_for_ever(directory: &Path) -> ! {
    let writer = Writer::open(directory).unwrap();
    let mut out = std::io::stdout();
    for number in writer.study().ids().unwrap().len() + 1.. {
        writer.save(&id(number), &run(), &hosts()).unwrap();
        writeln!(out, "kept {number}").unwrap();
        out.flush().unwrap();
    }
    unreachable!()
}

/// Every record that can be seen is the one that was to be written.
fn check_records(study: &Study) -> usize {
    let ids = study.ids().unwrap();
    let expected: Vec<String> = (1..=ids.len()).map(id).collect();
    assert_eq!(ids, expected);
    assert_eq!(study.runs().unwrap().len(), ids.len());
    let expected = tempfile::tempdir().unwrap();
    Recorder::create(expected.path()).unwrap().save(&run(), &hosts()).unwrap();
    for id in &ids {
        assert_eq!(contents(&study.record(id)), contents(expected.path()));
    }
    ids.len()
}

#[test]
fn a_killed_writer_leaves_only_complete_records() {
    const KILLS: usize = 20;
    if let Some(directory) = given() {
        write_for_ever(&directory);
    }
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("study");
    drop(Writer::create(&directory, "title = \"One\"\n", []).unwrap());
    let study = Study::open(&directory).unwrap();
    let mut inside = 0;
    let mut seen = 0;
    let mut instants = Rng::with_seed(seed());
    for _ in 0..KILLS {
        let [program, arguments @ ..] = &again("a_killed_writer_leaves_only_complete_records")[..]
        else {
            unreachable!()
        };
        let mut child = Command::new(program)
            .args(arguments)
            .env(DIRECTORY, &directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let number = |line: String| line.strip_prefix("kept ").map(|n| n.parse::<usize>().unwrap());
        let first = lines.by_ref().find_map(|line| number(line.unwrap()));
        // It is in the midst of its work; when in it is chance.
        thread::sleep(Duration::from_micros(instants.u64(0..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let told = lines.map_while(Result::ok).filter_map(number).last().or(first).unwrap();
        inside += usize::from(names(&directory.join("runs")).len() > study.ids().unwrap().len());
        let there = check_records(&study);
        // All that it said to be kept, and at most the one that it had no time to tell of.
        assert!((told..=told + 1).contains(&there), "{told} told, {there} there");
        assert!(there > seen);
        seen = there;
    }
    // False failures: 1e-6, computed: 20 kills of a writer that spends at least half of its time on writes.
    assert!(inside > 0, "of {KILLS} kills none was inside a write");
    drop(Writer::open(&directory).unwrap());
    assert_eq!(names(&directory.join("runs")), study.ids().unwrap());
}

#[test]
fn a_full_disk_is_an_error_and_damages_no_record() {
    const NAME: &str = "a_full_disk_is_an_error_and_damages_no_record";
    if let Some(directory) = given() {
        return fill_the_disk(&directory);
    }
    if skip_without_namespaces(NAME) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // A file system of 1 MiB that only this process and its child see.
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("mount -t tmpfs -o size=1m tmpfs \"${DIRECTORY}\" && exec \"$@\""))
        .arg("sh")
        .args(again(NAME))
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(names(directory.path()).is_empty());
}

fn fill_the_disk(parent: &Path) {
    let directory = parent.join("study");
    let writer = Writer::create(&directory, "title = \"One\"\n", []).unwrap();
    let (kept, error) = (1..)
        .find_map(|number| Some((number - 1, writer.save(&id(number), &run(), &hosts()).err()?)))
        .unwrap();
    assert!(matches!(error, StoreError::Io { .. }));
    let message = error.to_string();
    let expected = format!("cannot write {}/", writer.study().record(&id(kept + 1)).display());
    assert!(message.starts_with(&expected), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    assert!(kept > 2);
    assert_eq!(check_records(writer.study()), kept);
    // Nothing is left of the one that had no room, so that there is some for who makes it.
    assert_eq!(names(&directory.join("runs")).len(), kept);
    fs::remove_dir_all(writer.study().record(&id(kept))).unwrap();
    writer.save(&id(kept), &run(), &hosts()).unwrap();
    assert_eq!(check_records(writer.study()), kept);
}
