//! Studies on disk: what is kept stays, and one writes at a time.

use std::fs;
use std::path::Path;

use wirecost_model::run::Run;
use wirecost_model::study::{Point, StudyRunRef};
use wirecost_store::study::{Study, Writer};
use wirecost_store::{RUN, SAMPLES, StoreError, runs};

use crate::recorded::{contents, hosts, names, run, without_stacks};

const DEFINITION: &str = "title = \"One\"\nprofile = \"mine.xml\"\n";

fn create(directory: &Path) -> Writer {
    Writer::create(directory, DEFINITION, [("mine.xml", "<profile/>")]).unwrap()
}

fn run_of(place: u32, repeat: u32) -> Run {
    let study = "One".to_owned();
    let at =
        StudyRunRef { study, point: Point::default(), place, repeat, order: place, search: None };
    Run { study: Some(at), ..run() }
}

#[test]
fn a_study_contains_its_definition_profiles_and_runs() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("new/study");
    let writer = create(&directory);
    let study = Study::open(&directory).unwrap();
    assert_eq!(study.definition().unwrap(), DEFINITION);
    assert_eq!(contents(&study.profiles()), [("mine.xml".to_owned(), b"<profile/>".to_vec())]);
    assert_eq!(study.runs().unwrap(), []);
    for (place, repeat, id) in [(2, 1, "0002-01"), (1, 0, "0001-warm-up"), (1, 1, "0001-01")] {
        writer.save(id, &run_of(place, repeat), &hosts()).unwrap();
    }
    assert_eq!(names(&directory), [".lock", "profiles", "runs", "study.toml"]);
    // Who reads does not wait for who writes.
    assert_eq!(study.ids().unwrap(), ["0001-01", "0001-warm-up", "0002-01"]);
    let expected = [("0001-01", (1, 1)), ("0001-warm-up", (1, 0)), ("0002-01", (2, 1))];
    let expected = expected
        .map(|(id, (place, repeat))| (id.to_owned(), without_stacks(run_of(place, repeat))));
    assert_eq!(study.runs().unwrap(), expected);
    assert_eq!(study.read("0002-01").unwrap().run, run_of(2, 1));
}

#[test]
fn an_existing_record_or_study_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let writer = create(directory.path());
    writer.save("0001-01", &run_of(1, 1), &hosts()).unwrap();
    let before = contents(&writer.study().record("0001-01"));
    let error = writer.save("0001-01", &run_of(1, 2), &hosts()).unwrap_err();
    assert!(matches!(error, StoreError::AlreadyRecorded(_)), "{error}");
    assert_eq!(contents(&writer.study().record("0001-01")), before);
    drop(writer);
    let error = Writer::create(directory.path(), "title = \"Two\"\n", []).unwrap_err();
    assert!(error.to_string().contains("wirecost study resume"), "{error}");
    assert_eq!(Study::open(directory.path()).unwrap().definition().unwrap(), DEFINITION);
    // Records are kept even of a study whose text is lost.
    fs::remove_file(directory.path().join("study.toml")).unwrap();
    let error = Writer::create(directory.path(), DEFINITION, []).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty(_)), "{error}");
    assert_eq!(contents(&directory.path().join("runs/0001-01")), before);
}

#[test]
fn only_one_writer_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let writer = create(directory.path());
    for refused in [Writer::open(directory.path()), Writer::open(directory.path())] {
        let message = refused.unwrap_err().to_string();
        let expected = format!(
            "{} is in use by another wirecost, process {}: wait until it ends, or stop it",
            directory.path().display(),
            std::process::id()
        );
        assert_eq!(message, expected);
    }
    drop(writer);
    Writer::open(directory.path()).unwrap().save("0001-01", &run(), &hosts()).unwrap();
}

#[test]
fn directories_of_a_dead_writer_are_ignored_and_then_removed() {
    let directory = tempfile::tempdir().unwrap();
    drop(create(directory.path()));
    let left = directory.path().join("runs/.0001-01.4711.tmp");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(SAMPLES), "PAR1").unwrap();
    let study = Study::open(directory.path()).unwrap();
    assert_eq!(study.ids().unwrap(), Vec::<String>::new());
    drop(Writer::open(directory.path()).unwrap());
    assert_eq!(names(&directory.path().join("runs")), Vec::<String>::new());
}

#[test]
fn a_study_whose_creation_was_interrupted_can_be_created_again() {
    let directory = tempfile::tempdir().unwrap();
    drop(create(directory.path()));
    // As after a kill before the last step.
    fs::remove_file(directory.path().join("study.toml")).unwrap();
    fs::create_dir(directory.path().join(".study.toml.4711.tmp")).unwrap();
    let error = Study::open(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::NotAStudy(_)), "{error}");
    let writer = Writer::create(directory.path(), "title = \"Two\"\n", []).unwrap();
    assert_eq!(names(directory.path()), [".lock", "profiles", "runs", "study.toml"]);
    assert_eq!(writer.study().definition().unwrap(), "title = \"Two\"\n");
    assert_eq!(names(&writer.study().profiles()), Vec::<String>::new());
}

#[test]
fn a_directory_that_is_not_a_study_is_refused_and_not_changed() {
    let parent = tempfile::tempdir().unwrap();
    let message = Study::open(parent.path()).unwrap_err().to_string();
    assert!(message.contains("is not a study: it lacks study.toml. Choose a"), "{message}");
    let message = Writer::open(&parent.path().join("not/there")).unwrap_err().to_string();
    assert!(message.ends_with("does not exist: check the path"), "{message}");
    fs::create_dir(parent.path().join("runs")).unwrap();
    let error = Writer::create(parent.path(), DEFINITION, []).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty(_)), "{error}");
    assert_eq!(names(parent.path()), ["runs"]);
}

#[test]
fn a_damaged_record_is_reported_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let writer = create(directory.path());
    for id in ["0001-01", "0002-01", "0003-01"] {
        writer.save(id, &run(), &hosts()).unwrap();
    }
    let file = writer.study().record("0002-01").join(RUN);
    fs::write(&file, "{").unwrap();
    let message = writer.study().runs().unwrap_err().to_string();
    assert!(message.starts_with(&format!("{} is damaged", file.display())), "{message}");
    fs::remove_file(&file).unwrap();
    let message = writer.study().runs().unwrap_err().to_string();
    assert!(message.contains("runs/0002-01 is not a record"), "{message}");
}

#[test]
fn runs_are_read_from_a_study_a_record_or_a_file() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("study");
    create(&directory).save("0001-01", &run_of(1, 1), &hosts()).unwrap();
    let run = without_stacks(run_of(1, 1));
    assert_eq!(runs(&directory).unwrap(), [("0001-01".to_owned(), run.clone())]);
    let record = directory.join("runs/0001-01");
    for path in [record.join(RUN), record] {
        assert_eq!(runs(&path).unwrap(), [(path.display().to_string(), run.clone())]);
    }
    let message = runs(&directory.join("runs")).unwrap_err().to_string();
    assert!(message.contains("is neither a study nor a record: it lacks"), "{message}");
}

#[test]
fn a_vanished_study_is_an_error_with_its_path() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("study");
    let writer = create(&directory);
    fs::remove_dir_all(&directory).unwrap();
    let message = writer.save("0001-01", &run(), &hosts()).unwrap_err().to_string();
    let expected = format!("cannot write to {}: ", directory.join("runs").display());
    assert!(message.starts_with(&expected), "{message}");
    assert!(names(parent.path()).is_empty());
}

#[test]
fn a_run_that_is_copied_over_another_is_told() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("study");
    let writer = create(&directory);
    for place in [1, 2] {
        let run = run_of(place, 1);
        writer.save(&format!("000{place}-01"), &run, &hosts()).unwrap();
    }
    let study = writer.study();
    assert_eq!(study.runs().unwrap().len(), 2);
    for name in fs::read_dir(study.record("0001-01")).unwrap() {
        let name = name.unwrap().file_name();
        fs::copy(study.record("0001-01").join(&name), study.record("0002-01").join(&name)).unwrap();
    }
    let message = study.runs().unwrap_err().to_string();
    assert!(message.contains("0002-01/run.json"), "{message}");
    assert!(message.contains("it is run 0001-01 of a study, copied over this one"), "{message}");
}

#[test]
fn a_run_that_failed_is_replaced_and_one_that_did_not_is_kept() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("study");
    let writer = create(&directory);
    let mut failed = run_of(1, 1);
    failed.status = wirecost_model::status::Status::Invalid;
    writer.save("0001-01", &failed, &hosts()).unwrap();
    writer.save("0001-01", &run_of(1, 1), &hosts()).unwrap();
    let runs = writer.study().runs().unwrap();
    assert_eq!(runs[0].1.status, run_of(1, 1).status);
    assert!(matches!(
        writer.save("0001-01", &failed, &hosts()),
        Err(StoreError::AlreadyRecorded(_))
    ));
    assert_eq!(fs::read_dir(directory.join("runs")).unwrap().count(), 1);
}

/// Somebody who made the directory could have another's file written.
#[test]
fn locks_and_runs_that_are_links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("study");
    drop(create(&directory));
    let (lock, victim) = (directory.join(".lock"), parent.path().join("victim"));
    let links: [fn(&Path, &Path); 2] =
        [|to, at| symlink(to, at).unwrap(), |to, at| fs::hard_link(to, at).unwrap()];
    for link in links {
        fs::write(&victim, "mine").unwrap();
        fs::remove_file(&lock).unwrap();
        link(&victim, &lock);
        let error = Writer::open(&directory).unwrap_err();
        assert!(matches!(&error, StoreError::Link(path) if *path == lock), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }
    fs::remove_file(&lock).unwrap();
    fs::remove_dir(directory.join("runs")).unwrap();
    symlink(parent.path(), directory.join("runs")).unwrap();
    let error = Writer::open(&directory).unwrap_err();
    assert!(matches!(error, StoreError::Link(_)), "{error}");
}
