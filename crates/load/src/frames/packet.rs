//! The headers of the frames of a connection: Ethernet, IP without options, UDP.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const IPV4_TYPE: [u8; 2] = [0x08, 0x00];
const IPV6_TYPE: [u8; 2] = [0x86, 0xdd];
const UDP_PROTOCOL: u8 = 17;
/// What Linux sets by default.
const HOPS: u8 = 64;
/// More fragments, or the offset of this one.
const FRAGMENT: u16 = 0x3fff;

/// Bytes of IP and UDP headers.
pub(crate) fn overhead(address: IpAddr) -> u32 {
    (UDP + if is_ipv4(address) { IPV4 } else { IPV6 }) as u32
}

/// Bytes of an Ethernet header.
pub(crate) const LINK_HEADER: u32 = ETHERNET as u32;

fn is_ipv4(address: IpAddr) -> bool {
    address.to_canonical().is_ipv4()
}

/// Addresses and ports of a datagram that comes, as the XDP program and its map have them (`struct flow` in
/// select.bpf.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Flow([u8; 36]);

impl Flow {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&mapped(remote.ip()));
        bytes[16..32].copy_from_slice(&mapped(local.ip()));
        bytes[32..34].copy_from_slice(&remote.port().to_be_bytes());
        bytes[34..].copy_from_slice(&local.port().to_be_bytes());
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 36] {
        &self.0
    }

    /// Whose frame it is, and where in it the payload is; `None` where it is no whole datagram.
    #[inline]
    pub(crate) fn of_frame(frame: &[u8]) -> Option<(Self, std::ops::Range<usize>)> {
        let (link, packet) = frame.split_at_checked(ETHERNET)?;
        let mut flow = [0; 36];
        let (header, ip_payload) = match [link[12], link[13]] {
            IPV4_TYPE if packet.len() >= IPV4 + UDP => {
                let fragment = u16::from_be_bytes([packet[6], packet[7]]) & FRAGMENT;
                if packet[0] != 0x45 || packet[9] != UDP_PROTOCOL || fragment != 0 {
                    return None;
                }
                flow[10..12].copy_from_slice(&[0xff; 2]);
                flow[12..16].copy_from_slice(&packet[12..16]);
                flow[26..28].copy_from_slice(&[0xff; 2]);
                flow[28..32].copy_from_slice(&packet[16..20]);
                let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
                (IPV4, total.checked_sub(IPV4)?)
            }
            IPV6_TYPE if packet.len() >= IPV6 + UDP => {
                if packet[0] >> 4 != 6 || packet[6] != UDP_PROTOCOL {
                    return None;
                }
                flow[..32].copy_from_slice(&packet[8..40]);
                (IPV6, usize::from(u16::from_be_bytes([packet[4], packet[5]])))
            }
            _ => return None,
        };
        let udp = &packet[header..];
        flow[32..].copy_from_slice(&udp[..4]);
        let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        // Ethernet frames have at least 60 bytes, so there may be padding behind the packet.
        if length < UDP || length > ip_payload.min(udp.len()) {
            return None;
        }
        let start = ETHERNET + header;
        Some((Self(flow), start + UDP..start + length))
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    let address: Ipv6Addr = match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.octets()
}

/// What all frames that a connection sends have in common.
#[derive(Debug, Clone)]
pub(crate) struct Headers {
    bytes: [u8; ETHERNET + IPV6 + UDP],
    length: usize,
    /// Of addresses, ports and protocol, without the lengths.
    udp_sum: u64,
    ip_sum: u64,
}

impl Headers {
    pub(crate) fn new(
        (source, destination): ([u8; 6], [u8; 6]),
        from: SocketAddr,
        to: SocketAddr,
    ) -> Self {
        let mut bytes = [0; ETHERNET + IPV6 + UDP];
        bytes[..6].copy_from_slice(&destination);
        bytes[6..12].copy_from_slice(&source);
        let packet = &mut bytes[ETHERNET..];
        let (header, kind, addresses) = match (from.ip().to_canonical(), to.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                packet[0] = 0x45;
                // Don't fragment.
                packet[6] = 0x40;
                packet[8] = HOPS;
                packet[9] = UDP_PROTOCOL;
                packet[12..16].copy_from_slice(&from.octets());
                packet[16..20].copy_from_slice(&to.octets());
                (IPV4, IPV4_TYPE, 12..20)
            }
            _ => {
                packet[0] = 0x60;
                packet[6] = UDP_PROTOCOL;
                packet[7] = HOPS;
                packet[8..24].copy_from_slice(&mapped(from.ip()));
                packet[24..40].copy_from_slice(&mapped(to.ip()));
                (IPV6, IPV6_TYPE, 8..40)
            }
        };
        packet[header..header + 2].copy_from_slice(&from.port().to_be_bytes());
        packet[header + 2..header + 4].copy_from_slice(&to.port().to_be_bytes());
        // Sums of the words as they lie in memory: whatever order they are added in, their folded sum is right in the
        // same order (RFC 1071, 2(B)).
        let ip_sum = if header == IPV4 { sum(&packet[..IPV4]) } else { 0 };
        let protocol = sum(&[0, UDP_PROTOCOL]);
        let udp_sum = sum(&packet[addresses]) + sum(&packet[header..header + 4]) + protocol;
        bytes[12..14].copy_from_slice(&kind);
        Self { bytes, length: ETHERNET + header + UDP, udp_sum, ip_sum }
    }

    /// Bytes of a frame with so much payload.
    #[inline]
    pub(crate) fn frame_length(&self, payload: usize) -> usize {
        self.length + payload
    }

    /// Writes a frame of [`Headers::frame_length`] bytes.
    #[inline]
    pub(crate) fn write(&self, frame: &mut [u8], payload: &[u8]) {
        let (headers, data) = frame.split_at_mut(self.length);
        headers.copy_from_slice(&self.bytes[..self.length]);
        data.copy_from_slice(payload);
        let udp_length = ((UDP + payload.len()) as u16).to_be_bytes();
        let header = self.length - UDP - ETHERNET;
        let packet = &mut headers[ETHERNET..];
        if header == IPV4 {
            let total = ((IPV4 + UDP + payload.len()) as u16).to_be_bytes();
            packet[2..4].copy_from_slice(&total);
            let check = folded(self.ip_sum + sum(&total));
            packet[10..12].copy_from_slice(&check.to_ne_bytes());
        } else {
            packet[4..6].copy_from_slice(&udp_length);
        }
        let udp = &mut packet[header..];
        udp[4..6].copy_from_slice(&udp_length);
        // The length is in the header and in the pseudo header.
        let check = folded(self.udp_sum + 2 * sum(&udp_length) + sum(payload));
        // Zero means that there is none (RFC 768).
        let check = if check == 0 { u16::MAX } else { check };
        udp[6..8].copy_from_slice(&check.to_ne_bytes());
    }
}

/// The sum of the 16-bit words of bytes, in the order of this machine, not folded.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // Sums of 32-bit words fold to the same: 2^16 = 1 modulo 2^16 - 1. Four of them do not wait for one another.
    let (fours, ones) = words.as_chunks::<4>();
    let mut sums = [0u64; 4];
    for four in fours {
        for (sum, word) in sums.iter_mut().zip(four) {
            *sum += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let ones: u64 = ones.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sums.iter().sum::<u64>() + ones + u64::from(u32::from_ne_bytes(last))
}

/// The one's complement of a folded sum, in the order of this machine.
#[inline]
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As RFC 1071 defines it: byte pairs in network order.
    fn plain(bytes: &[u8]) -> u16 {
        let words = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn ends(ipv6: bool) -> (SocketAddr, SocketAddr) {
        match ipv6 {
            false => ("198.18.0.1:40000".parse().unwrap(), "198.18.0.2:20000".parse().unwrap()),
            true => ("[fd00::1]:40000".parse().unwrap(), "[fd00::2]:20000".parse().unwrap()),
        }
    }

    fn written(ipv6: bool, payload: &[u8]) -> Vec<u8> {
        let (from, to) = ends(ipv6);
        let headers = Headers::new(([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]), from, to);
        let mut frame = vec![0xaa; headers.frame_length(payload.len())];
        headers.write(&mut frame, payload);
        frame
    }

    proptest! {
        /// Summed with its checksum, a header and a datagram with its pseudo header are 0xffff.
        #[test]
        fn checksums_are_those_of_the_rfcs(
            ipv6: bool,
            payload in prop::collection::vec(any::<u8>(), 0..1500),
        ) {
            let frame = written(ipv6, &payload);
            let packet = &frame[14..];
            let (addresses, datagram) = match ipv6 {
                false => {
                    prop_assert_eq!(plain(&packet[..20]), 0xffff);
                    (&packet[12..20], &packet[20..])
                }
                true => (&packet[8..40], &packet[40..]),
            };
            let length = (datagram.len() as u16).to_be_bytes();
            let pseudo = [addresses, &[0, 17], &length, datagram].concat();
            prop_assert_eq!(plain(&pseudo), 0xffff);
            prop_assert_ne!(&datagram[6..8], &[0, 0], "it would count as no checksum");
        }

        #[test]
        fn a_frame_is_that_of_its_flow(
            ipv6: bool,
            payload in prop::collection::vec(any::<u8>(), 0..1500),
            padding in 0usize..20,
        ) {
            let mut frame = written(ipv6, &payload);
            frame.resize(frame.len() + padding, 0);
            let (flow, range) = Flow::of_frame(&frame).expect("a datagram");
            let (from, to) = ends(ipv6);
            prop_assert_eq!(flow, Flow::new(to, from));
            prop_assert_eq!(&frame[range], &payload[..]);
        }

        /// A datagram may not be longer than its packet says, as if the padding were payload.
        #[test]
        fn a_datagram_is_within_its_packet(ipv6: bool, padding in 1usize..20, more in 1u16..20) {
            let mut frame = written(ipv6, b"payload");
            frame.resize(frame.len() + padding, 0);
            let length = if ipv6 { 14 + 40 + 4 } else { 14 + 20 + 4 };
            frame[length..length + 2].copy_from_slice(&(8 + 7 + more).to_be_bytes());
            prop_assert_eq!(Flow::of_frame(&frame), None);
        }

        #[test]
        fn what_is_no_whole_datagram_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, range)) = Flow::of_frame(&bytes) {
                prop_assert!(range.end <= bytes.len());
            }
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_all_ones() {
        // Two bytes that make the sum 0xffff.
        let frame = written(false, &[0, 0]);
        let check = u16::from_be_bytes([frame[40], frame[41]]);
        let frame = written(false, &check.to_be_bytes());
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }

    #[test]
    fn an_address_of_ipv4_in_ipv6_is_one_of_ipv4() {
        let mapped: SocketAddr = "[::ffff:198.18.0.1]:5".parse().unwrap();
        let plain: SocketAddr = "198.18.0.1:5".parse().unwrap();
        assert_eq!(Flow::new(mapped, mapped), Flow::new(plain, plain));
        assert_eq!((overhead(mapped.ip()), overhead("fd00::1".parse().unwrap())), (28, 48));
    }
}
