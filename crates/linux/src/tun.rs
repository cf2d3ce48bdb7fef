//! A network device whose packets a program reads and writes (linux/if_tun.h).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

/// Comes before each packet: `struct virtio_net_hdr`.
pub const PREFIX: usize = 10;

/// The program's end of a device of the calling thread's network namespace. The device is gone when
/// this is dropped.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Creates a device of IP packets, each behind a `struct virtio_net_hdr`.
    ///
    /// # Errors
    /// Those of open(2) and ioctl(2): without CAP_NET_ADMIN, or where the name is taken.
    pub fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: an all-zero ifreq is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0: a name ends there.
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the descriptor and the structure are valid for the call, which reads the name and
        // the flags and writes the name.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) };
        if result == 0 { Ok(Self(file)) } else { Err(io::Error::last_os_error()) }
    }

    /// The next packet that the kernel sends, its prefix included. Waits for it.
    ///
    /// # Errors
    /// Those of read(2).
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
