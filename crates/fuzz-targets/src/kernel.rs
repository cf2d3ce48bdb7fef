//! Whatever the kernel answers over netlink, by socket options or in a ring of events: no reader panics or
//! reads beyond it.

use wirecost_linux::fuzzing::{answers, perf_records};

pub fn run(bytes: &[u8]) {
    answers(bytes);
    perf_records(bytes);
}
