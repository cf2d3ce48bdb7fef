//! What a person names to be looked at: a study, a record of a run, or the document of one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use wirecost_analyze::compare::Hosts;
use wirecost_model::environment::Environment;
use wirecost_model::run::{Run, SCHEMA};
use wirecost_store::{HOSTS, RUN};

use crate::Failure;

const STUDY: &str = "study.toml";
const RUNS: &str = "runs";
const PROFILES: &str = "profiles";

/// What is there.
#[derive(Debug)]
pub(crate) struct Records {
    /// As it was named.
    pub(crate) name: String,
    /// A record or a document, and no study.
    pub(crate) single: bool,
    /// With the name of each.
    pub(crate) runs: Vec<(String, Run)>,
    /// Of each record that has them.
    pub(crate) hosts: Vec<Hosts>,
    /// Text of the profiles that were kept, by their names in the runs.
    pub(crate) profiles: Vec<(String, String)>,
}

/// Reads all of it.
///
/// # Errors
/// It is not there, is something else, or is damaged.
pub(crate) fn read(path: &Path) -> Result<Records, Failure> {
    let name = path.display().to_string();
    let mut records =
        Records { name, single: true, runs: Vec::new(), hosts: Vec::new(), profiles: Vec::new() };
    let metadata = fs::metadata(path).map_err(|error| Failure::usage(cannot_read(path, &error)))?;
    if !metadata.is_dir() {
        records.add(path)?;
    } else if path.join(RUN).exists() {
        records.add(&path.join(RUN))?;
    } else if path.join(RUNS).is_dir() || path.join(STUDY).exists() {
        records.single = false;
        for record in directories(&path.join(RUNS))? {
            // One that was being written when its program ended is no record.
            if record.join(RUN).exists() {
                records.add(&record.join(RUN))?;
            }
        }
        records.keep_profiles(path);
    } else {
        return Err(Failure::usage(format!("{} is neither a study nor a record", path.display()))
            .help("name a directory that `study run --out` or `run --out` wrote, or a run.json"));
    }
    Ok(records)
}

impl Records {
    fn add(&mut self, document: &Path) -> Result<(), Failure> {
        let run = run(document)?;
        let beside = document.parent().map(|parent| parent.join(HOSTS));
        if let Some(file) = beside
            .filter(|file| document.file_name().is_some_and(|name| name == RUN) && file.exists())
        {
            // A host that could not tell what it is like is null.
            let hosts: BTreeMap<String, Option<Environment>> = parse(&file)?;
            let known = hosts.into_iter().filter_map(|(name, host)| Some((name, host?)));
            self.hosts.push(known.collect());
        }
        let record = document.parent().and_then(Path::file_name).unwrap_or(document.as_os_str());
        self.runs.push((record.to_string_lossy().into_owned(), run));
        Ok(())
    }

    fn keep_profiles(&mut self, study: &Path) {
        for (_, run) in &self.runs {
            let known = self.profiles.iter().any(|(name, _)| *name == run.profile);
            let Some(file) = Path::new(&run.profile).file_name().filter(|_| !known) else {
                continue;
            };
            // A built-in has no file: its name and wirecost's version tell it.
            if let Ok(text) = fs::read_to_string(study.join(PROFILES).join(file)) {
                self.profiles.push((run.profile.clone(), text));
            }
        }
    }
}

fn run(path: &Path) -> Result<Run, Failure> {
    let value: serde_json::Value = parse(path)?;
    match value["schema"].as_str() {
        Some(SCHEMA) => {}
        Some(other) => {
            return Err(Failure::usage(format!(
                "{} is a document of {other}: this version of wirecost reads {SCHEMA} here",
                path.display()
            )));
        }
        None => {
            return Err(Failure::usage(format!("{} is no document of wirecost", path.display())));
        }
    }
    serde_json::from_value(value).map_err(|error| Failure::usage(cannot_read(path, &error)))
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| Failure::usage(cannot_read(path, &error)))?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(cannot_read(path, &error)))
}

fn directories(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        // A study of which nothing has run yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::usage(cannot_read(path, &error))),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Failure::usage(cannot_read(path, &error)))?;
        found.push(entry.path());
    }
    found.sort();
    Ok(found)
}

fn cannot_read(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot read {}: {error}", path.display())
}
