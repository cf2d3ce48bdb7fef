//! Congestion control as BPF programs, which this host loads for its connections.

use std::io;

use wirecost_congestion::{Error, Loaded, UserObject, bic, names, obstacle};
use wirecost_model::congestion::{AVAILABLE, BPF_BIC, CongestionObject};
use wirecost_model::plan::Plan;
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::cc::Cc;
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::congestion;
use wirecost_program::socket_setup::SocketSetting;

/// Why connections cannot have what they choose.
#[derive(Debug, thiserror::Error)]
#[error("cc={name}: {source}")]
pub struct Unloaded {
    name: String,
    source: Error,
}

impl Unloaded {
    /// Whether another object of the user's would do, and not another host.
    #[must_use]
    pub fn is_of_object(&self) -> bool {
        self.name != BPF_BIC && !matches!(self.source, Error::Obstacle(_))
    }
}

/// Programs that are registered until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    loaded: Vec<Loaded>,
}

impl Programs {
    /// Loads what the connections of a plan choose. From here on they choose it by the kernel's name.
    ///
    /// # Errors
    /// What the kernel lacks or refuses. Nothing stays.
    pub(crate) fn load(plan: &mut Plan) -> Result<Self, Unloaded> {
        let mut loaded = Vec::new();
        for CongestionObject { name, object } in std::mem::take(&mut plan.congestion_objects) {
            if congestion::chosen(&plan.program).contains(name.as_str()) {
                let program = UserObject::new(object).and_then(|object| object.load_as(&name));
                loaded.push(program.map_err(|source| Unloaded { name, source })?);
            }
        }
        if congestion::chosen(&plan.program).contains(BPF_BIC) {
            let failed = |source| Unloaded { name: BPF_BIC.to_owned(), source };
            loaded.push(bic::load().map_err(failed)?);
        }
        for program in &loaded {
            congestion::rename(&mut plan.program, program.name(), program.kernel_name());
        }
        Ok(Self { loaded })
    }

    /// A setting as the profile would write it.
    pub(crate) fn shown(&self, setting: &EffectiveSetting) -> EffectiveSetting {
        let shown = |text: &str| {
            let program = self.loaded.iter().find(|program| program.kernel_name() == text);
            program.map_or(text, Loaded::name).to_owned()
        };
        let EffectiveSetting { name, requested, effective } = setting;
        EffectiveSetting { name, requested: shown(requested), effective: shown(effective) }
    }
}

/// Names of the programs that a run loads if its connections choose them.
fn names_of_programs(plan: &Plan) -> impl Iterator<Item = &str> {
    let objects = plan.congestion_objects.iter().map(|object| object.name.as_str());
    objects.chain([BPF_BIC])
}

/// Whether this host can load what a plan's connections choose, as far as that is known before it is tried.
pub(crate) fn check(plan: &Plan) -> Result<(), Unloaded> {
    let chosen = congestion::chosen(&plan.program);
    let Some(name) = names_of_programs(plan).find(|name| chosen.contains(name)) else {
        return Ok(());
    };
    match obstacle() {
        Some(source) => Err(Unloaded { name: name.to_owned(), source: source.into() }),
        None => Ok(()),
    }
}

/// Whether the kernel has what a setting names only once the run has loaded it.
pub(crate) fn is_loaded_by_run(setting: &SocketSetting, plan: &Plan) -> bool {
    setting.option.label == Some(Cc.name())
        && names_of_programs(plan).any(|name| name == setting.requested)
}

/// What to say where the kernel has no congestion control of this name.
pub(crate) fn unknown(name: &str) -> io::Error {
    let known = names::available().map_or_else(
        |_| String::new(),
        |names| format!(" (it has {}; modules can add others)", names.join(", ")),
    );
    let remedy = match name {
        AVAILABLE => format!("; {AVAILABLE} is a value of axes of studies"),
        "bic" => format!("; cc={BPF_BIC} is BIC as a BPF program"),
        _ => "; an object of yours is loaded by --cc-object".to_owned(),
    };
    let text = format!("this kernel has no congestion control {name}{known}{remedy}");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// What to say where the kernel has it, but not for all users
/// (`tcp_set_congestion_control`, <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_cong.c>).
pub(crate) fn not_allowed(name: &str) -> io::Error {
    let text = format!(
        "choosing {name} requires CAP_NET_ADMIN: run as root, or allow it to all users by the sysctl \
         net.ipv4.tcp_allowed_congestion_control"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_user_gave_can_be_at_fault_of_the_user() {
        let is_of_object = |name: &str, source| {
            let name = name.to_owned();
            Unloaded { name, source }.is_of_object()
        };
        let refused = || Error::Refused { reason: "EPERM".to_owned(), log: String::new() };
        assert!(is_of_object("mine", refused()));
        assert!(!is_of_object(BPF_BIC, refused()));
        assert!(!is_of_object("mine", Error::Obstacle(wirecost_congestion::Obstacle::NoBtf)));
    }
}
