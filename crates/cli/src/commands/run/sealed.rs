//! Profiles that come with a page from somebody else: they may name no host and no file.

use wirecost_model::profile::IoValue;
use wirecost_program::program;

use crate::Failure;
use crate::profile::Loaded;

const HELP: &str =
    "take study and profile from the page yourself, read them, and use `wirecost study run`";

/// Changes how a device works, for all of its traffic.
const NATIVE: &str = "af_xdp_native";

/// Refuses a profile that names a host, an address or a file, and an engine that changes a device.
pub(super) fn check(loaded: &Loaded, engine: &str) -> Result<(), Failure> {
    let profile = &loaded.profile;
    let refused = |what: String| Err(Failure::usage(format!("{}: {what}", loaded.name)).help(HELP));
    if engine == NATIVE {
        return refused(format!("the engine {NATIVE} changes the network device"));
    }
    let is_assigned = |name: &String| loaded.assigned.iter().any(|(_, assigned)| assigned == name);
    if let Some(name) = program::remote_hosts(profile).iter().find(|name| !is_assigned(name)) {
        return refused(format!("the profile names the host {name}"));
    }
    // Built-in profiles send this program itself, which is on every host.
    let own = std::env::current_exe().ok().map(|path| path.display().to_string());
    let is_own = |path: &str| own.as_deref() == Some(path);
    let transactions = profile.groups.iter().flat_map(|group| &group.transactions);
    for flowop in transactions.flat_map(|transaction| &transaction.flowops) {
        let options = &flowop.options;
        if let Some(directory) = options.dir.as_ref().filter(|directory| !is_own(directory)) {
            return refused(format!("the profile names the file or directory {directory}"));
        }
        if let Some(address) = &options.bind {
            return refused(format!("the profile names the local address {address}"));
        }
        for (name, value) in options.io.iter() {
            let is_file = ["source", "sink"].contains(&name);
            if matches!(value, IoValue::Text(text) if name == "source" && is_own(text)) {
                continue;
            }
            match value {
                IoValue::Text(text) if is_file || text.contains('/') => {
                    return refused(format!(
                        "the profile names the file or directory {text} ({name})"
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
