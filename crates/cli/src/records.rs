//! What a person names to be compared or explained: a study, a record of a run, or the document of one.

use std::fs;
use std::path::Path;

use wirecost_analyze::compare::Subject;
use wirecost_analyze::measured::Measured;
use wirecost_model::environment::Environment;
use wirecost_store::study::{DEFINITION, Study};
use wirecost_store::{Record, StoreError};

use crate::Failure;

/// The runs that are there.
///
/// # Errors
/// There are none, or one cannot be read.
pub(crate) fn runs(path: &Path) -> Result<Measured, Failure> {
    let runs = match is_study(path) {
        true => Study::open(path).and_then(|study| study.runs()),
        false => wirecost_store::run(path).map(|run| vec![(path.display().to_string(), run)]),
    };
    runs.map(Measured::of).map_err(Failure::usage)
}

/// The same with all that a comparison wants to know of their surroundings.
///
/// # Errors
/// There are none, or one cannot be read.
pub(crate) fn subject(path: &Path) -> Result<Subject, Failure> {
    let name = path.display().to_string();
    let mut subject = Subject { name: name.clone(), ..Subject::default() };
    let mut runs = Vec::new();
    let mut add = |name: String, record: Record, subject: &mut Subject| {
        subject.hosts.push(record.hosts.into_iter().filter(|(_, host)| is_known(host)).collect());
        runs.push((name, record.run));
    };
    if is_study(path) {
        for (id, record) in records(path).map_err(Failure::usage)? {
            add(id, record, &mut subject);
        }
    } else if path.is_dir() {
        subject.single = true;
        let record = wirecost_store::read(path).map_err(Failure::usage)?;
        add(name, record, &mut subject);
    } else {
        subject.single = true;
        runs.push((name, wirecost_store::run(path).map_err(Failure::usage)?));
    }
    if is_study(path) {
        subject.profiles = profiles(path, runs.iter().map(|(_, run)| run.profile.as_str()));
    }
    subject.hosts.retain(|hosts| !hosts.is_empty());
    subject.measured = Measured::of(runs);
    Ok(subject)
}

fn is_study(path: &Path) -> bool {
    path.join(DEFINITION).exists()
}

fn records(path: &Path) -> Result<Vec<(String, Record)>, StoreError> {
    let study = Study::open(path)?;
    let ids = study.ids()?;
    ids.into_iter().map(|id| Ok((id.clone(), study.read(&id)?))).collect()
}

/// One that could not tell what it is like has an environment in which nothing is known.
fn is_known(host: &Environment) -> bool {
    *host != Environment::default()
}

/// Text of the profiles that a study keeps, by their names in its runs. A built-in has no file: its name
/// and wirecost's version tell it.
fn profiles<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    let mut profiles: Vec<(String, String)> = Vec::new();
    let Ok(study) = Study::open(path) else { return profiles };
    for name in names {
        let known = profiles.iter().any(|(known, _)| known == name);
        let Some(file) = Path::new(name).file_name().filter(|_| !known) else { continue };
        if let Ok(text) = fs::read_to_string(study.profiles().join(file)) {
            profiles.push((name.to_owned(), text));
        }
    }
    profiles
}
