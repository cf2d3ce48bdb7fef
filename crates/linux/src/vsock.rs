//! Sockets between a virtual machine and its host, vsock(7): numbers of machines.

use std::fs::File;
use std::os::fd::AsRawFd;

/// This machine itself, by way of the kernel's loopback transport (VMADDR_CID_LOCAL).
pub const LOCAL: u32 = libc::VMADDR_CID_LOCAL;
/// Any machine's number, and a port of the kernel's choice (VMADDR_CID_ANY, VMADDR_PORT_ANY).
pub const ANY: u32 = u32::MAX;

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
