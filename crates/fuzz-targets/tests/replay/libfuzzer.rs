//! Checks of the crate in `fuzz/`, which only `make fuzz` builds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn table(name: &str) -> Table {
    read(name).parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Names of what is in a directory, up to their last dot.
fn stems(directory: &str) -> BTreeSet<String> {
    let path = root().join(directory);
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{directory}: {error}"));
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| stem(entry.unwrap().path())).collect()
}

/// libFuzzer has these targets and no other, and each of its files calls the target of its name.
pub fn are_its_targets(targets: &[&str]) {
    let expected: BTreeSet<String> = targets.iter().map(|&target| target.to_owned()).collect();
    assert_eq!(stems("fuzz/fuzz_targets"), expected, "files of fuzz/fuzz_targets");
    for target in targets {
        let text = read(&format!("fuzz/fuzz_targets/{target}.rs"));
        let call = format!("|bytes: &[u8]| wirecost_fuzz_targets::{target}::run(bytes)");
        let expected = format!("#![no_main]\n\nlibfuzzer_sys::fuzz_target!({call});\n");
        assert_eq!(text, expected, "fuzz/fuzz_targets/{target}.rs");
    }
    let manifest = table("fuzz/Cargo.toml");
    let binaries = manifest["bin"].as_array().unwrap().iter();
    let names = binaries.map(|binary| binary["name"].as_str().unwrap().to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), expected, "[[bin]] of fuzz/Cargo.toml");
    // A name that no target has would never be read.
    assert_eq!(stems("fuzz/seeds"), expected, "directories of fuzz/seeds");
    let dictionaries = fs::read_dir(root().join("fuzz")).unwrap();
    let names = dictionaries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| name.ends_with(".dict")) {
        let target = name.trim_end_matches(".dict");
        assert!(expected.contains(target), "fuzz/{name} is of no target");
    }
}

/// Names of dependencies, and versions, of the packages that a lock file names, by name and version.
fn packages(lock: &str) -> BTreeMap<(String, String), Vec<String>> {
    let lock = table(lock);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let package = |package: &Value| {
        let listed = package.get("dependencies").and_then(Value::as_array);
        let dependencies = listed.into_iter().flatten().map(text).collect();
        ((text(&package["name"]), text(&package["version"])), dependencies)
    };
    lock["package"].as_array().unwrap().iter().map(package).collect()
}

/// cargo-fuzz would write the lock file again if it lacked a dependency. What the targets are built from are the
/// versions that everything else is built from.
#[test]
fn the_lock_file_of_libfuzzer_is_that_of_the_workspace() {
    let workspace = packages("Cargo.lock");
    let libfuzzer = packages("fuzz/Cargo.lock");
    let mut waiting: Vec<&str> = vec!["wirecost-fuzz-targets"];
    let mut checked = BTreeSet::new();
    while let Some(wanted) = waiting.pop() {
        // A version is told where a name has several.
        let mut words = wanted.split(' ');
        let (name, version) = (words.next().unwrap(), words.next());
        let found = libfuzzer.iter().find(|((known, its), _)| {
            known == name && version.is_none_or(|version| version == its)
        });
        let (package, dependencies) =
            found.unwrap_or_else(|| panic!("fuzz/Cargo.lock lacks {wanted}"));
        if !checked.insert(package) {
            continue;
        }
        let (name, version) = package;
        assert!(
            workspace.contains_key(package),
            "fuzz/Cargo.lock has {name} {version}, and Cargo.lock has not; in fuzz/: \
             cp ../Cargo.lock . && cargo metadata --format-version 1 >/dev/null"
        );
        if let Some(directory) = name.strip_prefix("wirecost-") {
            let names = dependencies
                .iter()
                .map(|dependency| dependency.split(' ').next().unwrap_or_default().to_owned());
            assert_eq!(
                names.collect::<BTreeSet<_>>(),
                dependencies_of(directory),
                "dependencies of {name} in fuzz/Cargo.lock; in fuzz/: \
                 cargo metadata --format-version 1 >/dev/null"
            );
        }
        waiting.extend(dependencies.iter().map(String::as_str));
    }
}

/// Of a crate of ours, by its manifest. Those of its tests are not built here.
fn dependencies_of(directory: &str) -> BTreeSet<String> {
    let manifest = table(&format!("crates/{directory}/Cargo.toml"));
    let tables = ["dependencies", "build-dependencies"].into_iter();
    let tables = tables.filter_map(|name| manifest.get(name)?.as_table());
    tables.flat_map(|table| table.keys().cloned()).collect()
}
