//! What a Multipath TCP socket says of itself (RFC 8684).

use std::io;
use std::os::fd::AsFd;

use crate::raw_option::SocketOption;
use crate::tcp_info::{self, TcpInfo};

/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/socket.h#L401>
const SOL_MPTCP: libc::c_int = 284;
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/mptcp.h#L82>
// SAFETY: numbers, of which the kernel writes as many bytes as there is room for.
const MPTCP_INFO: SocketOption<[u8; 96]> = unsafe { SocketOption::new(SOL_MPTCP, 1) };
// SAFETY: as above. The shape of the array stands in the head, and the kernel writes no more than fits:
// https://elixir.bootlin.com/linux/v6.12/source/net/mptcp/sockopt.c
const MPTCP_TCPINFO: SocketOption<[u8; HEAD + SUBFLOWS * EACH]> =
    unsafe { SocketOption::new(SOL_MPTCP, 2) };

/// Subflows that are read; a connection has at most eight beside the first (`subflows_max`).
const SUBFLOWS: usize = 16;
/// `struct mptcp_subflow_data`, before the array of `struct tcp_info`, and what is read of each.
const HEAD: usize = 16;
const EACH: usize = 256;

/// Whether the connection has become plain TCP: the other end does not speak MPTCP, or something
/// on the path took its options out (RFC 8684, section 3.7). A socket that was accepted as plain
/// TCP has fallen back too. An unconnected one has not.
///
/// # Errors
/// Those of getsockopt(2).
pub fn fell_back(socket: impl AsFd) -> io::Result<bool> {
    /// Of `struct mptcp_info`.
    const FLAGS: usize = 8;
    const FALLBACK: u32 = 1;
    match MPTCP_INFO.get(socket) {
        Ok(bytes) => Ok(u32_at(&bytes, FLAGS) & FALLBACK != 0),
        // The question goes to the TCP socket beneath, which does not know it.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT)) =>
        {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// TCP_INFO of every subflow, the first one first.
///
/// # Errors
/// Those of getsockopt(2); `Unsupported` kernels before 5.16 do not have it.
pub fn subflows(socket: impl AsFd) -> io::Result<Vec<TcpInfo>> {
    let mut bytes = [0; HEAD + SUBFLOWS * EACH];
    bytes[..4].copy_from_slice(&(HEAD as u32).to_ne_bytes());
    bytes[12..16].copy_from_slice(&(EACH as u32).to_ne_bytes());
    MPTCP_TCPINFO.read(socket, &mut bytes)?;
    let number = (u32_at(&bytes, 4) as usize).min(SUBFLOWS);
    let known = (u32_at(&bytes, 8) as usize).min(EACH);
    let infos = bytes[HEAD..].chunks_exact(EACH).take(number);
    Ok(infos.map(|info| tcp_info::parse(&info[..known])).collect())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr};

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    fn socket(protocol: Protocol) -> io::Result<Socket> {
        Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))
    }

    fn connected(here: Protocol, there: Protocol) -> (Socket, Socket) {
        let listener = socket(there).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(1).unwrap();
        let client = socket(here).unwrap();
        client.connect(&listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, server)
    }

    fn skip() -> bool {
        let missing = socket(Protocol::MPTCP).is_err();
        if missing {
            crate::privilege::skip("mptcp", "the kernel has no MPTCP, or net.mptcp.enabled is 0");
        }
        missing
    }

    #[test]
    fn two_ends_that_speak_it_do_not_fall_back() {
        if skip() {
            return;
        }
        let (mut client, mut server) = connected(Protocol::MPTCP, Protocol::MPTCP);
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        assert!(!fell_back(&client).unwrap() && !fell_back(&server).unwrap());
        let subflows = subflows(&server).unwrap();
        assert_eq!(subflows.len(), 1);
        assert_eq!(subflows[0].bytes_received, Some(5000));
    }

    #[test]
    fn an_end_that_does_not_speak_it_is_told() {
        if skip() {
            return;
        }
        let (client, _server) = connected(Protocol::MPTCP, Protocol::TCP);
        assert!(fell_back(&client).unwrap());
        let (_client, server) = connected(Protocol::TCP, Protocol::MPTCP);
        assert!(fell_back(&server).unwrap());
    }
}
