//! What the command line changes of a profile.

use std::time::Duration;

use wirecost_model::profile::{Profile, Until};

use crate::Failure;
use crate::profile::Loaded;

pub(super) struct Adjust {
    pub(super) connections: Option<u32>,
    pub(super) duration: Option<Duration>,
    pub(super) reverse: bool,
}

impl Adjust {
    pub(super) fn apply(&self, profile: &mut Profile) -> Result<(), Failure> {
        if let Some(connections) = self.connections {
            for group in &mut profile.groups {
                group.strands = connections;
            }
        }
        if let Some(duration) = self.duration {
            set_duration(profile, duration)?;
        }
        if self.reverse {
            reverse(profile)?;
        }
        Ok(())
    }
}

/// Replaces each group by one copy per peer. The profile must have exactly one host without an address.
/// `names` returns host names by number; that host has the first.
pub(super) fn connect_to_each(
    loaded: &mut Loaded,
    peers: usize,
    names: &mut dyn FnMut(usize) -> Option<String>,
) -> Result<(), Failure> {
    let [(_, open)] = loaded.assigned.as_slice() else {
        let message = format!(
            "--peers {peers}: {} does not have exactly one host without an address",
            loaded.name
        );
        return Err(Failure::usage(message)
            .help("a profile that names its hosts connects to those; remove --peers"));
    };
    let open = open.clone();
    let of_one = std::mem::take(&mut loaded.profile.groups);
    for number in 0..peers {
        let Some(name) = names(number) else {
            return Err(Failure::usage(format!("--peers {peers}: there are only {number} hosts"))
                .help("add a --host NAME=ADDR for each of them"));
        };
        let mut groups = of_one.clone();
        let flowops =
            groups.iter_mut().flat_map(|g| &mut g.transactions).flat_map(|t| &mut t.flowops);
        for host in flowops.filter_map(|flowop| flowop.options.remotehost.as_mut()) {
            if *host == open {
                host.clone_from(&name);
            }
        }
        loaded.profile.groups.extend(groups);
    }
    Ok(())
}

/// The measured phase is the longest phase with a duration.
fn set_duration(profile: &mut Profile, duration: Duration) -> Result<(), Failure> {
    let phases = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap_or(0);
    let length = |phase: usize| {
        let of_group = profile.groups.iter().filter_map(|group| group.transactions.get(phase));
        of_group
            .filter_map(|transaction| match transaction.until {
                Until::Duration(length) => Some(length),
                Until::Iterations(_) => None,
            })
            .max()
    };
    // The last of the longest, as the run chooses it.
    let headline = (0..phases).filter_map(|phase| Some((length(phase)?, phase))).max();
    let Some((_, headline)) = headline else {
        return Err(Failure::usage("--duration: no transaction of the profile has a duration")
            .help("its phases are limited by iterations; change them in the profile"));
    };
    for transaction in profile.groups.iter_mut().filter_map(|g| g.transactions.get_mut(headline)) {
        if let Until::Duration(length) = &mut transaction.until {
            *length = duration;
        }
    }
    Ok(())
}

fn reverse(profile: &mut Profile) -> Result<(), Failure> {
    let flowops =
        profile.groups.iter_mut().flat_map(|g| &mut g.transactions).flat_map(|t| &mut t.flowops);
    for flowop in flowops {
        let reversed = match flowop.kind.as_str() {
            "read" => "write",
            "write" => "read",
            "send" => "recv",
            "recv" => "send",
            "sendto" => "recvfrom",
            "recvfrom" => "sendto",
            "sendfile" => {
                let message = format!("--reverse: the sendfile at {} has no reverse", flowop.at);
                return Err(Failure::usage(message)
                    .help("connect from the other end: swap connect and accept"));
            }
            _ => continue,
        };
        flowop.kind = reversed.to_owned();
    }
    Ok(())
}
