//! Socket options by level and number, for those that no library knows.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option whose value is a structure.
pub(crate) fn set<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the value outlives the slice, and the kernel alone reads it, padding included.
    let bytes = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
    };
    set_bytes(socket, level, name, bytes)
}

/// Sets an option whose value is these bytes.
pub(crate) fn set_bytes(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as there are, and they outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option into `value`, which may have to say what is wanted; returns the bytes filled in.
pub(crate) fn get(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the buffer is writable for `length` bytes and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result == 0 {
        Ok((length as usize).min(value.len()))
    } else {
        Err(io::Error::last_os_error())
    }
}
