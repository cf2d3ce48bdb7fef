//! Names that the language knows although nothing executes them yet, and the search for the name
//! that was probably meant.

use crate::flowops;

/// Protocols that traffic can be sent by.
pub(super) const BUILT_PROTOCOLS: [&str; 3] = ["tcp", "udp", "unix"];

/// Protocols of uperf, and of issues to come, that only `check` accepts.
const UNBUILT_PROTOCOLS: [&str; 7] = ["mptcp", "rds", "sctp", "ssl", "tcp_zc", "tls", "vsock"];

const UNBUILT_FLOWOPS: [&str; 1] = ["sendfilev"];

pub(super) fn protocols() -> impl Iterator<Item = &'static str> {
    BUILT_PROTOCOLS.into_iter().chain(UNBUILT_PROTOCOLS)
}

pub(super) fn flowop_names() -> impl Iterator<Item = &'static str> {
    flowops::ALL
        .iter()
        .map(|flowop| flowop.name())
        .chain(UNBUILT_FLOWOPS)
}

/// The name most like `written`, if one is like it at all.
pub(super) fn nearest(
    written: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let written = written.to_ascii_lowercase();
    names
        .map(|name| (strsim::damerau_levenshtein(&written, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest("raed", flowop_names()), Some("read"));
        assert_eq!(nearest("Disconect", flowop_names()), Some("disconnect"));
        assert_eq!(nearest("teleport", flowop_names()), None);
        assert_eq!(nearest("sctpp", protocols()), Some("sctp"));
    }
}
