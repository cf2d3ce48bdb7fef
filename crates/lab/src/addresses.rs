//! Addresses of hosts. Labs are isolated, so all use the same addresses: those that RFC 2544 reserves
//! for benchmarks (198.18.0.0/15), and unique local IPv6 addresses (RFC 4193) of the same pattern.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Fits the last byte of an address, and is far more than a machine can run.
pub const MAX_HOSTS: usize = 250;

pub(crate) const IPV4_PREFIX: u8 = 24;
pub(crate) const IPV6_PREFIX: u8 = 64;

/// Address of a host, the first being number 1.
pub(crate) fn ipv4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, number)
}

/// Address of a host, the first being number 1.
pub(crate) fn ipv6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 0, u16::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_documented_pattern() {
        assert_eq!(ipv4(1).to_string(), "198.18.0.1");
        assert_eq!(ipv6(1).to_string(), "fd00:198:18::1");
    }
}
