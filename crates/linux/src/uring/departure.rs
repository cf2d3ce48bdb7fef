//! A datagram with a departure time (IORING_OP_SENDMSG): the control message that tells the kernel, and what names both.

use std::ptr;

use wirecost_model::clock::Nanos;

use crate::datagrams::Control;

/// Belongs to a link. The kernel reads it until the operation is completed: one that has to wait for room in the
/// socket's buffer takes the control message again when there is
/// (<https://elixir.bootlin.com/linux/v6.12/source/io_uring/net.c#L560>).
pub(super) struct Departing {
    header: libc::msghdr,
    piece: libc::iovec,
    control: Control,
}

impl std::fmt::Debug for Departing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Departing").field("control", &self.control).finish_non_exhaustive()
    }
}

impl Default for Departing {
    fn default() -> Self {
        Self {
            // SAFETY: all-zero is a valid msghdr: no name, no pieces, no control.
            header: unsafe { std::mem::zeroed() },
            piece: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            control: Control::default(),
        }
    }
}

impl Departing {
    /// Names bytes that are to leave at this instant, and returns where the header is.
    pub(super) fn name(
        &mut self,
        from: *const u8,
        length: usize,
        at: Nanos,
    ) -> *const libc::msghdr {
        self.piece = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: length };
        self.control = Control::departure(at);
        self.header.msg_iov = &raw mut self.piece;
        self.header.msg_iovlen = 1;
        self.header.msg_control = (&raw mut self.control).cast();
        self.header.msg_controllen = size_of::<Control>();
        ptr::from_ref(&self.header)
    }
}
