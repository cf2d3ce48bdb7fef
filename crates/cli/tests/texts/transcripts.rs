//! What is typed and what then stands on the terminal: transcripts/*.md.
//! `TRYCMD=overwrite cargo test -p wirecost --test texts` writes them anew.

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        // Widths and characters do not depend on who runs the tests.
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .env("WIRECOST_RUNTIME_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/transcripts"))
        .case("tests/texts/transcripts/*.md");
}
