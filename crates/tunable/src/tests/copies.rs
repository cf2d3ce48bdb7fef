//! Settings of the machine, on a copy of its files.

use std::fs;
use std::path::Path;

use super::{BUS, Host, set};
use crate::{Target, TuneError};
use wirecost_linux::privilege::skip_without_namespaces;

/// Two CPUs with frequencies and idle states, a PCI Express device with two interrupts, and sysctls.
pub(super) fn write_machine(root: &Path) {
    let write = |path: &str, text: &[u8]| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    const CPU: &str = "sys/devices/system/cpu";
    for (cpu, governor) in ["performance", "schedutil"].iter().enumerate() {
        let policy = format!("{CPU}/cpufreq/policy{cpu}");
        write(&format!("{policy}/scaling_governor"), format!("{governor}\n").as_bytes());
        write(&format!("{policy}/scaling_available_governors"), b"performance schedutil\n");
        for (state, name) in ["POLL", "C1", "C1E", "C6"].iter().enumerate() {
            let path = format!("{CPU}/cpu{cpu}/cpuidle/state{state}");
            write(&format!("{path}/name"), format!("{name}\n").as_bytes());
            // The second CPU enters no state between the first and the last.
            let disabled = cpu == 1 && state == 2;
            write(&format!("{path}/disable"), format!("{}\n", u8::from(disabled)).as_bytes());
        }
    }
    write(&format!("{CPU}/cpufreq/boost"), b"1\n");
    for irq in [40, 41] {
        write(&format!("sys/bus/pci/devices/{BUS}/msi_irqs/{irq}"), b"msix\n");
        write(&format!("proc/irq/{irq}/smp_affinity_list"), format!("{}\n", irq - 40).as_bytes());
    }
    write(&format!("sys/bus/pci/devices/{BUS}/config"), &pci_configuration());
    for (name, value) in [
        ("core/rmem_max", "212992"),
        ("core/wmem_max", "212992"),
        ("core/rmem_default", "212992"),
        ("core/wmem_default", "212992"),
        ("core/netdev_max_backlog", "1000"),
        ("core/netdev_budget", "300"),
        ("core/netdev_budget_usecs", "2000"),
        ("core/dev_weight", "64"),
        ("core/gro_normal_batch", "8"),
        ("core/skb_defer_max", "64"),
        ("core/busy_poll", "0"),
        ("core/busy_read", "0"),
        ("core/rps_sock_flow_entries", "0"),
        ("core/default_qdisc", "fq_codel"),
        ("ipv4/tcp_mem", "22677\t30236\t45354"),
        ("ipv4/udp_mem", "45357\t60477\t90714"),
    ] {
        write(&format!("proc/sys/net/{name}"), format!("{value}\n").as_bytes());
    }
}

/// Device Control, at 0x48, asks for 512 bytes at most and has other bits set.
fn pci_configuration() -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[0x06] = 0x10;
    bytes[0x34] = 0x40;
    bytes[0x40] = 0x10;
    bytes[0x48..0x4a].copy_from_slice(&0x2810u16.to_le_bytes());
    bytes
}

fn copy(host: &Host) -> Target {
    host.targets().pop().unwrap()
}

#[test]
fn the_governor_is_set_for_all_cpus_and_each_gets_its_own_back() {
    if skip_without_namespaces("copies::the_governor_is_set_for_all_cpus") {
        return;
    }
    let host = Host::new("governor");
    let of = |cpu: u32| {
        let path = format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor");
        fs::read_to_string(host.machine().join(path)).unwrap().trim().to_owned()
    };
    let mut tuner = host.tuner();
    let applied = tuner.apply(&copy(&host), &[set("governor", "schedutil")]).unwrap();
    assert_eq!(applied[0].previous, "policy0=performance policy1=schedutil");
    assert_eq!((of(0), of(1)), ("schedutil".to_owned(), "schedutil".to_owned()));
    assert!(tuner.restore().unwrap().is_complete());
    assert_eq!((of(0), of(1)), ("performance".to_owned(), "schedutil".to_owned()));
    let error = tuner.apply(&copy(&host), &[set("governor", "ondemand")]).unwrap_err();
    let cause = crate::error::with_causes(&error);
    assert!(cause.contains("there are performance schedutil"), "{cause}");
}

#[test]
fn turbo_is_switched_by_the_file_of_either_driver() {
    if skip_without_namespaces("copies::turbo_is_switched_by_the_file_of_either_driver") {
        return;
    }
    let host = Host::new("turbo");
    let cpu = host.machine().join("sys/devices/system/cpu");
    let mut tuner = host.tuner();
    tuner.apply(&copy(&host), &[set("turbo", "off")]).unwrap();
    assert_eq!(fs::read_to_string(cpu.join("cpufreq/boost")).unwrap(), "0");
    tuner.restore().unwrap();
    assert_eq!(fs::read_to_string(cpu.join("cpufreq/boost")).unwrap(), "1");
    fs::create_dir(cpu.join("intel_pstate")).unwrap();
    let no_turbo = cpu.join("intel_pstate/no_turbo");
    fs::write(&no_turbo, "0\n").unwrap();
    tuner.apply(&copy(&host), &[set("turbo", "off")]).unwrap();
    assert_eq!(fs::read_to_string(&no_turbo).unwrap(), "1");
    tuner.restore().unwrap();
    assert_eq!(fs::read_to_string(&no_turbo).unwrap(), "0");
}

#[test]
fn deeper_idle_states_are_disabled_and_enabled_as_they_were() {
    if skip_without_namespaces("copies::deeper_idle_states_are_disabled") {
        return;
    }
    let host = Host::new("idle");
    let disabled = |cpu: u32| -> String {
        let of = |state| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable");
            fs::read_to_string(host.machine().join(path)).unwrap().trim().to_owned()
        };
        (0..4).map(of).collect()
    };
    let mut tuner = host.tuner();
    let applied = tuner.apply(&copy(&host), &[set("cstate_limit", "C1")]).unwrap();
    assert_eq!(applied[0].previous, "cpu0=unlimited cpu1=states:0010");
    assert_eq!((applied[0].effective.as_str(), applied[0].is_rounded()), ("C1", false));
    assert_eq!((disabled(0), disabled(1)), ("0011".to_owned(), "0011".to_owned()));
    tuner.apply(&copy(&host), &[set("cstate_limit", "unlimited")]).unwrap();
    assert_eq!((disabled(0), disabled(1)), ("0000".to_owned(), "0000".to_owned()));
    tuner.restore().unwrap();
    assert_eq!((disabled(0), disabled(1)), ("0000".to_owned(), "0010".to_owned()));
    let error = tuner.apply(&copy(&host), &[set("cstate_limit", "C9")]).unwrap_err();
    assert!(crate::error::with_causes(&error).contains("it has POLL C1 C1E C6"), "{error:?}");
}

#[test]
fn interrupts_of_a_device_get_their_own_cpus_back() {
    if skip_without_namespaces("copies::interrupts_of_a_device_get_their_own_cpus_back") {
        return;
    }
    let host = Host::new("irq");
    let of = |irq: u32| {
        fs::read_to_string(host.machine().join(format!("proc/irq/{irq}/smp_affinity_list")))
            .unwrap()
    };
    let mut tuner = host.tuner();
    let applied = tuner.apply(&copy(&host), &[set("irq_affinity", "0-1")]).unwrap();
    assert_eq!(applied[0].previous, "40=0 41=1");
    assert_eq!((of(40), of(41)), ("0-1".to_owned(), "0-1".to_owned()));
    tuner.restore().unwrap();
    assert_eq!((of(40), of(41)), ("0".to_owned(), "1".to_owned()));
}

#[test]
fn the_read_request_of_pci_is_changed_only_where_that_is_allowed() {
    if skip_without_namespaces("copies::the_read_request_of_pci") {
        return;
    }
    let host = Host::new("pci");
    let path = host.machine().join(format!("sys/bus/pci/devices/{BUS}/config"));
    let not_allowed = Target::of(host.namespace()).unwrap().below(&host.machine()).at_bus(BUS);
    let mut tuner = host.tuner();
    let setting = [set("pci.max-read-request", "4096")];
    let error = tuner.apply(&not_allowed, &setting).unwrap_err();
    assert!(matches!(error, TuneError::Refused { .. }));
    let remedy = error.remedy().unwrap();
    assert!(remedy.contains("--allow-pci") && remedy.contains("loopback"), "{remedy}");
    assert_eq!(fs::read(&path).unwrap(), pci_configuration());
    let applied = tuner.apply(&copy(&host), &setting).unwrap();
    assert_eq!((applied[0].previous.as_str(), applied[0].effective.as_str()), ("512", "4096"));
    let mut expected = pci_configuration();
    expected[0x48..0x4a].copy_from_slice(&0x5810u16.to_le_bytes());
    assert_eq!(fs::read(&path).unwrap(), expected, "only these bits change");
    tuner.restore().unwrap();
    assert_eq!(fs::read(&path).unwrap(), pci_configuration());
}

#[test]
fn a_machine_without_the_files_is_told_so() {
    if skip_without_namespaces("copies::a_machine_without_the_files_is_told_so") {
        return;
    }
    let host = Host::new("no-files");
    fs::remove_dir_all(host.machine()).unwrap();
    let mut tuner = host.tuner();
    for (name, value) in [
        ("governor", "performance"),
        ("turbo", "on"),
        ("cstate_limit", "C1"),
        ("irq_affinity", "0"),
        ("pci.max-read-request", "128"),
    ] {
        let error = tuner.apply(&copy(&host), &[set(name, value)]).unwrap_err();
        assert!(matches!(error, TuneError::Refused { .. }), "{error}");
    }
    assert!(host.journals().is_empty());
    assert!(!host.machine().exists());
}
