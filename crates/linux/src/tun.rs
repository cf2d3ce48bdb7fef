//! A network device whose packets a program reads and writes (linux/if_tun.h).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

/// Comes before each packet: `struct virtio_net_hdr`.
pub const PREFIX: usize = 10;

/// The program's end of a device of the calling thread's network namespace. The device is gone when
/// this is dropped.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Creates a device of IP packets, each behind a `struct virtio_net_hdr`. [`Tun::receive`] waits.
    ///
    /// # Errors
    /// Those of open(2) and ioctl(2): without CAP_NET_ADMIN, or where the name is taken.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::open(name, libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR, 0)
    }

    /// Creates a device that takes and gives several packets as one, and packets without checksum. UDP's are
    /// among them if the kernel can (6.2). [`Tun::receive`] does not wait, and what [`Tun::send`] gives the kernel is
    /// received in softirq context, as from a device (NAPI).
    ///
    /// Returns an end for each of its queues, of which it has at least one. What is sent through one is received on
    /// that queue, by the CPU of the caller.
    ///
    /// # Errors
    /// Those of [`Tun::create`].
    pub fn create_with_offloads(name: &str, queues: u8) -> io::Result<Vec<Self>> {
        let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_NAPI;
        if queues > 1 {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let open = |_| {
            let tun = Self::open(name, flags, libc::O_NONBLOCK)?;
            tun.set_offloads(tcp | udp).or_else(|_| tun.set_offloads(tcp))?;
            Ok(tun)
        };
        (0..queues.max(1)).map(open).collect()
    }

    /// Has the device ask a BPF program (`BPF_PROG_TYPE_SOCKET_FILTER`), which sees a packet from its IP header on,
    /// through which queue [`Tun::receive`] gets it.
    /// <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/tun.c#L520>
    ///
    /// # Errors
    /// Those of ioctl(2): a kernel before 4.16.
    pub fn steer(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program: libc::c_int = program.as_raw_fd();
        // SAFETY: both descriptors are valid for the call, which reads an integer.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::TUNSETSTEERINGEBPF as _,
                std::ptr::from_ref(&program),
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn open(name: &str, flags: libc::c_int, file_flags: libc::c_int) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(file_flags)
            .open("/dev/net/tun")?;
        // SAFETY: an all-zero ifreq is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0: a name ends there.
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the descriptor and the structure are valid for the call, which reads the name and
        // the flags and writes the name.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) };
        if result == 0 { Ok(Self(file)) } else { Err(io::Error::last_os_error()) }
    }

    fn set_offloads(&self, offloads: libc::c_uint) -> io::Result<()> {
        // SAFETY: the descriptor is valid for the call, which takes an integer.
        let result = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads))
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The next packet that the kernel sends, its prefix included.
    ///
    /// # Errors
    /// Those of read(2): `WouldBlock` where it does not wait and there is none.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(packet)
    }

    /// Gives the kernel a packet, its prefix included.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write_all(packet)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
