use wirecost_model::profile::IoValue;
use wirecost_model::server_sockets::ServerSockets as Sockets;
use wirecost_profile::io_options::server_sockets::ServerSockets as SocketsOption;

use super::{Change, RunOption, set_on_connections};

pub(super) struct ServerSockets;

impl RunOption for ServerSockets {
    fn name(&self) -> &'static str {
        "server_sockets"
    }

    fn long(&self) -> &'static str {
        "server-sockets"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("SOCKETS")
    }

    fn help(&self) -> &'static str {
        "Sockets on which the peer receives UDP datagrams or accepts TCP connections: per-connection, per-worker (the \
         one of the CPU that handled the packet), or shared by all workers [default: the profile's, or per-connection]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let sockets: Sockets = value.parse()?;
        let value = IoValue::Text(sockets.to_string());
        Ok(Change::to_profile(move |profile| {
            set_on_connections(profile, &SocketsOption, &value, "--server-sockets", "by UDP or TCP")
        }))
    }
}
