//! Reads what is reported on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use wirecost_model::run::{self, Run};
use wirecost_store::{OBSERVATION, RUN};
use wirecost_study::Definition;

use crate::Failure;

const DEFINITION: &str = "study.toml";
const RUNS: &str = "runs";

/// A study, or runs that are shown together.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) title: String,
    /// What it was read from, or the first of it.
    source: String,
    /// Of a study only.
    pub(super) definition: Option<Definition>,
    /// With their names.
    pub(super) runs: Vec<(String, Run)>,
}

/// Each study by itself, in the order in which they are named; then the runs that were named one by
/// one, those of one study together.
pub(super) fn all(paths: &[PathBuf]) -> Result<Vec<Kept>, Failure> {
    let mut studies = Vec::new();
    let mut single: Vec<Kept> = Vec::new();
    for path in paths {
        if path.join(DEFINITION).is_file() {
            studies.push(study(path)?);
            continue;
        }
        let run = record(path)?;
        let title = run.study.as_ref().map_or("Runs", |study| study.study.as_str());
        let name = path.display().to_string();
        let fits = |kept: &&mut Kept| kept.title == title && agrees(kept, &run);
        match single.iter_mut().find(fits) {
            Some(kept) => kept.runs.push((name, run)),
            None => {
                let title = title.to_owned();
                let source = name.clone();
                single.push(Kept { title, source, definition: None, runs: vec![(name, run)] });
            }
        }
    }
    studies.append(&mut single);
    tell_apart(&mut studies);
    Ok(studies)
}

/// Those of one title get the name of what they were read from too.
fn tell_apart(kept: &mut [Kept]) {
    let titles: Vec<String> = kept.iter().map(|one| one.title.clone()).collect();
    for one in kept {
        if titles.iter().filter(|title| **title == one.title).count() > 1 {
            one.title = format!("{} ({})", one.title, one.source);
        }
    }
}

/// Whether a run can be of the same study as others: at one place there is one point, and each of its
/// runs once.
fn agrees(kept: &Kept, run: &Run) -> bool {
    let Some(new) = &run.study else { return true };
    kept.runs.iter().filter_map(|(_, known)| known.study.as_ref()).all(|known| {
        known.place != new.place || known.point == new.point && known.repeat != new.repeat
    })
}

fn study(path: &Path) -> Result<Kept, Failure> {
    let file = path.join(DEFINITION);
    let text = fs::read_to_string(&file).map_err(|error| cannot_read(&file, &error))?;
    let definition = Definition::parse(&text).map_err(|error| {
        let failure = Failure::usage(format!("{}: {error}", file.display()));
        match error.help() {
            Some(help) => failure.help(help),
            None => failure,
        }
    })?;
    let runs = path.join(RUNS);
    let mut names = Vec::new();
    match fs::read_dir(&runs) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(|error| cannot_read(&runs, &error))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                // What is not whole yet is hidden.
                if !name.starts_with('.') {
                    names.push(name);
                }
            }
        }
        // Interrupted before the first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot_read(&runs, &error)),
    }
    names.sort_unstable();
    let each = names.into_iter().map(|name| {
        let run = record(&runs.join(&name))?;
        Ok((name, run))
    });
    let runs = each.collect::<Result<_, Failure>>()?;
    let title = match definition.title.is_empty() {
        true => path.display().to_string(),
        false => definition.title.clone(),
    };
    Ok(Kept { title, source: path.display().to_string(), definition: Some(definition), runs })
}

/// A record, or the document of a run.
fn record(path: &Path) -> Result<Run, Failure> {
    let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    let file = if metadata.is_dir() { path.join(RUN) } else { path.to_owned() };
    if metadata.is_dir() && !file.is_file() {
        let message = match path.join(OBSERVATION).is_file() {
            true => format!("{} is an observation without a run", path.display()),
            false => {
                format!("{} is no record: it has neither {DEFINITION} nor {RUN}", path.display())
            }
        };
        return Err(Failure::usage(message).help(
            "name what `--out DIR` of `wirecost run` or of `wirecost study run` has written",
        ));
    }
    let text = fs::read(&file).map_err(|error| cannot_read(&file, &error))?;
    let broken = match serde_json::from_slice::<Run>(&text) {
        Ok(run) if run.schema == run::SCHEMA => return Ok(run),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    Err(refusal(&file, &text, broken))
}

/// Says of what is no document of a run what it is.
fn refusal(file: &Path, text: &[u8], broken: Option<serde_json::Error>) -> Failure {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let file = file.display();
    let head = serde_json::from_slice::<Head>(text);
    match (head, broken) {
        (Ok(head), _) if head.schema != run::SCHEMA => {
            let family = run::SCHEMA.split('/').next().unwrap_or_default();
            match head.schema.strip_prefix(family).is_some_and(|rest| rest.starts_with('/')) {
                true => Failure::usage(format!(
                    "{file} was written by a newer wirecost: it is {}, and this one reads {}",
                    head.schema,
                    run::SCHEMA
                )),
                false => Failure::usage(format!("{file} is no run: it is {}", head.schema)),
            }
        }
        (_, Some(error)) => Failure::usage(format!("{file} is not whole or no run: {error}"))
            .help("copy it again from where it came from, or make the run again"),
        (_, None) => Failure::usage(format!("{file} is no run")),
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}
