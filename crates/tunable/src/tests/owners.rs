//! Settings of several owners that meet.

use std::process::{Child, Command};

use super::{Host, set};
use crate::{Setting, Target, TuneError, Tuner};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::privilege::{skip, skip_without_namespaces};
use wirecost_linux::process::ProcessId;

/// A process that lives.
pub(super) struct Other(Child);

impl Other {
    pub(super) fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    /// Changes a setting, in its name.
    pub(super) fn change(&self, host: &Host, target: &Target, setting: Setting) {
        let mut tuner = host.tuner();
        tuner.apply(target, &[setting]).unwrap();
        host.give_journal_to(ProcessId::of(self.0.id()).unwrap());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[track_caller]
fn assert_refused(tuner: &mut Tuner, target: &Target, setting: Setting, because_of: &str) {
    let error = tuner.apply(target, &[setting]).unwrap_err();
    let TuneError::Disturbs { other, .. } = &error else { panic!("{error:?}") };
    assert_eq!(other, because_of);
    assert!(error.remedy().unwrap().starts_with("wait for process"));
}

#[test]
fn what_a_change_of_another_owner_may_disturb_is_not_changed() {
    if skip_without_namespaces("owners::what_a_change_of_another_owner_may_disturb") {
        return;
    }
    let host = Host::new("may-disturb");
    let near = host.target("near");
    let other = Other::start();
    other.change(&host, &near, set("offload.gro", "on"));
    let mut tuner = host.tuner();
    assert_refused(&mut tuner, &near, set("offload.tso", "off"), "offload.gro");
    tuner.apply(&host.target("far"), &[set("offload.tso", "off")]).unwrap();
    tuner.apply(&near, &[set("mtu", "1400")]).unwrap();
}

#[test]
fn a_queue_of_another_owner_does_not_end() {
    const TEST: &str = "owners::a_queue_of_another_owner_does_not_end";
    if skip_without_namespaces(TEST) {
        return;
    }
    let host = Host::new("queue");
    let near = host.target("near");
    let ethtool = host.namespace().run(Ethtool::open).unwrap().unwrap();
    if ethtool.channels("near").unwrap().rx_max < 2 {
        return skip(TEST, "needs two CPUs");
    }
    for name in ["channels.tx", "channels.rx"] {
        set(name, "2").tunable().write(&near, "2").unwrap();
    }
    let other = Other::start();
    other.change(&host, &near, set("rps_cpus", "0"));
    let mut tuner = host.tuner();
    assert_refused(&mut tuner, &near, set("channels.rx", "1"), "rps_cpus");
    drop((tuner, other));
    // And the other way round, though restoring the queues has not changed anything yet.
    drop(host.tuner());
    let other = Other::start();
    other.change(&host, &near, set("channels.rx", "1"));
    let mut tuner = host.tuner();
    assert_refused(&mut tuner, &near, set("rps_cpus", "0"), "channels.rx");
}

#[test]
fn devices_above_that_of_another_owner_count_too() {
    if skip_without_namespaces("owners::devices_above_that_of_another_owner") {
        return;
    }
    let host = Host::new("above-owner");
    host.links().add_macvlan("upper", "near").unwrap();
    let other = Other::start();
    other.change(&host, &host.target("near"), set("mtu", "1450"));
    let mut tuner = host.tuner();
    // Its entry is there as it was lowered.
    let error = tuner.apply(&host.target("upper"), &[set("mtu", "1400")]).unwrap_err();
    assert!(matches!(error, TuneError::InUse { .. }), "{error:?}");
    drop((tuner, other));
    drop(host.tuner());
    let other = Other::start();
    other.change(&host, &host.target("upper"), set("mtu", "1400"));
    let mut tuner = host.tuner();
    assert_refused(&mut tuner, &host.target("near"), set("mtu", "1450"), "mtu");
}

/// Who restores first would attach the default that the other has changed.
#[test]
fn the_default_queueing_discipline_and_those_that_take_it_have_one_owner() {
    if skip_without_namespaces("owners::the_default_queueing_discipline") {
        return;
    }
    let host = Host::new("default-qdisc");
    let copy = host.targets().pop().unwrap();
    let copy_of_near = host.target("near").below(&host.machine());
    let other = Other::start();
    other.change(&host, &copy, set("default_qdisc", "fq"));
    let mut tuner = host.tuner();
    assert_refused(&mut tuner, &copy_of_near, set("qdisc", "pfifo"), "default_qdisc");
    tuner.apply(&host.target("near"), &[set("qdisc", "pfifo")]).unwrap();
}
