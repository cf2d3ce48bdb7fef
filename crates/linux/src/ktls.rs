//! TLS in the kernel: who has done the handshake hands the keys over, and from then on reads and
//! writes the plain bytes. <https://docs.kernel.org/networking/tls.html>

use std::io;
use std::os::fd::AsFd;

use crate::raw_option::SocketOption;

/// Which cipher, by the number of <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tls.h#L60>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    Aes128Gcm = 51,
    Aes256Gcm = 52,
    ChaCha20Poly1305 = 54,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Send = 1,
    Receive = 2,
}

/// What TLS 1.3 (RFC 8446, section 7.3) protects one direction with.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    pub cipher: Cipher,
    pub key: &'a [u8],
    /// Of 12 bytes.
    pub iv: &'a [u8],
    /// Number of the next record.
    pub sequence: u64,
}

impl std::fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

/// Whether this kernel has TLS, or loads the module on request.
#[must_use]
pub fn available() -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    // A socket that is not connected is refused by TLS, and unknown to a kernel that has none.
    let answer = socket.and_then(attach);
    !matches!(answer, Err(error) if error.raw_os_error() == Some(libc::ENOENT))
}

/// Puts a connected TCP socket in the kernel's hands. Plain bytes go through until keys are set.
///
/// # Errors
/// Those of setsockopt(2): `NotFound` where the kernel has no TLS.
pub fn attach(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: a name, as long as it says.
    const UPPER_PROTOCOL: SocketOption<[u8; 3]> =
        unsafe { SocketOption::new(libc::IPPROTO_TCP, libc::TCP_ULP) };
    UPPER_PROTOCOL.set(socket, b"tls")
}

/// Sets the keys of one direction.
///
/// # Errors
/// Those of setsockopt(2): the kernel does not have the cipher, or the keys are no such keys.
pub fn set_keys(socket: impl AsFd, direction: Direction, keys: &Keys<'_>) -> io::Result<()> {
    const TLS_1_3: u16 = 0x0304;
    // SAFETY: version, cipher and keys, which the kernel copies and compares with the length:
    // https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tls.h
    let option: SocketOption<[u8]> =
        unsafe { SocketOption::new(libc::SOL_TLS, direction as libc::c_int) };
    // Of AES the kernel wants the iv in two parts, the first four bytes (the salt) last.
    let salt = if keys.cipher == Cipher::ChaCha20Poly1305 { 0 } else { 4 };
    let (salt, iv) = keys.iv.split_at_checked(salt).ok_or(io::ErrorKind::InvalidInput)?;
    let mut info = Vec::with_capacity(64);
    info.extend_from_slice(&TLS_1_3.to_ne_bytes());
    info.extend_from_slice(&(keys.cipher as u16).to_ne_bytes());
    info.extend_from_slice(iv);
    info.extend_from_slice(keys.key);
    info.extend_from_slice(salt);
    info.extend_from_slice(&keys.sequence.to_be_bytes());
    option.set(socket, &info)
}
