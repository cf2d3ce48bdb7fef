//! The factors of a search: those of the command line, or a set for the profile and the place.

use wirecost_model::profile::Profile;
use wirecost_model::status::Status;
use wirecost_study::Definition;
use wirecost_study::tuning::KEEP;
use wirecost_tunable::{Setting, TuneError, check_rights};

use crate::Failure;
use crate::commands::run::{HostOptions, RunOptions};
use crate::terminal;

/// What the runs of a search have in common, and no factor changes.
const FIXED: [&str; 11] = [
    "profile",
    "place",
    "load",
    "duration",
    "ramp",
    "interval",
    "timeout",
    "dead_time",
    "observe",
    "seed",
    "tune-device",
];

const OF_HOSTS: &str = "tune.";

/// A factor of the default set: its second level. The first is [`KEEP`].
struct DefaultFactor {
    name: &'static str,
    level: &'static str,
    of: Traffic,
    /// Whether it is a setting of the device that carries the traffic.
    is_of_device: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Any,
    Tcp,
    Udp,
}

const fn factor(name: &'static str, level: &'static str, of: Traffic) -> DefaultFactor {
    DefaultFactor { name, level, of, is_of_device: false }
}

const fn of_device(name: &'static str, level: &'static str) -> DefaultFactor {
    DefaultFactor { name, level, of: Traffic::Any, is_of_device: true }
}

/// Ordered by how often they matter; the first ones that fit are used.
const DEFAULT: &[DefaultFactor] = &[
    factor("tune.tcp_rmem", "4096 131072 33554432", Traffic::Tcp),
    factor("tune.tcp_wmem", "4096 131072 33554432", Traffic::Tcp),
    factor("tune.tcp_congestion_control", "bbr", Traffic::Tcp),
    factor("tune.rmem_default", "8388608", Traffic::Udp),
    factor("tune.wmem_default", "8388608", Traffic::Udp),
    of_device("tune.mtu", "9000"),
    of_device("tune.offload.gro", "off"),
    of_device("tune.coalesce.rx-usecs", "50"),
    factor("engine", "io_uring", Traffic::Any),
    factor("option.tcp_nodelay", "true", Traffic::Tcp),
    factor("tune.tcp_notsent_lowat", "131072", Traffic::Tcp),
    factor("tune.tcp_autocorking", "0", Traffic::Tcp),
    factor("tune.netdev_max_backlog", "10000", Traffic::Any),
    factor("tune.busy_poll", "50", Traffic::Any),
    of_device("tune.qdisc", "fq"),
    of_device("tune.threaded", "on"),
    of_device("tune.txqueuelen", "10000"),
];

/// More factors need a larger design, with 16 more runs.
const MOST_BY_DEFAULT: usize = 11;

/// Why a search on loopback cannot change settings of this machine: this process lacks the rights. A lab is refused as a
/// whole, and agents have rights of their own.
fn missing_rights(hosts: &HostOptions) -> Option<TuneError> {
    let refused = hosts.is_loopback().then(check_rights)?.err()?;
    matches!(refused, TuneError::NotPermitted { .. }).then_some(refused)
}

/// Adds the factors of the command line.
///
/// # Errors
/// A name that is not one of a setting, a value that the tunable cannot have, or a tunable that this process has no
/// right to change.
pub(super) fn add(
    definition: &mut Definition,
    factors: &[(String, Vec<String>)],
    hosts: &HostOptions,
) -> Result<(), Failure> {
    let missing_rights = missing_rights(hosts);
    for (name, levels) in factors {
        if FIXED.contains(&name.as_str()) || name.starts_with("lab.") {
            return Err(Failure::usage(format!("--factor {name}: this setting cannot be a factor"))
                .help("factors are tunables (tune.NAME), options (option.NAME), options of run such as engine, and variables of the profile"));
        }
        if definition.axes.contains_key(name) {
            return Err(Failure::usage(format!("--factor {name} is given twice"))
                .help(format!("give all its levels at once: --factor {name}=A,B,C")));
        }
        if let Some(tunable) = name.strip_prefix(OF_HOSTS) {
            let tunable = tunable.rsplit_once(':').map_or(tunable, |(_, name)| name);
            for level in levels.iter().filter(|level| *level != KEEP) {
                Setting::new(tunable, level)
                    .map_err(|error| Failure::usage(format!("--factor {name}: {error}")))?;
            }
            if let Some(error) = &missing_rights
                && levels.iter().any(|level| level != KEEP)
            {
                return Err(Failure::new(Status::Peer, format!("--factor {name}: {error}"))
                    .help("run wirecost as root (sudo), or leave this factor out"));
            }
        } else if is_tunable(name) {
            return Err(Failure::usage(format!("--factor {name}: unknown factor"))
                .help(format!("did you mean {OF_HOSTS}{name}?")));
        }
        if levels.iter().any(String::is_empty) {
            return Err(Failure::usage(format!("--factor {name}: a level is empty"))
                .help(format!("write --factor {name}=LOW,HIGH")));
        }
        definition.set.shift_remove(name);
        definition.set_levels(name, levels);
    }
    Ok(())
}

fn is_tunable(name: &str) -> bool {
    wirecost_tunable::all().any(|tunable| tunable.name() == name)
}

/// Adds the default set for the profile and the place. Those that do not fit are returned with the reason.
pub(super) fn add_default(
    definition: &mut Definition,
    options: &RunOptions,
    hosts: &HostOptions,
) -> Result<Vec<(String, String)>, Failure> {
    let mut names = hosts.names();
    let loaded = options.load(&mut |number| names(number))?;
    let has_options =
        crate::profile::variables(&options.profile)?.iter().any(|name| name == "options");
    let missing_rights = missing_rights(hosts);
    if let Some(error) = &missing_rights {
        terminal::warn(format_args!("wirecost: no setting of this machine is a factor: {error}"));
        if let Some(remedy) = error.remedy() {
            terminal::warn(format_args!("  help: {remedy}"));
        }
    }
    let mut left_out = Vec::new();
    for DefaultFactor { name, level, of, is_of_device } in DEFAULT {
        if !fits(*of, &loaded.profile) {
            // Factors of another protocol are not reported.
            continue;
        }
        // The connections' own congestion control replaces that of the kernel.
        let is_overridden =
            *name == "tune.tcp_congestion_control" && definition.set.contains_key("cc");
        let is_set = definition.set.contains_key(*name) || is_overridden;
        let reason = if is_set {
            Some("the command line sets it".to_owned())
        } else if name.starts_with("option.") && !has_options {
            Some("no flowop of the profile has the word $options among its options".to_owned())
        } else if *is_of_device && hosts.is_loopback() {
            Some("it is a setting of a network device, which loopback does not have".to_owned())
        } else if *is_of_device
            && !hosts.hosts.is_empty()
            && !definition.set.contains_key("tune-device")
        {
            Some(
                "it is a setting of a network device: name the device with --tune-device"
                    .to_owned(),
            )
        } else if let Some(error) = &missing_rights
            && name.starts_with(OF_HOSTS)
        {
            Some(error.to_string())
        } else if definition.axes.len() == MOST_BY_DEFAULT {
            Some(format!(
                "the default set has at most {MOST_BY_DEFAULT} factors; choose others with --factor"
            ))
        } else {
            None
        };
        match reason {
            Some(reason) => left_out.push((format!("{name}={level}"), reason)),
            None => definition.set_levels(name, &[KEEP.to_owned(), (*level).to_owned()]),
        }
    }
    Ok(left_out)
}

fn fits(traffic: Traffic, profile: &Profile) -> bool {
    let is_datagrams = crate::commands::run::link_rate::uses_datagrams(profile);
    match traffic {
        Traffic::Any => true,
        Traffic::Tcp => !is_datagrams,
        Traffic::Udp => is_datagrams,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_set_has_only_settings_that_there_are() {
        for DefaultFactor { name, level, is_of_device, .. } in DEFAULT {
            match name.strip_prefix(OF_HOSTS) {
                Some(tunable) => {
                    let setting = Setting::new(tunable, level).unwrap();
                    assert_eq!(setting.tunable().scope().is_of_device(), *is_of_device, "{name}");
                    assert_eq!(setting.value(), *level);
                }
                None => assert!(["engine", "option.tcp_nodelay"].contains(name)),
            }
        }
    }

    #[test]
    fn names_that_are_no_factors_are_refused() {
        let (mut definition, hosts) = (Definition::default(), HostOptions::default());
        let mut refused = |name: &str, levels: &[&str]| {
            let levels = levels.iter().map(|level| (*level).to_owned()).collect();
            let failure = add(&mut definition, &[(name.to_owned(), levels)], &hosts).unwrap_err();
            (failure.message, failure.help)
        };
        let (message, help) = refused("mtu", &["keep", "9000"]);
        assert_eq!(message, "--factor mtu: unknown factor");
        assert_eq!(help.as_deref(), Some("did you mean tune.mtu?"));
        assert!(refused("duration", &["1s", "2s"]).0.contains("cannot be a factor"));
        assert!(refused("tune.mtuu", &["keep", "9000"]).0.contains("did you mean `mtu`?"));
        assert!(refused("tune.mtu", &["keep", "x"]).0.contains("invalid value `x`"));
        assert!(refused("engine", &["epoll", ""]).0.contains("a level is empty"));
    }
}
