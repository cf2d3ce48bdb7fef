//! Questions to the kernel over netlink (netlink(7)) that the library of [`crate::link`] does not
//! ask: one request, and the messages that answer it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_timeout;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

pub(crate) const NLM_F_REQUEST: u16 = 0x01;
pub(crate) const NLM_F_ACK: u16 = 0x04;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_CREATE: u16 = 0x400;

const NLM_F_MULTI: u16 = 0x02;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Of `struct nlmsghdr` and `struct nlattr`.
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Flags in the type of an attribute: nested, and byte order.
const ATTRIBUTE_TYPE: u16 = 0x3fff;
/// The kernel makes no message of a dump longer:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/netlink/af_netlink.c#L2271>.
const LONGEST: usize = 64 << 10;
/// The kernel answers at once; an answer that does not come is lost.
const DEADLINE: Duration = Duration::from_secs(10);

/// A socket of the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// # Errors
    /// When the kernel does not speak this protocol.
    pub(crate) fn open(protocol: Protocol) -> io::Result<Self> {
        Self::of_protocol(Some(protocol))
    }

    /// Route netlink, which is protocol 0.
    ///
    /// # Errors
    /// When no socket can be had.
    pub(crate) fn route() -> io::Result<Self> {
        Self::of_protocol(None)
    }

    fn of_protocol(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        let direction = rustix::net::sockopt::Timeout::Recv;
        set_socket_timeout(&socket, direction, Some(DEADLINE))?;
        Ok(Self { socket })
    }

    /// Asks, and hands on the body of each message of the answer: one, or for a dump all of them.
    /// Requests of one buffer are sent as they are, as the batches of nftables have to be.
    ///
    /// # Errors
    /// The kernel's own; `Interrupted` when what was listed changed meanwhile.
    pub(crate) fn ask(&self, request: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
        send(&self.socket, request, SendFlags::empty())?;
        let mut buffer = vec![0; LONGEST];
        loop {
            let (_, length) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            let datagram = buffer.get(..length).ok_or_else(malformed)?;
            if take(datagram, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Takes the messages of a datagram; whether the answer is complete.
pub(crate) fn take(mut datagram: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while !datagram.is_empty() {
        let length = u32_at(datagram, 0).ok_or_else(malformed)? as usize;
        let message = datagram.get(..length).filter(|m| m.len() >= HEADER).ok_or_else(malformed)?;
        let (kind, flags) = (u16_at(message, 4), u16_at(message, 6));
        let (kind, flags) = (kind.ok_or_else(malformed)?, flags.ok_or_else(malformed)?);
        if flags & NLM_F_DUMP_INTR != 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                // An errno, negative; 0 acknowledges.
                let error = u32_at(message, HEADER).ok_or_else(malformed)? as i32;
                return match error {
                    0 => Ok(true),
                    error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
                };
            }
            _ => each(&message[HEADER..]),
        }
        if flags & NLM_F_MULTI == 0 {
            return Ok(true);
        }
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// A message with its header.
pub(crate) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence and sender: there is one question at a time.
    message.extend([0; 8]);
    message.extend(body);
    message.resize(aligned(message.len()), 0);
    message
}

/// The value of the first attribute of a type.
pub(crate) fn attribute(all: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(all).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Attributes in their order: type and value.
pub(crate) fn attributes(mut all: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(all, 0)?), u16_at(all, 2)?);
        let value = all.get(ATTRIBUTE_HEADER..length)?;
        all = all.get(aligned(length)..).unwrap_or_default();
        Some((kind & ATTRIBUTE_TYPE, value))
    })
}

pub(crate) fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(place..place + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(place..place + 2)?.try_into().ok()?))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is no netlink message")
}

/// An attribute with its header.
pub(crate) fn with_header(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::new();
    attribute.extend(((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(aligned(attribute.len()), 0);
    attribute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_ends_with_done_and_an_error_keeps_its_number() {
        let mut answers: Vec<Vec<u8>> = Vec::new();
        let mut keep = |body: &[u8]| answers.push(body.to_vec());
        let two = [message(7, NLM_F_MULTI, b"a"), message(7, NLM_F_MULTI, b"bc")].concat();
        assert!(!take(&two, &mut keep).unwrap());
        assert!(take(&message(NLMSG_DONE, NLM_F_MULTI, &[]), &mut keep).unwrap());
        assert!(take(&message(NLMSG_ERROR, 0, &0i32.to_ne_bytes()), &mut keep).unwrap());
        let refused = message(NLMSG_ERROR, 0, &(-1i32).to_ne_bytes());
        let error = take(&refused, &mut keep).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let torn = message(7, NLM_F_MULTI | NLM_F_DUMP_INTR, &[]);
        assert_eq!(take(&torn, &mut keep).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(answers, [&b"a"[..], b"bc"]);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b"abc"[..], &[0; 16], &[255; 20]] {
            assert!(take(bytes, &mut |_: &[u8]| {}).is_err());
        }
    }

    #[test]
    fn attributes_are_found_by_their_type() {
        let attributes = [with_header(1, b"one"), with_header(0x8002, b"two!")].concat();
        assert_eq!(attribute(&attributes, 1), Some(&b"one"[..]));
        assert_eq!(attribute(&attributes, 2), Some(&b"two!"[..]));
        assert_eq!(attribute(&attributes, 3), None);
        assert_eq!(attribute(&[1, 0, 1, 0], 2), None);
        let all: Vec<(u16, &[u8])> = super::attributes(&attributes).collect();
        assert_eq!(all, [(1, &b"one"[..]), (2, &b"two!"[..])]);
    }
}
