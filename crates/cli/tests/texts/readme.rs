//! What README.md and CONTRIBUTING.md tell people to type exists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(tree().join(name)).unwrap()
}

/// Lines of code blocks that begin with a program's name, behind a prompt or none.
fn typed<'a>(text: &'a str, program: &'a str) -> impl Iterator<Item = &'a str> {
    let mut in_block = false;
    text.lines().filter_map(move |line| {
        in_block ^= line.starts_with("```");
        let rest = line.strip_prefix("$ ").unwrap_or(line).strip_prefix(program)?;
        (in_block && rest.starts_with(' ')).then_some(rest)
    })
}

/// `--help` ends every command before it acts, but after what stands before it was read.
#[test]
fn commands_of_the_readme_are_accepted() {
    let readme = read("README.md");
    let mut count = 0;
    for line in typed(&readme, "wirecost") {
        // What follows several blanks says what the command is for.
        let command = line.trim_start().split("  ").next().unwrap();
        // A shell, as arguments may be quoted.
        let done = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {command} --help"), env!("CARGO_BIN_EXE_wirecost")])
            .output()
            .unwrap();
        assert!(done.status.success(), "wirecost {command}: {done:?}");
        count += 1;
    }
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn built_ins_of_the_readme_exist() {
    let output = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_wirecost")).args(arguments).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let known = output(&["list"]) + &output(&["study", "list"]);
    let readme = read("README.md");
    let names: Vec<&str> = typed(&readme, "wirecost")
        .flat_map(|line| line.split(' ').filter(|word| word.starts_with('@')))
        .collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(known.split_whitespace().any(|word| word == name), "{name} is not in\n{known}");
    }
}

/// Also those in running text.
#[test]
fn targets_of_make_exist() {
    let makefile = read("Makefile");
    let targets: Vec<&str> =
        makefile.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let named = regex::Regex::new(r"(?m)(?:`|^)make ([a-z-]+)").unwrap();
    for document in ["README.md", "CONTRIBUTING.md"] {
        let text = read(document);
        let mut count = 0;
        for found in named.captures_iter(&text) {
            assert!(targets.contains(&&found[1]), "{document}: make {}", &found[1]);
            count += 1;
        }
        assert!(count > 0, "{document} names no target");
    }
}

/// Scripts, and directories of fuzz targets.
#[test]
fn scripts_of_the_documents_exist() {
    let named = regex::Regex::new(r"`(scripts/[a-z-]+|fuzz/[a-z_]+)").unwrap();
    for document in ["README.md", "CONTRIBUTING.md"] {
        for found in named.captures_iter(&read(document)) {
            assert!(tree().join(&found[1]).exists(), "{document}: {}", &found[1]);
        }
    }
}
