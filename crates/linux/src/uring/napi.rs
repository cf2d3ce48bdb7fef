//! Waits of a ring that look for packets at the device, which crate io-uring does not know.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::IoUring;

/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/io_uring.h#L592>
const IORING_REGISTER_NAPI: libc::c_uint = 27;

/// `struct io_uring_napi`, <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/io_uring.h#L729>.
/// What later kernels have made of its end means, as zeros, what the first did: the devices are those
/// of the sockets that the ring polls.
#[repr(C)]
#[derive(Default)]
struct Napi {
    busy_poll_microseconds: u32,
    prefer_busy_poll: u8,
    pad: [u8; 3],
    reserved: u64,
}

/// Returns what was set before, in microseconds.
pub(super) fn register(ring: &IoUring, microseconds: u32) -> io::Result<u32> {
    let mut napi =
        Napi { busy_poll_microseconds: microseconds, prefer_busy_poll: 1, ..Napi::default() };
    // SAFETY: the kernel reads the structure that the request is defined with, and writes one.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IORING_REGISTER_NAPI,
            &raw mut napi,
            1,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(napi.busy_poll_microseconds)
}
