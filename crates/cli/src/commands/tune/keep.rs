//! The commands that make a setting permanent, and those that undo it.

use std::collections::BTreeMap;
use std::path::Path;

use wirecost_model::document::Command;
use wirecost_model::run::Run;
use wirecost_study::tuning::KEEP;
use wirecost_study::{Definition, Matrix, Place};
use wirecost_tunable::{SetCommand, Setting, set_command};

use crate::Failure;

const OF_HOSTS: &str = "tune.";
/// Where sysctl(8) finds settings at boot.
const DIRECTORY: &str = "/etc/sysctl.d";

/// Commands for a setting.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) keep: Vec<Command>,
    pub(super) undo: Vec<Command>,
    pub(super) notes: Vec<String>,
}

/// A tunable that a setting changes: on all hosts, or on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) host: Option<String>,
    pub(super) name: String,
    pub(super) value: String,
}

/// What a setting sets, by name with the level: also factors that stay at the base's level, which was set in the
/// runs, unless it is [`KEEP`]. The base sets nothing.
pub(super) fn changes(definition: &Definition, levels: &[usize]) -> Vec<(String, String)> {
    if levels.iter().all(|level| *level == 0) {
        return Vec::new();
    }
    let each = definition.axes.keys().zip(levels);
    each.filter_map(|(name, level)| {
        Some((name.clone(), definition.levels_of(name).get(*level)?.clone()))
    })
    .filter(|(_, level)| level != KEEP)
    .collect()
}

/// The tunables among them.
pub(super) fn tunables(definition: &Definition, levels: &[usize]) -> Vec<Changed> {
    let tunable = |(name, value): (String, String)| {
        let name = name.strip_prefix(OF_HOSTS)?;
        let (host, name) = wirecost_model::tuning::host_and_name(name);
        Some(Changed { host: host.map(str::to_owned), name: name.to_owned(), value })
    };
    let mut all: Vec<Changed> =
        changes(definition, levels).into_iter().filter_map(tunable).collect();
    // What is set on one host overrides what is set on all.
    all.sort_by_key(|one| one.host.is_some());
    all
}

/// In place of a device that is not known here.
const UNKNOWN_DEVICE: &str = "DEVICE";

/// The device that carries the traffic, as far as it is known here.
pub(super) fn device(definition: &Definition) -> String {
    match (definition.set.get("tune-device"), &definition.place) {
        (Some(device), _) => device.0.clone(),
        (None, Place::Loopback) if definition.hosts.is_empty() => "lo".to_owned(),
        (None, Place::Lab | Place::LabDirect) => "eth0".to_owned(),
        _ => UNKNOWN_DEVICE.to_owned(),
    }
}

pub(super) fn commands(definition: &Definition, levels: &[usize], runs: &[Run]) -> Kept {
    let mut kept = Kept::default();
    let device = device(definition);
    let changed = tunables(definition, levels);
    // By host; those of all hosts first.
    let mut lines: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
    let (mut shell, mut shell_undo, mut sysctl_undo) = (Vec::new(), Vec::new(), Vec::new());
    let mut without_command = Vec::new();
    for one in &changed {
        let on = on(one.host.as_deref());
        let command = |value: &str| {
            let setting = Setting::new(&one.name, value).ok()?;
            set_command(&setting, Some(&device))
        };
        let previous = previous(one, runs);
        match command(&one.value) {
            Some(SetCommand::Sysctl { name, value }) => {
                lines.entry(one.host.as_deref()).or_default().push(format!("{name} = {value}"));
                for (hosts, before) in &previous {
                    sysctl_undo
                        .push((format!("undo{hosts}"), format!("sysctl -w '{name}={before}'")));
                }
            }
            Some(SetCommand::Shell(text)) => {
                shell.push((format!("keep{on}"), text));
                for (hosts, before) in &previous {
                    match command(before) {
                        Some(SetCommand::Shell(text)) => {
                            shell_undo.push((format!("undo{hosts}"), text));
                        }
                        _ => kept
                            .notes
                            .push(format!("{} was {before}{hosts} before the search.", one.name)),
                    }
                }
            }
            None => {
                without_command.push(one);
                kept.notes.push(format!(
                    "No single command of the system sets {}={}{on}: use wirecost run --tune, or set it as the \
                     documentation of the device says.",
                    one.name, one.value
                ));
            }
        }
    }
    let of = |(label, command): (String, String)| Command { label, command };
    for (host, lines) in lines {
        let file = file(definition, host, runs);
        let quoted: Vec<String> = lines.iter().map(|line| format!("'{line}'")).collect();
        // A file that is there may be of an earlier result, which its undo would remove.
        let write =
            format!("(set -C; printf '%s\\n' {} > {file}) && sysctl -p {file}", quoted.join(" "));
        let label = format!("sysctl{}", on(host));
        kept.keep.push(of((label.clone(), write)));
        kept.undo.push(of((label, format!("rm {file}"))));
    }
    kept.undo.extend(sysctl_undo.into_iter().map(of));
    if !shell.is_empty() {
        if device == UNKNOWN_DEVICE {
            kept.notes.push(format!("{UNKNOWN_DEVICE} is the device that carries the traffic."));
        }
        kept.notes.push(
            "Settings made by ethtool, ip, tc and in /sys last until the next boot: run these commands at boot, or \
             enter them in the network configuration of the distribution."
                .to_owned(),
        );
    }
    kept.keep.extend(shell.into_iter().map(of));
    kept.undo.extend(shell_undo.into_iter().map(of));
    if !changed.is_empty() {
        kept.notes.push(
            "Run these commands as root on every host, or only on the host that the label of a command names."
                .to_owned(),
        );
    }
    match in_runs(definition, levels, &without_command) {
        Ok(None) => {}
        Ok(Some(command)) => {
            kept.keep.push(of(("run".to_owned(), command)));
            kept.notes.push(
                "Add the options --lab, --host or --vm of the search, if any, to `wirecost run`."
                    .to_owned(),
            );
        }
        Err(failure) => {
            kept.notes.push(format!(
                "The setting cannot be written as a `wirecost run` command: {}.",
                failure.message
            ));
        }
    }
    kept
}

/// ` (on h2)`; nothing for all hosts.
fn on(host: Option<&str>) -> String {
    host.map_or(String::new(), |host| format!(" (on {host})"))
}

/// The file of a search, by its profile and the time of its first run. That of one host comes after that of all,
/// and so overrides it.
fn file(definition: &Definition, host: Option<&str>, runs: &[Run]) -> String {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
    };
    let profile = definition.set.get("profile").map_or("", |profile| profile.0.as_str());
    let profile = Path::new(profile).file_stem().unwrap_or_default().to_string_lossy();
    let first = runs.iter().map(|run| run.started_unix_ms).min().unwrap_or_default() / 1000;
    let (order, host) = match host {
        None => (90, String::new()),
        Some(host) => (91, format!("-{}", plain(host))),
    };
    format!("{DIRECTORY}/{order}-wirecost-{}-{first}{host}.conf", plain(&profile))
}

/// Values before the search changed it, each with the hosts that had it; no host where all had the same.
fn previous(of: &Changed, runs: &[Run]) -> Vec<(String, String)> {
    let name = format!("{OF_HOSTS}{}", of.name);
    let mut by_host: BTreeMap<&str, &str> = BTreeMap::new();
    for run in runs {
        for setting in run.settings.iter().filter(|setting| setting.name == name) {
            if let Some(previous) = &setting.previous
                && is_of(of, &setting.host, run)
            {
                by_host.entry(&setting.host).or_insert(previous);
            }
        }
    }
    let mut values: Vec<&str> = by_host.values().copied().collect();
    values.dedup();
    match values.as_slice() {
        [one] => vec![(on(of.host.as_deref()), (*one).to_owned())],
        _ => by_host.iter().map(|(host, value)| (on(Some(host)), (*value).to_owned())).collect(),
    }
}

/// Whether it is changed on this host, which it may name by its side.
fn is_of(changed: &Changed, host: &str, run: &Run) -> bool {
    changed.host.as_deref().is_none_or(|named| {
        let mut hosts = run.hosts.iter().filter(|row| row.name == host);
        named == host || hosts.any(|row| row.role.name() == named)
    })
}

/// The profile with all that its runs had, but not the tunables that commands set; `None` where no factor is one
/// of runs.
fn in_runs(
    definition: &Definition,
    levels: &[usize],
    without_command: &[&Changed],
) -> Result<Option<String>, Failure> {
    let changed = changes(definition, levels);
    let is_of_runs = changed.iter().any(|(name, _)| !name.starts_with(OF_HOSTS));
    if !is_of_runs && without_command.is_empty() {
        return Ok(None);
    }
    let mut point = Matrix::at(definition, levels).map_err(Failure::usage)?;
    let profile = point.get("profile").unwrap_or_default().to_owned();
    let stays = |name: &str| {
        let Some(name) = name.strip_prefix(OF_HOSTS) else { return true };
        let (host, name) = wirecost_model::tuning::host_and_name(name);
        without_command.iter().any(|one| one.host.as_deref() == host && one.name == name)
    };
    point.settings.retain(|of| !definition.axes.contains_key(&of.name) || stays(&of.name));
    let arguments = crate::commands::study::arguments(&point, &profile)?;
    let words = ["wirecost".to_owned(), "run".to_owned(), profile].into_iter().chain(arguments);
    let quoted: Vec<String> = words.map(|word| quoted(&word)).collect::<Result<_, _>>()?;
    Ok(Some(quoted.join(" ")))
}

/// A word for a shell, in quotes only where it needs them.
fn quoted(word: &str) -> Result<String, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Ok(word.to_owned()),
        false => {
            let quoted = shlex::try_quote(word).map_err(Failure::usage)?;
            Ok(quoted.into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::measure::Setting as SettingOfRun;

    use super::*;

    #[test]
    fn commands_make_a_setting_permanent_and_undo_it() {
        let mut definition = Definition { place: Place::Lab, ..Definition::default() };
        definition.set("profile", "@stream");
        definition.set("tune.tcp_timestamps", "0");
        definition.set("duration", "2s");
        definition.set("options", "nodelay");
        for (name, level) in [
            ("tune.tcp_sack", "0"),
            ("tune.h2:mtu", "9000"),
            ("engine", "io_uring"),
            ("option.wndsz", "1m"),
            ("tune.tcp_ecn", "1"),
            ("tune.rps_cpus", "0-1"),
        ] {
            definition.set_levels(name, &[KEEP.to_owned(), level.to_owned()]);
        }
        // Every run set the level of the base.
        definition.set_levels("tune.h2:busy_poll", &["10".to_owned(), "50".to_owned()]);
        let mut run = Run::empty("@stream", "epoll", "0", 0);
        let setting = |name: &str, host: &str, previous: &str| SettingOfRun {
            name: name.to_owned(),
            host: host.to_owned(),
            requested: String::new(),
            effective: String::new(),
            previous: Some(previous.to_owned()),
        };
        run.settings = vec![
            setting("tune.tcp_sack", "h1", "1"),
            setting("tune.tcp_sack", "h2", "1"),
            setting("tune.mtu", "h2", "1500"),
            setting("tune.mtu", "h1", "4000"),
            setting("tune.busy_poll", "h2", "0"),
        ];
        run.started_unix_ms = 7_000;
        let kept = commands(&definition, &[1, 1, 1, 1, 0, 1, 0], &[run]);
        let texts = |commands: &[Command]| {
            commands
                .iter()
                .map(|command| format!("{}: {}", command.label, command.command))
                .collect::<Vec<_>>()
        };
        let (all, h2) = (
            "/etc/sysctl.d/90-wirecost-stream-7.conf",
            "/etc/sysctl.d/91-wirecost-stream-7-h2.conf",
        );
        assert_eq!(
            texts(&kept.keep),
            [
                format!(
                    "sysctl: (set -C; printf '%s\\n' 'net.ipv4.tcp_sack = 0' > {all}) && sysctl -p {all}"
                ),
                format!(
                    "sysctl (on h2): (set -C; printf '%s\\n' 'net.core.busy_poll = 10' > {h2}) && \
                     sysctl -p {h2}"
                ),
                "keep (on h2): ip link set dev eth0 mtu 9000".to_owned(),
                "run: wirecost run @stream --tune=tcp_timestamps=0 --duration=2s --engine=io_uring \
                 --tune=rps_cpus=0-1 '--var=options=nodelay wndsz=1m'"
                    .to_owned(),
            ]
        );
        assert_eq!(
            texts(&kept.undo),
            [
                format!("sysctl: rm {all}"),
                format!("sysctl (on h2): rm {h2}"),
                "undo: sysctl -w 'net.ipv4.tcp_sack=1'".to_owned(),
                "undo (on h2): sysctl -w 'net.core.busy_poll=0'".to_owned(),
                "undo (on h2): ip link set dev eth0 mtu 1500".to_owned(),
            ]
        );
        assert!(kept.notes.iter().any(|note| note.contains("rps_cpus=0-1")));
        assert!(commands(&definition, &[0; 7], &[]).keep.is_empty());
    }
}
