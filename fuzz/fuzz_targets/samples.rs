//! Whatever stands in a record's `samples.parquet`: the record is read, or refused with a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wirecost_store::{HOSTS, RUN, SAMPLES, read};

const RECORD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/store/tests/fixtures/a8e7742/a/runs/0001-01/");

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().unwrap();
    for name in [RUN, HOSTS] {
        std::fs::copy(format!("{RECORD}{name}"), directory.path().join(name)).unwrap();
    }
    std::fs::write(directory.path().join(SAMPLES), bytes).unwrap();
    if let Err(error) = read(directory.path()) {
        assert!(!error.to_string().is_empty());
    }
});
