//! Whatever stands in a record's `samples.parquet`: the record is read, or refused with a reason.

use wirecost_store::{HOSTS, RUN, SAMPLES, read};

const RECORD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/a8e7742/a/runs/0001-01/");

pub fn run(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    for name in [RUN, HOSTS] {
        std::os::unix::fs::symlink(format!("{RECORD}{name}"), directory.path().join(name)).unwrap();
    }
    std::fs::write(directory.path().join(SAMPLES), bytes).unwrap();
    if let Err(error) = read(directory.path()) {
        assert!(!error.to_string().is_empty());
    }
}
