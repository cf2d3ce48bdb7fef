//! Whatever the kernel answers over netlink, by socket options or in a ring of events: no reader panics or
//! reads beyond it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wirecost_linux::fuzzing::{answers, perf_records};

fuzz_target!(|bytes: &[u8]| {
    answers(bytes);
    perf_records(bytes);
});
