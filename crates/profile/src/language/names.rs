//! Names that the language knows although nothing executes them yet, and the search for the name
//! that was probably meant.

use crate::{flowops, protocols};

/// Protocols of uperf, and of issues to come, that only `check` accepts.
const UNSUPPORTED_PROTOCOLS: [&str; 2] = ["rds", "tcp_zc"];

/// A written name that is longer than any of the language's can be, mistyped.
const LONGEST_NAME: usize = 64;

/// What uperf calls `tls`.
pub(super) const UPERF_TLS: &str = "ssl";

const UNSUPPORTED_FLOWOPS: [&str; 1] = [flowops::UNSUPPORTED_FILE];

/// Protocols that traffic can be sent by.
pub(super) fn built_protocols() -> Vec<&'static str> {
    protocols::ALL.iter().map(|protocol| protocol.name()).collect()
}

pub(super) fn protocol_names() -> impl Iterator<Item = &'static str> {
    built_protocols().into_iter().chain(UNSUPPORTED_PROTOCOLS)
}

pub(super) fn flowop_names() -> impl Iterator<Item = &'static str> {
    flowops::ALL.iter().map(|flowop| flowop.name()).chain(UNSUPPORTED_FLOWOPS)
}

/// The name most like `written`, if one is like it at all.
pub(super) fn nearest(
    written: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    // What is longer is like none, and comparing takes memory by its length.
    if written.len() > LONGEST_NAME {
        return None;
    }
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
    fn what_is_built_is_not_listed_as_unbuilt() {
        for name in UNSUPPORTED_PROTOCOLS {
            assert!(protocols::find(name).is_none(), "{name}");
        }
        for name in UNSUPPORTED_FLOWOPS {
            assert!(flowops::find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest("raed", flowop_names()), Some("read"));
        assert_eq!(nearest("Disconect", flowop_names()), Some("disconnect"));
        assert_eq!(nearest("teleport", flowop_names()), None);
        assert_eq!(nearest("sctpp", protocol_names()), Some("sctp"));
        assert_eq!(nearest(&"x".repeat(1 << 30), protocol_names()), None);
    }
}
