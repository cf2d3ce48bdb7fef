//! What is no record is refused, with one message that names the file and what to do.

use std::fs;
use std::path::Path;

use wirecost_store::{HOSTS, RUN, Recorder, SAMPLES, STACKS, SUMS, read};

use crate::recorded::{hosts, run};

/// The message of reading a record of which something was changed, without the place of the record.
fn refusal(change: impl FnOnce(&Path)) -> String {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("record");
    Recorder::create(&directory).unwrap().save(&run(), &hosts()).unwrap();
    change(&directory);
    let message = read(&directory).unwrap_err().to_string();
    message.replace(&*parent.path().to_string_lossy(), "")
}

fn edit(name: &str, change: impl FnOnce(String) -> String) -> impl FnOnce(&Path) {
    move |directory| {
        let path = directory.join(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, change(text)).unwrap();
    }
}

fn cut(name: &str) -> impl FnOnce(&Path) {
    move |directory| {
        let path = directory.join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }
}

const AGAIN: &str = "copy it again from its source, or remove its directory and repeat the run";
const OWN: &str = "restore the original, or remove it";

#[test]
fn truncated_and_foreign_documents_are_refused() {
    let message = refusal(cut(RUN));
    assert!(
        message.starts_with("/record/run.json is damaged (it is truncated at line "),
        "{message}"
    );
    assert!(message.ends_with(&format!("): {AGAIN}")), "{message}");
    assert_eq!(
        refusal(|directory| fs::write(directory.join(RUN), "").unwrap()),
        format!("/record/run.json is damaged (it is truncated at line 1): {AGAIN}")
    );
    for other in ["[1, 2]", "{}", "{\"schema\": null}"] {
        assert_eq!(
            refusal(|directory| fs::write(directory.join(RUN), other).unwrap()),
            format!(
                "/record/run.json is not a file of wirecost (it is not a document of wirecost): {OWN}"
            )
        );
    }
    let message = refusal(|directory| fs::write(directory.join(RUN), "\u{7f}ELF").unwrap());
    assert!(message.starts_with("/record/run.json is damaged (it is not JSON: "), "{message}");
    let message = refusal(edit(RUN, |text| text.replacen("\"error\": null", "\"error\": 7", 1)));
    assert!(message.starts_with("/record/run.json is damaged (invalid type: "), "{message}");
    let doctor = |text: String| text.replacen("wirecost.run/1", "wirecost.doctor/1", 1);
    assert_eq!(
        refusal(edit(RUN, doctor)),
        "/record/run.json is a document wirecost.doctor/1, and wirecost.run/1 is needed here: give \
         the path of a document of that kind"
    );
}

#[test]
fn a_document_may_be_truncated_anywhere() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join(RUN);
    let text = serde_json::to_value(run()).unwrap().to_string();
    for length in (0..text.len()).step_by(13) {
        fs::write(&path, &text.as_bytes()[..length]).unwrap();
        let message = wirecost_store::document(&path).unwrap_err().to_string();
        assert!(message.contains("it is truncated at line 1"), "{length}: {message}");
    }
}

#[test]
fn a_document_of_a_newer_version_is_refused() {
    let expected = "/record/run.json was written by a newer wirecost (wirecost.run/2; this version \
                    reads up to wirecost.run/1): upgrade wirecost to read it";
    let newer = |text: String| text.replacen("wirecost.run/1", "wirecost.run/2", 1);
    assert_eq!(refusal(edit(RUN, newer)), expected);
    // Also where its keys are others.
    let emptied = "{\"schema\": \"wirecost.run/2\"}".to_owned();
    assert_eq!(refusal(edit(RUN, |_| emptied)), expected);
}

#[test]
fn truncated_and_foreign_samples_are_refused() {
    let damaged = |message: &str| {
        assert!(message.starts_with("/record/samples.parquet is damaged ("), "{message}");
        assert!(message.ends_with(&format!("): {AGAIN}")), "{message}");
    };
    damaged(&refusal(cut(SAMPLES)));
    for other in ["PAR", "start,seconds\n", "PAR1 and not much more PAR1"] {
        damaged(&refusal(|directory| fs::write(directory.join(SAMPLES), other).unwrap()));
    }
}

#[test]
fn truncated_and_missing_other_files_are_refused() {
    let message = refusal(cut(HOSTS));
    assert!(message.starts_with("/record/hosts.json is damaged ("), "{message}");
    let message = refusal(|directory| fs::remove_file(directory.join(HOSTS)).unwrap());
    assert!(message.starts_with("cannot read /record/hosts.json: "), "{message}");
    let message = refusal(edit(STACKS, |text| text[..text.len() - 4].to_owned()));
    assert_eq!(
        message,
        format!("/record/stacks.folded is damaged (it ends in the middle of a line): {AGAIN}")
    );
}

#[test]
fn a_directory_that_is_not_a_record_or_is_missing_is_refused() {
    let message = refusal(|directory| fs::remove_file(directory.join(RUN)).unwrap());
    let expected = "/record is not a record: it lacks run.json and observe.json. Choose a \
                    directory that `--out` of `wirecost run` or `wirecost observe` created";
    assert_eq!(message, expected);
    let message = refusal(|directory| fs::remove_dir_all(directory).unwrap());
    assert_eq!(message, "/record does not exist: check the path");
}

#[test]
fn a_file_that_is_not_what_was_saved_is_refused() {
    let changed = "it is not what was saved: it was changed, or copied from another record";
    let message = refusal(edit(RUN, |text| text.replacen("\"engine\": \"", "\"engine\": \"x", 1)));
    assert_eq!(message, format!("/record/run.json is damaged ({changed}): {AGAIN}"));
    let message = refusal(edit(HOSTS, |text| format!("{text}\n")));
    assert_eq!(message, format!("/record/hosts.json is damaged ({changed}): {AGAIN}"));
    let message = refusal(|directory| {
        let other = tempfile::tempdir().unwrap();
        let mut run = run();
        run.intervals.clear();
        run.observe = None;
        Recorder::create(other.path()).unwrap().save(&run, &hosts()).unwrap();
        fs::copy(other.path().join(SAMPLES), directory.join(SAMPLES)).unwrap();
    });
    assert_eq!(message, format!("/record/samples.parquet is damaged ({changed}): {AGAIN}"));
}

/// Without its hashes, a record is not taken for one of a version that kept none.
#[test]
fn a_record_that_lacks_a_file_that_was_saved_is_refused() {
    let remove = |name| refusal(move |directory| fs::remove_file(directory.join(name)).unwrap());
    let expected =
        format!("/record is damaged (it lacks files.json, which was saved with it): {AGAIN}");
    assert_eq!(remove(SUMS), expected);
    for name in [SAMPLES, STACKS] {
        assert_eq!(
            remove(name),
            format!("/record/{name} is damaged (it was saved, and is missing): {AGAIN}")
        );
    }
}

/// Records of earlier versions have no hashes.
#[test]
fn values_that_no_run_measures_are_refused() {
    let with = |change: fn(&mut wirecost_model::run::Run)| {
        refusal(move |directory| {
            let mut run = run();
            change(&mut run);
            let mut text = serde_json::to_string(&run).unwrap();
            text.push('\n');
            fs::write(directory.join(RUN), text).unwrap();
            fs::remove_file(directory.join(SUMS)).unwrap();
        })
    };
    let message = with(|run| run.throughput.as_mut().unwrap().bits_per_second = 1e15);
    assert!(
        message.contains("throughput.bits_per_second is 1e15, and cannot be more than 1e14"),
        "{message}"
    );
    let message = with(|run| run.window.as_mut().unwrap().seconds = -1.0);
    assert!(message.contains("window.seconds is -1, and cannot be less than 0"), "{message}");
    // Longer than the whole phase.
    let message = with(|run| run.latency_us.as_mut().unwrap().max = 1e12);
    assert!(message.contains("latency_us.max is 1e12, and cannot be more than "), "{message}");
    // Not what so many a second are in the window.
    let message = with(|run| run.transactions.as_mut().unwrap().count *= 3);
    assert!(message.contains("transactions.count is "), "{message}");
    // Of all its CPUs.
    let message = with(|run| run.hosts[0].cpu.as_mut().unwrap().sys = 4000.0);
    assert!(message.contains("hosts.cpu.sys is 4e3, and cannot be more than "), "{message}");
}
