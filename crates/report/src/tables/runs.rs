//! What to know of the runs that tables are made of: which do not count, what spoiled some, where
//! the figures are from.

use std::collections::BTreeSet;

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_model::document::{Block, Emphasis, Message, Section};
use wirecost_model::study::{Point, Value};
use wirecost_model::units;

use crate::documents::run::explain;

/// Points named in one sentence; of more, how many.
const NAMED: usize = 3;

/// A section of sentences. `planned` are the points that there should be, where that is known.
#[must_use]
pub fn about(measured: &Measurements, planned: &[Point]) -> Section {
    let mut section = Section::new("About the runs");
    section.name = "runs".to_owned();
    section.text(counts(measured));
    section.blocks.extend(awaited(measured, planned).map(Block::Text));
    for text in failures(measured).into_iter().chain(warnings(measured)) {
        section.text(text);
    }
    let sources = sources(measured);
    if !sources.is_empty() {
        section.text(format!("{}.", sources.join("; ")));
    }
    section
}

/// Warnings of runs whose figures are not of what their point says, wherever they are.
const INVALID: [&str; 2] = ["no-effect", "zerocopy-copied"];
/// Warnings of runs that something else disturbed: told where a tenth of all runs have one.
const DISTURBED: [&str; 2] = ["link-late", "foreign-cpu"];

/// What must be known before any figure is read: failed runs, missing points, and warnings that hold everywhere
/// or say that figures are of something else.
#[must_use]
pub fn cautions(measured: &Measurements, planned: &[Point]) -> Vec<Message> {
    let message = |emphasis| move |text: String| Message::new(emphasis, "", text);
    let points = measured.points.len();
    let warned = warned(measured);
    let runs: usize = measured.points.iter().map(|point| point.runs.len()).sum();
    let is_first = |said: &&Said<'_>| {
        said.points.len() == points
            || INVALID.contains(&said.key)
            || DISTURBED.contains(&said.key) && said.runs * 10 >= runs
    };
    let first = warned.iter().filter(is_first);
    let mut all: Vec<Message> =
        failures(measured).into_iter().map(message(Emphasis::Error)).collect();
    all.extend(awaited(measured, planned).map(message(Emphasis::Warning)));
    all.extend(first.map(|said| said.warning(points)).map(message(Emphasis::Warning)));
    all
}

fn counts(measured: &Measurements) -> String {
    let runs: usize = measured.points.iter().map(|point| point.runs.len()).sum();
    let failed: usize = measured.points.iter().map(|point| point.failed.len()).sum();
    let counted = |number: usize, one, several| units::counted(number as u64, one, several);
    let mut text = format!(
        "{} of {}",
        counted(runs, "run", "runs"),
        counted(measured.points.len(), "point", "points")
    );
    if failed > 0 {
        text += &format!("; {} excluded", counted(failed, "failed run", "failed runs"));
    }
    let most = measured.points.iter().map(|point| point.runs.len()).max().unwrap_or(0);
    text += match most {
        0 => ".",
        1 => ". Each point was run once, so there are no intervals.",
        _ => ". \u{b1} is the half-width of the 95% interval of the mean.",
    };
    text
}

/// Points that nobody has run.
fn awaited(measured: &Measurements, planned: &[Point]) -> Option<String> {
    // As planned: a search adds the load of each trial.
    let planned_axes = |point: &'_ MeasuredPoint| {
        let run = point.runs.first().or(point.failed.first());
        run.and_then(|run| run.study.as_ref())
            .map_or(&point.point, |study| &study.point)
            .axes
            .clone()
    };
    let run: BTreeSet<Vec<Value>> = measured.points.iter().map(planned_axes).collect();
    let awaited = planned.iter().filter(|point| !run.contains(&point.axes));
    let names: Vec<String> = awaited.map(Point::to_string).collect();
    (!names.is_empty()).then(|| {
        let number = units::counted(names.len() as u64, "point has", "points have");
        format!("{number} no run yet: {}.", named(&names))
    })
}

/// A sentence for each reason for which points were left out.
#[must_use]
pub fn left_out<'a>(skipped: impl IntoIterator<Item = (&'a Point, &'a str)>) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (point, why) in skipped {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(point.to_string()),
            None => reasons.push((why, vec![point.to_string()])),
        }
    }
    let sentence = |(why, names): &(&str, Vec<String>)| {
        let number = units::counted(names.len() as u64, "point is", "points are");
        let why = if why.is_empty() { String::new() } else { format!("{why}: ") };
        format!("{number} left out: {why}{}.", named(names))
    };
    reasons.iter().map(sentence).collect()
}

/// The first few of several points.
fn named(names: &[String]) -> String {
    match names.len() > NAMED {
        false => names.join(", "),
        true => format!("{} and {} more", names[..NAMED].join(", "), names.len() - NAMED),
    }
}

/// What is the same of several runs once, with where it is.
struct Said<'a> {
    key: &'a str,
    text: &'a str,
    runs: usize,
    points: Vec<String>,
}

impl Said<'_> {
    fn at(&self, points: usize) -> String {
        let runs = units::counted(self.runs as u64, "run", "runs");
        match points {
            1 => runs,
            _ if self.points.len() == points => format!("{runs}, at every point"),
            _ => format!("{runs} at {}", named(&self.points)),
        }
    }

    /// As a warning.
    fn warning(&self, points: usize) -> String {
        let first = if self.runs > 1 { "for example, " } else { "" };
        format!("Warning ({}): {first}{}", self.at(points), self.text)
    }
}

fn collect<'a>(each: impl Iterator<Item = (&'a MeasuredPoint, &'a str, &'a str)>) -> Vec<Said<'a>> {
    let mut said: Vec<Said<'a>> = Vec::new();
    for (point, key, text) in each {
        let place = said.iter().position(|known| known.key == key).unwrap_or_else(|| {
            said.push(Said { key, text, runs: 0, points: Vec::new() });
            said.len() - 1
        });
        let known = &mut said[place];
        known.runs += 1;
        let name = point.point.to_string();
        if known.points.last() != Some(&name) {
            known.points.push(name);
        }
    }
    said
}

fn failures(measured: &Measurements) -> Vec<String> {
    let each = measured.points.iter().flat_map(|point| {
        point.failed.iter().map(move |run| {
            let error = run.error.as_deref().unwrap_or("it failed without a message");
            (point, error, error)
        })
    });
    collect(each)
        .iter()
        .map(|said| format!("Failed ({}): {}", said.at(measured.points.len()), said.text))
        .collect()
}

fn warnings(measured: &Measurements) -> Vec<String> {
    let points = measured.points.len();
    warned(measured).iter().map(|said| said.warning(points)).collect()
}

/// Of each kind of warning the first message, as they differ in numbers.
fn warned(measured: &Measurements) -> Vec<Said<'_>> {
    let each = measured.points.iter().flat_map(|point| {
        point.runs.iter().flat_map(move |run| {
            let mut codes = BTreeSet::new();
            let new = run.warnings.iter().filter(move |entry| codes.insert(entry.code.as_str()));
            new.map(move |entry| (point, entry.code.as_str(), entry.message.as_str()))
        })
    });
    collect(each)
}

fn sources(measured: &Measurements) -> Vec<&str> {
    let runs = measured.points.iter().flat_map(|point| &point.runs);
    let names: BTreeSet<&str> = runs
        .flat_map(|run| {
            let hosts = run.hosts.iter().flat_map(|h| [&h.cpu_source, &h.cycles_source]);
            let machines = run.machines.iter().flat_map(|m| [&m.cpu_source, &m.cycles_source]);
            hosts.chain(machines).filter_map(|source| source.as_deref())
        })
        .collect();
    names.into_iter().map(explain).collect()
}

#[cfg(test)]
mod tests {
    use wirecost_model::run::Run;
    use wirecost_model::warning::Entry;

    use super::*;

    fn point(connections: &str, runs: usize) -> MeasuredPoint {
        let axes = vec![Value::new("connections", connections)];
        let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
        let stolen = |percent| Entry {
            code: "steal".to_owned(),
            message: format!("{percent}% of the CPUs' time was stolen"),
            brief: None,
        };
        run.warnings = vec![stolen(connections), stolen("a second of the same run: 9")];
        let point = Point { settings: axes.clone(), axes };
        MeasuredPoint { point, runs: vec![run; runs], failed: Vec::new() }
    }

    #[test]
    fn a_kind_of_warning_is_told_once_with_where_it_was() {
        let told = |points| warnings(&Measurements { points });
        let text = "3% of the CPUs' time was stolen";
        assert_eq!(told(vec![point("3", 1)]), [format!("Warning (1 run): {text}")]);
        assert_eq!(told(vec![point("3", 3)]), [format!("Warning (3 runs): for example, {text}")]);
        let everywhere = [format!("Warning (3 runs, at every point): for example, {text}")];
        assert_eq!(told(vec![point("3", 1), point("5", 2)]), everywhere);
        let at_one = [format!("Warning (2 runs at connections=3): for example, {text}")];
        assert_eq!(told(vec![point("3", 2), point("5", 0)]), at_one);
    }

    #[test]
    fn what_holds_everywhere_is_told_first() {
        let mut failed = point("5", 1);
        failed.failed = failed.runs.split_off(0);
        failed.failed[0].error = Some("no byte moved".to_owned());
        let planned = failed.point.clone();
        let measured = Measurements { points: vec![point("3", 2), failed] };
        let texts = |planned: &[Point]| -> Vec<String> {
            cautions(&measured, planned).into_iter().map(|message| message.text).collect()
        };
        // The warning is not that of the point that failed.
        assert_eq!(texts(&[planned]), ["Failed (1 run at connections=5): no byte moved"]);
        let missing = point("7", 1).point;
        assert_eq!(texts(&[missing])[1], "1 point has no run yet: connections=7.");
        let measured = Measurements { points: vec![point("3", 1), point("5", 1)] };
        let told = cautions(&measured, &[]);
        assert!(told[0].text.starts_with("Warning (2 runs, at every point): "), "{told:?}");
    }

    #[test]
    fn warnings_that_make_figures_something_else_are_told_first_wherever_they_are() {
        let told = |code: &str, warned: usize, others: usize| {
            let mut points = vec![point("3", warned), point("5", others)];
            points
                .iter_mut()
                .flat_map(|point| &mut point.runs)
                .for_each(|run| run.warnings.clear());
            for run in &mut points[0].runs {
                let message = "it was something else".to_owned();
                run.warnings = vec![Entry { code: code.to_owned(), message, brief: None }];
            }
            cautions(&Measurements { points }, &[]).len()
        };
        for code in INVALID {
            assert_eq!(told(code, 1, 99), 1);
        }
        for code in DISTURBED {
            assert_eq!((told(code, 1, 99), told(code, 10, 90)), (0, 1));
        }
        assert_eq!(told("steal", 50, 50), 0);
    }
}
