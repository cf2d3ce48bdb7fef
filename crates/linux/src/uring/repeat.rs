//! A message that is sent several times by one operation (IORING_OP_SENDMSG): the kernel is given as many
//! pieces of memory, which all are the same bytes.

use std::ptr;

/// Times at most. The kernel takes up to 1024 pieces (UIO_MAXIOV,
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/uio.h#L29>).
pub(super) const MOST: usize = 256;

/// The pieces of each message that has been sent so. They stay as long as the ring.
#[derive(Debug, Default)]
pub(super) struct Messages(Vec<Message>);

#[derive(Debug)]
struct Message {
    from: *const u8,
    length: usize,
    pieces: Box<[libc::iovec]>,
}

impl Messages {
    /// What names the message, so many times over, to the kernel.
    pub(super) fn header(&mut self, from: *const u8, length: usize, times: usize) -> Header {
        let same = |message: &&mut Message| (message.from, message.length) == (from, length);
        let pieces = match self.0.iter_mut().find(same) {
            Some(message) => &mut message.pieces,
            None => {
                let piece = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: length };
                self.0.push(Message { from, length, pieces: vec![piece; MOST].into() });
                let last = self.0.len() - 1;
                &mut self.0[last].pieces
            }
        };
        Header(libc::msghdr {
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: times.clamp(1, MOST),
            // SAFETY: all-zero is a valid msghdr: no name, no pieces, no control.
            ..unsafe { std::mem::zeroed() }
        })
    }
}

/// Read by the kernel when the operation is handed over, and not later (IORING_FEAT_SUBMIT_STABLE).
pub(super) struct Header(libc::msghdr);

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header").field("pieces", &self.0.msg_iovlen).finish()
    }
}

impl Header {
    pub(super) fn address(&self) -> *const libc::msghdr {
        ptr::from_ref(&self.0)
    }
}
