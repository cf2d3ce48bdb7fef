//! AF_XDP: frames of a device without the kernel's IP and UDP, and the attachment of the program that selects them.
//! <https://docs.kernel.org/networking/af_xdp.html>

mod map;
mod path;
mod queues;
mod rings;
mod socket;

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

pub use self::map::Map;
pub use self::path::{Device, Path, device_of_address, path};
pub use self::queues::{Queues, queues};
pub use self::socket::{FrameSocket, Received, Setup, Statistics, why_not};

/// `BPF_LINK_CREATE` of `enum bpf_cmd` and `BPF_XDP` of `enum bpf_attach_type` in
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/bpf.h>.
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_XDP: u32 = 37;
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/if_link.h> (`XDP_FLAGS_SKB_MODE`)
const SKB_MODE: u32 = 1 << 1;
const DRIVER_MODE: u32 = 1 << 2;

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the network stack, for any device, after the kernel has made its `sk_buff`.
    Generic,
    /// In the device's driver.
    Native,
}

/// The part of `union bpf_attr` that `BPF_LINK_CREATE` reads.
#[repr(C)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches an XDP program to a device for as long as the returned link is open: the kernel detaches it when the last
/// process that has the link is gone.
///
/// # Errors
/// `AlreadyExists` or `ResourceBusy` where the device has a program; `Unsupported` for [`Mode::Native`] where its driver
/// runs none.
pub fn attach(program: impl AsFd, device: u32, mode: Mode) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: program.as_fd().as_raw_fd().cast_unsigned(),
        device,
        attach_type: BPF_XDP,
        flags: match mode {
            Mode::Generic => SKB_MODE,
            Mode::Native => DRIVER_MODE,
        },
    };
    // SAFETY: the kernel reads as many bytes as it is told, and takes the rest of the union as zero.
    let link = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const attributes,
            size_of::<LinkCreate>(),
        )
    };
    match i32::try_from(link) {
        // SAFETY: the kernel has just made this descriptor, which nobody else has.
        Ok(link) if link >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(link) }),
        _ => Err(io::Error::last_os_error()),
    }
}
