//! The built-in studies can be run: what they set exists, and quick ones are quick.

use std::collections::BTreeSet;
use std::time::Duration;

use wirecost_analyze::search;
use wirecost_model::link::keys::Typed;
use wirecost_model::plan::Workers;
use wirecost_model::rss::Placement;
use wirecost_model::server_sockets::ServerSockets;
use wirecost_model::study::{OfferedLoad, Point};
use wirecost_observe::Set;
use wirecost_study::{Definition, Matrix, TableChoice, builtins};
use wirecost_tunable::Setting;

/// The longest that all runs of a quick study may take, and what a run takes beside its window and ramp
/// where hosts are made, connected and taken down.
const QUICK: f64 = 80.0;
/// The same of studies whose runs cannot be shorter: a path of 20 ms needs ten seconds to say when it is steady.
/// Options are many, by size and traffic; each run takes about a second in fact.
const LONGER: [(&str, f64); 3] =
    [("wan-tuning", 400.0), ("rtt-fairness", 130.0), ("option-payoff", 510.0)];
const BESIDE: f64 = 2.0;

fn seconds(point: &Point, name: &str, default: f64) -> f64 {
    let text = point.get(name);
    text.map_or(default, |t| humantime::parse_duration(t).unwrap_or(Duration::MAX).as_secs_f64())
}

fn check(study: &str, point: &Point) {
    let profile = point.get("profile").unwrap();
    let builtin = wirecost_profile::builtins::find(profile.strip_prefix('@').unwrap());
    let builtin = builtin.unwrap_or_else(|| panic!("{study}: there is no {profile}"));
    for set in &point.settings {
        let (name, value) = (set.name.as_str(), set.value.as_str());
        let fits = match name {
            "profile" => true,
            "connections" | "peers" => value.parse::<u32>().is_ok_and(|n| n > 0),
            "engine" => wirecost_load::engines::find(value).is_some(),
            "duration" | "ramp" | "interval" => humantime::parse_duration(value).is_ok(),
            "workers" => value.parse::<Workers>().is_ok(),
            "load" => OfferedLoad::parse(value).is_some(),
            "reverse" => value.parse::<bool>().is_ok(),
            "placement" => value.parse::<Placement>().is_ok(),
            "server_sockets" => value.parse::<ServerSockets>().is_ok(),
            "dead_time" => ["invalid", "report"].contains(&value),
            "observe" => Set::parse(value).is_ok(),
            name if name.starts_with("option.") => true,
            name if name.starts_with("tune.") => Setting::new(&name[5..], value).is_ok(),
            name if name.starts_with("lab.") => Typed::default().set(&name[4..], value).is_ok(),
            name => builtin.variables.iter().any(|variable| variable.name == name),
        };
        assert!(fits, "{study}: {name}={value} is nothing that {profile} knows");
    }
}

#[test]
fn each_builtin_parses_and_sets_existing_names() {
    for builtin in builtins::ALL {
        let study = builtin.definition().unwrap_or_else(|e| panic!("{}: {e}", builtin.name));
        assert!(!study.title.is_empty());
        for study in [study.clone(), study.with_quick_overrides()] {
            let matrix = Matrix::of(&study).unwrap_or_else(|e| panic!("{}: {e}", builtin.name));
            matrix.points.iter().for_each(|point| check(builtin.name, point));
            for table in &study.tables {
                if let TableChoice::Named(name) = table {
                    assert!(wirecost_report::tables::find(name).is_ok(), "{name}");
                }
            }
        }
    }
}

/// A study is reported, resumed and replayed from what was saved: its points are the same, in the same order.
#[test]
fn what_is_saved_has_the_same_points() {
    for builtin in builtins::ALL {
        let study = builtin.definition().unwrap();
        for study in [study.clone(), study.with_quick_overrides()] {
            let text = study.to_text();
            let saved = Definition::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(Matrix::of(&saved), Matrix::of(&study), "{}", builtin.name);
        }
    }
}

#[test]
fn quick_variants_are_short() {
    for builtin in builtins::ALL {
        let study = builtin.definition().unwrap();
        assert!(study.quick.is_some(), "{} has no [quick]", builtin.name);
        let study = study.with_quick_overrides();
        let longer = LONGER.iter().find(|(name, _)| *name == builtin.name);
        let most = longer.map_or(QUICK, |(_, seconds)| *seconds);
        let points = Matrix::of(&study).unwrap().points;
        if let Some(search) = wirecost_study::search(&study).unwrap() {
            let all = points.iter().map(|point| {
                let (trials, time) = search::typical(&search, seconds(point, "ramp", 1.0));
                time + trials as f64 * BESIDE
            });
            let all: f64 = all.sum();
            assert!(all <= most, "{} takes {all} s", builtin.name);
            continue;
        }
        let of = |p: &Point| seconds(p, "duration", 10.0) + seconds(p, "ramp", 1.0) + BESIDE;
        let all: f64 = points.iter().map(of).sum::<f64>() * f64::from(study.repeat.times)
            + f64::from(study.warm_up) * points.first().map_or(0.0, of);
        assert!(all <= most, "{} takes {all} s", builtin.name);
    }
}

#[test]
fn every_file_of_the_folder_is_listed_once() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/builtins");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<String> =
        files.filter_map(|file| Some(file.to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    let names: BTreeSet<String> = builtins::ALL.iter().map(|b| b.name.to_owned()).collect();
    assert_eq!(files, names);
    assert_eq!(names.len(), builtins::ALL.len());
}

#[test]
fn a_misspelled_name_suggests_the_nearest() {
    let error = builtins::find("patern").unwrap_err();
    assert_eq!(error.help().as_deref(), Some("did you mean @patterns?"));
    let _: Definition = builtins::find("lso").unwrap().definition().unwrap();
}
