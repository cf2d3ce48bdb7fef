use wirecost_model::profile::{IoValue, Profile};
use wirecost_profile::flowops::Flowops;
use wirecost_profile::io_options::IoOption;
use wirecost_profile::io_options::dscp::Dscp;
use wirecost_profile::io_options::tos::{self, Tos as TosOption};
use wirecost_profile::protocols::{self, Family};

use super::{Change, RunOption};
use crate::Failure;

pub(super) struct Tos;

impl RunOption for Tos {
    fn name(&self) -> &'static str {
        "tos"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("TOS")
    }

    fn help(&self) -> &'static str {
        "Type of service of all data packets (IP_TOS, IPV6_TCLASS): 0 to 255, or a code point such as ef, \
         cs1 or af41 [default: the profile's]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let value = tos::read(value)
            .ok_or("must be a number from 0 to 255, or a code point such as ef, cs1 or af41")?;
        Ok(Change::to_profile(move |profile| set(profile, &value)))
    }
}

/// Sets it on every connection. The code point of the profile would be a part of it.
fn set(profile: &mut Profile, value: &IoValue) -> Result<(), Failure> {
    let flowops =
        profile.groups.iter_mut().flat_map(|g| &mut g.transactions).flat_map(|t| &mut t.flowops);
    let mut is_by_ip = false;
    for flowop in flowops.filter(|flowop| Flowops::Open.contains(&flowop.kind)) {
        let protocol = flowop.options.protocol.as_deref().and_then(protocols::find);
        is_by_ip |= protocol.is_some_and(|protocol| protocol.family() == Family::Inet);
        flowop.options.io.remove(Dscp.name());
        flowop.options.io.set(TosOption.name(), value.clone());
    }
    match is_by_ip {
        true => Ok(()),
        false => Err(Failure::usage("--tos: the profile has no connection by IP")
            .help("remove --tos, or choose another protocol")),
    }
}
