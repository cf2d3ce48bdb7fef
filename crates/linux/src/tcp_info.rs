//! TCP_INFO, as much of it as the running kernel knows.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What a TCP socket says of itself. Fields that this kernel is too old to tell are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time and its variation, microseconds.
    pub rtt_us: u32,
    pub rtt_variation_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// Maximum segment size in use for sending, bytes.
    pub mss: u32,
    /// Bytes the other end has acknowledged (its handshake's sequence number not counted).
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
}

/// Offsets in `struct tcp_info`, which only ever grows at its end:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tcp.h#L229>.
mod offset {
    pub(super) const SND_MSS: usize = 16;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
}

/// Reads TCP_INFO of a connected TCP socket.
///
/// # Errors
/// Those of getsockopt(2): the socket is not TCP, or is closed.
pub fn read(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; 256];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the buffer is writable for `length` bytes and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse(&bytes[..(length as usize).min(bytes.len())]))
}

fn parse(bytes: &[u8]) -> TcpInfo {
    let u32_at = |at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    let u64_at =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
    TcpInfo {
        rtt_us: u32_at(offset::RTT),
        rtt_variation_us: u32_at(offset::RTTVAR),
        cwnd: u32_at(offset::SND_CWND),
        retransmits: u32_at(offset::TOTAL_RETRANS),
        mss: u32_at(offset::SND_MSS),
        bytes_acked: u64_at(offset::BYTES_ACKED),
        bytes_received: u64_at(offset::BYTES_RECEIVED),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn counts_what_a_connection_moved() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        server.write_all(&[7; 11]).unwrap();
        client.read_exact(&mut [0; 11]).unwrap();
        let (sent, got) = (read(&client).unwrap(), read(&server).unwrap());
        // The kernel counts the handshake's SYN as an acknowledged byte of the connecting side.
        assert_eq!(sent.bytes_acked, Some(5001));
        assert_eq!(sent.bytes_received, Some(11));
        assert_eq!(got.bytes_received, Some(5000));
        assert!(sent.mss > 0 && sent.cwnd > 0 && sent.rtt_us > 0);
    }

    #[test]
    fn a_short_structure_leaves_new_fields_unknown() {
        let info = parse(&[0; 104]);
        assert_eq!(info.bytes_acked, None);
    }
}
