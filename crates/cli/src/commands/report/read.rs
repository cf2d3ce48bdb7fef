//! Reads what is reported on.

use std::path::{Path, PathBuf};

use wirecost_model::run::Run;
use wirecost_store::Document;
use wirecost_store::study::{DEFINITION, Study};
use wirecost_study::Definition;

use crate::Failure;

/// A study, or runs that are shown together.
#[derive(Debug, Clone)]
pub(super) struct RunSet {
    pub(super) title: String,
    /// What it was read from, or the first of it.
    pub(super) source: String,
    /// Of a study only.
    pub(super) definition: Option<Definition>,
    /// With their names.
    pub(super) runs: Vec<(String, Run)>,
}

/// Each study by itself, in the order in which they are named; then the runs that were named one by
/// one, those of one study together. `stacks` says whether those of a study are wanted, and of runs.
pub(super) fn all(
    paths: &[PathBuf],
    stacks: &dyn Fn(Option<&Definition>) -> Result<bool, Failure>,
) -> Result<Vec<RunSet>, Failure> {
    let mut studies = Vec::new();
    let mut single: Vec<RunSet> = Vec::new();
    for path in paths {
        if path.join(DEFINITION).is_file() {
            studies.push(study(path, stacks)?);
            continue;
        }
        let run = single_run(path, stacks(None)?)?;
        let title = run.study.as_ref().map_or("Runs", |study| study.study.as_str());
        let name = path.display().to_string();
        let fits = |kept: &&mut RunSet| kept.title == title && agrees(kept, &run);
        match single.iter_mut().find(fits) {
            Some(kept) => kept.runs.push((name, run)),
            None => {
                let title = title.to_owned();
                let source = name.clone();
                single.push(RunSet { title, source, definition: None, runs: vec![(name, run)] });
            }
        }
    }
    studies.append(&mut single);
    tell_apart(&mut studies);
    Ok(studies)
}

/// Those of one title get the name of what they were read from too.
fn tell_apart(kept: &mut [RunSet]) {
    let titles: Vec<String> = kept.iter().map(|one| one.title.clone()).collect();
    for one in kept {
        if titles.iter().filter(|title| **title == one.title).count() > 1 {
            one.title = format!("{} ({})", one.title, one.source);
        }
    }
}

/// Whether a run can be of the same study as others: at one place there is one point, and each of its
/// runs once.
fn agrees(kept: &RunSet, run: &Run) -> bool {
    let Some(new) = &run.study else { return true };
    kept.runs.iter().filter_map(|(_, known)| known.study.as_ref()).all(|known| {
        known.place != new.place || known.point == new.point && known.repeat != new.repeat
    })
}

fn single_run(path: &Path, stacks: bool) -> Result<Run, Failure> {
    if !stacks {
        return wirecost_store::run(path).map_err(Failure::usage);
    }
    match wirecost_store::document(path).map_err(Failure::usage)? {
        Document::Run(run) => Ok(run),
        Document::Observe(_) => {
            Err(Failure::usage(format!("{} is an observation without a run", path.display())))
        }
    }
}

fn study(
    path: &Path,
    stacks: &dyn Fn(Option<&Definition>) -> Result<bool, Failure>,
) -> Result<RunSet, Failure> {
    let study = Study::open(path).map_err(Failure::usage)?;
    let file = path.join(DEFINITION);
    let text = study.definition().map_err(Failure::usage)?;
    let definition = Definition::parse(&text).map_err(|error| {
        let failure = Failure::usage(format!("{}: {error}", file.display()));
        match error.help() {
            Some(help) => failure.help(help),
            None => failure,
        }
    })?;
    let title = match definition.title.is_empty() {
        true => path.display().to_string(),
        false => definition.title.clone(),
    };
    let runs = match stacks(Some(&definition))? {
        true => study.runs_with_stacks(),
        false => study.runs(),
    };
    let runs = runs.map_err(Failure::usage)?;
    Ok(RunSet { title, source: path.display().to_string(), definition: Some(definition), runs })
}
