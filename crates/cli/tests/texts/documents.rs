//! Rules for the documents of the tree: decisions are short, and links between documents resolve.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most words that a decision may have.
const LONGEST_DECISION: usize = 300;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files of a directory, sorted by name.
fn markdown_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    files
}

/// The name of a file, for messages and for the index.
fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn decisions() -> Vec<PathBuf> {
    let mut files = markdown_files(&tree().join("docs/adr"));
    files.retain(|path| file_name(path).starts_with(|c: char| c.is_ascii_digit()));
    assert!(!files.is_empty(), "docs/adr has no decisions");
    files
}

#[test]
fn decisions_have_at_most_300_words() {
    let too_long: Vec<String> = decisions()
        .iter()
        .map(|path| (file_name(path), fs::read_to_string(path).unwrap()))
        .map(|(name, text)| (name, text.split_whitespace().count()))
        .filter(|(_, words)| *words > LONGEST_DECISION)
        .map(|(name, words)| format!("{name}: {words} words"))
        .collect();
    assert!(
        too_long.is_empty(),
        "decisions have at most {LONGEST_DECISION} words; move tables and details to \
         docs/measurements:\n{}",
        too_long.join("\n")
    );
}

#[test]
fn the_index_lists_every_decision_and_every_measurement() {
    let mut missing = Vec::new();
    for (directory, files) in [
        ("docs/adr", decisions()),
        ("docs/measurements", markdown_files(&tree().join("docs/measurements"))),
    ] {
        let index = fs::read_to_string(tree().join(directory).join("README.md")).unwrap();
        for path in &files {
            let name = file_name(path);
            if name != "README.md" && !index.contains(&format!("({name})")) {
                missing.push(format!("{directory}/README.md does not list {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The targets of the links `[text](target)` in a Markdown text.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains(char::is_whitespace))
}

#[test]
fn links_between_documents_resolve() {
    let mut checked = 0;
    let mut broken = Vec::new();
    for directory in ["", "docs", "docs/adr", "docs/gallery", "docs/measurements"] {
        for path in markdown_files(&tree().join(directory)) {
            let text = fs::read_to_string(&path).unwrap();
            for target in targets(&text) {
                let file = target.split('#').next().unwrap_or_default();
                if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                checked += 1;
                if !path.parent().unwrap().join(file).exists() {
                    broken.push(format!("{}: {target}", path.display()));
                }
            }
        }
    }
    assert!(checked > 0, "no links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn keys_of_links_are_documented() {
    let text = fs::read_to_string(tree().join("docs/labs.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: Vec<&str> = rows.collect();
    let keys: Vec<&str> = wirecost_model::link::keys::ALL.iter().map(|key| key.name).collect();
    assert_eq!(documented, keys);
}

/// `tests/vm-verified` has the hashes of those files, and `scripts/test-vm --needed` compares them.
#[test]
fn a_change_of_a_file_that_only_a_virtual_machine_verifies_asks_for_its_tests() {
    const SCRIPT: &str = "scripts/test-vm";
    let run = |directory: &Path, program: &str, arguments: &[&str]| {
        let done = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        (done.status.code().unwrap(), said, String::from_utf8(done.stderr).unwrap())
    };
    // Every path of the list is there.
    let (code, hashes, error) = run(&tree(), "bash", &[SCRIPT, "--hashes"]);
    assert_eq!(code, 0, "{error}");
    let files: Vec<&str> = hashes.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    assert!(files.contains(&SCRIPT) && files.len() > 30, "{files:?}");

    // In a copy, at another place.
    let copy = tempfile::tempdir().unwrap();
    let copy = copy.path();
    for file in &files {
        let to = copy.join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(tree().join(file), to).unwrap();
    }
    for arguments in [&["init", "--quiet"][..], &["add", "."]] {
        let (code, _, error) = run(copy, "git", arguments);
        assert_eq!(code, 0, "{error}");
    }
    let needed = || run(copy, "bash", &[SCRIPT, "--needed"]);
    assert_eq!(needed().0, 0, "nothing was verified yet");
    fs::create_dir(copy.join("tests")).unwrap();
    fs::write(copy.join("tests/vm-verified"), &hashes).unwrap();
    assert_eq!(needed(), (1, String::new(), String::new()));
    // What git does not know, and times, do not count.
    fs::write(copy.join("scripts/vm-untracked"), "").unwrap();
    fs::copy(copy.join(SCRIPT), copy.join("tests/again")).unwrap();
    fs::rename(copy.join("tests/again"), copy.join(SCRIPT)).unwrap();
    assert_eq!(needed(), (1, String::new(), String::new()));
    let lab = "crates/lab/src/netem.rs";
    for file in [lab, "scripts/vm-up"] {
        let path = copy.join(file);
        let text = fs::read(&path).unwrap();
        fs::write(&path, [&text[..], b"\n"].concat()).unwrap();
        let (code, said, _) = needed();
        assert_eq!(code, 0, "{file}");
        assert_eq!(said.lines().skip(1).collect::<Vec<_>>(), [format!("  {file}")]);
        fs::write(&path, text).unwrap();
        assert_eq!(needed().0, 1);
    }
    fs::remove_file(copy.join(lab)).unwrap();
    assert_eq!(needed().0, 0);
}
