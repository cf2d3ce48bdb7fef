use std::fs::File;
use std::io::Read as _;

use wirecost_congestion::UserObject;
use wirecost_fleet::controller::Settings;
use wirecost_model::congestion::{BPF_BIC, CongestionObject, prefix};
use wirecost_model::plan::limits::{CONGESTION_OBJECT, CONGESTION_OBJECTS};
use wirecost_model::profile::Profile;
use wirecost_program::congestion;

use super::{Change, RunOption};
use crate::Failure;

pub(super) struct CongestionObjects;

impl RunOption for CongestionObjects {
    fn name(&self) -> &'static str {
        "cc_object"
    }

    fn long(&self) -> &'static str {
        "cc-object"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("FILE")
    }

    fn help(&self) -> &'static str {
        "Load congestion control of your own for the run: an object file of BPF programs with one structure \
         tcp_congestion_ops (struct_ops), or several files separated by commas. Its .name is what --cc and cc= call it. \
         Agents on other hosts need --allow-cc-object"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let objects = read_all(value)?;
        Ok(Change::to_settings(move |settings| settings.congestion_objects.clone_from(&objects)))
    }
}

/// Reads the files of an option's value.
///
/// # Errors
/// A file that is none, too many, or names that the kernel could not tell apart.
pub(crate) fn read_all(value: &str) -> Result<Vec<CongestionObject>, String> {
    let objects = value.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
    if objects.len() > CONGESTION_OBJECTS {
        return Err(format!("at most {CONGESTION_OBJECTS} files are loaded"));
    }
    for (number, object) in objects.iter().enumerate() {
        let same = |other: &&CongestionObject| prefix(&other.name) == prefix(&object.name);
        if let Some(other) = objects[..number].iter().find(same) {
            let (one, other) = (&other.name, &object.name);
            let reason = "their names must differ in the first 7 characters";
            return Err(format!("{one} and {other}: {reason}"));
        }
    }
    Ok(objects)
}

fn read(path: &str) -> Result<CongestionObject, String> {
    let mut bytes = Vec::new();
    let most = CONGESTION_OBJECT as u64 + 1;
    let done = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    done.map_err(|error| format!("{path}: {error}"))?;
    let object = UserObject::new(bytes).map_err(|error| format!("{path}: {error}"))?;
    Ok(CongestionObject { name: object.name().to_owned(), object: object.bytes().to_vec() })
}

/// What the connections of a profile choose.
fn chosen(profile: &Profile) -> impl Iterator<Item = &str> {
    let transactions = profile.groups.iter().flat_map(|group| &group.transactions);
    let flowops = transactions.flat_map(|transaction| &transaction.flowops);
    flowops.filter_map(|flowop| congestion::of(&flowop.options))
}

/// Whether hosts load BPF programs for connections of this profile.
pub(crate) fn loads(profile: &Profile, settings: &Settings) -> bool {
    let is_program = |name: &str| {
        name == BPF_BIC || settings.congestion_objects.iter().any(|object| object.name == name)
    };
    chosen(profile).any(is_program)
}

/// # Errors
/// An object that no connection chooses.
pub(crate) fn check(profile: &Profile, objects: &[CongestionObject]) -> Result<(), Failure> {
    let unused = |object: &&CongestionObject| chosen(profile).all(|name| name != object.name);
    match objects.iter().find(unused) {
        Some(CongestionObject { name, .. }) => {
            Err(Failure::usage(format!("--cc-object: no connection chooses its {name}"))
                .help(format!("add --cc {name}, or cc={name} to connections of the profile")))
        }
        None => Ok(()),
    }
}

/// The same of the points of a study: those with other congestion control have the objects too.
///
/// # Errors
/// An object that no connection of any point chooses.
pub(crate) fn check_points<'a>(
    points: impl Iterator<Item = (&'a Profile, &'a [CongestionObject])> + Clone,
) -> Result<(), Failure> {
    let is_chosen = |object: &CongestionObject| {
        let with_it = points.clone().filter(|(_, objects)| objects.contains(object));
        with_it.flat_map(|(profile, _)| chosen(profile)).any(|name| name == object.name)
    };
    let mut objects = points.clone().flat_map(|(_, objects)| objects);
    match objects.find(|object| !is_chosen(object)) {
        Some(CongestionObject { name, .. }) => {
            Err(Failure::usage(format!("cc_object: no point of the study chooses its {name}"))
                .help(format!("add {name} to the axis cc, or remove the object")))
        }
        None => Ok(()),
    }
}
