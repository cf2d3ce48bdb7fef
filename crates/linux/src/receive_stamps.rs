//! When packets came: the kernel's time stamps of received messages (SO_TIMESTAMPING), see
//! <https://docs.kernel.org/networking/timestamping.html>.
//!
//! As long as any socket of the machine asks for them, the kernel reads its clock for each packet that any device
//! receives: <https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c> (`net_timestamp_set`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockAddr, SockAddrStorage};
use wirecost_model::clock::{Nanos, SECOND};

use crate::datagrams::UDP_GRO;
use crate::raw_option::SocketOption;

/// The one whose times have 64 bits on every machine; also the type of its control messages.
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/asm-generic/socket.h>
const SO_TIMESTAMPING_NEW: libc::c_int = 65;

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/net_tstamp.h>
const RX_SOFTWARE: u32 = 1 << 3;
const SOFTWARE: u32 = 1 << 4;
const RAW_HARDWARE: u32 = 1 << 6;

/// Bytes of a control message before its value (`struct cmsghdr`).
const HEADER: usize = 16;
/// Control messages begin at multiples of so many bytes.
const ALIGN: usize = 8;
/// Two times beside the first one: one that is not used any more, and that of the device.
const TIMES: usize = 3;
const TIME: usize = 16;

/// Room for the control messages of a message: its times and the length of joined datagrams.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlBuffer([u8; 2 * HEADER + TIMES * TIME + ALIGN]);

impl ControlBuffer {
    pub(crate) const fn new() -> Self {
        Self([0; size_of::<Self>()])
    }

    /// What is in its first bytes, of which the kernel has said how many they are.
    pub(crate) fn read(&self, length: usize) -> Controls {
        parse(&self.0[..length.min(self.0.len())])
    }

    pub(crate) fn attach(&mut self, header: &mut libc::msghdr) {
        header.msg_control = (&raw mut *self).cast();
        header.msg_controllen = size_of::<Self>();
    }
}

/// When a message came; of a stream, when the last of the segments came whose bytes were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// When the driver handed the packet to the network stack, in nanoseconds of CLOCK_REALTIME.
    pub software: Option<Nanos>,
    /// When the device received it, in nanoseconds of the device's own clock. Only from a device that stamps packets
    /// anyway: asking for it here does not turn that on.
    pub hardware: Option<Nanos>,
}

/// What the control messages of a received message say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Controls {
    pub(crate) stamp: Stamp,
    /// Bytes of each of the datagrams that the kernel has joined to one message (UDP_GRO).
    pub(crate) segment: Option<i32>,
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer; of a datagram that was longer, those that it had room for.
    pub length: usize,
    pub stamp: Stamp,
}

/// Has the kernel stamp what comes to a socket. Packets that came before may be without a stamp, and some that come just
/// after: the kernel turns stamps on later
/// (<https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c>, `net_enable_timestamp`).
///
/// # Errors
/// Those of setsockopt(2); kernels before 5.1 do not have it.
pub fn enable(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an int.
    const STAMP: SocketOption<u32> =
        unsafe { SocketOption::new(libc::SOL_SOCKET, SO_TIMESTAMPING_NEW) };
    STAMP.set(socket, &(RX_SOFTWARE | SOFTWARE | RAW_HARDWARE))
}

/// Receives a message with its stamp. Waits for one where the socket blocks and `wait` says so.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: impl AsFd, buffer: &mut [u8], wait: bool) -> io::Result<Received> {
    receive_with(socket, buffer, wait, None)
}

/// The same, with the address of who sent it; none of a sender without an address of IP.
///
/// # Errors
/// The same.
pub fn receive_from(
    socket: impl AsFd,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(Received, Option<SocketAddr>)> {
    let mut sender = (SockAddrStorage::zeroed(), 0);
    let received = receive_with(socket, buffer, wait, Some(&mut sender))?;
    let (storage, length) = sender;
    // SAFETY: the kernel has written an address of this length, or none.
    let sender = unsafe { SockAddr::new(storage, length) };
    Ok((received, sender.as_socket()))
}

fn receive_with(
    socket: impl AsFd,
    buffer: &mut [u8],
    wait: bool,
    sender: Option<&mut (SockAddrStorage, libc::socklen_t)>,
) -> io::Result<Received> {
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = ControlBuffer::new();
    // SAFETY: all-zero is a valid msghdr: no name, no pieces, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    control.attach(&mut header);
    let name = sender.map(|(storage, length)| {
        header.msg_name = (&raw mut *storage).cast();
        header.msg_namelen = size_of::<SockAddrStorage>() as libc::socklen_t;
        length
    });
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the header points to `buffer`, to a control buffer and perhaps to an address, all writable for the lengths
    // given and alive until the call returns.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    let length = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    if let Some(name) = name {
        *name = header.msg_namelen;
    }
    let controls = control.read(header.msg_controllen);
    Ok(Received { length: length.min(buffer.len()), stamp: controls.stamp })
}

/// Reads control messages, as they stand behind one another (cmsg(3)).
pub(crate) fn parse(mut bytes: &[u8]) -> Controls {
    let mut controls = Controls::default();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let [a, b, c, d, e, f, g, h, level @ .., k0, k1, k2, k3] = *header;
        let length = usize::try_from(u64::from_ne_bytes([a, b, c, d, e, f, g, h])).unwrap_or(0);
        let Some(value) = bytes.get(HEADER..length) else { break };
        let kind = libc::c_int::from_ne_bytes([k0, k1, k2, k3]);
        match (libc::c_int::from_ne_bytes(level), kind) {
            (libc::SOL_SOCKET, SO_TIMESTAMPING_NEW) => {
                let time = |number: usize| time(value.get(number * TIME..)?);
                controls.stamp = Stamp { software: time(0), hardware: time(2) };
            }
            (libc::SOL_UDP, UDP_GRO) => {
                controls.segment = value.first_chunk().map(|length| i32::from_ne_bytes(*length));
            }
            _ => {}
        }
        let next = length.checked_next_multiple_of(ALIGN).unwrap_or(length);
        bytes = bytes.get(next..).unwrap_or_default();
    }
    controls
}

/// A `struct __kernel_timespec`; none where it is empty, as of what was not stamped.
fn time(bytes: &[u8]) -> Option<Nanos> {
    let (seconds, rest) = bytes.split_first_chunk()?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
    let nanos = u64::try_from(i64::from_ne_bytes(*rest.first_chunk()?)).ok()?;
    let time = seconds.checked_mul(SECOND)?.checked_add(nanos)?;
    (time > 0 && nanos < SECOND).then_some(time)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::realtime;

    fn message(level: libc::c_int, kind: libc::c_int, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + value.len()) as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0xff);
        bytes
    }

    fn times(times: [(i64, i64); TIMES]) -> Vec<u8> {
        let words = times.into_iter().flat_map(|(seconds, nanos)| [seconds, nanos]);
        words.flat_map(i64::to_ne_bytes).collect()
    }

    fn stamps(value: &[u8]) -> Vec<u8> {
        message(libc::SOL_SOCKET, SO_TIMESTAMPING_NEW, value)
    }

    #[test]
    fn control_messages_are_read_in_any_order() {
        let stamps = stamps(&times([(7, 5), (0, 0), (3, 999_999_999)]));
        let segment = message(libc::SOL_UDP, UDP_GRO, &1472i32.to_ne_bytes());
        let unknown = message(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, &[1; 12]);
        let stamp = Stamp { software: Some(7 * SECOND + 5), hardware: Some(4 * SECOND - 1) };
        let expected = Controls { stamp, segment: Some(1472) };
        for order in [[&stamps, &segment, &unknown], [&unknown, &segment, &stamps]] {
            assert_eq!(parse(&order.map(Vec::as_slice).concat()), expected);
        }
    }

    #[test]
    fn what_is_no_time_is_no_stamp() {
        let none = Controls::default();
        for wrong in [
            [(0, 0), (5, 5), (0, 0)],
            [(-1, 5), (0, 0), (1, -1)],
            [(1, 1_000_000_000), (0, 0), (i64::MAX, 0)],
        ] {
            assert_eq!(parse(&stamps(&times(wrong))), none, "{wrong:?}");
        }
        let whole = stamps(&times([(7, 5), (0, 0), (3, 1)]));
        // Cut off, or of a length that it does not have.
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), none, "{length}");
        }
        for length in [0u64, 15, 1 << 40, u64::MAX] {
            let mut wrong = whole.clone();
            wrong[..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(parse(&wrong), none, "{length}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }

        /// Only the lengths are right.
        #[test]
        fn whatever_messages_say_is_read(
            messages in prop::collection::vec(
                (prop_oneof![Just(libc::SOL_SOCKET), Just(libc::SOL_UDP)], any::<bool>(),
                 prop::collection::vec(any::<u8>(), 0..60)), 0..5),
        ) {
            let kind = |gro| if gro { UDP_GRO } else { SO_TIMESTAMPING_NEW };
            let bytes: Vec<u8> = messages
                .iter()
                .flat_map(|(level, gro, value)| message(*level, kind(*gro), value))
                .collect();
            // The last one counts.
            let segment = messages.iter().rfind(|(level, gro, _)| *level == libc::SOL_UDP && *gro);
            let is_known = segment.is_some_and(|(_, _, value)| value.len() >= 4);
            prop_assert_eq!(parse(&bytes).segment.is_some(), is_known);
        }
    }

    /// Sends, again and again until stamps are on, and returns when and the stamp of what came then.
    fn stamped(mut send: impl FnMut() -> Received) -> (std::ops::RangeInclusive<Nanos>, Received) {
        for _ in 0..1000 {
            let before = realtime();
            let received = send();
            if received.stamp.software.is_some() {
                return (before..=realtime(), received);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("nothing was stamped in 5 s");
    }

    #[test]
    fn a_datagram_is_stamped_between_its_sending_and_its_reading() {
        let (receiver, sender) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        enable(&receiver).unwrap();
        let mut buffer = [0; 100];
        let (time, received) = stamped(|| {
            sender.send(b"when").unwrap();
            receive(&receiver, &mut buffer, true).unwrap()
        });
        assert_eq!(received.length, 4);
        assert!(time.contains(&received.stamp.software.unwrap()), "{time:?} {received:?}");
        // One that was sent long before it is read tells so.
        sender.send(b"then").unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let (received, from) = receive_from(&receiver, &mut buffer, true).unwrap();
        assert_eq!((&buffer[..4], from), (&b"then"[..], sender.local_addr().ok()));
        assert!(realtime() - received.stamp.software.unwrap() >= 30_000_000);
        // It is kept to the buffer, and does not wait where it must not.
        sender.send(b"too long").unwrap();
        assert_eq!(receive(&receiver, &mut buffer[..3], true).unwrap().length, 3);
        let error = receive(&receiver, &mut buffer, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// Of a stream, the stamp is that of the last segment of which bytes were read.
    #[test]
    fn bytes_of_a_stream_are_stamped_as_their_last_segment() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        enable(&receiver).unwrap();
        let mut buffer = [0; 100];
        let (time, received) = stamped(|| {
            sender.write_all(b"when").unwrap();
            receive(&receiver, &mut buffer, true).unwrap()
        });
        assert!(time.contains(&received.stamp.software.unwrap()), "{time:?} {received:?}");
        sender.write_all(b"first").unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let between = realtime();
        sender.write_all(b"last").unwrap();
        while receiver.peek(&mut buffer).unwrap() < 9 {}
        let received = receive(&receiver, &mut buffer, true).unwrap();
        assert_eq!(received.length, 9);
        assert!(received.stamp.software.unwrap() >= between, "{received:?}");
    }
}
