//! Records of single runs: what is saved is what is read, and nothing of others is touched.

use std::collections::BTreeMap;
use std::fs;

use wirecost_model::environment::Environment;
use wirecost_model::observe::ObserveDocument;
use wirecost_model::run::{Interval, Run};
use wirecost_store::{
    Document, HOSTS, OBSERVATION, RUN, Recorder, SAMPLES, STACKS, SUMS, StoreError, document, read,
};

use crate::recorded::{before_studies, contents, hosts, json, names, run, without_stacks};

#[test]
fn a_saved_record_is_complete_and_leaves_no_other_files() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("runs/one");
    let recorder = Recorder::create(&directory).unwrap();
    assert!(names(&directory).is_empty());
    recorder.save(&run(), &hosts()).unwrap();
    assert_eq!(names(&directory), [SUMS, HOSTS, RUN, SAMPLES, STACKS]);
    let record = read(&directory).unwrap();
    assert_eq!(record.run, run());
    let expected: BTreeMap<String, Environment> =
        serde_json::from_value(serde_json::Value::Object(hosts())).unwrap();
    assert_eq!(record.hosts, expected);
    // The document alone has no stacks, and is a document all the same.
    assert_eq!(wirecost_store::run(&directory).unwrap(), without_stacks(run()));
    assert_eq!(document(&directory.join(RUN)).unwrap(), Document::Run(run()));
}

/// What a long run takes on disk follows from its intervals, of which each takes as much as the ones before.
#[test]
fn a_record_of_hours_takes_a_constant_for_each_interval() {
    const HOURS: u64 = 3 * 3_600;
    let size = |times: u64| {
        let mut random = fastrand::Rng::with_seed(7);
        let interval = |second: u64| {
            let bytes = 125_000_000 + random.u64(..5_000_000);
            Interval {
                start: second as f64,
                seconds: 1.0,
                tx_bytes: bytes,
                rx_bytes: 0,
                bits_per_second: 8.0 * bytes as f64,
                transactions: bytes >> 16,
                operations: bytes >> 16,
                failed: 0,
            }
        };
        let directory = tempfile::tempdir().unwrap();
        let run = Run { intervals: (0..times * HOURS).map(interval).collect(), ..run() };
        Recorder::create(directory.path()).unwrap().save(&run, &hosts()).unwrap();
        let sizes = fs::read_dir(directory.path()).unwrap();
        sizes.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let [one, two, four] = [1, 2, 4].map(size);
    let (second, others) = ((two - one) / HOURS, (four - two) / (2 * HOURS));
    assert!(second.abs_diff(others) * 20 <= second, "{second} and {others} bytes each");
    assert!(others < 400, "{others} bytes for each interval");
}

#[test]
fn a_run_without_measurements_has_a_record() {
    let parent = tempfile::tempdir().unwrap();
    let refused = Run::empty("@stream", "epoll", "0.1.0", 0);
    Recorder::create(parent.path()).unwrap().save(&refused, &hosts()).unwrap();
    assert_eq!(names(parent.path()), [SUMS, HOSTS, RUN, SAMPLES]);
    assert_eq!(read(parent.path()).unwrap().run, refused);
}

#[test]
fn an_observation_has_a_record_too() {
    let directory = tempfile::tempdir().unwrap();
    let watched: ObserveDocument = json(&before_studies("observation").join(OBSERVATION));
    let recorder = Recorder::create(directory.path()).unwrap();
    recorder.save_observation(&watched, &hosts()).unwrap();
    assert_eq!(names(directory.path()), [SUMS, HOSTS, OBSERVATION, SAMPLES, STACKS]);
    assert_eq!(document(directory.path()).unwrap(), Document::Observe(watched.clone()));
    let error = read(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::OtherDocument { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("wirecost.observe/1, and wirecost.run/1 is needed"), "{message}");
}

#[test]
fn an_existing_record_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    Recorder::create(directory.path()).unwrap().save(&run(), &hosts()).unwrap();
    let before = contents(directory.path());
    let error = Recorder::create(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::AlreadyRecorded(_)));
    assert!(error.to_string().contains("choose another directory"));
    assert_eq!(contents(directory.path()), before);
}

#[test]
fn unrelated_files_are_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("notes");
    fs::write(&file, "mine").unwrap();
    let error = Recorder::create(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty(_)));
    let error = Recorder::create(&file).unwrap_err();
    assert!(matches!(error, StoreError::NotADirectory(_)));
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[test]
fn a_removed_directory_is_an_error_with_its_path() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("record");
    let recorder = Recorder::create(&directory).unwrap();
    fs::remove_dir(&directory).unwrap();
    let error = recorder.save(&run(), &hosts()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write to {}: ", directory.display())), "{error}");
    assert!(names(parent.path()).is_empty());
}
