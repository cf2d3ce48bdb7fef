//! Records with known answers.

use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::{Point, StudyRunRef};

use super::*;
use crate::fixtures;

/// A run of a transfer, with what its point sets.
fn run(place: u32, label: &str, settings: &[(&str, &str)], gigabits: f64) -> (String, Run) {
    let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
    run.status = Status::Ok;
    run.throughput = Some(fixtures::throughput(gigabits * 1e9, 1 << 30));
    run.window = Some(fixtures::window(10.0));
    let settings = settings.iter().map(|(name, value)| Value::new(name, value)).collect();
    run.study = Some(StudyRunRef {
        study: "s".to_owned(),
        point: Point { axes: vec![Value::new(TRANSFER, label)], settings },
        place,
        repeat: 1,
        order: place,
        search: None,
    });
    (String::new(), run)
}

const TO_MEMORY: (&str, &str) = ("profile", "@disk-to-memory");
const TO_DISK: (&str, &str) = ("profile", "@memory-to-disk");
const BOTH: (&str, &str) = ("profile", "@disk-to-disk");
const LOCAL: (&str, &str) = ("protocol", "unix");
const DIRECT: (&str, &str) = ("options", "o_direct");

/// A network of 10 Gb/s, a disk that gives 5 Gb/s and takes 2 Gb/s, and one transfer between.
fn sentences(label: &str, settings: &[(&str, &str)], gigabits: f64) -> Vec<String> {
    let runs = [
        run(1, "memory to memory", &[("profile", "@stream")], 10.0),
        run(2, "disk read, local", &[TO_MEMORY, LOCAL, DIRECT], 5.0),
        run(3, "disk write, local", &[TO_DISK, LOCAL, DIRECT], 2.0),
        run(4, label, settings, gigabits),
    ];
    let conclusions = conclusions(&Measurements::of(runs));
    let told = conclusions.findings.into_iter().map(|of| of.sentence);
    told.chain(conclusions.unanswered.into_iter().flat_map(|(_, reasons)| reasons)).collect()
}

#[test]
fn the_slowest_part_limits() {
    assert_eq!(
        sentences("disk to disk", &[BOTH, DIRECT], 1.9),
        [
            "Disk to disk moves 1.90 Gb/s; memory to memory alone 10.0 Gb/s, the sender's disk alone 5.00 Gb/s, the \
          receiver's disk alone 2.00 Gb/s; that is 0.95x its slowest part alone: the receiver's disk is the bottleneck."
        ]
    );
    assert_eq!(
        sentences("disk to memory", &[TO_MEMORY, DIRECT, ("source_io", "splice")], 4.9),
        [
            "Disk to memory moves 4.90 Gb/s; memory to memory alone 10.0 Gb/s, the sender's disk alone 5.00 Gb/s; \
          that is 0.98x its slowest part alone: the sender's disk is the bottleneck."
        ]
    );
}

#[test]
fn parts_that_wait_for_each_other_are_slower_than_each() {
    let told = sentences("disk to disk", &[BOTH, DIRECT], 1.3).remove(0);
    let end = "; that is 0.65x its slowest part alone, so no single part is the bottleneck.";
    assert!(told.ends_with(end), "{told}");
}

/// As with sendfile(2), which copies less than memory to memory does.
#[test]
fn more_than_the_slowest_part_is_not_limited_by_it() {
    let told = sentences("disk to disk", &[BOTH, DIRECT], 2.4).remove(0);
    let end = "; that is 1.20x its slowest part alone, so that part is not the bottleneck.";
    assert!(told.ends_with(end), "{told}");
}

#[test]
fn a_part_that_was_not_run_alone_is_told() {
    let told = sentences("disk to disk", &[BOTH, DIRECT, ("sink_io", "io_uring")], 1.3);
    assert_eq!(told, ["disk to disk: no run of the receiver's disk alone"]);
    // Through the page cache, it is another disk.
    let told = sentences("disk to memory", &[TO_MEMORY], 5.0);
    assert_eq!(told, ["disk to memory: no run of the sender's disk alone"]);
}

#[test]
fn two_parts_may_be_as_slow() {
    let runs = [
        run(1, "memory to memory", &[("profile", "@stream")], 10.0),
        run(2, "disk read, local", &[TO_MEMORY, LOCAL], 10.5),
        run(3, "disk to memory", &[TO_MEMORY], 9.5),
    ];
    let told = conclusions(&Measurements::of(runs)).findings.remove(0).sentence;
    let end = "; that is 0.95x its slowest part alone; two parts are similarly slow, so either may be the bottleneck.";
    assert!(told.ends_with(end), "{told}");
}
