//! Ctrl-C: whoever waits for a program ends that wait, and with it the program and all that it started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Has signals that end a program be noticed from now on. A second one ends it at once.
///
/// # Errors
/// Those of sigaction(2).
pub(crate) fn watch() -> Result<(), String> {
    let interrupted = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let registered =
            signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
                .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()));
        registered.map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|interrupted| interrupted.load(Ordering::Relaxed))
}

/// # Errors
/// The user wants an end.
pub(crate) fn check_interrupted() -> Result<(), String> {
    if is_interrupted() { Err("interrupted".to_owned()) } else { Ok(()) }
}
