//! Making and removing namespaces, wires and the switch.

use std::net::IpAddr;
use std::time::Duration;

use wirecost_linux::link::Links;
use wirecost_linux::netns::{self, NetNs, NetNsError};
use wirecost_linux::{rps, sysctl};

use crate::addresses::{IPV4_PREFIX, IPV6_PREFIX};
use crate::host::DEVICE;
use crate::rate;
use crate::state::State;
use crate::{LabError, LabHost};

/// Name of the switch among the hosts.
pub(crate) const SWITCH: &str = "switch";
const BRIDGE: &str = "br0";

/// The kernel sees to a new device within milliseconds, or a second on a machine under load.
const CARRIER: Duration = Duration::from_secs(10);

/// Settings of every namespace. Buffers, congestion control and all else are the kernel's own, so
/// that a lab measures what a host would.
const SETTINGS: &[(&str, &str)] = &[
    // A test may open hundreds of thousands of connections one after another to one port; without
    // these two they run into TIME_WAIT at 28,000. Ports named in profiles and by tools (5001, 5201,
    // 8080, 12865, 15000...) lie below the range, so that no connection takes a port before the
    // listener that asks for it; a listener that asks for none gets a free one of the range. Those
    // above that uperf names by default are kept out.
    ("net.ipv4.ip_local_port_range", "16384 65535"),
    ("net.ipv4.ip_local_reserved_ports", "20000-20099"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    // A connection must not start with what an earlier one to the same address learnt: in a lab
    // that stays, one run would change the next.
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// Settings of every namespace where the kernel has IPv6. Addresses are usable at once, as the
/// lab's own are known to be unique; a machine that switches IPv6 off for itself has it here.
const IPV6_SETTINGS: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    // No router is there to be asked.
    ("net.ipv6.conf.all.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
];

/// Settings of the switch where the machine has them. It has no addresses, so it says nothing by
/// itself; and where bridged packets are given to netfilter, they are not given to it here.
const SWITCH_SETTINGS: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
    ("net.bridge.bridge-nf-call-arptables", "0"),
    ("net.bridge.bridge-nf-call-iptables", "0"),
    ("net.bridge.bridge-nf-call-ip6tables", "0"),
];

/// Name of the namespace of a host, or of the switch.
pub(crate) fn namespace_of(lab: &str, host: &str) -> String {
    format!("wirecost-{lab}-{host}")
}

/// Namespaces that are there and can only be of the lab of this name.
pub(crate) fn namespaces_of(lab: &str) -> Result<Vec<String>, LabError> {
    let names = netns::list().map_err(|source| LabError::List { source })?;
    Ok(names.into_iter().filter(|name| lab_of(name) == Some(lab)).collect())
}

/// Lab to which a namespace of this name belongs.
pub(crate) fn lab_of(namespace: &str) -> Option<&str> {
    let (lab, host) = namespace.strip_prefix("wirecost-")?.rsplit_once('-')?;
    let number = host.strip_prefix('h').map(str::as_bytes).unwrap_or_default();
    let is_host = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    (is_host || host == SWITCH).then_some(lab)
}

/// Makes what was planned, and notes in it what the kernel granted.
pub(crate) fn build(state: &mut State) -> Result<(), LabError> {
    let made = state
        .hosts
        .iter()
        .map(|host| {
            let ipv6 = if host.ipv6.is_some() { IPV6_SETTINGS } else { &[] };
            Made::new(&host.namespace, SETTINGS.iter().chain(ipv6))
        })
        .collect::<Result<Vec<_>, _>>()?;
    match &state.switch {
        Some(switch) => {
            let switch = Made::new(switch, offered(SWITCH_SETTINGS))?;
            join_by_switch(&switch, state, &made)?;
            if let Some(rate) = state.rate_bits_per_second {
                limit(&switch, state, &made, rate)?;
            }
        }
        None => join_by_wire(&made)?,
    }
    for (host, made) in state.hosts.iter_mut().zip(&made) {
        configure(host, made)?;
    }
    // Only now both ends of every wire are on.
    for made in &made {
        made.links.wait_until_running(DEVICE, CARRIER)?;
    }
    Ok(())
}

/// Removes devices, then namespaces. All that can go goes; the first failure is told.
pub(crate) fn remove(lab: &str, namespaces: &[String]) -> Result<(), LabError> {
    let mut outcome = Ok(());
    for name in namespaces {
        // A process that is still in the namespace keeps it, and would keep the wire. A device
        // that is not there was never made, or went with its other end.
        let _ = NetNs::open(name)
            .map_err(LabError::from)
            .and_then(|namespace| Ok(Links::of(&namespace)?.delete(DEVICE)?));
        match netns::delete(name) {
            Ok(()) | Err(NetNsError::NotFound { .. }) => {}
            Err(error) => outcome = outcome.and(Err(error.into())),
        }
    }
    debug_assert!(namespaces.iter().all(|name| lab_of(name) == Some(lab)));
    outcome
}

/// A namespace that was made, and access to its devices.
struct Made {
    namespace: NetNs,
    links: Links,
}

impl Made {
    fn new<'a>(
        name: &str,
        settings: impl Iterator<Item = &'a (&'static str, &'static str)> + Send,
    ) -> Result<Self, LabError> {
        let namespace = NetNs::create(name)?;
        namespace.run(|| {
            for (setting, value) in settings {
                sysctl::write(setting, value).map_err(|source| LabError::Setting {
                    setting,
                    namespace: name.to_owned(),
                    source,
                })?;
            }
            Ok::<(), LabError>(())
        })??;
        let links = Links::of(&namespace)?;
        links.up("lo")?;
        Ok(Self { namespace, links })
    }
}

/// Settings that this kernel has. What a namespace has, the machine has.
fn offered<'a>(
    settings: &'a [(&'static str, &'static str)],
) -> impl Iterator<Item = &'a (&'static str, &'static str)> {
    settings.iter().filter(|(setting, _)| sysctl::read(setting).is_ok())
}

fn join_by_wire(made: &[Made]) -> Result<(), LabError> {
    if let [first, second] = made {
        first.links.add_veth(DEVICE, DEVICE, &second.namespace)?;
    }
    Ok(())
}

/// A port of the switch has the name of its host. Its work is done on the sender's CPU, up to the
/// receiver's device, where it is steered.
fn join_by_switch(switch: &Made, state: &State, made: &[Made]) -> Result<(), LabError> {
    switch.links.add_bridge(BRIDGE)?;
    switch.links.up(BRIDGE)?;
    for (host, made) in state.hosts.iter().zip(made) {
        switch.links.add_veth(&host.name, DEVICE, &made.namespace)?;
        switch.links.attach(&host.name, BRIDGE)?;
        switch.links.up(&host.name)?;
    }
    Ok(())
}

/// Gives every link a rate, each way: what is sent to a host leaves the switch no faster. A host's own
/// device has no limit, as it would hold its sender back (TSQ) where a link drops.
fn limit(switch: &Made, state: &State, made: &[Made], rate: u64) -> Result<(), LabError> {
    for (host, made) in state.hosts.iter().zip(made) {
        switch.links.limit_rate(&host.name, rate::limit(rate))?;
        made.links.announce_rate(DEVICE, rate)?;
    }
    Ok(())
}

/// Addresses and steering.
fn configure(host: &mut LabHost, made: &Made) -> Result<(), LabError> {
    made.links.add_address(DEVICE, IpAddr::V4(host.ipv4), IPV4_PREFIX)?;
    if let Some(ipv6) = host.ipv6 {
        made.links.add_address(DEVICE, IpAddr::V6(ipv6), IPV6_PREFIX)?;
    }
    if host.owns_cpus {
        host.receive_cpus = rps::steer(&made.namespace, DEVICE, &host.cpus)?;
    }
    made.links.up(DEVICE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_its_lab() {
        assert_eq!(lab_of("wirecost-lab-h1"), Some("lab"));
        assert_eq!(lab_of("wirecost-lab-h12"), Some("lab"));
        assert_eq!(lab_of("wirecost-lab-switch"), Some("lab"));
        // Of the lab `lab-h1`, not of `lab`.
        assert_eq!(lab_of("wirecost-lab-h1-h2"), Some("lab-h1"));
        for foreign in ["lab-h1", "wirecost-lab", "wirecost-lab-h", "wirecost-lab-h1x", "blue"] {
            assert_eq!(lab_of(foreign), None, "{foreign}");
        }
        assert_eq!(lab_of(&namespace_of("a-b", "h3")), Some("a-b"));
    }
}
