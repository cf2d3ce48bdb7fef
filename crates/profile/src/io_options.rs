//! Which protocols an I/O option has an effect on.

use crate::protocols::Protocol;

/// Datagrams that the kernel cuts one message into at most (UDP_MAX_SEGMENTS, 64 before Linux 6.9).
/// <https://elixir.bootlin.com/linux/v6.8/source/include/linux/udp.h#L103>
pub const MOST_SEGMENTS: u64 = 64;
/// Messages of one call at most (UIO_MAXIOV).
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/uio.h#L46>
pub const MOST_MESSAGES: u64 = 1024;

/// Protocols that an option has an effect on; none where it is not one of these.
pub fn protocols_of(option: &str) -> Option<&'static [&'static str]> {
    Some(match option {
        "zerocopy" | "tcp_cork" | "discard" | "notsent_lowat" => &["tcp"],
        "splice" | "sink" | "sink_size" | "o_direct" => &["tcp", "unix"],
        "gso" | "gro" | "batch" => &["udp"],
        "busy_poll" => &["tcp", "udp"],
        _ => return None,
    })
}

/// Whether an option has an effect on connections of this protocol.
pub fn fits(option: &str, protocol: Option<&dyn Protocol>) -> bool {
    let of = protocols_of(option).unwrap_or_default();
    protocol.is_some_and(|protocol| of.contains(&protocol.name()))
}
