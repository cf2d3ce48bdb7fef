//! Where a study is kept: `study.toml`, the profiles that are files, and a record of each run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_store::Record;

use crate::Failure;

const STUDY: &str = "study.toml";
const PROFILES: &str = "profiles";
const RUNS: &str = "runs";

#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn create(
        path: &Path,
        text: &str,
        profiles: &BTreeMap<String, PathBuf>,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(Status::Failed, format!("cannot write {}: {error}", path.display()))
        };
        if path.join(STUDY).exists() {
            return Err(Failure::usage(format!("{} already holds a study", path.display()))
                .help(format!("go on with it: wirecost study resume {}", path.display())));
        }
        fs::create_dir_all(path.join(RUNS)).map_err(failed)?;
        if !profiles.is_empty() {
            fs::create_dir_all(path.join(PROFILES)).map_err(failed)?;
        }
        let directory = Self(path.to_owned());
        for (name, file) in profiles {
            fs::copy(file, directory.profile(name)).map_err(failed)?;
        }
        fs::write(path.join(STUDY), text).map_err(failed)?;
        Ok(directory)
    }

    pub(super) fn open(path: &Path) -> Result<(Self, String), Failure> {
        let text = fs::read_to_string(path.join(STUDY)).map_err(|error| {
            Failure::usage(format!("{} is no study: {STUDY}: {error}", path.display()))
        })?;
        Ok((Self(path.to_owned()), text))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn profile(&self, name: &str) -> PathBuf {
        let name = Path::new(name).file_name().unwrap_or_default();
        self.0.join(PROFILES).join(name)
    }

    pub(super) fn save(
        &self,
        id: &str,
        run: &Run,
        hosts: &Map<String, Value>,
    ) -> Result<(), Failure> {
        let record = Record::create(&self.0.join(RUNS).join(id)).map_err(Failure::usage)?;
        record.save(run, hosts).map_err(|error| Failure::new(Status::Failed, error))
    }

    pub(super) fn runs(&self) -> Result<Vec<(String, Run)>, Failure> {
        let mut runs = Vec::new();
        let Ok(entries) = fs::read_dir(self.0.join(RUNS)) else { return Ok(runs) };
        for entry in entries.flatten() {
            let Ok(text) = fs::read_to_string(entry.path().join(wirecost_store::RUN)) else {
                continue;
            };
            let run = serde_json::from_str(&text).map_err(Failure::usage)?;
            runs.push((entry.file_name().to_string_lossy().into_owned(), run));
        }
        Ok(runs)
    }
}
