//! Sockets between a virtual machine and its host, vsock(7): numbers of machines, and buffers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::raw_option::SocketOption;

/// This machine itself, by way of the kernel's loopback transport (VMADDR_CID_LOCAL).
pub const LOCAL: u32 = libc::VMADDR_CID_LOCAL;
/// Any machine's number, and a port of the kernel's choice (VMADDR_CID_ANY, VMADDR_PORT_ANY).
pub const ANY: u32 = u32::MAX;

/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/vm_sockets.h#L29>
// SAFETY: a number of 64 bits.
const BUFFER_SIZE: SocketOption<u64> = unsafe { SocketOption::new(libc::AF_VSOCK, 0) };
// SAFETY: as above.
const BUFFER_MAX_SIZE: SocketOption<u64> = unsafe { SocketOption::new(libc::AF_VSOCK, 2) };

/// How other machines reach this one; [`LOCAL`] where none can.
#[must_use]
pub fn local_cid() -> u32 {
    /// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/vm_sockets.h#L197>
    const GET_LOCAL_CID: libc::c_ulong = 0x7b9;
    let Ok(device) = File::open("/dev/vsock") else {
        return LOCAL;
    };
    let mut cid: u32 = ANY;
    // SAFETY: the request writes one u32, which outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), GET_LOCAL_CID as _, &raw mut cid) };
    if result == 0 && cid != ANY { cid } else { LOCAL }
}

/// Sets how many bytes may be on their way to a socket, and lifts the limit of that before.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_buffer(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    BUFFER_MAX_SIZE.set(&socket, &bytes)?;
    BUFFER_SIZE.set(&socket, &bytes)
}

/// What [`set_buffer`] set.
///
/// # Errors
/// Those of getsockopt(2).
pub fn buffer(socket: impl AsFd) -> io::Result<u64> {
    BUFFER_SIZE.get(socket)
}
