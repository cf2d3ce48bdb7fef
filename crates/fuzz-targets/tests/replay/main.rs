//! Each fuzz target with its seeds and with mutations of them, and what else can be tested of `fuzz/` without
//! libFuzzer.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in what it calls, and says what it did"
)]

mod libfuzzer;
mod mutation;
mod replay;
#[path = "../../../../tests/seed.rs"]
mod seed;

macro_rules! targets {
    ($($target:ident)+) => {
        const ALL: &[&str] = &[$(stringify!($target)),+];

        $(
            #[test]
            fn $target() {
                replay::replay(stringify!($target), wirecost_fuzz_targets::$target::run);
            }
        )+
    };
}

targets!(hello kernel order proc profile record samples study tls trace);

#[test]
fn every_target_of_libfuzzer_is_replayed() {
    libfuzzer::are_its_targets(ALL);
}
