//! Several peers in place of one.

use crate::Failure;
use crate::profile::Loaded;

/// Replaces each group by one copy per peer. The profile must have exactly one host without an address.
/// `names` returns host names by number; that host has the first.
pub(super) fn connect_to_each(
    loaded: &mut Loaded,
    peers: usize,
    names: &mut dyn FnMut(usize) -> Option<String>,
) -> Result<(), Failure> {
    let [(variable, open)] = loaded.assigned.as_slice() else {
        let message = format!(
            "--peers {peers}: {} does not have exactly one host without an address",
            loaded.name
        );
        return Err(Failure::usage(message)
            .help("a profile that names its hosts connects to those; remove --peers"));
    };
    let (variable, open) = (variable.clone(), open.clone());
    loaded.assigned.clear();
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
        loaded.assigned.push((variable.clone(), name));
    }
    Ok(())
}
