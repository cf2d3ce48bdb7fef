//! The command of the system that sets a tunable, for a person who wants to keep it.

use crate::setting::Setting;

/// What sets a tunable without this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetCommand {
    /// A sysctl, which a line of a file in /etc/sysctl.d sets at every boot.
    Sysctl { name: String, value: String },
    /// A command, whose effect lasts until the next boot.
    Shell(String),
}

/// Names of features for ethtool(8), where they differ from ours.
const FEATURES: [(&str, &str); 3] =
    [("tx-checksum", "tx"), ("rx-checksum", "rx"), ("rx-hashing", "rxhash")];

/// Options of ethtool(8) that set a group of tunables.
const GROUPS: [(&str, &str); 4] =
    [("rings.", "-G"), ("coalesce.", "-C"), ("pause.", "-A"), ("channels.", "-L")];

/// What sets it, on a device where it is a setting of one. `None` where no single command does: values of
/// single queues, settings of CPUs and of the PCI bus.
#[must_use]
pub fn set_command(setting: &Setting, device: Option<&str>) -> Option<SetCommand> {
    let (name, value) = (setting.name(), setting.value());
    if let Some(name) = setting.tunable().sysctl() {
        return Some(SetCommand::Sysctl { name, value: value.to_owned() });
    }
    // One for each queue or feature.
    if value.contains('=') {
        return None;
    }
    let device = device?;
    if let Some(feature) = name.strip_prefix("offload.") {
        let known = FEATURES.iter().find(|(ours, _)| *ours == feature);
        let feature = known.map_or(feature, |(_, theirs)| theirs);
        return Some(SetCommand::Shell(format!("ethtool -K {device} {feature} {value}")));
    }
    for (prefix, option) in GROUPS {
        if let Some(field) = name.strip_prefix(prefix) {
            return Some(SetCommand::Shell(format!("ethtool {option} {device} {field} {value}")));
        }
    }
    let number = match value {
        "on" => "1",
        "off" => "0",
        number => number,
    };
    let command = match name {
        "mtu" => format!("ip link set dev {device} mtu {value}"),
        "txqueuelen" => format!("ip link set dev {device} txqueuelen {value}"),
        "qdisc" => format!("tc qdisc replace dev {device} root {value}"),
        "threaded" | "napi_defer_hard_irqs" | "gro_flush_timeout" => {
            format!("echo {number} > /sys/class/net/{device}/{name}")
        }
        "rss.key" => format!("ethtool -X {device} hkey {value}"),
        "rss.table" => match value.strip_prefix("equal ") {
            Some(queues) => format!("ethtool -X {device} equal {queues}"),
            None => return None,
        },
        _ => return None,
    };
    Some(SetCommand::Shell(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, value: &str) -> Option<String> {
        let setting = Setting::new(name, value).unwrap();
        Some(match set_command(&setting, Some("eth0"))? {
            SetCommand::Sysctl { name, value } => format!("{name} = {value}"),
            SetCommand::Shell(command) => command,
        })
    }

    #[test]
    fn commands_are_those_of_the_system() {
        for (name, value, expected) in [
            ("tcp_rmem", "4096 131072 33554432", "net.ipv4.tcp_rmem = 4096 131072 33554432"),
            ("busy_poll", "50", "net.core.busy_poll = 50"),
            ("mtu", "9000", "ip link set dev eth0 mtu 9000"),
            ("txqueuelen", "10000", "ip link set dev eth0 txqueuelen 10000"),
            ("qdisc", "fq", "tc qdisc replace dev eth0 root fq"),
            ("offload.tso", "off", "ethtool -K eth0 tso off"),
            ("offload.tx-checksum", "off", "ethtool -K eth0 tx off"),
            ("rings.rx", "4096", "ethtool -G eth0 rx 4096"),
            ("coalesce.rx-usecs", "64", "ethtool -C eth0 rx-usecs 64"),
            ("pause.autoneg", "on", "ethtool -A eth0 autoneg on"),
            ("channels.combined", "4", "ethtool -L eth0 combined 4"),
            ("threaded", "on", "echo 1 > /sys/class/net/eth0/threaded"),
            ("gro_flush_timeout", "20000", "echo 20000 > /sys/class/net/eth0/gro_flush_timeout"),
            ("rss.table", "equal 4", "ethtool -X eth0 equal 4"),
        ] {
            assert_eq!(shown(name, value).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_no_single_command_sets_has_none() {
        assert_eq!(shown("rps_cpus", "0-3"), None);
        assert_eq!(shown("irq_affinity", "1"), None);
        let setting = Setting::new("mtu", "9000").unwrap();
        assert_eq!(set_command(&setting, None), None);
    }
}
