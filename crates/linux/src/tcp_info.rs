//! TCP_INFO, as much of it as the running kernel knows.

use std::io;
use std::os::fd::AsFd;

use crate::raw_option::SocketOption;

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
    /// Bytes in the send buffer that have never been sent.
    pub not_sent: Option<u32>,
    /// Segments with data sent since the connection began, those sent again included.
    pub data_segments_out: Option<u32>,
    /// Packets that came beyond what was awaited.
    pub out_of_order: Option<u32>,
    /// Smallest round-trip time of the last five minutes (sysctl `tcp_min_rtt_wlen`), microseconds.
    pub min_rtt_us: Option<u32>,
    /// Largest packet that the path takes, bytes of IP.
    pub path_mtu: u32,
}

/// The rest of it that an observer wants. Counters are since the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpDetail {
    pub basic: TcpInfo,
    /// `enum tcp_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub congestion_state: u8,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    pub slow_start_threshold: u32,
    /// Bytes a second.
    pub pacing_rate: Option<u64>,
    pub delivery_rate: Option<u64>,
    pub segments_out: Option<u32>,
    pub segments_in: Option<u32>,
    /// A packet whose number of segments is not given with it counts as one.
    pub data_segments_in: Option<u32>,
    /// Segment size as the other end sends it, by what was received, bytes.
    pub receive_mss: u32,
    /// Largest segment that this end takes, bytes.
    pub advertised_mss: u32,
    /// Time with data in flight; the parts of it limited by the receiver's window, and by the send
    /// buffer. Microseconds.
    pub busy_us: Option<u64>,
    pub receive_window_limited_us: Option<u64>,
    pub send_buffer_limited_us: Option<u64>,
    /// Duplicates that the other end has told of (RFC 2883).
    pub dsack_duplicates: Option<u32>,
    /// Window that the other end grants, bytes.
    pub send_window: Option<u32>,
}

/// Offsets in `struct tcp_info`, which only ever grows at its end:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/tcp.h#L229>.
mod offset {
    pub(super) const CA_STATE: usize = 1;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const RCV_MSS: usize = 20;
    pub(super) const PMTU: usize = 60;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const ADVMSS: usize = 84;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const UNACKED: usize = 24;
    pub(super) const SND_SSTHRESH: usize = 76;
    pub(super) const PACING_RATE: usize = 104;
    pub(super) const SEGS_OUT: usize = 136;
    pub(super) const SEGS_IN: usize = 140;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DATA_SEGS_IN: usize = 152;
    pub(super) const DATA_SEGS_OUT: usize = 156;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BUSY_TIME: usize = 168;
    pub(super) const RWND_LIMITED: usize = 176;
    pub(super) const SNDBUF_LIMITED: usize = 184;
    pub(super) const DSACK_DUPS: usize = 216;
    pub(super) const RCV_OOOPACK: usize = 224;
    pub(super) const SND_WND: usize = 228;
}

/// Reads TCP_INFO of a connected TCP socket.
///
/// # Errors
/// Those of getsockopt(2): the socket is not TCP, or is closed.
pub fn read(socket: impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: a structure of numbers, of which the kernel writes as many bytes as it knows.
    const INFO: SocketOption<[u8; 256]> =
        unsafe { SocketOption::new(libc::IPPROTO_TCP, libc::TCP_INFO) };
    let mut bytes = [0; 256];
    let length = INFO.read(socket, &mut bytes)?;
    Ok(parse(&bytes[..length]))
}

/// Of `struct tcp_info`, as the kernel gives it elsewhere.
pub(crate) fn detail(bytes: &[u8]) -> TcpDetail {
    let u32_at =
        |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
    let u64_at =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
    // Without a rate yet, or without a limit, all bits are set.
    let rate = |at: usize| u64_at(at).filter(|&rate| rate != u64::MAX);
    TcpDetail {
        basic: parse(bytes),
        congestion_state: bytes.get(offset::CA_STATE).copied().unwrap_or(0),
        unacked: u32_at(offset::UNACKED).unwrap_or(0),
        slow_start_threshold: u32_at(offset::SND_SSTHRESH).unwrap_or(0),
        pacing_rate: rate(offset::PACING_RATE),
        delivery_rate: rate(offset::DELIVERY_RATE),
        segments_out: u32_at(offset::SEGS_OUT),
        segments_in: u32_at(offset::SEGS_IN),
        data_segments_in: u32_at(offset::DATA_SEGS_IN),
        receive_mss: u32_at(offset::RCV_MSS).unwrap_or(0),
        advertised_mss: u32_at(offset::ADVMSS).unwrap_or(0),
        busy_us: u64_at(offset::BUSY_TIME),
        receive_window_limited_us: u64_at(offset::RWND_LIMITED),
        send_buffer_limited_us: u64_at(offset::SNDBUF_LIMITED),
        dsack_duplicates: u32_at(offset::DSACK_DUPS),
        send_window: u32_at(offset::SND_WND),
    }
}

pub(crate) fn parse(bytes: &[u8]) -> TcpInfo {
    let known_u32_at =
        |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
    let u32_at = |at: usize| known_u32_at(at).unwrap_or(0);
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
        not_sent: known_u32_at(offset::NOTSENT_BYTES),
        data_segments_out: known_u32_at(offset::DATA_SEGS_OUT),
        out_of_order: known_u32_at(offset::RCV_OOOPACK),
        min_rtt_us: known_u32_at(offset::MIN_RTT).filter(|&rtt| rtt != u32::MAX),
        path_mtu: u32_at(offset::PMTU),
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
