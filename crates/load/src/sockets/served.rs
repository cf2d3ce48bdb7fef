//! Sockets that several clients send to: from whom a datagram came, and to whom the answer goes.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags};
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::Clock;
use wirecost_program::clients::Client;
use wirecost_program::hello::{self, Hello};
use wirecost_program::net::FromClient;
use wirecost_program::step::ReceiveCall;

use super::Socket;
use super::data::DataPath;
use crate::clients::Clients;

/// What such a socket keeps.
#[derive(Debug)]
pub(super) struct Served {
    clients: Option<Arc<Clients>>,
    /// Those it has heard of.
    known: HashMap<SocketAddr, Arc<Client>>,
    /// From whom the last datagram came.
    last: Option<(SocketAddr, Arc<Client>)>,
    /// To whom the next one goes.
    answered: Option<SocketAddr>,
}

impl Served {
    pub(super) fn new(clients: Option<Arc<Clients>>) -> Self {
        Self { clients, known: HashMap::new(), last: None, answered: None }
    }

    /// Who has sent a datagram, and from where. Those of strangers are passed over, as after an interruption.
    pub(super) fn client(
        &mut self,
        sender: Option<SocketAddr>,
    ) -> io::Result<(&Client, SocketAddr)> {
        let stranger = || io::Error::from(io::ErrorKind::Interrupted);
        let sender = sender.ok_or_else(stranger)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != sender) {
            let client = match self.known.get(&sender) {
                Some(client) => client.clone(),
                None => {
                    let clients = self.clients.as_ref().ok_or_else(stranger)?;
                    let client = clients.find(sender).ok_or_else(stranger)?;
                    self.known.insert(sender, client.clone());
                    client
                }
            };
            self.last = Some((sender, client));
        }
        self.last.as_ref().map(|(_, client)| (&**client, sender)).ok_or_else(stranger)
    }
}

/// Welcomes a client that repeats its hello, which is none of the datagrams that are counted.
#[cold]
pub(super) fn welcome_again(
    socket: &Socket,
    datagram: &[u8],
    sender: Option<SocketAddr>,
    run: u32,
) -> io::Error {
    if let (Ok(hello), Some(to)) = (Hello::read(datagram, run), sender) {
        // A welcome that is lost again is asked for again.
        let _ = rustix::net::sendto(&socket.fd, &hello.welcome(), SendFlags::DONTWAIT, &to);
    }
    io::ErrorKind::Interrupted.into()
}

impl DataPath {
    /// See [`wirecost_program::net::Net::receive_from_client`].
    pub(super) fn receive_from_client(
        &mut self,
        socket: &Socket,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<FromClient<'_>> {
        if let ReceiveCall::Batched(receives) = call {
            let wait = self.blocking && !timed;
            return self.receive_batched_from_client(socket, receives, wait);
        }
        let place = self.served_place(socket);
        if socket.is_stamped() {
            let wait = self.blocking && !timed;
            let (received, at, sender) = self.receive_from_with_stamp(socket, wait)?;
            self.served[place].client(sender)?;
            if hello::is_greeting(&self.buffer[..received.length]) {
                return Err(self.greeted_again(socket, sender, received.length));
            }
            self.note_stamp(received.stamp, at);
            let (client, from) = self.served[place].client(sender)?;
            let datagram = &self.buffer[..received.length];
            return Ok(FromClient { datagram, client, from, at: Monotonic.now() });
        }
        // Of workers that share a socket one may have it in a ring, for which it must block.
        let waits = self.blocking && !timed;
        let flags = if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let (got, _, sender) = rustix::net::recvfrom(&socket.fd, &mut self.buffer[..], flags)?;
        let at = Monotonic.now();
        let sender = sender.and_then(|sender| SocketAddr::try_from(sender).ok());
        self.served[place].client(sender)?;
        if hello::is_greeting(&self.buffer[..got]) {
            return Err(self.greeted_again(socket, sender, got));
        }
        let (client, from) = self.served[place].client(sender)?;
        Ok(FromClient { datagram: &self.buffer[..got], client, from, at })
    }

    /// The client that has sent a datagram which a ring has received.
    pub(crate) fn sent_by_client<'a>(
        &'a mut self,
        socket: &Socket,
        (datagram, sender): (&'a [u8], Option<SocketAddr>),
    ) -> io::Result<FromClient<'a>> {
        let place = self.served_place(socket);
        self.served[place].client(sender)?;
        if hello::is_greeting(datagram) {
            return Err(welcome_again(socket, datagram, sender, self.run));
        }
        let (client, from) = self.served[place].client(sender)?;
        Ok(FromClient { datagram, client, from, at: Monotonic.now() })
    }

    /// To whom an answer goes.
    pub(crate) fn answered(&mut self, socket: &Socket) -> io::Result<SocketAddr> {
        let place = self.served_place(socket);
        self.served[place].answered.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// A client has not got its welcome, and repeats the hello to where its data goes.
    #[cold]
    fn greeted_again(
        &self,
        socket: &Socket,
        sender: Option<SocketAddr>,
        length: usize,
    ) -> io::Error {
        welcome_again(socket, &self.buffer[..length], sender, self.run)
    }

    /// See [`wirecost_program::net::Net::will_answer`].
    pub(super) fn will_answer(&mut self, socket: &Socket) {
        let place = self.served_place(socket);
        let served = &mut self.served[place];
        served.answered = served.last.as_ref().map(|(address, _)| *address);
    }

    /// Sends to the client whose datagram is answered.
    pub(super) fn answer(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let address = self.answered(socket)?;
        // As in `receive_from_client`.
        let wait = if self.blocking { SendFlags::empty() } else { SendFlags::DONTWAIT };
        Ok(rustix::net::sendto(&socket.fd, bytes, SendFlags::NOSIGNAL | wait, &address)?)
    }
}
