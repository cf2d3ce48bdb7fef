//! Whatever stands in files of /proc and /sys, no reader panics.

use wirecost_linux::fuzzing::texts;

pub fn run(bytes: &[u8]) {
    texts(&String::from_utf8_lossy(bytes));
}
