//! A real run, and where the files of one as an older version wrote it are.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use wirecost_model::run::Run;

/// A record, or an observation, as wirecost wrote it before there were studies.
pub fn before_studies(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/before-studies").join(name)
}

pub fn json<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Has stacks, flows, segments and intervals.
pub fn run() -> Run {
    json(&before_studies("run").join("run.json"))
}

pub fn hosts() -> Map<String, Value> {
    json(&before_studies("run").join("hosts.json"))
}

/// Without its stacks, as it stands in a study.
pub fn without_stacks(mut run: Run) -> Run {
    for host in run.observe.iter_mut().flat_map(|observe| &mut observe.hosts) {
        if let Some(functions) = &mut host.functions {
            functions.stacks.stacks.clear();
        }
    }
    run
}

/// Names in a directory, in their order.
pub fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| name(entry).into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files of a directory with their content, by name.
pub fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let content = fs::read(directory.join(&name)).unwrap();
        (name, content)
    };
    names(directory).into_iter().map(read).collect()
}
