use wirecost_model::profile::Profile;
use wirecost_profile::flowops::{self, Action};

use super::{Change, RunOption};
use crate::Failure;

pub(super) struct Reverse;

impl RunOption for Reverse {
    fn name(&self) -> &'static str {
        "reverse"
    }

    fn value_name(&self) -> Option<&'static str> {
        None
    }

    fn help(&self) -> &'static str {
        "Reverse the direction of the data: the master reads where the profile writes"
    }

    fn read(&self, _: &str) -> Result<Change, String> {
        Ok(Change::to_profile(reverse))
    }
}

fn reverse(profile: &mut Profile) -> Result<(), Failure> {
    let flowops =
        profile.groups.iter_mut().flat_map(|g| &mut g.transactions).flat_map(|t| &mut t.flowops);
    for flowop in flowops {
        let Some(written) = flowops::find(&flowop.kind) else { continue };
        if written.action() == Action::SendFile {
            let message = format!("--reverse: the sendfile at {} has no reverse", flowop.at);
            return Err(
                Failure::usage(message).help("connect from the other end: swap connect and accept")
            );
        }
        if written.action().has_direction() {
            flowop.kind = written.mirror().to_owned();
        }
    }
    Ok(())
}
