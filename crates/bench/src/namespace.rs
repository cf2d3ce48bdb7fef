//! A network namespace in which nobody else is.

use std::net::{IpAddr, Ipv4Addr};

use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsGuard};

/// Where only loopback has an address, getaddrinfo(3) with AI_ADDRCONFIG resolves none, not even a
/// numeric one of loopback, and netperf asks it so. <https://www.rfc-editor.org/rfc/rfc2544#appendix-C>
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));

/// Moves this thread, and all that it starts, into a new network namespace.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn enter_own_namespace() -> Result<(), String> {
    let name = format!("wirecost-bench-{}", std::process::id());
    let told = |error: &dyn std::error::Error| error.to_string();
    let namespace = NetNs::create(&name).map_err(|error| told(&error))?;
    let links = Links::of(&namespace).map_err(|error| told(&error))?;
    links.up("lo").map_err(|error| told(&error))?;
    links.add_address("lo", ADDRESS, 32).map_err(|error| told(&error))?;
    namespace.enter_current_thread().map_err(|error| told(&error))?;
    // It lives while somebody is in it; the name is not needed any more.
    drop(NetNsGuard::new(namespace));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use wirecost_linux::privilege::skip_without_namespaces;

    use super::*;

    #[test]
    fn a_numeric_address_is_resolved_as_netperf_does() {
        if skip_without_namespaces("namespace::a_numeric_address_is_resolved_as_netperf_does") {
            return;
        }
        let there = std::thread::spawn(|| {
            enter_own_namespace().unwrap();
            Command::new("getent").args(["ahostsv4", "127.0.0.1"]).output().unwrap()
        });
        let there = there.join().unwrap();
        assert!(there.status.success(), "{there:?}");
    }
}
