//! The programs under test, and how to read their tables.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_wirecost-bench");

/// The program of the same build; it is built where only this package is tested.
pub fn wirecost() -> PathBuf {
    let program = Path::new(BENCH).with_file_name("wirecost");
    if !program.is_file() {
        let mut build = Command::new(env!("CARGO"));
        // With a test, as dependencies have the features of tests then (crates/features) and are not compiled again.
        build.args([
            "build",
            "--locked",
            "--package",
            "wirecost",
            "--bin",
            "wirecost",
            "--test",
            "texts",
        ]);
        assert!(build.status().unwrap().success());
    }
    program
}

/// The program with a directory of its own for claims: tests beside it measure too.
pub fn bench(args: &[&str]) -> Output {
    let runtime = tempfile::tempdir().unwrap();
    Command::new(BENCH).env("WIRECOST_RUNTIME_DIR", runtime.path()).args(args).output().unwrap()
}

/// Cells of the row that begins so.
pub fn row<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(&format!("| {start} |")));
    let line = line.unwrap_or_else(|| panic!("no row of {start} in\n{text}"));
    line.split('|').map(str::trim).collect()
}
