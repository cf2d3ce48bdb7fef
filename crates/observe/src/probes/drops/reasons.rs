//! What the running kernel calls its reasons to drop a packet, by its type information.

use std::collections::BTreeMap;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;

/// Number of a reason's subsystem:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/net/dropreason.h>
const SUBSYSTEM_SHIFT: u32 = 16;

/// Enumerations of the reasons of subsystems, where they are built in.
const OF_SUBSYSTEMS: [&str; 2] = ["mac80211_drop_reason", "ovs_drop_reason"];

#[derive(Debug, Default, PartialEq)]
pub(super) struct Reasons {
    names: BTreeMap<u32, String>,
    subsystems: BTreeMap<u32, String>,
}

impl Reasons {
    /// Of the running kernel; empty where it has no type information.
    pub(super) fn load() -> Self {
        let Ok(btf) = Btf::from_vmlinux() else { return Self::default() };
        let mut reasons = Self::default();
        for (value, name) in members(&btf, "skb_drop_reason") {
            // The others are no reasons: SKB_CONSUMED, and the mask.
            if let Some(name) = name.strip_prefix("SKB_DROP_REASON_") {
                reasons.names.entry(value).or_insert_with(|| name.to_owned());
            }
        }
        for (value, name) in members(&btf, "skb_drop_reason_subsys") {
            let name = name.trim_start_matches("SKB_DROP_REASON_SUBSYS_");
            reasons.subsystems.entry(value).or_insert_with(|| name.to_owned());
        }
        for list in OF_SUBSYSTEMS {
            reasons.names.extend(members(&btf, list));
        }
        reasons
    }

    pub(super) fn name(&self, reason: u32) -> String {
        if let Some(name) = self.names.get(&reason) {
            return name.clone();
        }
        let number = reason & ((1 << SUBSYSTEM_SHIFT) - 1);
        let subsystem = self.subsystems.get(&(reason >> SUBSYSTEM_SHIFT)).cloned();
        let subsystem = subsystem.unwrap_or_else(|| (reason >> SUBSYSTEM_SHIFT).to_string());
        format!("{subsystem}:{number}")
    }
}

fn members(btf: &Btf<'_>, name: &str) -> Vec<(u32, String)> {
    let Some(list) = btf.type_by_name::<Enum<'_>>(name) else { return Vec::new() };
    let members = list.iter().filter_map(|member| {
        let name = member.name?.to_string_lossy().into_owned();
        Some((u32::try_from(member.value).ok()?, name))
    });
    members.collect()
}

#[cfg(test)]
mod tests {
    use wirecost_linux::privilege;

    use super::*;

    #[test]
    fn what_has_no_name_has_its_subsystem_and_number() {
        let reasons = Reasons {
            names: BTreeMap::from([(3, "NO_SOCKET".to_owned())]),
            subsystems: BTreeMap::from([(0, "CORE".to_owned()), (2, "OPENVSWITCH".to_owned())]),
        };
        assert_eq!(reasons.name(3), "NO_SOCKET");
        assert_eq!(reasons.name(999), "CORE:999");
        assert_eq!(reasons.name(2 << 16 | 5), "OPENVSWITCH:5");
        assert_eq!(reasons.name(7 << 16 | 5), "7:5");
    }

    #[test]
    fn this_kernel_has_the_reasons_that_every_kernel_has() {
        if privilege::skip_without_tracing("this_kernel_has_the_reasons_that_every_kernel_has") {
            return;
        }
        let reasons = Reasons::load();
        let names: Vec<&str> = reasons.names.values().map(String::as_str).collect();
        for name in ["NOT_SPECIFIED", "NO_SOCKET", "SOCKET_RCVBUFF", "UDP_CSUM", "QDISC_DROP"] {
            assert!(names.contains(&name), "{names:?}");
        }
    }
}
