//! What a person names to be looked at: a study, a record of a run, or the document of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use wirecost_analyze::compare::Hosts;
use wirecost_model::run::Run;
use wirecost_model::study::Value;
use wirecost_report::documents::page::SavedRuns;
use wirecost_store::study::{DEFINITION, RUNS, Study};
use wirecost_store::{Document, HOSTS, input};

use crate::Failure;

/// What was read.
#[derive(Debug)]
pub(crate) struct Records {
    /// Its name on the command line.
    pub(crate) name: String,
    /// A record or a document outside a study.
    pub(crate) single: bool,
    /// With the name of each.
    pub(crate) runs: Vec<(String, Run)>,
    /// Host environments of each record that has them.
    pub(crate) hosts: Vec<Hosts>,
    /// Keys of the study file; `None` outside a study, or if it is no TOML.
    pub(crate) study_keys: Option<BTreeMap<String, String>>,
    /// Texts of the saved profiles, by their names in the runs.
    pub(crate) profiles: Vec<(String, String)>,
    pub(crate) source: Source,
}

/// Where runs were read from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Study(PathBuf),
    /// A record or a document outside a study.
    Single(PathBuf),
}

impl SavedRuns for Source {
    fn record(&self, run: &str) -> Option<String> {
        Some(match self {
            Source::Study(directory) => directory.join(RUNS).join(run).display().to_string(),
            Source::Single(path) => path.display().to_string(),
        })
    }

    fn with_stacks(&self, run: &str) -> Option<Run> {
        match self {
            Source::Study(directory) => Some(Study::open(directory).ok()?.read(run).ok()?.run),
            Source::Single(path) => match wirecost_store::document(path).ok()? {
                Document::Run(run) => Some(run),
                Document::Observe(_) => None,
            },
        }
    }
}

/// Reads all of it.
///
/// # Errors
/// It does not exist, is something else, or is damaged.
pub(crate) fn read(path: &Path) -> Result<Records, Failure> {
    let name = path.display().to_string();
    let (runs, hosts) = (Vec::new(), Vec::new());
    let profiles = Vec::new();
    let source = Source::Single(path.to_owned());
    let mut records =
        Records { name, single: true, runs, hosts, study_keys: None, profiles, source };
    if path.join(DEFINITION).exists() {
        let study = Study::open(path).map_err(Failure::usage)?;
        records.single = false;
        records.source = Source::Study(path.to_owned());
        records.study_keys = wirecost_study::keys(&study.definition().map_err(Failure::usage)?);
        records.runs = study.runs().map_err(Failure::usage)?;
        for (id, _) in &records.runs {
            records.hosts.push(wirecost_store::hosts(&study.record(id)).map_err(Failure::usage)?);
        }
        records.keep_profiles(&study);
        return Ok(records);
    }
    let run = wirecost_store::run(path).map_err(Failure::usage)?;
    // The document alone does not say what its hosts were like.
    if path.join(HOSTS).exists() {
        records.hosts.push(wirecost_store::hosts(path).map_err(Failure::usage)?);
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    records.runs.push((name.to_string_lossy().into_owned(), run));
    Ok(records)
}

impl Records {
    /// Names of the axes of a study, each with its values in the order of the study.
    pub(crate) fn axes(&self) -> Vec<(String, Vec<String>)> {
        let mut axes: Vec<(String, Vec<String>)> = Vec::new();
        let of_runs = self.runs.iter().filter_map(|(_, run)| run.study.as_ref());
        for Value { name, value } in of_runs.flat_map(|study| &study.point.axes) {
            match axes.iter_mut().find(|(axis, _)| axis == name) {
                Some((_, values)) if values.contains(value) => {}
                Some((_, values)) => values.push(value.clone()),
                None => axes.push((name.clone(), vec![value.clone()])),
            }
        }
        axes
    }

    /// The runs of a study at one value of an axis, as a study without that axis.
    ///
    /// # Errors
    /// It is no study, or has no such value.
    pub(crate) fn at(&self, axis: &str, value: &str) -> Result<Self, Failure> {
        let at =
            |run: &Run| run.study.as_ref().and_then(|study| study.point.get(axis)) == Some(value);
        let mut runs = Vec::new();
        let mut hosts = Vec::new();
        // A study has the hosts of each of its runs.
        for ((id, run), of_run) in self.runs.iter().zip(&self.hosts).filter(|((_, run), _)| at(run))
        {
            let mut run = run.clone();
            if let Some(study) = &mut run.study {
                study.point.axes.retain(|value| value.name != axis);
            }
            runs.push((id.clone(), run));
            hosts.push(of_run.clone());
        }
        if runs.is_empty() {
            return Err(Failure::usage(format!("{} has no run at {axis}={value}", self.name)));
        }
        Ok(Self {
            name: format!("{axis}={value}"),
            single: false,
            runs,
            hosts,
            study_keys: self.study_keys.clone(),
            profiles: self.profiles.clone(),
            source: self.source.clone(),
        })
    }

    fn keep_profiles(&mut self, study: &Study) {
        for (_, run) in &self.runs {
            let known = self.profiles.iter().any(|(name, _)| *name == run.profile);
            let Some(file) = Path::new(&run.profile).file_name().filter(|_| !known) else {
                continue;
            };
            // A built-in has no file: its name and wirecost's version tell it.
            if let Ok(text) = input::read_text(&study.profiles().join(file), input::PROFILE) {
                self.profiles.push((run.profile.clone(), text));
            }
        }
    }
}
