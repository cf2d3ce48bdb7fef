//! Whatever stands in files of /proc and /sys, no reader panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wirecost_linux::fuzzing::texts;

fuzz_target!(|bytes: &[u8]| texts(&String::from_utf8_lossy(bytes)));
