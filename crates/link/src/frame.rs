//! Frames as a TUN device with IFF_VNET_HDR hands them over: `struct virtio_net_hdr`, then an IP packet
//! whose payload may be that of many packets (TSO, USO), with a checksum that is not complete.
//! <https://docs.kernel.org/networking/tuntap.html>, virtio 1.2, section 5.1.6.

use crate::line::Shape;

/// Bytes of `struct virtio_net_hdr`.
pub const PREFIX: usize = 10;

/// Bit of the flags: the checksum is not complete.
const NEEDS_CHECKSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Bit of the type: the first packet has the flag CWR.
const GSO_ECN: u8 = 0x80;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Packets with less payload than TCP's smallest (`TCP_MIN_MSS`) are not told apart.
const SMALLEST: u32 = 48;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// What a frame consists of. A frame that is not understood is one packet.
#[must_use]
pub fn shape(frame: &[u8]) -> Shape {
    let bytes = u32::try_from(frame.len().saturating_sub(PREFIX)).unwrap_or(u32::MAX);
    shape_of_packets(frame).unwrap_or_else(|| Shape::packet(bytes))
}

fn shape_of_packets(frame: &[u8]) -> Option<Shape> {
    let (prefix, packet) = frame.split_at_checked(PREFIX)?;
    let field = |at: usize| u16::from_ne_bytes([prefix[at], prefix[at + 1]]);
    let each = u32::from(field(4));
    // Each packet of the frame gets its own checksum.
    if prefix[0] & NEEDS_CHECKSUM == 0 || each < SMALLEST {
        return None;
    }
    let transport = usize::from(field(6));
    let network = match packet.first()? >> 4 {
        4 => IPV4_HEADER,
        6 => IPV6_HEADER,
        _ => return None,
    };
    if transport < network {
        return None;
    }
    let header = match prefix[1] & !GSO_ECN {
        GSO_TCPV4 | GSO_TCPV6 => {
            let length = usize::from(packet.get(transport + 12)? >> 4) * 4;
            (length >= TCP_HEADER).then_some(transport + length)?
        }
        GSO_UDP_L4 => transport + UDP_HEADER,
        _ => return None,
    };
    let payload = u32::try_from(packet.len().checked_sub(header)?).ok()?;
    let packets = u16::try_from(payload.div_ceil(each)).ok().filter(|packets| *packets > 0)?;
    Some(Shape { packets, header: u32::try_from(header).ok()?, payload, each })
}

/// Destination of the packets of a frame, in the order of the network: 4 or 16 bytes.
#[must_use]
pub fn destination(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(PREFIX..)?;
    match packet.first()? >> 4 {
        4 => packet.get(16..20),
        6 => packet.get(24..40),
        _ => None,
    }
}

/// Writes packets `from..to` of a frame into `out`, as a frame of their own.
///
/// # Panics
/// `shape` is not that of the frame.
pub fn cut(frame: &[u8], shape: Shape, (from, to): (u16, u16), out: &mut Vec<u8>) {
    out.clear();
    let whole = from == 0 && to == shape.packets;
    if whole {
        out.extend_from_slice(frame);
        return;
    }
    let header = PREFIX + shape.header as usize;
    let first = u32::from(from) * shape.each;
    let end = (u32::from(to) * shape.each).min(shape.payload);
    out.extend_from_slice(&frame[..header]);
    out.extend_from_slice(&frame[header + first as usize..header + end as usize]);
    let udp = out[1] & !GSO_ECN == GSO_UDP_L4;
    let transport = usize::from(u16::from_ne_bytes([out[6], out[7]]));
    // How much of it the kernel keeps together: the headers.
    let mut together = shape.header as u16;
    if to - from == 1 {
        together = 0;
        out[1] = GSO_NONE;
        out[4..6].fill(0);
    } else if from > 0 {
        out[1] &= !GSO_ECN;
    }
    out[2..4].copy_from_slice(&together.to_ne_bytes());
    let packet = &mut out[PREFIX..];
    let total = packet.len() as u16;
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        // Segmentation gives each packet the next identification (inet_gso_segment).
        let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(from);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[10..12].fill(0);
        let network = (usize::from(packet[0] & 15) * 4).clamp(IPV4_HEADER, transport);
        let checksum = !sum(&packet[..network]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&(total - IPV6_HEADER as u16).to_be_bytes());
    }
    let length = total - transport as u16;
    let checksum = if udp {
        packet[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
        transport + 6
    } else {
        let sequence = &mut packet[transport + 4..transport + 8];
        let number = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
        sequence.copy_from_slice(&number.wrapping_add(first).to_be_bytes());
        let flags = &mut packet[transport + 13];
        if to < shape.packets {
            *flags &= !(FIN | PSH);
        }
        if from > 0 {
            *flags &= !CWR;
        }
        transport + 16
    };
    // The checksum is incomplete: it holds the sum of the pseudo-header, of which the length changes (RFC 1624).
    let whole = (frame.len() - PREFIX - transport) as u16;
    let partial = u16::from_be_bytes([packet[checksum], packet[checksum + 1]]);
    let partial = fold(u32::from(partial) + u32::from(!whole) + u32::from(length));
    packet[checksum..checksum + 2].copy_from_slice(&partial.to_be_bytes());
}

/// The sum of the Internet checksum (RFC 1071), not inverted.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    fold(words.sum())
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame of the kernel: a header, a payload of `bytes`, and the sum of the pseudo-header.
    fn frame(ipv6: bool, udp: bool, options: usize, bytes: usize, each: u16) -> Vec<u8> {
        let transport = if udp { UDP_HEADER } else { TCP_HEADER + 12 };
        let protocol = if udp { 17 } else { 6 };
        // Destination options of IPv6, or options of IPv4.
        let network = options + if ipv6 { IPV6_HEADER } else { IPV4_HEADER };
        let mut packet = vec![0; network + transport + bytes];
        let length = (transport + bytes) as u16;
        if ipv6 {
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&(options as u16 + length).to_be_bytes());
            packet[6] = if options > 0 { 60 } else { protocol };
            packet[7] = 64;
            packet[8..24].copy_from_slice(&[0xfd, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            packet[24..40].copy_from_slice(&[0xfd, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        } else {
            packet[0] = 0x45 + (options / 4) as u8;
            packet[2..4].copy_from_slice(&(network as u16 + length).to_be_bytes());
            packet[4..6].copy_from_slice(&0xfffe_u16.to_be_bytes());
            packet[8] = 64;
            packet[9] = protocol;
            packet[12..16].copy_from_slice(&[198, 18, 0, 1]);
            packet[16..20].copy_from_slice(&[198, 18, 0, 2]);
            let checksum = !sum(&packet[..network]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let addresses = if ipv6 { 8..40 } else { 12..20 };
        let pseudo = u32::from(sum(&packet[addresses])) + u32::from(protocol) + u32::from(length);
        let header = &mut packet[network..];
        if udp {
            header[4..6].copy_from_slice(&length.to_be_bytes());
            header[6..8].copy_from_slice(&fold(pseudo).to_be_bytes());
        } else {
            header[4..8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
            header[12] = 8 << 4;
            header[13] = 0x10 | FIN | PSH | CWR;
            header[16..18].copy_from_slice(&fold(pseudo).to_be_bytes());
        }
        for (at, byte) in header[transport..].iter_mut().enumerate() {
            *byte = (at * 7 + at / 251) as u8;
        }
        let kind = match (udp, ipv6) {
            (true, _) => GSO_UDP_L4,
            (false, false) => GSO_TCPV4 | GSO_ECN,
            (false, true) => GSO_TCPV6 | GSO_ECN,
        };
        let offset = if udp { 6 } else { 16 };
        let mut frame = vec![1, kind];
        for field in [(network + transport) as u16, each, network as u16, offset] {
            frame.extend_from_slice(&field.to_ne_bytes());
        }
        frame.extend_from_slice(&packet);
        frame
    }

    /// What the receiver of a packet reads: sequence number, flags, payload. Checks lengths and
    /// checksums, after completing the checksum as the receiving device would.
    fn received(frame: &[u8]) -> (u32, u8, Vec<u8>) {
        assert_eq!(frame[1], GSO_NONE);
        let start = u16::from_ne_bytes([frame[6], frame[7]]) as usize;
        let offset = u16::from_ne_bytes([frame[8], frame[9]]) as usize;
        let mut packet = frame[PREFIX..].to_vec();
        let complete = !sum(&packet[start..]);
        packet[start + offset..start + offset + 2].copy_from_slice(&complete.to_be_bytes());
        let length = (packet.len() - start) as u16;
        let (protocol, addresses) = if packet[0] >> 4 == 4 {
            assert_eq!(sum(&packet[..usize::from(packet[0] & 15) * 4]), 0xffff);
            assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
            (packet[9], &packet[12..20])
        } else {
            assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
            (if offset == 6 { 17 } else { 6 }, &packet[8..40])
        };
        let pseudo = u32::from(sum(addresses)) + u32::from(protocol) + u32::from(length);
        assert_eq!(fold(pseudo + u32::from(sum(&packet[start..]))), 0xffff);
        let header = &packet[start..];
        if protocol == 17 {
            assert_eq!(u16::from_be_bytes([header[4], header[5]]), length);
            (0, 0, header[UDP_HEADER..].to_vec())
        } else {
            let sequence = u32::from_be_bytes(header[4..8].try_into().unwrap());
            (sequence, header[13], header[usize::from(header[12] >> 4) * 4..].to_vec())
        }
    }

    fn identification(frame: &[u8]) -> u16 {
        u16::from_be_bytes([frame[PREFIX + 4], frame[PREFIX + 5]])
    }

    proptest! {
        #[test]
        fn pieces_are_what_a_receiver_expects(
            ipv6 in any::<bool>(), udp in any::<bool>(), options in 0_usize..4, bytes in 1_usize..9_000,
            each in 48_u16..1_500,
            cuts in any::<[prop::sample::Index; 2]>(),
        ) {
            let whole = frame(ipv6, udp, options * 8, bytes, each);
            let of_whole = shape(&whole);
            prop_assert_eq!(usize::from(of_whole.packets), bytes.div_ceil(each.into()));
            let mut places = cuts.map(|cut| cut.index(usize::from(of_whole.packets) + 1) as u16).to_vec();
            places.extend([0, of_whole.packets]);
            places.sort_unstable();
            let (mut payload, mut packet) = (Vec::new(), 0);
            for pair in places.windows(2).filter(|pair| pair[0] < pair[1]) {
                let mut piece = Vec::new();
                cut(&whole, of_whole, (pair[0], pair[1]), &mut piece);
                let of_piece = shape(&piece);
                prop_assert_eq!(of_piece.packets, pair[1] - pair[0]);
                for at in 0..of_piece.packets {
                    let mut one = Vec::new();
                    cut(&piece, of_piece, (at, at + 1), &mut one);
                    if of_whole.packets == 1 {
                        one[1] = GSO_NONE;
                    }
                    let (sequence, flags, bytes) = received(&one);
                    let (first, last) = (packet == 0, packet + 1 == of_whole.packets);
                    prop_assert_eq!(bytes.len(), of_whole.bytes(packet) as usize - of_whole.header as usize);
                    if !udp {
                        prop_assert_eq!(sequence, 0xffff_f000_u32.wrapping_add(payload.len() as u32));
                        prop_assert_eq!(flags & (FIN | PSH) != 0, last);
                        prop_assert_eq!(flags & CWR != 0, first);
                    }
                    if !ipv6 {
                        prop_assert_eq!(identification(&one), 0xfffe_u16.wrapping_add(packet));
                    }
                    payload.extend(bytes);
                    packet += 1;
                }
            }
            prop_assert_eq!(&payload[..], &whole[whole.len() - bytes..]);
        }

        #[test]
        fn nothing_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..6) {
            if let Some(byte) = bytes.get_mut(1) {
                *byte = kind;
            }
            let of_bytes = shape(&bytes);
            prop_assert!(of_bytes.packets > 0);
            let _ = destination(&bytes);
            let mut out = Vec::new();
            for packet in 0..of_bytes.packets {
                cut(&bytes, of_bytes, (packet, packet + 1), &mut out);
            }
        }
    }
}
