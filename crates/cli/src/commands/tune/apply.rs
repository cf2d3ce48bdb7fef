//! `--apply`: keeps the tunables of the best setting.

use wirecost_lab::Lab;
use wirecost_linux::netns::NetNs;
use wirecost_model::status::Status;
use wirecost_study::Definition;
use wirecost_tunable::{Setting, Target, TuneError, check_rights};

use super::keep::{self, Changed};
use crate::Failure;
use crate::commands::lab::failure as lab_failure;
use crate::commands::run::HostOptions;
use crate::terminal;

/// # Errors
/// The lab ends with the search, the search runs on other machines, or this process may not change settings.
pub(super) fn check(hosts: &HostOptions) -> Result<(), Failure> {
    if !hosts.hosts.is_empty() || hosts.vm.is_some() {
        return Err(Failure::usage(
            "--apply changes only this machine, but the search runs on other hosts",
        )
        .help("leave it out, and run the commands of the report on the hosts"));
    }
    if hosts.lab.as_deref() == Some("") {
        return Err(Failure::usage("--apply: the temporary lab of this search ends with it")
            .help("use a named lab: wirecost lab up --name NAME, and --lab=NAME"));
    }
    // A lab is refused before the search too, as it takes the same rights.
    if hosts.lab.is_none()
        && let Err(error @ TuneError::NotPermitted { .. }) = check_rights()
    {
        let failure = Failure::new(Status::Peer, format!("--apply: {error}"));
        return Err(failure.help("run wirecost as root (sudo), or leave out --apply"));
    }
    Ok(())
}

/// A host, by its names, and its target.
struct Here {
    names: Vec<String>,
    target: Target,
}

/// Sets the tunables, and says what was set; those already set are restored if one is refused.
///
/// # Errors
/// A host refuses one.
pub(super) fn apply(
    definition: &Definition,
    hosts: &HostOptions,
    levels: &[usize],
) -> Result<(), Failure> {
    let changed = keep::tunables(definition, levels);
    if changed.is_empty() {
        terminal::warn("--apply: the recommended setting changes no tunable.");
        return Ok(());
    }
    let mut undo: Vec<(Setting, Target, String)> = Vec::new();
    for here in all(hosts, &keep::device(definition))? {
        for one in changed.iter().filter(|one| is_of(one, &here)) {
            if let Err(error) = set(one, &here.target, &mut undo) {
                let mut message = format!("--apply: {}={}: {error}", one.name, one.value);
                for (setting, target, saved) in undo.iter().rev() {
                    if let Err(error) = setting.tunable().put_back(target, saved) {
                        message =
                            format!("{message}; {} was not restored: {error}", setting.name());
                    }
                }
                return Err(Failure::new(Status::Peer, message)
                    .help("run the commands of `wirecost report` as root"));
            }
        }
    }
    if undo.is_empty() {
        terminal::warn(
            "--apply: none of the hosts has a name that the setting uses; nothing was changed.",
        );
        return Ok(());
    }
    let mut names = Vec::new();
    for (setting, target, _) in &undo {
        // As it is now: a host may take less than was asked for, as it did in the search.
        let value = setting.tunable().read(target);
        let value = value.unwrap_or_else(|error| format!("{} ({error})", setting.value()));
        let name = format!("{}={value}", setting.name());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let until =
        if hosts.lab.is_some() { "as long as the lab exists" } else { "until the next boot" };
    terminal::warn(format_args!("applied {until}: {}", names.join(", ")));
    Ok(())
}

fn is_of(changed: &Changed, here: &Here) -> bool {
    changed.host.as_ref().is_none_or(|host| here.names.contains(host))
}

fn set(
    one: &Changed,
    target: &Target,
    undo: &mut Vec<(Setting, Target, String)>,
) -> Result<(), String> {
    let setting = Setting::new(&one.name, &one.value).map_err(|error| error.to_string())?;
    let tunable = setting.tunable();
    let saved = tunable.save(target).map_err(|error| error.to_string())?;
    undo.push((setting.clone(), target.clone(), saved));
    tunable.write(target, setting.value()).map_err(|error| {
        match std::error::Error::source(&error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        }
    })
}

/// This machine, or the hosts of the lab.
fn all(hosts: &HostOptions, device: &str) -> Result<Vec<Here>, Failure> {
    let failed = |error: wirecost_linux::netns::NetNsError| Failure::new(Status::Peer, error);
    let Some(name) = &hosts.lab else {
        let target = Target::here().map_err(failed)?.with_device(device);
        return Ok(vec![Here { names: vec!["master".to_owned(), "peer".to_owned()], target }]);
    };
    let lab = Lab::open(name).map_err(|error| lab_failure(&error))?;
    let each = lab.hosts().iter().enumerate().map(|(number, host)| {
        let namespace = NetNs::open(&host.namespace).map_err(failed)?;
        let target = Target::of(namespace).map_err(failed)?.with_device(&host.device);
        let side = if number == 0 { "master" } else { "peer" };
        Ok(Here { names: vec![host.name.clone(), side.to_owned()], target })
    });
    each.collect()
}
