//! The seed of what tests draw at random.

/// Always the same, or that of `WIRECOST_TEST_SEED`. (Property tests read `PROPTEST_RNG_SEED`.)
pub fn seed() -> u64 {
    const VARIABLE: &str = "WIRECOST_TEST_SEED";
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{VARIABLE}={text}: {error}")),
        Err(_) => 33,
    }
}
