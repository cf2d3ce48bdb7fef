use wirecost_model::profile::{IoValue, Options};
use wirecost_model::server_sockets::ServerSockets as Sockets;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct ServerSockets;

impl ServerSockets {
    /// What connections with these options ask for, where several clients share a socket.
    #[must_use]
    pub fn shared(&self, options: &Options) -> Option<Sockets> {
        match self.get(options)? {
            IoValue::Text(name) => {
                name.parse().ok().filter(|sockets| *sockets != Sockets::PerConnection)
            }
            _ => None,
        }
    }
}

impl IoOption for ServerSockets {
    fn name(&self) -> &'static str {
        "server_sockets"
    }

    fn help(&self) -> &'static str {
        "sockets on which the peer receives datagrams or accepts connections of the group"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Connect
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["udp", "tcp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Choice(Sockets::NAMES)
    }

    fn effect(&self) -> Effect {
        Effect::Opening
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Text(name) => Some(format!("server sockets {name}")),
            _ => None,
        }
    }
}
