//! Several datagrams by one call: sendmmsg(2) and recvmmsg(2), and messages that the kernel cuts into
//! datagrams (UDP_SEGMENT) or makes of them (UDP_GRO), see udp(7).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockAddr, SockAddrStorage};
use wirecost_model::clock::Nanos;

use crate::raw_option::SocketOption;
use crate::receive_stamps::{ControlBuffer, Stamp};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/udp.h#L32>
const UDP_SEGMENT: libc::c_int = 103;
pub(crate) const UDP_GRO: libc::c_int = 104;
/// Also the type of the control message with the time.
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/asm-generic/socket.h#L97>
const SO_TXTIME: libc::c_int = 61;

/// Messages of one call at most; the kernel takes no more (UIO_MAXIOV).
pub const MAX_MESSAGES: usize = 1024;
/// Datagrams that the kernel cuts one message into at most (UDP_MAX_SEGMENTS, 64 before Linux 6.9).
pub const MAX_SEGMENTS: u64 = 64;

/// A control message of one number: the size of a datagram in both directions, or its departure time.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Control {
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
    value: [u8; 8],
}

impl Control {
    fn segment(bytes: u16) -> Self {
        let mut value = [0; 8];
        value[..2].copy_from_slice(&bytes.to_ne_bytes());
        Self { length: HEADER + size_of::<u16>(), level: libc::SOL_UDP, kind: UDP_SEGMENT, value }
    }

    pub(crate) fn departure(at: Nanos) -> Self {
        let (length, value) = (HEADER + size_of::<Nanos>(), at.to_ne_bytes());
        Self { length, level: libc::SOL_SOCKET, kind: SO_TXTIME, value }
    }

    /// Bytes of each of the datagrams of a message, where it is several; `length`: that of what the kernel has written.
    fn joined(&self, length: usize) -> Option<i32> {
        let joined = length >= HEADER + size_of::<libc::c_int>()
            && (self.level, self.kind) == (libc::SOL_UDP, UDP_GRO);
        let [a, b, c, d, ..] = self.value;
        joined.then_some(i32::from_ne_bytes([a, b, c, d]))
    }
}

/// Bytes of a control message before its value.
const HEADER: usize = 16;

/// What is to be known of each message that is received, beside its bytes.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    senders: bool,
    stamps: bool,
}

/// A message that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Where in the buffer it begins, and its bytes.
    pub start: usize,
    pub length: usize,
    /// Bytes of each of its datagrams but the last one, which may have fewer; its length where it is
    /// one datagram.
    pub segment: usize,
}

/// Lets the kernel join datagrams of one sender and size into one message.
///
/// # Errors
/// Those of setsockopt(2); kernels before 5.0 do not have it.
pub fn enable_gro(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an int.
    const JOIN: SocketOption<libc::c_int> = unsafe { SocketOption::new(libc::SOL_UDP, UDP_GRO) };
    JOIN.set(socket, &1)
}

/// Lets messages of a socket have departure times of CLOCK_MONOTONIC, as the queueing discipline fq compares them. Those
/// of other clocks take CAP_NET_ADMIN.
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c#L1484>
///
/// # Errors
/// Those of setsockopt(2); kernels before 4.19 do not have it.
pub fn enable_departure_times(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: `struct sock_txtime`, the number of a clock and flags.
    const TXTIME: SocketOption<[libc::c_int; 2]> =
        unsafe { SocketOption::new(libc::SOL_SOCKET, SO_TXTIME) };
    TXTIME.set(socket, &[libc::CLOCK_MONOTONIC, 0])
}

/// The headers that a call needs, kept from call to call.
#[derive(Default)]
pub struct Calls {
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    controls: Vec<Control>,
    /// In their place, where messages have stamps.
    wide_controls: Vec<ControlBuffer>,
    senders: Vec<SockAddrStorage>,
    receivers: Vec<SockAddr>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl Calls {
    /// Sends messages of these lengths, which lie one behind the other in `bytes`, on a connected
    /// socket; where `segment` says so, each cut into datagrams of that many bytes. Returns how many
    /// messages were sent, at least one; what `bytes` has not is not.
    ///
    /// # Errors
    /// Those of sendmmsg(2) where not even the first was sent.
    pub fn send(
        &mut self,
        socket: impl AsFd,
        bytes: &[u8],
        lengths: impl Iterator<Item = usize>,
        segment: Option<u16>,
    ) -> io::Result<usize> {
        self.send_at(socket, bytes, lengths, segment, None)
    }

    /// The same of messages with departure times, where there are any: `departure` tells when a message is to leave the
    /// host, see [`enable_departure_times`].
    ///
    /// # Errors
    /// The same; `EINVAL` for departure times that are not enabled.
    pub fn send_at(
        &mut self,
        socket: impl AsFd,
        bytes: &[u8],
        lengths: impl Iterator<Item = usize>,
        segment: Option<u16>,
        departure: Option<&dyn Fn(usize) -> Nanos>,
    ) -> io::Result<usize> {
        self.lay_out(bytes, lengths, segment, departure);
        self.send_laid_out(socket, libc::MSG_NOSIGNAL)
    }

    fn send_laid_out(&mut self, socket: impl AsFd, flags: libc::c_int) -> io::Result<usize> {
        // SAFETY: each header points to one piece of the caller's bytes, to at most its control messages and to at most
        // an address; all of them outlive the call, and the kernel reads what it sends.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                flags,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// The same as [`Calls::send`] on a socket that is not connected: each message goes to the address that stands at its
    /// place. Waits for room where the socket blocks and `wait` says so.
    ///
    /// # Errors
    /// The same; `EDESTADDRREQ` for a message without an address.
    pub fn send_to(
        &mut self,
        socket: impl AsFd,
        bytes: &[u8],
        lengths: impl Iterator<Item = usize>,
        segment: Option<u16>,
        to: impl Iterator<Item = SocketAddr>,
        wait: bool,
    ) -> io::Result<usize> {
        self.lay_out(bytes, lengths, segment, None);
        self.receivers.clear();
        self.receivers.extend(to.map(SockAddr::from));
        for (header, receiver) in self.headers.iter_mut().zip(&self.receivers) {
            header.msg_hdr.msg_name = receiver.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = receiver.len();
        }
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        self.send_laid_out(socket, libc::MSG_NOSIGNAL | flags)
    }

    /// Makes the headers of messages that are to be sent.
    fn lay_out(
        &mut self,
        bytes: &[u8],
        lengths: impl Iterator<Item = usize>,
        segment: Option<u16>,
        departure: Option<&dyn Fn(usize) -> Nanos>,
    ) {
        self.clear();
        let mut rest = bytes;
        for length in lengths.take(MAX_MESSAGES) {
            let Some(piece) = rest.split_off(..length) else { break };
            let base = piece.as_ptr().cast_mut().cast();
            self.pieces.push(libc::iovec { iov_base: base, iov_len: length });
        }
        // The same for all where none has a time: the kernel only reads it.
        let sets = if departure.is_some() { self.pieces.len() } else { 1 };
        for message in 0..sets {
            self.controls.extend(segment.map(Control::segment));
            self.controls.extend(departure.map(|departure| Control::departure(departure(message))));
        }
        let each = self.controls.len() / sets.max(1);
        let own = if departure.is_some() { each } else { 0 };
        for (message, piece) in self.pieces.iter_mut().enumerate() {
            let mut header = empty_header();
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            if each > 0
                && let Some(controls) = self.controls.get_mut(message * own..message * own + each)
            {
                header.msg_hdr.msg_control = controls.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = size_of_val(controls);
            }
            self.headers.push(header);
        }
    }

    /// The same as [`Calls::receive`] on a socket that several others send to. Their addresses come one for each
    /// message; none of a sender without an address of IP.
    ///
    /// # Errors
    /// The same.
    pub fn receive_from(
        &mut self,
        socket: impl AsFd,
        (buffer, place): (&mut [u8], usize),
        wait: bool,
        messages: &mut Vec<Message>,
        senders: &mut Vec<Option<SocketAddr>>,
    ) -> io::Result<()> {
        let wanted = Wanted { senders: true, stamps: false };
        let got = self.receive_with(socket, (buffer, place), wait, messages, wanted)?;
        self.take_senders(got, senders);
        Ok(())
    }

    /// The same as [`Calls::receive`] on a socket whose messages are stamped
    /// ([`enable`](crate::receive_stamps::enable)): there is a stamp for each message. Addresses come too where they are
    /// asked for.
    ///
    /// # Errors
    /// The same.
    pub fn receive_stamped(
        &mut self,
        socket: impl AsFd,
        (buffer, place): (&mut [u8], usize),
        wait: bool,
        messages: &mut Vec<Message>,
        (stamps, senders): (&mut Vec<Stamp>, Option<&mut Vec<Option<SocketAddr>>>),
    ) -> io::Result<()> {
        let wanted = Wanted { senders: senders.is_some(), stamps: true };
        let got = self.receive_with(socket, (buffer, place), wait, messages, wanted)?;
        let controls = self.headers[..got].iter().zip(&self.wide_controls);
        stamps.extend(
            controls.map(|(header, control)| control.read(header.msg_hdr.msg_controllen).stamp),
        );
        if let Some(senders) = senders {
            self.take_senders(got, senders);
        }
        Ok(())
    }

    /// The senders of the messages that came last.
    fn take_senders(&mut self, got: usize, senders: &mut Vec<Option<SocketAddr>>) {
        senders.extend(self.senders[..got].iter_mut().zip(&self.headers).map(
            |(sender, header)| {
                let storage = std::mem::replace(sender, SockAddrStorage::zeroed());
                // SAFETY: the kernel has written an address of this length, or none.
                unsafe { SockAddr::new(storage, header.msg_hdr.msg_namelen) }.as_socket()
            },
        ));
    }

    /// Receives as many messages as are there and as `buffer` has places of `place` bytes for, into
    /// one place each. Waits for the first where the socket blocks and `wait` says so.
    ///
    /// # Errors
    /// Those of recvmmsg(2) where not even one came.
    pub fn receive(
        &mut self,
        socket: impl AsFd,
        buffer: &mut [u8],
        place: usize,
        wait: bool,
        messages: &mut Vec<Message>,
    ) -> io::Result<()> {
        let wanted = Wanted { senders: false, stamps: false };
        self.receive_with(socket, (buffer, place), wait, messages, wanted).map(|_| ())
    }

    /// Returns how many messages came.
    fn receive_with(
        &mut self,
        socket: impl AsFd,
        (buffer, place): (&mut [u8], usize),
        wait: bool,
        messages: &mut Vec<Message>,
        wanted: Wanted,
    ) -> io::Result<usize> {
        self.clear();
        for piece in buffer.chunks_exact_mut(place.max(1)).take(MAX_MESSAGES) {
            let base = piece.as_mut_ptr().cast();
            self.pieces.push(libc::iovec { iov_base: base, iov_len: piece.len() });
        }
        for piece in &mut self.pieces {
            let mut header = empty_header();
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            self.headers.push(header);
        }
        if wanted.stamps {
            self.wide_controls.resize(self.pieces.len(), ControlBuffer::new());
            for (header, control) in self.headers.iter_mut().zip(&mut self.wide_controls) {
                control.attach(&mut header.msg_hdr);
            }
        } else {
            self.controls.resize(self.pieces.len(), Control::default());
            for (header, control) in self.headers.iter_mut().zip(&mut self.controls) {
                header.msg_hdr.msg_control = (&raw mut *control).cast();
                header.msg_hdr.msg_controllen = size_of::<Control>();
            }
        }
        if wanted.senders {
            self.senders.resize_with(self.pieces.len(), SockAddrStorage::zeroed);
            for (header, sender) in self.headers.iter_mut().zip(&mut self.senders) {
                header.msg_hdr.msg_name = (&raw mut *sender).cast();
                header.msg_hdr.msg_namelen = size_of_val(sender) as libc::socklen_t;
            }
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: each header points to one piece of `buffer`, to one control message and perhaps to one address, all
        // writable for the lengths given and alive until the call returns.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        for (number, header) in self.headers[..got].iter().enumerate() {
            let length = header.msg_len as usize;
            let control_length = header.msg_hdr.msg_controllen;
            let segment = match wanted.stamps {
                true => self.wide_controls[number].read(control_length).segment,
                false => self.controls[number].joined(control_length),
            };
            let segment = segment.and_then(|segment| usize::try_from(segment).ok());
            let segment = segment.unwrap_or(length).max(1);
            messages.push(Message { start: number * place, length, segment });
        }
        Ok(got)
    }

    fn clear(&mut self) {
        self.headers.clear();
        self.pieces.clear();
        self.controls.clear();
        self.wide_controls.clear();
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all-zero is a valid mmsghdr: no name, no pieces, no control.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    #[test]
    fn many_messages_by_one_call() {
        let (sender, receiver) = pair();
        let bytes: Vec<u8> = (0..60).collect();
        let mut calls = Calls::default();
        let sent = calls.send(&sender, &bytes, [10, 20, 30].into_iter(), None).unwrap();
        assert_eq!(sent, 3);
        let mut buffer = [0; 200];
        let mut messages = Vec::new();
        calls.receive(&receiver, &mut buffer, 50, true, &mut messages).unwrap();
        let lengths: Vec<_> = messages.iter().map(|m| (m.start, m.length, m.segment)).collect();
        assert_eq!(lengths, [(0, 10, 10), (50, 20, 20), (100, 30, 30)]);
        assert_eq!(buffer[100..130], bytes[30..]);
    }

    /// One call makes datagrams that a receiver who knows nothing of it gets one by one, and that
    /// one who allows it gets joined again.
    #[test]
    fn one_message_is_several_datagrams() {
        let (sender, receiver) = pair();
        let bytes: Vec<u8> = (0..250).collect();
        let mut calls = Calls::default();
        calls.send(&sender, &bytes, [250].into_iter(), Some(100)).unwrap();
        let mut one = [0; 300];
        let lengths = [(); 3].map(|()| receiver.recv(&mut one).unwrap());
        assert_eq!(lengths, [100, 100, 50]);

        enable_gro(&receiver).unwrap();
        calls.send(&sender, &bytes, [250].into_iter(), Some(100)).unwrap();
        let mut buffer = vec![0; 2 << 16];
        let mut messages = Vec::new();
        calls.receive(&receiver, &mut buffer, 1 << 16, true, &mut messages).unwrap();
        assert_eq!(messages, [Message { start: 0, length: 250, segment: 100 }]);
        assert_eq!(buffer[..250], bytes);
    }

    /// By one call, some of them cut into several datagrams.
    #[test]
    fn each_message_goes_to_its_receiver() {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let receivers = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [a, b] = receivers.each_ref().map(|receiver| receiver.local_addr().unwrap());
        let bytes: Vec<u8> = (0..100).collect();
        let mut calls = Calls::default();
        let mut one = [0; 50];
        for (segment, of_a, of_b) in
            [(Some(20), &[20, 20, 20][..], &[20, 20][..]), (None, &[40, 20], &[40])]
        {
            let to = [a, b, a].into_iter();
            let lengths = [40, 40, 20].into_iter();
            assert_eq!(calls.send_to(&sender, &bytes, lengths, segment, to, false).unwrap(), 3);
            for (receiver, expected) in receivers.iter().zip([of_a, of_b]) {
                let lengths: Vec<_> =
                    expected.iter().map(|_| receiver.recv(&mut one).unwrap()).collect();
                assert_eq!(lengths, expected);
            }
        }
        // The last datagram to the first one was that behind the other's.
        calls
            .send_to(&sender, &bytes, [90, 10].into_iter(), None, [b, a].into_iter(), false)
            .unwrap();
        let got = receivers[0].recv(&mut one).unwrap();
        assert_eq!(one[..got], bytes[90..]);
        // Connected sockets' calls are as they were.
        let (connected, other) = pair();
        calls.send(&connected, &bytes, [7].into_iter(), None).unwrap();
        assert_eq!(other.recv(&mut one).unwrap(), 7);
    }

    #[test]
    fn each_message_has_its_sender() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let senders = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for sender in senders.iter().chain(&senders[..1]) {
            sender.send_to(&[7; 10], receiver.local_addr().unwrap()).unwrap();
        }
        let (mut messages, mut from) = (Vec::new(), Vec::new());
        let mut calls = Calls::default();
        // Less room than messages at first, then more.
        let mut places = [3, 8].into_iter().cycle();
        while messages.len() < 4 {
            let buffer = (&mut vec![0; places.next().unwrap() * 20][..], 20);
            calls.receive_from(&receiver, buffer, true, &mut messages, &mut from).unwrap();
        }
        let expected: Vec<_> =
            senders.iter().chain(&senders[..1]).map(|sender| sender.local_addr().ok()).collect();
        assert_eq!((messages.len(), from), (4, expected));
    }

    /// Of joined datagrams too: one stamp, and the length of each.
    #[test]
    fn each_message_has_its_stamp() {
        let (sender, receiver) = pair();
        enable_gro(&receiver).unwrap();
        crate::receive_stamps::enable(&receiver).unwrap();
        let bytes: Vec<u8> = (0..250).collect();
        let mut calls = Calls::default();
        let mut buffer = vec![0; 4 << 16];
        for _ in 0..1000 {
            let before = crate::clock::realtime();
            calls.send(&sender, &bytes, [250].into_iter(), Some(100)).unwrap();
            calls.send(&sender, &bytes, [10, 20].into_iter(), None).unwrap();
            let (mut messages, mut stamps, mut senders) = (Vec::new(), Vec::new(), Vec::new());
            while messages.len() < 3 {
                let buffer = (&mut buffer[..], 1 << 16);
                let taken = (&mut stamps, Some(&mut senders));
                calls.receive_stamped(&receiver, buffer, true, &mut messages, taken).unwrap();
            }
            let shapes: Vec<_> = messages.iter().map(|m| (m.length, m.segment)).collect();
            assert_eq!(shapes, [(250, 100), (10, 10), (20, 20)]);
            assert_eq!(senders, [sender.local_addr().ok(); 3]);
            let stamps: Vec<_> = stamps.iter().filter_map(|stamp| stamp.software).collect();
            // Until the kernel has turned stamps on there may be none.
            if stamps.len() == 3 {
                assert!(stamps.is_sorted() && stamps[0] >= before, "{before} {stamps:?}");
                assert!(stamps[2] <= crate::clock::realtime());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("nothing was stamped in 5 s");
    }

    /// The control messages of a call, as the kernel would go through them (cmsg(3)).
    fn controls(calls: &Calls) -> Vec<Vec<(i32, i32, Vec<u8>)>> {
        let of_message = |header: &libc::mmsghdr| {
            let mut found = Vec::new();
            let header = &raw const header.msg_hdr;
            // SAFETY: the header and what it points to are those of `calls`, which outlive this.
            let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
            while !control.is_null() {
                // SAFETY: a control message within what the header names, by the macros of the C library.
                let (of, value) = unsafe {
                    let length = (*control).cmsg_len - libc::CMSG_LEN(0) as usize;
                    let value = std::slice::from_raw_parts(libc::CMSG_DATA(control), length);
                    ((*control).cmsg_level, value.to_vec())
                };
                // SAFETY: as above.
                found.push((of, unsafe { (*control).cmsg_type }, value));
                // SAFETY: as above.
                control = unsafe { libc::CMSG_NXTHDR(header, control) };
            }
            found
        };
        calls.headers.iter().map(of_message).collect()
    }

    #[test]
    fn each_message_has_its_departure_time_and_all_the_size_of_a_segment() {
        let bytes = [0; 60];
        let at = |message: usize| 1_000_000_007 * (message as Nanos + 1);
        let time = |message| (libc::SOL_SOCKET, SO_TXTIME, at(message).to_ne_bytes().to_vec());
        let size = || (libc::SOL_UDP, UDP_SEGMENT, 10u16.to_ne_bytes().to_vec());
        let lengths = || [20, 30, 10].into_iter();
        let mut calls = Calls::default();
        calls.lay_out(&bytes, lengths(), Some(10), Some(&at));
        let expected: Vec<_> = (0..3).map(|message| vec![size(), time(message)]).collect();
        assert_eq!(controls(&calls), expected);
        calls.lay_out(&bytes, lengths(), None, Some(&at));
        assert_eq!(controls(&calls), [vec![time(0)], vec![time(1)], vec![time(2)]]);
        calls.lay_out(&bytes, lengths(), Some(10), None);
        assert_eq!(controls(&calls), [(); 3].map(|()| vec![size()]));
        calls.lay_out(&bytes, lengths(), None, None);
        assert_eq!(controls(&calls), [(); 3].map(|()| vec![]));
    }

    /// The kernel takes the control messages, and only where the socket allows them.
    #[test]
    fn departure_times_take_an_option_of_the_socket() {
        let (sender, receiver) = pair();
        let mut calls = Calls::default();
        let mut send =
            |segment| calls.send_at(&sender, &[7; 40], [20, 20].into_iter(), segment, Some(&|_| 1));
        assert_eq!(send(None).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        enable_departure_times(&sender).unwrap();
        assert_eq!((send(None).unwrap(), send(Some(10)).unwrap()), (2, 2));
        let mut one = [0; 50];
        let lengths = [(); 6].map(|()| receiver.recv(&mut one).unwrap());
        assert_eq!(lengths, [20, 20, 10, 10, 10, 10]);
    }

    #[test]
    fn nothing_there_would_block() {
        let (_sender, receiver) = pair();
        let mut messages = Vec::new();
        let result = Calls::default().receive(&receiver, &mut [0; 10], 10, false, &mut messages);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(messages, []);
    }
}
