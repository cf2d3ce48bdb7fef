//! A network namespace in which nobody else is.

use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsGuard};

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
    namespace.enter_current_thread().map_err(|error| told(&error))?;
    // It lives while somebody is in it; the name is not needed any more.
    drop(NetNsGuard::new(namespace));
    Ok(())
}
