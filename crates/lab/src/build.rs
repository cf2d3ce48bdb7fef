//! Creating and removing namespaces, wires and the switch.

use std::net::IpAddr;
use std::time::Duration;

use wirecost_linux::link::Links;
use wirecost_linux::netns::{self, NetNs, NetNsError};
use wirecost_linux::{rps, sysctl};

use crate::addresses::{IPV4_PREFIX, IPV6_PREFIX};
use crate::host::DEVICE;
use crate::netem;
use crate::rate;
use crate::state::State;
use crate::{LabError, LabHost};

/// Name of the switch among the hosts.
pub(crate) const SWITCH: &str = "switch";
const BRIDGE: &str = "br0";

/// The kernel handles a new device within milliseconds, or a second on a loaded machine.
pub(crate) const CARRIER: Duration = Duration::from_secs(10);

/// MTU of the switch's ports: the largest of a veth device, so that packets of every MTU of a host pass.
/// <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c> (`max_mtu`)
pub(crate) const PORT_MTU: u32 = 65_535;

/// Frames of a host that wait for the emulator: 64 KiB each at most.
const EMULATED_QUEUE: u32 = 4_000;

/// Settings of every namespace. All others, such as buffers and congestion control, are the kernel's
/// defaults, so that a lab measures what a host would.
const SETTINGS: &[(&str, &str)] = &[
    // A test may open hundreds of thousands of connections to one port. Without these two settings
    // they run into TIME_WAIT at 28,000. Ports of profiles and tools (5001, 5201, 8080, 12865,
    // 15000...) are below the range, so that no connection takes a port before its listener does. A
    // listener without a port gets a free one of the range. uperf's default ports within the range
    // are reserved.
    ("net.ipv4.ip_local_port_range", "16384 65535"),
    ("net.ipv4.ip_local_reserved_ports", "20000-20099"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    // A connection must not start with metrics of an earlier one to the same address: in a
    // persistent lab, one run would influence the next.
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// Settings of every namespace if the kernel has IPv6. Addresses are usable immediately, because the
/// lab's addresses are unique. A machine that disables IPv6 for itself still has it here.
const IPV6_SETTINGS: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    // There is no router to solicit.
    ("net.ipv6.conf.all.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
];

/// Settings of the switch, if the machine has them. The switch has no addresses, so it sends nothing of
/// its own. Bridged packets do not pass netfilter.
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

/// Existing namespaces that can only belong to this lab.
pub(crate) fn namespaces_of(lab: &str) -> Result<Vec<String>, LabError> {
    let names = netns::list().map_err(|source| LabError::List { source })?;
    Ok(names.into_iter().filter(|name| lab_of(name) == Some(lab)).collect())
}

/// The lab that a namespace belongs to.
pub(crate) fn lab_of(namespace: &str) -> Option<&str> {
    let (lab, host) = namespace.strip_prefix("wirecost-")?.rsplit_once('-')?;
    let number = host.strip_prefix('h').map(str::as_bytes).unwrap_or_default();
    let is_host = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    (is_host || host == SWITCH).then_some(lab)
}

/// Creates what was planned, and records in `state` what the kernel granted.
///
/// `emulate` starts the emulator of a lab with emulated links, which creates the hosts' devices.
pub(crate) fn build(
    state: &mut State,
    emulate: impl FnOnce(&mut State) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let made = state
        .hosts
        .iter()
        .map(|host| {
            let ipv6 = if host.ipv6.is_some() { IPV6_SETTINGS } else { &[] };
            CreatedNamespace::new(&host.namespace, SETTINGS.iter().chain(ipv6))
        })
        .collect::<Result<Vec<_>, _>>()?;
    match &state.switch {
        Some(switch) => {
            let switch = CreatedNamespace::new(switch, supported_settings(SWITCH_SETTINGS))?;
            match &state.netem {
                Some(netem) => netem::join(&switch, netem, &state.hosts, &made)?,
                None => join_by_switch(&switch, state, &made)?,
            }
            if let Some(rate) = state.rate_bits_per_second {
                limit(&switch, state, &made, rate)?;
            }
        }
        None if state.emulator.is_some() => {
            emulate(state)?;
            // A host that sends faster than the emulator reads waits here, as at a device that is busy.
            for made in &made {
                made.links.set_tx_queue_len(DEVICE, EMULATED_QUEUE)?;
            }
        }
        None => join_by_wire(&made)?,
    }
    for (host, made) in state.hosts.iter_mut().zip(&made) {
        configure(host, made)?;
    }
    // Both ends of every wire are up only from here on.
    for made in &made {
        made.links.wait_until_running(DEVICE, CARRIER)?;
    }
    Ok(())
}

/// Removes devices, then namespaces. Continues after a failure and returns the first.
pub(crate) fn remove(lab: &str, namespaces: &[String]) -> Result<(), LabError> {
    let mut outcome = Ok(());
    for name in namespaces {
        // A process in the namespace keeps the namespace, and would keep the wire. A missing device
        // was never created, or was removed with its other end.
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

/// A created namespace, and access to its devices.
pub(crate) struct CreatedNamespace {
    pub(crate) namespace: NetNs,
    pub(crate) links: Links,
}

impl CreatedNamespace {
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

/// Settings that this kernel has. A namespace has only settings that the machine has.
fn supported_settings<'a>(
    settings: &'a [(&'static str, &'static str)],
) -> impl Iterator<Item = &'a (&'static str, &'static str)> {
    settings.iter().filter(|(setting, _)| sysctl::read(setting).is_ok())
}

fn join_by_wire(made: &[CreatedNamespace]) -> Result<(), LabError> {
    if let [first, second] = made {
        first.links.add_veth(DEVICE, DEVICE, &second.namespace)?;
    }
    Ok(())
}

/// A port of the switch has the name of its host. Its work runs on the sender's CPU, up to the
/// receiver's device, where RPS steers it.
fn join_by_switch(
    switch: &CreatedNamespace,
    state: &State,
    made: &[CreatedNamespace],
) -> Result<(), LabError> {
    switch.links.add_bridge(BRIDGE)?;
    switch.links.up(BRIDGE)?;
    for (host, made) in state.hosts.iter().zip(made) {
        switch.links.add_veth(&host.name, DEVICE, &made.namespace)?;
        switch.links.set_mtu(&host.name, PORT_MTU)?;
        switch.links.attach(&host.name, BRIDGE)?;
        switch.links.up(&host.name)?;
    }
    Ok(())
}

/// Limits the rate of every link at the switch's port towards the host. A host's own device has no
/// limit: it would throttle its sender (TSQ), where a link drops.
fn limit(
    switch: &CreatedNamespace,
    state: &State,
    made: &[CreatedNamespace],
    rate: u64,
) -> Result<(), LabError> {
    for (host, made) in state.hosts.iter().zip(made) {
        switch.links.limit_rate(&host.name, rate::limit(rate))?;
        made.links.announce_rate(DEVICE, rate)?;
    }
    Ok(())
}

/// Addresses and steering.
fn configure(host: &mut LabHost, made: &CreatedNamespace) -> Result<(), LabError> {
    made.links.add_address(DEVICE, IpAddr::V4(host.ipv4), IPV4_PREFIX)?;
    if let Some(ipv6) = host.ipv6 {
        made.links.add_address(DEVICE, IpAddr::V6(ipv6), IPV6_PREFIX)?;
    }
    // Queues have CPUs already.
    if host.owns_cpus && host.receive_cpus.is_empty() {
        host.receive_cpus = rps::steer(&made.namespace, DEVICE, &host.cpus)?;
    }
    made.links.up(DEVICE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_is_derived_from_the_name_of_its_namespace() {
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
