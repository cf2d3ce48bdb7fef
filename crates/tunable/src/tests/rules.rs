//! What is restored, and what is left.

use std::fs;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::{Host, block, set};
use crate::error::with_causes;
use crate::{ControlConnection, LeftBehind, Outcome, Target, TuneError, restore_left_behind};
use wirecost_linux::privilege::skip_without_namespaces;

#[test]
fn all_settings_are_applied_or_none() {
    if skip_without_namespaces("rules::all_settings_are_applied_or_none") {
        return;
    }
    let host = Host::new("none");
    let near = host.target("near");
    let sack = set("tcp_sack", "0").tunable();
    let mut tuner = host.tuner();
    tuner.apply(&near, &[set("mtu", "1450")]).unwrap();
    // The kernel refuses the last one when it is written.
    let settings = [set("mtu", "1400"), set("tcp_sack", "0"), set("tcp_rmem", "0 0 0")];
    let error = tuner.apply(&near, &settings).unwrap_err();
    assert!(
        with_causes(&error).starts_with("cannot set `tcp_rmem` to `0 0 0` on this host: failed to")
    );
    assert_eq!(host.mtu(), Some(1450), "the value of the earlier change");
    assert_eq!(sack.read(&near).unwrap(), "1");
    let error = tuner.apply(&near, &[set("mtu", "1400"), set("mtu", "1300")]).unwrap_err();
    assert_eq!(error.to_string(), "`mtu` is set twice");
    let restored = tuner.restore().unwrap();
    assert_eq!(restored.entries.len(), 1);
    assert_eq!(host.mtu(), Some(1500), "the value before the first change");
}

#[test]
fn restoring_is_idempotent_and_goes_back_to_the_first_value() {
    if skip_without_namespaces("rules::restoring_is_idempotent") {
        return;
    }
    let host = Host::new("idempotent");
    let mut tuner = host.tuner();
    for mtu in ["1400", "1300", "1400"] {
        let applied = tuner.apply(&host.target("near"), &[set("mtu", mtu)]).unwrap();
        assert_eq!((applied[0].previous.as_str(), applied[0].effective.as_str()), ("1500", mtu));
    }
    assert_eq!(tuner.restore().unwrap().entries.len(), 1);
    assert_eq!(host.mtu(), Some(1500));
    assert!(tuner.restore().unwrap().entries.is_empty());
    drop(tuner);
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn dropping_restores() {
    if skip_without_namespaces("rules::dropping_restores") {
        return;
    }
    let host = Host::new("dropped");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    drop(tuner);
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn a_value_that_somebody_else_changed_is_left_and_reported() {
    if skip_without_namespaces("rules::a_value_that_somebody_else_changed") {
        return;
    }
    let host = Host::new("others");
    let near = host.target("near");
    let mut tuner = host.tuner();
    tuner.apply(&near, &[set("mtu", "1400"), set("txqueuelen", "17")]).unwrap();
    host.links().set_mtu("near", 1450).unwrap();
    let restored = tuner.restore().unwrap();
    assert!(!restored.is_complete());
    let [mtu, length] = &restored.entries[..] else { panic!("{restored:?}") };
    assert_eq!(mtu.outcome, Outcome::ChangedByOthers { current: "1450".to_owned() });
    assert_eq!((mtu.name.as_str(), mtu.place.as_str()), ("mtu", "`near`"));
    assert_eq!(length.outcome, Outcome::Restored);
    assert_eq!(host.mtu(), Some(1450));
    assert!(host.journals().is_empty());
    // What somebody else has restored already is no change of theirs.
    tuner.apply(&near, &[set("mtu", "1400")]).unwrap();
    host.links().set_mtu("near", 1450).unwrap();
    assert!(tuner.restore().unwrap().is_complete());
}

#[test]
fn a_device_that_is_gone_is_reported_and_others_are_restored() {
    if skip_without_namespaces("rules::a_device_that_is_gone") {
        return;
    }
    let host = Host::new("device-gone");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400"), set("tcp_sack", "0")]).unwrap();
    let links = host.links();
    links.delete("near").unwrap();
    // Another one of the same name is another device.
    links.add_veth("near", "far", &host.namespace()).unwrap();
    links.set_mtu("near", 1400).unwrap();
    let restored = tuner.restore().unwrap();
    let outcomes: Vec<_> = restored.entries.iter().map(|entry| &entry.outcome).collect();
    let gone = Outcome::Gone { what: "the device `near` is gone".to_owned() };
    assert_eq!(outcomes, [&gone, &Outcome::Restored]);
    assert_eq!(host.mtu(), Some(1400));
    assert!(host.journals().is_empty());
}

/// Edits the only journal.
fn edit(host: &Host, from: &str, to: &str) {
    let [path] = &host.journals()[..] else { panic!("one journal") };
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_journal_of_an_earlier_boot_is_discarded() {
    if skip_without_namespaces("rules::a_journal_of_an_earlier_boot_is_discarded") {
        return;
    }
    let host = Host::new("reboot");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    edit(&host, boot.trim(), "00000000-0000-0000-0000-000000000000");
    assert!(restore_left_behind(Some(&host.directory())).unwrap().restored.is_empty());
    assert!(host.journals().is_empty());
    assert!(tuner.restore().unwrap().entries.is_empty());
    assert_eq!(host.mtu(), Some(1400), "it is not restored");
}

#[test]
fn a_change_that_was_under_way_is_undone_whatever_its_value_is() {
    if skip_without_namespaces("rules::a_change_that_was_under_way") {
        return;
    }
    let host = Host::new("under-way");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    edit(&host, "\"applied\":\"1400\"", "\"applied\":null");
    host.orphan_journal();
    host.links().set_mtu("near", 1402).unwrap();
    let left = restore_left_behind(Some(&host.directory())).unwrap();
    assert!(left.restored[0].is_complete(), "{left:?}");
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn a_journal_of_another_version_is_told_and_left() {
    if skip_without_namespaces("rules::a_journal_of_another_version_is_told_and_left") {
        return;
    }
    let host = Host::new("version");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    edit(&host, "wirecost.tune/1", "wirecost.tune/9");
    let told = |left: &LeftBehind| {
        let [problem] = &left.problems[..] else { panic!("{left:?}") };
        assert!(with_causes(problem).contains("it is of schema `wirecost.tune/9`"), "{problem}");
        assert!(problem.remedy().unwrap().contains("another version"));
    };
    told(&restore_left_behind(Some(&host.directory())).unwrap());
    let [unreadable] = &host.journals()[..] else { panic!("one journal") };
    // What others left is restored, and settings are changed.
    let aside = unreadable.with_extension("aside");
    fs::rename(unreadable, &aside).unwrap();
    drop(tuner);
    let mut tuner = host.tuner();
    tuner.apply(&host.target("far"), &[set("mtu", "1400")]).unwrap();
    host.orphan_journal();
    fs::rename(&aside, unreadable).unwrap();
    let left = restore_left_behind(Some(&host.directory())).unwrap();
    told(&left);
    assert!(left.restored.len() == 1 && left.restored[0].is_complete(), "{left:?}");
    assert_eq!(host.journals().len(), 1);
    drop(tuner);
    let aside = unreadable.with_file_name("1-1.json");
    fs::rename(unreadable, &aside).unwrap();
    let mut tuner = host.tuner();
    told(&tuner.take_left_behind());
    tuner.apply(&host.target("far"), &[set("mtu", "1400")]).unwrap();
    assert!(tuner.close().unwrap().is_complete());
    fs::rename(&aside, unreadable).unwrap();
    edit(&host, "wirecost.tune/9", "wirecost.tune/1");
    assert!(host.tuner().restore().unwrap().is_complete());
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn an_entry_is_on_disk_before_its_change_is_made() {
    if skip_without_namespaces("rules::an_entry_is_on_disk_before_its_change_is_made") {
        return;
    }
    let host = Host::new("ahead");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("tcp_sack", "0")]).unwrap();
    let boost = host.machine().join("sys/devices/system/cpu/cpufreq/boost");
    let written = || fs::metadata(&boost).unwrap().modified().unwrap();
    fs::File::open(&boost).unwrap().set_modified(UNIX_EPOCH).unwrap();
    let draft = block(&host.journal().0);
    let copy = host.targets().pop().unwrap();
    let error = tuner.apply(&copy, &[set("turbo", "off")]).unwrap_err();
    assert!(matches!(error, TuneError::Journal { act: "write", .. }), "{error:?}");
    assert_eq!(written(), UNIX_EPOCH, "it was changed, and changed back");
    fs::remove_dir(&draft).unwrap();
    assert!(tuner.restore().unwrap().is_complete());
}

/// Each of them disturbs the other, so that either is undone more than once.
#[test]
fn settings_that_disturb_each_other_are_undone() {
    if skip_without_namespaces("rules::settings_that_disturb_each_other_are_undone") {
        return;
    }
    let host = Host::new("disturbed");
    let near = host.target("near");
    let mut tuner = host.tuner();
    let settings = [set("offload.gro", "on"), set("offload.tso", "off"), set("tcp_rmem", "0 0 0")];
    let read = || settings.clone().map(|setting| setting.tunable().read(&near).unwrap());
    let before = read();
    assert!(before[0] != "on" && before[1] != "off", "{before:?}");
    let error = tuner.apply(&near, &settings).unwrap_err();
    assert!(matches!(error, TuneError::Refused { name: "tcp_rmem", .. }), "{error:?}");
    assert_eq!(read(), before);
    assert!(host.journals().is_empty());
}

fn control(host: &Host) -> ControlConnection {
    let id = host.namespace().id().unwrap();
    // As a socket of IPv6 tells it.
    ControlConnection::of(id, "::ffff:198.18.0.1".parse().unwrap())
}

#[test]
fn the_device_of_the_control_connection_is_not_changed() {
    if skip_without_namespaces("rules::the_device_of_the_control_connection") {
        return;
    }
    let host = Host::new("control");
    let mut tuner = crate::Tuner::open(host.options().with_control(control(&host))).unwrap();
    let error = tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap_err();
    assert!(matches!(error, TuneError::ControlDevice { name: "mtu", .. }), "{error:?}");
    assert!(error.remedy().unwrap().contains("--allow-control-device"));
    assert_eq!(host.mtu(), Some(1500));
    // Other devices, and settings of the namespace.
    tuner.apply(&host.target("far"), &[set("mtu", "1400")]).unwrap();
    tuner.apply(&host.target("near"), &[set("tcp_sack", "0")]).unwrap();
    drop(tuner);
    let allowed = host.options().with_control(control(&host)).allowing_control_device();
    let mut tuner = crate::Tuner::open(allowed).unwrap();
    let error = tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap_err();
    assert!(matches!(error, TuneError::NoGuardian { .. }), "{error:?}");
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn each_control_connection_counts() {
    if skip_without_namespaces("rules::each_control_connection_counts") {
        return;
    }
    let host = Host::new("controls");
    host.links().add_address("far", "198.18.1.1".parse().unwrap(), 24).unwrap();
    let id = host.namespace().id().unwrap();
    let other = ControlConnection::of(id, "198.18.1.1".parse().unwrap());
    let elsewhere = ControlConnection::of(id, "198.18.2.1".parse().unwrap());
    let options = host.options().with_control(control(&host)).with_control(other);
    let mut tuner = crate::Tuner::open(options.with_control(elsewhere)).unwrap();
    for device in ["near", "far"] {
        let error = tuner.apply(&host.target(device), &[set("mtu", "1400")]).unwrap_err();
        assert!(matches!(error, TuneError::ControlDevice { .. }), "{device}: {error:?}");
    }
    tuner.apply(&host.target("tun0"), &[set("mtu", "1400")]).unwrap();
}

/// The guardian reverts them with it.
#[test]
fn what_a_change_of_the_control_device_disturbs_is_unconfirmed_too() {
    if skip_without_namespaces("rules::what_a_change_of_the_control_device_disturbs") {
        return;
    }
    let host = Host::new("disturbs");
    let program = super::guardian_program();
    let guardian = crate::guardian::Guardian::start(&program, Some(&host.directory())).unwrap();
    let options = host.options().with_guardian(guardian).with_control(control(&host));
    let options = options.with_confirmation_within(super::PATIENCE * 6);
    let mut tuner = crate::Tuner::open(options.allowing_control_device()).unwrap();
    tuner.apply(&host.target("near"), &[set("offload.tx-checksum", "off")]).unwrap();
    let unconfirmed = || {
        let (_, journal) = host.journal();
        let entries = journal["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["unconfirmed"] == true).collect::<Vec<_>>()
    };
    let before = unconfirmed();
    assert!(before.len() > 1 && !before.contains(&false), "{before:?}");
    tuner.confirm().unwrap();
    assert!(!unconfirmed().contains(&true));
}

#[test]
fn a_confirmation_that_failed_can_be_repeated() {
    if skip_without_namespaces("rules::a_confirmation_that_failed_can_be_repeated") {
        return;
    }
    let host = Host::new("repeated");
    let program = super::guardian_program();
    let guardian = crate::guardian::Guardian::start(&program, Some(&host.directory())).unwrap();
    let options = host.options().with_guardian(guardian).with_control(control(&host));
    let options = options.with_confirmation_within(super::PATIENCE * 6);
    let mut tuner = crate::Tuner::open(options.allowing_control_device()).unwrap();
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    let draft = block(&host.journal().0);
    let error = tuner.confirm().unwrap_err();
    assert!(matches!(error, TuneError::Journal { .. }), "{error:?}");
    fs::remove_dir(&draft).unwrap();
    assert_eq!(host.journal().1["entries"][0]["unconfirmed"], true);
    tuner.confirm().unwrap();
    assert_eq!(host.journal().1["entries"][0]["unconfirmed"], false);
    tuner.confirm().unwrap();
}

#[test]
fn devices_below_that_of_the_control_connection_count_too() {
    if skip_without_namespaces("rules::devices_below_that_of_the_control_connection") {
        return;
    }
    let host = Host::new("below");
    let links = host.links();
    links.add_bridge("br0").unwrap();
    links.attach("far", "br0").unwrap();
    links.add_address("br0", "198.18.1.1".parse().unwrap(), 24).unwrap();
    let id = host.namespace().id().unwrap();
    let control = ControlConnection::of(id, "198.18.1.1".parse().unwrap());
    let mtu = set("mtu", "1400").tunable();
    for (device, expected) in [("br0", true), ("far", true), ("near", false), ("lo", false)] {
        let found = control.is_concerned(&host.target(device), mtu).unwrap();
        assert_eq!(found, expected, "{device}");
    }
    let elsewhere = ControlConnection::here("198.18.1.1".parse().unwrap()).unwrap();
    assert!(!elsewhere.is_concerned(&host.target("br0"), mtu).unwrap());
    let no_device = Target::of(host.namespace()).unwrap();
    assert!(!control.is_concerned(&no_device, mtu).unwrap());
}

#[test]
fn a_change_of_the_control_device_reverts_unless_it_is_confirmed() {
    if skip_without_namespaces("rules::a_change_of_the_control_device_reverts") {
        return;
    }
    let host = Host::new("confirm");
    const WITHIN: Duration = Duration::from_millis(400);
    let options = || {
        let options = host.options().with_control(control(&host)).allowing_control_device();
        let program = super::guardian_program();
        let guardian = crate::guardian::Guardian::start(&program, Some(&host.directory())).unwrap();
        options.with_guardian(guardian).with_confirmation_within(WITHIN)
    };
    let near = host.target("near");
    let mut tuner = crate::Tuner::open(options()).unwrap();
    let settings = [set("mtu", "1400"), set("tcp_sack", "0")];
    tuner.apply(&near, &settings).unwrap();
    let start = Instant::now();
    while host.mtu() != Some(1500) {
        assert!(start.elapsed() < super::PATIENCE, "it did not revert");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sack = set("tcp_sack", "0").tunable();
    assert_eq!(sack.read(&near).unwrap(), "0", "it is of no device");
    let error = tuner.confirm().unwrap_err();
    assert!(matches!(error, TuneError::NotConfirmed), "{error:?}");

    tuner.apply(&near, &[set("mtu", "1400")]).unwrap();
    tuner.confirm().unwrap();
    std::thread::sleep(WITHIN * 2);
    assert_eq!(host.mtu(), Some(1400), "it was confirmed");
    assert!(tuner.close().unwrap().is_complete());
    assert_eq!(host.mtu(), Some(1500));
    assert_eq!(sack.read(&near).unwrap(), "1");

    // An owner that is never heard of again.
    let mut tuner = crate::Tuner::open(options()).unwrap();
    tuner.apply(&near, &[set("mtu", "1500"), set("txqueuelen", "17")]).unwrap();
    drop(tuner);
    assert_eq!(host.links().get("near").unwrap().tx_queue_len, Some(1000));
}
