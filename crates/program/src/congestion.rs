//! Which congestion control the connections of a host choose.

use std::collections::BTreeSet;

use wirecost_model::profile::{IoValue, Options};
use wirecost_model::program::Program;
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::cc::Cc;

/// The value of `cc=`.
#[must_use]
pub fn of(options: &Options) -> Option<&str> {
    match Cc.get(options)? {
        IoValue::Text(name) => Some(name),
        _ => None,
    }
}

/// Names that a host's connections choose, as the profile has them.
#[must_use]
pub fn chosen(program: &Program) -> BTreeSet<&str> {
    let of_services = program.services.iter().map(|service| &service.options);
    crate::step::acts(program).map(|act| &act.options).chain(of_services).filter_map(of).collect()
}

/// Has connections choose what a process has loaded under a name of its own.
pub fn rename(program: &mut Program, name: &str, kernel_name: &str) {
    let groups = program.groups.iter_mut();
    let phases = groups.flat_map(|group| &mut group.phases).flatten();
    let of_acts = phases.flat_map(|phase| &mut phase.acts).map(|act| &mut act.options);
    let of_services = program.services.iter_mut().map(|service| &mut service.options);
    for options in of_acts.chain(of_services) {
        if of(options) == Some(name) {
            options.io.set(Cc.name(), IoValue::Text(kernel_name.to_owned()));
        }
    }
}
