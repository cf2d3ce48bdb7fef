//! One TLS connection over a socket that may say "would block" at any time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, ConnectionTrafficSecrets, ServerConfig};
use wirecost_linux::ktls::{self, Direction, Keys};
use wirecost_model::profile::Cipher;
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::net::Interest;

/// Plain bytes that one call encrypts: four records. Fewer would be more system calls for a large
/// message, more would fall out of the cache before they are sent.
const MOST: usize = 64 << 10;
/// What is received at a time grows up to this while there is more than fits.
const MAX_RECEIVED: usize = 128 << 10;
const FIRST_RECEIVED: usize = 4 << 10;
/// Header, type, and tag: what a record adds (RFC 8446, section 5.2).
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
const RECORD: usize = 16 << 10;
const HEADER: usize = 5;

/// The state of a connection. Its socket is handed in with each call.
pub(crate) struct Session {
    side: Side,
    cipher: Cipher,
    /// Received and not yet decrypted: from `start` to `end`.
    incoming: Vec<u8>,
    start: usize,
    end: usize,
    /// To be sent, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    /// Plain bytes that `outgoing` holds, and whose sender has not been told so.
    accepted: usize,
    /// Decrypted and not yet taken, from `given` on.
    plain: Vec<u8>,
    given: usize,
    /// The kernel is to take over, so nothing may be received that it has to decrypt.
    for_kernel: bool,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("for_kernel", &self.for_kernel).finish_non_exhaustive()
    }
}

/// How far rustls is with what it has been given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There may be more to do.
    Again,
    /// The handshake needs bytes of the other end.
    Blocked,
    /// Data may be sent; what has come is decrypted.
    Open,
    /// The other end has ended it.
    Closed,
}

/// Where decrypted bytes go: to who asked for them, and the rest is kept.
struct Sink<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    rest: &'a mut Vec<u8>,
}

impl Sink<'_> {
    fn take(&mut self, bytes: &[u8]) {
        let here = bytes.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..self.filled + here].copy_from_slice(&bytes[..here]);
        self.filled += here;
        self.rest.extend_from_slice(&bytes[here..]);
    }

    fn is_full(&self) -> bool {
        self.filled == self.buffer.len()
    }
}

impl Session {
    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        cipher: Cipher,
        for_kernel: bool,
    ) -> io::Result<Self> {
        let connection = UnbufferedClientConnection::new(config, name).map_err(failed)?;
        Ok(Self::new(Side::Client(connection), cipher, for_kernel))
    }

    pub(super) fn server(
        config: Arc<ServerConfig>,
        cipher: Cipher,
        for_kernel: bool,
    ) -> io::Result<Self> {
        let connection = UnbufferedServerConnection::new(config).map_err(failed)?;
        Ok(Self::new(Side::Server(connection), cipher, for_kernel))
    }

    fn new(side: Side, cipher: Cipher, for_kernel: bool) -> Self {
        Self {
            side,
            cipher,
            incoming: Vec::new(),
            start: 0,
            end: 0,
            outgoing: Vec::new(),
            sent: 0,
            accepted: 0,
            plain: Vec::new(),
            given: 0,
            for_kernel,
        }
    }

    /// Goes on with the handshake; what it waits for, or `None` when it is complete.
    ///
    /// # Errors
    /// Those of the socket; the other end is not who it should be, or no TLS.
    pub(crate) fn handshake(&mut self, socket: &OwnedFd) -> io::Result<Option<Interest>> {
        loop {
            let (stage, _) = self.process(&mut [])?;
            match self.flush(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(Interest::Writable));
                }
                flushed => flushed?,
            }
            match stage {
                Stage::Open => return Ok(None),
                Stage::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                Stage::Blocked | Stage::Again => match self.fill(socket, RecvFlags::empty()) {
                    Ok(0) => {
                        let message =
                            "the other end closed the connection during the TLS handshake";
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Some(Interest::Readable));
                    }
                    filled => drop(filled?),
                },
            }
        }
    }

    pub(crate) fn is_for_kernel(&self) -> bool {
        self.for_kernel
    }

    /// The cipher that the two ends have agreed on, which is the only one they were offered.
    pub(crate) fn effective(&self) -> EffectiveSetting {
        let suite = match &self.side {
            Side::Client(connection) => connection.negotiated_cipher_suite(),
            Side::Server(connection) => connection.negotiated_cipher_suite(),
        };
        let effective = suite.and_then(|suite| suite.suite().as_str()).unwrap_or_default();
        let effective = effective.replacen("TLS13_", "TLS_", 1);
        EffectiveSetting { name: "cipher", requested: self.cipher.suite().to_owned(), effective }
    }

    /// Encrypts and sends. Where the socket takes only a part, the call must be repeated with the
    /// same bytes, of which none have counted yet.
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when it has no room.
    pub(crate) fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        if !self.holds_unsent() {
            let piece = &bytes[..bytes.len().min(MOST)];
            self.encrypt(piece)?;
            self.accepted = piece.len();
        }
        self.flush(socket)?;
        Ok(std::mem::take(&mut self.accepted))
    }

    /// Whether a call of [`Session::send`] is to be repeated; it will not look at the bytes then.
    pub(crate) fn holds_unsent(&self) -> bool {
        self.accepted > 0
    }

    /// Receives and decrypts. 0: the other end has closed.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` for what the keys do not fit.
    pub(crate) fn receive(
        &mut self,
        socket: &OwnedFd,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> io::Result<usize> {
        if self.given < self.plain.len() {
            let kept = &self.plain[self.given..];
            let here = kept.len().min(buffer.len());
            buffer[..here].copy_from_slice(&kept[..here]);
            self.given += here;
            if self.given == self.plain.len() {
                self.plain.clear();
                self.given = 0;
            }
            return Ok(here);
        }
        loop {
            let (stage, got) = self.process(buffer)?;
            // An answer to a change of keys; what the socket does not take goes with the next
            // bytes.
            match self.flush(socket) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            if got > 0 || buffer.is_empty() || stage == Stage::Closed {
                return Ok(got);
            }
            if self.fill(socket, flags)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Has the kernel encrypt and decrypt from now on.
    ///
    /// # Errors
    /// When the kernel does not take the keys.
    pub(crate) fn hand_over(self, socket: &OwnedFd) -> io::Result<()> {
        if self.start < self.end || !self.plain.is_empty() {
            return Err(io::Error::other("data came before the kernel had the keys"));
        }
        let secrets = match self.side {
            Side::Client(connection) => {
                connection.dangerous_into_kernel_connection().map(|(s, _)| s)
            }
            Side::Server(connection) => {
                connection.dangerous_into_kernel_connection().map(|(s, _)| s)
            }
        };
        let secrets = secrets.map_err(failed)?;
        ktls::attach(socket)?;
        for (direction, (sequence, secrets)) in
            [(Direction::Send, secrets.tx), (Direction::Receive, secrets.rx)]
        {
            let (cipher, key, iv) = match &secrets {
                ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                    (ktls::Cipher::Aes128Gcm, key, iv)
                }
                ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                    (ktls::Cipher::Aes256Gcm, key, iv)
                }
                ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                    (ktls::Cipher::ChaCha20Poly1305, key, iv)
                }
                _ => return Err(io::Error::other("a cipher that the kernel does not know")),
            };
            let keys = Keys { cipher, key: key.as_ref(), iv: iv.as_ref(), sequence };
            ktls::set_keys(socket, direction, &keys).map_err(|error| {
                let message = format!("the kernel does not take the keys of {cipher:?}: {error}");
                io::Error::new(error.kind(), message)
            })?;
        }
        Ok(())
    }

    /// Lets rustls do what it can with what has come, until `buffer` is full. What it has to say to
    /// the other end is in `outgoing` then. Returns how far it is, and the bytes in `buffer`.
    fn process(&mut self, buffer: &mut [u8]) -> io::Result<(Stage, usize)> {
        let mut sink = Sink { buffer, filled: 0, rest: &mut self.plain };
        let stage = loop {
            let incoming = &mut self.incoming[self.start..self.end];
            let (discard, stage) = match &mut self.side {
                Side::Client(connection) => {
                    let status = connection.process_tls_records(incoming);
                    step(status, &mut self.outgoing, &mut sink, &[])
                }
                Side::Server(connection) => {
                    let status = connection.process_tls_records(incoming);
                    step(status, &mut self.outgoing, &mut sink, &[])
                }
            }?;
            self.start += discard;
            if stage != Stage::Again || (sink.filled > 0 && sink.is_full()) {
                break stage;
            }
        };
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        Ok((stage, sink.filled))
    }

    /// Puts the records of these bytes behind what is to be sent.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sink = Sink { buffer: &mut [], filled: 0, rest: &mut self.plain };
        loop {
            // What has come is left for who receives.
            let (_, stage) = match &mut self.side {
                Side::Client(connection) => {
                    let status = connection.process_tls_records(&mut []);
                    step(status, &mut self.outgoing, &mut sink, bytes)
                }
                Side::Server(connection) => {
                    let status = connection.process_tls_records(&mut []);
                    step(status, &mut self.outgoing, &mut sink, bytes)
                }
            }?;
            match stage {
                Stage::Again => {}
                Stage::Open => return Ok(()),
                Stage::Blocked => return Err(io::ErrorKind::NotConnected.into()),
                Stage::Closed => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    fn flush(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while self.sent < self.outgoing.len() {
            let rest = &self.outgoing[self.sent..];
            self.sent += rustix::net::send(socket, rest, SendFlags::NOSIGNAL)?;
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives more behind what has come. 0: the other end has closed.
    fn fill(&mut self, socket: &OwnedFd, flags: RecvFlags) -> io::Result<usize> {
        if self.start > 0 {
            self.incoming.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.incoming.len() {
            // A record must fit; and who had more than fitted shall need fewer calls.
            let length = (self.incoming.len() * 2).max(FIRST_RECEIVED);
            self.incoming.resize(length, 0);
        }
        let room = self.incoming.len() - self.end;
        let wanted =
            if self.for_kernel { missing(&self.incoming[..self.end]).min(room) } else { room };
        let place = &mut self.incoming[self.end..self.end + wanted];
        let (got, _) = rustix::net::recv(socket, place, flags)?;
        self.end += got;
        if got == room && self.incoming.len() < MAX_RECEIVED {
            self.incoming.resize(self.incoming.len() * 2, 0);
        }
        Ok(got)
    }
}

/// Bytes that the record is short of with which `incoming` ends; of its header, if that is not
/// whole.
fn missing(mut incoming: &[u8]) -> usize {
    loop {
        let Some(header) = incoming.first_chunk::<HEADER>() else {
            return HEADER - incoming.len();
        };
        let length = HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
        match incoming.get(length..) {
            Some(next) => incoming = next,
            None => return length - incoming.len(),
        }
    }
}

/// Does what rustls asks for. Returns the bytes of what has come that are done with.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
    sink: &mut Sink<'_>,
    to_send: &[u8],
) -> io::Result<(usize, Stage)> {
    let mut discard = status.discard;
    let stage = match status.state.map_err(failed)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(failed)?;
                discard += record.discard;
                sink.take(record.payload);
            }
            Stage::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            append(outgoing, 0, |place| match data.encode(place) {
                Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                other => other.map_err(|_| None),
            })?;
            Stage::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            // It is sent before anything else is, which is all that rustls wants to know.
            data.done();
            Stage::Again
        }
        ConnectionState::BlockedHandshake => Stage::Blocked,
        ConnectionState::WriteTraffic(mut traffic) => {
            if !to_send.is_empty() {
                let records = to_send.len().div_ceil(RECORD);
                let expected = to_send.len() + records * RECORD_OVERHEAD;
                append(outgoing, expected, |place| match traffic.encrypt(to_send, place) {
                    Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                    other => other.map_err(|_| None),
                })?;
            }
            Stage::Open
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => Stage::Closed,
        _ => return Err(io::Error::other("TLS is in a state that is not expected")),
    };
    Ok((discard, stage))
}

/// Has `write` fill the space behind `outgoing`; it says how much more it needs.
fn append(
    outgoing: &mut Vec<u8>,
    expected: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> io::Result<()> {
    let before = outgoing.len();
    outgoing.resize(before + expected, 0);
    let written = match write(&mut outgoing[before..]) {
        Err(Some(needed)) => {
            outgoing.resize(before + needed, 0);
            write(&mut outgoing[before..])
        }
        other => other,
    };
    outgoing.truncate(before + written.unwrap_or_default());
    written.map(drop).map_err(|_| io::Error::other("TLS cannot send any more under these keys"))
}

fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}
