//! A socket of frames: memory that it shares with the kernel, and a ring for each way that frames take between them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};

use super::Mode;
use super::rings::{Descriptor, Mapping, Offsets, Ring};
use crate::raw_option::SocketOption;

/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/if_xdp.h>
const SOL_XDP: libc::c_int = 283;
const XDP_MMAP_OFFSETS: libc::c_int = 1;
const XDP_RX_RING: libc::c_int = 2;
const XDP_TX_RING: libc::c_int = 3;
const XDP_UMEM_REG: libc::c_int = 4;
const XDP_UMEM_FILL_RING: libc::c_int = 5;
const XDP_UMEM_COMPLETION_RING: libc::c_int = 6;
const XDP_STATISTICS: libc::c_int = 7;
const XDP_OPTIONS: libc::c_int = 8;
const XDP_OPTIONS_ZEROCOPY: u32 = 1 << 0;
const XDP_COPY: u16 = 1 << 1;
const XDP_USE_NEED_WAKEUP: u16 = 1 << 3;
const PAGE_RX_RING: u64 = 0;
const PAGE_TX_RING: u64 = 0x8000_0000;
const PAGE_FILL_RING: u64 = 0x1_0000_0000;
const PAGE_COMPLETION_RING: u64 = 0x1_8000_0000;

/// A queue is free some time after its socket has been closed, as the kernel releases the memory in a worker of its own
/// (`xp_put_pool` in <https://elixir.bootlin.com/linux/v6.12/source/net/xdp/xsk_buff_pool.c>).
const RELEASE: Duration = Duration::from_secs(2);

/// What the kernel keeps free in front of each frame that it receives (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Lengths of a place in the memory: a power of two, and at most a page
/// (<https://elixir.bootlin.com/linux/v6.12/source/net/xdp/xdp_umem.c#L167>).
const SMALL: u32 = 2048;
const LARGE: u32 = 4096;
/// Entries of a ring are 2^n.
pub(super) const FRAMES: u32 = 2048;
/// Frames that a call sends in copy mode.
const BATCH: u32 = 32;

static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes)]
struct AllOffsets {
    receive: Offsets,
    transmit: Offsets,
    fill: Offsets,
    completion: Offsets,
}

/// `struct xdp_umem_reg`, as every kernel with AF_XDP knows it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Memory {
    address: u64,
    length: u64,
    place: u32,
    headroom: u32,
}

/// `struct xdp_statistics`. Kernels before 5.9 tell the first three.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes)]
pub struct Statistics {
    /// Frames that were dropped because they were too long, or (in copy mode) as there was no place for them: the fill ring
    /// was empty.
    pub rx_dropped: u64,
    pub rx_invalid_descs: u64,
    pub tx_invalid_descs: u64,
    /// Frames that were dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// How often the kernel found no free place. In copy mode each of these frames is one of `rx_dropped`.
    pub rx_fill_ring_empty_descs: u64,
    pub tx_ring_empty_descs: u64,
}

impl Statistics {
    /// Frames that came to the socket and were lost there.
    pub fn lost(&self) -> u64 {
        self.rx_dropped + self.rx_ring_full
    }
}

/// `struct sockaddr_xdp`.
#[repr(C)]
struct Address {
    family: u16,
    flags: u16,
    device: u32,
    queue: u32,
    shared: u32,
}

// SAFETY: the kernel takes and tells bytes of these structures, and follows no addresses in them.
const OFFSETS: SocketOption<AllOffsets> = unsafe { SocketOption::new(SOL_XDP, XDP_MMAP_OFFSETS) };
// SAFETY: the same.
const STATISTICS: SocketOption<Statistics> = unsafe { SocketOption::new(SOL_XDP, XDP_STATISTICS) };

/// `struct xdp_options`: flags.
const OPTIONS: SocketOption<u32> = ring_size(XDP_OPTIONS);

const fn ring_size(name: libc::c_int) -> SocketOption<u32> {
    // SAFETY: a number.
    unsafe { SocketOption::new(SOL_XDP, name) }
}

/// Where a socket sends and receives.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub device: u32,
    pub queue: u32,
    pub mode: Mode,
    /// The longest frame, bytes.
    pub longest: u32,
    /// Whether it has memory for frames to send.
    pub sends: bool,
}

/// A frame that has come: a place in the socket's memory, to be given back by [`FrameSocket::give_back`].
#[derive(Debug)]
pub struct Received {
    start: u64,
    length: u32,
    /// Number of the socket whose memory it is in.
    socket: u32,
}

impl Received {
    pub fn length(&self) -> usize {
        self.length as usize
    }
}

/// A socket of one queue of a device. Half of its memory is for frames that it receives, and half, where it has that, for
/// those that it sends.
#[derive(Debug)]
pub struct FrameSocket {
    // Before the memory, which the kernel uses until the socket is closed.
    socket: OwnedFd,
    receive: Ring<Descriptor>,
    transmit: Ring<Descriptor>,
    fill: Ring<u64>,
    completion: Ring<u64>,
    memory: Mapping,
    place: u32,
    /// Places that can be sent from.
    free: Vec<u64>,
    longest: u32,
    /// The driver reads and writes the memory itself.
    zero_copy: bool,
    /// Of the sockets of this process.
    number: u32,
    /// System calls that had the kernel send.
    calls: u64,
}

/// Why this process cannot have such sockets.
pub fn why_not() -> Option<String> {
    match open() {
        Ok(_) => None,
        Err(error) => Some(match Errno::from_io_error(&error) {
            Some(Errno::PERM) => "AF_XDP sockets need CAP_NET_RAW".to_owned(),
            Some(Errno::AFNOSUPPORT) => {
                "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)".to_owned()
            }
            _ => format!("AF_XDP socket: {error}"),
        }),
    }
}

/// Length of a place for frames of so many bytes.
fn place(longest: u32) -> Option<u32> {
    match longest {
        longest if longest <= SMALL - HEADROOM => Some(SMALL),
        longest if longest <= FrameSocket::LONGEST => Some(LARGE),
        _ => None,
    }
}

/// Places in the memory of a socket: those for received frames are the first.
fn frames(sends: bool) -> u32 {
    if sends { 2 * FRAMES } else { FRAMES }
}

fn open() -> io::Result<OwnedFd> {
    let family = AddressFamily::from_raw(libc::AF_XDP as u16);
    Ok(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

impl FrameSocket {
    /// Places for received frames.
    pub const PLACES: u32 = FRAMES;

    /// Longest frame that a socket can have.
    pub const LONGEST: u32 = LARGE - HEADROOM;

    /// Bytes of memory for frames that a socket takes.
    pub fn memory_of(longest: u32, sends: bool) -> u64 {
        let place = place(longest).unwrap_or(LARGE);
        u64::from(frames(sends)) * u64::from(place)
    }

    /// # Errors
    /// `InvalidInput` where the device has no such queue, or frames are too long; `ResourceBusy` where another socket
    /// has the queue; others of the system calls.
    pub fn open(setup: &Setup) -> io::Result<Self> {
        let place = place(setup.longest).ok_or(io::ErrorKind::InvalidInput)?;
        let frames = frames(setup.sends);
        let socket = open()?;
        // What is sent counts for its socket until the device is done with it.
        let room = (2 * FRAMES * place) as usize;
        let forced = sockopt::set_socket_send_buffer_size_force(&socket, room);
        forced.or_else(|_| sockopt::set_socket_send_buffer_size(&socket, room))?;
        let memory = Mapping::anonymous(frames as usize * place as usize)?;
        let registered = Memory {
            address: memory.address(),
            length: memory.length() as u64,
            place,
            headroom: 0,
        };
        // SAFETY: the kernel reads the structure, and keeps the memory that it names until the socket is closed,
        // which happens before it is unmapped, or (where `open` fails) while nothing else is mapped there.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                SOL_XDP,
                XDP_UMEM_REG,
                (&raw const registered).cast(),
                size_of::<Memory>() as libc::socklen_t,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let rings = [XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING];
        for ring in rings {
            ring_size(ring).set(&socket, &FRAMES)?;
        }
        let offsets = OFFSETS.get(&socket)?;
        let receive = Ring::map(&socket, PAGE_RX_RING, offsets.receive, FRAMES)?;
        let transmit = Ring::map(&socket, PAGE_TX_RING, offsets.transmit, FRAMES)?;
        let mut fill: Ring<u64> = Ring::map(&socket, PAGE_FILL_RING, offsets.fill, FRAMES)?;
        let completion = Ring::map(&socket, PAGE_COMPLETION_RING, offsets.completion, FRAMES)?;
        let places = |range: std::ops::Range<u32>| range.map(|n| u64::from(n) * u64::from(place));
        for start in places(0..FRAMES) {
            fill.push(start);
        }
        fill.publish();
        let free = places(FRAMES..frames).rev().collect();
        let deadline = Instant::now() + RELEASE;
        while let Err(error) = bind(&socket, setup) {
            let is_busy = Errno::from_io_error(&error) == Some(Errno::BUSY);
            if !is_busy || Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let longest = setup.longest;
        let zero_copy = OPTIONS.get(&socket)? & XDP_OPTIONS_ZEROCOPY != 0;
        Ok(Self {
            socket,
            receive,
            transmit,
            fill,
            completion,
            memory,
            place,
            free,
            longest,
            zero_copy,
            number: SOCKETS.fetch_add(1, Ordering::Relaxed),
            calls: 0,
        })
    }

    /// Puts a frame of so many bytes into the transmit ring, which `write` writes; `None` where there is no room. The
    /// kernel sends it at [`FrameSocket::hand_over`].
    ///
    /// # Errors
    /// `InvalidInput` for a frame that is longer than the longest.
    #[inline]
    pub fn send<T>(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> T,
    ) -> io::Result<Option<T>> {
        if length > self.longest as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(&start) = self.free.last() else { return Ok(None) };
        let descriptor = Descriptor { address: start, length: length as u32, options: 0 };
        if !self.transmit.push(descriptor) {
            return Ok(None);
        }
        self.free.pop();
        let frame =
            self.memory.get_mut(start as usize, length).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Some(write(frame)))
    }

    /// Takes back the places of frames that have been sent.
    fn reclaim(&mut self) {
        while let Some(start) = self.completion.pop() {
            self.free.push(start);
        }
        self.completion.release();
    }

    /// Whether a frame can be put into the transmit ring.
    pub fn has_room(&mut self) -> bool {
        self.reclaim();
        !self.free.is_empty() && self.transmit.room() > 0
    }

    /// Has the kernel send what is in the transmit ring. Returns whether it has taken all of it: where it has not, the
    /// device is busy.
    ///
    /// # Errors
    /// Those of sendto(2), as where the device is down.
    pub fn hand_over(&mut self) -> io::Result<bool> {
        self.transmit.publish();
        // The kernel asks for a call, and then looks at the ring once more: the entries have to be there before the flag
        // is read. https://docs.kernel.org/networking/af_xdp.html (XDP_USE_NEED_WAKEUP)
        fence(Ordering::SeqCst);
        // In copy mode a call sends 32 frames, and says EAGAIN where there are more. How far it has come, kernels
        // before 6.17 tell only when the ring is empty. (`TX_BATCH_SIZE` and `__xsk_generic_xmit` in
        // https://elixir.bootlin.com/linux/v6.12/source/net/xdp/xsk.c)
        for _ in 0..self.transmit.waiting().div_ceil(BATCH) {
            if self.transmit.waiting() == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            self.calls += 1;
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.reclaim();
        }
        Ok(self.transmit.waiting() == 0)
    }

    /// The next frame that has come.
    #[inline]
    pub fn receive(&mut self) -> Option<Received> {
        let descriptor = self.receive.pop()?;
        self.receive.release();
        let (start, length) = (descriptor.address, descriptor.length);
        Some(Received { start, length, socket: self.number })
    }

    /// The bytes of a frame.
    #[inline]
    pub fn bytes(&self, frame: &Received) -> &[u8] {
        // Another socket's memory is not this one's, and the kernel may be writing there.
        let own = frame.socket == self.number;
        let bytes = own.then(|| self.memory.get(frame.start as usize, frame.length())).flatten();
        bytes.unwrap_or_default()
    }

    /// Lets the kernel receive into the place of a frame again.
    #[inline]
    pub fn give_back(&mut self, frame: Received) {
        // The kernel tells where the frame begins, which is behind the headroom of its place.
        if frame.socket != self.number {
            // The place of another socket is not this one's to give.
            return;
        }
        self.fill.push(frame.start & !u64::from(self.place - 1));
        self.fill.publish();
        if self.zero_copy {
            fence(Ordering::SeqCst);
            if self.fill.needs_wakeup() {
                // A driver that found no place waits for a call. It receives nothing here: AF_XDP has no other data.
                let _ = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
            }
        }
    }

    /// # Errors
    /// Those of getsockopt(2).
    pub fn statistics(&self) -> io::Result<Statistics> {
        STATISTICS.get(&self.socket)
    }

    /// Calls of sendto(2) that had the kernel send frames. Waiting by epoll(7) sends too, and is not counted.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

fn bind(socket: &OwnedFd, setup: &Setup) -> io::Result<()> {
    let copy = match setup.mode {
        Mode::Generic => XDP_COPY,
        // The kernel takes the driver's zero-copy where there is one.
        Mode::Native => 0,
    };
    let address = Address {
        family: libc::AF_XDP as u16,
        flags: copy | XDP_USE_NEED_WAKEUP,
        device: setup.device,
        queue: setup.queue,
        shared: 0,
    };
    // SAFETY: the kernel reads as many bytes as it is told.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<Address>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
