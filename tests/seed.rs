//! What tests draw at random: the seed, and how many.
#![allow(dead_code, reason = "not every target draws both")]

const VARIABLE: &str = "WIRECOST_TEST_SEED";

/// Always the same, or that of `WIRECOST_TEST_SEED`. (Property tests read `PROPTEST_RNG_SEED`.)
pub fn seed() -> u64 {
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{VARIABLE}={text}: {error}")),
        Err(_) => 33,
    }
}

/// How many cases are drawn: `few` with the seed that is always the same, `many` with a new one (`make test-long`).
pub fn cases(few: u32, many: u32) -> u32 {
    if std::env::var_os(VARIABLE).is_some() { many } else { few }
}
