use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, SockAddr, Socket, Type};
use wirecost_model::plan::Address;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::Transport;
use crate::socket_options;

pub(super) struct UnixSeqpacket;

const BACKLOG: i32 = 65_535;
/// What the kernel keeps free of the buffer when it takes a message.
/// <https://elixir.bootlin.com/linux/v6.12/source/net/unix/af_unix.c#L1973>
const RESERVED: u64 = 32;

fn socket(setup: &SocketSetup) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking(), None)?;
    socket_options::set(&socket, Domain::UNIX, setup)?;
    Ok(socket)
}

fn path(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Unix(path) => SockAddr::unix(path),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{other} is not a path of a Unix socket"),
        )),
    }
}

impl Transport for UnixSeqpacket {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::unix_seqpacket::UnixSeqpacket
    }

    /// Found by asking a socket with these options: the buffer depends on `wndsz` and on
    /// net.core.wmem_default and wmem_max.
    fn longest_message(&self, setup: &SocketSetup) -> io::Result<Option<u64>> {
        let buffer = socket(setup)?.send_buffer_size()? as u64;
        Ok(Some(buffer.saturating_sub(RESERVED)))
    }

    /// The buffers of a ring are shorter than the longest message, and would cut it.
    fn bypasses_ring(&self) -> bool {
        true
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        let socket = socket(setup)?;
        socket.bind(&path(address)?)?;
        socket.listen(BACKLOG)?;
        Ok((socket.into(), address.clone()))
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        let socket = socket(setup)?;
        socket.connect(&path(address)?)?;
        Ok(socket.into())
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::net::{RecvFlags, SendFlags};
    use wirecost_model::profile::{IoValue, Options};

    use super::*;

    #[test]
    fn the_longest_message_arrives_whole_and_one_byte_more_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for wndsz in [None, Some(20_000), Some(100_000)] {
            let mut options = Options::default();
            if let Some(bytes) = wndsz {
                options.io.set("wndsz", IoValue::Number(bytes));
            }
            let setup = SocketSetup::new(&options, &protocols::unix_seqpacket::UnixSeqpacket);
            let place = Address::Unix(directory.path().join(format!("{wndsz:?}")));
            let (listener, address) = UnixSeqpacket.listen(&place, &setup).unwrap();
            let sender = UnixSeqpacket.connect(&address, &setup).unwrap();
            let receiver = rustix::net::accept(&listener).unwrap();
            UnixSeqpacket.accepted(&receiver, &setup).unwrap();

            let longest = UnixSeqpacket.longest_message(&setup).unwrap().unwrap() as usize;
            let message: Vec<u8> = (0..longest).map(|n| (n % 251) as u8).collect();
            let send = |bytes: &[u8]| rustix::net::send(&sender, bytes, SendFlags::NOSIGNAL);
            assert_eq!(send(&[&message[..], &[0]].concat()), Err(Errno::MSGSIZE));
            assert_eq!(send(&message), Ok(longest));
            let mut buffer = vec![0; longest + 1];
            let (got, _) = rustix::net::recv(&receiver, &mut buffer, RecvFlags::empty()).unwrap();
            assert!(buffer[..got] == message, "{got} of {longest}");

            // Two messages stay two.
            assert_eq!((send(b"one"), send(b"two")), (Ok(3), Ok(3)));
            let (got, _) = rustix::net::recv(&receiver, &mut buffer, RecvFlags::empty()).unwrap();
            assert_eq!(&buffer[..got], b"one");
        }
    }
}
