//! Each tunable on devices and a namespace of this kernel.

use std::fs;

use super::{Host, assert_complete, assert_same, change, changeable, set, snapshot};
use crate::error::with_causes;
use crate::{Outcome, Setting, Target, TuneError};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::privilege::{skip, skip_without_namespaces};
use wirecost_linux::rate_limit::RateLimit;
use wirecost_linux::{rps, sysctl};

#[test]
fn each_tunable_is_applied_read_back_and_restored() {
    if skip_without_namespaces("real::each_tunable_is_applied_read_back_and_restored") {
        return;
    }
    let host = Host::new("each");
    let targets = host.targets();
    let found = changeable(&targets);
    let before = snapshot(&targets);
    let mut tuner = host.tuner();
    let mut changed = Vec::new();
    for (target, tunable) in &found {
        let previous = tunable.read(target).unwrap();
        let Some(effective) = change(&mut tuner, target, *tunable) else {
            // What cannot be changed was left as it is.
            assert_eq!(tunable.read(target).unwrap(), previous, "{tunable:?}");
            continue;
        };
        changed.push(tunable.name());
        assert_eq!(tunable.read(target).unwrap(), effective, "{tunable:?}");
        assert_ne!(effective, previous, "{tunable:?}");
        assert_eq!(host.journals().len(), 1);
        let restored = tuner.restore().unwrap();
        assert_complete(&restored);
        assert_same(&snapshot(&targets), &before, &format!("after {tunable:?}"));
    }
    // What every kernel with these devices has.
    for name in [
        "tcp_rmem",
        "tcp_congestion_control",
        "mtu",
        "txqueuelen",
        "qdisc",
        "offload.tso",
        "offload.gro",
        "offload.tx-checksum",
        "coalesce.rx-frames",
        "rps_cpus",
        "gro_flush_timeout",
        "threaded",
        "napi_defer_hard_irqs",
        "governor",
        "turbo",
        "cstate_limit",
        "irq_affinity",
        "pci.max-read-request",
        "rmem_max",
        "udp_mem",
    ] {
        assert!(changed.contains(&name), "{name} was not changed: {changed:?}");
    }
    let unchanged: Vec<_> = found
        .iter()
        .map(|(_, tunable)| tunable.name())
        .filter(|name| !changed.contains(name))
        .collect();
    println!("{} changed; could not be changed: {unchanged:?}", changed.len());
}

#[test]
fn all_are_applied_at_once_and_restored_in_reverse() {
    if skip_without_namespaces("real::all_are_applied_at_once_and_restored_in_reverse") {
        return;
    }
    let host = Host::new("at-once");
    let targets = host.targets();
    let before = snapshot(&targets);
    let mut tuner = host.guarded_tuner();
    for _ in 0..2 {
        for (target, tunable) in changeable(&targets) {
            change(&mut tuner, target, tunable);
        }
    }
    assert_ne!(snapshot(&targets), before);
    let restored = tuner.close().unwrap();
    assert_complete(&restored);
    assert_same(&snapshot(&targets), &before, "restored");
    assert!(host.journals().is_empty());
}

/// By other means than those of the tunables.
#[test]
fn values_are_those_that_others_see() {
    if skip_without_namespaces("real::values_are_those_that_others_see") {
        return;
    }
    let host = Host::new("seen");
    let near = host.target("near");
    let mut tuner = host.tuner();
    let settings = [
        set("tcp_rmem", "4096 65536 1048576"),
        set("mtu", "1400"),
        set("txqueuelen", "77"),
        set("offload.tso", "off"),
        set("rps_cpus", "0"),
        set("gro_flush_timeout", "20000"),
        set("qdisc", "pfifo"),
    ];
    for applied in tuner.apply(&near, &settings).unwrap() {
        assert!(!applied.is_rounded(), "{applied:?}");
    }
    let namespace = host.namespace();
    let read = |name: &'static str| namespace.run(move || sysctl::read(name).unwrap()).unwrap();
    assert_eq!(read("net.ipv4.tcp_rmem"), "4096 65536 1048576");
    let link = host.links().get("near").unwrap();
    assert_eq!((link.mtu, link.tx_queue_len), (Some(1400), Some(77)));
    assert_eq!(link.qdisc.as_deref(), Some("pfifo"));
    let ethtool = namespace.run(Ethtool::open).unwrap().unwrap();
    let features = ethtool.features("near").unwrap();
    assert!(!features["tx-tcp-segmentation"].on && !features["tx-tcp6-segmentation"].on);
    assert!(rps::steering(&namespace, "near").unwrap().iter().all(|cpus| cpus == &[0]));
    assert!(tuner.restore().unwrap().is_complete());
    assert!(ethtool.features("near").unwrap()["tx-tcp-segmentation"].on);
    assert!(rps::steering(&namespace, "near").unwrap().iter().all(Vec::is_empty));
}

#[test]
fn queues_that_end_with_a_channel_get_their_settings_back() {
    const TEST: &str = "real::queues_that_end_with_a_channel_get_their_settings_back";
    if skip_without_namespaces(TEST) {
        return;
    }
    let host = Host::new("channels");
    let near = host.target("near");
    let mut tuner = host.tuner();
    let ethtool = host.namespace().run(Ethtool::open).unwrap().unwrap();
    if ethtool.channels("near").unwrap().rx_max < 2 {
        return skip(TEST, "needs two CPUs");
    }
    // Somebody has given each of two queues CPUs of its own.
    for name in ["channels.tx", "channels.rx"] {
        tuner_less(&near, &set(name, "2"));
    }
    tuner_less(&near, &set("rps_cpus", "rx-0=0 rx-1=1"));
    let applied = tuner.apply(&near, &[set("channels.rx", "1")]).unwrap();
    assert_eq!((applied[0].previous.as_str(), applied[0].effective.as_str()), ("2", "1"));
    let rps = set("rps_cpus", "none").tunable();
    assert_eq!(rps.read(&near).unwrap(), "0");
    let restored = tuner.restore().unwrap();
    assert_complete(&restored);
    assert_eq!(rps.read(&near).unwrap(), "rx-0=0 rx-1=1");
}

fn tuner_less(target: &Target, setting: &Setting) {
    setting.tunable().write(target, setting.value()).unwrap();
}

#[test]
fn a_queueing_discipline_that_was_set_comes_back_with_its_parameters() {
    if skip_without_namespaces("real::a_queueing_discipline_that_was_set") {
        return;
    }
    let host = Host::new("qdisc");
    let links = host.links();
    let limit =
        RateLimit { bits_per_second: 1_000_000_000, burst_bytes: 80_000, queue_bytes: 1 << 20 };
    links.limit_rate("near", limit).unwrap();
    let before = links.rate_limit("near").unwrap().unwrap();
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("qdisc", "pfifo")]).unwrap();
    assert_eq!(links.rate_limit("near").unwrap(), None);
    assert!(tuner.restore().unwrap().is_complete());
    assert_eq!(links.rate_limit("near").unwrap(), Some(before));
    // The kernel's own, attached when the default was another kind.
    let qdisc = set("qdisc", "pfifo").tunable();
    let far = host.target("far");
    let (saved, kind) = (qdisc.save(&far).unwrap(), qdisc.read(&far).unwrap());
    assert_eq!(saved, format!("kernel {kind}"));
    qdisc.put_back(&far, "kernel another").unwrap();
    assert_eq!((qdisc.save(&far).unwrap(), qdisc.read(&far).unwrap()), (saved, kind));
}

#[test]
fn a_value_that_the_kernel_rounds_is_reported_and_restored() {
    if skip_without_namespaces("real::a_value_that_the_kernel_rounds") {
        return;
    }
    let host = Host::new("rounds");
    let near = host.target("near");
    let mut tuner = host.tuner();
    let applied = tuner.apply(&near, &[set("rps_flow_cnt", "1000")]).unwrap();
    assert_eq!((applied[0].requested.as_str(), applied[0].effective.as_str()), ("1000", "1024"));
    assert!(applied[0].is_rounded());
    let restored = tuner.restore().unwrap();
    assert_eq!(restored.entries[0].outcome, Outcome::Restored);
}

#[test]
fn what_a_kernel_or_driver_lacks_is_refused_with_one_clear_message() {
    if skip_without_namespaces("real::what_a_kernel_or_driver_lacks") {
        return;
    }
    let host = Host::new("lacks");
    let mut tuner = host.tuner();
    let mut refused = |target: &Target, name: &str, value: &str| {
        let error = tuner.apply(target, &[set("mtu", "1400"), set(name, value)]).unwrap_err();
        assert_eq!(host.mtu(), Some(1500), "the first setting was not undone");
        assert!(host.journals().is_empty());
        with_causes(&error)
    };
    let near = host.target("near");
    assert_eq!(
        refused(&near, "rings.rx", "256"),
        "cannot set `rings.rx` to `256` on `near`: the driver of `near` cannot tell the lengths of rings"
    );
    assert_eq!(
        refused(&near, "rmem_max", "1000000"),
        "cannot set `rmem_max` to `1000000` on this host: `net.core.rmem_max` is of the whole machine, \
         and can be changed only in its first network namespace"
    );
    let message = refused(&near, "tcp_congestion_control", "no-such");
    assert!(
        message.contains("this kernel has no congestion control `no-such`; it has"),
        "{message}"
    );
    let message = refused(&near, "qdisc", "no-such");
    assert!(message.ends_with("this kernel has no queueing discipline `no-such`"), "{message}");
    let message = refused(&near, "offload.lro", "on");
    assert!(message.ends_with("`near` has it always off"), "{message}");
    let message = refused(&near, "pause.rx", "on");
    assert!(message.contains("the driver of `near` cannot"), "{message}");
    let message = refused(&near, "rss.table", "equal 2");
    assert!(message.contains("the driver of `near` cannot"), "{message}");
    let message = refused(&near, "irq_affinity", "0");
    assert!(message.ends_with("`near` is on no bus"), "{message}");
    let namespace_only = Target::of(host.namespace()).unwrap();
    let error = tuner.apply(&namespace_only, &[set("mtu", "1400")]).unwrap_err();
    assert!(with_causes(&error).ends_with("it is a setting of a device, and no device was given"));
    let error = tuner.apply(&host.target("eth9"), &[set("mtu", "1400")]).unwrap_err();
    assert!(with_causes(&error).contains("there is no such device"), "{error:?}");
}

#[test]
fn a_device_keeps_its_ipv6_addresses() {
    if skip_without_namespaces("real::a_device_keeps_its_ipv6_addresses") {
        return;
    }
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        return;
    }
    let host = Host::new("ipv6");
    host.links().add_address("near", "fd00:198:18::1".parse().unwrap(), 64).unwrap();
    assert!(matches!(Setting::new("mtu", "1279"), Err(TuneError::BadValue { .. })));
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1280")]).unwrap();
    tuner.restore().unwrap();
    let known =
        host.namespace().run(|| fs::read_to_string("/proc/thread-self/net/if_inet6")).unwrap();
    assert!(known.unwrap().contains("fd000198001800000000000000000001"));
}

/// The kernel lowers what is above a device with it, overwrites the MTU of IPv6 of each, and raises
/// none of them again.
#[test]
fn devices_above_and_ipv6_get_their_mtu_back() {
    if skip_without_namespaces("real::devices_above_and_ipv6_get_their_mtu_back") {
        return;
    }
    let host = Host::new("above");
    let links = host.links();
    // The kernel also overwrites the MTU of IPv6 when a device goes up, or its carrier changes: these stay
    // down. The name of one has a dot, as names of VLANs have.
    links.add_veth("idle", "far-idle", &host.namespace()).unwrap();
    links.add_macvlan("idle.5", "idle").unwrap();
    links.add_macvlan("small", "idle").unwrap();
    links.set_mtu("small", 1300).unwrap();
    let namespace = host.namespace();
    let mtu = |device: &str| links.get(device).unwrap().mtu.unwrap();
    let has_ipv6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
    let ipv6 = |device: &str, set: Option<&str>| {
        let name = format!("net/ipv6/conf/{device}/mtu");
        namespace
            .run(|| {
                if let Some(value) = set {
                    sysctl::write(&name, value).unwrap();
                }
                sysctl::read(&name).unwrap()
            })
            .unwrap()
    };
    if has_ipv6 {
        ipv6("idle", Some("1450"));
        ipv6("idle.5", Some("1480"));
    }
    let idle = host.target("idle");
    let mut tuner = host.tuner();
    tuner.apply(&idle, &[set("mtu", "1400")]).unwrap();
    assert_eq!((mtu("idle"), mtu("idle.5"), mtu("small")), (1400, 1400, 1300));
    assert_eq!(host.journal().1["entries"].as_array().unwrap().len(), 2, "without `small`");
    assert_complete(&tuner.restore().unwrap());
    assert_eq!((mtu("idle"), mtu("idle.5"), mtu("small")), (1500, 1500, 1300));
    if has_ipv6 {
        assert_eq!((ipv6("idle", None).as_str(), ipv6("idle.5", None).as_str()), ("1450", "1480"));
    }
    // Also when a later setting is refused.
    tuner.apply(&idle, &[set("mtu", "1400"), set("tcp_rmem", "0 0 0")]).unwrap_err();
    assert_eq!((mtu("idle"), mtu("idle.5")), (1500, 1500));
    // What somebody else sets meanwhile is left.
    tuner.apply(&idle, &[set("mtu", "1400")]).unwrap();
    links.set_mtu("idle.5", 1350).unwrap();
    let restored = tuner.restore().unwrap();
    let left = Outcome::ChangedByOthers { current: "1350".to_owned() };
    let outcomes: Vec<_> = restored.entries.iter().map(|entry| &entry.outcome).collect();
    assert_eq!(outcomes, [&left, &Outcome::Restored]);
    assert_eq!((mtu("idle"), mtu("idle.5")), (1500, 1350));
}

#[test]
fn a_device_is_restored_under_its_new_name() {
    if skip_without_namespaces("real::a_device_is_restored_under_its_new_name") {
        return;
    }
    let host = Host::new("renamed");
    let links = host.links();
    // Older kernels rename only what is down.
    links.add_veth("idle", "far-idle", &host.namespace()).unwrap();
    let mut tuner = host.tuner();
    tuner.apply(&host.target("idle"), &[set("mtu", "1400")]).unwrap();
    links.rename("idle", "renamed").unwrap();
    let restored = tuner.restore().unwrap();
    assert_complete(&restored);
    assert_eq!(links.get("renamed").unwrap().mtu, Some(1500));
}
